"""What a table looks like on disk::

    magic, version, time of making, number of files, bytes of names    little-endian, 40 bytes
    names                                     each ended by a zero byte, ascending; padded to 8 bytes
    kind, size, modified, changed, inode, digest, records, fragments   a number for each file
    lengths of all records, inflated and stored sizes of all fragments
    crc32c of everything before it, and four bytes of zero

Each sequence of numbers is packed: count, number of words (8 bytes each), the smallest number of each block
of 64 (8 bytes each), the words, the blocks' widths in bits (a byte each, padded to 8).

A table is a hint and never trusted: `load` checks all that can be checked without the data, in memory in
proportion to the file's size whatever it declares, and whoever reads records by it checks each of them.
"""

from __future__ import annotations

import operator
import struct

import numpy as np

from croupier import _kernel
from croupier.errors import TableError
from croupier.table.identity import Identity
from croupier.table.model import Table
from croupier.table.packed import BLOCK, Integers, Packed, open_packed, pack

MAGIC, VERSION = b"\x89CRPTBL\n", 1
_HEADER = struct.Struct("<8sQQQQ")
_SECTION = struct.Struct("<QQ")
_TRAILER = struct.Struct("<II")
_COLUMNS = 8


def dump(table: Table, made: int) -> bytes:
    """The content of a table file; `made` is a time in nanoseconds."""
    names = "\0".join([*table.names, ""]).encode("utf-8", "surrogateescape")
    pieces = [_HEADER.pack(MAGIC, VERSION, made, len(table), len(names)), _padded(names)]
    columns = (table.kind, *table.identity, table.records, table.fragments)
    packed = [pack(column, summed=False) for column in columns]
    for section in (*packed, table.lengths, table.raw, table.stored):
        pieces.append(_SECTION.pack(section.size, len(section.words)))
        pieces += [section.least.tobytes(), section.words.tobytes(), _padded(section.bits.tobytes())]
    content = b"".join(pieces)
    return content + _TRAILER.pack(_kernel.crc32c(content), 0)


def load(content: Integers, path: str) -> tuple[Table, int]:
    """The table in a file's content (as words of 8 bytes), and when it was made; else TableError."""
    try:
        return _Reader(content.data.cast("B")).table()
    except (ValueError, struct.error, OverflowError) as error:
        problem = f"this offset table is damaged ({error}); delete it, it will be made again"
        raise TableError(f"{path}: {problem}") from None


class _Reader:
    def __init__(self, content: memoryview) -> None:
        if len(content) < _HEADER.size + _TRAILER.size or len(content) % 8:
            raise ValueError("its size is impossible")
        crc, zero = _TRAILER.unpack_from(content, len(content) - _TRAILER.size)
        self._rest = content[: len(content) - _TRAILER.size]
        magic, version, self._made, self._files, self._names = _HEADER.unpack_from(self._rest)
        if magic != MAGIC:
            raise ValueError("it does not begin as one")
        if version != VERSION:
            raise ValueError(f"its version is {version}, this program knows {VERSION}")
        if zero or crc != _kernel.crc32c(self._rest):
            raise ValueError("it does not match its checksum")
        self._take(_HEADER.size)

    def table(self) -> tuple[Table, int]:
        names = self._read_names()
        kind, *identity, records, fragments = [self._column() for _ in range(_COLUMNS)]
        lengths, raw, stored = (self._section(summed=True) for _ in range(3))
        if self._rest:
            raise ValueError("bytes follow its end")
        table = Table(names, kind, Identity(*identity), records, fragments, lengths, raw, stored)
        table.check()
        return table, self._made

    def _take(self, count: int) -> memoryview:
        """The next `count` bytes, and what pads them."""
        padded = -(-count // 8) * 8
        if padded > len(self._rest):
            raise ValueError("it declares more than it holds")
        taken, self._rest = self._rest[:count], self._rest[padded:]
        return taken

    def _read_names(self) -> list[str]:
        blob = bytes(self._take(self._names))
        names = blob.split(b"\0")
        if names.pop() or len(names) != self._files:
            raise ValueError("its names are not as many as its files")
        if b"/" in blob or not {b"", b".", b".."}.isdisjoint(names):
            raise ValueError("a name in it cannot be a file's")
        if any(map(operator.ge, names, names[1:])):
            raise ValueError("its names are not in order")
        return blob.decode("utf-8", "surrogateescape").split("\0")[:-1]

    def _section(self, *, summed: bool) -> Packed:
        count, words = _SECTION.unpack(self._take(_SECTION.size))
        blocks = -(-count // BLOCK)
        least, data = (np.frombuffer(self._take(8 * size), np.uint64) for size in (blocks, words))
        bits = np.frombuffer(self._take(blocks), np.uint8)
        return open_packed(count, least, bits, data, summed=summed)

    def _column(self) -> Integers:
        section = self._section(summed=False)
        if section.size != self._files:
            raise ValueError("a column of it is too short or too long")
        return section.part(0, section.size)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
