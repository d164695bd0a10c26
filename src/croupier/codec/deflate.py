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

# A record of 16 KiB or more is a fragment of its own: on DeepVariant's 155 KB records that costs 0.5 % of
# size at level 1 and 1.2 % at level 6. Smaller neighbours share 256 KiB: 0.2 to 0.8 % on 400-byte records,
# where 64 KiB would cost 3 to 6 %.
LARGE_FRAME = 1 << 14
GROUP = 1 << 18

DEFAULT_LEVEL = 5
"""The knee on DeepVariant examples: 409 MB/s a core at 16.7x; 6 gives 286 at 17.3x, 3 gives 672 at 15.4x."""

_TRAILER = struct.Struct("<II")

Bounds = np.ndarray[tuple[int], np.dtype[np.uint64]]


def check_level(level: int | None) -> int:
    """The compression level to use."""
    if level is None:
        return DEFAULT_LEVEL
    if not 1 <= level <= 9:
        raise UsageError(f"level must be 1 (fast) to 9 (small), not {level}")
    return level


def codec_name(compression: Compression, level: int) -> str:
    """Which library compresses, with its version: the same one gives the same bytes."""
    package = "isal" if level <= 2 and compression is Compression.GZIP else "zlib-ng"
    return f"{package} {version(package)}"


class Encoded(NamedTuple):
    """Some frames as they go to disk."""

    data: bytes | memoryview
    crc: int
    """CRC-32 of the frames; only gzip computes it."""
    size: int
    """Bytes of the frames."""


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
        pieces = []
        crc = 0
        for begin, end in pairwise(edges):
            raw = frames[begin:end]
            pieces.append(_fragment(raw, self.level))
            crc = isal_zlib.crc32(raw, crc)
        return Encoded(b"".join(pieces), crc, edges[-1] - edges[0])

    def trailer(self, crc: int, size: int) -> bytes:
        """An empty last block, and the checksum and size of everything."""
        return b"\x03\x00" + _TRAILER.pack(crc, size & 0xFFFFFFFF)


def combine(crc: int, part: Encoded) -> int:
    """CRC-32 of what `crc` covers followed by `part`."""
    combined: int = isal_zlib.crc32_combine(crc, part.crc, part.size)
    return combined


def _fragment(raw: memoryview, level: int) -> bytes:
    """Raw deflate from a fresh state, ended by a full flush."""
    if level <= 2:
        return _isal_fragment(raw, level)
    stream = zlib_ng.compressobj(level, zlib_ng.DEFLATED, -15)
    packed: bytes = stream.compress(raw) + stream.flush(zlib_ng.Z_FULL_FLUSH)
    return packed


_ThreadState = threading.local()


def _isal_fragment(raw: memoryview, level: int) -> bytes:
    """By isal, all in one call.

    Not by its compressobj: that calls again whenever its output buffer is full, and then, about once in 500
    fragments, what memory happened to hold before changes some matches: right when inflated, but other bytes
    (isal 1.9.1, levels 1 and 2; zlib-ng was always the same). Not level 3 either: it differs between CPUs.
    """
    room = len(raw) + len(raw) // 8 + 1024  # stored blocks add 5 bytes to 64 KiB
    state: tuple[int, int, Any] | None = getattr(_ThreadState, "isal", None)
    if state is None or state[0] < room or state[1] != level:
        state = (max(room, 1 << 20), level, isal_zlib._ParallelCompress(max(room, 1 << 20), level))
        _ThreadState.isal = state if room <= 1 << 24 else None
    packed: bytes = state[2].compress_and_crc(raw, b"")[0]
    return packed


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
