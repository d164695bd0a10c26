"""Runs become one order: a range of keys at a time, as large as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from croupier import _kernel
from croupier.proof import Proof
from croupier.rooms import Rooms
from croupier.runtime import Runtime
from croupier.shuffling.equal import without_equals
from croupier.shuffling.run import Order, Sorted, settle
from croupier.shuffling.spill import Line, Records
from croupier.table.packed import Integers, Octets, integers

PER_RECORD = 112
"""Bytes of memory beside a frame: four numbers in its block, the same put together, and to sort them."""
_MOST = 64 << 20
"""Bytes of a range, however much memory there is: to touch more for the first time costs too much."""
_END = (1 << 64) - 1


class Ordered(NamedTuple):
    """Frames in a buffer, and the order in which they leave it."""

    buffer: Octets
    bounds: Integers
    order: Order
    keys: Integers
    """Of frames as they stand."""
    parcels: Octets | None
    dropped: Proof = Proof()
    """Of records that are equal to others, where they are sought."""


class Source(Protocol):
    """A run, wherever it is: blocks in the order of their keys."""

    lines: list[Line]
    digests: bool
    """Whether equal records are sought."""

    def read(self, line: Line) -> Records:
        """A block; on any thread."""


class Resident:
    """A sorted run that stays in memory, as if it were spilled: its blocks are `step` records."""

    def __init__(self, run: Sorted, step: int) -> None:
        self._run = run
        self.digests = run.digests is not None
        self.lines = list(self._lines(step))

    def _lines(self, step: int) -> Iterator[Line]:
        run = self._run
        for begin in range(0, len(run.order), step):
            frames = run.order[begin : begin + step]
            places = frames.view(np.uint64)
            size = int((run.bounds[places + np.uint64(1)] - run.bounds[places]).sum())
            first, last = int(run.keys[frames[0]]), int(run.keys[frames[-1]])
            yield Line(begin, len(frames), 0, size, len(frames), 0, first, last)

    def read(self, line: Line) -> Records:
        """A block; on any thread."""
        run = self._run
        frames = run.order[line.offset : line.offset + line.stored]
        bounds = integers(len(frames) + 1)
        room = np.empty(line.size, np.uint8)
        _kernel.gather(run.buffer, run.bounds, frames.view(np.uint64), room, bounds, 1)
        parcels = np.zeros(len(frames), np.uint8) if run.parcels is None else run.parcels[frames]
        digests = integers(0) if run.digests is None else run.digests[frames]
        return Records(room, bounds, run.keys[frames], *run.whence(frames), parcels, digests)


class _Cursor:
    """A run, as far as it was read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._next = 0
        self._parts: list[Records] = []

    def skip(self, key: int) -> int:
        """Pass over records with smaller keys; gives how many."""
        lines, passed = self.source.lines, 0
        while self._next < len(lines) and lines[self._next].last < key:
            passed += lines[self._next].records
            self._next += 1
        if self._next < len(lines) and lines[self._next].first < key:
            block = self.source.read(lines[self._next])
            count = int(np.searchsorted(block.keys, np.uint64(key)))
            self._parts.append(block.part(count, len(block.keys)))
            self._next += 1
            passed += count
        return passed

    def wanted(self, last: int) -> list[tuple[_Cursor, Line]]:
        """Blocks to be read that hold keys up to `last`."""
        begin, lines = self._next, self.source.lines
        while self._next < len(lines) and lines[self._next].first <= last:
            self._next += 1
        return [(self, line) for line in lines[begin : self._next]]

    def accept(self, block: Records) -> None:
        """The next block of those."""
        self._parts.append(block)

    def take(self, last: int) -> list[Records]:
        """All records that were read and have keys up to `last`."""
        parts, self._parts = self._parts, []
        if parts:
            end = parts[-1]
            count = int(np.searchsorted(end.keys, np.uint64(last), side="right"))
            if count < len(end.keys):
                parts[-1], self._parts = end.part(0, count), [end.part(count, len(end.keys))]
        return [part for part in parts if len(part.keys)]


class Merge:
    """Of several runs."""

    def __init__(
        self, sources: Sequence[Source], memory: int, runtime: Runtime, most: int | None = None
    ) -> None:
        """`most`: records in memory at once."""
        self._sources, self._memory, self._runtime, self._most = sources, memory, runtime, most

    def count(self) -> tuple[int, Proof]:
        """How many records there will be, and the proof of those that are equal to others."""
        if not any(one.digests for one in self._sources):
            return sum(line.records for one in self._sources for line in one.lines), Proof()
        count, dropped = 0, Proof()
        for part in self.ordered():
            count, dropped = count + len(part.order), dropped.plus(part.dropped)
        return count, dropped

    def ordered(self, key: int = 0, rank: int = 0) -> Iterator[Ordered]:
        """All in the order of key, file and record; while one part is used, the next is read.

        From `rank` on, where it is known that the record there has that key.
        """
        largest = max((line.size for one in self._sources for line in one.lines), default=0)
        if 3 * largest > self._memory:
            return self._parts(key, rank, self._memory // 2)
        return self._runtime.ahead(self._parts(key, rank, min(self._memory // 3, _MOST)))

    def _parts(self, key: int, rank: int, memory: int) -> Iterator[Ordered]:
        """Two are in memory, or one: one of them in its blocks and put together."""
        cursors = [_Cursor(source) for source in self._sources]
        behind = rank - sum(cursor.skip(key) for cursor in cursors)
        rooms = Rooms(2)
        for last in self._ranges(key, memory):
            wanted = [one for cursor in cursors for one in cursor.wanted(last)]
            for cursor, block in self._runtime.map(_read, wanted):
                cursor.accept(block)
            parts = [part for cursor in cursors for part in cursor.take(last)]
            size = sum(len(part.frames) for part in parts)
            if parts:
                part = _put_together(parts, rooms.take(size + size // 8))
                del parts
                yield part._replace(order=part.order[behind:])
                behind = max(behind - len(part.order), 0)
                del part

    def _ranges(self, key: int, memory: int) -> Iterator[int]:
        """The last key of each range of so many bytes."""
        lines = sorted(
            (line.last, line.size + PER_RECORD * line.records, line.records)
            for one in self._sources
            for line in one.lines
            if line.last >= key
        )
        taken = records = 0
        for last, cost, count in lines:
            taken, records = taken + cost, records + count
            if taken > memory or (self._most is not None and records > self._most // 2):
                yield last
                taken = records = 0
        if taken:
            yield _END


def _read(wanted: tuple[_Cursor, Line]) -> tuple[_Cursor, Records]:
    cursor, line = wanted
    return cursor, cursor.source.read(line)


def _put_together(parts: list[Records], room: Octets) -> Ordered:
    bounds, at = [], 0
    for part in parts:
        size = len(part.frames)
        room[at : at + size] = part.frames
        bounds.append(part.bounds[:-1] + np.uint64(at))
        at += size
    edges = np.concatenate([*bounds, np.array([at], np.uint64)])
    keys, files, records, parcels, digests = (
        np.concatenate(column) for column in list(zip(*parts, strict=True))[2:]
    )
    order = np.argsort(keys)
    settle(order, keys, lambda frames: (files[frames], records[frames]))
    flags, dropped = parcels if parcels.any() else None, Proof()
    if len(digests):
        order, dropped = without_equals(room, edges, order, keys, digests, flags)
    return Ordered(room, edges, order, keys, flags, dropped)
