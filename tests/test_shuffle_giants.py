"""Records that no memory need hold: the same bytes as with memory for all, and the same errors."""

import functools
import gzip
import itertools
import random
import threading
import zlib

import numpy as np
import pytest

import croupier
from croupier import frames, output
from croupier.codec import deflate
from croupier.shuffling import STRATEGIES, planning
from dataset_help import framed

FORMS = ("none", "gzip", "zlib")
SUFFIX = {"none": "", "gzip": ".gz", "zlib": ".zlib"}
RUN, LARGE = 4 << 20, 1 << 33
"""Bytes of memory for records: less than the largest have, and so much that none is a giant."""
SEED, SHARDS = 77, 3
SIZES = (
    0, 5, 300, 2000, 60_000, frames.BLOCK, output.BLOCK - 16, output.BLOCK - 15, 2_500_000, 3_000_001,
    deflate.STREAMED - 16, deflate.STREAMED - 15, 9_500_000,
)  # fmt: skip
CELLS = [
    (strategy, form, compression, level, workers)
    for strategy in STRATEGIES
    for form, compression, level, workers in itertools.product(FORMS, FORMS, (3, 5), (1, 2))
    if not (strategy == "gather" and form != "none")
    and not (strategy == "fragments" and compression != "gzip")
    and not (compression == "none" and level == 3)
]


@functools.cache
def pool():
    """What compresses somewhat, and differently from one piece to the next."""
    rng = random.Random(2)
    return b"".join(rng.randbytes(rng.randrange(1, 300)) + bytes(rng.randrange(300)) for _ in range(4000)) * 9


def content(rng, size):
    at = rng.randrange(1_000_000)
    return pool()[at : at + size]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same records in each form; (folder, payloads of each file)."""
    folder, rng = tmp_path_factory.mktemp("giants"), random.Random(3)
    sizes = [*SIZES, *(rng.randrange(3000) for _ in range(60))]
    rng.shuffle(sizes)
    files = [[content(rng, size) for size in sizes[begin::3]] for begin in range(3)]
    files[1].insert(0, content(rng, 2_000_000))  # a giant begins a file
    files[2].append(content(rng, 2_200_000))
    for form in FORMS:
        (folder / form).mkdir()
        for number, payloads in enumerate(files):
            raw = framed(payloads)
            if form == "gzip":
                raw = gzip.compress(raw, 1)
            if form == "zlib":
                raw = zlib.compress(raw, 1)
            (folder / form / f"in-{number}.tfrecord{SUFFIX[form]}").write_bytes(raw)
    return folder, files


def shuffled(paths, folder, run, monkeypatch, **options):
    """The bytes of each shard."""
    monkeypatch.setattr(planning, "run_bytes", lambda runtime: run)
    receipt = croupier.shuffle(paths, folder / "t", seed=SEED, shards=SHARDS, **options)
    found = [path.read_bytes() for path in sorted(folder.glob("t-*"))]
    for path in folder.glob("t-*"):
        path.unlink()
    return found, receipt


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    """Shards by output form and level, made in memory; they hold what numpy's Philox says."""
    folder, files = data
    order = []
    for file, payloads in enumerate(files):
        keys = np.random.Philox(key=np.array([SEED, file], np.uint64)).random_raw(len(payloads))
        order += [(int(key), file, record) for record, key in enumerate(keys)]
    records = [files[file][record] for _, file, record in sorted(order)]
    edges = [number * len(records) // SHARDS for number in range(SHARDS + 1)]
    plain = [framed(records[begin:end]) for begin, end in itertools.pairwise(edges)]
    found = {}
    for form, level in itertools.product(FORMS, (3, 5)):
        with pytest.MonkeyPatch.context() as patch:
            shards, _ = shuffled(
                folder / "none", tmp_path_factory.mktemp("large"), LARGE, patch,
                compression=form, level=level, strategy="memory", workers=1,
            )  # fmt: skip
        unpack = {"none": bytes, "gzip": gzip.decompress, "zlib": zlib.decompress}[form]
        assert list(map(unpack, shards)) == plain
        found[form, level] = shards
    return found


QUICK = set(random.Random(1).sample(CELLS, 12))


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=[] if cell in QUICK else pytest.mark.slow) for cell in CELLS],
    ids=lambda cell: "-".join(map(str, cell)),
)
def test_the_same_bytes_as_with_memory_for_all(data, expected, tmp_path, monkeypatch, cell):
    strategy, form, compression, level, workers = cell
    monkeypatch.setattr(output, "DIRECT_FROM", 1 << 20 if workers == 2 else 1 << 40)
    if strategy == "memory":
        monkeypatch.setattr(planning, "fits", lambda *_: True)
    shards, receipt = shuffled(
        data[0] / form, tmp_path, RUN if strategy != "memory" else 16 << 20, monkeypatch,
        compression=compression, level=level, strategy=strategy, workers=workers,
    )  # fmt: skip
    assert shards == expected[compression, level]
    assert receipt["in"] == receipt["out"]
    assert not list(tmp_path.rglob("*.spill"))


def test_their_writer_writes_the_same(data, expected, tmp_path):
    """A shard's records, written by croupier.writer: streamed fragments are no matter of shuffling."""
    for form in FORMS:
        name = f"t.tfrecord{SUFFIX[form]}"
        (tmp_path / name).write_bytes(expected[form, 5][0])
        with croupier.writer(tmp_path / "again" / name, level=5) as out:
            out.write_many(list(croupier.read(tmp_path / name)))
        assert (tmp_path / "again" / name).read_bytes() == expected[form, 5][0]


def test_tables_that_are_made_on_the_way_tell_where_giants_are(data, tmp_path, monkeypatch):
    for form in ("none", "gzip"):
        monkeypatch.setattr(planning, "run_bytes", lambda runtime: RUN)
        croupier.shuffle(
            data[0] / "none", tmp_path / form / "t", seed=SEED, strategy="spill", compression=form
        )
        dataset = croupier.open(tmp_path / form / "t-*")
        assert sorted(map(len, dataset)) == sorted(len(one) for file in data[1] for one in file)


# --- damage ---------------------------------------------------------------------------------------------


NOISE = random.Random(9).randbytes(100_000)
"""A sample of each file, which no damage may touch, is read beforehand."""


def damaged(kind):
    """A file with a giant in its middle, that is damaged there."""
    rng = random.Random(4)
    before, giant, after = framed([NOISE] * 4), framed([content(rng, 3_000_000)]), framed([b"y"] * 9)
    spots = {
        "bit": 12 + 2_345_678,
        "first": 12,
        "last": len(giant) - 5,
        "footer": len(giant) - 2,
        "header": 3,
    }
    if kind in spots:
        spot = spots[kind]
        giant = giant[:spot] + bytes([giant[spot] ^ 4]) + giant[spot + 1 :]
        return before + giant + after
    cut = {"in the payload": 2_000_000, "in the footer": len(giant) - 2, "behind the header": 12}[kind]
    return before + giant[:cut]


KINDS = ("bit", "first", "last", "footer", "header", "in the payload", "in the footer", "behind the header")


def told(error):
    return type(error), str(error), error.offset, error.record, error.expected, error.found


def read_all(path, **options):
    return list(croupier.read(path, **options))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_as_by_reading(tmp_path, monkeypatch, kind, form):
    pack = {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[form]
    path = tmp_path / f"a.tfrecord{SUFFIX[form]}"
    path.write_bytes(pack(damaged(kind)))
    with pytest.raises(croupier.DataError) as reading:
        read_all(path)
    with pytest.raises(croupier.DataError) as shuffling:
        shuffled([path], tmp_path / "out", RUN, monkeypatch, strategy="spill", workers=1)
    assert told(shuffling.value) == told(reading.value)
    assert not list((tmp_path / "out").rglob("*.spill"))
    if form == "none" and kind in ("bit", "first", "last", "footer"):
        with pytest.raises(croupier.DataError) as gathering:
            shuffled([path], tmp_path / "out", RUN, monkeypatch, strategy="gather", workers=1)
        assert told(gathering.value) == told(reading.value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS[5:])
@pytest.mark.parametrize("torn", ["stream", "records"])
def test_a_torn_tail_is_tolerated(tmp_path, monkeypatch, kind, form, torn):
    pack = {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[form]
    path = tmp_path / f"a.tfrecord{SUFFIX[form]}"
    raw = pack(damaged(kind))
    path.write_bytes(raw[:-9] if torn == "stream" else raw)
    by_reading, by_shuffling = [], []
    records = read_all(path, on_corrupt="tolerate-tail", on_damage=by_reading.append)
    shards, _ = shuffled(
        [path], tmp_path / "out", RUN, monkeypatch, strategy="spill", on_corrupt="tolerate-tail",
        on_damage=by_shuffling.append, compression="none",
    )  # fmt: skip
    assert by_shuffling == by_reading
    assert len(by_reading) >= 1
    assert b"".join(shards) == framed(records)


@pytest.mark.parametrize("policy", ["skip", "salvage"])
def test_policies_that_look_back_have_the_old_limit(tmp_path, monkeypatch, policy):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(damaged("bit"))
    shards, _ = shuffled(
        [path], tmp_path / "out", 16 << 20, monkeypatch, on_corrupt=policy, on_damage=lambda damage: None
    )
    assert sum(map(len, shards)) == len(framed([NOISE] * 4 + [b"y"] * 9))
    path.write_bytes(framed([bytes(3_000_000)]))
    with pytest.raises(croupier.UsageError, match=r"record 0 has 3,000,016 bytes.*give at least"):
        shuffled([path], tmp_path / "out", 2 << 20, monkeypatch, on_corrupt=policy, strategy="spill")


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_written_to_meanwhile(tmp_path, monkeypatch, form):
    """After the giant was read, another payload with a right checksum stands there."""
    pack = {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[form]
    path, rng = tmp_path / f"a.tfrecord{SUFFIX[form]}", random.Random(8)
    path.write_bytes(pack(framed([content(rng, 2_500_000), b"x"])))
    other = framed([content(rng, 2_500_000), b"x"])

    def change(progress):
        if progress.phase == "write":
            for found in [path] if form == "none" else tmp_path.rglob("giants*"):
                found.write_bytes(other)

    with pytest.raises(croupier.CroupierError, match="was written to while it was read"):
        shuffled(
            [path], tmp_path / "out", RUN, monkeypatch, strategy="spill", progress=change, compression="none"
        )
    assert not list((tmp_path / "out").glob("t-*"))


# --- interruptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", ["spill", "gather"])
def test_cancelled_and_resumed(data, expected, tmp_path, monkeypatch, strategy, form):
    if strategy == "gather" and form != "none":
        return
    stopped = 0
    for at in (0.2, 0.5, 0.6, 0.7, 0.8, 0.9, None):
        cancel = threading.Event()

        def watch(progress, at=at, cancel=cancel, phases=[]):  # noqa: B006 - one for each attempt
            if progress.phase not in phases:
                phases.append(progress.phase)
            part = progress.done / progress.total if progress.total else 0
            if at is not None and (len(phases) - 1 + part) / 2 >= at:
                cancel.set()

        try:
            shards, _ = shuffled(
                data[0] / form, tmp_path, RUN // 2, monkeypatch, strategy=strategy, compression="gzip",
                level=3, resume=True, progress=watch, cancel=cancel,
            )  # fmt: skip
        except croupier.CancelledError:
            stopped += 1
    assert stopped >= 2
    assert shards == expected["gzip", 3]
