"""The same shuffles by others: DeepVariant's two scripts on its examples, shuf and terashuf on lines.

Others' methods are told again in code of our own, in peers/.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import HERE, MIB, begin, folder, note, say, spread, table, write
from jobs import Job, clear, cpus, quotients, race_jobs, run, shuffle, total, walls, warm
from shuffle_gzip import make_all

FILES, MORE = 4, 8
"""Input files for them, and how many times as many for us: where they take a minute, we hardly begin."""
RECORDS = 500
STEP = 400
TURNS = 3
LEVELS = (1, 5, "same")
LINES = 1_000_000_000
LINE = 1000


def peer(name: str, *arguments: object) -> Callable[[], Job]:
    """A script of peers/."""
    return partial(run, [sys.executable, str(HERE / "peers" / name), *map(str, arguments)])


def examples(home: Path, files: int, count: int, turns: int) -> None:
    """DeepVariant's examples, gzip to gzip."""
    paths, raw = make_all(home / "in", files * MORE, count)
    some, many = paths[:files], len(paths) * count
    raw_some = raw * files // len(paths)
    out = home / "out"
    warm(paths)
    rows: list[list[str]] = []
    theirs: dict[str, Callable[[], Job]] = {
        "TFrecordShuffler, in memory": peer("holley.py", out / "h", 2, -1, *some),
        f"TFrecordShuffler, --step {STEP}": peer("holley.py", out / "h", 2, min(STEP, count), *some),
        "Beam, local": peer("beam.py", out / "b", 1, *some),
    }
    ours = {f"croupier, level {level}": shuffle(paths, out / "t", "--level", str(level)) for level in LEVELS}
    sizes: dict[str, int] = {}

    def measured(name: str, job: Callable[[], Job]) -> Job:
        say(name)
        done = job()
        sizes[name] = total(path for path in out.iterdir() if path.is_file())
        return done

    sides = {name: partial(measured, name, job) for name, job in (theirs | ours).items()}
    jobs = race_jobs(sides, turns, partial(clear, out))
    rates: dict[str, list[float]] = {}
    for name, done in jobs.items():
        if name in theirs:  # without importing TensorFlow or Beam
            rates[name] = [raw_some / 1e6 / job.json()["seconds"] for job in done]
        else:
            rates[name] = [raw / 1e6 / job.wall for job in done]
    for name, done in jobs.items():
        times = [
            statistics.median(a / b for a, b in zip(rates[name], rates[other], strict=True))
            for other in theirs
        ]
        size = sizes[name] / (total(some) if name in theirs else total(paths))
        hours = 125e9 * raw / total(paths) / (statistics.median(rates[name]) * 1e6) / 3600
        rows.append(
            [
                name,
                spread(rates[name]),
                *(f"{x:.1f}x" if name in ours else "" for x in times),
                f"{size:.2f}",
                f"{max(job.memory for job in done) / MIB:,.0f}",
                f"{hours:.1f}",
            ]
        )
    print("## DeepVariant's examples, gzip to gzip\n")
    table(
        [
            "",
            "MB/s of records",
            "÷ in memory",
            "÷ --step",
            "÷ Beam",
            "out ÷ in",
            "memory, MiB",
            "125 GB, hours",
        ],
        rows,
    )
    note(
        f"Theirs on {files * count:,} records ({raw_some / 1e6:,.0f} MB, as gzip {total(some) / 1e6:.1f}), "
        f"without the time that importing TensorFlow or Beam takes; ours on {many:,} ({raw / 1e6:,.0f} MB), "
        "the whole command. Memory grows with the data for theirs (the records, packed, and some 200 bytes "
        "beside each), and stays within the budget for ours.",
    )
    print()


def lines(home: Path, amount: int, turns: int) -> None:
    """Lines of text, and the same bytes as records."""
    pool = base64.b64encode(random.Random(1).randbytes(3 * MIB))
    draw = random.Random(2)

    def texts() -> list[bytes]:
        return [
            pool[at : at + draw.randint(LINE * 3 // 4, LINE * 5 // 4)]
            for at in (draw.randrange(3 * MIB) for _ in range(amount // LINE))
        ]

    home.mkdir(parents=True, exist_ok=True)
    some = texts()
    (home / "lines").write_bytes(b"\n".join(some) + b"\n")
    records = write(home / "lines.tfrecord", some)
    del some
    shutil.rmtree(home / ".croupier", ignore_errors=True)
    terashuf = home / "terashuf"
    source = HERE / "peers" / "terashuf.c"
    subprocess.run(["gcc", "-O3", "-march=native", str(source), "-o", str(terashuf)], check=True)
    out = home / "out"
    quarter = str(amount // 4 // MIB)
    warm([home / "lines", records])

    def piped(command: str, *arguments: Any) -> Callable[[], Job]:
        return partial(run, ["sh", "-c", command, *map(str, arguments)])

    text = str(home / "lines")
    sides = {
        "GNU shuf": piped('shuf "$0" > "$1" && sync "$1"', text, out / "shuf"),
        "terashuf, all in memory": piped(
            '"$2" "$3" "$4" < "$0" > "$1" && sync "$1"', text, out / "t", terashuf, 2 * amount // MIB, out
        ),
        "terashuf, a quarter": piped(
            '"$2" "$3" "$4" < "$0" > "$1" && sync "$1"', text, out / "t", terashuf, quarter, out
        ),
        "croupier": shuffle([records], out / "c"),
        "croupier, a quarter": shuffle([records], out / "c", "--memory", str(max(amount // 4, 110_000_000))),
    }
    jobs = race_jobs(sides, turns, partial(clear, out))
    rows = [
        [
            name,
            spread(walls(done)),
            spread(quotients(jobs["GNU shuf"], done)) + "x",
            spread(quotients(jobs["terashuf, a quarter"], done)) + "x",
            spread(cpus(done)),
            f"{max(job.memory for job in done) / MIB:,.0f}",
        ]
        for name, done in jobs.items()
    ]
    print(f"## Lines of {LINE:,} bytes, {amount / 1e9:.1f} GB, warm\n")
    table(["", "s", "as fast as shuf", "as fast as terashuf, a quarter", "CPU s", "memory, MiB"], rows)
    note(
        "The same bytes: base64 as lines, and as records of ours. 'A quarter': a budget of a quarter of the "
        "data. All flush their output to the device. Terashuf's method (runs shuffled in memory, merged with "
        "probability proportional to what is left) in C, one thread. shuf reads the whole file into memory."
    )


def main() -> None:
    options = begin("Shuffling against others", ("examples", "lines"))
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    home = folder()
    turns = 1 if options.quick else TURNS
    if options.only != "lines":
        examples(home / "dv", 2 if options.quick else FILES, 25 if options.quick else RECORDS, turns)
    if options.only != "examples":
        lines(home / "lines", LINES // 100 if options.quick else LINES, turns)


if __name__ == "__main__":
    main()
