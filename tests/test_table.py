"""Offset tables: read back as written, small, equal to a plain scan, and kept while they are right.

What a table must say is known here by construction. Tables that lie are in test_table_lies.py.
"""

import gzip
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
import oracle
from croupier.runtime import Runtime
from croupier.table import build as building
from croupier.table import seekable
from croupier.table.build import build
from croupier.table.format import dump, load
from croupier.table.model import Identity, Kind, Table, join
from croupier.table.packed import distinct, pack
from test_dataset import bgzip, framed, make

SLOW_IS_FINE = pytest.mark.filterwarnings("ignore::croupier.errors.SlowAccessWarning")
U64 = 1 << 64


@pytest.fixture(autouse=True)
def _cache_folder(tmp_path_factory, monkeypatch):
    """Nobody's own cache: where tables go when they cannot stand beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def u64(values):
    return np.array(values, np.uint64)


def words(content):
    return np.frombuffer(content, np.uint64)


def numbers_of(packed):
    return packed.part(0, packed.size).tolist()


def names_in(path):
    return list(load(words(path.read_bytes()), str(path))[0].names)


def state_of(path):
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, path.read_bytes()


# As plain lists: a file is (name, kind, [size, modified, changed, inode, digest], lengths, raw, stored)

NUMBER = st.one_of(st.integers(0, 300), st.integers(0, U64 - 1))
LENGTHS = st.lists(st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 1 << 50)), max_size=150)


@st.composite
def a_file(draw):
    kind = draw(st.sampled_from(Kind))
    alike = draw(st.integers(0, 200))
    lengths = draw(st.one_of(LENGTHS, st.just([alike] * alike)))
    stream = sum(lengths) + 16 * len(lengths)
    raw, stored, size = [], [], stream
    if kind is Kind.SEEKABLE:
        cuts = sorted(draw(st.lists(st.integers(0, len(lengths)), max_size=4)))
        edges = [0, *(16 * cut + sum(lengths[:cut]) for cut in cuts), stream]
        raw = [b - a for a, b in pairwise(edges) if b > a]
        stored = [one // draw(st.integers(1, 500)) + 5 for one in raw]
        size = sum(stored) + 20
    return kind, [size, *draw(st.lists(NUMBER, min_size=4, max_size=4))], lengths, raw, stored


NAME = st.binary(min_size=1, max_size=8).filter(
    lambda name: not {0, 47} & set(name) and name not in (b".", b"..")
)


@st.composite
def some_files(draw, most=12):
    names = sorted(draw(st.lists(NAME, max_size=most, unique=True)))
    return [(name.decode("utf-8", "surrogateescape"), *draw(a_file())) for name in names]


def table_of(files):
    columns = [u64([file[2][i] for file in files]) for i in range(5)]
    flat = [pack(u64([number for file in files for number in file[part]])) for part in (3, 4, 5)]
    counts = (u64([len(file[part]) for file in files]) for part in (3, 4))
    names, kind = [file[0] for file in files], u64([file[1] for file in files])
    return Table(names, kind, Identity(*columns), *counts, *flat)


def files_of(table):
    flat = [iter(numbers_of(one)) for one in (table.lengths, table.raw, table.stored)]
    files = []
    for row, name in enumerate(table.names):
        counts = [int(column[row]) for column in (table.records, table.fragments, table.fragments)]
        lists = [[next(part) for _ in range(count)] for part, count in zip(flat, counts, strict=True)]
        files.append((name, Kind(table.kind[row]), [int(column[row]) for column in table.identity], *lists))
    assert [next(part, None) for part in flat] == [None] * 3
    return files


@settings(max_examples=60)
@given(some_files(), NUMBER)
def test_what_is_written_is_read_back(files, made):
    content = dump(table_of(files), made)
    assert len(content) % 8 == 0
    table, when = load(words(content), "t")
    assert when == made
    assert files_of(table) == files
    assert dump(table, made) == content
    check_sums(table, files)


def check_sums(table, files):
    streams = [sum(file[3]) + 16 * len(file[3]) for file in files]
    assert table.firsts.tolist() == list(accumulate((len(file[3]) for file in files), initial=0))
    assert table.stream_bytes.tolist() == streams
    assert table.payload_bytes.tolist() == [sum(file[3]) for file in files]
    assert table.lengths.total == sum(sum(file[3]) for file in files)
    places = []
    for row, file in enumerate(files):
        begins = accumulate((length + 16 for length in file[3]), initial=0)
        places += [(row, begin, length) for begin, length in zip(begins, file[3], strict=False)]
    order = random.Random(len(places)).sample(range(len(places)), len(places))
    for threads in (1, 3):
        found = table.locate(u64(order), threads)
        assert list(zip(*(column.tolist() for column in found), strict=True)) == [places[k] for k in order]
    for wrong in (len(places), len(places) + 64, U64 - 1):
        with pytest.raises(ValueError, match="record"):
            table.locate(u64([wrong]))


@settings(max_examples=40)
@given(st.lists(some_files(most=6), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_take_and_join_are_those_of_lists(parts, rng):
    tables = [table_of(part) for part in parts]
    whole, files = join(tables), [file for part in parts for file in part]
    assert files_of(whole) == files
    check_sums(whole, files)
    rows = rng.sample(range(len(files)), rng.randint(0, len(files)))
    for chosen in (rows, sorted(rows), list(range(len(files)))):
        renamed = [(f"{number} {files[row][0]}", *files[row][1:]) for number, row in enumerate(chosen)]
        taken = whole.take(u64(chosen), [file[0] for file in renamed])
        assert files_of(taken) == renamed
        taken.check()
        check_sums(taken, renamed)


def test_many_files_read_back():
    rng = random.Random(5)
    files = []
    for number in range(3_000):
        lengths = [
            rng.choice([0, 7, 200, rng.randrange(1 << 33)]) for _ in range(rng.choice([0, 1, 1, 5, 70]))
        ]
        identity = [sum(lengths) + 16 * len(lengths), *(rng.getrandbits(64) for _ in range(4))]
        files.append((f"{number:05d}", Kind.PLAIN, identity, lengths, [], []))
    table, _ = load(words(dump(table_of(files), 1)), "t")
    assert files_of(table) == files
    rows = rng.sample(range(3_000), 1_500)
    assert files_of(table.take(u64(rows), [files[row][0] for row in rows])) == [files[row] for row in rows]


# Size, memory and time


def shards(lengths, count):
    """A table of `count` plain files of equal numbers of records, written within minutes."""
    rng = np.random.default_rng(1)
    parts = np.array_split(lengths, count)
    sizes = u64([int(part.sum()) + 16 * len(part) for part in parts])
    times = u64(1_700_000_000 * 10**9 + np.cumsum(rng.integers(1, 2_000_000, count)))
    inodes, digests = u64(10**7 + np.arange(count)), rng.integers(0, 1 << 32, count, np.uint64)
    kind, records = u64([Kind.PLAIN] * count), u64([len(part) for part in parts])
    names = [f"train-{number:05d}-of-{count:05d}" for number in range(count)]
    identity = Identity(sizes, times, times, inodes, digests)
    return Table(
        names, kind, identity, records, u64([0] * count), pack(lengths), pack(u64([])), pack(u64([]))
    )


def lognormal(typical, sigma, count):
    return np.random.default_rng(typical).lognormal(np.log(typical), sigma, count).astype(np.uint64)


REALISTIC = {
    "200 B": (lambda: lognormal(200, 0.3, 1_000_000), 1, 1.5),
    "1 KB": (lambda: lognormal(1_000, 0.5, 1_000_000), 64, 2.0),
    "35 KB": (lambda: lognormal(35_000, 0.7, 1_000_000), 100, 3.0),
    "60 B to 10 MB": (lambda: u64(np.exp(np.random.default_rng(3).uniform(4.1, 16.1, 1_000_000))), 10, 3.2),
    "all alike": (lambda: u64([224 * 224 * 3] * 1_000_000), 10, 0.2),
    "1,000 shards of 10,000": (lambda: lognormal(1_000, 0.5, 10_000_000), 1_000, 2.0),
}


@pytest.mark.unsanitized
@pytest.mark.parametrize("name", REALISTIC)
def test_tables_are_small_and_load_at_once(name):
    lengths, count, bound = REALISTIC[name]
    lengths = lengths()
    content = dump(shards(lengths, count), 1)
    assert len(content) / len(lengths) <= min(bound, 3.2)
    kept = words(content)
    began = time.perf_counter()
    table, _ = load(kept, "t")
    seconds = time.perf_counter() - began  # 3 to 6 ms a million where this was written
    assert seconds < 0.5 * max(1, len(lengths) / 10**6)
    arrays = [table.kind, *table.identity, table.records, table.fragments, table.firsts, table.bases]
    for packed in (table.lengths, table.raw, table.stored):
        arrays += [packed.least, packed.bits, packed.words, packed.sums, packed.at]
    assert sum(array.nbytes for array in arrays) <= len(content) + 0.3 * len(lengths) + 100 * count + 1_000
    some = np.random.default_rng(2).integers(0, len(lengths), 1_000, np.uint64)
    assert (table.locate(some)[2] == lengths[some]).all()


@pytest.mark.unsanitized
def test_a_record_a_file_costs_its_name_and_what_tells_that_it_is_the_same():
    lengths = lognormal(35_000, 0.7, 100_000)
    table = shards(lengths, 100_000)
    names = sum(len(name) + 1 for name in table.names)
    assert (len(dump(table, 1)) - names) / 100_000 <= 25


# Building: equal to a plain scan, however small the parts are

ENDS_AS_A_FLUSH = b";u\xf7\xc9"
"""Its frame ends in 00 00 ff ff: where deflate stores it, it may cost a file its fragments, and no more."""


def leading_on(rng, size):
    """A payload with a header in it whose frame would end where its own does, at the next real header."""
    data, at = bytearray(rng.randbytes(size)), rng.randrange(size - 12)
    data[at : at + 12] = oracle.header(max(size + 4 - at - 16, 0))
    return bytes(data)


def misleading(rng):
    """A payload that looks like something else."""
    inner = framed([rng.randbytes(rng.choice([0, 5, 300])) for _ in range(rng.randrange(1, 40))])
    return rng.choice(
        [
            lambda: inner,
            lambda: rng.randbytes(rng.randrange(20)) + inner,
            lambda: inner[: -rng.randrange(1, 12)],
            lambda: leading_on(rng, rng.choice([100, 3_000, 30_000])),
            lambda: oracle.header(rng.choice([0, 1 << 20, 1 << 40, U64 - 17])) * 9,
            lambda: rng.randbytes(50) + b"\0\0\xff\xff" * rng.randrange(1, 5) + b"\3\0",
            lambda: flushed([inner[:50]])[10:],
            lambda: flushed([inner]),
            lambda: gzip.compress(inner, 1),
            lambda: ENDS_AS_A_FLUSH,
        ]
    )()


def nasty(rng, total):
    payloads, size = [], 0
    while size < total:
        kind = rng.random()
        if kind < 0.4:
            payloads.append(misleading(rng))
        elif kind < 0.5:
            payloads.append(rng.randbytes(rng.choice([33_000, 40_000])))
        else:
            payloads.append(
                rng.choice([b"", b"text " * rng.randrange(200), rng.randbytes(rng.randrange(900))])
            )
        size += len(payloads[-1]) + 16
    return payloads


def flushed(parts, flush=zlib.Z_FULL_FLUSH, level=6):
    """A gzip file with a flush after each part: one of ours if the parts are whole frames."""
    stream, data = zlib.compressobj(level, zlib.DEFLATED, -15), b"".join(parts)
    deflated = b"".join(stream.compress(part) + stream.flush(flush) for part in parts)
    tail = struct.pack("<II", zlib.crc32(data), len(data))
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + deflated + b"\3\0" + tail


def cut_anywhere(rng, data, pieces):
    edges = [0, *sorted(rng.randrange(len(data) + 1) for _ in range(pieces)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def groups(payloads):
    """Of whole frames; large ones alone, as the writer has them."""
    parts = [[]]
    for payload in payloads:
        if len(parts[-1]) == 3 or len(b"".join([payload, *parts[-1]])) > 100_000:
            parts.append([])
        parts[-1].append(payload)
    return [framed(part) for part in parts if part]


CONTENT = {
    "plain": lambda rng, payloads: framed(payloads),
    "whole frames, flushed": lambda rng, payloads: flushed(groups(payloads)),
    "whole frames, stored": lambda rng, payloads: flushed(groups(payloads), level=0),
    "flushed anywhere": lambda rng, payloads: flushed(cut_anywhere(rng, framed(payloads), 30)),
    "flushed, not anew": lambda rng, payloads: flushed(groups(payloads), zlib.Z_SYNC_FLUSH),
    "one member": lambda rng, payloads: gzip.compress(framed(payloads), 1),
    "bgzip": lambda rng, payloads: bgzip(framed(payloads)),
    "zlib": lambda rng, payloads: zlib.compress(framed(payloads)),
}
FORMS = (*CONTENT, "seekable 1", "seekable 5")
KIND = {"plain": Kind.PLAIN, "one member": Kind.GZIP, "bgzip": Kind.GZIP, "zlib": Kind.ZLIB}
KIND |= dict.fromkeys(("whole frames, flushed", "seekable 1", "seekable 5"), Kind.SEEKABLE)


def put(path, rng, payloads, form):
    if form.startswith("seekable"):
        make(path, payloads, form)
    else:
        path.write_bytes(CONTENT[form](rng, payloads))
    return path


def built(paths, workers=2):
    with Runtime(workers=workers) as runtime:
        return build([str(path) for path in paths], runtime)[0]


def check_fragments(path, sizes, raw, stored, payloads):
    """Each inflates alone, by zlib, to whole frames; all of them are the file."""
    content, whole, at, begin = path.read_bytes(), framed(payloads), 10, 0
    edges = set(accumulate((size + 16 for size in sizes), initial=0))
    for packed, size in zip(stored, raw, strict=True):
        data = zlib.decompressobj(-15).decompress(content[at : at + packed] + b"\3\0")
        assert data == whole[begin : begin + size]
        at, begin = at + packed, begin + size
        assert begin in edges
    assert (at + 10, begin) == (len(content), len(whole))


def check_built(table, states):
    table.check()
    assert list(table.names) == [path.name for path, _, _ in states]
    assert table.identity.size.tolist() == [path.stat().st_size for path, _, _ in states]
    assert table.identity.inode.tolist() == [path.stat().st_ino for path, _, _ in states]
    for (path, payloads, form), (_, kind, identity, lengths, raw, stored) in zip(
        states, files_of(table), strict=True
    ):
        assert lengths == list(map(len, payloads)), form
        either = form not in KIND or (KIND[form] is Kind.SEEKABLE and ENDS_AS_A_FLUSH in payloads)
        allowed = {Kind.SEEKABLE, Kind.GZIP} if either else {KIND[form]}
        assert not payloads or kind in allowed, form
        if path.stat().st_size < 1 << 15:
            assert identity[4] == oracle.digest(path.read_bytes())
        if kind is Kind.SEEKABLE:
            check_fragments(path, lengths, raw, stored, payloads)


@SLOW_IS_FINE
@pytest.mark.parametrize("part", [64, 1_000, 5_000, 40_000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_tiny_parts_make_the_table_of_a_plain_scan(tmp_path, monkeypatch, part, workers):
    rng = random.Random(part * workers)
    monkeypatch.setattr(building, "PART", part)
    monkeypatch.setattr(seekable, "PART", part)
    monkeypatch.setattr(building, "TOGETHER", 3)
    states = []
    for number in range(22):  # small plain files are not cut in parts, large ones are
        form = "plain" if number % 3 == 0 else rng.choice(FORMS)
        payloads = nasty(rng, rng.choice([0, 500, 20_000, 90_000, 150_000 if part > 64 else 90_000]))
        states.append((put(tmp_path / f"{number:02d}.tfrecord.gz", rng, payloads, form), payloads, form))
    check_built(built([path for path, _, _ in states], workers), states)
    data = croupier.open([path for path, _, _ in states], index="memory")
    assert data[:].tolist() == [payload for _, payloads, _ in states for payload in payloads]


@pytest.mark.parametrize("form", ["plain", "whole frames, flushed", "seekable 1", "seekable 5"])
def test_records_that_span_parts(tmp_path, monkeypatch, form):
    rng = random.Random(form)
    monkeypatch.setattr(building, "PART", 50_000)
    monkeypatch.setattr(seekable, "PART", 50_000)
    payloads = [rng.randbytes(size) for size in (10, 1 << 20, 0, 199_984, 49_984, 2_500_000, 7, 100_000)]
    payloads[5] = framed([rng.randbytes(1_000)] * 2_400)  # each part within it begins a walk that leads on
    path = put(tmp_path / "x.tfrecord.gz", rng, payloads, form)
    check_built(built([path], 3), [(path, payloads, form)])


def outcome(lengths):
    """The lengths, or what is wrong and where."""
    try:
        return lengths()
    except croupier.DataError as error:
        return type(error), error.path, error.record, error.offset, error.inflated


def check_same_error(path):
    scanned = outcome(lambda: [len(payload) for payload in croupier.read(path)])
    assert outcome(lambda: numbers_of(built([path]).lengths)) == scanned
    return scanned


@pytest.mark.parametrize("form", ["plain", "whole frames, flushed", "seekable 5", "one member", "zlib"])
def test_every_cut_is_told_as_by_a_plain_scan(tmp_path, monkeypatch, form):
    monkeypatch.setattr(seekable, "PART", 100)
    rng = random.Random(form)
    payloads = [b"", rng.randbytes(90), b"text" * 30, framed([b"x", b"yy"]), b"\0\0\xff\xff" * 9, b"end"]
    path = put(tmp_path / "x.tfrecord.gz", rng, payloads, form)
    content = path.read_bytes()
    told = set()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        told.add(str(check_same_error(path)))
    assert len(told) > 5


@pytest.mark.parametrize("part", [64, 5_000])
def test_damage_in_large_files_is_told_as_by_a_plain_scan(tmp_path, monkeypatch, part):
    rng = random.Random(part)
    monkeypatch.setattr(building, "PART", part)
    payloads = nasty(rng, 90_000)
    path = put(tmp_path / "x.tfrecord", rng, payloads, "plain")
    content = path.read_bytes()
    begins = list(accumulate((len(payload) + 16 for payload in payloads), initial=0))[:-1]
    for _ in range(20):
        begin = rng.choice(begins)
        wrong = bytearray(content)
        wrong[begin + rng.randrange(12)] ^= 1 << rng.randrange(8)
        path.write_bytes(wrong)
        assert check_same_error(path)[0] is croupier.HeaderError
        path.write_bytes(content[: max(begin + rng.randrange(-3, 15), 66_000)])
        check_same_error(path)


@SLOW_IS_FINE
@pytest.mark.parametrize("form", ["whole frames, stored", "flushed anywhere", "flushed, not anew"])
def test_what_somebody_else_flushed_is_read_rightly_or_streamed(tmp_path, monkeypatch, form):
    seen = set()
    for seed in range(25):
        rng = random.Random(seed)
        monkeypatch.setattr(seekable, "PART", rng.choice([64, 700, 5_000, 1 << 20]))
        payloads = nasty(rng, rng.choice([300, 3_000, 60_000]))
        path = put(tmp_path / f"{seed}.gz", rng, payloads, form)
        with open(path, "rb") as file:
            assert seekable.is_candidate(file.fileno(), path.stat().st_size)
        table = built([path])
        check_built(table, [(path, payloads, form)])
        seen.add(int(table.kind[0]))
        assert croupier.open(path, index="memory")[:].tolist() == payloads
    assert Kind.GZIP in seen or form == "whole frames, stored"


# Kept as long as it is right


def folder_of(path, count, start=0):
    """Files of three records each, whose table stands in .croupier/."""
    path.mkdir(exist_ok=True)
    for number in range(start, start + count):
        (path / f"{number:03d}.tfrecord").write_bytes(framed(three(number)))
    return sorted(path.glob("*.tfrecord"))


def three(number):
    return [b"%d.%d" % (number, k) * (number + k) for k in range(3)]


def kept_in(folder):
    return folder / ".croupier" / "records.table"


def check_kept(paths, payloads=None):
    """All of the files have a fresh table, which nobody writes again."""
    before = state_of(kept_in(paths[0].parent))
    expected = payloads or [payload for path in paths for payload in three(int(path.stem))]
    for index in ("require", "auto", "memory"):
        assert croupier.open(paths, index=index)[:].tolist() == expected
    assert croupier.index(paths) == ([], [])
    assert state_of(kept_in(paths[0].parent)) == before


def check_not_kept(paths):
    with pytest.raises(croupier.TableError):
        len(croupier.open(paths, index="require"))


def test_halves_of_a_folder_are_merged(tmp_path):
    paths = folder_of(tmp_path / "data", 40)
    table = kept_in(tmp_path / "data")
    croupier.index(paths[1::2])
    check_kept(paths[1::2])
    check_not_kept(paths)
    assert croupier.index(paths) == (list(map(str, paths[::2])), [str(table)])
    check_kept(paths)
    check_kept(paths[5:9])
    assert names_in(table) == [path.name for path in paths]
    assert os.listdir(table.parent) == [table.name]


def test_folders_in_turns(tmp_path):
    """Each has its own table, whatever the order of the files."""
    first, second = folder_of(tmp_path / "one", 6), folder_of(tmp_path / "two", 6, start=50)
    paths = [path for both in zip(first, second[::-1], strict=True) for path in both]
    tables = [str(kept_in(tmp_path / name)) for name in ("one", "two")]
    assert croupier.index(paths) == (list(map(str, paths)), tables)
    check_kept(paths)
    for folder, own in zip(("one", "two"), (first, second), strict=True):
        assert names_in(kept_in(tmp_path / folder)) == [path.name for path in own]
        check_kept(own[::-1])


def test_rows_of_deleted_files_are_dropped(tmp_path):
    paths = folder_of(tmp_path / "data", 10)
    croupier.index(paths)
    paths[3].unlink()
    rest = paths[:3] + paths[4:]
    check_kept(rest)
    rest += folder_of(tmp_path / "data", 2, start=10)[-2:]
    croupier.index(rest)
    check_kept(rest)
    assert names_in(kept_in(tmp_path / "data")) == [path.name for path in rest]


def test_a_copied_data_set_keeps_its_table(tmp_path):
    paths = folder_of(tmp_path / "data", 10)
    large = tmp_path / "data" / "large.tfrecord"
    large.write_bytes(framed([random.Random(1).randbytes(9_000)] * 20))
    croupier.index([*paths, large])
    shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=shutil.copy2)
    shutil.rmtree(tmp_path / "data")
    check_kept(sorted((tmp_path / "copy").glob("0*")))
    assert len(croupier.open(tmp_path / "copy", index="require")) == 50
    (tmp_path / "copy").rename(tmp_path / "moved")
    check_kept(sorted((tmp_path / "moved").glob("0*")))


def test_renamed_and_swapped_files_are_indexed_again(tmp_path):
    paths = folder_of(tmp_path / "data", 10)
    stamp = (10**18, 10**18)
    for path in paths[:2]:  # of equal size and time: nothing but the inode and the content tells
        path.write_bytes(framed([path.name.encode()]))
        os.utime(path, ns=stamp)
    croupier.index(paths)
    paths[0].rename(tmp_path / "swap")
    paths[1].rename(paths[0])
    (tmp_path / "swap").rename(paths[1])
    check_not_kept(paths[:2])
    assert croupier.open(paths[:2])[:].tolist() == [b"001.tfrecord", b"000.tfrecord"]
    croupier.open(paths[:2], index="require")[:]
    paths[4].rename(paths[4].with_name("999.tfrecord"))
    check_not_kept([paths[4].with_name("999.tfrecord")])
    croupier.index(paths[:4] + paths[5:])
    check_kept(paths[2:4] + paths[5:])
    (tmp_path / "data" / "999.tfrecord").rename(paths[4])
    assert croupier.open(paths[4])[:].tolist() == three(4)


def test_a_file_that_keeps_its_size_and_time_is_known_by_its_content(tmp_path):
    (path,) = folder_of(tmp_path / "data", 1, start=7)
    croupier.index(path)
    stamp = path.stat()
    path.write_bytes(framed([payload[::-1] for payload in three(7)]))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    check_not_kept([path])
    assert croupier.open(path)[2] == three(7)[2][::-1]
    path.chmod(0o600)  # which moves the time of change, and is no change
    check_kept([path], [payload[::-1] for payload in three(7)])


def test_a_folder_that_is_read_only(tmp_path):
    """Its table goes to the cache folder, and is merged there."""
    paths = folder_of(tmp_path / "data", 6)
    blocked = tmp_path / "data" / ".croupier"
    blocked.write_bytes(b"a file, where a folder should be: root may write anywhere")
    _, (kept,) = croupier.index(paths[:3])
    assert kept.startswith(os.environ["XDG_CACHE_HOME"])
    assert croupier.index(paths) == (list(map(str, paths[3:])), [kept])
    assert names_in(Path(kept)) == [path.name for path in paths]
    assert len(croupier.open(paths, index="require")) == 18
    before = state_of(Path(kept))
    assert len(croupier.open(paths)) == 18
    assert state_of(Path(kept)) == before
    shutil.copytree(tmp_path / "data", tmp_path / "other", copy_function=shutil.copy2)
    check_not_kept(sorted((tmp_path / "other").glob("*.tfrecord")))  # the cache knows folders by their paths
    blocked.unlink()
    folder_of(tmp_path / "data", 1)  # written again: one is stale
    assert croupier.index(paths) == ([str(paths[0])], [str(kept_in(tmp_path / "data"))])
    assert len(croupier.open(paths, index="require")) == 18


def in_processes(code, arguments):
    """Run the code in a process for each of the arguments, at once; gives how they ended."""
    began = [
        subprocess.Popen([sys.executable, "-c", f"import sys, os, croupier\n{code}", *map(str, one)])
        for one in arguments
    ]
    return [process.wait(timeout=60) for process in began]


def test_eight_processes_that_index_one_folder(tmp_path):
    paths = folder_of(tmp_path / "data", 48)
    code = "for path in sys.argv[1:]: croupier.index(path)"
    assert in_processes(code, [paths[number::8] for number in range(8)]) == [0] * 8
    check_kept(paths)
    assert os.listdir(tmp_path / "data" / ".croupier") == ["records.table"]


KILLERS = ("write", "fsync", "rename")


@pytest.mark.parametrize("call", KILLERS)
def test_killed_while_saving(tmp_path, call):
    """The old table stays, and the next one who saves leaves nothing lying about."""
    paths = folder_of(tmp_path / "data", 5)
    croupier.index(paths[:3])
    code = f"os.{call} = lambda *one, **more: os.kill(os.getpid(), 9)\ncroupier.index(sys.argv[1:])"
    assert in_processes(code, [paths]) == [-signal.SIGKILL]
    check_kept(paths[:3])
    check_not_kept(paths)
    croupier.index(paths)
    check_kept(paths)
    assert os.listdir(tmp_path / "data" / ".croupier") == ["records.table"]


def test_what_cannot_be_saved_is_used_all_the_same(tmp_path, monkeypatch):
    paths = folder_of(tmp_path / "data", 3)
    (tmp_path / "data" / ".croupier").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(paths[0]))
    assert croupier.index(paths) == (list(map(str, paths)), [])
    assert croupier.open(paths)[:].tolist() == [payload for number in range(3) for payload in three(number)]
    assert sorted(os.listdir(tmp_path)) == ["data"]


# What is looked up


@pytest.mark.parametrize("count", [0, 1, 2, 5, 100, 5_000])
@pytest.mark.parametrize("below", [1, 3, 100, 10**6])
def test_distinct(count, below):
    values = np.random.default_rng(count).integers(0, below, count).astype(np.uint64)
    used, which = distinct(values, below)
    assert used.dtype == np.uint64
    assert used.tolist() == sorted(set(values.tolist()))
    assert used[which].tolist() == values.tolist()
