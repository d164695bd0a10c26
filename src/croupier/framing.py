"""Frames that never stand in memory whole."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from croupier import _kernel
from croupier.errors import IntegrityError
from croupier.frames import header, masked


class Framing:
    """A frame around a payload that comes in pieces."""

    def __init__(self, length: int) -> None:
        self._length = length
        self.crc = 0
        """Of what came, as the frame stores it, once it is all there."""

    def pieces(self, payload: Iterator[memoryview]) -> Iterator[memoryview]:
        """The frame."""
        yield memoryview(header(self._length))
        crc = size = 0
        for piece in payload:
            crc, size = _kernel.crc32c(piece, crc), size + len(piece)
            yield piece
        if size != self._length:
            raise IntegrityError(f"{size:,} bytes of a record came, instead of {self._length:,}")
        self.crc = masked(crc)
        yield memoryview(struct.pack("<I", self.crc))


def even(pieces: Iterator[memoryview], size: int) -> Iterator[memoryview]:
    """The same bytes, in pieces of one size."""
    room, have = memoryview(bytearray(size)), 0
    for piece in pieces:
        while piece:
            count = min(len(piece), size - have)
            room[have : have + count] = piece[:count]
            have, piece = have + count, piece[count:]
            if have == size:
                yield room
                have = 0
    if have:
        yield room[:have]
