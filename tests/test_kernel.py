"""The kernel against tests/oracle.py, on good, random and hostile input."""

import contextlib
import mmap
import random
import threading
import time
from itertools import accumulate, pairwise

import crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from croupier import _kernel as kernel

NO_LIMIT = 2**64 - 1
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

payload_lists = st.lists(st.binary(max_size=300), max_size=12)
numbers = st.integers(0, 2**64 - 1)


def u64(values):
    return np.array(list(values), dtype=np.uint64)


def edges_of(payloads):
    return list(accumulate((len(p) + 16 for p in payloads), initial=0))


def framed(payloads):
    return b"".join(map(oracle.frame, payloads)), edges_of(payloads)


def scan(data, start=0, room=64, payloads=True, limit=NO_LIMIT):
    """As oracle.scan."""
    bounds = np.full(room, 77, np.uint64)
    count, why = kernel.scan(data, start, bounds, payloads, limit)
    assert (bounds[count + 1 :] == 77).all()
    return bounds[: count + 1].tolist(), why


def big_file(frames=60_000, seed=5):
    """Some 12 MB, so that threads really start."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 400, frames)
    data = rng.integers(0, 256, int(sizes.sum()), dtype=np.uint8).tobytes()
    cuts = np.concatenate([[0], sizes.cumsum()]).tolist()
    out, totals = bytearray(len(data) + 16 * frames), u64([0] * 4)
    payloads = [data[a:b] for a, b in pairwise(cuts)]
    done, position = kernel.append_many(out, 0, payloads, 0, totals)
    assert (done, position) == (frames, len(out))
    return bytes(out), u64(edges_of(payloads)), payloads


# --- checksums


@pytest.mark.parametrize("name", kernel.implementations())
def test_crc32c_known_answers(name):
    for data, crc in [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ]:
        assert kernel.crc32c_with(name, data) == crc == oracle.crc32c(data)


@pytest.mark.parametrize("name", kernel.implementations())
def test_crc32c_of_every_length(name):
    data = memoryview(random.Random(1).randbytes(2200))
    expected = 0
    for length in range(2101):
        assert kernel.crc32c_with(name, data[:length]) == expected
        if length % 50 < 2:  # every alignment as well
            whole = oracle.crc32c(data[:length], 12345)
            for shift in range(64):
                moved = memoryview(bytes(shift) + bytes(data[:length]))[shift:]
                assert kernel.crc32c_with(name, moved, 12345) == whole
        expected = oracle.crc32c(data[length : length + 1], expected)


@pytest.mark.parametrize("name", kernel.implementations())
def test_crc32c_as_another_package_has_it(name):
    rng = random.Random(2)
    for size in [*(rng.randrange(100_000) for _ in range(200)), 3_000_001]:
        data = rng.randbytes(size)
        assert kernel.crc32c_with(name, data) == crc32c.crc32c(data)


@given(st.binary(), st.binary())
@quick
def test_crc32c_continues(a, b):
    assert kernel.crc32c(b, kernel.crc32c(a)) == kernel.crc32c(a + b) == oracle.crc32c(a + b)
    assert kernel.masked_crc32c(a) == oracle.masked(a)


def test_the_best_implementation_is_used():
    assert kernel.implementations()[0] == kernel.CRC32C_IMPLEMENTATION
    assert kernel.implementations()[-1] == "table"
    with pytest.raises(ValueError, match="implementation"):
        kernel.crc32c_with("md5", b"")


def test_every_kind_of_buffer():
    with mmap.mmap(-1, 4096) as mapped:
        mapped[:9] = b"123456789"
        for data in [
            b"123456789",
            bytearray(b"123456789"),
            memoryview(b"x123456789")[1:],
            np.frombuffer(b"123456789", np.uint8),
            memoryview(mapped)[:9],
        ]:
            assert kernel.crc32c(data) == 0xE3069283
        del data


# --- scan


@given(payload_lists, st.binary(max_size=40), st.integers(1, 14), st.booleans())
@quick
def test_scan_of_good_frames(payloads, rest, room, check):
    data, edges = framed(payloads)
    assert scan(data + rest, 0, room, check) == oracle.scan(data + rest, 0, room, check, NO_LIMIT)
    assert scan(data, 0, len(edges))[0] == edges


@given(
    payload_lists, st.lists(st.tuples(numbers, st.integers(0, 255)), max_size=4), numbers, st.integers(0, 300)
)
@quick
def test_scan_of_damaged_frames(payloads, damage, start, limit):
    data = bytearray(framed(payloads)[0] or b"\0")
    for at, byte in damage:
        data[at % len(data)] = byte
    start %= len(data) + 1
    for check in (False, True):
        assert scan(data, start, 20, check, limit) == oracle.scan(data, start, 20, check, limit)
        assert scan(data, 0, 20, check) == oracle.scan(data, 0, 20, check, NO_LIMIT)


@given(st.binary(max_size=200))
@quick
def test_scan_of_anything(data):
    assert scan(data) == oracle.scan(data, 0, 64, True, NO_LIMIT)


def ten_records():
    return framed([bytes([i]) * n for i, n in enumerate([0, 1, 7, 8, 9, 30, 0, 17, 64, 3])])


def test_every_flipped_bit_is_found():
    data, edges = ten_records()
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        broken = max(i for i, edge in enumerate(edges) if edge <= bit // 8)
        header = bit // 8 - edges[broken] < 12
        expected = kernel.BAD_HEADER if header else kernel.BAD_PAYLOAD
        assert scan(bad) == (edges[: broken + 1], expected)
        assert scan(bad, payloads=False) == (
            (edges[: broken + 1], expected) if header else (edges, kernel.PARTIAL)
        )


def test_every_truncation():
    data, edges = ten_records()
    for size in range(len(data) + 1):
        whole = [edge for edge in edges if edge <= size]
        for check in (False, True):
            assert scan(memoryview(data)[:size], payloads=check) == (whole, kernel.PARTIAL)


BOMBS = sorted({2**k + d for k in range(24, 64) for d in (-1, 0, 1)} | {2**64 - n for n in range(1, 34)})


@pytest.mark.parametrize("rest", [0, 3, 4, 5, 100])
def test_length_bombs(rest):
    good = oracle.frame(b"good")
    for length in BOMBS:
        data = good + oracle.header(length) + bytes(rest)
        for check in (False, True):
            assert scan(data, payloads=check) == ([0, 20], kernel.PARTIAL)
            assert scan(data, payloads=check, limit=length - 1) == ([0, 20], kernel.TOO_LONG)
        assert kernel.resync(data, 1, NO_LIMIT) == (20, False)
        assert kernel.resync(data, 1, length - 1) == oracle.resync(data, 1, length - 1)


def test_scan_stops_at_the_limit():
    data, _ = framed([b"12345678", b"123456789"])
    assert scan(data, limit=8) == ([0, 24], kernel.TOO_LONG)
    assert scan(data, limit=9) == ([0, 24, 49], kernel.PARTIAL)


# --- check_frames, resync


@given(payload_lists, st.lists(numbers, max_size=3), st.integers(1, 4))
@quick
def test_check_frames(payloads, damage, threads):
    data, edges = framed(payloads)
    data = bytearray(data)
    for at in damage:
        if data:
            data[at % len(data)] ^= 1
    totals = u64([1, 2, 3, 4])
    right, whole = oracle.check_frames(data, edges), len(payloads)
    assert kernel.check_frames(data, u64(edges), totals, threads) == right
    assert totals.tolist() == (oracle.fingerprint(payloads, [1, 2, 3, 4]) if right == whole else [1, 2, 3, 4])


def test_check_frames_finds_every_flip_and_every_wrong_bound():
    data, edges = framed([b"abcde", b"", b"fgh"])
    for bit in range(8 * len(data)):
        bad = bytearray(data)
        bad[bit // 8] ^= 1 << bit % 8
        found = sum(edge <= bit // 8 for edge in edges[1:])
        assert kernel.check_frames(bad, u64(edges), u64([0] * 4), 1) == found
    for wrong in ([0, 20, 37, 56], [0, 37, 56], [1, 21, 37, 56], [0, 21, 37, 55]):
        assert kernel.check_frames(data, u64(wrong), u64([0] * 4), 1) < len(wrong) - 1


@pytest.mark.parametrize("threads", [1, 2, 7, 4_000_000_000])
def test_check_frames_in_threads(threads):
    data, edges, _ = big_file()
    totals, same = u64([0] * 4), u64([0] * 4)
    assert kernel.check_frames(data, edges, totals, threads) == len(edges) - 1
    kernel.fingerprint(data, edges, same)
    assert totals.tolist() == same.tolist()
    for places in [[0], [59_999], [30_000, 29_999], [1, 59_000]]:
        bad = bytearray(data)
        for i in places:
            bad[int(edges[i + 1]) - 1] ^= 4
        assert kernel.check_frames(bad, edges, totals, threads) == min(places)
    assert totals.tolist() == same.tolist()


@given(
    payload_lists,
    st.binary(max_size=30),
    st.lists(st.tuples(numbers, st.integers(0, 255)), max_size=4),
    numbers,
)
@quick
def test_resync(payloads, junk, damage, start):
    data = bytearray(junk + framed(payloads)[0] or b"\0")
    for at, byte in damage:
        data[at % len(data)] = byte
    start %= len(data) + 1
    for limit in (NO_LIMIT, 100, 0):
        for final in (False, True):
            assert kernel.resync(data, start, limit, final) == oracle.resync(data, start, limit, final)


def test_resync_checks_long_payloads():
    """They take another way than short ones (see Prefixes in frames.cc)."""
    rng = random.Random(4)
    payloads = [rng.randbytes(n) for n in (5, 40_000, 300_000, 32_768, 100_001)]
    data, edges = framed([])[0], []
    out, totals = bytearray(500_000), u64([0] * 4)
    for payload in payloads:
        edges.append(len(data))
        end = kernel.append(out, 0, payload, totals)
        data += out[:end]
    for start, expected in zip([0, *(e + 1 for e in edges[:-1])], edges, strict=True):
        assert kernel.resync(data, start, NO_LIMIT) == (expected, True)
    bad = bytearray(data)
    for edge in edges[1:4]:
        bad[edge + 20_000] ^= 1
    assert kernel.resync(bad, 1, NO_LIMIT) == (edges[4], True)
    assert kernel.resync(bad[:-1], 1, NO_LIMIT) == (edges[4], False)
    assert kernel.resync(bad[:-1], 1, NO_LIMIT, final=True) == (len(bad) - 12, False)


def test_resync_walks_over_what_only_looks_like_a_frame():
    inner = oracle.frame(b"inner")
    bad = oracle.header(len(inner)) + inner + bytes(4)  # a right header, a wrong payload, a frame inside
    assert kernel.resync(bad, 0, NO_LIMIT) == (12, True)
    assert kernel.resync(oracle.header(1000) + inner, 0, NO_LIMIT) == (0, False)
    assert kernel.resync(oracle.header(1000) + inner, 0, 999) == (12, True)
    assert kernel.resync(oracle.header(1000) + inner, 0, NO_LIMIT, final=True) == (12, True)
    assert kernel.resync(b"", 0, NO_LIMIT) == (0, False)
    assert kernel.resync(bytes(11), 3, NO_LIMIT) == (3, False)


def test_resync_is_not_made_quadratic():
    """A header every 12 bytes, each of a frame of half the buffer: 20 s if every payload were read."""
    size = 8 << 20
    head = oracle.header(size // 2)
    data = head * (size // len(head))
    begin = time.perf_counter()
    position, found = kernel.resync(data, 0, NO_LIMIT)
    assert (found, position) == (False, (len(data) - size // 2 - 16) // 12 * 12 + 12)
    assert kernel.resync(data, 0, NO_LIMIT, final=True) == (len(data) - 11, False)
    assert time.perf_counter() - begin < 5


# --- moving frames


@given(payload_lists.filter(bool), st.data())
@quick
def test_gather(payloads, data):
    source, edges = framed(payloads)
    index = data.draw(st.lists(st.integers(0, len(payloads) - 1), max_size=30))
    room = data.draw(st.integers(0, 2000))
    out, out_edges = bytearray(b"\xee" * room), np.full(len(index) + 1, 77, np.uint64)
    count = kernel.gather(source, u64(edges), u64(index), out, out_edges, data.draw(st.integers(1, 3)))
    expected, expected_edges = oracle.gather(source, edges, index, room)
    assert out_edges[: count + 1].tolist() == expected_edges
    assert out == expected.ljust(room, b"\xee")
    assert (out_edges[count + 1 :] == 77).all()


@pytest.mark.parametrize("threads", [1, 2, 7, 4_000_000_000])
@pytest.mark.parametrize("share", [0.7, 1.0])
def test_gather_in_threads(threads, share):
    data, edges, payloads = big_file()
    index = np.random.default_rng(1).permutation(len(payloads)).astype(np.uint64)
    out, out_edges = np.zeros(int(len(data) * share), np.uint8), u64([0] * (len(index) + 1))
    count = kernel.gather(data, edges, index, out, out_edges, threads)
    sizes = np.diff(edges)[index.astype(np.int64)]
    expected = np.concatenate([[0], sizes.cumsum()])
    assert count == np.searchsorted(expected, len(out), side="right") - 1
    assert (out_edges[: count + 1] == expected[: count + 1]).all()
    assert kernel.payloads(out, out_edges[: count + 1]) == [payloads[i] for i in index[:count].tolist()]
    assert not out[int(out_edges[count]) :].any()


@given(payload_lists, st.data())
@quick
def test_scatter(payloads, data):
    source, edges = framed(payloads)
    places = data.draw(st.lists(st.integers(0, 1200), min_size=2, max_size=8).map(sorted))
    cursors, limits = places[0:-1:2], places[1::2]
    bucket = data.draw(
        st.lists(st.integers(0, len(cursors) - 1), min_size=len(payloads), max_size=len(payloads))
    )
    first = data.draw(st.integers(0, len(payloads)))
    before = b"\xee" * 1200
    out, moved = bytearray(before), u64(cursors)
    stopped = kernel.scatter(source, u64(edges), u64(bucket), first, out, moved, u64(limits))
    assert (bytes(out), moved.tolist(), stopped) == oracle.scatter(
        source, edges, bucket, first, before, cursors, limits
    )


# --- fingerprint, fragments


@given(payload_lists, st.lists(numbers, min_size=4, max_size=4))
@quick
def test_fingerprint(payloads, before):
    data, edges = framed(payloads)
    before[:2] = [n >> 8 for n in before[:2]]
    totals = u64(before)
    kernel.fingerprint(data, u64(edges), totals)
    assert totals.tolist() == oracle.fingerprint(payloads, before)


def test_fingerprint_has_no_order_but_counts():
    records = [b"a", b"b", b"", b"aa"]
    same = oracle.fingerprint(records)
    assert oracle.fingerprint(records[::-1]) == same
    assert oracle.fingerprint([*records, b"a"])[2:] != same[2:]
    totals = u64([0] * 4)
    for part in (records[2:], records[:2]):
        data, edges = framed(part)
        kernel.fingerprint(data, u64(edges), totals)
    assert totals.tolist() == same


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 60), st.integers(0, 120), numbers)
@quick
def test_fragments(sizes, large, group, offset):
    bounds = [n + offset // 2 for n in accumulate(sizes, initial=0)]
    ends = u64([77] * len(sizes))
    count = kernel.fragments(u64(bounds), large, group, ends)
    assert ends[:count].tolist() == oracle.fragments(bounds, large, group)
    assert (ends[count:] == 77).all()


# --- append, payloads


@given(payload_lists, st.integers(0, 3000), st.integers(0, 50))
@quick
def test_append(payloads, room, position):
    expected, count = oracle.append(payloads, room)
    whole = (b"\xee" * position + expected).ljust(position + room, b"\xee")
    out, totals = bytearray(b"\xee" * (position + room)), u64([0] * 4)
    assert kernel.append_many(out, position, payloads, 0, totals) == (count, position + len(expected))
    assert out == whole
    assert totals.tolist() == oracle.fingerprint(payloads[:count])

    out, totals, at = bytearray(b"\xee" * (position + room)), u64([0] * 4), position
    for payload in payloads[:count]:
        at = kernel.append(out, at, memoryview(payload), totals)
    assert at == position + len(expected)
    if count < len(payloads):
        assert kernel.append(out, at, payloads[count], totals) == -1
    assert out == whole
    assert totals.tolist() == oracle.fingerprint(payloads[:count])


def test_append_copies_and_sums_any_length():
    """Short payloads byte by byte, long ones by 256 bytes and what is left, from and to any place."""
    source = random.Random(3).randbytes(3000)
    for length in [*range(1100), 2048, 2500]:
        payload, at = memoryview(source)[length % 67 : length % 67 + length], length % 71
        out, totals = bytearray(b"\xee" * (at + length + 48)), u64([0] * 4)
        assert kernel.append(out, at, payload, totals) == at + length + 16
        assert out == b"\xee" * at + oracle.frame(bytes(payload)) + b"\xee" * 32
        assert totals.tolist() == oracle.fingerprint([bytes(payload)])


@given(payload_lists)
@quick
def test_payloads(payloads):
    data, edges = framed(payloads)
    assert kernel.payloads(data, u64(edges)) == payloads


def test_append_many_goes_on_where_it_stopped():
    payloads = [bytes(i) for i in range(50)]
    out, totals, done, parts = bytearray(200), u64([0] * 4), 0, b""
    while done < 50:
        done, end = kernel.append_many(out, 0, tuple(payloads), done, totals)
        parts += out[:end]
    assert parts == framed(payloads)[0]
    assert totals.tolist() == oracle.fingerprint(payloads)


@pytest.mark.parametrize("bad", [None, "text", 5, memoryview(b"abcd")[::2]])
def test_append_many_counts_nothing_when_one_payload_is_refused(bad):
    out, totals = bytearray(200), u64([0] * 4)
    with pytest.raises(TypeError, match="payload"):
        kernel.append_many(out, 0, [b"good", bad], 0, totals)
    with pytest.raises(TypeError, match="payload"):
        kernel.append(out, 0, bad, totals)
    assert not totals.any()


# --- what is refused

GOOD = oracle.frame(b"0123456789") * 2
EDGES = u64([0, 26, 52])


def calls():
    """A good call of everything: name, function, arguments by name."""
    return [
        ("scan", {"buffer": GOOD, "start": 0, "bounds": u64([0] * 9), "payloads": True, "limit": 99}),
        ("check_frames", {"buffer": GOOD, "bounds": EDGES, "totals": u64([0] * 4), "threads": 1}),
        ("resync", {"buffer": GOOD, "start": 0, "limit": 99}),
        (
            "gather",
            {
                "source": GOOD,
                "bounds": EDGES,
                "index": u64([1, 0]),
                "out": bytearray(60),
                "out_bounds": u64([0] * 3),
                "threads": 1,
            },
        ),
        (
            "scatter",
            {
                "source": GOOD,
                "bounds": EDGES,
                "bucket": u64([1, 0]),
                "first": 0,
                "out": bytearray(60),
                "cursors": u64([0, 30]),
                "limits": u64([30, 60]),
            },
        ),
        ("fingerprint", {"buffer": GOOD, "bounds": EDGES, "totals": u64([0] * 4)}),
        ("fragments", {"bounds": EDGES, "large": 10, "group": 10, "ends": u64([0] * 2)}),
        ("append", {"out": bytearray(60), "position": 0, "payload": b"abcd", "totals": u64([0] * 4)}),
        (
            "append_many",
            {"out": bytearray(60), "position": 0, "payloads": [b"x"], "first": 0, "totals": u64([0] * 4)},
        ),
        ("payloads", {"buffer": GOOD, "bounds": EDGES}),
    ]


ARRAYS = {"bounds", "index", "bucket", "cursors", "limits", "totals", "ends", "out_bounds"}
READ_ONLY_ARRAY = u64([0] * 9)
READ_ONLY_ARRAY.setflags(write=False)
MISALIGNED = memoryview(bytearray(9 * 8 + 1))[1:].cast("Q")


@pytest.mark.parametrize(("name", "arguments"), calls(), ids=lambda x: x if isinstance(x, str) else "")
def test_arguments_of_the_wrong_kind(name, arguments):
    function = getattr(kernel, name)
    function(**arguments)
    for key, value in arguments.items():
        if key in ARRAYS:
            wrong = [
                b"12345678",
                np.zeros(9, np.int64),
                np.zeros(9, np.uint32),
                np.zeros(9, np.float64),
                np.zeros((3, 3), np.uint64),
                np.zeros(18, np.uint64)[::2],
                np.zeros(9, ">u8"),
                [0, 1, 2],
                None,
            ]
        elif isinstance(value, bytearray):
            wrong = [bytes(value), "text", None, 3, memoryview(value)[::2]]
        elif isinstance(value, bytes):
            wrong = ["text", None, 3, memoryview(value)[::2]]
        elif isinstance(value, bool):
            wrong = ["yes", 7.5, None]
        elif isinstance(value, int):
            wrong = [-1, 2**64, "1", None, 0.5]
        else:
            wrong = [None, 3]
        for bad in wrong:
            with pytest.raises(TypeError) as caught:
                function(**arguments | {key: bad})
            if key in ARRAYS or isinstance(value, bytes | bytearray):
                assert (f"{key}: NoneType" if bad is None else f"{key} must be") in str(caught.value)
        if key in ARRAYS:
            with pytest.raises(ValueError, match=f"{key} is not aligned"):
                function(**arguments | {key: MISALIGNED})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("scan", "bounds"),
        ("gather", "out_bounds"),
        ("scatter", "cursors"),
        ("check_frames", "totals"),
        ("fingerprint", "totals"),
        ("fragments", "ends"),
        ("append", "totals"),
        ("append_many", "totals"),
    ],
)
def test_arrays_that_are_written_must_be_writable(name, key):
    with pytest.raises(TypeError, match=f"{key} must be a writable"):
        getattr(kernel, name)(**dict(calls())[name] | {key: READ_ONLY_ARRAY})


BUFFER = bytearray(200)
REFUSED = [
    ("scan", {"start": 53}, "start"),
    ("scan", {"start": 2**64 - 1}, "start"),
    ("scan", {"bounds": u64([])}, "bounds must have at least 1"),
    ("resync", {"start": 53}, "start"),
    ("check_frames", {"threads": 0}, "threads"),
    ("check_frames", {"totals": u64([0] * 3)}, "totals must have at least 4"),
    ("gather", {"threads": 0}, "threads"),
    ("gather", {"index": u64([2])}, "index"),
    ("gather", {"index": u64([0, 2**64 - 1])}, "index"),
    ("gather", {"bounds": u64([0])}, "index"),
    ("gather", {"out_bounds": u64([0, 0])}, "out_bounds"),
    ("gather", {"source": memoryview(BUFFER)[:100], "out": memoryview(BUFFER)[99:]}, "overlap"),
    ("scatter", {"source": memoryview(BUFFER)[99:], "out": memoryview(BUFFER)[:100]}, "overlap"),
    ("scatter", {"bucket": u64([0])}, "bucket"),
    ("scatter", {"bucket": u64([0, 2])}, "bucket"),
    ("scatter", {"bucket": u64([2**64 - 1, 0])}, "bucket"),
    ("scatter", {"cursors": u64([0])}, "cursors and limits"),
    ("scatter", {"cursors": u64([31, 31])}, "cursors and limits"),
    ("scatter", {"cursors": u64([2**64 - 1, 2**64 - 1]), "limits": u64([2**64 - 1] * 2)}, "within out"),
    ("scatter", {"limits": u64([61, 61])}, "within out"),
    ("scatter", {"first": 3}, "first"),
    ("fingerprint", {"totals": u64([0] * 3)}, "totals must have at least 4"),
    ("fragments", {"ends": u64([0])}, "ends"),
    ("fragments", {"bounds": u64([5, 4])}, "ascending"),
    ("append", {"position": 61}, "position"),
    ("append", {"position": 2**64 - 1}, "position"),
    ("append", {"totals": u64([0] * 3)}, "totals"),
    ("append", {"payload": memoryview(BUFFER)[:8], "out": memoryview(BUFFER)[7:]}, "overlap"),
    ("append_many", {"position": 61}, "position"),
    ("append_many", {"first": 2}, "first"),
    ("append_many", {"first": 2**64 - 1}, "first"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_values_out_of_range(name, change, message):
    with pytest.raises(ValueError, match=message):
        getattr(kernel, name)(**dict(calls())[name] | change)


@pytest.mark.parametrize("name", ["check_frames", "gather", "scatter", "fingerprint", "payloads"])
@pytest.mark.parametrize(
    "bounds",
    [[0, 26, 53], [0, 26, 25], [1, 0, 52], [0, 26, 2**64 - 1], [2**64 - 1, 0, 26], [2**63, 2**63 + 26, 0]],
)
def test_bounds_that_are_no_frames(name, bounds):
    with pytest.raises(ValueError, match=r"bounds [01] and [12] are no frame"):
        getattr(kernel, name)(**dict(calls())[name] | {"bounds": u64(bounds)})


@pytest.mark.parametrize("name", ["check_frames", "fingerprint", "payloads"])
def test_frames_shorter_than_a_frame_can_be(name):
    with pytest.raises(ValueError, match="no frame"):
        getattr(kernel, name)(**dict(calls())[name] | {"bounds": u64([0, 26, 41])})


@given(
    st.lists(numbers, min_size=1, max_size=8), st.lists(numbers, max_size=8), st.lists(numbers, max_size=8)
)
@quick
def test_arrays_of_anything(bounds, index, others):
    """Nothing but ValueError, and nothing outside of the buffers (the sanitized build would see it)."""
    small = [n % 70 for n in bounds]
    for edges in (u64(bounds), u64(small), u64(sorted(small))):
        for name, change in [
            ("check_frames", {}),
            ("gather", {"index": u64(index)}),
            ("gather", {"index": u64(n % len(edges) for n in index), "out_bounds": u64([0] * 9)}),
            ("scatter", {"bucket": u64([n % 3 for n in index] + [0] * 9)}),
            ("scatter", {"cursors": u64(others), "limits": u64(others[::-1])}),
            ("fingerprint", {}),
            ("fragments", {"ends": u64([0] * 8)}),
            ("payloads", {}),
        ]:
            with contextlib.suppress(ValueError):
                getattr(kernel, name)(**dict(calls())[name] | {"bounds": edges} | change)


def test_a_bad_array_is_found_by_every_thread():
    data, edges, payloads = big_file()
    index = np.arange(len(payloads), dtype=np.uint64)
    out, out_edges = bytearray(len(data)), u64([0] * (len(index) + 1))
    index[50_000] = len(payloads)
    with pytest.raises(ValueError, match="index"):
        kernel.gather(data, edges, index, out, out_edges, 2)
    edges[100] = 2**64 - 1
    for threads in (1, 4):
        with pytest.raises(ValueError, match="no frame"):
            kernel.check_frames(data, edges, u64([0] * 4), threads)


def test_a_sequence_that_shrinks_while_it_is_read():
    class Shrinking(list):
        def __getitem__(self, i):
            self.pop()
            return b"x"

    out, totals = bytearray(200), u64([0] * 4)
    payloads = Shrinking([b"x"] * 6)

    class Sequence:
        def __len__(self):
            return len(payloads)

        def __getitem__(self, i):
            return payloads[i]

    assert kernel.append_many(out, 0, Sequence(), 0, totals)[0] == 3

    class Failing(Sequence):
        def __getitem__(self, i):
            raise KeyError("no")

    with pytest.raises(KeyError):
        kernel.append_many(out, 0, Failing(), 0, totals)


def test_buffers_are_let_go():
    out, totals = bytearray(60), u64([0] * 4)
    kernel.append(out, 0, b"x", totals)
    kernel.append_many(out, 0, [b"x"], 0, totals)
    with pytest.raises(TypeError):
        kernel.append(out, 0, None, totals)
    with pytest.raises(ValueError, match="start"):
        kernel.scan(out, 99, u64([0]), True, 0)
    out.extend(b"more")  # BufferError if a view were still held


# --- threads


def test_other_threads_run_during_a_scan():
    data = framed([b""] * 1000)[0] * 20_000
    bounds = u64([0] * 20_000_001)
    turns, stop = 0, threading.Event()

    def count():
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = turns
    assert kernel.scan(data, 0, bounds, True, 99) == (20_000_000, kernel.PARTIAL)
    during = turns - before
    stop.set()
    thread.join()
    assert during > 5


def test_a_buffer_that_changes_meanwhile():
    """The result may be anything; the process lives."""
    data, edges, _ = big_file(20_000)
    shared, stop = np.frombuffer(data, np.uint8).copy(), threading.Event()
    rng = np.random.default_rng(3)

    def disturb():
        while not stop.is_set():
            shared[rng.integers(0, len(shared), 1000)] = rng.integers(0, 256, 1000)
            edges[rng.integers(0, len(edges), 10)] = rng.integers(0, 2**63, 10)

    thread = threading.Thread(target=disturb)
    thread.start()
    out, out_edges, bounds = bytearray(len(data)), u64([0] * len(edges)), u64([0] * len(edges))
    index = np.arange(len(edges) - 1, dtype=np.uint64)
    try:
        for _ in range(30):
            kernel.scan(shared, 0, bounds, True, NO_LIMIT)
            kernel.resync(shared, 1, NO_LIMIT)
            for call in [
                lambda: kernel.check_frames(shared, edges, u64([0] * 4), 2),
                lambda: kernel.gather(shared, edges, index, out, out_edges, 2),
                lambda: kernel.fingerprint(shared, edges, u64([0] * 4)),
            ]:
                with contextlib.suppress(ValueError):
                    call()
    finally:
        stop.set()
        thread.join()
