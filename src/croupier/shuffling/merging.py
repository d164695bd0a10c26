"""Spilled runs become one order again: a range of keys at a time, as large as memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from croupier.runtime import Runtime
from croupier.shuffling.run import Order, settle
from croupier.shuffling.spill import Line, Records, Spill
from croupier.table.packed import Integers, Octets

PER_RECORD = 112
"""Bytes of memory beside a frame: four numbers in its block, the same put together, and to sort them."""


class Ordered(NamedTuple):
    """Frames in a buffer, and the order in which they leave it."""

    buffer: Octets
    bounds: Integers
    order: Order


class _Cursor:
    """A spilled run, as far as it was read."""

    def __init__(self, spill: Spill) -> None:
        self.spill = spill
        self._next = 0
        self._parts: list[Records] = []

    def wanted(self, last: int) -> list[tuple[_Cursor, Line]]:
        """Blocks to be read that hold keys up to `last`."""
        begin, lines = self._next, self.spill.lines
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


def merge(spills: Sequence[Spill], memory: int, runtime: Runtime) -> Iterator[Ordered]:
    """All records in the order of key, file and record; each is valid until the next one is asked for."""
    cursors = [_Cursor(spill) for spill in spills]
    room = np.empty(0, np.uint8)
    for last in _ranges(spills, memory):
        wanted = [one for cursor in cursors for one in cursor.wanted(last)]
        for cursor, block in runtime.map(_read, wanted):
            cursor.accept(block)
        parts = [part for cursor in cursors for part in cursor.take(last)]
        size = sum(len(part.frames) for part in parts)
        if size > len(room):
            room = np.empty(size + size // 8, np.uint8)
        if parts:
            ordered = _put_together(parts, room)
            del parts
            yield ordered


def _read(wanted: tuple[_Cursor, Line]) -> tuple[_Cursor, Records]:
    cursor, line = wanted
    return cursor, cursor.spill.read(line)


def _ranges(spills: Sequence[Spill], memory: int) -> Iterator[int]:
    """The last key of each range. Its frames are in memory twice: in their blocks, and put together."""
    lines = sorted((line.last, 2 * line.size + PER_RECORD * line.records) for s in spills for line in s.lines)
    taken = 0
    for last, cost in lines:
        taken += cost
        if taken > memory:
            yield last
            taken = 0
    if taken:
        yield (1 << 64) - 1


def _put_together(parts: list[Records], room: Octets) -> Ordered:
    bounds, at = [], 0
    for part in parts:
        size = len(part.frames)
        room[at : at + size] = part.frames
        bounds.append(part.bounds[:-1] + np.uint64(at))
        at += size
    edges = np.concatenate([*bounds, np.array([at], np.uint64)])
    keys, files, records = (np.concatenate(column) for column in list(zip(*parts, strict=True))[2:])
    order = np.argsort(keys, kind="stable")
    settle(order, keys, lambda frames: (files[frames], records[frames]))
    return Ordered(room, edges, order)
