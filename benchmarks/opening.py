"""Opening a dataset of many shards whose offset table is there."""

from __future__ import annotations

import functools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import ANY, begin, folder, framed, note, number, say, spread, table

import croupier
import croupier.dataset
from croupier import _kernel
from croupier.dataset.files import Files
from croupier.table import keep

SHARDS, RECORDS = 1000, 10_000
BODIES = 32  # different ones; the shards have them in turn


def make(home: Path, shards: int, records: int) -> None:
    """Shards of payloads of 100 to 200 bytes, and what tfrecord2idx writes for each."""
    draw = random.Random(10)
    pool = draw.randbytes(1 << 20)
    bodies = []
    for _ in range(min(BODIES, shards)):
        cuts = [(draw.randrange(1 << 19), draw.randint(100, 200)) for _ in range(records)]
        body = framed(pool[at : at + size] for at, size in cuts)
        bounds = np.zeros(records + 2, np.uint64)
        count, _ = _kernel.scan(body, 0, bounds, False, ANY)
        assert count == records
        edges = bounds[: count + 1].tolist()
        text = "".join(f"{at} {end - at}\n" for at, end in pairwise(edges))
        bodies.append((body, text))
    (home / "data").mkdir()
    (home / "idx").mkdir()
    for shard in range(shards):
        body, text = bodies[shard % len(bodies)]
        name = f"shard-{shard:05d}-of-{shards:05d}.tfrecord"
        (home / "data" / name).write_bytes(body)
        (home / "idx" / f"{name}.idx").write_text(text)
    _check_idx(home)


def _check_idx(home: Path) -> None:
    """What was written is what the real one writes."""
    from tfrecord.tools.tfrecord2idx import create_index

    first = min((home / "data").iterdir())
    create_index(str(first), str(home / "real"))
    assert (home / "real").read_text() == (home / "idx" / f"{first.name}.idx").read_text()


# What a fresh process does: opens, counts, gives a record. (What is returned last is kept alive meanwhile.)


def ours(home: Path) -> tuple[int, bytes, object]:
    data = croupier.open(home / "data")
    return len(data), data[_wanted(len(data))], data


def _wanted(count: int) -> int:
    return count * 2 // 3


def _peer(home: Path, parse: Callable[[Path], np.ndarray]) -> tuple[int, bytes, object]:
    paths = sorted((home / "idx").iterdir())
    indexes = [parse(path) for path in paths]
    firsts = np.cumsum([0, *map(len, indexes)])
    wanted = _wanted(int(firsts[-1]))
    file = int(np.searchsorted(firsts, wanted, side="right")) - 1
    at, size = indexes[file][wanted - firsts[file]].tolist()
    with (home / "data" / paths[file].name.removesuffix(".idx")).open("rb") as data:
        return int(firsts[-1]), os.pread(data.fileno(), size - 16, at + 12), indexes


def loadtxt(home: Path) -> tuple[int, bytes, object]:
    """As vahidk's tfrecord does."""
    return _peer(home, lambda path: np.loadtxt(path, np.int64))


def split(home: Path) -> tuple[int, bytes, object]:
    return _peer(home, lambda path: np.array(path.read_bytes().split(), np.int64).reshape(-1, 2))


def fromstring(home: Path) -> tuple[int, bytes, object]:
    """The fastest parse of text that Python and numpy have."""
    return _peer(home, lambda path: np.fromstring(path.read_text(), np.int64, sep=" ").reshape(-1, 2))


WAYS = {
    "croupier": ours,
    ".idx, numpy.loadtxt": loadtxt,
    ".idx, split and int": split,
    ".idx, numpy.fromstring": fromstring,
}
STEPS = {"list": (croupier.dataset, "expand"), "load": (keep, "load"), "stat": (keep, "_fresh")}


def anonymous() -> int:
    """Memory of this process that is no file's, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))) << 10


def once(way: str, home: Path) -> None:
    """In a process of its own; everything is imported already."""
    spent = dict.fromkeys((*STEPS, "record"), 0.0)
    for step, (module, name) in STEPS.items():
        setattr(module, name, _timed(getattr(module, name), step, spent))
    Files.read = _timed(Files.read, "record", spent)
    before, began = anonymous(), time.perf_counter()
    count, payload, kept = WAYS[way](home)
    seconds, memory = time.perf_counter() - began, anonymous() - before
    del kept
    paths = [entry.path for entry in os.scandir(home / "data")]
    began = time.perf_counter()
    for path in paths:
        os.stat(path)
    spent["stat alone"] = time.perf_counter() - began
    print(json.dumps([count, _kernel.crc32c(payload), seconds, memory, spent]))


def _timed(function: Callable[..., Any], step: str, spent: dict[str, float]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[step] += time.perf_counter() - began

    return timed


def main() -> None:
    options = begin("Opening 1,000 shards with 10 million records")
    shards, records = (50, 1000) if options.quick else (SHARDS, RECORDS)
    home = folder()
    say(f"making {shards:,} shards of {records:,} records")
    make(home, shards, records)
    time.sleep(3)  # tables of files that changed just before are checked more thoroughly
    began = time.perf_counter()
    _, (kept,) = croupier.index(home / "data")
    say(f"indexed in {time.perf_counter() - began:.2f} s")
    answers: dict[str, list[list[Any]]] = {way: [] for way in WAYS}
    for turn in range(-1, 3 if options.quick else 7):
        for way in WAYS:
            if turn >= 3 and answers[way][0][2] > 3:  # slow ones three times
                continue
            command = [sys.executable, "-W", "ignore", __file__, "--once", way, str(home)]
            answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            if turn >= 0:
                answers[way].append(answer)
    known = {(count, payload) for found in answers.values() for count, payload, *_ in found}
    assert len(known) == 1
    assert known.pop()[0] == shards * records
    ours = statistics.median(seconds for _, _, seconds, *_ in answers["croupier"])
    sizes = {way: sum(path.stat().st_size for path in (home / "idx").iterdir()) for way in WAYS}
    sizes["croupier"] = Path(kept).stat().st_size
    table(
        ["from", "seconds", "÷ croupier", "memory, MB", "on disk, MB", "on disk, bytes a record"],
        [
            [
                way,
                spread([seconds for _, _, seconds, *_ in found], 3),
                number(statistics.median(seconds for _, _, seconds, *_ in found) / ours, 1) + "x",
                spread([memory / 1e6 for _, _, _, memory, _ in found], 1),
                number(sizes[way] / 1e6),
                number(sizes[way] / shards / records, 2),
            ]
            for way, found in answers.items()
        ],
    )
    names = {
        "list": "listing the folder",
        "load": "loading the table",
        "stat": "stat of each file, and comparing",
        "record": "the record",
    }
    spent = [(seconds, steps) for _, _, seconds, _, steps in answers["croupier"]]
    rows = [[name, spread([steps[step] * 1000 for _, steps in spent], 1)] for step, name in names.items()]
    rest = [(seconds - sum(steps[step] for step in names)) * 1000 for seconds, steps in spent]
    rows.append(["the rest", spread(rest, 1)])
    rows.append(["all of it", spread([seconds * 1000 for seconds, _ in spent], 1)])
    rows.append(
        ["(os.stat of each by itself)", spread([steps["stat alone"] * 1000 for _, steps in spent], 1)]
    )
    table(["croupier", "ms"], rows)
    note(
        f"{shards:,} plain shards of {records:,} records of 100 to 200 bytes each, names and pages in the "
        "system's caches; a fresh process each time, in turn, with everything imported before the clock "
        "starts: open, count, and read one record. Memory: RssAnon afterwards, above what it was before. "
        "croupier has one table for the folder, and sees that each file is the one that was indexed; the "
        "others read what tfrecord2idx writes for each shard (they have to be listed as well) and compare "
        "nothing. Median (lowest–highest). Targets: 0.2 s, 40 MB.",
        "Bound by reading and checking the table.",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        once(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
