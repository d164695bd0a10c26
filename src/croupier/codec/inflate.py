"""Reading gzip and zlib: one member, many, empty ones, bgzip, flush points, trailing zeros.

The stream is decoded piece by piece into the caller's buffer, so memory stays the same whatever a file
declares or expands to. Every member's checksum and length are checked; whatever stands between or after
members and is neither a member nor zeros is an error.
"""

from __future__ import annotations

from typing import Any, cast

from isal import isal_zlib

from croupier.codec.detect import GZIP_MAGIC, Compression
from croupier.errors import CompressionError, TruncatedError
from croupier.storage import Source

READ = 1 << 18
# What is fed to the codec at once: it copies what is left of a slice at the end of each member, so slices
# are small beside bgzip's members (about 20 KB) and large beside the cost of a call (2 µs).
SLICE = 1 << 15

_DeflateError = cast(type[Exception], isal_zlib.error)
_WINDOW_BITS = {Compression.GZIP: 31, Compression.ZLIB: 15}


class Inflater:
    """A `Source` of decompressed bytes over a `Source` of compressed ones."""

    def __init__(self, source: Source, path: str, compression: Compression) -> None:
        self._source, self._path, self._compression = source, path, compression
        self._buffer = memoryview(bytearray(READ))
        self._start = self._end = 0  # what was read and not yet consumed
        self._before = 0  # file offset of the buffer's first byte
        self._stream: Any = None  # the member under way
        self.members = 0
        """Members that have been read to their end."""
        self.produced = 0
        """Decompressed bytes so far."""
        self.padding = 0
        """Zero bytes after a member."""

    @property
    def consumed(self) -> int:
        """Compressed bytes so far."""
        return self._before + self._start

    def readinto(self, view: memoryview, /) -> int:
        while True:
            if self._stream is None and not self._next_member():
                return 0
            ended = self._start == self._end and not self._refill()
            piece = self._buffer[self._start : min(self._end, self._start + SLICE)]
            try:
                output = self._stream.decompress(piece, len(view))
            except _DeflateError as error:
                raise self._damaged(str(error)) from None
            stream = self._stream
            self._start += len(piece) - len(stream.unconsumed_tail) - len(stream.unused_data)
            if stream.eof:
                self._stream = None
                self.members += 1
            elif ended and not output:
                raise self._truncated()
            if output:
                view[: len(output)] = output
                self.produced += len(output)
                return len(output)

    def _refill(self) -> bool:
        """Read on, behind what is still unread; False at the end of the file."""
        kept = self._end - self._start
        self._buffer[:kept] = self._buffer[self._start : self._end]
        self._before += self._start
        self._start, self._end = 0, kept
        count = self._source.readinto(self._buffer[kept:])
        self._end += count
        return count > 0

    def _next_member(self) -> bool:
        """Stand before a member's first byte; False when there is none."""
        if not self._skip_zeros():
            return False
        while self._end - self._start < len(GZIP_MAGIC) and self._refill():
            pass
        head = bytes(self._buffer[self._start : min(self._end, self._start + len(GZIP_MAGIC))])
        if self._compression is Compression.GZIP:
            if head != GZIP_MAGIC:
                if GZIP_MAGIC.startswith(head):
                    raise self._truncated()
                raise self._damaged("no gzip member begins here: garbage after the end of the data")
        elif self.members and (head[0] & 0x0F != 8 or int.from_bytes(head[:2], "big") % 31):
            raise self._damaged("no zlib stream begins here: garbage after the end of the data")
        self._stream = isal_zlib.decompressobj(_WINDOW_BITS[self._compression])
        return True

    def _skip_zeros(self) -> bool:
        """Tape and object-store tools pad with zeros; False when nothing else follows."""
        while True:
            if self._start == self._end and not self._refill():
                return False
            if not self.members or self._buffer[self._start]:
                return True
            rest = bytes(self._buffer[self._start : self._end])
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            self._start += zeros
            self.padding += zeros

    def _damaged(self, problem: str) -> CompressionError:
        name = self._compression.value
        return CompressionError(
            f"the {name} stream is damaged near here, after {self.produced:,} decompressed bytes: {problem}",
            self._path,
            offset=self.consumed,
        )

    def _truncated(self) -> TruncatedError:
        name = self._compression.value
        return TruncatedError(
            f"the file ends inside its {name} stream, after {self.produced:,} decompressed bytes",
            self._path,
            offset=self.consumed,
        )
