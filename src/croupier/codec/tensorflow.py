"""What TensorFlow makes of a compressed file of several members, or with zeros behind: it may stop too early.

Its ZlibInputStream reads 256 KiB at a time, inflates up to 256 KiB a call, and takes "this call gave nothing
and the file has no more bytes" for the end, although compressed bytes may still stand in its buffer. An empty
member, or a member whose trailer straddles a buffer's edge, triggers that near the end of a file: the records
behind it are dropped silently (seen on 2.16.1 and 2.21.0). Concatenated zlib streams end after the first.

So files of one member are safe, and for others this replays the very same calls with the same library.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from croupier.codec.detect import Compression
from croupier.storage import FileSource

BUFFER = 1 << 18


class Delivered(NamedTuple):
    """How far TensorFlow gets."""

    size: int
    """Decompressed bytes before it takes the file for ended, or refuses it."""
    refused: bool
    """It raises DataLossError there."""


def replay(path: str, compression: Compression) -> Delivered:
    """What TensorFlow would be given of a file."""
    bits = 31 if compression is Compression.GZIP else 15
    stream: Any = zlib.decompressobj(bits)
    buffer, size = b"", 0
    with FileSource(path) as source:
        while True:
            output = b""
            if not stream.eof:  # without input, too: output may be left over from the call before
                try:
                    output = stream.decompress(buffer, BUFFER)
                except zlib.error:
                    return Delivered(size, refused=True)
                buffer = stream.unconsumed_tail or stream.unused_data
                if stream.eof and compression is Compression.GZIP:
                    stream = zlib.decompressobj(bits)
            size += len(output)
            if not output:
                more = _read(source, BUFFER - len(buffer))
                if not more:
                    return Delivered(size, refused=False)
                buffer += more


def _read(source: FileSource, count: int) -> bytes:
    """`count` bytes, fewer only at the end of the file."""
    room = memoryview(bytearray(count))
    have = 0
    while have < count and (got := source.readinto(room[have:])):
        have += got
    return bytes(room[:have])
