"""Small files read together, by the kernel: a million of one record each are a million times little work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from croupier import _kernel
from croupier.proof import Proof
from croupier.shuffling.run import Run
from croupier.table.packed import Integers, integers

FEW = 64
"""Files below which they are handled one by one."""
TOGETHER = 1024
"""Files that one thread reads one after the other."""
_ROOM = 1 << 20
"""For what is read of them at once, where the processor's cache still has it when it is copied."""
_NOT_TAKEN = np.uint64((1 << 64) - 1)


class Small(NamedTuple):
    """Some neighbouring files: what the system says of them, and the frames of those that could be taken."""

    size: Integers
    modified: Integers
    inode: Integers
    """Zero, as is `device`, where a file could not be opened."""
    device: Integers
    taken: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether a file is small, plain, whole and undamaged."""
    records: Integers
    buffer: memoryview
    bounds: Integers

    def proof(self, begin: int, end: int) -> Proof:
        """Of some of the frames."""
        totals = integers(4)
        _kernel.fingerprint(self.buffer, self.bounds[begin : end + 1], totals)
        return Proof.of(totals)


class SmallFiles:
    """Reads them, into memory that each thread uses again."""

    def __init__(self, limit: int) -> None:
        self._limit, self._own = limit, threading.local()

    def read(self, names: bytes) -> Iterator[Small]:
        """As many at a time as there is room for; each is valid until the next one is asked for."""
        if not hasattr(self._own, "room"):
            self._own.room = np.empty(_ROOM + _kernel.SURVEY_SMALL, np.uint8).data
        while names:
            columns, edges = _kernel.read_small(names, self._limit, self._own.room)
            size, modified, inode, device, records = np.frombuffer(columns, np.uint64).reshape(5, -1)
            taken = records != _NOT_TAKEN
            records, count = np.where(taken, records, np.uint64(0)), len(records)
            bounds = np.frombuffer(edges, np.uint64)
            yield Small(size, modified, inode, device, taken, records, self._own.room, bounds)
            names = names.split(b"\0", count)[count]


class Kept(NamedTuple):
    """All records of all files, which were read when they were looked at."""

    run: Run
    came: Proof
