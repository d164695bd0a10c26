"""Records that were read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from croupier import _kernel

Octets = np.ndarray[tuple[int], np.dtype[np.uint8]]

LEAST, MOST, KEPT = 1 << 20, 1 << 29, 2
"""Rooms of this size are kept, so many of them: malloc keeps smaller ones, and nobody should keep larger."""


class _Room:
    """Memory that comes back when the last array or view of it is gone."""

    def __init__(self, block: Octets) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        if len(_free) < KEPT:  # two threads at once may keep one more: no harm
            _free.append(self._block)


_free: list[Octets] = []


def make_room(size: int) -> Octets:
    """Memory for a batch, not set to anything; of one that nobody holds any more, where there is one.

    The system hands out fresh memory page by page: on a virtual machine, batches of 400 MB of records were
    read at 0.8 GB/s into fresh memory and at 9 into used.
    """
    if not LEAST <= size <= MOST:
        return np.empty(size, np.uint8)
    while True:
        try:
            block = _free.pop()
        except IndexError:
            block = np.empty(size, np.uint8)
        if len(block) >= size:  # else it is too small for what is read now: let go of it
            return np.asarray(_Room(block))[:size]


class Batch(Sequence[memoryview]):
    """Payloads one behind the other in one buffer; no Python object per record until one is asked for.

    Record i is `buffer[offsets[i]:offsets[i + 1]]`. Iterating and indexing give views of the buffer, which
    keep it alive; `tolist` gives bytes of their own.
    """

    __slots__ = ("buffer", "offsets")

    def __init__(self, buffer: Octets, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        self.buffer = buffer
        """All payloads: bytes."""
        self.offsets = offsets
        """Their edges: one more than there are records, as Arrow's large_binary has them."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> memoryview:  # type: ignore[override]  # no slices
        number = range(len(self))[index]
        begin, end = self.offsets[number : number + 2].tolist()
        return self.buffer.data[begin:end]

    def __iter__(self) -> Iterator[memoryview]:
        view = self.buffer.data
        for begin, end in pairwise(self.offsets.tolist()):
            yield view[begin:end]

    def tolist(self) -> list[bytes]:
        """Each payload as bytes."""
        return _kernel.slices(self.buffer, self.offsets.view(np.uint64))

    def __repr__(self) -> str:
        return f"<croupier.Batch of {len(self):,} records, {int(self.offsets[-1]):,} bytes>"
