"""A shuffle that is killed near its end, and what going on takes."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from common import begin, folder, note, say, spread, table
from jobs import CROUPIER, clear, run, warm
from shuffle import make
from shuffle_gzip import make_all, repeated

PLAIN = 4_000_000_000
BUDGET = 500_000_000
TIMES = 4
"""Each of DeepVariant's files: what takes a quarter of a minute is worth keeping."""
TURNS = 3
KILLED = 0.9
BAR = 25
"""Per cent of a whole run that going on may take."""


def killed(command: list[str], seconds: float) -> bool:
    """Whether it was still at work when it was killed."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def case(name: str, paths: list[Path], out: Path, flags: list[str], turns: int) -> list[str]:
    """A row: whole runs, and what is left when one was killed."""
    say(name)
    command = [*CROUPIER, "shuffle", *map(str, paths), str(out / "t"), "--json", *flags]
    whole, rest = [], []
    strategy = ""
    for turn in range(-1, turns):
        clear(out)
        warm(paths)
        job = run(command)
        strategy = job.json()["strategy"]
        expected = [(shard["name"], shard["file_bytes"]) for shard in job.json()["shards"]]
        clear(out)
        while not killed(command, KILLED * job.wall):  # done already: this time was a slow one
            clear(out)
        again = run([*command, "--resume"])
        receipt = json.loads(again.out)
        assert [(shard["name"], shard["file_bytes"]) for shard in receipt["shards"]] == expected
        if turn >= 0:
            whole.append(job.wall)
            rest.append(again.wall)
    shares = [100 * b / a for a, b in zip(whole, rest, strict=True)]
    mark = f"{BAR} %" + " !" * (statistics.median(shares) > BAR)
    return [name, strategy, spread(whole), spread(rest), f"**{spread(shares, 0)} %**", mark]


def main() -> None:
    options = begin("Going on with a shuffle that was killed")
    home = folder()
    out = home / "out"
    scale, turns = (0.1, 1) if options.quick else (1.0, TURNS)
    memory = max(int(BUDGET * scale), 110_000_000)
    rows = []
    plain = make(home / "plain", 1000, int(PLAIN * scale), memory // 2)
    flags = ["--memory", str(memory), "--strategy", "spill", "--shards", "16"]
    rows.append(case(f"1,000 B, {PLAIN * scale / 1e9:.1f} GB plain, by spilling", plain, out, flags, turns))
    shutil.rmtree(home / "plain")
    packed, raw = make_all(home / "gzip", 4 if options.quick else 16, 100 if options.quick else 800)
    name = f"DeepVariant's examples, {raw * TIMES / 1e9:.0f} GB as gzip, level 5"
    rows.append(case(name, repeated(packed, TIMES), out, ["--shards", "16"], turns))
    table(["", "strategy", "whole, s", "going on, s", "share", "bar"], rows)
    note(
        "Each is run once to its end, begun anew, killed (SIGKILL) after 90 % of that time, and gone on with "
        "by --resume, which includes starting Python and planning. Inputs warm, output on the device."
    )
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
