"""Memory that is used again.

The system hands out fresh memory page by page: on a virtual machine, batches of 400 MB of records were read
at 0.8 GB/s into fresh memory and at 9 into used, and a gigabyte that was never touched costs up to 2 s.
"""

from __future__ import annotations

import numpy as np

Octets = np.ndarray[tuple[int], np.dtype[np.uint8]]

ALIGNED = 4096
"""Rooms begin at a multiple of this, as devices want it."""


class _Room:
    """Memory that comes back when the last array or view of it is gone."""

    def __init__(self, block: Octets, owner: Rooms) -> None:
        self._block, self._owner = block, owner
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._owner.give_back(self._block)


class Rooms:
    """Hands out memory, not set to anything; of what nobody holds any more, where that is large enough."""

    def __init__(self, kept: int, least: int = 0, most: int = 1 << 63, *, together: int = 1 << 63) -> None:
        """So many are kept for later, of `least` to `most` bytes each, and so many bytes `together`."""
        self._kept, self._least, self._most, self._together = kept, least, most, together
        self._free: list[Octets] = []

    def take(self, size: int) -> Octets:
        """A room of this size; from any thread."""
        if not self._least <= size <= self._most:
            return np.empty(size, np.uint8)
        while True:
            try:
                block = self._free.pop()
            except IndexError:
                block = _aligned(size)
            if len(block) >= size:  # else it is too small for what is read now: let go of it
                return np.asarray(_Room(block, self))[:size]

    def give_back(self, block: Octets) -> None:
        """Nobody holds it any more."""
        if len(self._free) < self._kept and len(block) + sum(map(len, self._free)) <= self._together:
            self._free.append(block)  # two threads at once may keep one more: no harm


def _aligned(size: int) -> Octets:
    block = np.empty(size + ALIGNED, np.uint8)
    begin = -block.ctypes.data % ALIGNED
    return block[begin : begin + size]
