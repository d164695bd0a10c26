"""Parts of datasets and datasets of parts: like Python lists; splits: exact, disjoint, the same each time."""

import pickle
import random
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
from dataset_help import (
    framed,
    make,
    noise,
    payloads_of,
)

# Views


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three datasets and what they hold: the first and the last share a file, the second is of others."""
    folder = tmp_path_factory.mktemp("three")
    held = {}
    forms = ["plain", "plain", "seekable 5", "plain", "seekable 1", "plain"]
    for name, form in zip("abcdef", forms, strict=True):
        payloads = [f"{name}{number}".encode() * (number % 4) + b"." for number in range(ord(name) % 7 + 9)]
        held[make(folder / f"{name}.tfrec", payloads, form)] = payloads
    (folder / "empty.tfrec").write_bytes(b"")
    held[folder / "empty.tfrec"] = []
    made = []
    for names in (["a", "b", "empty", "c"], ["d", "e"], ["f", "empty", "c"]):
        paths = [folder / f"{name}.tfrec" for name in names]
        expected = [(path, k, payload) for path in paths for k, payload in enumerate(held[path])]
        made.append((croupier.open(paths), expected))
    return made


def same(view):
    data, model = view
    expected = [payload for _, _, payload in model]
    assert len(data) == len(model)
    assert list(data) == expected
    assert payloads_of(data) == expected
    assert data.lengths().tolist() == list(map(len, expected))
    assert data[::-1].tolist() == expected[::-1]
    assert data[1::3].tolist() == expected[1::3]
    for number in range(0, len(model), 5):
        place = data.where(number)
        assert (place.path, place.record) == (str(model[number][0]), model[number][1])
        assert data[number] == expected[number]
        assert data[number - len(model)] == expected[number]


def op_take(draw, view, others):
    count = draw(st.integers(0, len(view[1]) + 2))
    return view[0].take(count), view[1][:count]


def op_skip(draw, view, others):
    count = draw(st.integers(0, len(view[1]) + 2))
    return view[0].skip(count), view[1][count:]


def op_subset(draw, view, others):
    size = len(view[1])
    numbers = draw(st.lists(st.integers(-size, size - 1), max_size=60)) if size else []
    given_as = draw(st.sampled_from([list, np.array, tuple, iter]))
    chosen = given_as(numbers) if numbers else []
    return view[0].subset(chosen), [view[1][number] for number in numbers]


def op_range(draw, view, others):
    size = len(view[1])
    begin, end = draw(st.integers(0, size)), draw(st.integers(0, size))
    numbers = range(begin, end, draw(st.integers(1, 4)))
    numbers = draw(st.sampled_from([numbers, numbers[::-1]]))
    return view[0].subset(numbers), [view[1][number] for number in numbers]


def op_mask(draw, view, others):
    mask = draw(st.lists(st.booleans(), min_size=len(view[1]), max_size=len(view[1])))
    model = [one for one, yes in zip(view[1], mask, strict=True) if yes]
    return view[0].subset(np.array(mask, bool)), model


def op_concat(draw, view, others):
    more = draw(st.lists(st.sampled_from([*others, view]), max_size=3))
    model = sum((model for _, model in more), view[1])
    return view[0].concat(*(data for data, _ in more)), model


def rows_of_split(size, fractions, seed):
    """By the definition: cuts of the order of Philox's numbers, each part in the order of the records."""
    draws = np.random.Philox(key=np.array([seed, 2**64 - 1], np.uint64)).random_raw(size).tolist()
    order = sorted(range(size), key=lambda number: (draws[number], number))
    cuts = [round(share * size) for share in accumulate(fractions, initial=0)]
    return [sorted(order[a:b]) for a, b in pairwise([*cuts[:-1], size])]


def op_split(draw, view, others):
    seed, which = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    part = view[0].split([0.5, 0.2, 0.3], seed=seed)[which]
    rows = rows_of_split(len(view[1]), [0.5, 0.2, 0.3], seed)[which]
    return part, [view[1][row] for row in rows]


OPS = [op_take, op_skip, op_subset, op_range, op_mask, op_concat, op_split]


@given(st.data())
@settings(max_examples=150)
def test_views_are_like_lists(three, data):
    """All of them nested at random; concat also of other files, and of some that are shared."""
    view = data.draw(st.sampled_from(three))
    for op in data.draw(st.lists(st.sampled_from(OPS), max_size=7)):
        view = op(data.draw, view, three)
        if len(view[1]) > 400:
            view = view[0].take(400), view[1][:400]
    same(view)


def test_an_empty_part_takes_nothing_along(three):
    data, model = three[0]
    nothing = data.take(0)
    for view in (
        data.concat(nothing),
        nothing.concat(data),
        data.concat(nothing, nothing),
        nothing.concat(nothing, data, data.skip(len(data))),
    ):
        same((view, model))


def test_concat_of_neighbours_is_one_range(three):
    """No list of numbers: a dataset of 10^9 records, cut and put together, costs nothing."""
    data, model = three[0]
    joined = data.take(5).concat(data.skip(5).take(7), data.skip(12))
    same((joined, model))
    assert len(pickle.dumps(joined)) <= len(pickle.dumps(data)) + 20
    both = three[0][0].concat(three[1][0])
    assert len(pickle.dumps(both)) < 1_000
    same((both, model + three[1][1]))


def test_pickles_of_parts_are_small(tmp_path):
    data = croupier.open(make(tmp_path / "x.tfrecord", [b"%d" % number for number in range(100_000)]))
    most, rest = data.split([0.9, 0.1])
    shuffled = data.subset(np.random.default_rng(1).permutation(100_000))
    sevens = data.subset([7] * 99_999)
    for part, bits in ((most, 4), (rest, 9), (shuffled, 19), (sevens, 3), (most.take(0), 0)):
        pickled = pickle.dumps(part)
        assert len(pickled) < 2_000 + len(part) * bits / 8
        again = pickle.loads(pickled)
        assert payloads_of(again) == payloads_of(part)
        assert repr(again) == repr(part)


def test_subsets_are_their_own(three):
    data, model = three[0]
    numbers = np.array([3, 1, 2], np.uint64)
    view = data.subset(numbers)
    numbers[:] = 10**6
    same((view, [model[3], model[1], model[2]]))


def test_bad_parts_are_refused(three):
    data = three[0][0]
    for call in (lambda: data.take(-1), lambda: data.skip(-1), lambda: croupier.concat()):
        with pytest.raises(croupier.UsageError):
            call()
    assert payloads_of(data.subset(range(-1, 3))) == data[[-1, 0, 1, 2]].tolist()
    for numbers in ([len(data)], [-len(data) - 1], range(len(data) + 1), np.ones(3, bool)):
        with pytest.raises(IndexError):
            data.subset(numbers)
    with pytest.raises(TypeError):
        data.subset([0.5])


def test_concat_needs_equal_options(three):
    data = three[0][0]
    for options in (
        {"verify": False},
        {"on_corrupt": "skip"},
        {"index": "memory"},
        {"max_record_bytes": 10**6},
    ):
        with pytest.raises(croupier.UsageError, match="options"):
            data.concat(croupier.open(three[1][0].paths, **options))


def test_concat_of_damaged_files_keeps_their_holes(tmp_path):
    """The table is put together, not made again: damage is told once, and offsets stay right."""
    rng = random.Random(1)
    for name in "ab":
        content = bytearray(framed(noise(rng, 100, 200, 300, 400)))
        content[130] ^= 1
        (tmp_path / name).write_bytes(content)
    told = []
    one, two = (croupier.open(tmp_path / name, on_corrupt="skip", on_damage=told.append) for name in "ab")
    expected = [list(croupier.read(tmp_path / name, "skip", on_damage=lambda damage: None)) for name in "ab"]
    both = two.skip(1).concat(one, two)
    assert list(both) == payloads_of(both) == expected[1][1:] + expected[0] + expected[1]
    assert len(told) == 2
    assert both.where(3).path == str(tmp_path / "a")


def test_concat_notices_changed_files(tmp_path):
    """Numbers of a dataset that was opened before must not be used on a file that is another by now."""
    make(tmp_path / "a", [b"old %d" % number for number in range(10)])
    make(tmp_path / "b", [b"b"])
    before, other = croupier.open(tmp_path / "a"), croupier.open(tmp_path / "b")
    assert len(before) == 10
    make(tmp_path / "a", [b"new"])
    with pytest.raises(croupier.StaleError):
        before.concat(other)[7]
    with pytest.raises(croupier.StaleError):
        before.concat(croupier.open(tmp_path / "a"))[7]


# Splits


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    path = tmp_path_factory.mktemp("thousand") / "x.tfrecord"
    payloads = [b"patient %d, record %d" % (number * 7 % 101, number) for number in range(1_000)]
    return croupier.open(make(path, payloads)), payloads


def test_split_known_answers(thousand):
    """Pinned for ever: with another answer, records of a test set are in the training set."""
    data = thousand[0].take(20)
    assert [[int(one.split()[-1]) for one in part] for part in data.split([0.5, 0.3, 0.2], seed=7)] == [
        [0, 1, 4, 10, 11, 12, 14, 15, 16, 19],
        [2, 3, 5, 9, 17, 18],
        [6, 7, 8, 13],
    ]
    parts = data.split({"train": 0.8, "eval": 0.2}, seed=2**64 - 1)
    assert [int(one.split()[-1]) for one in parts["eval"]] == [2, 12, 13, 17]
    by_key = data.split([0.5, 0.5], key=lambda one: one.split(b",")[0].decode(), seed=3)
    assert [int(one.split()[-1]) for one in by_key[1]] == [2, 4, 7, 8, 12, 13, 15, 17, 19]
    by_number = data.split([0.5, 0.5], key=lambda one: (int(one.split()[-1]) % 7, 0.5, b"x"), seed=3)
    assert [int(one.split()[-1]) for one in by_number[1]] == [1, 3, 8, 10, 15, 17]


@given(st.integers(0, 1_000), st.lists(st.integers(0, 20), min_size=1, max_size=9), st.integers(0, 2**64 - 1))
@settings(max_examples=100)
def test_splits_are_exact_disjoint_and_complete(thousand, size, weights, seed):
    if not sum(weights):
        weights[0] = 1
    fractions = [weight / sum(weights) for weight in weights]
    data, payloads = thousand[0].take(size), thousand[1][:size]
    parts = data.split(fractions, seed=seed)
    rows = [[payloads.index(one) for one in payloads_of(part)] for part in parts]
    assert rows == rows_of_split(size, fractions, seed)
    assert sorted(row for part in rows for row in part) == list(range(size))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * size) <= 1


def test_splits_of_other_seeds_and_of_subsets(thousand):
    data, payloads = thousand
    by_seed = [tuple(payloads_of(data.split([0.5, 0.5], seed=seed)[0])) for seed in range(20)]
    assert len(set(by_seed)) == 20
    assert by_seed[0] == tuple(payloads_of(data.split([0.5, 0.5])[0]))
    expected = len(set(by_seed[0]) & set(by_seed[1]))
    assert 200 < expected < 300  # 250 if they have nothing to do with each other
    odd = data.subset(range(1, 1_000, 2))
    parts = odd.split({"a": 0.25, "b": 0.75}, seed=5)
    assert sorted(payloads_of(parts["a"]) + payloads_of(parts["b"])) == sorted(payloads[1::2])
    again = parts["b"].split([0.1, 0.9], seed=5)
    assert [len(part) for part in again] == [38, 337]
    assert sorted(payloads_of(again[0]) + payloads_of(again[1])) == sorted(payloads_of(parts["b"]))


def patient(payload):
    return int(payload.split()[1][:-1])


def test_a_key_keeps_groups_together(thousand):
    data, payloads = thousand
    parts = data.split({"train": 0.7, "test": 0.3}, key=patient, seed=1)
    people = {name: set(map(patient, part)) for name, part in parts.items()}
    assert not people["train"] & people["test"]
    assert sorted(payloads_of(parts["train"]) + payloads_of(parts["test"])) == sorted(payloads)
    assert 150 < len(parts["test"]) < 450
    rows = [payloads.index(one) for one in parts["test"]]
    assert rows == sorted(rows)
    # What a key says, and not which other records there are, decides.
    alone = data.skip(500).split({"train": 0.7, "test": 0.3}, key=patient, seed=1)
    assert set(map(patient, alone["test"])) <= people["test"]
    assert people["test"] != set(map(patient, data.split([0.7, 0.3], key=patient, seed=2)[1]))


def test_equal_keys_of_other_types_stay_together(thousand):
    """1, 1.0, True and numpy's 1 are one key to a dict, and so to a split; texts of all types, too."""

    class Text(str):
        def __repr__(self):
            return f"Text at {id(self)}"

    data = thousand[0].take(300)
    for forms in (
        [int, float, np.int64, np.uint8, np.float32, np.float64],
        [str, lambda number: np.str_(number), lambda number: Text(number)],
        [lambda number: b"%d" % number, lambda number: np.bytes_(b"%d" % number)],
        [lambda number: (number, (True, "x")), lambda number: (float(number), (1.0, np.str_("x")))],
    ):
        counts = iter(range(10**9))

        def key(payload, forms=forms, counts=counts):
            return forms[next(counts) % len(forms)](patient(payload))

        parts = data.split([0.5, 0.5], key=key)
        assert not set(map(patient, parts[0])) & set(map(patient, parts[1]))
    nothing = [lambda one: float("-0.0"), lambda one: 0, lambda one: False, lambda one: np.bool_(0)]
    assert len({len(data.split([0.5, 0.5], key=key)[0]) for key in nothing}) == 1


def test_a_key_alone_gives_a_dict(thousand):
    data, payloads = thousand
    parts = data.split(key=patient)
    assert list(parts) == list(dict.fromkeys(map(patient, payloads)))
    for name, part in parts.items():
        assert payloads_of(part) == [one for one in payloads if patient(one) == name]
    assert list(data.take(3).split(key=lambda one: None)) == [None]


def test_bad_splits_are_refused(thousand):
    data = thousand[0]
    nan = float("nan")
    for fractions in ([], {}, [0.5], [0.5, 0.6], [-0.5, 1.5], [nan, 0.5], [nan], [float("inf")], [1.1]):
        for key in (None, len):
            with pytest.raises(croupier.UsageError):
                data.split(fractions, key=key)
    with pytest.raises(croupier.UsageError):
        data.split()
    for seed in (-1, 2**64):
        with pytest.raises(croupier.UsageError):
            data.split([1.0], seed=seed)
    for key in (lambda one: None, lambda one: frozenset(one), lambda one: (1, (object(),))):
        with pytest.raises(croupier.UsageError):  # no two processes would agree where it goes
            data.split([0.5, 0.5], key=key)
    with pytest.raises(ZeroDivisionError):
        data.split(key=lambda one: 1 / 0)
