"""Records in memory, as many as there is room for, and their order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from croupier import _kernel
from croupier.shuffling.load import Digests, Load
from croupier.table.packed import Integers, Octets, integers

PER_RECORD = 48
"""Bytes of memory beside a frame: its edge (twice, for a moment), its key, its place, and to sort these."""
DIGEST = 16
"""Bytes more for each record whose content decides its place."""
PER_PIECE = 24
"""Bytes for each piece of neighbours, where there are as many of them as records."""
_STEP = 1 << 20

Order = np.ndarray[tuple[int], np.dtype[np.intp]]


class Sorted(NamedTuple):
    """Frames in a buffer, and the order in which they leave it."""

    buffer: Octets
    bounds: Integers
    order: Order
    keys: Integers
    """Of frames as they stand."""
    starts: Integers
    """The first frame of each piece of neighbours, and which record it is."""
    files: Integers
    firsts: Integers
    parcels: Octets | None
    """Which frames are parcels (1) or stubs (2), where some may be: see `load`."""
    digests: Integers | None
    """Beside the key, what tells equal records from others, where that is asked for."""

    def whence(self, frames: Order) -> tuple[Integers, Integers]:
        """File and number of some of the frames."""
        return _whence(frames, self.starts, self.files, self.firsts)


def _whence(frames: Order, starts: Integers, files: Integers, firsts: Integers) -> tuple[Integers, Integers]:
    places = frames.view(np.uint64)
    piece = np.searchsorted(starts, places, side="right") - 1
    return files[piece], places - starts[piece] + firsts[piece]


Whence = Callable[[Order], tuple[Integers, Integers]]


def settle(order: Order, keys: Integers, whence: Whence) -> None:
    """Put records of equal keys, which are side by side in `order`, into that of their files and numbers.

    There is a pair of them once in 37 times among 10^9 records: so they are looked for afterwards.
    """
    for begin in range(0, len(order), _STEP):
        sorted_keys = keys[order[begin : begin + _STEP + 1]]
        last = begin
        for place in (begin + np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])).tolist():
            if place < last:
                continue
            last = place + 1
            while last < len(order) and keys[order[last]] == keys[order[place]]:
                last += 1
            group = order[place:last].copy()
            files, records = whence(group)
            order[place:last] = group[np.lexsort((records, files))]


class Run:
    """A buffer that fills up; any number of threads may add records at once."""

    def __init__(self, room: Octets, memory: int, most: int | None = None, *, extra: int = 0) -> None:
        """`memory` limits frames and what they cost besides (`extra` more each); only frames are in `room`.

        `most` limits their number.
        """
        self._room, self._memory, self._most, self._cost = room, memory, most, PER_RECORD + extra
        self._lock = threading.Lock()
        self.clear()

    @property
    def held(self) -> int:
        """Bytes of memory that its records take."""
        return self.bytes + self.records * self._cost + self._pieces * PER_PIECE

    def clear(self) -> None:
        """Begin anew."""
        self.bytes = self.records = self._pieces = 0
        self.full = False
        self._edges: list[Integers] = []
        self._sources: list[Integers] = []  # columns: first frame, file, first record
        self._parcels: list[tuple[int, Octets]] = []  # first frame, which ones are
        self._digests: list[Digests] = []

    def add(self, load: Load) -> int:
        """Copy some of its frames; gives how many."""
        bounds = load.bounds
        with self._lock:
            count = 0 if self.full else self._fitting(bounds)
            self.full |= count < len(load)
            if not count:
                return 0
            begin, source = self.bytes, int(bounds[0])
            size = int(bounds[count]) - source
            self._edges.append(bounds[:count] - bounds[0] + np.uint64(begin))
            self._sources.append(np.array([[self.records], [load.file], [load.record]], np.uint64))
            if load.parcels is not None:
                self._parcels.append((self.records, load.parcels[:count]))
            if load.digests is not None:
                self._digests.append(load.digests[:count])
            self.bytes += size
            self.records += count
        self._room[begin : begin + size] = np.frombuffer(load.buffer[source : source + size], np.uint8)
        return count

    def add_files(self, file: int, counts: Integers, buffer: memoryview, bounds: Integers) -> int:
        """Copy all records of some small files, so many of each, from `file` on; gives of how many files.

        An empty run that has no room for the first of them is not full: it may have room for a part.
        """
        ends = np.cumsum(counts)
        with self._lock:
            fitting = 0 if self.full else self._fitting(bounds, len(counts))
            files = int(np.searchsorted(ends, np.uint64(fitting), side="right"))
            count = int(ends[files - 1]) if files else 0
            self.full |= files < len(counts) and self.records + count > 0
            if not count:
                return files
            begin, source = self.bytes, int(bounds[0])
            size = int(bounds[count]) - source
            there = np.flatnonzero(counts[:files])
            starts = (ends - counts)[there] + np.uint64(self.records)
            numbers = there.astype(np.uint64) + np.uint64(file)
            self._edges.append(bounds[:count] - bounds[0] + np.uint64(begin))
            self._sources.append(np.stack([starts, numbers, np.zeros_like(starts)]))
            self._pieces += len(there)
            self.bytes += size
            self.records += count
        self._room[begin : begin + size] = np.frombuffer(buffer[source : source + size], np.uint8)
        return files

    def _fitting(self, bounds: Integers, pieces: int = 0) -> int:
        """How many of these frames there is room for."""
        sizes = bounds - bounds[0]
        costs = sizes + np.arange(len(bounds), dtype=np.uint64) * np.uint64(self._cost)
        left = self._memory - self.held - pieces * PER_PIECE
        by_memory = int(np.searchsorted(costs, np.uint64(max(left, 0)), side="right"))
        by_room = int(np.searchsorted(sizes, np.uint64(len(self._room) - self.bytes), side="right"))
        fitting = min(by_memory, by_room) - 1
        return fitting if self._most is None else min(fitting, self._most - self.records)

    def sort(self, seed: int) -> Sorted:
        """By key, then file, then record."""
        bounds = np.concatenate([*self._edges, np.array([self.bytes], np.uint64)])
        self._edges = []
        starts, files, firsts = np.concatenate([np.empty((3, 0), np.uint64), *self._sources], axis=1)
        digests = None
        if self._digests:
            both = np.concatenate(self._digests)
            keys, digests = both[:, 0].copy(), both[:, 1].copy()
            self._digests = []
        else:
            keys = integers(self.records)
            counts = np.append(starts[1:], np.uint64(self.records)) - starts
            _kernel.record_keys(seed, files, firsts, counts, keys)
        order = np.argsort(keys)  # with AVX-512 ten times as fast as a stable sort; `settle` does the rest
        settle(order, keys, lambda frames: _whence(frames, starts, files, firsts))
        parcels = np.zeros(self.records, np.uint8) if self._parcels else None
        for first, flags in self._parcels:
            if parcels is not None:
                parcels[first : first + len(flags)] = flags
        return Sorted(self._room, bounds, order, keys, starts, files, firsts, parcels, digests)
