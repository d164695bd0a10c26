"""Whole jobs as processes of their own: time, processor time, and the memory of all that they start."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from common import bare

CROUPIER = [sys.executable, "-m", "croupier"]


class Job(NamedTuple):
    """How one went."""

    wall: float
    cpu: float
    memory: int
    """Most bytes of anonymous and shared memory, of the whole process tree."""
    out: str

    def json(self) -> Any:
        """What it printed."""
        return json.loads(self.out)


def run(command: Sequence[str | os.PathLike[str]], *, cwd: Path | None = None) -> Job:
    """Run a command to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [os.fspath(part) for part in command], stdout=subprocess.PIPE, text=True, cwd=cwd
    )
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.02):
            peak = max(peak, sum(map(_memory, tree(process.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert process.stdout
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    finally:
        process.returncode = 0
        over.set()
        watcher.join()
    if status:
        raise SystemExit(f"{' '.join(map(str, command))}: ended with {os.waitstatus_to_exitcode(status)}")
    return Job(wall, usage.ru_utime + usage.ru_stime, peak, out)


def tree(root: int) -> list[int]:
    """A process and all that descend from it."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:  # gone
            continue
    return found


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))


def race_jobs(
    contestants: dict[str, Callable[[], Job]],
    repeats: int,
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[Job]]:
    """All in turn, A B C A B C ..., after a turn that does not count."""
    jobs: dict[str, list[Job]] = {name: [] for name in contestants}
    for turn in range(-1, repeats):
        for name, contestant in contestants.items():
            before()
            job = contestant()
            if turn >= 0:
                jobs[name].append(job)
    return jobs


def cpus(jobs: Iterable[Job]) -> list[float]:
    """Of the processor."""
    return [job.cpu for job in jobs]


def quotients(ours: Iterable[Job], theirs: Iterable[Job]) -> list[float]:
    """Time by time, turn by turn."""
    return [a.wall / b.wall for a, b in zip(ours, theirs, strict=True)]


def shuffle(inputs: Iterable[Path | str], prefix: Path, *flags: str) -> Callable[[], Job]:
    """Our command."""
    return partial(run, [*CROUPIER, "shuffle", *map(str, inputs), str(prefix), "--json", *flags])


def total(paths: Iterable[Path]) -> int:
    """Bytes of these files."""
    return sum(path.stat().st_size for path in paths)


def walls(jobs: Iterable[Job]) -> list[float]:
    """By the clock."""
    return [job.wall for job in jobs]


def timed(function: Callable[[], object]) -> Job:
    """Something in this process, as if it were a job."""
    cpu, wall = time.process_time(), time.perf_counter()
    function()
    return Job(time.perf_counter() - wall, time.process_time() - cpu, 0, "")


def clear(folder: Path) -> None:
    """Empty a folder, and wait until the device has heard of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()


def cool(paths: Iterable[Path]) -> None:
    """Let the page cache forget these files."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm(paths: Iterable[Path]) -> None:
    """Let it know them."""
    buffer = bytearray(4 << 20)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


class Passes:
    """What a bare C loop needs to read so many bytes and write so many."""

    def __init__(self, threads: int) -> None:
        self._library, self._threads = bare(), threads

    def __call__(self, paths: Sequence[Path], out: Path, written: int, *, direct: bool) -> list[Path]:
        """One pass from these files to new ones."""
        names = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
        starts = [0]
        for path in paths:
            starts.append(starts[-1] + path.stat().st_size)
        edges = (ctypes.c_size_t * len(starts))(*starts)
        moved = self._library.one_pass(
            names, edges, len(paths), os.fsencode(out), written, self._threads, direct
        )
        if moved < 0.99 * (starts[-1] + written):
            raise SystemExit(f"{out}: only {moved:,} bytes moved")
        return [Path(f"{out}.{number}") for number in range(self._threads)]
