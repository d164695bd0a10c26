"""Records of compressed files: by fragment where there are some, else by streaming."""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from isal import isal_zlib

from croupier import _kernel, storage
from croupier.errors import (
    CompressionError,
    DataError,
    HeaderError,
    PayloadError,
    SlowAccessWarning,
    StaleError,
)
from croupier.frames import OVERHEAD, Block
from croupier.runtime import MIB, Runtime
from croupier.streams import open_file
from croupier.table.identity import stamp
from croupier.table.packed import Integers, Octets, distinct, integers
from croupier.table.seekable import HEAD, LAST_BLOCK

if TYPE_CHECKING:
    from croupier.dataset.files import Files

_DeflateError = cast(type[Exception], isal_zlib.error)

CACHE = 32 * MIB
"""Of inflated fragments that a dataset keeps: those who read one record after the other inflate each once."""
DEPTH = 64
"""Fragments that are asked for before they are needed, where the page cache may have nothing."""
PARALLEL = MIB
"""Compressed bytes from which on threads pay."""


class _Piece(NamedTuple):
    """A fragment to be inflated."""

    number: int
    """Among all of the files."""
    file: int
    begin: int
    """Of its content, in the decompressed stream."""
    size: int
    offset: int
    """In the file."""
    stored: int


class Fragments:
    """Reads records of seekable gzip files."""

    def __init__(self, files: Files, threads: int) -> None:
        self._files: Files = weakref.proxy(files)  # a cycle would keep files open until garbage is collected
        self._threads = threads
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cached = 0
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._cached = sum(map(len, self._cache.values()))  # another thread was about to add

    def read(self, file: Integers, offset: Integers, length: Integers, place: Integers, out: Octets) -> None:
        """Each record's payload to out[place:]."""
        table = self._files.table
        found, begin = integers(len(file)), integers(len(file))
        _kernel.search_sums(table.raw, table.fragment_firsts, table.raw_bases, file, offset, found, begin)
        numbers, which = distinct(found, table.raw.size)
        first = np.empty(len(numbers), np.intp)  # a record of each
        first[which] = np.arange(len(found))
        pieces = self._pieces(file[first], begin[first], numbers)
        order = np.argsort(which, kind="stable")
        cuts = np.searchsorted(which[order], np.arange(len(pieces) + 1)).tolist()
        columns = [column[order] for column in (offset - begin, length, place)]
        for number, inflated in enumerate(self._inflate(pieces)):
            part = slice(cuts[number], cuts[number + 1])
            within, lengths, places = (column[part] for column in columns)
            wrong, fault = _kernel.take(inflated, within, lengths, places, out, self._files.verify)
            if fault != _kernel.FETCHED:
                raise self._wrong(pieces[number], pieces[number].begin + int(within[wrong]), fault)

    def _pieces(self, file: Integers, begin: Integers, numbers: Integers) -> list[_Piece]:
        table = self._files.table
        one = np.uint64(1)
        raw = table.raw.sums_before(numbers + one) - table.raw.sums_before(numbers)
        before = table.stored.sums_before(numbers)
        stored = table.stored.sums_before(numbers + one) - before
        offsets = before - table.stored_bases[file] + np.uint64(HEAD)
        columns = (numbers, file, begin, raw, offsets, stored)
        return [_Piece(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _inflate(self, pieces: list[_Piece]) -> Iterator[bytes]:
        """The fragments' content, in order; several at a time where that pays."""
        if len(pieces) > 1 and self._threads > 1 and sum(piece.stored for piece in pieces) >= PARALLEL:
            with Runtime(workers=self._threads) as runtime:
                yield from runtime.map(self._get, self._asked_for(pieces))
        else:
            yield from map(self._get, self._asked_for(pieces))

    def _asked_for(self, pieces: list[_Piece]) -> Iterator[_Piece]:
        """The pieces, each when those that follow are on their way from the device."""
        asked = 1  # the first is read at once anyhow
        for number, piece in enumerate(pieces):
            for one in pieces[asked : number + DEPTH]:
                if hasattr(os, "posix_fadvise") and one.number not in self._cache:
                    fd = self._files.open(one.file).fd
                    os.posix_fadvise(fd, one.offset, one.stored, os.POSIX_FADV_WILLNEED)
            asked = max(asked, number + DEPTH)
            yield piece

    def _get(self, piece: _Piece) -> bytes:
        key = piece.number
        with self._lock:
            if (cached := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                return cached
        inflated = self._load(piece)
        with self._lock:
            if key not in self._cache and piece.size <= CACHE // 4:
                self._cache[key] = inflated
                self._cached += piece.size
                while self._cached > CACHE:
                    _, dropped = self._cache.popitem(last=False)
                    self._cached -= len(dropped)
        return inflated

    def _load(self, piece: _Piece) -> bytes:
        file = self._files.open(piece.file)
        packed = self._read(file, piece)
        if not file.unchanged():  # or touched: opened again if it is what it was, else refused
            file = self._files.open_again(piece.file)
            packed = self._read(file, piece)
            if not file.unchanged():
                raise self._stale(piece)
        stream: Any = isal_zlib.decompressobj(-15)
        try:
            data: bytes = stream.decompress(packed + LAST_BLOCK, piece.size + 1)
        except _DeflateError as error:
            raise self._damaged(piece, str(error)) from None
        if len(data) != piece.size or (not stream.eof and stream.decompress(stream.unconsumed_tail, 1)):
            raise self._damaged(piece, f"it has {len(data):,} bytes instead of {piece.size:,}")
        return data

    def _read(self, file: _kernel.File, piece: _Piece) -> bytes:
        """A fragment as it is stored; fewer bytes where the file ends."""
        read: list[bytes] = []
        have = 0
        with storage.reporting("read", self._files.paths[piece.file]):
            while have < piece.stored:  # one call gives 2 GiB at most
                read.append(os.pread(file.fd, piece.stored - have, piece.offset + have))
                have += len(read[-1])
                if not read[-1]:
                    break
        return read[0] if len(read) == 1 else b"".join(read)

    def _wrong(self, piece: _Piece, offset: int, fault: int) -> DataError | StaleError:
        """What is wrong with the record that begins at `offset` in the decompressed stream."""
        kind: type[DataError]
        if fault == _kernel.WRONG_PAYLOAD:
            kind, problem = PayloadError, "the record's payload does not match its checksum"
        elif fault == _kernel.WRONG_HEADER:
            kind, problem = HeaderError, "no record begins here, where one was when the file was indexed"
        else:
            return self._stale(piece)
        record = self._files.record_at(piece.file, offset)
        return kind(problem, self._files.paths[piece.file], offset=offset, record=record, inflated=True)

    def _damaged(self, piece: _Piece, problem: str) -> CompressionError:
        what = f"the gzip fragment of {piece.stored:,} bytes that begins here is damaged: {problem}"
        return CompressionError(what, self._files.paths[piece.file], offset=piece.offset)

    def _stale(self, piece: _Piece) -> StaleError:
        path = self._files.paths[piece.file]
        return StaleError(f"{path}: changed since its offset table was made; open the dataset anew")


class Streams:
    """Reads records of files that can only be inflated from their beginning; goes on where it stopped."""

    def __init__(self, files: Files) -> None:
        self._files: Files = weakref.proxy(files)
        self._cursor: _Cursor | None = None
        self._entered: set[int] = set()
        self._lock = threading.Lock()

    def after_fork(self) -> None:
        self._cursor, self._lock = None, threading.Lock()

    def read(self, file: Integers, record: Integers, length: Integers, place: Integers, out: Octets) -> None:
        """Each record's payload to out[place:]; `record` counts in its file."""
        columns = [column.tolist() for column in (file, record, length, place)]
        target = out.data
        with self._lock:
            for number, wanted, size, begin in sorted(zip(*columns, strict=True)):
                try:
                    payload = self._at(number, wanted).payload(wanted)
                except BaseException:
                    self._cursor = None  # a generator that raised is done with
                    raise
                if len(payload) != size:
                    path = self._files.paths[number]
                    raise StaleError(f"{path}: changed since it was indexed; open the dataset anew")
                target[begin : begin + size] = payload

    def _at(self, file: int, record: int) -> _Cursor:
        cursor = self._cursor
        if cursor is None or cursor.file != file or cursor.first > record:
            path = self._files.paths[file]
            if file in self._entered and record:  # who begins anew at record 0 loses nothing
                _warn(
                    f"{path}: has no entry points: going back to record {record} inflates all before it; "
                    "gzip files that croupier writes have them"
                )
            self._entered.add(file)
            cursor = self._cursor = _Cursor(path, file, blocks_of(self._files, file))
        return cursor


def _warn(message: str) -> None:
    """Point at the line that reads, as `streams.warn` does."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and (frame.f_globals.get("__package__") or "").startswith("croupier"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, SlowAccessWarning, stacklevel=level)


def blocks_of(files: Files, number: int) -> Iterator[Block]:
    """All of a file from front to back, if it is the one that the table was made of.

    (No method: the cursor's `files` is a proxy, and should stay one.)
    """
    path, expected = files.paths[number], int(files.table.records[number])
    with open_file(path, files.policy, files.limit) as opened:
        files.require_same(number, stamp(opened.file.status), opened.file.fd)
        yield from opened.frames
        if opened.frames.records != expected:
            problem = f"has {opened.frames.records:,} records, and had {expected:,} when it was indexed"
            raise StaleError(f"{path}: {problem}; open the dataset anew")


class _Cursor:
    """A place in a stream."""

    def __init__(self, path: str, file: int, blocks: Iterator[Block]) -> None:
        self.path, self.file, self._blocks = path, file, blocks
        self._block: Block | None = None

    @property
    def first(self) -> int:
        """The first record that can be had without going back."""
        return 0 if self._block is None else self._block.record

    def payload(self, record: int) -> memoryview:
        """Of a record that is not before `first`."""
        while self._block is None or record >= self._block.record + len(self._block):
            self._block = next(self._blocks, None)
            if self._block is None:
                raise StaleError(f"{self.path}: has no record {record} any more; open the dataset anew")
        begin, end = self._block.bounds[record - self._block.record :][:2].tolist()
        return self._block.buffer[begin + OVERHEAD - 4 : end - 4]
