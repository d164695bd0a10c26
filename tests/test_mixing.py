"""Mixing: every statistic against plain definitions and all orders there are; verdicts on known orders."""

import itertools
import json
import math
import random
import statistics

import numpy as np
import pytest

import croupier
from croupier import dataset
from croupier.example import encode
from croupier.inspect import chance, origin
from test_cli import run_on_a_terminal

# What is expected, against all orders there are


def over_all_orders(items, measure):
    found = [measure(order) for order in itertools.permutations(items)]
    return statistics.fmean(found), statistics.pstdev(found)


def same(expected, found):
    assert (found.mean, found.deviation) == pytest.approx(expected)


def gaps(order):
    places = {record: place for place, record in enumerate(order)}
    return {pair: abs(places[pair] - places[pair + 1]) for pair in range(len(order) - 1)}


def lengths_of_runs(order):
    return [len(list(run)) for _, run in itertools.groupby(order)]


@pytest.mark.parametrize("records", [2, 3, 4, 7])
def test_expected_neighbours_and_distances(records):
    adjacent = over_all_orders(range(records), lambda order: list(gaps(order).values()).count(1))
    same(adjacent, chance.still_adjacent(records, records - 1, max(records - 2, 0)))
    for distance in range(1, records):
        near = over_all_orders(
            range(records), lambda order, most=distance: sum(gap <= most for gap in gaps(order).values())
        )
        assert chance.within(records, records - 1, distance).mean == pytest.approx(near[0])
    moved = over_all_orders(
        range(records), lambda order: statistics.fmean(abs(i - j) for i, j in enumerate(order)) / records
    )
    same(moved, chance.displacement(records, records))


def test_expected_neighbours_of_some_pairs():
    some = [0, 1, 3, 4, 5]  # of which three pairs share a record: 0 1, 3 4, 4 5
    found = over_all_orders(range(7), lambda order: sum(gaps(order)[pair] == 1 for pair in some))
    same(found, chance.still_adjacent(7, 5, 3))


@pytest.mark.parametrize("counts", [(3, 4), (3, 2, 2), (5, 1, 1), (7,), (1, 1, 1, 1), (1,), (0, 3, 2)])
def test_expected_runs(counts):
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    same(over_all_orders(labels, lambda order: len(lengths_of_runs(order))), chance.number_of_runs(counts))
    equal = over_all_orders(labels, lambda order: sum(a == b for a, b in itertools.pairwise(order)))
    same(equal, chance.equal_neighbours(counts))
    longest = chance.LongestRun(counts)
    for length in range(1, len(labels) + 1):
        runs = over_all_orders(
            labels, lambda order, least=length: sum(run >= least for run in lengths_of_runs(order))
        )
        assert longest.runs(length) == pytest.approx(runs[0], abs=1e-12)


@pytest.mark.parametrize(
    ("counts", "within"), [((1000, 1000), 0.03), ((1900, 100), 0.05), ((300,) * 7, 0.03), ((50, 50), 0.05)]
)
def test_expected_longest_run(counts, within):
    """Poisson's distribution is near enough where runs are many."""
    rng, longest = np.random.default_rng(7), chance.LongestRun(counts)
    labels = np.repeat(np.arange(len(counts)), counts)
    found = []
    for _ in range(1500):
        rng.shuffle(labels)
        edges = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1], [True]]))
        found.append(int(np.diff(edges).max()))
    assert longest.mean == pytest.approx(statistics.fmean(found), rel=within)
    for share in (0.5, 0.05):
        length = sorted(found)[int(len(found) * (1 - share))]
        assert sum(one >= length for one in found) / len(found) == pytest.approx(
            longest.beyond(length), abs=0.06
        )


def test_longest_run_of_many_records():
    """A coin of 10^9 throws: log2 of half of them, and Euler's constant."""
    found = chance.LongestRun([5 * 10**8] * 2).mean
    assert found == pytest.approx(math.log2(10**9) + 0.5772 / math.log(2) - 0.5, abs=0.6)
    assert chance.LongestRun([10**6 - 1, 1]).mean == pytest.approx(0.75 * 10**6, rel=0.3)  # of two runs


def chi_square(parts, labels):
    """As textbooks have it."""
    everything = [label for part in parts for label in part]
    total = 0.0
    for part in parts:
        for label in labels:
            expected = len(part) * everything.count(label) / len(everything)
            total += (part.count(label) - expected) ** 2 / expected
    return total


def test_expected_chi_square():
    labels, cuts = [0, 0, 0, 0, 1, 1, 2], (3, 5)

    def of(order):
        return chi_square([order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :]], range(3))

    def ours(order):
        found = chance.ChiSquare()
        for part in np.split(np.array(order), cuts):
            found.add(np.bincount(part, minlength=3))
        return found.result([4, 2, 1])

    for order in list(itertools.permutations(labels))[::97]:
        assert ours(order)[0] == pytest.approx(of(order))
    _, freedom, expected, _ = ours(labels)
    same(over_all_orders(labels, of), expected)
    assert freedom == 4


# Orders that are known, measured by definition


def untouched(n, rng):
    return list(range(n))


def bundles(n, rng):
    """Whole bundles change places, as in Beam's local runner: their records stay together."""
    size = max(n // 12, 1)
    parts = [list(range(begin, min(begin + size, n))) for begin in range(0, n, size)]
    rng.shuffle(parts)
    return [record for part in parts for record in part]


def buffer(n, rng, size=50):
    """tf.data.Dataset.shuffle: a random one of a buffer goes, the next one takes its place."""
    held, order = list(range(min(size, n))), []
    for record in range(size, n):
        place = rng.randrange(len(held))
        order.append(held[place])
        held[place] = record
    rng.shuffle(held)
    return order + held


def large_buffer(n, rng):
    return buffer(n, rng, n // 2)


def interleaved(n, rng):
    """One record of each of ten files in turn."""
    return [record for first in range(n // 10) for record in range(first, n, n // 10)]


def backwards(n, rng):
    return list(range(n))[::-1]


def shuffled(n, rng):
    order = list(range(n))
    rng.shuffle(order)
    return order


MAKERS = {
    untouched: "badly",
    bundles: "badly",
    buffer: "badly",
    large_buffer: "partly",
    interleaved: "badly",
    backwards: "badly",
    shuffled: "well",
}
N, CLASSES = 2000, 4


def record(number, **more):
    return {
        "label": number * CLASSES // N,
        "locus": f"chr{number * 22 // N + 1}:{number * 31}-{number * 31 + 1}",
    } | more


def write(folder, order, make=record, files=3):
    for file, part in enumerate(np.array_split(np.array(order), files)):
        with croupier.writer(folder / f"train-{file}.tfrecord") as out:
            out.write_many(encode(make(number)) for number in part.tolist())
    return folder


def check_order(found, order):
    n, far = len(order), list(gaps(order).values())
    near = max(n // 100, 1)
    assert (found.records, found.pairs) == (n, n - 1)
    assert found.adjacent == far.count(1)
    assert (found.near_distance, found.near) == (near, sum(gap <= near for gap in far))
    moved = statistics.fmean(abs(place - number) for place, number in enumerate(order)) / n
    assert found.displacement == pytest.approx(moved)
    assert found.gaps[0].least == 1
    assert found.gaps[-1].most == n - 1
    for gap, after in itertools.zip_longest(found.gaps, found.gaps[1:]):
        assert gap.pairs == sum(gap.least <= one <= gap.most for one in far)
        assert after is None or after.least == gap.most + 1
    assert sum(gap.expected for gap in found.gaps) == pytest.approx(n - 1)


def check_labels(found, labels, parts):
    runs = lengths_of_runs(labels)
    assert found.runs == len(runs)
    assert found.longest_run == max(runs)
    assert int(found.longest_run_label) in [
        k for k, run in itertools.groupby(labels) if len(list(run)) == max(runs)
    ]
    assert dict(found.top) == {str(label): labels.count(label) for label in set(labels)}
    assert found.chi_square == pytest.approx(chi_square(parts, sorted(set(labels))))


@pytest.mark.parametrize("maker", MAKERS)
def test_orders_and_their_verdicts(tmp_path, monkeypatch, maker):
    monkeypatch.setattr(dataset, "AHEAD", 37)  # records that are looked at together
    order = maker(N, random.Random(7))
    found = croupier.mixing(write(tmp_path, order))
    check_order(found.order, order)
    labels = [record(number)["label"] for number in order]
    check_labels(found.labels, labels, [part.tolist() for part in np.array_split(np.array(labels), 3)])
    assert (found.identical, found.verdict) == (0, MAKERS[maker])
    if maker in (untouched, bundles, backwards):
        assert "of neighbours were neighbours in the source" in found.reason
    assert found.notes == []


def test_a_shuffle_by_us_and_what_went_in(tmp_path, command):
    write(tmp_path / "in", range(N))
    croupier.shuffle(tmp_path / "in", tmp_path / "out" / "train", seed=7, shards=5)
    before, after = command("mixing", tmp_path / "in"), command("mixing", tmp_path / "out")
    assert (before.code, after.code) == (0, 0)
    assert before.out.splitlines()[-1] == (
        "BADLY MIXED: 100 % of neighbours were neighbours in the source (0.1 % in a random order)"
    )
    assert after.out.splitlines()[-1].startswith("WELL MIXED: 0.")


@pytest.mark.interop
@pytest.mark.parametrize(("size", "verdict"), [(1, "badly"), (100, "badly"), (N, "well")])
def test_the_buffer_of_tensorflow(tmp_path, size, verdict):
    import tensorflow as tf

    order = [int(one) for one in tf.data.Dataset.range(N).shuffle(size, seed=7).as_numpy_iterator()]
    assert croupier.mixing(write(tmp_path, order)).verdict == verdict


# What tells the order


@pytest.mark.parametrize(
    "name",
    [
        lambda i: f"chr{'XY'[i // 1000 - 2] if i >= N // 2 and i >= 2000 else i // 100 + 1}:{i}-{i + 1}",
        lambda i: f"chr{i // 100 + 1}:{i % 100 + 7}-{i + 1}",
        lambda i: f"part-{i // 50}/image_{i}.jpg",
        lambda i: f"{i}",
        lambda i: [i - 1000],
        lambda i: [(i - 1000) / 3],
    ],
)
def test_names_and_numbers_tell_an_order(tmp_path, name):
    write(tmp_path, range(N), lambda number: {"name": name(number)})
    assert croupier.mixing(tmp_path, order="name").order.adjacent == N - 1


def test_what_tells_no_order(tmp_path, monkeypatch, command):
    monkeypatch.setattr(origin, "GROUPS", 100)
    write(
        tmp_path, range(N), lambda number: {"locus": "".join(map(chr, (97 + number % 20, 97 + number // 20)))}
    )
    with pytest.raises(croupier.UsageError, match="does not tell an order"):
        croupier.mixing(tmp_path, order="locus")
    found = croupier.mixing(tmp_path)
    assert (found.order, found.verdict) == (None, "unknown")
    assert any("does not tell an order" in note for note in found.notes)
    ran = command("mixing", tmp_path, "--order", "lokus")
    assert ran.code == 2
    assert "do you mean 'locus'?" in ran.err


def test_equal_keys_prefer_no_order(tmp_path):
    """Ten records of each locus, at random: no more neighbours than by chance, no fewer."""
    order = shuffled(N, random.Random(3))
    found = croupier.mixing(write(tmp_path, order, lambda number: {"at": number // 10}), order="at")
    assert abs(found.order.adjacent_z) < 4
    assert abs(found.order.displacement_z) < 4
    assert found.verdict == "well"
    assert any("few different values" in note for note in found.notes)


def test_records_that_lack_the_feature(tmp_path):
    def some(number):
        return {"label": 1} | ({"locus": f"chr1:{number}-{number}"} if number % 3 else {})

    found = croupier.mixing(write(tmp_path, range(N), some))
    assert found.order.records == sum(number % 3 > 0 for number in range(N))
    assert found.order.adjacent == sum(number % 3 == 1 for number in range(N - 1))
    assert found.order.displacement == pytest.approx(0, abs=1e-3)
    assert any("left out" in note for note in found.notes)


# The receipt


@pytest.fixture
def output(tmp_path):
    """Of three inputs, one of them empty; records say where they were."""
    for file, count in enumerate((700, 0, 301)):
        with croupier.writer(tmp_path / "in" / f"{file}.tfrecord") as out:
            out.write_many(b"%d" % (700 * (file > 0) + number) for number in range(count))
    croupier.shuffle(tmp_path / "in" / "*.tfrecord", tmp_path / "out" / "train", seed=7, shards=4)
    return tmp_path / "out"


def test_a_receipt_tells_the_order_and_is_checked(output, command):
    order = [int(payload) for payload in croupier.open(output)]
    found = croupier.mixing(output)
    check_order(found.order, order)
    assert (found.verdict, found.order.checked) == ("well", 32)
    ran = command("mixing", output)
    assert "32 records against the inputs: all are where they should be" in ran.out


def rewrite(path, change):
    payloads = list(croupier.read(path))
    change(payloads)
    with croupier.writer(path, overwrite=True) as out:
        out.write_many(payloads)


def test_a_receipt_is_not_believed_where_the_files_are_not_what_it_says(output):
    rewrite(output / "train-00001-of-00004.tfrecord", lambda payloads: payloads.sort(key=int))
    found = croupier.mixing(output)
    assert (found.order, found.verdict) == (None, "unknown")
    assert any("not where" in note for note in found.notes)


def test_a_receipt_of_other_files_tells_nothing(output, tmp_path):
    found = croupier.mixing(output / "train-0000[012]*")
    assert any("no receipt of a shuffle that wrote these files" in note for note in found.notes)
    rewrite(tmp_path / "in" / "0.tfrecord", list.pop)
    found = croupier.mixing(output)
    assert found.order is None
    assert any("1,000 records, and the output 1,001" in note for note in found.notes)


def damage(receipt, change):
    content = json.loads(receipt.read_text())
    change(content)
    receipt.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("seed"),
        lambda content: content.update(seed=-1),
        lambda content: content.update(seed="x"),
        lambda content: content.update(inputs=[]),
        lambda content: content.update(inputs=[7]),
        lambda content: content.update(shards=7),
        lambda content: [one.update(records=2**70) for one in content["inputs"]],
        lambda content: [one.update(records=-5) for one in content["inputs"]],
        lambda content: [one.update(path="/nowhere") for one in content["inputs"]],
    ],
)
def test_a_damaged_receipt_is_a_note(output, change):
    damage(output / ".croupier" / "train.receipt.json", change)
    found = croupier.mixing(output)
    assert found.order is None
    assert any("order of the source is not known" in note for note in found.notes)


def test_a_receipt_with_counts_is_believed_when_its_inputs_are_gone(output, tmp_path):
    order = [int(payload) for payload in croupier.open(output)]
    damage(
        output / ".croupier" / "train.receipt.json",
        lambda content: [
            one.update(records=n) for one, n in zip(content["inputs"], (700, 0, 301), strict=True)
        ],
    )
    for path in (tmp_path / "in").glob("*.tfrecord"):
        path.unlink()
    found = croupier.mixing(output)
    check_order(found.order, order)
    assert found.order.checked == 0
    assert any("is believed" in note for note in found.notes)


# More records than are kept


@pytest.fixture
def few_are_kept(monkeypatch):
    from croupier.inspect import mixing

    for module in (origin, mixing):
        monkeypatch.setattr(module, "MOST", 6000)
    monkeypatch.setattr(origin, "STEP", 5000)


@pytest.mark.parametrize("spread", [1, 1000, 10**9])
@pytest.mark.parametrize(("maker", "verdict"), [(untouched, "badly"), (bundles, "badly"), (shuffled, "well")])
def test_a_sample_by_a_feature(tmp_path, few_are_kept, maker, verdict, spread):
    n = 40_000
    rng = random.Random(5)
    order = maker(n, rng)
    keys = list(itertools.accumulate(rng.randrange(1, 2 * spread + 1) for _ in range(n)))
    found = croupier.mixing(write(tmp_path, order, lambda number: {"key": keys[number]}), order="key")
    far = list(gaps(order).values())
    assert 800 < found.order.records < 1200
    assert 300 < found.order.pairs < 4000
    assert found.order.adjacent / found.order.pairs == pytest.approx(far.count(1) / (n - 1), abs=0.02)
    moved = statistics.fmean(abs(place - number) for place, number in enumerate(order)) / n
    assert found.order.displacement == pytest.approx(moved, abs=0.02)
    assert found.verdict == verdict


def test_a_sample_by_a_receipt(tmp_path, few_are_kept):
    n = 40_000
    for file in range(2):
        with croupier.writer(tmp_path / "in" / f"{file}.tfrecord") as out:
            out.write_many(b"%d" % number for number in range(file * n // 2, (file + 1) * n // 2))
    croupier.shuffle(tmp_path / "in", tmp_path / "out" / "train", seed=7, shards=4)
    traced = origin.by_receipt(croupier.open(tmp_path / "out"))
    places = {int(payload): place for place, payload in enumerate(croupier.read(tmp_path / "out"))}
    source = {place: number for number, place in places.items()}
    numbers = [source[place] for place in traced.placed.positions.tolist()]
    assert 4000 < len(numbers) < 8000
    assert numbers == sorted(numbers)
    assert traced.placed.linked.tolist() == [b == a + 1 for a, b in itertools.pairwise(numbers)]
    assert croupier.mixing(tmp_path / "out").verdict == "well"


# Labels


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda k: {"of": "abc"[k]}, {"a", "b", "c"}),
        (lambda k: {"of": k / 2}, {"0", "0.5", "1"}),
        (lambda k: {"of": [int(k == one) for one in range(3)]}, {"1 0 0", "0 1 0", "0 0 1"}),
        (lambda k: {"of": bytes([0xFF, k])}, {"ff00", "ff01", "ff02"}),
        (lambda k: {"of": k} if k else {"other": 1}, {"(missing)", "1", "2"}),
        (lambda k: {"of": "x" * 100 + str(k)}, {"x" * 32 + "..."}),
    ],
)
def test_any_feature_may_be_a_label(tmp_path, monkeypatch, make, shown):
    monkeypatch.setattr(dataset, "AHEAD", 10)
    labels = [number // 100 % 3 for number in range(900)]
    found = croupier.mixing(write(tmp_path, labels, make), "of").labels
    assert (found.runs, found.longest_run, found.classes) == (9, 100, 3)
    assert {label for label, _ in found.top} == shown
    assert [times for _, times in found.top] == [300] * 3


def test_too_many_labels(tmp_path, monkeypatch):
    from croupier.inspect import labels

    monkeypatch.setattr(labels, "CLASSES", 100)
    write(tmp_path, range(N), lambda number: {"label": number})
    with pytest.raises(croupier.UsageError, match="more than 100 different values"):
        croupier.mixing(tmp_path, "label")
    found = croupier.mixing(tmp_path)
    assert found.labels is None
    assert any("it is no label" in note for note in found.notes)


def test_files_by_label_and_a_long_run(tmp_path):
    """What neighbours do not show."""
    rng = random.Random(7)
    halves = [[rng.choice("ab") for _ in range(500)], [rng.choice("cd") for _ in range(500)]]
    found = croupier.mixing(
        write(tmp_path / "files", halves[0] + halves[1], lambda of: {"label": of}, files=2)
    )
    assert (found.verdict, round(found.labels.cramers_v, 2)) == ("badly", 1)
    assert "files do not have the same share" in found.reason
    row = [rng.choice("ab") for _ in range(5000)]
    row[2000:2060] = "a" * 60
    found = croupier.mixing(write(tmp_path / "row", row, lambda of: {"label": of}))
    assert (found.verdict, found.labels.longest_run >= 60) == ("partly", True)
    assert "in a row" in found.reason


# Equal records


@pytest.mark.parametrize("few", [False, True])
def test_equal_records(tmp_path, request, few):
    if few:
        request.getfixturevalue("few_are_kept")
    contents = [number // 4 for number in range(20_000)] + [-1] * 5000
    together = croupier.mixing(write(tmp_path / "together", contents, lambda number: {"x": number}))
    assert together.identical == 5000 * 3 + 4999
    expected = sum(count * (count - 1) for count in [4] * 5000 + [5000]) / 25_000
    assert together.identical_expected == pytest.approx(expected, rel=0.1 if few else 1e-9)
    assert together.verdict == "badly"
    random.Random(3).shuffle(contents)
    apart = croupier.mixing(write(tmp_path / "apart", contents, lambda number: {"x": number}))
    assert apart.identical == pytest.approx(expected, rel=0.1)
    assert apart.verdict == "unknown"


# The command


def test_records_that_are_no_examples(tmp_path, command):
    with croupier.writer(tmp_path / "x.tfrecord") as out:
        out.write_many(b"\xff%d" % number for number in range(100))
    ran = command("mixing", tmp_path)
    assert ran.code == 0
    assert "no label: the records have no feature 'label'" in ran.out
    assert "there is no receipt" in ran.out
    assert ran.out.splitlines()[-1] == ("NOT KNOWN: neither the order of the source nor a label is known")


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_few_records(tmp_path, command, count):
    write(tmp_path, range(count), files=1)
    ran = command("mixing", tmp_path)
    assert ran.code == 0
    assert "NOT KNOWN" in ran.out.splitlines()[-1]
    assert json.loads(command("mixing", tmp_path, "--json").out)["verdict"] == "unknown"


def test_json_is_what_python_says(tmp_path, command):
    write(tmp_path, shuffled(N, random.Random(1)))
    found = croupier.mixing(tmp_path)
    assert json.loads(command("mixing", tmp_path, "--json").out) == json.loads(json.dumps(found.as_dict()))
    assert croupier.mixing(croupier.open(tmp_path), workers=1) == found


def test_a_view_of_a_dataset(tmp_path):
    data = croupier.open(write(tmp_path, range(N)))
    order = shuffled(N, random.Random(1))
    assert croupier.mixing(data).verdict == "badly"
    found = croupier.mixing(data.subset(order))
    check_order(found.order, order)
    assert (found.verdict, found.labels.chi_square) == ("well", None)


def test_what_records_say_does_nothing_to_a_terminal(tmp_path, command):
    write(tmp_path, range(100), lambda number: {"label": f"\x1b[2J{number // 50}"})
    assert "\x1b" not in command("mixing", tmp_path).out


def test_progress_on_a_terminal(tmp_path):
    write(tmp_path, range(N))
    code, output, shown = run_on_a_terminal(["mixing", tmp_path])
    assert code == 0
    assert "BADLY MIXED" in output
    assert "mixing" in shown
    assert "2,000 records" in shown


def test_real_examples(shared_data, tmp_path):
    """Of DeepVariant: 49 records, in the order of the genome."""
    with croupier.writer(tmp_path / "x.tfrecord.gz") as out:
        out.write_many(croupier.read(sorted(shared_data.glob("golden*"))))
    found = croupier.mixing(tmp_path)
    assert found.verdict == "badly"
    assert found.order.adjacent >= 40
