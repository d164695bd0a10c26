"""Statistics: equal to numpy's, within the stated bounds, and the same however the work is divided."""

import json
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
from croupier.example import decode, encode
from croupier.inspect.counting import QUANTILES, Numbers
from croupier.inspect.sketch import Different, Frequent, Quantiles, grouped, hashed, ordered, restored

SHARES = np.array(QUANTILES)


def write(path, records):
    with croupier.writer(path) as out:
        out.write_many(map(encode, records))
    return path


def close(found, expected):
    return found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def check_numbers(found, values):
    """Against numpy, on all values together."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    wide = finite.astype(np.float64)
    assert found.finite == len(finite)
    assert found.zeros == int((finite == 0).sum())
    if values.dtype.kind == "f":
        assert (found.nan, found.infinite) == (int(np.isnan(values).sum()), int(np.isinf(values).sum()))
    if not len(finite):
        assert (found.smallest, found.mean, found.std, found.quantiles) == (None, None, None, {})
        return
    assert (found.smallest, found.largest) == (finite.min(), finite.max())
    assert close(found.mean, wide.mean())
    assert found.std == pytest.approx(wide.std(), rel=1e-6, abs=1e-9 * np.abs(wide).max())
    exact = np.quantile(finite, SHARES, method="inverted_cdf")
    quantiles = np.array(list(found.quantiles.values()))
    assert list(found.quantiles) == [f"{share:g}" for share in QUANTILES]
    if found.quantile_error:
        assert found.quantile_error <= 1 / 32
        assert (quantiles <= exact).all()
        assert (np.abs(exact - quantiles) <= np.abs(exact) * found.quantile_error + 1e-30).all()
    else:
        assert (quantiles == exact).all()
    values, counts = np.unique(finite, return_counts=True)
    if found.different_error:
        assert abs(found.different - len(values)) <= 5 * found.different_error * len(values)
    else:
        assert found.different == len(values)
    check_top(found, dict(zip(values.tolist(), counts.tolist(), strict=True)))
    check_bins(found, finite)


def check_top(found, counts, key=lambda one: one.value):
    most = Counter(counts).most_common(1)[0][1]
    for one in found.top:
        assert one.times <= counts[key(one)] <= one.times + found.top_error
    missing = set(counts) - {key(one) for one in found.top}
    if found.top_error:
        assert found.top_error <= sum(counts.values()) / 1024
    elif missing:
        assert max(counts[value] for value in missing) <= min(one.times for one in found.top)
        assert found.top[0].times == most
    assert [one.times for one in found.top] == sorted((one.times for one in found.top), reverse=True)


def check_bins(found, values):
    assert sum(one.values for one in found.bins) == len(values)
    assert found.bins[0].least <= values.min()
    assert len(found.bins) <= 17
    for one, after in zip(found.bins, found.bins[1:], strict=False):
        assert one.least < one.below == after.least
    if found.quantile_error:
        return
    values = values if values.dtype.kind == "i" else values.astype(np.float64)
    for place, one in enumerate(found.bins):
        last = place == len(found.bins) - 1 and values.dtype.kind == "f"
        inside = (values >= one.least) & ((values <= one.below) if last else (values < one.below))
        assert one.values == int(inside.sum())


# The parts


ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38]
SORTS = {
    "few integers": lambda rng, n: rng.integers(0, 5, n),
    "many integers": lambda rng, n: rng.integers(-(2**40), 2**40, n),
    "all integers": lambda rng, n: rng.integers(-(2**63), 2**63 - 1, n, endpoint=True),
    "times": lambda rng, n: 1_700_000_000 + rng.integers(0, 10**6, n),
    "floats": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "skewed": lambda rng, n: rng.lognormal(0, 4, n).astype(np.float32),
    "rounded": lambda rng, n: rng.normal(size=n).round(1).astype(np.float32),
    "odd": lambda rng, n: rng.choice(
        np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38], np.float32), n
    ),
    "doubles": lambda rng, n: rng.normal(size=n) * 1e150,
    "halves": lambda rng, n: rng.normal(size=n).astype(np.float16),
    "bytes": lambda rng, n: rng.integers(0, 256, n, np.uint8),
    "one": lambda rng, n: np.full(n, 7),
    "nothing": lambda rng, n: np.zeros(0, np.float32),
    "no number": lambda rng, n: np.full(n, np.nan, np.float32),
}


@pytest.mark.parametrize("count", [1, 300, 60_000])
@pytest.mark.parametrize("sort", SORTS)
def test_numbers_against_numpy(sort, count):
    rng = np.random.default_rng(7)
    values = SORTS[sort](rng, count)
    whole = Numbers(values.dtype, 16_384)
    for part in np.array_split(values, 1 + count // 5000):
        other = Numbers(values.dtype, 16_384)
        other.add(part)
        other.settle()
        whole.merge(other)
    check_numbers(whole.result(), values)


def test_moments_are_sound_far_from_zero():
    rng = np.random.default_rng(1)
    values = 10**15 + rng.integers(0, 2, 100_000)
    found = Numbers(values.dtype, 256)
    for part in np.array_split(values, 50):
        one = Numbers(values.dtype, 256)
        one.add(part)
        found.merge(one)
    assert found.result().std == pytest.approx((values - 10**15).std(), rel=1e-6)


parts = st.lists(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=30), max_size=8
)


@settings(max_examples=200)
@given(parts, st.randoms())
def test_quantiles_do_not_depend_on_the_parts(lists, rng):
    """Whatever is put together first, the same groups come out: with few of them, so that they matter."""

    def sketch(values):
        found = Quantiles(np.dtype(np.float32), 8)
        found.add(*grouped(ordered(np.array(values, np.float32))))
        return found

    whole = sketch([value for part in lists for value in part])
    sketches = [sketch(part) for part in lists]
    while len(sketches) > 1:
        rng.shuffle(sketches)
        last = sketches.pop()
        rng.choice(sketches).merge(last)
    for found in sketches:
        for ours, theirs in zip(found.groups(), whole.groups(), strict=True):
            assert ours.tolist() == theirs.tolist()
        assert found.error == whole.error
        assert len(found.groups()[0]) <= 8


@settings(max_examples=200)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.randoms())
def test_integers_become_floats_wherever_they_do(values, rng):
    def sketch(part):
        found = Quantiles(np.dtype(np.int64), 8)
        found.add(*grouped(np.array(part, np.int64)))
        return found

    whole, cut = sketch(values), rng.randrange(len(values) + 1)
    first, second = sketch(values[:cut]), sketch(values[cut:])
    first.merge(second)
    assert first.groups()[0].tolist() == whole.groups()[0].tolist()
    assert first.groups()[1].tolist() == whole.groups()[1].tolist()
    if len(set(values)) <= 8:
        assert whole.groups()[0].tolist() == sorted(set(values))
        assert whole.error == 0


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_keys_have_the_order_of_the_values(values):
    array = np.array(values, np.float32)
    keys = ordered(array)
    assert np.array_equal(restored(keys, np.float32), array)
    assert np.array_equal(array[np.argsort(keys)], np.sort(array))


@settings(max_examples=200)
@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=60), max_size=8))
def test_the_most_frequent(lists):
    found, counts = Frequent(8), Counter()
    for part in lists:
        one = Frequent(8)
        for half in (part[: len(part) // 2], part[len(part) // 2 :]):
            keys, times = grouped(np.array(half, np.int64))
            one.add(keys.view(np.uint64), times, keys)
        counts.update(part)
        found.merge(one)
    top = found.top(100)
    assert len(top) <= 8
    assert found.lost <= sum(counts.values()) / 9
    for times, value in top:
        assert times <= counts[value] <= times + found.lost
    assert all(counts[value] <= found.lost for value in set(counts) - {int(value) for _, value in top})
    if not found.lost:
        assert {int(value): times for times, value in top} == counts


def test_how_many_different():
    for count in (0, 1, 2047, 2048, 5000, 300_000):
        hashes = hashed(np.arange(count))
        assert len(set(hashes.tolist())) == count
        whole, merged = Different(), Different()
        whole.add(np.concatenate([hashes, hashes]))
        for part in np.array_split(hashes, 7):
            one = Different()
            one.add(part)
            merged.merge(one)
            merged.merge(one)
        assert merged.count == whole.count
        assert merged.error == whole.error
        if count < 2048:
            assert (whole.count, whole.error) == (count, 0)
        else:
            assert abs(whole.count - count) / count < 3 * whole.error < 0.07


# Datasets


def random_record(rng):
    record = {
        "label": rng.randrange(3),
        "number": int(rng.lognormvariate(5, 3)),
        "many": [rng.gauss(0, 1) for _ in range(rng.randrange(5))] or np.zeros(0, np.float32),
        "word": rng.choice(["a", "bb", "größer", ""]) if rng.random() < 0.9 else f"{rng.random()}",
        "id": f"{rng.randrange(10**9)}",
        "pixels": rng.randbytes(12),
        "two": [b"\xff\x00", b"text"],
    }
    if rng.random() < 0.3:
        record["odd"] = rng.choice([float("nan"), float("inf"), 0.0, -0.5])
    return record


@pytest.fixture(scope="module")
def records():
    rng = random.Random(3)
    return [random_record(rng) for _ in range(25_000)]


@pytest.fixture(scope="module")
def path(records, tmp_path_factory):
    return write(tmp_path_factory.mktemp("stats") / "x.tfrecord", records)


def check_feature(found, rows):
    """`rows`: a list of values for each record, or None."""
    have = [row for row in rows if row is not None]
    assert (found.present, found.missing) == (len(have), len(rows) - len(have))
    counts = [len(row) for row in have]
    assert (found.values, found.fewest, found.most) == (sum(counts), min(counts), max(counts))
    assert close(found.mean, np.mean(counts))
    if found.kind != "string":
        check_numbers(found.numbers, np.concatenate([np.asarray(row) for row in have]))
        return
    values = [value for row in have for value in row]
    sizes = np.array([len(value) for value in values])
    check_numbers(found.bytes.sizes, sizes)
    counts = Counter(values)
    if found.bytes.different_error:
        error = 5 * found.bytes.different_error
        assert abs(found.bytes.different / len(counts) - 1) <= error
    else:
        assert found.bytes.different == len(counts)
    short = {(value[:32], len(value)): times for value, times in counts.items()}
    check_top(found.bytes, short, key=lambda one: (one.value, one.size))
    assert sum(found.bytes.looks.values()) == sum(size > 0 for size in sizes)


def rows_of(payloads, name):
    return [decode(payload).get(name) for payload in payloads]


def test_all_features_against_numpy(records, path):
    payloads = [encode(record) for record in records]
    found = croupier.statistics(path)
    assert found.records == len(records)
    assert sorted(found) == sorted({name for record in records for name in record})
    for name in found:
        check_feature(found[name], rows_of(payloads, name))
    assert found["word"].bytes.looks == {
        "utf-8": found["word"].bytes.sizes.finite - found["word"].bytes.sizes.zeros
    }
    assert found["two"].bytes.looks == {"raw": 25_000, "utf-8": 25_000}


def test_the_same_whatever_the_workers(path):
    texts = {json.dumps(croupier.statistics(path, workers=workers).as_dict()) for workers in (1, 2, 3, 7)}
    assert len(texts) == 1
    json.loads(texts.pop(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_some_columns_and_parts(records, path):
    found = croupier.statistics(croupier.open(path).take(100), ["label", "odd"])
    assert list(found) == ["label", "odd"]
    assert found.records == 100
    check_feature(found["label"], [[record["label"]] for record in records[:100]])
    with pytest.raises(croupier.UsageError, match="labe"):
        croupier.statistics(path, ["labe"])


def test_a_column_that_is_rare(tmp_path):
    records = [{"a": number} | ({"rare": [1.5, 2]} if number == 20_000 else {}) for number in range(25_000)]
    path = write(tmp_path / "x.tfrecord", records)
    found = croupier.statistics(path, ["rare", "a"])
    assert (found["rare"].present, found["rare"].missing, found["rare"].numbers.largest) == (1, 24_999, 2)
    assert found["a"].present == 25_000


def test_raw_tensors_are_numbers_where_a_schema_says_so(records, path):
    schema = croupier.infer_schema(path).replace("pixels", dtype=">f4", shape=[3])
    found = croupier.statistics(path, ["pixels"], schema=schema)["pixels"]
    values = np.concatenate([np.frombuffer(record["pixels"], ">f4") for record in records])
    check_numbers(found.numbers, values.astype(np.float32))
    assert found.bytes.sizes.smallest == 12
    schema = schema.replace("pixels", dtype="uint8", shape=[12])
    found = croupier.statistics(path, ["pixels"], schema=schema)["pixels"]
    check_numbers(found.numbers, np.concatenate([np.frombuffer(r["pixels"], np.uint8) for r in records]))


def test_of_nothing(tmp_path):
    assert len(croupier.statistics(write(tmp_path / "x.tfrecord", []))) == 0
    found = croupier.statistics(write(tmp_path / "y.tfrecord", [{"a": [b""]}, {"a": [b"", b""]}]))["a"]
    assert (found.values, found.bytes.different, found.bytes.looks) == (3, 1, {})
    found = croupier.statistics(write(tmp_path / "z.tfrecord", [{"a": np.zeros(0, np.int64)}]))["a"]
    assert (found.present, found.values, found.numbers.finite, found.numbers.bins) == (1, 0, 0, [])
    json.dumps(found.as_dict())


@pytest.mark.real
@pytest.mark.parametrize("name", ["golden*", "iris.tfrecords", "bridge*", "dmlab*"])
def test_real_records(shared_data, name):
    data = croupier.open(shared_data / name, index="memory")
    payloads = data[:].tolist()
    found = croupier.statistics(data)
    assert len(found) >= 3
    for feature in found:
        check_feature(found[feature], rows_of(payloads, feature))


MEASURE = """
import sys, threading
import croupier

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) // 1024

def peak(data):
    peaks, done = [0], threading.Event()
    def watch():
        while not done.wait(0.002):
            peaks[0] = max(peaks[0], anonymous())
    thread = threading.Thread(target=watch)
    thread.start()
    found = croupier.statistics(data, workers=2)
    done.set()
    thread.join()
    return peaks[0], found["x"].numbers.different

data = croupier.open(sys.argv[1], index="memory")
peak(data)
once, different = peak(data)
often, _ = peak(data.concat(*[data] * 9))
assert different > 900_000, different
print(often - once)
"""


@pytest.mark.unsanitized
def test_memory_does_not_grow_with_the_records(tmp_path):
    """Two features of a million values, all different, and then ten times these: 300 MB if they were held."""
    numbers = np.random.default_rng(2).permutation(10**6).reshape(-1, 50)
    records = ({"x": row, "s": [b"%d" % value for value in row]} for row in numbers)
    path = write(tmp_path / "x.tfrecord", records)
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150, done.stdout
