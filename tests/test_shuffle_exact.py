"""The same bytes, whatever the strategy, workers, memory, form of the input, and interruptions."""

import hashlib
import itertools
import random
import threading

import numpy as np
import pytest

import croupier
from croupier import output
from croupier.shuffling import STRATEGIES, planning

FORMS = ("none", "gzip", "zlib")
SUFFIX = {"none": "", "gzip": ".gz", "zlib": ".zlib"}
MEMORY = (60_000, 250_000, 1 << 24)
WORKERS = (1, 2, 5)
BREAKS = ((), (0.2,), (0.85,), (0.1, 0.5, 0.9))
"""How far the work is when it is cancelled, the first time, the second, ...; then it is resumed."""
SEED, SHARDS = 2**63 + 5, 4


def works(strategy, memory, form, compression):
    """Whether a strategy can do that."""
    if strategy == "memory":
        return memory == MEMORY[-1]
    if strategy == "gather":
        return form == "none"
    return strategy != "fragments" or compression == "gzip"


CELLS = [
    cell
    for cell in itertools.product(STRATEGIES, MEMORY, FORMS, FORMS, WORKERS, BREAKS)
    if works(cell[0], cell[1], cell[2], cell[3])
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same records in each form; (folder, payloads of each file)."""
    folder, rng = tmp_path_factory.mktemp("data"), random.Random(17)
    files = []
    for _ in range(6):
        sizes = [rng.choice((0, 5, 90, 700, 2500)) for _ in range(rng.randrange(40, 150))]
        files.append([rng.randbytes(size // 2) + bytes(size - size // 2) for size in sizes])
    files[2] = []
    files[4][7] = rng.randbytes(20_000) + bytes(20_000)
    for form in FORMS:
        (folder / form).mkdir()
        for number, payloads in enumerate(files):
            with croupier.writer(folder / form / f"in-{number}.tfrecord{SUFFIX[form]}") as out:
                out.write_many(payloads)
    return folder, files


@pytest.fixture(scope="module")
def expected(data, tmp_path_factory):
    """Digests of the shards by output form, of outputs that hold what numpy's Philox says."""
    folder, files = data
    order = []
    for file, payloads in enumerate(files):
        keys = np.random.Philox(key=np.array([SEED, file], np.uint64)).random_raw(len(payloads))
        order += [(int(key), file, record) for record, key in enumerate(keys)]
    records = [files[file][record] for _, file, record in sorted(order)]
    found = {}
    for form in FORMS:
        prefix = tmp_path_factory.mktemp("expected") / "t"
        croupier.shuffle(folder / "none", prefix, seed=SEED, shards=SHARDS, compression=form)
        paths = sorted(prefix.parent.glob("t-*"))
        parts = [list(croupier.read(path)) for path in paths]
        edges = [number * len(records) // SHARDS for number in range(SHARDS + 1)]
        assert parts == [records[begin:end] for begin, end in itertools.pairwise(edges)]
        found[form] = digests(prefix)
    return found


def digests(prefix):
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(prefix.parent.glob("t-*"))]


def make(data, folder, cell, monkeypatch):
    """A shuffle, cancelled and resumed as the cell says; how often it was cancelled."""
    strategy, memory, form, compression, workers, breaks = cell
    monkeypatch.setattr(planning, "run_bytes", lambda runtime: memory)
    monkeypatch.setattr(output, "DIRECT_FROM", 100_000 if workers == 2 else 1 << 40)
    stopped = 0
    for at in (*breaks, None):
        cancel = threading.Event()

        def watch(progress, at=at, cancel=cancel, phases=[]):  # noqa: B006 - one for each attempt
            if progress.phase not in phases:
                phases.append(progress.phase)
            part = progress.done / progress.total if progress.total else 0
            if at is not None and (len(phases) - 1 + part) / 2 >= at:
                cancel.set()

        try:
            croupier.shuffle(
                data[0] / form,
                folder / "t",
                seed=SEED,
                shards=SHARDS,
                compression=compression,
                workers=workers,
                strategy=strategy,
                resume=True,
                progress=watch,
                cancel=cancel,
            )
        except croupier.CancelledError:
            assert not list(folder.glob("t-*")), "visible, though not complete"
            stopped += 1
    return stopped


def check(data, expected, folder, cells, monkeypatch):
    stopped = 0
    for number, cell in enumerate(cells):
        home = folder / str(number)
        stopped += make(data, home, cell, monkeypatch)
        assert digests(home / "t") == expected[cell[3]], cell
        left = [
            path for path in home.rglob("*") if ".tmp" in path.name or path.name.endswith((".spill", ".work"))
        ]
        assert not left, cell
    return stopped


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sample_of_all_combinations(data, expected, tmp_path, monkeypatch, strategy):
    cells = random.Random(strategy).sample([cell for cell in CELLS if cell[0] == strategy], 15)
    assert check(data, expected, tmp_path, cells, monkeypatch), "none was cancelled"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_combinations(data, expected, tmp_path, monkeypatch, strategy):
    cells = [cell for cell in CELLS if cell[0] == strategy]
    assert check(data, expected, tmp_path, cells, monkeypatch)


def test_the_cells_are_all_there():
    assert len(CELLS) == len(set(CELLS)) > 600
    assert {cell[0] for cell in CELLS} == set(STRATEGIES)
