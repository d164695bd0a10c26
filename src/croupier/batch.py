"""Records that were read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from croupier import _kernel
from croupier.rooms import Octets, Rooms

_rooms = Rooms(2, 1 << 20, 1 << 29)  # malloc keeps smaller ones, and nobody should keep larger


def make_room(size: int) -> Octets:
    """Memory for a batch, not set to anything."""
    return _rooms.take(size)


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
