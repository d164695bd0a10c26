"""The loops that run once per record, in C++ (see kernel/).

Buffers are anything that has the buffer protocol and is C-contiguous; integer arrays are uint64 buffers.
`bounds` are the edges of frames that stand next to each other: frame i is buffer[bounds[i]:bounds[i + 1]],
so n frames have n + 1 bounds. Every call checks what it is given and raises ValueError for what would read
or write out of range; none keeps a reference. All release the GIL but `append` and `payloads`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

U64 = NDArray[np.uint64]

CRC32C_IMPLEMENTATION: Final[str]
"""What this CPU was given: "avx512", "sse4.2", "arm64" or "table"."""

FRAME_OVERHEAD: Final[int]
"""16: length (8), its checksum (4), the payload's checksum (4)."""

# Why `scan` stopped at bounds[count].
PARTIAL: Final[int]
"""The buffer ended: an incomplete frame stands there, or nothing at all."""
FULL: Final[int]
"""`bounds` has no room for another frame."""
BAD_HEADER: Final[int]
"""The length does not match its checksum."""
BAD_PAYLOAD: Final[int]
"""The payload does not match its checksum; the header is right."""
TOO_LONG: Final[int]
"""The header is right and declares a payload of more than `limit` bytes."""

def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, continuing from `crc`."""

def masked_crc32c(data: Buffer) -> int:
    """The form that TFRecord stores: rotated by 15 bits, plus a constant."""

def implementations() -> list[str]:
    """The CRC-32C implementations that this CPU can run, fastest first; for tests."""

def crc32c_with(implementation: str, data: Buffer, crc: int = 0) -> int:
    """`crc32c` by a named implementation; for tests."""

def scan(buffer: Buffer, start: int, bounds: U64, payloads: bool, limit: int) -> tuple[int, int]:
    """Find frames from `start` on: fills `bounds`, gives (number of frames, why it stopped).

    bounds[0] becomes `start`, and bounds[count] is where it stopped. Length checksums are always
    checked, payload checksums when `payloads` is true. Nothing is allocated.
    """

def check_payloads(buffer: Buffer, bounds: U64, threads: int) -> int:
    """The first frame whose payload checksum is wrong, or the number of frames when all are right."""

def resync(buffer: Buffer, start: int, limit: int, final: bool = False) -> tuple[int, bool]:
    """The first place at or after `start` where a frame begins: (position, True).

    A frame counts when its length (at most `limit`) and its payload both match their checksums. With
    (position, False) there is none before `position`: what stands there could still become a frame if
    more bytes followed (its header is right, or fewer than 12 bytes are left). `final` says that no bytes
    follow: then a frame that the buffer's end cuts off is passed over like any other that is wrong.
    """

def gather(source: Buffer, bounds: U64, index: U64, out: Buffer, out_bounds: U64, threads: int) -> int:
    """Copy frames index[0], index[1], ... of `source` to `out`, one after the other, as long as they fit.

    Gives how many it copied; out_bounds[0..that] are their edges in `out`.
    """

def scatter(
    source: Buffer, bounds: U64, bucket: U64, first: int, out: Buffer, cursors: U64, limits: U64
) -> int:
    """Append frame i, for i = first, first + 1, ..., to the region of `out` that bucket[i] names.

    Bucket b may use out[cursors[b]:limits[b]]; its cursor moves on. Stops at the first frame that does not
    fit and gives its number, or the number of frames when all were placed.
    """

def fingerprint(buffer: Buffer, bounds: U64, totals: U64) -> None:
    """Add the frames to totals = [frames, payload bytes, low, high]: an order-independent fingerprint.

    low + (high << 64) is the sum modulo 2**128 of a mix of each frame's length and payload checksum, as
    the frame stores it: `scan` or `check_payloads` must have found the checksums right.
    """

def fragments(bounds: U64, large: int, group: int, ends: U64) -> int:
    """Cut frames into compression fragments: ends[0..count) get the frame number after each one; gives count.

    A frame of `large` bytes or more is a fragment by itself; smaller neighbours share one that ends as
    soon as it has `group` bytes. The frames after the last end are a group that is still open.
    """

def append(out: Buffer, position: int, payload: Buffer, totals: U64) -> int:
    """Frame `payload` into `out` at `position` and add it to `totals` (see `fingerprint`).

    Gives the position after it, or -1, with nothing changed, when it does not fit.
    """

def append_many(
    out: Buffer, position: int, payloads: Sequence[Buffer], first: int, totals: U64
) -> tuple[int, int]:
    """`append` payloads[first], payloads[first + 1], ... as long as they fit: (next to append, position)."""

def payloads(buffer: Buffer, bounds: U64) -> list[bytes]:
    """Each frame's payload as bytes of its own."""
