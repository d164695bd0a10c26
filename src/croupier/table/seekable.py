"""The fragments of a gzip file that `croupier.writer` made, found and inflated once, in parallel.

A fragment ends in a full flush: 00 00 ff ff. Those bytes stand elsewhere, too, so each place behind them is a
candidate. From one candidate to the next is a fragment if it inflates from a fresh state, ends where an empty
last block can follow (03 00), and holds whole frames. Parts of a file are walked at the same time, each from
the first candidate in it that is one; if the part before did not end there, it is walked again from where
that ended. Files that do not work out are not of this kind: they are streamed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from isal import isal_zlib

from croupier import _kernel, storage
from croupier.codec.detect import GZIP_MAGIC
from croupier.frames import HEADER, OVERHEAD
from croupier.table.packed import Integers, integers

PART = 8 << 20
FLUSH = b"\x00\x00\xff\xff"
LAST_BLOCK = b"\x03\x00"
HEAD, TAIL = 10, 10  # the gzip header; the empty last block and the trailer
PIECE = 1 << 20
"""Inflated at once; a fragment that holds more must be one record."""

_DeflateError = cast(type[Exception], isal_zlib.error)


class Walk(NamedTuple):
    """The fragments that begin in a part of a file."""

    begin: int
    end: int
    crc: int
    size: int
    """Bytes of all of them, inflated."""
    stored: Integers
    raw: Integers
    lengths: Integers


class NotSeekableError(Exception):
    """Not for users: the file is not one of these."""


def is_candidate(fd: int, size: int) -> bool:
    """Whether a file begins and ends as ours do."""
    if size < HEAD + TAIL:
        return False
    head, tail = os.pread(fd, HEAD, 0), os.pread(fd, TAIL + len(FLUSH), size - TAIL - len(FLUSH))
    before, last = tail[: len(FLUSH)], tail[len(FLUSH) : len(FLUSH) + 2]
    flushed = before == FLUSH or size == HEAD + TAIL
    return head[:3] == GZIP_MAGIC and head[3] == 0 and last == LAST_BLOCK and flushed


def walk(path: str, size: int, begin: int, end: int, *, sync: bool, limit: int) -> Walk:
    """The fragments that begin in [begin, end); with `sync` the first is looked for, else it is there."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _walk(fd, size - TAIL, begin, end, sync, limit)
    finally:
        os.close(fd)


def trailer(path: str, size: int) -> bytes:
    """The checksum and the size modulo 2^32 that a file declares, as it does; less where it was truncated."""
    with storage.reporting("read", path), open(path, "rb") as file:
        file.seek(size - 8)
        return file.read(8)


def _walk(fd: int, last: int, begin: int, end: int, sync: bool, limit: int) -> Walk:
    stored: list[int] = []
    raw: list[int] = []
    lengths: list[Integers] = []
    crc = total = 0
    at = first = begin
    if sync:
        at = first = next(_candidates(fd, begin - len(FLUSH), last), last)
    while at < min(end, last):
        found = _find(fd, at, last, limit, longest=PART if sync and not stored else last)
        if found is None:
            if not sync or stored:
                raise NotSeekableError
            at = first = next(_candidates(fd, at, last), last)  # no fragment begins here: look on
            continue
        until, fragment = found
        stored.append(until - at)
        raw.append(fragment.size)
        lengths.append(fragment.lengths)
        crc = isal_zlib.crc32_combine(crc, fragment.crc, fragment.size)
        total += fragment.size
        at = until
    columns = np.array(stored, np.uint64), np.array(raw, np.uint64), np.concatenate([integers(0), *lengths])
    return Walk(first, at, crc, total, *columns)


def _candidates(fd: int, at: int, last: int) -> Iterator[int]:
    """Places behind `at` that follow a flush, up to the last of all."""
    position, kept = at, b""
    while position < last:
        block = kept + os.pread(fd, min(1 << 18, last - position), position)
        if len(block) == len(kept):
            raise NotSeekableError  # truncated meanwhile
        begin = position - len(kept)
        position = begin + len(block)
        found = block.find(FLUSH)
        while found >= 0:
            yield begin + found + len(FLUSH)
            found = block.find(FLUSH, found + 1)
        kept = block[-(len(FLUSH) - 1) :]


class _Fragment(NamedTuple):
    size: int
    crc: int
    lengths: Integers


def _find(fd: int, at: int, last: int, limit: int, *, longest: int) -> tuple[int, _Fragment] | None:
    """The fragment that begins at `at`, and where it ends: at a candidate, nearly always the first."""
    growing, seen = _Growing(limit), at
    for until in _candidates(fd, at, last):
        for begin in range(seen, until, PIECE):
            if not growing.feed(os.pread(fd, min(PIECE, until - begin), begin)):
                return None
        seen = until
        if growing.is_whole:
            return (until, growing.fragment()) if growing.can_end() else None
        if until - at > longest:
            return None
    return None


class _Growing:
    """What inflates from a place, as far as it was fed: every byte once, however many candidates there are.

    (To begin anew for each took a minute for 13 MB of gzip that somebody else had flushed.)
    """

    def __init__(self, limit: int) -> None:
        self._stream: Any = isal_zlib.decompressobj(-15)
        self._limit = limit
        self._head = bytearray()  # the first PIECE bytes at most
        self._lengths: list[Integers] = []  # of the frames that are whole
        self._next, self._needed = 0, HEADER  # where the next frame begins, and what tells more of it
        self._size = self._crc = 0

    @property
    def is_whole(self) -> bool:
        """Whether frames fill it."""
        return self._size > 0 and self._size == (self._next if self._size <= PIECE else self._needed)

    def feed(self, packed: bytes) -> bool:
        """Inflate more; False when no fragment begins there, whatever follows."""
        try:
            while True:
                piece: bytes = self._stream.decompress(packed, PIECE)
                packed = self._stream.unconsumed_tail
                if not self._add(piece) or self._stream.eof:
                    return False
                if not piece or (not packed and len(piece) < PIECE):
                    return True
        except _DeflateError:
            return False

    def can_end(self) -> bool:
        """Whether an empty last block can follow; nothing may be fed afterwards."""
        try:
            return not self._stream.decompress(LAST_BLOCK, PIECE) and self._stream.eof
        except _DeflateError:
            return False

    def fragment(self) -> _Fragment:
        """When it is whole."""
        alone = [np.array([self._needed - OVERHEAD], np.uint64)]  # longer than a piece: one record
        return _Fragment(self._size, self._crc, np.concatenate(self._lengths or alone))

    def _add(self, piece: bytes) -> bool:
        """False where it cannot be frames, or is more than a piece and not one record."""
        self._size, self._crc = self._size + len(piece), isal_zlib.crc32(piece, self._crc)
        self._head += piece[: PIECE - len(self._head)]
        if len(self._head) >= self._needed and not self._scan():
            return False
        return self._size <= PIECE or (self._next == 0 and self._size <= self._needed)

    def _scan(self) -> bool:
        bounds = integers((len(self._head) - self._next) // OVERHEAD + 2)
        count, why = _kernel.scan(self._head, self._next, bounds, False, self._limit)
        if why != _kernel.PARTIAL:
            return False
        if count:
            self._lengths.append(np.diff(bounds[: count + 1]) - np.uint64(OVERHEAD))
        self._next = int(bounds[count])
        self._needed = self._next + HEADER
        if len(self._head) >= self._needed:
            (length,) = struct.unpack_from("<Q", self._head, self._next)
            self._needed = self._next + OVERHEAD + length
        return True
