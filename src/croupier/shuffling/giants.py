"""Records too large for memory: they stay on disk, and stubs travel in their place.

A stub is a frame that tells where the record lies: in its plain input file, or, where that is compressed, in
a temporary file of whole frames. It goes through runs, spills and merges like any other frame; when its turn
comes, the record is read again, piece by piece, into its shard.

stub:  length (8) | record (8) | offset (8) | file (4) | masked crc32c of the payload (4)
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from croupier import _kernel, storage
from croupier.errors import StaleError
from croupier.frames import EVERYTHING, FOOTER, HEADER, OVERHEAD, Block, FrameReader, Giant, header
from croupier.output import BLOCK, Output, Shard
from croupier.runtime import Runtime
from croupier.shuffling.planning import Plan
from croupier.table.packed import integers

_STUB = struct.Struct("<QQQII")
STUB_BYTES = _STUB.size + OVERHEAD
_SHARE = 64
"""Of a thread's memory, what a record may take that stands in memory: up to six times, on its way."""


class Stub(NamedTuple):
    """Where a record lies."""

    length: int
    record: int
    offset: int
    file: int
    crc: int

    def framed(self) -> memoryview:
        """As it travels."""
        made = bytearray(STUB_BYTES)
        _kernel.append(made, 0, _STUB.pack(*self), integers(4))
        return memoryview(made)

    @classmethod
    def unframed(cls, frame: memoryview) -> Stub:
        """The same again."""
        return cls(*_STUB.unpack(frame[HEADER:-FOOTER]))


class Giants:
    """Of one job."""

    def __init__(self, plan: Plan, runtime: Runtime, folder: str, *, looked_at: bool) -> None:
        """`folder`: for temporary files. `looked_at`: records are, as they come, and so must be in memory."""
        self._plan, self._runtime, self._folder = plan, runtime, folder
        held = looked_at or plan.dedup or plan.on_corrupt in ("skip", "salvage")
        self.least = EVERYTHING if held else max(BLOCK, plan.run_bytes // (_SHARE * plan.workers))
        """Longer frames are giants. BLOCK, as such are compressed alone, whoever writes them."""

    def keep(self, file: int, block: Block, wanted: bool) -> Block | None:
        """On a thread: read a giant to its end; gives its stub, or None where the file ends inside it."""
        giant, offset = block.giant, block.origin
        if giant is None:
            return block
        if wanted and not self._plan.inputs[file].is_plain:
            offset = self._store(file, giant)
        else:
            for _ in giant.pieces:
                self._runtime.check()
        if giant.crc is None:
            return None
        stub = Stub(giant.length, block.record, offset, file, giant.crc)
        return Block(stub.framed(), block.bounds, block.origin, block.record, giant)

    def _path(self, file: int) -> str:
        return os.path.join(self._folder, f"giants-{file:05d}.spill")

    def _store(self, file: int, giant: Giant) -> int:
        """Behind those of the same file, onto the device; gives where. One thread at a time reads a file."""
        path = self._path(file)
        with storage.reporting("write", path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path, flags, 0o600)
            try:
                offset = os.fstat(fd).st_size
                _write(fd, memoryview(header(giant.length)))
                for piece in giant.pieces:
                    self._runtime.check()
                    _write(fd, piece)
                if giant.crc is not None:
                    _write(fd, memoryview(struct.pack("<I", giant.crc)))
                    os.fsync(fd)
            finally:
                storage.close(fd)
        return offset

    def write(self, frame: memoryview, output: Output, shard: Shard) -> None:
        """The record of a stub, into a shard."""
        stub = Stub.unframed(frame)
        output.pour(shard, stub.length, lambda: self._payload(stub))

    def _payload(self, stub: Stub) -> Iterator[memoryview]:
        """On any thread."""
        source = self._plan.inputs[stub.file]
        path = source.path if source.is_plain else self._path(stub.file)
        with storage.FileSource(path, stub.offset) as file:
            frames = FrameReader(
                file,
                path,
                size=file.size,
                start=stub.offset,
                record=stub.record,
                max_record=self._plan.max_record_bytes,
                giants_from=BLOCK,
            )
            giant = next((block.giant for block in frames), None)
            if giant is not None and giant.length == stub.length:
                yield from giant.pieces
        if giant is None or giant.crc != stub.crc:
            raise StaleError(f"{path}: was written to while it was read; shuffle again when it is complete")


def _write(fd: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(fd, piece) :]
