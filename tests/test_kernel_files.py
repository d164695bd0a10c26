"""What the kernel does with packed sequences and with files, against tests/oracle.py, on good, random and
hostile input."""

import contextlib
import errno
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from croupier import _kernel as kernel

NO_LIMIT = 2**64 - 1
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
few = settings(quick, max_examples=40)

numbers = st.integers(0, 2**64 - 1)
any_size = st.integers(0, 64).flatmap(lambda bits: st.integers(0, 2**bits - 1))
lengths = st.integers(0, 40).flatmap(lambda bits: st.integers(0, 2**bits - 1))
sequences = st.integers(0, 40).flatmap(
    lambda bits: st.lists(st.integers(0, 2**bits - 1), max_size=300)
) | st.lists(lengths, max_size=200)


def u64(values):
    return np.array(list(values), dtype=np.uint64)


def zeros(count):
    return np.zeros(count, np.uint64)


def packed(values, *, summed=True):
    """(count, least, bits, words, sums, at)"""
    blocks = -(-len(values) // 64)
    least, bits, words = zeros(blocks), np.zeros(blocks, np.uint8), zeros(blocks * 64)
    words = words[: kernel.pack(u64(values), least, bits, words)].copy()
    sums, at = zeros(blocks + 1), zeros(blocks + 1)
    kernel.index_packed(len(values), least, bits, words, sums, at, summed)
    return len(values), least, bits, words, sums, at


def frame(payload):
    """As oracle.frame, at the kernel's speed: test_kernel.py proves its checksums."""
    raw = struct.pack("<Q", len(payload))
    return b"".join(
        (
            raw,
            struct.pack("<I", kernel.masked_crc32c(raw)),
            payload,
            struct.pack("<I", kernel.masked_crc32c(payload)),
        )
    )


def header(length):
    raw = struct.pack("<Q", length)
    return raw + struct.pack("<I", kernel.masked_crc32c(raw))


def edges_of(sizes):
    return list(accumulate((size + 16 for size in sizes), initial=0))


PARTS = ("count", "least", "bits", "words", "sums", "at")


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


# --- what is refused


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A file with one record."""
    path = tmp_path_factory.mktemp("plain") / "a.tfrecord"
    path.write_bytes(frame(b"0123456789"))
    return path


def opened(path):
    return kernel.File(os.open(path, os.O_RDONLY))


def calls(path):
    """A good call of everything that takes arrays, by name."""
    sequence = packed([3, 4, 5])
    return {
        "pack": {
            "values": u64([3, 4]),
            "least": zeros(1),
            "bits": bytearray(1),
            "words": zeros(64),
        },
        "index_packed": dict(zip(PARTS, sequence, strict=True))
        | {"bits": bytes(sequence[2]), "summed": True},
        "sums_before": {"packed": sequence, "places": u64([0, 3]), "sums": zeros(2)},
        "unpack": {"packed": sequence, "first": 1, "values": zeros(2)},
        "locate": {
            "lengths": sequence,
            "firsts": u64([0, 1, 3]),
            "bases": u64([0, 3]),
            "records": u64([2, 0]),
            "file": zeros(2),
            "offset": zeros(2),
            "length": zeros(2),
            "threads": 1,
        },
        "search_sums": {
            "packed": sequence,
            "firsts": u64([0, 1, 3]),
            "bases": u64([0, 3]),
            "groups": u64([1, 0]),
            "positions": u64([2, 0]),
            "found": zeros(2),
            "begin": zeros(2),
        },
        "slices": {"buffer": b"0123", "bounds": u64([0, 2, 4])},
        "fetch": {
            "files": [opened(path)],
            "file": u64([0]),
            "offsets": u64([0]),
            "lengths": u64([10]),
            "places": u64([0]),
            "out": bytearray(10),
            "verify": True,
            "threads": 1,
        },
        "walk": {"fd": 0, "size": 0, "begin": 0, "end": 0, "sync": False, "limit": 9},
        "digest": {"fd": 0, "size": 0},
        "survey": {"paths": [os.fsencode(path)], "limit": 9},
    }


NAMES = list(calls(os.devnull))
WRITTEN = [
    ("pack", "least"),
    ("pack", "bits"),
    ("pack", "words"),
    ("index_packed", "sums"),
    ("index_packed", "at"),
    ("sums_before", "sums"),
    ("unpack", "values"),
    ("locate", "file"),
    ("locate", "offset"),
    ("locate", "length"),
    ("search_sums", "found"),
    ("search_sums", "begin"),
    ("fetch", "out"),
]
READ_ONLY_ARRAY = zeros(9)
READ_ONLY_ARRAY.setflags(write=False)
MISALIGNED = memoryview(bytearray(9 * 8 + 1))[1:].cast("Q")
WRONG_ARRAYS = [
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


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_the_wrong_kind(name, plain):
    function, arguments = getattr(kernel, name), calls(plain)[name]
    function(**arguments)
    for key, value in arguments.items():
        if isinstance(value, np.ndarray):
            wrong = WRONG_ARRAYS
            with pytest.raises(ValueError, match=f"{key} is not aligned"):
                function(**arguments | {key: MISALIGNED})
        elif isinstance(value, bytearray):
            wrong = [bytes(value), "text", None, 3, memoryview(bytearray(30))[::2]]
        elif isinstance(value, bytes):
            wrong = ["text", None, 3, memoryview(bytearray(30))[::2]]
        elif isinstance(value, bool):
            wrong = ["yes", 7.5, None]
        elif isinstance(value, int):
            wrong = [-1, 2**64, "1", None, 0.5] if key != "fd" else [2**31, "1", None, 0.5]
        elif isinstance(value, tuple):
            wrong = [list(value), None, 3, b"", *_wrong_tuples(value)]
        else:
            wrong = [None, 3, (1,)]
        for bad in wrong:
            with pytest.raises(TypeError):
                function(**arguments | {key: bad})


def _wrong_tuples(value):
    for i in range(1, 6):
        for bad in ["text", None, 3, *([] if i == 2 else WRONG_ARRAYS)]:
            yield (*value[:i], bad, *value[i + 1 :])


@pytest.mark.parametrize("count", [-1, 2**64, "1", None, 0.5, b""])
def test_counts_of_the_wrong_kind(count):
    with pytest.raises(TypeError):
        kernel.unpack((count, *packed([3])[1:]), 0, zeros(1))


@pytest.mark.parametrize("bad", ["None", "3", "'text'", "object()", "k.File.__new__(k.File)"])
def test_files_of_the_wrong_kind(bad, plain):
    """In a process of its own: None could be taken for a null pointer."""
    script = """
import os, sys
import numpy as np
from croupier import _kernel as k
u = lambda *numbers: np.array(numbers, np.uint64)
good, bad = k.File(os.open(sys.argv[1], os.O_RDONLY)), eval(sys.argv[2])
for files in ([bad], [good, bad], [bad, good]):
    for which in (u(0), u(1), u()):
        try:
            k.fetch(files, which, which, which, which, bytearray(9), True, 1)
        except TypeError:
            continue
        sys.exit("was taken for a file")
"""
    run(script, plain, bad)


@pytest.mark.parametrize("name", [3, None, "text", b"a\0b", bytearray(b"a"), object()])
def test_names_of_the_wrong_kind(name):
    with pytest.raises((TypeError, ValueError)):
        kernel.survey([name], 9)


def run(script, *arguments, code=0):
    """Python in a process of its own, which a signal may end."""
    options = ["-S"] if sys.flags.no_site else []  # as this process, which may have the sanitized build
    command = [sys.executable, *options, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


@pytest.mark.parametrize(("name", "key"), WRITTEN)
def test_what_is_written_must_be_writable(name, key, plain):
    with pytest.raises(TypeError, match=f"{key} must be a writable"):
        getattr(kernel, name)(**calls(plain)[name] | {key: READ_ONLY_ARRAY})


REFUSED = [
    ("pack", {"least": zeros(0)}, "least and bits"),
    ("sums_before", {"places": u64([4])}, "behind the end"),
    ("sums_before", {"places": u64([2**64 - 1])}, "behind the end"),
    ("sums_before", {"sums": zeros(1)}, "fewer places"),
    ("sums_before", {"packed": (3,) * 5}, "packed must be"),
    ("sums_before", {"packed": ()}, "packed must be"),
    ("unpack", {"first": 2}, "behind the end"),
    ("unpack", {"first": 4, "values": zeros(0)}, "behind the end"),
    ("unpack", {"first": 2**64 - 1}, "behind the end"),
    ("unpack", {"packed": (4, *packed([1] * 65)[1:])}, "do not fit"),
    ("unpack", {"packed": (2**64 - 1, *packed([1] * 64)[1:])}, "do not fit"),
    ("unpack", {"packed": (2**63, *packed([1] * 64)[1:])}, "do not fit"),
    ("locate", {"records": u64([3])}, "no file has"),
    ("locate", {"records": u64([2**64 - 1])}, "no file has"),
    ("locate", {"firsts": u64([1, 2, 3]), "records": u64([0])}, "no file has"),
    ("locate", {"firsts": u64([0]), "bases": zeros(0), "records": u64([0])}, "no file has"),
    ("locate", {"firsts": u64([0, 5, 9]), "records": u64([8])}, "behind the end"),
    ("locate", {"firsts": u64([0, 1])}, "firsts must have"),
    ("locate", {"firsts": zeros(0), "bases": zeros(0)}, "firsts must have"),
    ("locate", {"file": zeros(1)}, "fewer places"),
    ("locate", {"offset": zeros(1)}, "fewer places"),
    ("locate", {"length": zeros(1)}, "fewer places"),
    ("search_sums", {"groups": u64([0, 2])}, "does not exist"),
    ("search_sums", {"groups": u64([0, 2**64 - 1])}, "does not exist"),
    ("search_sums", {"firsts": u64([1, 1, 3])}, "is empty"),
    ("search_sums", {"firsts": u64([2, 1, 3])}, "is empty"),
    ("search_sums", {"firsts": u64([0, 1, 4])}, "is empty"),
    ("search_sums", {"firsts": u64([0, 1])}, "firsts must have"),
    ("search_sums", {"positions": u64([0])}, "differ in length"),
    ("search_sums", {"found": zeros(1)}, "differ in length"),
    ("search_sums", {"begin": zeros(1)}, "differ in length"),
    ("fetch", {"file": u64([1])}, "no file's"),
    ("fetch", {"file": u64([2**64 - 1])}, "no file's"),
    ("fetch", {"files": []}, "no file's"),
    ("fetch", {"offsets": zeros(2)}, "differ in length"),
    ("fetch", {"lengths": zeros(0)}, "differ in length"),
    ("fetch", {"places": zeros(2)}, "differ in length"),
    ("fetch", {"places": u64([1])}, "not within out"),
    ("fetch", {"places": u64([11]), "lengths": u64([0])}, "not within out"),
    ("fetch", {"places": u64([2**64 - 1])}, "not within out"),
    ("fetch", {"lengths": u64([11])}, "not within out"),
    ("fetch", {"lengths": u64([2**64 - 1])}, "not within out"),
    ("fetch", {"places": u64([5]), "lengths": u64([2**64 - 3])}, "not within out"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_values_out_of_range(name, change, message, plain):
    with pytest.raises(ValueError, match=message):
        getattr(kernel, name)(**calls(plain)[name] | change)


# --- walk


@pytest.fixture(scope="module")
def spare():
    """Puts bytes into a file without a name; gives its descriptor."""
    with tempfile.TemporaryFile() as file:

        def put(data):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), data, 0)
            return file.fileno()

        yield put


def walk(fd, size, begin=0, end=NO_LIMIT, sync=False, limit=NO_LIMIT):
    """As oracle.walk."""
    first, last, why, found = kernel.walk(fd, size, begin, end, sync, limit)
    return first, last, why, np.frombuffer(found, np.uint64).tolist()


inner = b"".join(map(oracle.frame, [b"", b"abc", b"x" * 20]))
payloads_with_frames = st.lists(
    st.binary(max_size=60) | st.sampled_from([inner, inner[:30], inner + b"!", oracle.header(3)]), max_size=6
)


@given(
    payloads_with_frames,
    st.lists(st.tuples(numbers, st.integers(0, 255)), max_size=3),
    st.binary(max_size=20),
    st.data(),
)
@quick
def test_walk(spare, payloads, damage, rest, data):
    content = bytearray(b"".join(map(oracle.frame, payloads)) + rest)
    for at, byte in damage:
        if content:
            content[at % len(content)] = byte
    fd, near = spare(content), st.integers(0, len(content) + 5)
    for sync in (False, True):
        size = data.draw(near | st.just(len(content)))
        begin, end, limit = (data.draw(near), data.draw(near | numbers), data.draw(near | st.just(NO_LIMIT)))
        arguments = size, begin, end, sync, limit
        assert walk(fd, *arguments) == oracle.walk(bytes(content), *arguments)


def test_walk_from_everywhere_to_everywhere(spare):
    """Records that are TFRecord files themselves: frames are found in them that are none of the file's."""
    payloads = [b"", b"a" * 9, inner, b"", oracle.frame(inner), b"xyz"]
    content = b"".join(map(oracle.frame, payloads))
    edges = edges_of(map(len, payloads))
    fd, size = spare(content), len(content)
    leads = [at for at in range(size) if oracle._leads_on(content, at, size, NO_LIMIT)]
    assert set(edges[:-1]) < set(leads)
    for begin in range(size + 2):
        for end in {*range(0, size + 2, 7), *edges, size - 1, NO_LIMIT}:
            expected = next((at for at in leads if begin <= at < min(end, size)), min(end, size))
            first, *rest = walk(fd, size, begin, end, sync=True)
            assert first == expected
            assert (first, *rest) == walk(fd, size, first, end)
    for begin, edge in enumerate(edges[:-1]):
        for end in range(size + 2):
            taken = [i for i in range(begin, len(payloads)) if edges[i] < end]
            lengths = [len(payloads[i]) for i in taken]
            last = edges[taken[-1] + 1] if taken else edge
            assert walk(fd, size, edge, end) == (edge, last, kernel.FULL, lengths)


def test_walk_of_every_cut(spare):
    payloads = [b"", b"a" * 9, b"", b"b" * 30]
    content, edges = b"".join(map(oracle.frame, payloads)), edges_of(map(len, payloads))
    for cut in range(len(content) + 1):
        fd = spare(content[:cut])
        whole = sum(edge <= cut for edge in edges) - 1
        why = kernel.FULL if cut == edges[whole] else kernel.PARTIAL
        lengths = [len(payload) for payload in payloads[:whole]]
        assert walk(fd, cut) == (0, edges[whole], why, lengths)
        # Cut after the caller asked how large it is: what is missing is missing, also where only a payload is
        found = walk(fd, len(content))
        assert found == oracle.walk(content[:cut], len(content), 0, NO_LIMIT, False, NO_LIMIT)


def test_walk_of_every_flipped_bit(spare):
    payloads = [b"", b"a" * 9, b"", b"b" * 30, b""]
    content = b"".join(map(oracle.frame, payloads))
    for bit in range(8 * len(content)):
        bad = bytearray(content)
        bad[bit // 8] ^= 1 << bit % 8
        fd = spare(bad)
        for sync in (False, True):
            arguments = len(bad), 0, NO_LIMIT, sync, NO_LIMIT
            assert walk(fd, *arguments) == oracle.walk(bytes(bad), *arguments)


BOMBS = sorted({2**k + d for k in range(24, 64) for d in (-1, 0, 1)} | {2**64 - n for n in range(1, 34)})


@pytest.mark.parametrize("rest", [0, 3, 4, 100])
def test_walk_meets_length_bombs(spare, rest):
    for length in BOMBS:
        content = oracle.frame(b"good") + header(length) + bytes(rest)
        fd, size = spare(content), len(content)
        assert walk(fd, size) == (0, 20, kernel.PARTIAL, [4])
        assert walk(fd, size, limit=length - 1) == (0, 20, kernel.TOO_LONG, [4])
        assert walk(fd, size, 1, sync=True) == (size, size, kernel.FULL, [])
        # a file that claims to be as large as that: the numbers wrap nowhere
        for claimed in (length, 2**63, NO_LIMIT):
            arguments = claimed, 0, NO_LIMIT, False, NO_LIMIT
            with contextlib.suppress(OSError):  # an offset of 2^63 or more
                assert walk(fd, *arguments) == oracle.walk(content, *arguments)


def sparse(sizes):
    """A file with these records, of which only the headers are written."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    for begin, size in zip(edges_of(sizes), sizes, strict=False):
        os.pwrite(file.fileno(), header(size), begin)
    os.ftruncate(file.fileno(), edges_of(sizes)[-1])
    return file


WINDOW = 256 << 10
LONG = [
    pytest.param([40_000] * 100, id="narrow"),
    pytest.param([32_768 - 16] * 50, id="at the edge of narrow"),
    pytest.param([300_000] * 30, id="longer than the window"),
    pytest.param([WINDOW - 16 - 5] * 40, id="headers across windows"),
    pytest.param([100] * 5000 + [2_000_000] + [0] * 20_000 + [50_000] * 9 + [7] * 9, id="wide narrow wide"),
    pytest.param([(1 << 40) + 5, 3, (1 << 31), 0], id="huge"),
    pytest.param([0] * 70_000, id="empty payloads"),
]


@pytest.mark.parametrize("sizes", LONG)
def test_walk_of_long_records(sizes):
    edges = edges_of(sizes)
    with sparse(sizes) as file:
        fd = file.fileno()
        assert walk(fd, edges[-1]) == (0, edges[-1], kernel.FULL, sizes)
        if longest := max(sizes):
            first = sizes.index(longest)
            cut = 0, edges[first], kernel.TOO_LONG, sizes[:first]
            assert walk(fd, edges[-1], limit=longest - 1) == cut
        rng = random.Random(1)
        for _ in range(20):
            i, j = sorted(rng.choices(range(len(edges)), k=2))
            begin = max(edges[i] - rng.randrange(3000 if i else 1), 0)
            first = next(k for k, edge in enumerate(edges) if edge >= begin)
            end = min(edges[j] + rng.randrange(2) * rng.randrange(1, 5), edges[-1])
            last = max(first, next(k for k, edge in enumerate(edges) if edge >= end))
            if edges[first] >= end:
                continue
            expected = edges[first], edges[last], kernel.FULL, sizes[first:last]
            assert walk(fd, edges[-1], begin, end, sync=True) == expected
            assert walk(fd, edges[-1], edges[first], end) == expected


def test_every_header_across_a_window():
    """The second header begins at each of the 40 bytes around the window's end."""
    for size in range(WINDOW - 16 - 30, WINDOW - 16 + 10):
        sizes = [size, 5, 0, 70_000, 3]
        with sparse(sizes) as file:
            end = edges_of(sizes)[-1]
            assert walk(file.fileno(), end) == (0, end, kernel.FULL, sizes)
            for begin in (1, size + 15):
                assert walk(file.fileno(), end, begin, sync=True) == (size + 16, end, kernel.FULL, sizes[1:])


def test_walk_in_many_threads():
    """Parts of one file, by one descriptor: together they are all of it."""
    rng = random.Random(5)
    sizes = [rng.choice((0, 10, 300, 5000, 60_000)) for _ in range(3000)]
    with sparse(sizes) as file, ThreadPoolExecutor(16) as pool:
        fd, end = file.fileno(), edges_of(sizes)[-1]
        step = end // 40 + 1
        jobs = [
            pool.submit(walk, fd, end, begin, begin + step, sync=begin > 0) for begin in range(0, end, step)
        ]
        parts = [job.result() for job in jobs]
    assert [length for part in parts for length in part[3]] == sizes
    assert [part[0] for part in parts[1:]] == [part[1] for part in parts[:-1]]
    assert {part[2] for part in parts} == {kernel.FULL}


def test_walk_of_a_file_that_shrinks_and_grows():
    """The result may be anything that the file was; the process lives."""
    content = b"".join(frame(bytes(size % 997)) for size in range(0, 60_000, 31))
    stop = threading.Event()
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()

        def disturb():
            while not stop.is_set():
                os.ftruncate(file.fileno(), len(content) // 3)
                os.pwrite(file.fileno(), content, 0)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            for _ in range(200):
                _, end, why, found = walk(file.fileno(), len(content))
                assert why in (kernel.FULL, kernel.PARTIAL, kernel.BAD_HEADER)
                assert end == sum(found) + 16 * len(found)
                kernel.digest(file.fileno(), len(content))
                walk(file.fileno(), len(content), 100_000, sync=True)
        finally:
            stop.set()
            thread.join()


def test_looking_for_a_frame_is_not_made_quadratic(spare):
    """A right header every 12 bytes, each of a frame that nothing follows."""
    content = header(500_001) * 100_000
    fd = spare(content)
    begin = time.perf_counter()
    assert walk(fd, len(content), 1, 600_000, sync=True)[3] == []
    assert time.perf_counter() - begin < 5


def test_what_cannot_be_walked(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    reading, writing = os.pipe()
    blind = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    os.write(blind, bytes(100))
    try:
        for fd, number in [
            (-1, errno.EBADF),
            (10**6, errno.EBADF),
            (folder, errno.EISDIR),
            (reading, errno.ESPIPE),
            (blind, errno.EBADF),
        ]:
            for call in (
                lambda fd=fd: kernel.walk(fd, 100, 0, 100, False, 9),
                lambda fd=fd: kernel.walk(fd, 10**6, 3, 100, True, 9),
                lambda fd=fd: kernel.digest(fd, 100),
                lambda fd=fd: kernel.digest(fd, 10**6),
            ):
                with pytest.raises(OSError, match=r".") as caught:
                    call()
                assert caught.value.errno == number
        for fd in (folder, -1):
            assert kernel.walk(fd, 0, 0, 100, True, 9) == (0, 0, kernel.FULL, b"")
    finally:
        for fd in (folder, reading, writing, blind):
            os.close(fd)


# --- digest and survey


SIZES = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 69_631, 69_632, 200_001]


@pytest.mark.parametrize("size", SIZES)
def test_digest(spare, size):
    content = random.Random(size).randbytes(size)
    fd = spare(content)
    assert kernel.digest(fd, size) == oracle.digest(content)
    if size:
        for at in (0, size - 1, min(size - 1, 4095)):
            changed = bytearray(content)
            changed[at] ^= 1
            assert kernel.digest(spare(changed), size) != oracle.digest(content)
    # shorter than it was a moment ago
    assert kernel.digest(spare(content[: size // 2]), size) in range(2**32)


def test_digest_of_impossible_sizes(spare):
    for size in (2**62, 2**63, 2**64 - 1):
        with contextlib.suppress(OSError):  # offsets that are negative to the system
            assert kernel.digest(spare(b"abc"), size) in range(2**32)


class Surveyed:
    """As kernel.survey gives it, by name."""

    def __init__(self, paths, limit=NO_LIMIT):
        columns, found = kernel.survey([os.fsencode(path) for path in paths], limit)
        table = np.frombuffer(columns, np.uint64).reshape(9, len(paths)).tolist()
        self.kind, self.walked, self.errno, self.size, self.modified, self.changed, self.inode = table[:7]
        self.digest, self.records = table[7:]
        self.lengths = np.frombuffer(found, np.uint64).tolist()


contents = st.one_of(
    payloads_with_frames.map(lambda payloads: b"".join(map(oracle.frame, payloads))),
    st.binary(max_size=40),
    payloads_with_frames.map(lambda payloads: b"".join(map(oracle.frame, payloads))[:-3]),
    st.integers(0, 3).map(lambda more: oracle.frame(bytes(65_520 + more))),
    st.sampled_from(
        [b"", oracle.header(100), oracle.header(9)[:11], b"\x1f\x8b\x08" + bytes(40), frame(b"") * 4096]
    ),
)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # 64 KiB are much to print
@given(st.lists(contents, max_size=6), st.sampled_from([NO_LIMIT, 30, 0]))
@few
def test_survey(tmp_path_factory, files, limit):
    folder = tmp_path_factory.getbasetemp() / "surveyed"
    folder.mkdir(exist_ok=True)
    paths = [folder / str(number) for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    found, lengths = Surveyed(paths, limit), []
    for row, (path, content) in enumerate(zip(paths, files, strict=True)):
        status = path.stat()
        assert (found.size[row], found.inode[row]) == (status.st_size, status.st_ino)
        assert (found.modified[row], found.changed[row]) == (status.st_mtime_ns, status.st_ctime_ns)
        assert (found.errno[row], found.digest[row]) == (0, oracle.digest(content))
        plain = not content or (len(content) >= 12 and oracle.header_is_right(content, 0))
        assert found.kind[row] == (kernel.SURVEY_PLAIN if plain else kernel.SURVEY_OTHER)
        *_, why, inside = oracle.walk(content, len(content), 0, len(content), False, limit)
        whole = len(content) <= kernel.SURVEY_SMALL and why == kernel.FULL
        assert found.walked[row] == whole
        assert found.records[row] == (len(inside) if whole else 0)
        lengths += inside if whole else []
    assert found.lengths == lengths


def test_survey_of_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "good").write_bytes(frame(b"abc"))
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "large").write_bytes(frame(bytes(70_000)))
    names = ["missing", "good", "pipe", ".", "loop", "good/x", "n" * 300, "link", "large"]
    found = Surveyed([tmp_path / name for name in names])
    failed, plain = kernel.SURVEY_FAILED, kernel.SURVEY_PLAIN
    assert found.kind == [failed, plain, failed, failed, failed, failed, failed, plain, plain]
    numbers = [errno.ENOENT, 0, 0, 0, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG, 0, 0]
    assert found.errno == numbers
    assert found.walked == [0, 1, 0, 0, 0, 0, 0, 1, 0]
    assert found.lengths == [3, 3]
    assert kernel.survey([], 9) == (b"", b"")


def test_survey_opens_nothing_for_long(tmp_path):
    (tmp_path / "a").write_bytes(frame(b"abc"))
    before = len(os.listdir("/dev/fd"))
    for name in ("a", ".", "missing"):
        Surveyed([tmp_path / name] * 50)
    assert len(os.listdir("/dev/fd")) == before


# --- File


def test_a_file_knows_its_stamp(plain):
    file, status = opened(plain), plain.stat()
    assert file.stamp == (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    assert (file.regular, file.broken, file.unchanged()) == (True, False, True)
    assert os.fstat(file.fd).st_ino == status.st_ino
    fd = file.fd
    del file
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)


def test_what_is_no_file(tmp_path):
    for fd in (-1, 10**6):
        with pytest.raises(OSError, match="descriptor"):
            kernel.File(fd)
    for bad in (None, "x", 2**31, 0.5):
        with pytest.raises(TypeError):
            kernel.File(bad)
    with pytest.raises(TypeError):
        kernel.File()
    folder = opened(tmp_path)
    assert not folder.regular
    reading, writing = os.pipe()
    pipe = kernel.File(reading)
    assert not pipe.regular
    out = bytearray(9)
    one = u64([0])
    assert kernel.fetch([pipe], one, one, one, one, out, True, 1)[1] == kernel.BEHIND_END
    os.close(writing)
    wrong = kernel.fetch([folder], one, one, one, one, out, True, 1)
    assert wrong[1:] in [(kernel.BEHIND_END, 0), (kernel.REFUSED, errno.EISDIR)]


@pytest.mark.parametrize("how", ["append", "truncate", "overwrite", "touch", "remove", "replace"])
def test_a_file_notices_that_it_changed(tmp_path, how):
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    os.utime(path, ns=(10**18, 10**18))
    file = opened(path)
    assert file.unchanged()
    change(path, how)
    assert not file.unchanged()


def change(path, how):
    size = path.stat().st_size
    if how == "append":
        with path.open("ab") as file:
            file.write(b"x")
    elif how == "truncate":
        os.truncate(path, size // 2)
    elif how == "overwrite":
        with path.open("r+b") as file:
            file.write(b"other")
    elif how == "touch":
        os.utime(path)
    elif how == "remove":
        path.unlink()
    else:
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        os.utime(other, ns=(path.stat().st_mtime_ns,) * 2)
        other.replace(path)


# --- fetch


class Data:
    """A file of records, and what is in it."""

    def __init__(self, path, sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.path = path
        self.payloads = [rng.integers(0, 256, size, dtype=np.uint8).tobytes() for size in sizes]
        self.edges = edges_of(sizes)
        path.write_bytes(b"".join(map(frame, self.payloads)))
        os.utime(path, ns=(10**18, 10**18))  # so that any write is seen, however coarse the clock

    def patch(self, at, data):
        """Change the content, unseen."""
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), data, at)
        os.utime(self.path, ns=(10**18, 10**18))


def is_cold(path):
    """Whether the page cache has nothing of a file's first half."""
    fd = os.open(path, os.O_RDONLY)
    try:
        for at in range(0, max(os.fstat(fd).st_size // 2, 1), 4096):
            try:
                os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
            return False
        return True
    finally:
        os.close(fd)


def chill(*paths):
    """Have the page cache forget a file."""
    for path in paths:
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="where the system cannot say, all files count as warm")
def test_files_can_be_chilled(tmp_path):
    """Else the tests of the cold way would test the warm one."""
    data = Data(tmp_path / "a", [1000] * 3000)
    assert not is_cold(data.path)
    chill(data.path)
    assert is_cold(data.path)


def fetch(datas, wanted, *, files=None, verify=True, threads=2, cold=False, lengths=None, offsets=None):
    """`wanted` are (file, record): ((request, why, errno), the payloads)."""
    if files is None:
        files = [opened(data.path) for data in datas]
    size = [len(datas[f].payloads[i]) for f, i in wanted] if lengths is None else lengths
    at = [datas[f].edges[i] for f, i in wanted] if offsets is None else offsets
    places = list(accumulate(size, initial=3))
    out = bytearray(b"\xee" * (places[-1] + 3))
    if cold:
        chill(*(data.path for data in datas))
    result = kernel.fetch(
        files, u64(f for f, _ in wanted), u64(at), u64(size), u64(places[:-1]), out, verify, threads
    )
    assert out[:3] == out[-3:] == b"\xee" * 3
    return result, [bytes(out[a:b]) for a, b in pairwise(places)]


SMALL, LARGE, LUMPS, TINY = range(4)


@pytest.fixture(scope="module")
def datas(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("fetched"), random.Random(7)
    return [
        Data(folder / "small", [rng.choice((0, 1, 7, 100, 500, 3000)) for _ in range(500)], 1),  # read
        Data(folder / "large", [rng.choice((0, 5, 200, 900, 20_000)) for _ in range(700)], 2),  # mapped
        Data(folder / "lumps", [65_535, 65_536, 70_000, 0, 1_500_000, 3, 300_000], 3),  # mapped
        Data(folder / "tiny", [0], 4),
    ]


def test_the_files_are_what_they_should_be(datas):
    sizes = [data.path.stat().st_size for data in datas]
    assert sizes[SMALL] < 1 << 20 < sizes[LARGE]
    assert sizes[LUMPS] > 1 << 20
    assert sizes[TINY] == 16


ways = pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])


@ways
@pytest.mark.parametrize("threads", [0, 1, 2, 7, 4_000_000_000])
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled", "repeated", "far apart"])
def test_fetch(datas, cold, threads, order):
    everything = [(f, i) for f, data in enumerate(datas) for i in range(len(data.payloads))]
    rng = random.Random(order)
    if order == "backward":
        everything.reverse()
    elif order == "shuffled":
        rng.shuffle(everything)
    elif order == "repeated":
        everything = rng.choices(everything, k=1500) + [(LUMPS, 2)] * 5 + [(LUMPS, 4)] * 2 + [(TINY, 0)] * 9
    elif order == "far apart":
        everything = rng.sample(everything, 60)
    result, found = fetch(datas, everything, threads=threads, cold=cold)
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in everything]


@given(st.data())
@few
def test_fetch_of_anything_that_is_there(datas, data):
    every = st.sampled_from([(f, i) for f, one in enumerate(datas) for i in range(len(one.payloads))])
    wanted = data.draw(st.lists(every, max_size=40))
    cold, verify = data.draw(st.booleans()), data.draw(st.booleans())
    result, found = fetch(datas, wanted, cold=cold, verify=verify, threads=data.draw(st.integers(0, 4)))
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in wanted]


def test_fetch_of_nothing(datas):
    assert fetch(datas, []) == ((0, kernel.FETCHED, 0), [])
    assert fetch([], []) == ((0, kernel.FETCHED, 0), [])


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_fetch_from_many_files(tmp_path, cold):
    datas = [Data(tmp_path / str(n), [n % 50, 0, 3000], n) for n in range(300)]
    wanted = [(f, i) for i in range(3) for f in range(300)]
    random.Random(1).shuffle(wanted)
    result, found = fetch(datas, wanted, cold=cold)
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in wanted]


def test_fetch_by_many_threads_at_once(datas):
    """Of the same Files, so that they are mapped while others read."""
    files = [opened(data.path) for data in datas]
    everything = [(f, i) for f, data in enumerate(datas) for i in range(len(data.payloads))]

    def read(seed):
        rng = random.Random(seed)
        wanted = rng.choices(everything, k=300)
        result, found = fetch(datas, wanted, files=files, cold=seed % 5 == 0)
        return result == (0, 0, 0) and found == [datas[f].payloads[i] for f, i in wanted]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(60)))


@pytest.fixture
def mapped(tmp_path):
    """A file that is mapped once it is read, and one that never is."""
    return [Data(tmp_path / "mapped", [1000] * 3000, 1), Data(tmp_path / "read", [1000] * 300, 2)]


files_of_both_kinds = pytest.mark.parametrize("which", [0, 1], ids=["mapped", "read"])


@ways
@files_of_both_kinds
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_wrong_is_found(mapped, which, cold, threads):
    data = mapped[which]
    every = [(which, i) for i in range(0, len(data.payloads), 2)]
    victim = len(every) // 2
    at = data.edges[every[victim][1]]
    for offset, why in [
        (0, kernel.WRONG_HEADER),
        (7, kernel.WRONG_HEADER),
        (11, kernel.WRONG_HEADER),
        (12, kernel.WRONG_PAYLOAD),
        (1011, kernel.WRONG_PAYLOAD),
        (1012, kernel.WRONG_PAYLOAD),
        (1015, kernel.WRONG_PAYLOAD),
    ]:
        good = data.path.read_bytes()[at + offset : at + offset + 1]
        data.patch(at + offset, bytes([good[0] ^ 64]))
        for verify in (True, False):
            result, _ = fetch(mapped, every, cold=cold, verify=verify, threads=threads)
            seen = verify or why == kernel.WRONG_HEADER
            assert result == ((victim, why, 0) if seen else (0, kernel.FETCHED, 0))
        data.patch(at + offset, good)
    assert fetch(mapped, every, cold=cold, threads=threads)[0] == (0, kernel.FETCHED, 0)


@ways
@files_of_both_kinds
@pytest.mark.parametrize("verify", [True, False])
def test_requests_for_other_lengths_and_places(mapped, which, cold, verify):
    size = mapped[which].edges[-1]
    for offset, length, why in [
        (0, 999, kernel.WRONG_LENGTH),
        (0, 1001, kernel.WRONG_LENGTH),
        (0, 0, kernel.WRONG_LENGTH),
        (1016, 1016 + 1000, kernel.WRONG_LENGTH),
        (1, 1000, kernel.WRONG_HEADER),
        (12, 0, kernel.WRONG_HEADER),
        (size - 16, 0, kernel.WRONG_HEADER),
        (size - 16, 1, kernel.BEHIND_END),
        (size - 15, 0, kernel.BEHIND_END),
        (size - 1015, 1000, kernel.BEHIND_END),
        (size, 0, kernel.BEHIND_END),
        (size + 1, 0, kernel.BEHIND_END),
        (2**63 - 13, 1000, kernel.BEHIND_END),
        (2**63, 0, kernel.BEHIND_END),
        (2**64 - 16, 0, kernel.BEHIND_END),
        (2**64 - 12, 9, kernel.BEHIND_END),
        (2**64 - 1, 0, kernel.BEHIND_END),
    ]:
        wanted = [(which, 0)]
        options = {"lengths": [length], "offsets": [offset], "verify": verify, "cold": cold}
        assert fetch(mapped, wanted, **options)[0] == (0, why, 0)
        # among others that are right
        lengths, offsets = [1000, length, 1000], [0, offset, 1016]
        options |= {"lengths": lengths, "offsets": offsets}
        assert fetch(mapped, wanted * 3, **options)[0] == (1, why, 0)


@ways
@given(st.data())
@few
def test_the_first_request_at_fault_is_told(mapped_for_ever, cold, data):
    """The first of the caller's, in whatever order and on however many threads they were read."""
    datas = mapped_for_ever
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 298)), min_size=1, max_size=60))
    offsets = [datas[f].edges[i] for f, i in wanted]
    for k in data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=4)):
        offsets[k] += 1
    bad = [k for k, (f, i) in enumerate(wanted) if offsets[k] != datas[f].edges[i]]
    result, _ = fetch(datas, wanted, offsets=offsets, cold=cold, threads=3)
    assert result == ((bad[0], kernel.WRONG_HEADER, 0) if bad else (0, kernel.FETCHED, 0))


@pytest.fixture(scope="module")
def mapped_for_ever(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mapped")
    return [Data(folder / "mapped", [1000] * 3000, 1), Data(folder / "read", [1000] * 300, 2)]


@ways
@files_of_both_kinds
@pytest.mark.parametrize("how", ["append", "overwrite", "touch", "remove", "replace"])
def test_fetch_from_a_file_that_changed(mapped, which, cold, how):
    """Whatever the records look like: bytes of two versions must not be mixed."""
    files = [opened(data.path) for data in mapped]
    wanted = [(f, i) for i in range(200) for f in (0, 1)]
    assert fetch(mapped, wanted, files=files)[0] == (0, kernel.FETCHED, 0)
    if how != "remove" and cold:
        chill(mapped[which].path)
    change(mapped[which].path, how)
    result = kernel.fetch(
        files,
        u64(f for f, _ in wanted),
        u64(mapped[f].edges[i] for f, i in wanted),
        u64([1000] * 400),
        u64(range(0, 400_000, 1000)),
        bytearray(400_000),
        True,
        2,
    )
    assert result == (wanted.index((which, 0)), kernel.CHANGED, 0)
    # Those who ask the other file alone need not care
    other = [(1 - which, i) for i in range(300)]
    if how != "remove":
        assert fetch(mapped, other, files=files)[0] == (0, kernel.FETCHED, 0)


@ways
def test_a_file_that_was_truncated_and_never_mapped(mapped, cold):
    files = [opened(data.path) for data in mapped]
    os.truncate(mapped[1].path, 1500)
    wanted = [(1, i) for i in range(300)]
    assert fetch(mapped, wanted, files=files, cold=cold)[0] == (0, kernel.CHANGED, 0)
    assert fetch(mapped, wanted, cold=cold)[0] == (1, kernel.BEHIND_END, 0)


@pytest.mark.parametrize("what", ["offsets", "order", "file", "lengths", "places"])
def test_requests_that_change_meanwhile(tmp_path, what):
    """In a process of its own: the result may be anything, but nothing is read or written out of range."""
    run(CHANGING, Data(tmp_path / "a", [1000] * 3000, 1).path, what)


CHANGING = """
import contextlib, os, sys, threading, time
import numpy as np
from croupier import _kernel as k
path, what, n = sys.argv[1], sys.argv[2], 3000
order = np.random.default_rng(1).permutation(n).astype(np.uint64)
good = {"file": np.zeros(n, np.uint64), "offsets": order * np.uint64(1016),
        "lengths": np.full(n, 1000, np.uint64), "places": np.arange(n, dtype=np.uint64) * np.uint64(1000)}
shared = {name: part.copy() for name, part in good.items()}
out, stop = bytearray(n * 1000), threading.Event()

def disturb():
    rng = np.random.default_rng(1)
    part, right = shared["offsets" if what == "order" else what], good["offsets" if what == "order" else what]
    while not stop.is_set():
        if what == "order":  # all behind the end, so that nothing is found in memory, and sorted
            part[:] = rng.integers(2**40, 2**50, n)
        else:
            at = rng.integers(0, n, 40)
            part[at] = rng.integers(0, 2**64, 40, dtype=np.uint64)
            part[at] = right[at]

thread = threading.Thread(target=disturb)
thread.start()
end = time.monotonic() + 1
file = k.File(os.open(path, os.O_RDWR))
try:
    while time.monotonic() < end:
        with contextlib.suppress(ValueError):
            k.fetch([file, file], *shared.values(), out, True, 2)
finally:
    stop.set()
    thread.join()
"""


# --- files that are truncated while they are mapped: the system's answer is a signal that ends processes

TRUNCATING = """
import faulthandler, os, sys, threading
import numpy as np
from croupier import _kernel as k
path, when, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
if when == "before":
    faulthandler.enable()
n = 3000
def ask(file, records, threads=2):
    records = np.asarray(records, np.uint64)
    places = np.arange(len(records), dtype=np.uint64) * np.uint64(1000)
    out = bytearray(1000 * len(records))
    return k.fetch([file], np.zeros(len(records), np.uint64), records * np.uint64(1016),
                   np.full(len(records), 1000, np.uint64), places, out, True, threads)
file = k.File(os.open(path, os.O_RDONLY))
assert ask(file, range(n)) == (0, k.FETCHED, 0)
if when == "after":
    faulthandler.enable()
if when == "again":
    faulthandler.enable(), faulthandler.disable(), faulthandler.enable()
"""

TRUNCATED = (
    TRUNCATING
    + """
os.truncate(path, left)
for records in (range(n), range(n - 1, -1, -1), [n - 1], [0], range(0, n, 50)):
    for threads in (1, 4):
        assert ask(file, records, threads)[1] == k.CHANGED
assert not file.unchanged()
anew = k.File(os.open(path, os.O_RDONLY))
assert ask(anew, range(n)) == (left // 1016, k.BEHIND_END, 0)
assert ask(anew, range(left // 1016)) == (0, k.FETCHED, 0)
print("lived")
"""
)


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after", "again"])
def test_a_mapped_file_that_was_truncated(tmp_path, when):
    """With faulthandler, which handles that signal as well, wherever it stands."""
    for left in (0, 1, 5000, 4096 * 300, 3_000_000):
        data = Data(tmp_path / "a", [1000] * 3000, 1)
        done = run(TRUNCATED, data.path, when, left)
        assert (done.stdout, done.stderr) == ("lived\n", "")


@pytest.mark.unsanitized
def test_a_file_that_is_truncated_while_it_is_read(tmp_path):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    content = data.path.read_bytes()
    (tmp_path / "copy").write_bytes(content)
    script = TRUNCATING + (
        """
content, seen = open(path + ".content", "rb").read(), set()
def disturb():
    os.truncate(path, 100_000)
for turn in range(60):
    with open(path, "r+b") as again:
        again.write(content)
    file = k.File(os.open(path, os.O_RDONLY))
    assert ask(file, range(0, n, 300))[1] == k.FETCHED
    thread = threading.Timer(0.0003 * (turn % 10), disturb)
    thread.start()
    order = np.random.default_rng(turn).permutation(n)
    for _ in range(9):
        seen.add(why := ask(file, order, 2)[1])
        if why != k.FETCHED:
            break
    thread.join()
    assert ask(file, order)[1] == k.CHANGED
assert seen <= {k.FETCHED, k.CHANGED}, seen
print("lived")
"""
    )
    (tmp_path / "a.content").write_bytes(content)
    assert run(script, data.path, "before", 0).stdout == "lived\n"


OTHERS_FAULT = (
    TRUNCATING
    + """
import mmap
with open(path, "r+b") as other:
    theirs = mmap.mmap(other.fileno(), 0)
    os.truncate(path, 0)
theirs[5000]
"""
)


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after", "again"])
def test_faults_of_others_end_the_process(tmp_path, when):
    """Nobody else's mapping is mended, and faulthandler has its say (once)."""
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    done = run(OTHERS_FAULT, data.path, when, 0, code=-signal.SIGBUS)
    assert done.stderr.count("Fatal Python error: Bus error") == (when != "never")


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_the_signal_sent_by_somebody_ends_the_process(tmp_path, when):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    script = TRUNCATING + "import signal\nos.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    done = run(script, data.path, when, 0, code=-signal.SIGBUS)
    assert done.stderr.count("Fatal Python error: Bus error") == (when != "never")
    ignoring = TRUNCATING.replace("\n", "\nimport signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)\n", 1)
    script = ignoring + "os.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    if when == "never":
        assert run(script, data.path, when, 0).stdout == "lived\n"


@pytest.mark.unsanitized
def test_a_python_handler_of_that_signal_still_runs(tmp_path):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    handler = "\nimport signal; signal.signal(signal.SIGBUS, lambda *_: print('handled'))\n"
    script = TRUNCATING.replace("\n", handler, 1) + "os.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    assert run(script, data.path, "never", 0).stdout == "handled\nlived\n"
