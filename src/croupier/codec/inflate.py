"""Reading gzip and zlib: one member, many, empty ones, bgzip, flush points, trailing zeros.

The stream is decoded piece by piece into the caller's buffer, so memory stays the same whatever a file
declares or expands to. Every member's checksum and length are checked; whatever stands between or after
members and is neither a member nor zeros is an error.

The codec sees raw deflate only. Headers and trailers are read here, because isal 1.9 loses its place in a
gzip header with a name or an extra field that two calls share: bgzip's have one, at any edge of a buffer.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, cast

from isal import isal_zlib

from croupier.codec.detect import GZIP_MAGIC, Compression
from croupier.errors import CompressionError, TruncatedError
from croupier.storage import Source

READ = 1 << 18
# What is fed to the codec at once: it copies what is left of a slice at the end of each member, so slices
# are small beside bgzip's members (about 20 KB) and large beside the cost of a call (2 µs).
SLICE = 1 << 15
# At the end of its stream the codec may give back bytes of earlier calls (it reads 8 ahead); they go here.
_GIVEN_BACK = 16

_DeflateError = cast(type[Exception], isal_zlib.error)
_EXTRA, _NAME, _COMMENT, _HEADER_CRC, _RESERVED = 4, 8, 16, 2, 0xE0


class Inflater:
    """A `Source` of decompressed bytes over a `Source` of compressed ones."""

    def __init__(self, source: Source, path: str, compression: Compression) -> None:
        self._source, self._path = source, path
        self._name = compression.value
        self._gzip = compression is Compression.GZIP
        self._buffer = memoryview(bytearray(_GIVEN_BACK + READ))
        self._start = self._end = _GIVEN_BACK  # what was read and not yet consumed
        self._before = -_GIVEN_BACK  # file offset of the buffer's first byte
        self._stream: Any = None  # the member under way, with the checksum and size of its content so far
        self._check = self._size = 0
        self._ended = False
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
            if self._ended:
                self._end_member()  # not before its last output was handed over
            if self._stream is None and not self._begin_member():
                return 0
            no_more = self._start == self._end and not self._refill()
            count = self._inflate(view)
            checksum = isal_zlib.crc32 if self._gzip else isal_zlib.adler32
            self._check = checksum(view[:count], self._check)
            self._size += count
            self.produced += count
            if count:
                return count
            if no_more and not self._ended:
                raise self._truncated()

    def _new_stream(self) -> Any:
        """What inflates one member."""
        return isal_zlib.decompressobj(-15)

    def _inflate(self, view: memoryview) -> int:
        """Go on in the member under way, or end it; gives how many bytes there are now."""
        stream, piece = self._stream, self._buffer[self._start : min(self._end, self._start + SLICE)]
        try:
            output: bytes = stream.decompress(piece, len(view))
        except _DeflateError as error:
            raise self._damaged(str(error)) from None
        view[: len(output)] = output
        self._ended = stream.eof
        if stream.eof:
            self._give_back(stream.unused_data, piece)
        else:
            self._start += len(piece) - len(stream.unconsumed_tail)
        return len(output)

    def _refill(self) -> bool:
        """Read on, behind what is still unread; False at the end of the file."""
        kept = self._end - self._start
        self._buffer[_GIVEN_BACK : _GIVEN_BACK + kept] = self._buffer[self._start : self._end]
        self._before += self._start - _GIVEN_BACK
        self._start, self._end = _GIVEN_BACK, _GIVEN_BACK + kept
        count = self._source.readinto(self._buffer[self._end :])
        self._end += count
        return count > 0

    def _give_back(self, unused: bytes, piece: memoryview) -> None:
        """Stand at the first byte behind a deflate stream; it may have come with an earlier piece."""
        self._start += len(piece) - len(unused)
        early = len(unused) - len(piece)
        if early > 0:
            self._buffer[self._start : self._start + early] = unused[:early]

    def _have(self, count: int) -> bool:
        """Whether the next `count` bytes are in the buffer, after reading on if need be."""
        while self._end - self._start < count:
            if not self._refill():
                return False
        return True

    # Members

    def _begin_member(self) -> bool:
        """Read a member's header; False when there is none."""
        if not self._skip_zeros():
            return False
        if self._gzip:
            self._read_gzip_header()
        else:
            self._read_zlib_header()
        self._stream = self._new_stream()
        self._check, self._size = (0 if self._gzip else 1), 0
        return True

    def _skip_zeros(self) -> bool:
        """Tape and object-store tools pad with zeros; False when nothing else follows."""
        while self._have(1):
            if not self.members or self._buffer[self._start]:
                return True
            rest = bytes(self._buffer[self._start : self._end])
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            self._start += zeros
            self.padding += zeros
        return False

    def _read_gzip_header(self) -> None:
        whole = self._have(10)
        head = bytes(self._buffer[self._start : min(self._end, self._start + 10)])
        if not head.startswith(GZIP_MAGIC[: len(head)]):
            raise self._damaged("no gzip member begins here: garbage after the end of the data")
        if not whole:
            raise self._truncated()
        flags = head[3]
        if flags & _RESERVED:
            raise self._damaged("the gzip header has flags that do not exist")
        check = zlib.crc32(self._take(10))
        if flags & _EXTRA:
            size = self._take(2)
            check = zlib.crc32(self._take(int.from_bytes(size, "little")), zlib.crc32(size, check))
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                check = self._skip_text(check)
        if flags & _HEADER_CRC and int.from_bytes(self._take(2), "little") != check & 0xFFFF:
            raise self._damaged("the gzip header does not match its checksum")

    def _skip_text(self, check: int) -> int:
        """Pass a zero-terminated text of any length; gives the header's checksum with it."""
        while True:
            rest = bytes(self._buffer[self._start : self._end])
            end = rest.find(b"\0") + 1
            check = zlib.crc32(self._take(end or len(rest)), check)
            if end:
                return check
            if not self._have(1):
                raise self._truncated()

    def _read_zlib_header(self) -> None:
        garbage = "no zlib stream begins here: garbage after the end of the data"
        if self._buffer[self._start] & 0x8F != 8:
            raise self._damaged(garbage)
        first, second = self._take(2)
        if (first << 8 | second) % 31:
            raise self._damaged(garbage)
        if second & 0x20:
            raise self._damaged("the zlib stream needs a preset dictionary")

    def _take(self, count: int) -> bytes:
        """Consume `count` bytes of a header or trailer; at most 64 KiB, so the buffer holds them."""
        if not self._have(count):
            raise self._truncated()
        taken = bytes(self._buffer[self._start : self._start + count])
        self._start += count
        return taken

    def _end_member(self) -> None:
        """Check a member's trailer."""
        self._stream, self._ended = None, False
        if self._gzip:
            expected, size = struct.unpack("<II", self._take(8))
            if size != self._size & 0xFFFFFFFF:
                raise self._damaged(f"its content has {self._size:,} bytes, its trailer says {size:,}")
        else:
            (expected,) = struct.unpack(">I", self._take(4))
        if expected != self._check:
            values = f"expected {expected:#010x}, found {self._check:#010x}"
            raise self._damaged(f"its content does not match its checksum ({values})")
        self.members += 1

    def _damaged(self, problem: str) -> CompressionError:
        where = f"the {self._name} stream is damaged near here, after {self.produced:,} decompressed bytes"
        return CompressionError(
            f"{where}: {problem}",
            self._path,
            offset=self.consumed,
        )

    def _truncated(self) -> TruncatedError:
        return TruncatedError(
            f"the file ends inside its {self._name} stream, after {self.produced:,} decompressed bytes",
            self._path,
            offset=self._before + self._end,
        )
