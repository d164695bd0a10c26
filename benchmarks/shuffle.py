"""Plain records: in memory against `cat`, out of memory against a bare loop, and how time grows."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common import CORES, MIB, begin, folder, noise, note, number, say, spread, table, write
from jobs import (
    Job,
    Passes,
    clear,
    cool,
    cpus,
    quotients,
    race_jobs,
    run,
    shuffle,
    timed,
    total,
    walls,
    warm,
)

PART = 250_000_000
SIZES = {100_000: 1.0, 1000: 1.3, 200: 2.0}
"""Bytes of a record, and the bar: at most so many times as long as `cat` and `sync`."""
WHOLE = 4_000_000_000
BUDGET = 500_000_000
TURNS = 3
PARTS = ("memory", "spill", "growth")
GROWTH = (0.5, 1, 2, 4, 8)


def make(home: Path, size: int, amount: int, part: int) -> list[Path]:
    """Files of `part` bytes each: one written record by record, the others its copies."""
    home.mkdir(parents=True, exist_ok=True)
    first = write(home / "part-000.tfrecord", noise(size, min(part, amount)))
    paths = [first]
    while len(paths) * part < amount:
        paths.append(home / f"part-{len(paths):03d}.tfrecord")
        shutil.copyfile(first, paths[-1])
    shutil.rmtree(home / ".croupier", ignore_errors=True)
    os.sync()
    return paths


def cat(paths: list[Path], out: Path) -> Callable[[], Job]:
    """What everybody has."""
    return partial(run, ["sh", "-c", 'cat "$@" > "$0" && sync "$0"', str(out), *map(str, paths)])


def in_memory(home: Path, amount: int, turns: int) -> None:
    """(a) Warm inputs, enough memory."""
    rows = []
    out = home / "out"
    for size, bar in SIZES.items():
        say(f"in memory: {size} bytes")
        paths = make(home / "in", size, amount, min(PART, amount // 2))
        warm(paths)
        sides = {"cat": cat(paths, out / "cat"), "us": shuffle(paths, out / "t")}
        jobs = race_jobs(sides, turns, partial(clear, out))
        times = quotients(jobs["us"], jobs["cat"])
        rows.append(
            [
                f"{size:,} B",
                jobs["us"][-1].json().get("strategy", ""),
                spread(walls(jobs["cat"])),
                spread(walls(jobs["us"])),
                f"**{spread(times)}**",
                f"{bar:.1f}",
                number(statistics.median(cpus(jobs["cat"]))),
                number(statistics.median(cpus(jobs["us"]))),
                f"{max(job.memory for job in jobs['us']) / MIB:,.0f}",
            ]
        )
        shutil.rmtree(home / "in")
    clear(out)
    print(f"## Warm, in memory: {amount / 1e9:.1f} GB\n")
    table(
        ["records", "strategy", "cat and sync, s", "croupier, s", "times as long", "bar", "cat, CPU s",
         "croupier, CPU s", "croupier, MiB"],
        rows,
    )  # fmt: skip


def out_of_memory(home: Path, budget: int, turns: int) -> None:
    """(b) Eight times the budget, inputs not in the page cache."""
    rows = []
    out = home / "out"
    bare = Passes(CORES)
    for size in (1000, 100_000):
        say(f"out of memory: {size} bytes")
        paths = make(home / "in", size, 8 * budget, min(PART, budget))
        amount = total(paths)
        moved: list[int] = []

        def ours(paths: list[Path] = paths, moved: list[int] = moved) -> Job:
            job = shuffle(paths, out / "t", "--memory", str(budget))()
            moved.append(job.json()["spilled_bytes"])
            return job

        def loop(paths: list[Path] = paths, amount: int = amount, moved: list[int] = moved) -> None:
            if moved[-1]:
                parts = bare(paths, out / "spill", moved[-1], direct=True)
                bare(parts, out / "out", amount, direct=True)
            else:
                bare(paths, out / "out", amount, direct=True)

        def before(paths: list[Path] = paths) -> None:
            clear(out)
            cool(paths)

        jobs = race_jobs({"us": ours, "loop": lambda loop=loop: timed(loop)}, turns, before)
        receipt = jobs["us"][-1].json()
        rows.append(
            [
                f"{size:,} B",
                f"{amount / 1e9:.1f} GB",
                receipt.get("strategy", ""),
                f"{moved[-1] / 1e9:.1f} GB",
                spread(walls(jobs["loop"])),
                spread(walls(jobs["us"])),
                "**" + spread([100 * share for share in quotients(jobs["loop"], jobs["us"])], 0) + " %**",
                number(statistics.median(cpus(jobs["us"]))),
                f"{max(job.memory for job in jobs['us']) / MIB:,.0f} of {budget / MIB:,.0f}",
            ]
        )
        shutil.rmtree(home / "in")
    clear(out)
    print("## Cold, eight times the memory\n")
    table(
        ["records", "data", "strategy", "spilled", "bare loop, s", "croupier, s", "share of the limit",
         "croupier, CPU s", "memory, MiB"],
        rows,
    )  # fmt: skip


def growth(home: Path, sizes: tuple[float, ...], turns: int) -> None:
    """(f) From half a gigabyte to eight, one worker and all."""
    rows = []
    out = home / "out"
    for gigabytes in sizes:
        say(f"growth: {gigabytes} GB")
        amount = int(gigabytes * 1e9)
        paths = make(home / "in", 1000, amount, min(PART, amount // 2))
        warm(paths)
        sides = {
            f"{workers} {name}": shuffle(paths, out / "t", "--workers", str(workers), *flags)
            for workers in sorted({1, CORES})
            for name, flags in (("all", ()), ("little", ("--memory", str(BUDGET))))
        }
        jobs = race_jobs(sides, turns, partial(clear, out))
        cells = [spread(gigabytes / wall for wall in walls(some)) for some in jobs.values()]
        rows.append([f"{gigabytes:g} GB", *cells])
        shutil.rmtree(home / "in")
    clear(out)
    print("## How time grows: GB/s, records of 1 KB, warm\n")
    names = [f"{w} worker{'s' * (w > 1)}, {m}" for w in sorted({1, CORES}) for m in ("default", "500 MB")]
    table(["data", *names], rows)


def main() -> None:
    options = begin("Shuffling plain records", PARTS)
    home = folder()
    parts = (options.only,) if options.only else PARTS
    scale, turns = (0.01, 1) if options.quick else (1.0, TURNS)
    if "memory" in parts:
        in_memory(home, int(WHOLE * scale), turns)
    if "spill" in parts:
        out_of_memory(home, 110_000_000 if options.quick else BUDGET, turns)
    if "growth" in parts:
        growth(home, tuple(scale * size for size in GROWTH), turns)
    sys.stdout.flush()
    note(
        "Seconds by the clock, median (lowest–highest). One side after another, turn by turn, after a turn "
        "that does not count; each with an empty output folder. Ours is the whole command: starting Python, "
        "reading, checksums, order, proof, writing, flushing every shard to the device, tables, receipt. "
        "Memory is anonymous and shared, of the process tree, at its peak.",
        "The bare loop is C: as many threads as cores read all input and write what is spilled, then read "
        "that and write the output, 4 MiB at a time past the page cache, and flush: the same passes and "
        "nothing else.",
    )


if __name__ == "__main__":
    main()
