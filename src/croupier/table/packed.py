"""Long sequences of unsigned numbers in few bits, with access to any of them: see kernel/packed.h."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from croupier import _kernel

BLOCK = 64

Integers = np.ndarray[tuple[int], np.dtype[np.uint64]]
Octets = np.ndarray[tuple[int], np.dtype[np.uint8]]
Rows = np.ndarray[tuple[int], np.dtype[np.intp]]


def integers(count: int) -> Integers:
    """Zeros."""
    return np.zeros(count, np.uint64)


def distinct(values: Integers, below: int) -> tuple[Integers, Rows]:
    """The values that come up, ascending, and which of these each one is.

    Not numpy.unique: that imports numpy.ma when it is first called, and a fork meanwhile leaves the child
    with an import that never ends; and for 4,096 of 1,000 values it takes six times as long.
    """
    if below <= 4 * len(values):
        seen = np.zeros(below, np.bool_)
        seen[values] = True
        return np.flatnonzero(seen).astype(np.uint64), (np.cumsum(seen) - 1)[values]
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.concatenate([np.ones(min(len(values), 1), np.bool_), ordered[1:] != ordered[:-1]])
    which = np.empty(len(values), np.intp)
    which[order] = np.cumsum(new) - 1
    return ordered[new], which


class Packed(NamedTuple):
    """As the kernel wants it; made by `open_packed` alone, which checks it."""

    size: int
    """How many numbers."""
    least: Integers
    bits: Octets
    words: Integers
    sums: Integers
    at: Integers

    @property
    def total(self) -> int:
        """The sum of all numbers."""
        return int(self.sums[-1])

    def sums_before(self, places: Integers) -> Integers:
        """The sum of all numbers before each place (0 to size)."""
        result = integers(len(places))
        _kernel.sums_before(self, places, result)
        return result

    def part(self, first: int, count: int) -> Integers:
        """The numbers first to first + count."""
        values = integers(count)
        _kernel.unpack(self, first, values)
        return values


def open_packed(count: int, least: Integers, bits: Octets, words: Integers, *, summed: bool = True) -> Packed:
    """From what is kept on disk; ValueError for what cannot be.

    Numbers that are no lengths need not be `summed`: their sums wrap around, and mean nothing.
    """
    sums, at = integers(len(least) + 1), integers(len(least) + 1)
    _kernel.index_packed(count, least, bits, words, sums, at, summed)
    return Packed(count, least, bits, words, sums, at)


class Packer:
    """Packs numbers as they come, in memory of the order of what is packed."""

    def __init__(self) -> None:
        self._count = 0
        self._least: list[Integers] = []
        self._bits: list[Octets] = []
        self._words: list[Integers] = []
        self._rest = integers(0)  # fewer than a block

    def add(self, values: Integers) -> None:
        """Append."""
        values = np.concatenate([self._rest, values]) if len(self._rest) else values
        whole = len(values) // BLOCK * BLOCK
        self._pack(values[:whole])
        self._rest = values[whole:].copy()

    def _pack(self, values: Integers) -> None:
        blocks = -(-len(values) // BLOCK)
        if not blocks:
            return
        least, bits, words = integers(blocks), np.zeros(blocks, np.uint8), integers(blocks * BLOCK)
        used = _kernel.pack(np.ascontiguousarray(values), least, bits, words)
        self._least.append(least)
        self._bits.append(bits)
        self._words.append(words[:used].copy())
        self._count += len(values)

    def finish(self, *, summed: bool = True) -> Packed:
        """All that was added."""
        self._pack(self._rest)
        self._rest = integers(0)
        least, words = (np.concatenate([integers(0), *parts]) for parts in (self._least, self._words))
        bits = np.concatenate([np.zeros(0, np.uint8), *self._bits])
        return open_packed(self._count, least, bits, words, summed=summed)


def pack(values: Integers, *, summed: bool = True) -> Packed:
    """All at once."""
    packer = Packer()
    packer.add(values)
    return packer.finish(summed=summed)


class Shrunk(NamedTuple):
    """Numbers as they travel: in few bits, above all where they rise."""

    rising: bool
    size: int
    least: Integers
    bits: Octets
    words: Integers


def shrink(numbers: Integers) -> Shrunk:
    """For a pickle, which would take 8 bytes each."""
    rising = bool((numbers[1:] >= numbers[:-1]).all())
    packed = pack(np.diff(numbers, prepend=np.uint64(0)) if rising else numbers, summed=False)
    return Shrunk(rising, packed.size, packed.least, packed.bits, packed.words)


def restore(shrunk: Shrunk) -> Integers:
    """The numbers."""
    packed = open_packed(shrunk.size, shrunk.least, shrunk.bits, shrunk.words, summed=False)
    numbers = packed.part(0, shrunk.size)
    return np.cumsum(numbers, dtype=np.uint64) if shrunk.rising else numbers
