"""How fast devices are past the page cache: measured in about a second, and remembered for days."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import math
import mmap
import os
import platform
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from croupier import storage
from croupier.direct import Direct
from croupier.errors import CroupierError
from croupier.output import DIRECT_FROM

CHUNK = 1 << 20
RANDOM = 1 << 16
"""Bytes of a random read: from here on a device's speed is no longer that of single requests."""
DEPTH = 16
"""Random reads under way at a time."""
_MOST = 1 << 29
_WRITING, _READING, _SEEKING = 0.35, 0.25, 0.15
"""Seconds for each; a single request that takes longer is waited for."""
_REMEMBERED = 3 * 24 * 3600
_O_DIRECT = getattr(os, "O_DIRECT", 0)  # macOS has none
_PLACES = 64


@dataclass(frozen=True)
class Device:
    """Sequential bytes a second each way, and reads of 64 KiB a second at random, 16 under way."""

    read: float
    write: float
    random: float


def device(folder: str, *, measure: bool = True) -> Device | None:
    """The device that a folder is on; None where nothing can be written to it, or, without `measure`, where
    nothing is remembered."""
    with contextlib.suppress(OSError, CroupierError):
        number = os.stat(folder).st_dev
        known = _recall(number)
        if known is not None or not measure:
            return known
        known = _measure(folder)
        with contextlib.suppress(CroupierError):  # a cache folder that cannot be written
            _remember(number, known)
        return known
    return None


# What is remembered


def _machine() -> str:
    """Homes, and so cache folders, can be those of many machines."""
    with contextlib.suppress(OSError):
        return platform.node() + Path("/etc/machine-id").read_text()
    return platform.node()


def _place(number: int) -> tuple[str, str]:
    """Where a device's figures are kept, and whose they are."""
    owner = hashlib.sha256(f"{_machine()} {number}".encode()).hexdigest()[:32]
    return os.path.join(storage.cache_folder(), "devices", f"{owner}.json"), owner


def _recall(number: int) -> Device | None:
    """None for what is missing, old, damaged or another's."""
    path, owner = _place(number)
    with contextlib.suppress(CroupierError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        kept = json.loads(storage.read_small(path, 4096))
        age = time.time() - kept["measured"]
        found = Device(*(float(kept[name]) for name in ("read", "write", "random")))
        sane = all(math.isfinite(value) and value > 0 for value in asdict(found).values())
        if kept["owner"] == owner and sane and 0 <= age < _REMEMBERED:
            return found
    return None


def _remember(number: int, found: Device) -> None:
    path, owner = _place(number)
    storage.make_folder(os.path.dirname(path))
    content = {"owner": owner, "measured": time.time(), **asdict(found)}
    storage.write_file(path, json.dumps(content).encode())


# Measuring


def _measure(folder: str) -> Device:
    """With a temporary file that has no name, as those of the shuffle."""
    fd, path = tempfile.mkstemp(prefix=".croupier-", suffix=".probe", dir=folder)
    try:
        os.unlink(path)
        size, write = _write(fd, min(_MOST, shutil.disk_usage(folder).free // 10))
        _bypass(fd, size)
        chunks = range(0, size - CHUNK + 1, CHUNK)
        read = _read(fd, CHUNK, itertools.cycle(chunks), 4, _READING)
        places = random.Random(0)  # noqa: S311 - no secret
        anywhere = iter(lambda: places.randrange(size // RANDOM) * RANDOM, -1)
        return Device(read * CHUNK, write, _read(fd, RANDOM, anywhere, DEPTH, _SEEKING))
    finally:
        storage.close(fd)


def _write(fd: int, most: int) -> tuple[int, float]:
    """Bytes that were written, and how many a second, with the flush."""
    piece = memoryview(os.urandom(4 * CHUNK))  # some devices compress
    direct = Direct(fd)
    size, began = 0, time.monotonic()
    while not size or (size < most and time.monotonic() - began < _WRITING):
        direct.write(piece)
        size += len(piece)
    direct.finish()
    os.fsync(fd)
    return size, size / (time.monotonic() - began)


def _bypass(fd: int, size: int) -> None:
    """Make reads come from the device: past the cache, or from one that was told to forget."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | _O_DIRECT)
    if hasattr(fcntl, "F_NOCACHE"):  # macOS
        fcntl.fcntl(fd, fcntl.F_NOCACHE, 1)
    try:
        with mmap.mmap(-1, RANDOM) as buffer:
            os.preadv(fd, [buffer], 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~_O_DIRECT)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, size, os.POSIX_FADV_DONTNEED)


def _read(fd: int, size: int, offsets: Iterator[int], depth: int, seconds: float) -> float:
    """Reads of `size` bytes a second, `depth` at a time; at least one."""
    lock, done, failures = threading.Lock(), [0], list[OSError]()
    began = time.monotonic()

    def work() -> None:
        with mmap.mmap(-1, size) as buffer:
            while not failures and (time.monotonic() - began < seconds):
                with lock:
                    offset = next(offsets)
                try:
                    os.preadv(fd, [buffer], offset)
                except OSError as error:
                    failures.append(error)
                    return
                with lock:
                    done[0] += 1

    _together(work, depth)
    if failures:
        raise failures[0]
    return max(done[0], 1) / (time.monotonic() - began)


def _together(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# The page cache


def cached(files: Iterable[tuple[str, int]]) -> float:
    """Which share of files (path, size) the page cache holds, from places all over them; 0 if unknown."""
    listed = [(path, size) for path, size in files if size]
    if not hasattr(os, "RWF_NOWAIT") or not listed:
        return 0.0
    places = list(_spread(listed))
    return sum(_is_cached(path, offset) for path, offset in places) / len(places)


def better_past_cache(files: Sequence[tuple[str, int]]) -> bool:
    """Whether files (path, size) that are read once had better not go by way of the page cache."""
    return sum(size for _, size in files) >= DIRECT_FROM and cached(files) < 0.5


def _spread(files: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Evenly over all bytes, and others each time: looking at a page brings it into the cache."""
    ends = list(itertools.accumulate(size for _, size in files))
    number = 0
    for place in range(_PLACES):
        at = int((place + random.random()) * ends[-1] / _PLACES)  # noqa: S311 - no secret
        while ends[number] <= at:
            number += 1
        yield files[number][0], at - (ends[number] - files[number][1])


def _is_cached(path: str, offset: int) -> bool:
    """A read that may not wait for a device finds nothing when it would have to."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # or the attempt would read ahead
            return os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
        finally:
            os.close(fd)
    return False
