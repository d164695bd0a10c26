"""Every fault at every call of a shuffle, and 200 shuffles killed again and again: results/shuffle_faults.md.

python benchmarks/shuffle_faults_campaign.py [results/shuffle_faults.md [CASES]]

CASES limits how many of each scenario and fault are tried. Exits with 1 when anything was torn or wrong.
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
import shuffle_faults

AGAIN = 200
HEAD = """# Shuffles under faults

In each case one file call of a shuffle goes wrong: the process is killed before it, after it, or half-way
through a write; the call is refused with ENOSPC or EIO, once or from then on; a write is short; a call says
EINTR; the user presses Ctrl-C. Inputs, output and temporary folder are all watched. What is visible then is
compared byte by byte with an undisturbed run's, and the shuffle runs again, with `--resume` or without, and
must make the same bytes and leave nothing else.

Torn: a visible file, or a receipt, that an undisturbed run would not have made; a part of a set. Wrong: other
bytes afterwards, success with something missing, an error that does not say which file and why, anything left
over.

| scenario | calls | cases | torn | wrong |
|---|---:|---:|---:|---:|
"""


def cases_of(ruin, scenario, most):
    """(call, fault, resume, more faults) of each case."""
    rng = random.Random(scenario.name)
    for mode in faults.MODES:
        cases = ruin.cases(scenario, mode)
        for at in sorted(rng.sample(cases, min(most, len(cases)))):
            yield at, mode, rng.random() < 0.7, ()


def killed_again(ruin, scenario, count):
    """Four times in a row, anywhere."""
    rng = random.Random(f"{scenario.name} again")
    calls = len(ruin.clean(scenario)[0])
    kills = ("kill-before", "kill-amid", "kill-after")
    for _ in range(count):
        again = [(rng.randrange(1, calls), rng.choice(kills)) for _ in range(3)]
        yield rng.randrange(1, calls), "kill-after", True, again


def main():
    """Run all, print one table."""
    began = time.monotonic()
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 20
    labs = [shuffle_faults.Ruin() for _ in range(len(os.sched_getaffinity(0)))]
    free = queue.SimpleQueue()
    for lab in labs:
        free.put(lab)

    def trial(case):
        scenario, (at, mode, resume, again) = case
        lab = free.get()
        try:
            return lab.trial(scenario, at, mode, resume=resume, again=again)
        finally:
            free.put(lab)

    rows, complaints = [], []
    try:
        with ThreadPoolExecutor(len(labs)) as pool:
            for scenario in shuffle_faults.SCENARIOS.values():
                each = AGAIN // len(shuffle_faults.SCENARIOS)
                for what, cases in (
                    ("", list(cases_of(labs[0], scenario, most))),
                    (", killed 4 times", list(killed_again(labs[0], scenario, min(each, most)))),
                ):
                    trials = list(pool.map(trial, [(scenario, case) for case in cases]))
                    torn = sum(one.torn for one in trials)
                    wrong = sum(bool(one.complaints) and not one.torn for one in trials)
                    calls = "" if what else len(labs[0].clean(scenario)[0])
                    rows.append((scenario.name + what, calls, len(trials), torn, wrong))
                    print(rows[-1], file=sys.stderr, flush=True)
                    complaints += [text for one in trials for text in one.complaints]
    finally:
        for lab in labs:
            lab.close()
    table = report(rows, time.monotonic() - began, most)
    print(table, end="")
    print("\n".join(complaints), file=sys.stderr)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table)
    sys.exit(bool(complaints))


def report(rows, seconds, most):
    """Markdown."""
    sample = f"A sample: at most {most} calls of each scenario and fault. " if most < 1 << 20 else ""
    total = ("**all**", "", *(sum(row[i] for row in rows) for i in (2, 3, 4)))
    lines = [
        f"| {name} | {calls} | {n:,} | {torn} | {wrong} |\n" for name, calls, n, torn, wrong in [*rows, total]
    ]
    where = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return (
        f"{HEAD}{''.join(lines)}\n{sample}{seconds:.0f} s on {len(os.sched_getaffinity(0))} cores, {where}.\n"
    )


if __name__ == "__main__":
    main()
