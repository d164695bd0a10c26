"""Memory that shuffles take: the full cases of tests/test_shuffle_bounded.py."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from common import begin, note, say, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import shuffle_memory
from shuffle_memory import MIB


def main() -> None:
    options = begin("Memory that shuffles take")
    rows, complaints = [], []
    limited = True
    for case in shuffle_memory.QUICK if options.quick else shuffle_memory.FULL:
        say(f"{case.name}, {case.budget // MIB} MiB")
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="croupier-bench-") as home:
            done, wrong = shuffle_memory.trial(Path(home) / "case", case)
        complaints += wrong
        limited &= done.limited
        receipt = {} if done.code else done.receipt
        rows.append(
            [
                case.name,
                f"{case.budget / MIB:,.0f}",
                f"{case.amount / case.budget:.1f}x",
                str(receipt.get("strategy", "")),
                f"{done.peak / MIB:,.0f}",
                f"{case.allowed / MIB:,.0f}",
                "yes" if not wrong else "**no**",
                f"{receipt.get('seconds', 0):.0f}",
            ]
        )
        say(f"{rows[-1]}, {time.monotonic() - began:.0f} s with making the data")
    table(["records", "budget, MiB", "data", "strategy", "peak, MiB", "allowed, MiB", "within", "s"], rows)
    note(
        "Anonymous and shared memory of the whole process tree, looked at every 3 ms. Two workers. "
        + ("Each ran in a control group with the allowed bytes as its limit, and lived." if limited else
           "No control group could be set here."),
        *complaints,
    )  # fmt: skip
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
