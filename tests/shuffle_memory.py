"""What a shuffle takes of memory: the command as a process of its own, watched, and limited where we may."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import croupier

MIB = 1 << 20
GROUPS = Path("/sys/fs/cgroup")


class Case(NamedTuple):
    """Data and a budget."""

    name: str
    budget: int
    sizes: tuple[int, int]
    """Smallest and largest payload."""
    amount: int
    flags: tuple[str, ...] = ()
    gzip: bool = False
    """Of the inputs."""
    even: bool = False
    """Records are mostly zeros."""

    @property
    def allowed(self):
        """Bytes that the process may take: the budget from 256 MiB up, and 64 MiB more below."""
        return self.budget + (64 * MIB if self.budget < 256 * MIB else 0)


SPILL = ("--strategy", "spill")  # what is in the page cache would be gathered there
QUICK = (
    Case("small records", 112 * MIB, (0, 600), 64 * MIB, SPILL),
    Case("records of all sizes, gzip", 112 * MIB, (1, 1 << 20), 120 * MIB, ("--level", "1"), gzip=True),
)
TO_GZIP = ("--compression", "gzip", "--level", "1")
FULL = (
    *(
        case
        for budget in (112 * MIB, 128 * MIB, 192 * MIB, 256 * MIB)
        for case in (
            Case("small records", budget, (0, 600), 20 * budget, SPILL),
            Case("records of all sizes", budget, (1, 2 << 20), 20 * budget, SPILL),
            Case("by number", budget, (0, 12_000), 20 * budget, ("--strategy", "gather")),
        )
    ),
    Case("10 million records of 1 byte", 128 * MIB, (1, 1), 10_000_000, SPILL),
    Case("10 million records of 1 byte", 256 * MIB, (1, 1), 10_000_000, SPILL),
    Case("100 KB to gzip", 128 * MIB, (100_000, 100_000), 20 * 128 * MIB, TO_GZIP),
    Case("100 KB to gzip", 256 * MIB, (100_000, 100_000), 20 * 256 * MIB, TO_GZIP),
    Case("small records, gzip to gzip", 256 * MIB, (0, 600), 8 * 256 * MIB, ("--level", "1"), gzip=True),
    Case("up to half the budget", 256 * MIB, (1, 128 * MIB), 20 * 256 * MIB),
    Case("up to half the budget", 512 * MIB, (1, 256 * MIB), 10 * 512 * MIB),
    *(
        Case(
            f"up to half the budget, {what}",
            budget,
            (1, budget // 2),
            4 * budget,
            flags,
            gzip=gzip,
            even=even,
        )
        for budget in (112 * MIB, 256 * MIB)
        for even in (False, True)
        for what, gzip, flags in (
            (f"spill, even {even}", False, SPILL),
            (f"to gzip, even {even}", False, TO_GZIP),
            (f"gzip to gzip, even {even}", True, ("--level", "1")),
            (f"gzip to plain, even {even}", True, ("--compression", "none")),
            (f"gzip to zlib, even {even}", True, ("--compression", "zlib", "--level", "1")),
        )
    ),
)
HALF = (
    Case("half, plain", 112 * MIB, (1, 56 * MIB), 100 * MIB, SPILL),
    Case("half, gzip, even", 112 * MIB, (1, 56 * MIB), 100 * MIB, ("--level", "1"), gzip=True, even=True),
    Case("half of 256", 256 * MIB, (1, 128 * MIB), 130 * MIB, TO_GZIP, even=True),
)


def make(folder, case):
    """Eight files. Sizes are spread evenly by their logarithms; both extremes are there."""
    low, high = case.sizes
    rng = random.Random(case.name)
    some = rng.randbytes(4 * MIB)
    if case.even:
        some = b"".join(some[at : at + 100] + bytes(8092) for at in range(0, 4 * MIB, 8192))
    pool = some * (high // (4 * MIB) + 2)
    view = memoryview(pool)
    each = case.amount // 8

    def payloads(number):
        left = each
        if number == 0:
            yield view[:low]
            yield view[:high]
            left -= high
        while left > 0:
            size = round((low + 1) * ((high + 1) / (low + 1)) ** rng.random()) - 1
            at = rng.randrange(4 * MIB)
            yield view[at : at + size]
            left -= size
        rng.seed(f"{case.name} {number}")

    folder.mkdir(parents=True)
    for number in range(8):
        suffix = ".gz" if case.gzip else ""
        with croupier.writer(folder / f"in-{number}.tfrecord{suffix}", level=1 if case.gzip else None) as out:
            out.write_many(payloads(number))
    shutil.rmtree(folder / ".croupier", ignore_errors=True)


class Used(NamedTuple):
    """How it went."""

    code: int
    peak: int
    """Of RssAnon and RssShmem, of the process and all that it started."""
    limited: bool
    out: str
    err: str

    @property
    def receipt(self):
        return json.loads(self.out)


def shuffle(inputs, prefix, case, *, limit):
    """Run the command; with `limit`, in a control group that must not take more than it may."""
    command = [
        sys.executable,
        "-m",
        "croupier",
        "shuffle",
        str(inputs),
        str(prefix),
        "--json",
        "--workers",
        "2",
    ]
    command += ["--memory", str(case.budget), *case.flags]
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(control_group(case.allowed)) if limit else None
        start = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")] if group else []
        process = stack.enter_context(
            subprocess.Popen([*start, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        peak, over = [0], threading.Event()

        def watch():
            while not over.wait(0.003):
                peak[0] = max(peak[0], sum(map(used, tree(process.pid))))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            out, err = process.communicate()
        finally:
            over.set()
            watcher.join()
    return Used(process.returncode, peak[0], group is not None, out, err)


def tree(root):
    """A process and all that descend from it."""
    found = [root]
    for pid in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def used(pid):
    """Bytes of anonymous and shared memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


@contextlib.contextmanager
def control_group(limit):
    """A folder of a new group with so much memory and no swap; None where none can be made."""
    old = (GROUPS / "memory").is_dir()
    group = (GROUPS / "memory" if old else GROUPS) / f"croupier-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        try:
            (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))
        except OSError:
            yield None
        else:
            yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def trial(folder, case):
    """(used, what is wrong) of one case."""
    make(folder / "in", case)
    try:
        done = shuffle(folder / "in", folder / "out" / "t", case, limit=True)
        complaints = []
        if done.code:
            complaints.append(f"ended with {done.code}: {done.err.strip()[-500:]}")
        if done.peak > case.allowed:
            complaints.append(f"took {done.peak / MIB:,.1f} MiB of {case.allowed / MIB:,.0f}")
        return done, [f"{case.name}, {case.budget // MIB} MiB: {text}" for text in complaints]
    finally:
        shutil.rmtree(folder)
