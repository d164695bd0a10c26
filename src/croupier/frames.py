"""The TFRecord wire format, as a stream: from bytes to frames, block by block, and what to do about damage.

frame:  length (8) | masked crc32c of the length (4) | payload | masked crc32c of the payload (4)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from croupier import _kernel
from croupier.errors import (
    DataError,
    HeaderError,
    PayloadError,
    RecordTooLargeError,
    TruncatedError,
    UsageError,
)
from croupier.storage import Source

HEADER, FOOTER = 12, 4
OVERHEAD = _kernel.FRAME_OVERHEAD

MAX_RECORD = (1 << 31) - 1
"""Payload bytes; what protobuf, and so TensorFlow's own writers of Examples, can hold."""

OnCorrupt = Literal["fail", "tolerate-tail", "skip", "salvage"]
"""What to do about damage, everywhere:

fail           raise at the first damaged byte (the default)
tolerate-tail  accept that the file ends inside its last record or compressed stream; raise otherwise
skip           leave out records whose payload is damaged; when a header is, leave out the rest of the file
salvage        as skip, but after a damaged header look on, byte by byte, for the next whole record
"""

POLICIES: tuple[OnCorrupt, ...] = get_args(OnCorrupt)

EVERYTHING = 1 << 64
BLOCK = 1 << 20
MIN_FRAME_ROOM = 1 << 15  # frames that one scan can report: 32 bytes of block each, 256 KiB of bounds


class Giant:
    """A frame that is handed out in pieces: use them up before the next block is asked for."""

    def __init__(self, length: int) -> None:
        self.length = length
        """Of its payload."""
        self.pieces: Iterator[memoryview] = iter(())
        """The payload, each valid until the next one is asked for; damage is raised, whatever the policy."""
        self.crc: int | None = None
        """As stored, after the last piece; None: the file ended before that, and that is tolerated."""


Words = np.ndarray[tuple[int], np.dtype[np.uint32]]


class Tokens(NamedTuple):
    """The matches that a stream's compressor found: see `codec.transcode`."""

    words: Words
    """See `_kernel.Inflater`."""
    start: int
    """Stream offset of the first byte that they make."""


class Block(NamedTuple):
    """Whole frames that stand in memory; valid until the next one is asked for."""

    buffer: memoryview
    bounds: np.ndarray[tuple[int], np.dtype[np.uint64]]
    """Edges of the frames in `buffer`: one more than there are frames."""
    origin: int
    """Stream offset of buffer[0]."""
    record: int
    """Number of the first frame in its file."""
    giant: Giant | None = None
    """The one frame, where it does not stand in memory."""
    tokens: Tokens | None = None
    """Of all frames, where they were noted."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def with_tokens(self, tokens: Tokens | None) -> Block:
        """The same frames."""
        return Block(self.buffer, self.bounds, self.origin, self.record, self.giant, tokens)


@dataclass(frozen=True)
class Damage:
    """A range of bytes that was passed over."""

    path: str
    begin: int
    end: int | None
    """None: to the end of the file."""
    reason: str
    record: int
    """How many records of the file were read before it."""
    inflated: bool
    """The range counts decompressed bytes."""

    def __str__(self) -> str:
        unit = "decompressed bytes" if self.inflated else "bytes"
        end = "end of file" if self.end is None else self.end
        return f"{self.path}: {unit} [{self.begin}, {end}) passed over: {self.reason}"


def check_on_corrupt(on_corrupt: str) -> None:
    """Refuse a word that is none of the four."""
    if on_corrupt not in POLICIES:
        raise UsageError(f"on_corrupt must be one of {', '.join(POLICIES)}, not {on_corrupt!r}")


class FrameReader:
    """Blocks of checked frames from a stream of bytes, in memory that depends on the records alone.

    The buffer, when a block is handed out:

        |-- seen --|--- frames of this block ---|- begun -|- room -|
        0          bounds[0]           bounds[-1]         end

    A frame longer than the buffer makes it grow, but only as its bytes arrive: a declared length of 2^63
    allocates nothing. One longer than `giants_from` is handed out in pieces, and the buffer stays as it is.
    """

    def __init__(
        self,
        source: Source,
        path: str,
        *,
        size: int | None,
        inflated: bool = False,
        on_corrupt: OnCorrupt = "fail",
        max_record: int = MAX_RECORD,
        on_damage: Callable[[Damage], None] = lambda damage: None,
        hint: str = "",
        start: int = 0,
        record: int = 0,
        giants_from: int = EVERYTHING,
    ) -> None:
        """`source` stands at byte `start` of the stream, where record number `record` begins."""
        check_on_corrupt(on_corrupt)
        self._hint, self._giants_from = hint, giants_from
        self._source, self._path, self._size, self._inflated = source, path, size, inflated
        self._policy, self._limit, self._on_damage = on_corrupt, max_record, on_damage
        self._view = memoryview(bytearray(BLOCK if size is None else max(min(size, BLOCK), 64)))
        self._bounds = np.empty(MIN_FRAME_ROOM, np.uint64)
        self._start = self._end = 0  # what is in the buffer and not yet handed out
        self._origin = start  # stream offset of the buffer's first byte
        self._ended = False
        self.records = record
        """The number of the next record."""

    @property
    def offset(self) -> int:
        """Stream offset of the next frame."""
        return self._origin + self._start

    def __iter__(self) -> Iterator[Block]:
        while True:
            view = self._view[: self._end]
            count, why = _kernel.scan(view, self._start, self._bounds, True, self._limit)
            if count:
                block = Block(view, self._bounds[: count + 1], self._origin, self.records)
                self._start = int(self._bounds[count])
                self.records += count
                yield block
            if why == _kernel.FULL:
                continue
            if why == _kernel.PARTIAL:
                if self._giants_from < EVERYTHING and self._is_giant():
                    yield from self._giant()
                    continue
                if not self._cannot_end() and self._fill():
                    continue
                if self._start == self._end:
                    return
            if not self._pass_over(why):
                return

    # Reading on

    def _fill(self) -> bool:
        """Read more behind what is there, after making room; False at the end of the stream."""
        if self._ended:
            return False
        kept = self._end - self._start
        if self._end == len(self._view) or self._start > len(self._view) // 2:
            if self._start:
                self._view[:kept] = self._view[self._start : self._end]
                self._origin += self._start
                self._start, self._end = 0, kept
            else:  # one frame fills the buffer
                larger = memoryview(bytearray(self._next_capacity()))
                larger[:kept] = self._view
                self._view = larger
        got = self._read(self._view[self._end :])
        self._end += got
        self._ended = not got
        return got > 0

    def _read(self, room: memoryview) -> int:
        """Read on; damage to the compressed stream ends it, when the policy allows that."""
        try:
            return self._source.readinto(room)
        except DataError as error:
            error.record = self.records
            if self._policy == "fail":
                raise
            if self._policy == "tolerate-tail" and not isinstance(error, TruncatedError):
                raise
            self._on_damage(Damage(self._path, error.offset, None, error.problem, self.records, False))
            return 0

    def _next_capacity(self) -> int:
        """Twice as much as has arrived; at once all of the frame where the file surely holds it."""
        doubled = 2 * len(self._view)
        return max(doubled, self._declared() + OVERHEAD) if self._size is not None else doubled

    def _declared(self) -> int:
        """Payload bytes of the frame under way, 0 while its header (checked before) is incomplete."""
        if self._end - self._start < HEADER:
            return 0
        length: int = struct.unpack_from("<Q", self._view, self._start)[0]
        return length

    def _cannot_end(self) -> bool:
        """Whether the frame under way runs over the end of a file of known size: no need to read on."""
        if self._size is None or self._end - self._start < HEADER:
            return False
        return self._declared() + OVERHEAD > self._size - self.offset

    def _await(self, position: int) -> bool:
        """Have the buffer filled up to `position` bytes after the next frame's start, if the stream can."""
        while self._end - self._start < position:
            if not self._fill():
                return False
        return True

    def _drop(self, count: int) -> None:
        """Move on by `count` bytes, or to the end of the stream if that comes first."""
        while count > self._end - self._start:
            count -= self._end - self._start
            self._start = self._end
            if not self._fill():
                return
        self._start += count

    # Giants

    def _is_giant(self) -> bool:
        """Whether the frame under way is one, as far as can be told."""
        return self._declared() + OVERHEAD > self._giants_from and not self._cannot_end()

    def _giant(self) -> Iterator[Block]:
        """The next frame, whose header is right; what nobody wants of it is checked all the same."""
        giant = Giant(self._declared())
        giant.pieces = self._pieces(giant)
        bounds = np.array([0, giant.length + OVERHEAD], np.uint64)
        yield Block(memoryview(b""), bounds, self.offset, self.records, giant)
        for _ in giant.pieces:
            pass

    def _pieces(self, giant: Giant) -> Iterator[memoryview]:
        """Behind the header, which stays at the front of the buffer, its bytes come and go."""
        view, kept = self._view, self._end - self._start
        view[:kept] = view[self._start : self._end]
        self._origin += self._start
        self._start, self._end = 0, kept
        at, left, crc = HEADER, giant.length, 0
        while left:
            if at == self._end:
                at = self._go_on_behind(at)
            if at == self._end:
                return self._end_torn(giant, HEADER + giant.length - left)
            piece = view[at : min(at + left, self._end)]
            crc = _kernel.crc32c(piece, crc)
            yield piece
            at, left = at + len(piece), left - len(piece)
        while self._end - at < FOOTER:
            before = self._end - at
            at = self._go_on_behind(at)
            if self._end - at == before:
                return self._end_torn(giant, HEADER + giant.length + before)
        (found,) = struct.unpack_from("<I", view, at)
        if found != masked(crc):
            problem = "the record's payload does not match its checksum"
            raise self._wrong(PayloadError, problem, f"{masked(crc):#010x}", f"{found:#010x}")
        self._start = at + FOOTER
        self._origin += giant.length + OVERHEAD - self._start
        self.records += 1
        giant.crc = found

    def _go_on_behind(self, at: int) -> int:
        """Read on behind the header and what stands from `at` on; gives where that stands now."""
        kept = self._end - at
        self._view[HEADER : HEADER + kept] = self._view[at : self._end]
        self._end = HEADER + kept
        got = self._read(self._view[self._end :])
        self._end += got
        self._ended = not got
        return HEADER

    def _end_torn(self, giant: Giant, have: int) -> None:
        """The stream has ended inside a giant, of which it has so many bytes."""
        problem = f"the file ends inside a record of {giant.length:,} bytes"
        if self._policy == "fail":
            raise self._wrong(TruncatedError, problem, giant.length + OVERHEAD, have)
        begin = self.offset
        self._on_damage(Damage(self._path, begin, begin + have, problem, self.records, self._inflated))
        self._start = self._end
        self._origin = begin + have - self._end

    # Damage

    def _pass_over(self, why: int) -> bool:
        """Deal with damage at the next frame as the policy says; False when the file is done with."""
        torn = why == _kernel.PARTIAL
        if self._policy == "fail" or (self._policy == "tolerate-tail" and not torn):
            raise self._error(why)  # not by way of a local name: that would be a cycle, and keep the buffer
        begin, record, reason = self.offset, self.records, self._error(why).problem
        if self._policy == "salvage":
            found = self._salvage(why)
        else:
            found = not torn and why != _kernel.BAD_HEADER
            self._drop(self._declared() + OVERHEAD if found else EVERYTHING)
        end = self.offset
        self._on_damage(Damage(self._path, begin, end, reason, record, self._inflated))
        return found

    def _salvage(self, why: int) -> bool:
        """Move to the next whole frame: behind a bad payload when the chain holds there, else by search."""
        if why == _kernel.BAD_PAYLOAD:
            behind = self._declared() + OVERHEAD
            if not self._await(behind + HEADER):
                chained = self._end - self._start == behind
            else:
                at = self._start + behind
                chained = is_header(self._view[at : at + HEADER])
            if chained:
                self._start += behind
                return True
        self._start += 1
        while True:
            view = self._view[: self._end]
            self._start, found = _kernel.resync(view, self._start, self._limit, self._ended)
            if found:
                return True
            if self._ended:  # and fewer bytes are left than a header has
                self._start = self._end
                return False
            if self._cannot_end():
                self._start += 1
            else:
                self._fill()

    def _error(self, why: int) -> DataError:
        """What is wrong with the next frame."""
        frame = self._view[self._start : self._end]
        if why == _kernel.BAD_HEADER:
            problem = "the record's length does not match its checksum"
            if self.offset == 0:
                looks = f"this looks like {self._hint}" if self._hint else "is this a TFRecord file at all?"
                problem = f"{problem}; {looks}"
            return self._mismatch(HeaderError, problem, frame[:8], frame[8:])
        length = self._declared()
        if why == _kernel.BAD_PAYLOAD:
            problem = "the record's payload does not match its checksum"
            end = HEADER + length
            return self._mismatch(PayloadError, problem, frame[HEADER:end], frame[end:])
        if why == _kernel.TOO_LONG:
            problem = f"the record declares {length:,} bytes, more than the {self._limit:,} allowed"
            return self._wrong(RecordTooLargeError, problem, self._limit, length)
        have = len(frame) if self._size is None or self._ended else self._size - self.offset
        if have < HEADER:
            problem = f"the file ends {have} bytes into a record's header (TensorFlow would not notice)"
            return self._wrong(TruncatedError, problem, HEADER, have)
        problem = f"the file ends inside a record of {length:,} bytes"
        return self._wrong(TruncatedError, problem, length + OVERHEAD, have)

    def _mismatch(
        self, kind: type[DataError], problem: str, covered: memoryview, stored: memoryview
    ) -> DataError:
        (found,) = struct.unpack_from("<I", stored)
        expected = _kernel.masked_crc32c(covered)
        return self._wrong(kind, problem, f"{expected:#010x}", f"{found:#010x}")

    def _wrong(self, kind: type[DataError], problem: str, expected: object, found: object) -> DataError:
        return kind(
            problem,
            self._path,
            offset=self.offset,
            record=self.records,
            expected=expected,
            found=found,
            inflated=self._inflated,
        )


def masked(crc: int) -> int:
    """A CRC-32C as frames store it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def header(length: int) -> bytes:
    """What a frame begins with."""
    declared = struct.pack("<Q", length)
    return declared + struct.pack("<I", _kernel.masked_crc32c(declared))


def is_header(head: bytes | memoryview) -> bool:
    """Whether a frame's length stands here, with a checksum that is right."""
    return len(head) >= HEADER and struct.unpack_from("<I", head, 8)[0] == _kernel.masked_crc32c(head[:8])
