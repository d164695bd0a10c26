"""A table of a million files that hold one record each."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from common import CORES, bare, begin, folder, framed, note, number, race, ratio, say, spread, table

import croupier
from croupier.runtime import Runtime
from croupier.table import keep
from croupier.table.build import build

FOLDERS, FILES = 20, 50_000
RANDOM = 10_000


def make(home: Path, folders: int, files: int) -> list[Path]:
    """Records of 200 to 400 bytes."""
    free = os.statvfs(home)
    need = folders * files
    if free.f_favail < 2 * need or free.f_bavail * free.f_bsize < 2 * 4096 * need:
        raise SystemExit(f"{home}: no room for {need:,} files")
    pool = random.Random(1).randbytes(1 << 20)

    def fill(number: int) -> Path:
        draw = random.Random(number)
        path = home / f"part-{number:02d}"
        path.mkdir()
        at = os.open(path, os.O_RDONLY)
        for file in range(files):
            start = draw.randrange(1 << 19)
            fd = os.open(
                f"sample-{number * files + file:07d}.tfrecord", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at
            )
            os.write(fd, framed([pool[start : start + draw.randint(200, 400)]]))
            os.close(fd)
        os.close(at)
        return path

    return [fill(number) for number in range(folders)]


def read_in_python(paths: list[str]) -> int:
    total = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        total += len(os.read(fd, os.fstat(fd).st_size))
        os.close(fd)
    return total


def make_tables(paths: list[str]) -> None:
    with Runtime() as runtime:
        table, _ = build(paths, runtime)
        keep.save(paths, table, runtime)


def main() -> None:
    options = begin("A million one-record files")
    library, home = bare(), folder()
    folders, files = (2, 1000) if options.quick else (FOLDERS, FILES)
    count = folders * files
    say(f"making {count:,} files")
    where = make(home, folders, files)
    os.sync()
    time.sleep(3)  # what changed just before is checked more thoroughly

    paths = [entry.path for one in where for entry in os.scandir(one)]
    paths.sort()
    encoded = (ctypes.c_char_p * count)(*map(os.fsencode, paths))
    parts = [paths[at : at + 1000] for at in range(0, count, 1000)]
    pool = ThreadPoolExecutor(CORES)
    size = library.read_files(encoded, count, CORES)
    assert size == sum(pool.map(read_in_python, parts))

    encoded_folders = (ctypes.c_char_p * folders)(*(os.fsencode(one) for one in where))
    assert size == library.read_folders(encoded_folders, folders, CORES)

    contestants = {
        "table": partial(make_tables, paths),
        "bare": lambda: library.read_files(encoded, count, CORES),
        "python": lambda: sum(pool.map(read_in_python, parts)),
        "index": partial(croupier.index, where, force=True),
        "bare, listing": lambda: library.read_folders(encoded_folders, folders, CORES),
    }

    def forget() -> None:
        """Every table is the first."""
        gc.collect()
        for one in where:
            shutil.rmtree(one / ".croupier", ignore_errors=True)

    times = race(contestants, 3 if options.quick else 5, before=forget)
    rates = {key: timed.rates(count / 1e3) for key, timed in times.items()}
    _, tables = croupier.index(where, force=True)
    stored = sum(Path(one).stat().st_size for one in tables)
    assert len(tables) == folders
    opened, seconds = reading(where, count)

    def row(job: str, ours: str, theirs: str, python: str) -> list[str]:
        return [
            f"{job}: {count:,} of {size / count:.0f} bytes",
            spread(rates[ours]),
            spread(rates[theirs]),
            python,
            f"**{ratio(rates[ours], rates[theirs]):.0%}**",
            f"{times[theirs].cpu / times[ours].cpu:.0%}",
            number(stored / count, 1),
        ]

    table(
        ["files", "croupier", f"C, {CORES} threads", f"Python, {CORES} threads", "÷ C", "CPU: C ÷ us",
         "table, bytes a file"],
        [
            row("with names given", "table", "bare", spread(rates["python"])),
            row("folders, listed first", "index", "bare, listing", "–"),
        ],
    )  # fmt: skip
    table(
        ["then", "seconds"],
        [
            ["croupier.open and len, from the tables", spread(opened, 2)],
            [f"the first {min(RANDOM, count):,} random records", spread(seconds, 3)],
        ],
    )
    note(
        f"Thousand files a second by the clock, median (lowest–highest); {folders} folders of {files:,} "
        "files, names, inodes and pages in the system's caches. croupier opens, stats, reads and closes each "
        "file, checks its record's length, takes a checksum of all of it, and packs, writes and flushes a "
        "table for each folder: with names given by table.build and table.keep, else by "
        "croupier.index(folders, force=True), which first lists and sorts what is there. The C program "
        "opens, stats, reads and closes, no more; it lists and sorts on one thread, croupier a folder on "
        "each. Then a fresh Dataset: a stat of each file, and batches of 1,000 records of as many files. "
        "Target: 80 % of the C program.",
        "Bound by the system: five sixths of the processor time are what the C program takes as well.",
    )
    pool.shutdown()
    say("deleting them")
    for one in where:
        shutil.rmtree(one)


def reading(where: list[Path], count: int) -> tuple[list[float], list[float]]:
    """Seconds to open the dataset, and to read random records of it."""
    draw = np.random.default_rng(3)
    opened, seconds = [], []
    for _ in range(3):
        began = time.perf_counter()
        data = croupier.open(where, index="require")
        assert len(data) == count
        opened.append(time.perf_counter() - began)
        numbers = draw.permutation(count)[:RANDOM]
        began = time.perf_counter()
        for at in range(0, len(numbers), 1000):
            data.read_many(numbers[at : at + 1000])
        seconds.append(time.perf_counter() - began)
    return opened, seconds


if __name__ == "__main__":
    main()
