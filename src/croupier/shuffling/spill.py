"""A run on disk: blocks of records in the order of their keys, each block with its checksum.

block:  files (4 bytes a record) | records (8 bytes a record) | frames; compressed together where that pays

What is kept in memory is a line a block. A spill file is unlinked as soon as it is open: nothing is left of
it, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from croupier import _kernel, storage
from croupier.direct import Direct
from croupier.errors import IntegrityError
from croupier.runtime import Runtime
from croupier.shuffling.run import Order, Sorted
from croupier.table.packed import Integers, Octets, integers

_IDS = 12
_PAYS = 0.8
"""Compressed size to size below which compressing pays: isal packs and unpacks some 2 GB/s a core."""
_TRY_AGAIN = 32


class Line(NamedTuple):
    """What is known of a block."""

    offset: int
    stored: int
    crc: int
    size: int
    """Of its frames."""
    records: int
    packed: bool
    first: int
    """The key of its first record."""
    last: int


class Records(NamedTuple):
    """Some records: their frames one behind the other, and what orders them."""

    frames: Octets
    bounds: Integers
    keys: Integers
    files: Integers
    records: Integers

    def part(self, begin: int, end: int) -> Records:
        """Some of them; frames are not copied."""
        rows, bounds = slice(begin, end), self.bounds[begin : end + 1]
        columns = self.keys[rows], self.files[rows], self.records[rows]
        return Records(self.frames[int(bounds[0]) : int(bounds[-1])], bounds - bounds[0], *columns)


class Spill:
    """Written once and read once, in the order of the keys."""

    def __init__(self, folder: str, seed: int, block: int) -> None:
        """`block`: bytes of frames that are compressed, and later read, together (or one longer frame)."""
        self._seed, self._block = seed, block
        with storage.reporting("create a temporary file", folder):
            self._fd, self._path = tempfile.mkstemp(prefix=".croupier-", suffix=".spill", dir=folder)
            os.unlink(self._path)
        self.lines: list[Line] = []
        self._in_vain = 0  # blocks since compressing one last paid; threads may miscount it
        self.stored = 0
        """Bytes on disk."""

    def close(self) -> None:
        """Give its space back."""
        if self._fd >= 0:
            storage.close(self._fd)
        self._fd = -1

    # Writing

    def write(self, run: Sorted, runtime: Runtime) -> None:
        """All of a run."""
        with storage.reporting("write", self._path):
            direct = Direct(self._fd)
            for stored, line in runtime.map(lambda frames: self._encode(run, frames), self._spans(run)):
                direct.write(stored)
                self.lines.append(line._replace(offset=self.stored))
                self.stored += line.stored
            direct.finish()

    def _spans(self, run: Sorted) -> Iterator[Order]:
        """The frames of each block."""
        one = np.uint64(1)
        for begin in range(0, len(run.order), 1 << 16):
            some = run.order[begin : begin + (1 << 16)]
            places = some.view(np.uint64)
            ends = np.cumsum(run.bounds[places + one] - run.bounds[places])
            cuts = np.flatnonzero(np.diff((ends - one) // np.uint64(self._block))) + 1
            yield from np.split(some, cuts)

    def _encode(self, run: Sorted, frames: Order) -> tuple[memoryview, Line]:
        """On a thread."""
        files, records = run.whence(frames)
        places, count = frames.view(np.uint64), len(frames)
        size = int((run.bounds[places + np.uint64(1)] - run.bounds[places]).sum())
        content = np.empty(_IDS * count + size, np.uint8)
        content[: 4 * count] = files.astype(np.uint32).view(np.uint8)
        content[4 * count : _IDS * count] = records.view(np.uint8)
        _kernel.gather(run.buffer, run.bounds, places, content[_IDS * count :], integers(count + 1), 1)
        stored = self._pack(content.data)
        keys = int(run.keys[frames[0]]), int(run.keys[frames[-1]])
        return stored, Line(
            0, len(stored), _kernel.crc32c(stored), size, count, len(stored) < len(content), *keys
        )

    def _pack(self, content: memoryview) -> memoryview:
        """Compressed if that pays; where it did not lately, it is not tried each time."""
        if self._in_vain % _TRY_AGAIN:
            self._in_vain += 1
            return content
        packed = isal_zlib.compress(content, 1, -15)
        pays = len(packed) < _PAYS * len(content)
        self._in_vain = 0 if pays else self._in_vain + 1
        return memoryview(packed) if pays else content

    # Reading

    def read(self, line: Line) -> Records:
        """A block; on any thread."""
        stored, count = self._load(line), line.records
        content = isal_zlib.decompress(stored, -15, _IDS * count + line.size) if line.packed else stored
        files = np.frombuffer(content, np.uint32, count).astype(np.uint64)
        records = np.frombuffer(content[4 * count : _IDS * count], np.uint64)
        frames = np.frombuffer(content, np.uint8, -1, _IDS * count)
        bounds, keys = integers(count + 1), integers(count)
        found, _ = _kernel.scan(frames, 0, bounds, False, 1 << 63)
        if found != count or int(bounds[count]) != line.size:
            raise self._spoilt()
        _kernel.record_keys(self._seed, files, records, np.ones(count, np.uint64), keys)
        return Records(frames, bounds, keys, files, records)

    def _load(self, line: Line) -> bytes:
        pieces: list[bytes] = []
        have = 0
        with storage.reporting("read", self._path):
            while have < line.stored and (not pieces or pieces[-1]):
                pieces.append(os.pread(self._fd, line.stored - have, line.offset + have))
                have += len(pieces[-1])
        stored = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(stored) != line.stored or _kernel.crc32c(stored) != line.crc:
            raise self._spoilt()
        return stored

    def _spoilt(self) -> IntegrityError:
        return IntegrityError(f"{self._path}: this temporary file does not hold what was written to it")
