"""A run on disk: blocks of records in the order of their keys, each block with its checksum.

block:  files (4 bytes a record) | records (8) | digests (16, where equal records are sought) | frames;
        compressed together where that pays
file:   blocks, each at a multiple of 4096 | a line for each | count (8) | their crc32c (4) | "SPIL"

What is kept in memory is a line a block.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from croupier import _kernel, direct, storage
from croupier.errors import IntegrityError
from croupier.rooms import ALIGNED, Rooms
from croupier.runtime import Runtime
from croupier.shuffling.run import DIGEST, Order, Sorted
from croupier.table.packed import Integers, Octets, integers

PER_RECORD = 48
"""Bytes of memory beside a frame of a block that was read: 12 on disk, and four numbers."""
_IDS = 12
_FLAGS = 30
"""Where in a file's number it says that a frame is a parcel or a stub."""
_PAYS = 0.8
"""Compressed size to size below which compressing pays: isal packs and unpacks some 2 GB/s a core."""
_TRIED = 1 << 15
_ZEROS = memoryview(bytes(ALIGNED))
_END = struct.Struct("<QI4s")
_MAGIC = b"SPIL"


class Line(NamedTuple):
    """What is known of a block."""

    offset: int
    stored: int
    crc: int
    size: int
    """Of its frames."""
    records: int
    packed: int
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
    parcels: Octets
    digests: Integers
    """Empty where nobody asked."""

    def part(self, begin: int, end: int) -> Records:
        """Some of them; frames are not copied."""
        bounds = self.bounds[begin : end + 1]
        rows, frames = slice(begin, end), self.frames[int(bounds[0]) : int(bounds[-1])]
        columns = self.keys[rows], self.files[rows], self.records[rows]
        return Records(frames, bounds - bounds[0], *columns, self.parcels[rows], self.digests[rows])


class Spill:
    """Written once and read in the order of the keys."""

    def __init__(self, path: str, seed: int, block: int, rooms: Rooms, *, digests: bool = False) -> None:
        """`block`: bytes of memory for frames that are compressed and later read together (or one longer)."""
        self.path, self._seed, self._block = path, seed, block
        self._ids = _IDS + DIGEST * digests
        self.digests = digests
        self._fd = -1
        self.lines: list[Line] = []
        self._rooms = rooms
        self._forgotten = 0  # blocks
        self.stored = 0
        """Bytes of all blocks on disk."""

    def close(self) -> None:
        """The file stays."""
        if self._fd >= 0:
            storage.close(self._fd)
        self._fd = -1

    def forget(self, key: int) -> None:
        """Nothing before this key will be read again: give the space of those blocks back, if that works."""
        begin = self._forgotten
        while self._forgotten < len(self.lines) and self.lines[self._forgotten].last < key:
            self._forgotten += 1
        if self._forgotten > begin:
            at = self.lines[begin].offset
            last = self.lines[self._forgotten - 1]
            _kernel.punch(self._fd, at, last.offset + last.stored - at)  # whole pages

    # Writing

    def write(self, run: Sorted, runtime: Runtime) -> None:
        """All of a run, onto the device."""
        with storage.reporting("write", self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
            out = direct.Direct(self._fd)
            try:
                for stored, line in runtime.map(lambda frames: self._encode(run, frames), self._spans(run)):
                    runtime.check()
                    padding = -len(stored) % ALIGNED
                    out.write(stored)
                    out.write(_ZEROS[:padding])
                    self.lines.append(line._replace(offset=self.stored))
                    self.stored += line.stored + padding
                lines = np.array(self.lines, np.uint64).tobytes()
                out.write(memoryview(lines + _END.pack(len(self.lines), _kernel.crc32c(lines), _MAGIC)))
                out.finish()
            finally:
                out.stop()
            os.fsync(self._fd)

    def _spans(self, run: Sorted) -> Iterator[Order]:
        """The frames of each block."""
        one = np.uint64(1)
        for begin in range(0, len(run.order), 1 << 16):
            some = run.order[begin : begin + (1 << 16)]
            places = some.view(np.uint64)
            costs = run.bounds[places + one] - run.bounds[places] + np.uint64(PER_RECORD)
            blocks = (np.cumsum(costs) - one) // np.uint64(self._block)
            # Behind a longer frame, too: who needs the rest of its block later would keep it in memory.
            cuts = np.flatnonzero((blocks[1:] != blocks[:-1]) | (costs[:-1] > self._block)) + 1
            yield from np.split(some, cuts)

    def _encode(self, run: Sorted, frames: Order) -> tuple[memoryview, Line]:
        """On a thread."""
        files, records = run.whence(frames)
        ids = files.astype(np.uint32)
        if run.parcels is not None:
            ids |= run.parcels[frames].astype(np.uint32) << np.uint32(_FLAGS)
        columns = [ids.tobytes(), records.tobytes()]
        if run.digests is not None:
            columns += [run.keys[frames].tobytes(), run.digests[frames].tobytes()]
        places, count = frames.view(np.uint64), len(frames)
        size = int((run.bounds[places + np.uint64(1)] - run.bounds[places]).sum())
        content = self._rooms.take(self._ids * count + size)
        content[: self._ids * count] = np.frombuffer(b"".join(columns), np.uint8)
        _kernel.gather(run.buffer, run.bounds, places, content[self._ids * count :], integers(count + 1), 1)
        stored = self._pack(content.data)
        keys = int(run.keys[frames[0]]), int(run.keys[frames[-1]])
        packed = len(stored) < len(content)
        return stored, Line(0, len(stored), _kernel.crc32c(stored), size, count, packed, *keys)

    def _pack(self, content: memoryview) -> memoryview:
        """Compressed if that pays, going by a piece of it."""
        piece = content[len(content) // 2 :][:_TRIED]
        if len(isal_zlib.compress(piece, 1, -15)) >= _PAYS * len(piece):
            return content
        packed = isal_zlib.compress(content, 1, -15)
        return memoryview(packed) if len(packed) < len(content) else content

    # Reading

    def open(self) -> None:
        """One that an earlier process wrote."""
        with storage.reporting("open", self.path):
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            size = os.fstat(self._fd).st_size
        end = self._load(_END.size, max(size - _END.size, 0))
        count, crc, magic = _END.unpack(end) if len(end) == _END.size else (0, 0, b"")
        width = 8 * len(Line._fields)
        at = size - _END.size - width * count
        lines = self._load(width * count, at) if magic == _MAGIC and at >= 0 else _ZEROS[:0]
        if len(lines) != width * count or magic != _MAGIC or _kernel.crc32c(lines) != crc:
            raise self._spoilt()
        self.lines = [Line(*row) for row in np.frombuffer(lines, np.uint64).reshape(-1, width // 8).tolist()]
        self.stored = at

    def read(self, line: Line) -> Records:
        """A block; on any thread."""
        stored, count, ids = self._load(line.stored, line.offset), line.records, self._ids
        if len(stored) != line.stored or _kernel.crc32c(stored) != line.crc:
            raise self._spoilt()
        content = isal_zlib.decompress(stored, -15, ids * count + line.size) if line.packed else stored
        numbers = np.frombuffer(content, np.uint32, count)
        files = (numbers & np.uint32((1 << _FLAGS) - 1)).astype(np.uint64)
        parcels = (numbers >> np.uint32(_FLAGS)).astype(np.uint8)
        records = np.frombuffer(content[4 * count : _IDS * count], np.uint64).copy()  # aligned
        frames = np.frombuffer(content, np.uint8, -1, ids * count)
        bounds, keys, digests = integers(count + 1), integers(count), integers(0)
        found, _ = _kernel.scan(frames, 0, bounds, False, 1 << 63)
        if found != count or int(bounds[count]) != line.size:
            raise self._spoilt()
        if self.digests:
            keys, digests = (
                np.frombuffer(content[_IDS * count : ids * count], np.uint64).reshape(2, -1).copy()
            )
        else:
            _kernel.record_keys(self._seed, files, records, np.ones(count, np.uint64), keys)
        return Records(frames, bounds, keys, files, records, parcels, digests)

    def _load(self, size: int, offset: int) -> memoryview:
        """Fewer bytes where the file ends."""
        room = self._rooms.take(size + -size % ALIGNED).data
        with storage.reporting("read", self.path):
            have = direct.read(self._fd, room, offset)
        return room[: min(have, size)]

    def _spoilt(self) -> IntegrityError:
        return IntegrityError(f"{self.path}: this temporary file does not hold what was written to it")
