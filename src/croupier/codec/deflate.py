"""Writing: plain, zlib in one stream, and seekable gzip.

Seekable gzip is ONE gzip member whose deflate stream is made of fragments, each compressed from a fresh
state and ended by a full flush. Every reader takes it for ordinary gzip; fragments compress on all cores,
decompress from any of them, and can be moved without being compressed again. (Several members would be
simpler, but TensorFlow silently drops the end of some such files: see `tensorflow`.)

    header | fragment 00 00 ff ff | fragment 00 00 ff ff | ... | 03 00 | crc32 | size mod 2^32

Where fragments are cut depends on the record lengths alone, so the same records in the same order give the
same bytes, whatever the threads did.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib
from zlib_ng import zlib_ng

from croupier import _kernel
from croupier.codec.detect import Compression
from croupier.errors import UsageError

# A record as long as deflate's window is a fragment of its own: on DeepVariant's 155 KB records that costs
# 0.6 % of size at level 1 and 1.5 % at level 9. Smaller neighbours share 384 KiB: 0.5 to 1.8 % on records of
# 418 bytes, where 256 KiB would cost up to 2.6 % and 64 KiB up to 6 %. With records of 20 KB alone, level 1
# would run at half the speed of one stream.
LARGE_FRAME = 1 << 15
GROUP = 3 << 17

# Longer frames are compressed in pieces, so that they need not stand in memory. That is zlib-ng's work at all
# levels (see `fragment`: 259 MB/s a core at level 1, and isal 862); at 1, 5 and 6 its bytes depend on where
# pieces end.
STREAMED = 8 << 20
PIECE = 1 << 18

DEFAULT_LEVEL = 5
"""The knee on DeepVariant examples: 409 MB/s a core at 16.7x; 6 gives 286 at 17.3x, 3 gives 672 at 15.4x."""

_TRAILER = struct.Struct("<II")

Bounds = np.ndarray[tuple[int], np.dtype[np.uint64]]


def check_level(level: int | None) -> int:
    """The compression level to use."""
    if level is None:
        return DEFAULT_LEVEL
    if not isinstance(level, int) or not 1 <= level <= 9:
        raise UsageError(f"level must be 1 (fast) to 9 (small), not {level}")
    return level


def codec_name(compression: Compression, level: int) -> str:
    """Which libraries compress, with their versions: the same ones give the same bytes."""
    packages = ["isal", "zlib-ng"] if level <= 2 and compression is Compression.GZIP else ["zlib-ng"]
    return ", ".join(f"{package} {version(package)}" for package in packages)


class Encoded(NamedTuple):
    """Some frames as they go to disk."""

    data: bytes | memoryview
    crc: int
    """CRC-32 of the frames; only gzip computes it."""
    size: int
    """Bytes of the frames."""
    fragments: list[int]
    """Bytes of each fragment in `data`, where there are some."""


@dataclass(frozen=True)
class SeekableGzip:
    """Stateless: any thread may encode any run of whole fragments."""

    level: int

    @property
    def header(self) -> bytes:
        """No name and no time, so that the same records give the same bytes."""
        speed = 2 if self.level == 9 else 4 if self.level == 1 else 0
        return b"\x1f\x8b\x08\x00\x00\x00\x00\x00" + bytes([speed, 255])

    def encode(self, frames: memoryview, edges: list[int]) -> Encoded:
        """Compress frames[edges[i]:edges[i + 1]] into a fragment each."""
        pieces, crc = [], 0
        for begin, end in pairwise(edges):
            piece, check = fragment(frames[begin:end], self.level)
            pieces.append(piece)
            crc = crc32_combine(crc, check, end - begin)
        return Encoded(b"".join(pieces), crc, edges[-1] - edges[0], list(map(len, pieces)))

    def trailer(self, crc: int, size: int) -> bytes:
        """An empty last block, and the checksum and size of everything."""
        return b"\x03\x00" + _TRAILER.pack(crc, size & 0xFFFFFFFF)


def crc32_combine(crc: int, more: int, size: int) -> int:
    """CRC-32 of what `crc` covers, followed by `size` bytes that `more` covers."""
    combined: int = isal_zlib.crc32_combine(crc, more, size)
    return combined


_ThreadState = threading.local()


def fragment(raw: memoryview, level: int) -> tuple[bytes, int]:
    """Raw deflate from a fresh state, ended by a full flush, and the CRC-32 of what it holds.

    By the reusable compressors that both packages make for their own threaded writers, in one call. A
    compressobj a fragment costs more (13 % at level 3, 155 KB), and isal's gave other bytes for the same
    frames about once in 500 fragments. So does this one, isal 1.9.1 at level 1, about once in 20,000: a match
    more or less, right when inflated. It was seen in fresh processes only (1 in 21,600; 0 in 17,000 of one
    process), and never with zlib-ng. Not isal's level 3: it differs between CPUs.
    """
    if len(raw) > STREAMED:
        stream = FragmentStream(level)
        pieces = [stream.compress(raw[at : at + PIECE]) for at in range(0, len(raw), PIECE)]
        return b"".join([*pieces, stream.flush()]), stream.crc
    room = len(raw) + len(raw) // 8 + 1024  # stored blocks add 5 bytes to 64 KiB
    state: tuple[int, int, Any] | None = getattr(_ThreadState, "compressor", None)
    if state is None or state[0] < room or state[1] != level:
        room = max(room, 1 << 19)
        codec = isal_zlib if level <= 2 else zlib_ng
        state = room, level, codec._ParallelCompress(room, level)
        _ThreadState.compressor = state if room <= 1 << 22 else None  # one large record's is not kept
    packed: tuple[bytes, int] = state[2].compress_and_crc(raw, b"")
    return packed


class FragmentStream:
    """What `fragment` gives for a frame longer than STREAMED, of which the whole pieces are handed in."""

    def __init__(self, level: int) -> None:
        self._stream = zlib_ng.compressobj(level, zlib_ng.DEFLATED, -15)
        self.crc = 0
        """CRC-32 of what was handed in."""

    def compress(self, piece: memoryview) -> bytes:
        """A piece of PIECE bytes, or the last one."""
        self.crc = isal_zlib.crc32(piece, self.crc)
        return self._stream.compress(piece)

    def flush(self) -> bytes:
        """The end of the fragment."""
        return self._stream.flush(zlib_ng.Z_FULL_FLUSH)


def zlib_stream(level: int) -> Any:
    """A compressor of one zlib stream; TensorFlow reads no more than the first of several."""
    return zlib_ng.compressobj(level, zlib_ng.DEFLATED, 15)


def cut(bounds: Bounds, *, last: bool) -> tuple[int, list[int]]:
    """How many of these frames make whole fragments, and the buffer positions where those begin and end.

    The frames after them are a group that is still open; `last` ends it.
    """
    frames = len(bounds) - 1
    ends = np.empty(frames + 1, np.uint64)
    count = _kernel.fragments(bounds, LARGE_FRAME, GROUP, ends)
    if last and frames and (count == 0 or ends[count - 1] < frames):
        ends[count] = frames
        count += 1
    numbers = ends[:count].astype(np.intp)
    return int(numbers[-1]) if count else 0, [int(bounds[0]), *bounds[numbers].tolist()]


SUFFIXES = {".gz": Compression.GZIP, ".zlib": Compression.ZLIB, ".zz": Compression.ZLIB}
"""What a name asks for when the caller does not; reading never looks at names."""
