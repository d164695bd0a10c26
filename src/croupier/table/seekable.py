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
from croupier.frames import HEADER, OVERHEAD, is_header
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


def trailer(path: str, size: int) -> tuple[int, int]:
    """The checksum and the size modulo 2^32 that a file declares."""
    with storage.reporting("read", path), open(path, "rb") as file:
        file.seek(size - 8)
        crc, length = struct.unpack("<II", file.read(8))
    return crc, length


def _walk(fd: int, last: int, begin: int, end: int, sync: bool, limit: int) -> Walk:
    stored: list[int] = []
    raw: list[int] = []
    lengths: list[Integers] = []
    crc = total = 0
    at = first = begin
    if sync:
        at = first = next(_candidates(fd, begin - len(FLUSH), last), last)
    while at < min(end, last):
        fragment = None
        for until in _candidates(fd, at, last):
            fragment = _inflate(os.pread(fd, until - at, at), limit)
            if fragment is not None:
                break
            if until - at > PART and sync and not stored:  # no fragment begins here: look on
                break
        if fragment is None:
            if not sync or stored:
                raise NotSeekableError
            at = first = next(_candidates(fd, at, last), last)
            continue
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


def _inflate(packed: bytes, limit: int) -> _Fragment | None:
    """A fragment, if this is one."""
    stream: Any = isal_zlib.decompressobj(-15)
    try:
        piece: bytes = stream.decompress(packed + LAST_BLOCK, PIECE)
        lengths = _lengths(piece, limit)
        size, crc = len(piece), isal_zlib.crc32(piece)
        alone = lengths is None  # more than a piece: it can only be one record
        if lengths is None:
            if len(piece) < PIECE or not is_header(piece):
                return None
            (length,) = struct.unpack_from("<Q", piece)
            if length > limit:
                return None
            lengths = np.array([length], np.uint64)
        while not stream.eof:
            piece = stream.decompress(stream.unconsumed_tail, PIECE)
            size, crc = size + len(piece), isal_zlib.crc32(piece, crc)
            if (not piece and not stream.eof) or (piece and size > int(lengths[0]) + OVERHEAD):
                return None
    except _DeflateError:
        return None
    if stream.unused_data or size != int(lengths.sum()) + OVERHEAD * len(lengths):
        return None
    return None if alone and len(lengths) != 1 else _Fragment(size, crc, lengths)


def _lengths(frames: bytes, limit: int) -> Integers | None:
    """Of the frames that fill a buffer; None where they do not."""
    if len(frames) < HEADER:
        return None
    bounds = integers(len(frames) // OVERHEAD + 1)
    count, why = _kernel.scan(frames, 0, bounds, False, limit)
    if int(bounds[count]) != len(frames) or why != _kernel.PARTIAL:
        return None
    return np.diff(bounds[: count + 1]) - np.uint64(OVERHEAD)
