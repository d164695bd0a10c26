"""gzip to gzip on DeepVariant's examples, against inflating and deflating alone on all cores."""

from __future__ import annotations

import os
import random
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from common import (
    CORES,
    MIB,
    begin,
    deepvariant,
    deepvariant_source,
    folder,
    framed,
    note,
    number,
    say,
    spread,
)
from common import table as print_table
from isal import isal_zlib
from jobs import CROUPIER, Job, clear, race_jobs, run, timed, walls, warm
from zlib_ng import zlib_ng

FILES, RECORDS, TIMES = 16, 800, 4
"""Each file comes so many times: a job of hours does not spend its time on starting."""
LEVELS = (1, 3, 5)
SAME = "same"
TURNS = 2
WHOLE = 125e9
"""Bytes of gzip that take TFrecordShuffler 46 hours."""


def examples(count: int, seed: int) -> Iterator[bytes]:
    """DeepVariant's examples in any order, each at a locus of its own, with a little noise in the image."""
    draw = random.Random(seed)
    golden = list(deepvariant(49 * 155_000))
    for _ in range(count):
        one = bytearray(draw.choice(golden))
        for found in re.finditer(rb"chr20:(\d+)-(\d+)", bytes(one)):
            for group in (1, 2):
                start, end = found.span(group)
                one[start:end] = b"%0*d" % (end - start, draw.randrange(10 ** (end - start)))
        for _ in range(16):
            one[draw.randrange(len(one) // 2, len(one) - 2000)] = draw.randrange(256)
        yield bytes(one)


def make(path: Path, count: int, seed: int, level: int = 6) -> int:
    """A file as TensorFlow writes it: one gzip stream of zlib's."""
    packer, size = zlib.compressobj(level, 8, 31), 0
    with path.open("wb") as file:
        for one in examples(count, seed):
            frame = framed([one])
            size += len(frame)
            file.write(packer.compress(frame))
        file.write(packer.flush())
    return size


def make_all(home: Path, files: int, count: int) -> tuple[list[Path], int]:
    """All inputs, and the bytes of their records."""
    home.mkdir(parents=True, exist_ok=True)
    paths = [home / f"examples.tfrecord-{number:05d}-of-{files:05d}.gz" for number in range(files)]
    with ProcessPoolExecutor(CORES) as pool:
        sizes = pool.map(make, paths, [count] * files, range(files))
        return paths, sum(sizes)


def repeated(paths: list[Path], times: int) -> list[Path]:
    """Other names of the same files besides."""
    more = [path.with_name(f"{turn}-{path.name}") for turn in range(1, times) for path in paths]
    for path, first in zip(more, paths * (times - 1), strict=True):
        os.link(first, path)
    return paths + more


def alone(paths: list[Path], level: int) -> None:
    """Inflate and deflate: a thread and a plain gzip stream for each core, output thrown away."""
    waiting, lock = list(paths), threading.Lock()

    def work() -> None:
        out: Any = (isal_zlib if level <= 2 else zlib_ng).compressobj(level, 8, 31)
        while True:
            with lock:
                if not waiting:
                    return
                path = waiting.pop()
            inflater = isal_zlib.decompressobj(31)
            with path.open("rb") as file:
                while piece := file.read(MIB // 16):
                    out.compress(inflater.decompress(piece))

    threads = [threading.Thread(target=work) for _ in range(CORES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def sides(paths: list[Path], out: Path, levels: tuple[int, ...]) -> dict[str, Callable[[], Job]]:
    """Who races."""
    contestants: dict[str, Callable[[], Job]] = {}
    for level in levels:
        contestants[f"alone {level}"] = partial(timed, partial(alone, paths, level))
    for word in (*levels, SAME):
        command = [*CROUPIER, "shuffle", *map(str, paths), str(out / "t"), "--level", str(word), "--json"]
        contestants[f"croupier {word}"] = partial(run, command)
    return contestants


def main() -> None:
    options = begin("Shuffling DeepVariant's examples, gzip to gzip")
    home = folder()
    say("making data")
    files, count = (4, 20) if options.quick else (FILES, RECORDS)
    paths, raw = make_all(home / "in", files, count)
    paths, raw = repeated(paths, TIMES), raw * TIMES
    stored = sum(path.stat().st_size for path in paths)
    out = home / "out"
    levels = (1,) if options.quick else LEVELS
    warm(paths)
    jobs = race_jobs(sides(paths, out, levels), 1 if options.quick else TURNS, partial(clear, out))
    rows = []
    for level in (*levels, SAME):
        limit, ours = jobs.get(f"alone {level}", []), jobs[f"croupier {level}"]
        receipt = ours[-1].json()
        written = sum(shard["file_bytes"] for shard in receipt["shards"])
        shares = sorted(a.wall / b.wall for a, b in zip(limit, ours, strict=False))
        seconds = sorted(walls(ours))[len(ours) // 2]
        rows.append(
            [
                str(level),
                spread(walls(limit)) if limit else "",
                spread(walls(ours)),
                f"**{number(100 * shares[len(shares) // 2], 0)} %**" if shares else "",
                spread([job.cpu for job in limit]) if limit else "",
                spread([job.cpu for job in ours]),
                f"{written / stored:.2f}",
                f"{raw / written:.1f}x",
                f"{max(job.memory for job in ours) / MIB:,.0f}",
                f"{WHOLE / stored * seconds / 60:,.0f}",
            ]
        )
    print_table(
        ["level", "codec alone, s", "croupier, s", "share of the limit", "codec alone, CPU s",
         "croupier, CPU s", "out ÷ in", "ratio", "memory, MiB", "125 GB, minutes"],
        rows,
    )  # fmt: skip
    note(
        f"{files} files of {deepvariant_source()}, each at its own locus, {TIMES} times: "
        f"{files * count * TIMES:,} records, "
        f"{raw / 1e9:.2f} GB that zlib's level 6 made {stored / 1e6:.0f} MB; in the page cache. Codec alone: "
        "isal inflates, isal (1, 2) or zlib-ng (from 3) deflates, one plain stream a core, nothing is "
        "written. Ours is the whole command: starting Python, framing, checksums, proof, flushing.",
        "125 GB: at the same bytes a second. Level same takes the matches from the inputs.",
    )
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
