"""Records by number: always the record that a plain scan has there, or an error.

What is expected is known by construction, or found by tests/oracle.py, or by `croupier.read` (which
test_codec.py proves).
"""

import gzip
import os
import random
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import croupier
import oracle
from croupier.dataset import files
from dataset_help import (
    FOREIGN,
    FORMS,
    SEEKABLE,
    SLOW_IS_FINE,
    bgzip,
    check_batch,
    check_places,
    check_reads,
    check_shards,
    flip,
    frame,
    framed,
    make,
    many_members,
    noise,
    offsets_of,
    payloads_of,
    random_payloads,
    tables,
    tree,
)
from kernel_help import cached, chill

# Equal to a plain scan

REAL = (
    "bridge-train.tfrecord-00000-of-00001",
    "dmlab-test.tfrecord-00000-of-00001",
    "golden.training_examples.tfrecord.gz-00000-of-00003",
    "golden.training_examples.tfrecord.gz-00001-of-00003",
    "golden.training_examples.tfrecord.gz-00002-of-00003",
    "iris.tfrecords",
    "iris.tfrecords.gz",
    "sequence_example.tfrecord",
)


def scanned(path):
    """Payloads by the plain oracle, which checks every checksum."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    bounds, why = oracle.scan(content, 0, 1 << 20, len(content) < 200_000, 1 << 30)
    assert (why, bounds[-1]) == (oracle.PARTIAL, len(content))
    return [content[a + 12 : b - 4] for a, b in pairwise(bounds)]


@SLOW_IS_FINE
@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_files(tmp_path, shared_data, name):
    assert set(REAL) == {one.name for one in shared_data.iterdir() if "tfrecord" in one.name}
    path = tmp_path / name
    path.write_bytes((shared_data / name).read_bytes())
    expected = scanned(path)
    data = croupier.open(path)
    assert list(iter(data)) == expected == list(croupier.read(path))  # list(data) asks for its length
    assert not (tmp_path / ".croupier").exists()  # to iterate needs no table
    check_reads(data, expected, random.Random(name))
    assert list(data) == expected
    check_shards(data, [(path, expected)])
    check_places(data, [(path, expected)], range(0, len(expected), 7))
    assert tables(tmp_path) == ["records.table"]


@SLOW_IS_FINE
@pytest.mark.real
def test_all_real_files_as_one(tmp_path, shared_data):
    for name in REAL:
        (tmp_path / name).write_bytes((shared_data / name).read_bytes())
    data = croupier.open(tmp_path)
    expected = list(croupier.read(tmp_path))
    assert list(data) == expected
    check_reads(data, expected, random.Random(0))
    check_shards(data, [(path, list(croupier.read(path))) for path in data.paths])


@SLOW_IS_FINE
@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 120))]
)
def test_random_files(tmp_path, seed):
    """A hundred files each time: all compressions, empty ones in between."""
    rng = random.Random(seed)
    states, forms = [], []
    for number in range(100):
        form = rng.choice(FORMS)
        payloads = [] if rng.random() < 0.1 else random_payloads(rng, rng.choice([3_000, 30_000, 400_000]))
        states.append((make(tmp_path / f"x{number:03d}.tfrec.gz", payloads, form), payloads))
        forms.append(form)
    if rng.random() < 0.5:  # else the order in which they are given is that of their names
        order = rng.sample(range(100), 100)
        states, forms = [states[i] for i in order], [forms[i] for i in order]
    paths = [path for path, _ in states]
    expected = [payload for _, payloads in states for payload in payloads]
    index = rng.choice(["auto", "memory"])
    data = croupier.open(paths, verify=rng.random() < 0.8, index=index, max_record_bytes=400_000)
    if rng.random() < 0.5:
        assert list(iter(data)) == expected
    check_reads(data, expected, rng)
    assert list(data) == expected
    assert list(data) == list(croupier.read(paths))
    check_shards(data, states, forms)
    check_places(data, states, [rng.randrange(len(expected)) for _ in range(50)])
    again = croupier.open(paths)  # by the table that is kept
    check_reads(again, expected, rng, rounds=1)
    assert tables(tmp_path) == ["records.table"]


@SLOW_IS_FINE
@pytest.mark.parametrize("form", FORMS)
def test_each_form_alone(tmp_path, form):
    rng = random.Random(form)
    payloads = noise(rng, *(rng.choice([0, 1, 100, 3_000, 70_000]) for _ in range(60)))
    payloads += [b"text %06d " % number * 30 for number in range(3_000)]
    path = make(tmp_path / "x.tfrecord.gz", payloads, form)
    data = croupier.open(path)
    check_reads(data, payloads, rng)
    check_shards(data, [(path, payloads)], [form])
    check_places(data, [(path, payloads)], range(0, len(payloads), 101))


def test_nothing_but_empty_files(tmp_path):
    forms = {"a": b"", "b": gzip.compress(b""), "c": zlib.compress(b""), "d": b"", "e": bgzip(b"")}
    for name, content in forms.items():
        (tmp_path / f"{name}.tfrecord").write_bytes(content)
    make(tmp_path / "f.tfrecord", [], "seekable 5")
    data = croupier.open(tmp_path)
    assert list(data) == []
    check_reads(data, [], random.Random(0))
    assert list(data) == []
    assert len(data.shards) == 6
    assert [shard.records for shard in data.shards] == [0] * 6
    assert list(data.take(5)) == list(data.skip(5)) == list(data.subset([])) == []
    assert [len(part) for part in data.split([0.5, 0.5])] == [0, 0]
    assert data.split(key=len) == {}
    assert len(data.concat(data)) == 0
    with pytest.raises(IndexError):
        data.where(0)
    assert croupier.info(data).records == 0


@SLOW_IS_FINE
def test_batches_outlive_their_dataset(tmp_path):
    payloads = [b"record %d" % number * number for number in range(200)]
    for form in FORMS:
        data = croupier.open(make(tmp_path / "x.tfrecord.gz", payloads, form), index="memory")
        batch, views = data[50:150], list(data[::3])
        del data
        (tmp_path / "x.tfrecord.gz").unlink()
        check_batch(batch, payloads[50:150])
        one = batch[20]
        del batch
        assert one == payloads[70]
        assert views == payloads[::3]


def test_memory_is_used_again_and_never_while_somebody_holds_it(tmp_path):
    """Rooms of large batches: views, records and arrays made from a batch keep it; then it comes back."""
    rng = random.Random(11)
    payloads = noise(rng, *[rng.randrange(100_000, 400_000) for _ in range(60)])
    path = tmp_path / "x.tfrecord"
    path.write_bytes(framed(payloads))
    data = croupier.open(path)
    held, addresses = [], []
    for _ in range(300):
        numbers = [rng.randrange(60) for _ in range(rng.randrange(1, 30))]
        batch = data.read_many(numbers)
        addresses.append(batch.buffer.ctypes.data)
        place = rng.randrange(len(numbers))
        first, last = batch.offsets[place : place + 2].tolist()
        views = batch, batch[place], batch.buffer[first:last], memoryview(batch.buffer)[first:last]
        held.append((rng.choice(views), numbers, place))
        del batch, views
        if len(held) > 4:
            view, numbers, place = held.pop(rng.randrange(5))
            if isinstance(view, croupier.Batch):
                assert view.tolist() == [payloads[number] for number in numbers]
            else:
                assert bytes(view) == payloads[numbers[place]]
            del view
    assert len(set(addresses)) < 150


def test_batches_are_sequences(tmp_path):
    data = croupier.open(make(tmp_path / "x", [b"a", b"", b"ccc", b""]))
    batch = data[:]
    assert b"ccc" in batch
    assert batch.index(b"") == 1
    assert batch.count(b"") == 2
    assert list(reversed(batch)) == [b"", b"ccc", b"", b"a"]
    assert "4" in repr(batch)
    assert "4 bytes" in repr(batch)


def test_repr_reads_nothing(tmp_path):
    path = make(tmp_path / "x.tfrecord", [b"a", b"b"])
    make(tmp_path / "y.tfrecord", [b"c"])
    data = croupier.open(tmp_path)
    assert repr(data) == f"<croupier.Dataset of {path} and 1 more>"
    assert not (tmp_path / ".croupier").exists()
    assert repr(data.take(2)) == f"<croupier.Dataset of {path} and 1 more, 2 records>"


# Options


@pytest.mark.parametrize("form", ["plain", "seekable 5", "one member"])
def test_index_word(tmp_path, form):
    payloads = [b"record %d" % number for number in range(500)]
    path = tmp_path / "data" / "x.tfrecord.gz"
    path.parent.mkdir()
    make(path, payloads, form)
    before = tree(tmp_path)
    assert payloads_of(croupier.open(path, index="memory")) == payloads
    assert list(iter(croupier.open(path))) == payloads
    strict = croupier.open(path, index="require")
    with pytest.raises(croupier.TableError, match="croupier index"):
        strict[3]
    assert tree(tmp_path) == before
    assert croupier.open(path)[3] == payloads[3]
    assert set(tree(tmp_path)) - set(before) == {path.parent / ".croupier" / "records.table"}
    for index in ("require", "memory", "auto"):
        kept = tree(tmp_path)
        data = croupier.open(path, index=index)
        assert data[3] == strict[3] == payloads[3]  # `strict` looks again, as it had found none
        assert tree(tmp_path) == kept
    with pytest.raises(croupier.UsageError, match="index"):
        croupier.open(path, index="never")


def test_memory_takes_a_kept_table_and_leaves_a_damaged_one(tmp_path):
    path = make(tmp_path / "x", [b"a", b"b"])
    written, kept = croupier.index(path)
    assert written == [str(path)]
    assert kept == [str(tmp_path / ".croupier" / "records.table")]
    assert croupier.index(path) == ([], [])
    assert croupier.index(path, force=True) == ([str(path)], kept)
    Path(kept[0]).write_bytes(b"damaged!")
    before = tree(tmp_path)
    assert croupier.open(path, index="memory")[1] == b"b"
    with pytest.raises(croupier.TableError):
        croupier.open(path, index="require")[1]
    assert tree(tmp_path) == before
    assert croupier.open(path)[1] == b"b"
    assert croupier.open(path, index="require")[1] == b"b"


def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    """Its table goes to the cache; where that cannot be written either, it is made each time."""
    folder = tmp_path / "data"
    folder.mkdir()
    path = make(folder / "x", [b"a", b"b"])
    (folder / ".croupier").write_bytes(b"a file, where a folder should be: root may write anywhere")
    before = tree(folder)
    assert croupier.open(path)[1] == b"b"
    assert len(list(Path(os.environ["XDG_CACHE_HOME"]).rglob("records.table"))) == 1
    assert croupier.open(path, index="require")[1] == b"b"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    assert croupier.open(path)[1] == b"b"
    assert tree(folder) == before


def test_without_verify_headers_are_still_checked(tmp_path):
    payloads = noise(random.Random(4), *[200] * 20)
    content = bytearray(framed(payloads))
    content[216 * 5 + 50] ^= 1  # the payload of record 5
    wrong = bytes(content[216 * 5 + 12 : 216 * 6 - 4])
    path = tmp_path / "x"
    path.write_bytes(content)
    data, strict = (croupier.open(path, verify=verify) for verify in (False, True))
    expected = [*payloads[:5], wrong, *payloads[6:]]
    assert list(iter(data)) == list(data) == payloads_of(data) == expected
    for read in (
        lambda: strict[5],
        lambda: strict[:],
        lambda: list(strict),
        lambda: list(iter(croupier.open(path))),
    ):
        with pytest.raises(croupier.PayloadError):
            read()
    flip(path, 216 * 9)  # the header of record 9
    for one in (data, strict, croupier.open(path, verify=False)):
        with pytest.raises((croupier.HeaderError, croupier.StaleError)):
            one[9]


@pytest.mark.parametrize("form", ["one member", "many members", "bgzip", "zlib"])
def test_streams_are_always_verified(tmp_path, form):
    content = bytearray(framed(noise(random.Random(4), *[200] * 20)))
    content[216 * 5 + 50] ^= 1
    path = tmp_path / "x"
    path.write_bytes(FOREIGN[form](bytes(content)))
    with pytest.raises(croupier.PayloadError):
        croupier.open(path, verify=False)[5]


def damaged_plain(rng, payloads):
    content = bytearray(framed(payloads))
    edges = [*offsets_of(payloads), len(content)]
    for _ in range(rng.randrange(1, 4)):
        row = rng.randrange(len(payloads))
        begin, end = edges[row], edges[row + 1]
        match rng.choice(["payload", "payload", "header", "checksum", "zeros"]):
            case "payload":
                content[rng.randrange(begin + 12, end)] ^= 1 << rng.randrange(8)
            case "header":
                content[rng.randrange(begin, begin + 8)] ^= 1 << rng.randrange(8)
            case "checksum":
                content[rng.randrange(begin + 8, begin + 12)] ^= 1
            case "zeros":
                content[begin : begin + 40] = bytes(len(content[begin : begin + 40]))
    match rng.choice(["whole", "whole", "cut", "garbage"]):
        case "cut":
            del content[rng.randrange(len(content)) :]
        case "garbage":
            content += rng.randbytes(rng.randrange(1, 50))
    return bytes(content)


def damaged_file(rng, payloads):
    """(content, whether it is plain): damaged records in good streams, streams that end early or go wrong."""
    content = damaged_plain(rng, payloads) if rng.random() < 0.7 else framed(payloads)
    compress = rng.choice([bytes, bytes, gzip.compress, many_members, zlib.compress])
    packed = compress(content)
    if compress is not bytes and rng.random() < 0.3:
        packed = packed[: rng.randrange(len(packed))]
    elif compress is not bytes and rng.random() < 0.2:
        packed += rng.randbytes(9)
    return packed, compress is bytes


def scan_of(paths, word):
    damage, got = [], []
    try:
        for payload in croupier.read(paths, word, on_damage=damage.append):
            got.append(payload)  # noqa: PERF402 - records before an error in the same block count
    except croupier.DataError as error:
        return got, damage, error
    return got, damage, None


@SLOW_IS_FINE
@pytest.mark.parametrize("word", ["fail", "tolerate-tail", "skip", "salvage"])
def test_damage_is_passed_over_as_in_a_plain_scan(tmp_path, word):
    """The same records get numbers, and the same damage is told, once."""
    opened = 0
    for seed in range(120):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        plain = {}
        names = "abc"[: rng.randrange(1, 4)]
        for name in names:
            payloads = noise(rng, *(rng.choice([0, 30, 500, 20_000]) for _ in range(rng.randrange(1, 30))))
            content, plain[str(folder / name)] = damaged_file(rng, payloads)
            (folder / name).write_bytes(content)
        paths = [folder / name for name in names]
        expected, damage, error = scan_of(paths, word)
        told = []
        data = croupier.open(paths, on_corrupt=word, on_damage=told.append)
        if error is not None:  # indexing looks at headers alone: of a payload, who reads it is told
            with pytest.raises(croupier.DataError):
                data[:]
            continue
        opened += 1
        check_reads(data, expected, rng, rounds=1)
        assert list(data) == list(data) == expected
        assert len(told) == len(damage)
        assert set(told) == set(damage)
        for number in range(0, len(expected), 3):
            place = data.where(number)
            if plain[place.path]:
                content = Path(place.path).read_bytes()[place.offset :]
                assert content.startswith(frame(expected[number]))
        shards = data.shards
        assert [shard.path for shard in shards] == data.paths
        assert sum(shard.records for shard in shards) == len(expected)
        assert (tables(folder) == []) == (word != "fail")  # a table that knows of damage is not kept
    assert opened > (5 if word in ("fail", "tolerate-tail") else 110)


def test_damage_becomes_warnings(tmp_path):
    content = bytearray(framed([b"a" * 50, b"b" * 50, b"c" * 50]))
    content[80] ^= 1
    (tmp_path / "x").write_bytes(content)
    data = croupier.open(tmp_path / "x", on_corrupt="skip")
    with pytest.warns(croupier.CorruptionWarning, match=r"bytes \[66, 132\) passed over") as told:
        assert len(data) == 2
    assert len(told) == 1
    assert list(data) == [b"a" * 50, b"c" * 50]
    with pytest.raises(croupier.UsageError, match="on_corrupt"):
        croupier.open(tmp_path / "x", on_corrupt="ignore")


def test_max_record_bytes(tmp_path):
    for form in FORMS:
        path = make(tmp_path / "x.tfrecord.gz", [b"a" * 10, b"b" * 1_000], form)
        assert len(croupier.open(path, max_record_bytes=1_000, index="memory")) == 2
        with pytest.raises(croupier.RecordTooLargeError):
            len(croupier.open(path, max_record_bytes=999, index="memory"))
        with pytest.raises(croupier.RecordTooLargeError):
            list(iter(croupier.open(path, max_record_bytes=999)))


@pytest.mark.parametrize("form", ["one member", "many members", "zlib"])
def test_going_back_in_a_stream_is_said_to_be_slow(tmp_path, form):
    rng = random.Random(1)
    payloads = noise(rng, *[2_000] * 3_000)
    one, two = (make(tmp_path / name, payloads, form) for name in "ab")
    data = croupier.open(one)
    assert list(data) == list(data) == payloads == payloads_of(data)  # from the beginning, twice
    for read in (lambda: data[5], lambda: data[[5, 9]], lambda: data[5:9], lambda: data.take(6)[5:]):
        assert data[2_999] == payloads[2_999]
        with pytest.warns(croupier.SlowAccessWarning, match="entry points") as told:
            read()
        assert {warning.filename for warning in told} == {__file__}
    both = croupier.open([one, two])
    assert both[10] == both[3_010] == payloads[10]
    with pytest.warns(croupier.SlowAccessWarning):  # that it was elsewhere meanwhile makes it no quicker
        assert both[20] == payloads[20]


def test_going_back_elsewhere_is_quick(tmp_path):
    payloads = noise(random.Random(1), *[2_000] * 300)
    for form in ("plain", *SEEKABLE):
        data = croupier.open(make(tmp_path / "x.tfrecord.gz", payloads, form), index="memory")
        for number in (299, 0, 150, 20):
            assert data[number] == payloads[number]


def test_what_is_no_file_is_refused(tmp_path):
    make(tmp_path / "x.tfrecord", [b"a"])
    with pytest.raises(croupier.UsageError, match="twice"):
        croupier.open([tmp_path / "x.tfrecord", tmp_path / "*.tfrecord"])
    for path in ("-", ["-"], [tmp_path / "x.tfrecord", "-"]):
        with pytest.raises(croupier.UsageError, match="standard input"):
            croupier.open(path)
    os.mkfifo(tmp_path / "pipe.tfrecord")
    for paths in (tmp_path / "pipe.tfrecord", tmp_path / "*.tfrecord"):
        for options in ({}, {"index": "memory"}, {"on_corrupt": "salvage"}):
            with pytest.raises(croupier.UsageError, match="not a regular file"):
                len(croupier.open(paths, **options))
        with pytest.raises(croupier.UsageError, match="not a regular file"):
            next(iter(croupier.open(tmp_path / "pipe.tfrecord")))
    with pytest.raises(croupier.UsageError):
        croupier.open([])
    with pytest.raises(croupier.InputNotFoundError):
        croupier.open(tmp_path / "none")
    data = croupier.open(tmp_path / "x.tfrecord")
    (tmp_path / "x.tfrecord").unlink()
    with pytest.raises(croupier.InputNotFoundError):
        len(data)


# What the table tells


def test_info(tmp_path):
    rng = random.Random(2)
    for sizes in (
        [rng.randrange(100) for _ in range(500)],
        [rng.randrange(1_000, 3_500) for _ in range(500)],
        [int(rng.lognormvariate(7, 2)) for _ in range(2_000)],
        [7] * 30,
        [0] * 5,
        [70_000],
    ):
        path = make(tmp_path / "x.tfrecord", [bytes(size) for size in sizes])
        make(tmp_path / "y.tfrecord.gz", [], "seekable 5")
        data = croupier.open([path, tmp_path / "y.tfrecord.gz"])
        found = croupier.info(data)
        assert (found.records, found.payload_bytes) == (len(sizes), sum(sizes))
        assert (found.smallest, found.largest) == (min(sizes), max(sizes))
        assert found.mean == sum(sizes) / len(sizes)
        assert found.file_bytes == sum(os.path.getsize(shard.path) for shard in found.shards)
        assert found.shards == data.shards
        for share, size in found.quantiles.items():
            right = int(np.quantile(sizes, float(share), method="inverted_cdf"))
            assert right - right // 256 <= size <= right
        assert len(found.bins) <= 16
        assert all(one.below == two.least for one, two in pairwise(found.bins))
        for one in found.bins:
            assert one.least < one.below
            assert one.records == sum(one.least <= size < one.below for size in sizes), one
        assert sum(one.records for one in found.bins) == len(sizes)
    mixed = make(tmp_path / "z.tfrecord.gz", [bytes(9_000)] * 9, "seekable 5")
    assert croupier.info(croupier.open([path, mixed])).compression == "mixed"
    alone = croupier.info(croupier.open(mixed))
    assert alone.compression == "gzip"
    assert alone.ratio == 9 * 9_016 / os.path.getsize(mixed)
    part = croupier.info(croupier.open([path, mixed]).skip(1).take(4))
    assert (part.records, part.payload_bytes, part.smallest) == (4, 36_000, 9_000)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all is read through the page cache")
def test_data_larger_than_memory_leaves_the_page_cache_alone(tmp_path, monkeypatch):
    rng = random.Random(1)
    payloads = noise(rng, *(rng.choice([20_000, 70_000, 300_000]) for _ in range(150)))
    paths = [make(tmp_path / f"{number}.tfrecord", payloads[number::3]) for number in range(3)]
    expected = [payload for number in range(3) for payload in payloads[number::3]]
    data = croupier.open(paths)
    assert len(data) == 150  # which reads the files
    order = rng.sample(range(150), 150)

    def share():
        """Of the files that the page cache has after a read of everything from the device."""
        chill(*paths)
        assert data[order].tolist() == [expected[number] for number in order]
        return sum(cached(path) for path in paths) / 3

    assert share() == 1  # there is memory enough
    monkeypatch.setattr(files, "available_memory", lambda: 2 * sum(map(len, payloads)))
    assert share() == 1  # now it was more than there is
    assert share() < 0.3


def test_index_makes_what_is_missing(tmp_path):
    paths = [make(tmp_path / f"{name}.tfrecord", [name.encode()]) for name in "abc"]
    (tmp_path / "other").mkdir()
    paths.append(make(tmp_path / "other" / "d.tfrecord", [b"d"]))
    table, other = (
        tmp_path / ".croupier" / "records.table",
        tmp_path / "other" / ".croupier" / "records.table",
    )
    assert croupier.index(paths[0]) == ([str(paths[0])], [str(table)])
    assert croupier.index(paths) == (list(map(str, paths[1:])), [str(table), str(other)])
    assert croupier.index(paths) == ([], [])
    make(paths[1], [b"b", b"again"])
    told = []
    assert croupier.index([paths[1], *paths], progress=told.append) == ([str(paths[1])], [str(table)])
    assert told
    assert payloads_of(croupier.open(paths, index="require")) == [b"a", b"b", b"again", b"c", b"d"]
    paths[2].unlink()
    make(paths[0], [b"a2"])
    croupier.index(paths[:2])
    assert len(croupier.open(tmp_path / "*.tfrecord", index="require")) == 3
    (tmp_path / "e.tfrecord").write_bytes(framed([b"e"]) + b"tail")
    with pytest.raises(croupier.TruncatedError):
        croupier.index(tmp_path)
    assert len(croupier.open(tmp_path / "a.tfrecord", index="require")) == 1
