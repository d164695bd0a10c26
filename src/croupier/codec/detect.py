"""What a file is, told by its first bytes and never by its name.

DeepVariant writes `x.tfrecord.gz-00000-of-00003`, some `.gz` names hold zero bytes, and a first record of
35,615 bytes begins with gzip's own two bytes. So a header whose checksum is right means plain TFRecord, and
that is asked before any magic number.
"""

from __future__ import annotations

import enum

from croupier.frames import is_header

HEAD = 512
"""Bytes that `detect` wants to see; fewer mean that the file has no more."""


class Compression(enum.Enum):
    """How the frames of a file are compressed."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"


GZIP_MAGIC = b"\x1f\x8b\x08"

# For error messages only: what people pass by mistake.
_OTHERS = (
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"BZh", "bzip2-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"\xfd7zXZ", "xz-compressed"),
    (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f", "a Riegeli or ArrayRecord file"),
    (b"\x1f\x8b", "gzip with an unknown method"),
)


def detect(head: bytes) -> Compression:
    """The compression of a file that begins with `head` (`HEAD` bytes, or all that it has)."""
    if not head or is_header(head):
        return Compression.NONE
    if head[:3] == GZIP_MAGIC[: len(head)]:
        return Compression.GZIP
    return Compression.ZLIB if _is_zlib(head) else Compression.NONE


def _is_zlib(head: bytes) -> bool:
    """Zlib's two bytes say little (one pair in 496 fits), but zeros from the fourth byte on mean a length."""
    return (
        len(head) >= 2
        and head[0] & 0x0F == 8
        and head[0] >> 4 <= 7
        and int.from_bytes(head[:2], "big") % 31 == 0
        and head[3:8] != bytes(5)
    )


def describe(head: bytes) -> str:
    """What a file that is not TFRecord seems to be, for an error message; empty when unknown."""
    return next((name for magic, name in _OTHERS if head.startswith(magic)), "")
