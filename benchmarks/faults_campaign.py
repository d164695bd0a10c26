"""Every fault at every call of the atomic writer, and 200 faults on top of faults: results/faults.md.

python benchmarks/faults_campaign.py [results/faults.md]

Exits with 1 when a file was torn or anything else went wrong.
"""

import os
import platform
import queue
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import faults

COMPOUND = 200
TEXT = {
    "replace": "`write_file` replaces a file",
    "plain": "`writer`, one new file",
    "gzip": "`writer`, 3 new shards, gzip, 3 MB",
    "overwrite": "`writer`, 3 shards over 3 old ones",
    "compound": "a second fault in the next writer",
}


def compound_cases(lab):
    """A fault, then one in the writer that comes after it; the same choice every time."""
    rng = random.Random(2026)
    quiet = ("short", "eintr")
    modes = [mode for mode in faults.MODES if mode not in quiet]
    while True:
        scenario = faults.SCENARIOS[rng.choice(list(faults.SCENARIOS))]
        model = lab.model(scenario)
        mode, then = rng.choice(modes), rng.choice(modes)
        at = rng.choice(model.cases(mode))
        if mode in ("sigint", "enospc-once", "eio-once") and at < model.turn:
            continue  # the second writer would begin from nothing, as in all other cases
        yield scenario, at, mode, [(rng.randint(1, len(model.trace)), then)]


def main():
    """Run all, print one table."""
    began = time.monotonic()
    labs = [faults.Lab() for _ in range(len(os.sched_getaffinity(0)))]
    free = queue.SimpleQueue()
    for lab in labs:
        free.put(lab)

    def trial(case):
        lab = free.get()
        try:
            return lab.trial(*case)
        finally:
            free.put(lab)

    cases = {
        name: [
            (scenario, at, mode, ()) for mode in faults.MODES for at in labs[0].model(scenario).cases(mode)
        ]
        for name, scenario in faults.SCENARIOS.items()
    }
    source = compound_cases(labs[0])
    cases["compound"] = [next(source) for _ in range(COMPOUND)]
    rows, complaints = [], []
    try:
        with ThreadPoolExecutor(len(labs)) as pool:
            for name, some in cases.items():
                trials = list(pool.map(trial, some))
                calls = len(labs[0].model(faults.SCENARIOS[name]).trace) if name in faults.SCENARIOS else ""
                torn = sum(item.torn for item in trials)
                wrong = sum(bool(item.complaints) and not item.torn for item in trials)
                rows.append((TEXT[name], calls, len(trials), torn, wrong))
                complaints += [f"{name}: {text}" for item in trials for text in item.complaints]
    finally:
        for lab in labs:
            lab.close()
    table = report(rows, time.monotonic() - began)
    print(table, end="")
    print("\n".join(complaints), file=sys.stderr)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table)
    sys.exit(bool(complaints))


HEAD = """# The atomic writer under faults

In each case one call of the process that writes goes wrong: it is killed before the call, after it, or
half-way through a write; the call is refused with ENOSPC or EIO, once or from then on; a write is short; a
call says EINTR; the user presses Ctrl-C. What is left is compared byte by byte with the old and new files,
then the same writer runs again and must end well.

Torn: a file or a receipt that is neither old nor new. Wrong: a set of two halves, success with something
missing, an error that does not say which file and why, something left over after the next writer.

| scenario | calls | cases | torn | wrong outcome |
|---|---:|---:|---:|---:|
"""


def report(rows, seconds):
    """Markdown."""
    total = ("**all**", "", *(sum(row[i] for row in rows) for i in (2, 3, 4)))
    lines = [
        f"| {text} | {calls} | {n:,} | {torn} | {wrong} |\n" for text, calls, n, torn, wrong in [*rows, total]
    ]
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    cores = len(os.sched_getaffinity(0))
    return f"{HEAD}{''.join(lines)}\n`make campaign`: {seconds:.0f} s on {cores} cores, {where}.\n"


if __name__ == "__main__":
    main()
