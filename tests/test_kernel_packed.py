"""Packed sequences, and where records are, against tests/oracle.py: good, random and hostile ones."""

import contextlib
import random
import threading
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from croupier import _kernel as kernel
from kernel_help import (
    PARTS,
    any_size,
    numbers,
    packed,
    quick,
    sequences,
    u64,
    zeros,
)

# --- packing


@given(st.lists(any_size, max_size=200) | sequences)
@quick
def test_pack(values):
    blocks = -(-len(values) // 64)
    least, bits = np.full(blocks + 1, 77, np.uint64), np.full(blocks + 1, 77, np.uint8)
    words = np.full(blocks * 64 + 1, 77, np.uint64)
    used = kernel.pack(u64(values), least, bits, words)
    assert (least[:-1].tolist(), bits[:-1].tolist(), words[:used].tolist()) == oracle.pack(values)
    assert least[-1] == bits[-1] == 77
    assert (words[used:] == 77).all()


@given(st.lists(any_size, max_size=200) | sequences, st.data())
@quick
def test_unpack_and_sums(values, data):
    arrays = packed(values, summed=False)
    assert oracle.unpack(len(values), *(part.tolist() for part in arrays[1:4])) == values
    first = data.draw(st.integers(0, len(values)))
    count = data.draw(st.integers(0, len(values) - first))
    out = zeros(count)
    kernel.unpack(arrays, first, out)
    assert out.tolist() == values[first : first + count]
    places = [*data.draw(st.lists(st.integers(0, len(values)), max_size=20)), 0, len(values)]
    sums = np.full(len(places) + 1, 77, np.uint64)
    kernel.sums_before(arrays, u64(places), sums)
    assert sums.tolist() == [*(oracle.sums_before(values, place) for place in places), 77]
    begins = [*range(0, len(values), 64), len(values)]
    assert arrays[4].tolist() == [oracle.sums_before(values, place) for place in begins]
    assert arrays[5].tolist() == list(accumulate(arrays[2].tolist(), initial=0))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 129, 200])
def test_every_width(count):
    rng = random.Random(count)
    for width in range(65):
        low = rng.randrange(2**64 - 2**width + 1)
        values = [low + rng.randrange(2**width) for _ in range(count)]
        values[rng.randrange(count)] = low + 2**width - 1
        arrays, out = packed(values, summed=False), zeros(count)
        kernel.unpack(arrays, 0, out)
        assert out.tolist() == values
        sums = zeros(count + 1)
        kernel.sums_before(arrays, np.arange(count + 1, dtype=np.uint64), sums)
        assert sums.tolist() == [total % 2**64 for total in accumulate(values, initial=0)]


def test_pack_without_room():
    values = u64([*range(100)])
    for least, bits, words, what in [
        (1, 2, 13, "least and bits"),
        (2, 1, 13, "least and bits"),
        (2, 2, 11, "words"),
        (2, 2, 5, "words"),
    ]:
        with pytest.raises(ValueError, match=what):
            kernel.pack(values, zeros(least), np.zeros(bits, np.uint8), zeros(words))
    assert kernel.pack(values, zeros(2), np.zeros(2, np.uint8), zeros(12)) == 12
    assert kernel.pack(zeros(0), zeros(0), bytearray(), zeros(0)) == 0


def index(count, least, bits, words, summed=True, sums=None, at=None):
    blocks = len(least)
    sums, at = zeros(blocks + 1 if sums is None else sums), zeros(blocks + 1 if at is None else at)
    kernel.index_packed(count, u64(least), bytes(bits), zeros(words), sums, at, summed)
    return sums.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: index(1, [], [], 0), "do not fit"),
        (lambda: index(0, [0], [0], 0), "do not fit"),
        (lambda: index(64, [0, 0], [0, 0], 0), "do not fit"),
        (lambda: index(129, [0, 0], [0, 0], 0), "do not fit"),
        (lambda: index(2**64 - 1, [0], [0], 0), "do not fit"),
        (lambda: index(2**64 - 63, [0], [0], 0), "do not fit"),
        (lambda: index(2**64 - 64, [], [], 0), "do not fit"),
        (lambda: index(2**63, [0] * 2, [0] * 2, 0), "do not fit"),
        (lambda: index(1, [0], [], 0), "do not fit"),
        (lambda: index(1, [0], [0, 0], 0), "do not fit"),
        (lambda: index(1, [0], [0], 0, sums=1), "do not fit"),
        (lambda: index(1, [0], [0], 0, at=3), "do not fit"),
        (lambda: index(1, [0], [65], 65), "fewer words"),
        (lambda: index(1, [0], [255], 255), "fewer words"),
        (lambda: index(1, [0], [1], 0), "fewer words"),
        (lambda: index(65, [0, 0], [3, 3], 5), "fewer words"),
        (lambda: index(1, [0], [0], 1), "more words"),
        (lambda: index(65, [0, 0], [3, 3], 7), "more words"),
        (lambda: index(1, [2**63], [0], 0), "too large"),
        (lambda: index(2, [2**62], [0], 0), "too large"),
        (lambda: index(64, [2**64 - 1], [0], 0), "too large"),
        (lambda: index(65, [2**57 - 1, 64], [0, 0], 0), "too large"),
    ],
)
def test_index_packed_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_index_packed_up_to_the_largest_sum():
    assert index(65, [2**57 - 1, 63], [0, 0], 0) == [0, 2**63 - 64, 2**63 - 1]
    assert index(65, [2**57 - 1, 64], [0, 0], 0, summed=False) == [0, 2**63 - 64, 2**63]
    assert index(64, [2**64 - 1], [0], 0, summed=False) == [0, 2**64 - 64]
    assert index(0, [], [], 0) == [0]


def test_numbers_behind_the_last_do_not_count():
    """A block's words have room for 64 numbers; what stands behind the last may be anything."""
    sums, at = zeros(2), zeros(2)
    kernel.index_packed(2, u64([5]), bytes([64]), u64([1, 2] + [2**64 - 1] * 62), sums, at, True)
    assert sums.tolist() == [0, 13]


# --- where records are


def split(values, data):
    """`values` dealt to some files: (firsts, bases)."""
    cuts = data.draw(st.lists(st.integers(0, len(values)), max_size=6).map(sorted))
    firsts = [0, *cuts, len(values)]
    return firsts, [sum(values[:first]) for first in firsts[:-1]]


@given(sequences.filter(bool), st.data())
@quick
def test_locate(values, data):
    firsts, bases = split(values, data)
    records = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30))
    out = [np.full(len(records) + 1, 77, np.uint64) for _ in range(3)]
    threads = data.draw(st.sampled_from([0, 1, 3, 4_000_000_000]))
    kernel.locate(packed(values), u64(firsts), u64(bases), u64(records), *out, threads)
    rows = list(zip(*(part.tolist() for part in out), strict=True))
    assert rows == [oracle.locate(values, firsts, record) for record in records] + [(77, 77, 77)]


@pytest.mark.parametrize("threads", [1, 2, 7, 4_000_000_000])
def test_locate_in_threads(threads):
    rng = np.random.default_rng(threads)
    values = rng.integers(0, 5000, 100_000, dtype=np.uint64)
    firsts = u64([0, *sorted(rng.integers(0, len(values), 300).tolist()), len(values)])
    begins = np.concatenate([[0], np.cumsum(values)]).astype(np.uint64)
    arrays, bases = packed(values.tolist()), begins[firsts[:-1]]
    records = rng.integers(0, len(values), 120_000, dtype=np.uint64)
    file, offset, length = (zeros(len(records)) for _ in range(3))
    kernel.locate(arrays, firsts, bases, records, file, offset, length, threads)
    expected = np.searchsorted(firsts, records, side="right") - 1
    assert (file == expected).all()
    assert (length == values[records]).all()
    within = records - firsts[expected]
    assert (offset == begins[records] - begins[firsts[expected]] + 16 * within).all()
    records[77_777] = len(values)
    with pytest.raises(ValueError, match="no file has"):
        kernel.locate(arrays, firsts, bases, records, file, offset, length, threads)


@given(sequences.filter(bool), st.data())
@quick
def test_search_sums(values, data):
    firsts, bases = split(values, data)
    filled = [g for g, (first, last) in enumerate(pairwise(firsts)) if first < last]
    groups = data.draw(st.lists(st.sampled_from(filled), max_size=20))
    positions = [data.draw(st.integers(0, sum(values[firsts[g] : firsts[g + 1]]) + 3)) for g in groups]
    found, begin = zeros(len(groups)), zeros(len(groups))
    arrays = packed(values)
    kernel.search_sums(arrays, u64(firsts), u64(bases), u64(groups), u64(positions), found, begin)
    rows = list(zip(found.tolist(), begin.tolist(), strict=True))
    assert rows == [
        oracle.search_sums(values, firsts[g], firsts[g + 1], position)
        for g, position in zip(groups, positions, strict=True)
    ]


def test_search_sums_among_nothings():
    """Numbers of zero: the last one that begins at a position is meant, also where that is blocks later."""
    values = [0] * 300 + [5] + [0] * 300
    for position, expected in [(0, (300, 0)), (4, (300, 0)), (5, (600, 5)), (99, (600, 5))]:
        found, begin = zeros(1), zeros(1)
        kernel.search_sums(packed(values), u64([0, 601]), u64([0]), u64([0]), u64([position]), found, begin)
        assert (int(found[0]), int(begin[0])) == expected == oracle.search_sums(values, 0, 601, position)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), min_size=1, max_size=20).map(sorted))
@quick
def test_slices(data, bounds):
    bounds = [min(bound, len(data)) for bound in bounds]
    expected = [data[a:b] for a, b in pairwise(bounds)]
    assert kernel.slices(data, u64(bounds)) == expected
    assert kernel.slices(np.frombuffer(data, np.uint8), u64(bounds)) == expected


@pytest.mark.parametrize("bounds", [[0, 5, 4], [0, 11], [11, 11], [2**64 - 1, 3], [3, 2**64 - 1], []])
def test_slices_out_of_range(bounds):
    with pytest.raises(ValueError, match="bounds"):
        kernel.slices(b"0123456789", u64(bounds))


# --- hostile arrays: whatever stands in them, nothing is read or written out of range (the sanitized build
#     would see it), and nothing but ValueError comes out


@given(
    st.lists(any_size, max_size=140),
    st.sampled_from(PARTS[1:]),
    st.lists(st.tuples(numbers, any_size), min_size=1, max_size=6),
    st.integers(0, 200),
    st.lists(any_size, max_size=8),
    st.lists(st.integers(0, 150), min_size=1, max_size=4),
)
@quick
def test_hostile_packed_arrays(values, part, changes, count, asked, firsts):
    arrays = dict(zip(PARTS, packed(values, summed=False), strict=True))
    for at, value in changes:
        if len(arrays[part]):
            arrays[part][at % len(arrays[part])] = value % 256 if part == "bits" else value
    for claimed in {len(values), count}:
        arrays["count"] = claimed
        _use(tuple(arrays.values()), asked, firsts)


@given(
    numbers | st.integers(0, 130),
    *(st.lists(any_size, max_size=4) for _ in range(4)),
    st.binary(max_size=4),
    st.lists(any_size, max_size=8),
    st.lists(any_size, min_size=1, max_size=5),
)
@quick
def test_arrays_of_anything(count, least, words, sums, at, bits, asked, firsts):
    _use((count, u64(least), bits, u64(words), u64(sums), u64(at)), asked, firsts)
    with contextlib.suppress(ValueError):
        kernel.index_packed(count, u64(least), bits, u64(words), u64(sums), u64(at), False)


def _use(arrays, asked, firsts):
    bases, room = u64(asked[: len(firsts) - 1] + [0] * (len(firsts) - 1 - len(asked))), len(asked) + 4
    where = u64(asked)
    groups = u64(value % (len(firsts) + 1) for value in asked)
    for call in [
        lambda: kernel.sums_before(arrays, where, zeros(room)),
        lambda: kernel.sums_before(arrays, where % np.uint64(140), zeros(room)),
        *(
            lambda first=first, size=size: kernel.unpack(arrays, first, zeros(size))
            for first in [*asked, 0, 1, 64]
            for size in (0, 1, 65, 200)
        ),
        lambda: kernel.locate(arrays, u64(firsts), bases, where, zeros(room), zeros(room), zeros(room), 2),
        lambda: kernel.locate(
            arrays, u64(firsts), bases, where % np.uint64(140), zeros(room), zeros(room), zeros(room), 1
        ),
        lambda: kernel.search_sums(arrays, u64(firsts), bases, groups, where, zeros(room), zeros(room)),
        lambda: kernel.search_sums(
            arrays, u64(sorted(firsts)), bases, groups, where, zeros(room), zeros(room)
        ),
    ]:
        with contextlib.suppress(ValueError):
            call()


def test_arrays_that_change_meanwhile():
    """The result may be anything; the process lives."""
    rng = np.random.default_rng(3)
    arrays = packed(rng.integers(0, 2**20, 50_000, dtype=np.uint64).tolist())
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            for part in arrays[1:]:
                high = 256 if part.dtype == np.uint8 else 2**63
                part[rng.integers(0, len(part), 5)] = rng.integers(0, high, 5).astype(part.dtype)

    thread = threading.Thread(target=disturb)
    thread.start()
    records, out = np.arange(50_000, dtype=np.uint64), zeros(50_000)
    try:
        for _ in range(20):
            for call in [
                lambda: kernel.unpack(arrays, 0, out),
                lambda: kernel.sums_before(arrays, records, out),
                lambda: kernel.locate(arrays, u64([0, 50_000]), u64([0]), records, out, out, out, 2),
                lambda: kernel.index_packed(*arrays, True),
            ]:
                with contextlib.suppress(ValueError):
                    call()
    finally:
        stop.set()
        thread.join()
