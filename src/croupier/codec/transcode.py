"""Level "same": deflating records again with the matches that their first compressor found.

To find matches is nearly all that deflating costs: with those of the input, a record of DeepVariant's is
deflated anew at 1,030 MB/s a core, as small as it was (0.99 of the input). zlib-ng's level 7 comes as near,
at a tenth of that.

The inflater notes matches while it reads. Those that reach back to before a record are sought in it anew; the
codes are made for each record. Only records that are a fragment of their own (see `deflate`) are handled so.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from isal import isal_zlib

from croupier import _kernel
from croupier.codec import deflate
from croupier.codec.detect import Compression
from croupier.codec.inflate import Inflater
from croupier.errors import IntegrityError
from croupier.frames import Block, FrameReader, Tokens, Words
from croupier.storage import Source

Level = int | Literal["same"]
SAME: Final = "same"
VERSION = 1
"""Of the fragments' bytes: another one when the same input would give others."""

_ROOM = 1 << 20  # bytes for one call: tokens of so many are looked through for where a record begins
_SLOTS = 1 << 16


def check_level(level: Level | None) -> Level:
    """The compression level to use."""
    return SAME if level == SAME else deflate.check_level(level)


def base_level(level: Level) -> int:
    """The level of what has no matches yet: small records, and those of plain files."""
    return deflate.DEFAULT_LEVEL if level == SAME else level


def codec_name(compression: Compression, level: Level) -> str:
    """What compresses, with its version: the same one gives the same bytes from the same inputs."""
    rest = deflate.codec_name(compression, base_level(level))
    return f"croupier transcode {VERSION}, {rest}" if level == SAME else rest


class _Noted(NamedTuple):
    start: int
    end: int
    words: Words


class NotingInflater(Inflater):
    """An `Inflater` that remembers the tokens of what it inflated lately."""

    def __init__(self, source: Source, path: str, compression: Compression) -> None:
        super().__init__(source, path, compression)
        self._room = np.empty(_SLOTS, np.uint32)
        self._noted: deque[_Noted] = deque()
        self._reader: FrameReader | None = None

    def serve(self, reader: FrameReader) -> None:
        """Forget what lies before the next frame of this reader. Without a reader, all is kept."""
        self._reader = weakref.proxy(reader)  # it has us as its source: that would be a cycle

    def tokens(self, begin: int, end: int) -> Tokens:
        """Of these decompressed bytes, and of some around them."""
        some = [one for one in self._noted if one.end > begin and one.start < end]
        if not some:
            return Tokens(np.empty(0, np.uint32), begin)
        return Tokens(np.concatenate([one.words for one in some]), some[0].start)

    def _new_stream(self) -> Any:
        return _kernel.Inflater()

    def _inflate(self, view: memoryview) -> int:
        self._forget()
        data = self._buffer[self._start : self._end]
        consumed, produced, count, why = self._stream.inflate(data, view[:_ROOM], self._room)
        if why == _kernel.BAD_STREAM and not produced:
            raise self._damaged(self._stream.problem)
        self._start += consumed
        self._ended = why == _kernel.ENDED
        start = self._noted[-1].end if self._noted else self.produced
        end = self.produced + produced + self._stream.ahead
        if count:
            self._noted.append(_Noted(start, end, self._room[:count].copy()))
        return int(produced)

    def _forget(self) -> None:
        if self._reader is not None:
            needed = self._reader.offset
            while len(self._noted) > 1 and self._noted[0].end <= needed:
                self._noted.popleft()


def packer(block: Block, level: Level) -> Callable[[int, memoryview], tuple[bytes, int]]:
    """What makes a fragment of a frame of this block, by its number: see `deflate.fragment`."""
    if level != SAME or block.tokens is None:
        number = base_level(level)
        return lambda _, frame: deflate.fragment(frame, number)
    words = block.tokens.words
    edges = block.bounds + np.uint64(block.origin) - np.uint64(block.tokens.start)
    index, into = np.empty(len(edges), np.uint64), np.empty(len(edges), np.uint64)
    if not _kernel.find_tokens(words, edges, index, into):
        raise IntegrityError(
            f"records {block.record} to {block.record + len(block)}: their tokens are not here"
        )

    def again(number: int, frame: memoryview) -> tuple[bytes, int]:
        packed = _kernel.transcode(frame, words[int(index[number]) :], int(into[number]))
        return packed, isal_zlib.crc32(frame)

    return again
