"""A run: as many records as memory holds, and the order of their keys.

Frames are copied into one buffer as they come, from several files at once. What tells a record's key is its
file and its number, and those are kept for each piece of neighbours only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from croupier import _kernel
from croupier.frames import Block
from croupier.table.packed import Integers, Octets, integers

PER_RECORD = 48
"""Bytes of memory beside a frame: its edge (twice, for a moment), its key, its place, and to sort these."""
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
        for place in (begin + np.flatnonzero(sorted_keys[1:] == sorted_keys[:-1])).tolist():
            end = place + 1
            while end < len(order) and keys[order[end]] == keys[order[place]]:
                end += 1
            group = order[place:end].copy()
            files, records = whence(group)
            order[place:end] = group[np.lexsort((records, files))]


class Run:
    """A buffer that fills up; any number of threads may add blocks at once."""

    def __init__(self, room: Octets, memory: int) -> None:
        """`memory` limits frames and what they cost besides; only the frames are in `room`."""
        self._room, self._memory = room, memory
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.bytes = self.records = 0
        self.full = False
        self._edges: list[Integers] = []
        self._sources: list[tuple[int, int, int]] = []  # first frame, file, first record

    def add(self, file: int, block: Block, skip: int) -> int:
        """Copy a block's frames but the first `skip`; gives how many of the block's are in, now."""
        bounds = block.bounds[skip:]
        with self._lock:
            count = 0 if self.full else self._fitting(bounds)
            self.full |= count < len(bounds) - 1
            if not count:
                return skip
            begin, source = self.bytes, int(bounds[0])
            size = int(bounds[count]) - source
            self._edges.append(bounds[:count] - bounds[0] + np.uint64(begin))
            self._sources.append((self.records, file, block.record + skip))
            self.bytes += size
            self.records += count
        self._room[begin : begin + size] = np.frombuffer(block.buffer[source : source + size], np.uint8)
        return skip + count

    def _fitting(self, bounds: Integers) -> int:
        """How many of these frames there is room for."""
        sizes = bounds - bounds[0]
        costs = sizes + np.arange(len(bounds), dtype=np.uint64) * np.uint64(PER_RECORD)
        left = self._memory - self.bytes - self.records * PER_RECORD
        by_memory = np.searchsorted(costs, np.uint64(max(left, 0)), side="right")
        by_room = np.searchsorted(sizes, np.uint64(len(self._room) - self.bytes), side="right")
        return int(min(by_memory, by_room)) - 1

    def sort(self, seed: int) -> Sorted:
        """By key, then file, then record."""
        bounds = np.concatenate([*self._edges, np.array([self.bytes], np.uint64)])
        self._edges = []
        starts, files, firsts = np.array(self._sources, np.uint64).reshape(-1, 3).T.copy()
        keys = integers(self.records)
        counts = np.append(starts[1:], np.uint64(self.records)) - starts
        _kernel.record_keys(seed, files, firsts, counts, keys)
        order = np.argsort(keys, kind="stable")
        settle(order, keys, lambda frames: _whence(frames, starts, files, firsts))
        return Sorted(self._room, bounds, order, keys, starts, files, firsts)
