"""What the values of a bytes feature look like: text, images, messages, or none of these.

Nothing is decoded, and nothing is believed: image headers are read with every length checked against the
bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from croupier import _kernel
from croupier.example.columns import Column, Int64s

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]
Octets = np.ndarray[tuple[int], np.dtype[np.uint8]]

IMAGES = ("jpeg", "png", "gif", "webp", "bmp", "tiff")
_TEXT, _UTF8, _PROTO, _EXAMPLE = 1, 2, 4, 8  # kernel/values.h
_EMPTY = _TEXT | _UTF8 | _PROTO | _EXAMPLE
_ENOUGH = 64
"""Bytes that must look like messages before it is said that they are: a few could be anything."""
SURE = 16
"""The same, of a single value."""
SEGMENTS = 4096
"""Of a JPEG, and bytes between them, that are passed over in search of its size."""


def inspect(column: Column) -> tuple[Hashes, Octets]:
    """A 64-bit hash of each value of a bytes column, and its looks: see kernel/values.h."""
    items = column.items if column.items is not None else np.zeros(1, np.int64)
    hashes, looks = np.empty(len(items) - 1, np.uint64), np.empty(len(items) - 1, np.uint8)
    _kernel.inspect_values(column.values, items.view(np.uint64), hashes, looks)
    return hashes, looks


class Looks:
    """What values look like, counted."""

    def __init__(self) -> None:
        self._counts: Int64s = np.zeros(256, np.int64)
        self._messages = 0  # bytes of what may be messages

    def add(self, looks: Octets, sizes: Int64s) -> None:
        """Values of these looks (see `inspect`) and sizes."""
        self._counts += np.bincount(looks, minlength=256)
        self._messages += int(sizes[(looks & _PROTO) != 0].sum())

    def merge(self, other: Looks) -> None:
        """Count what another one counted."""
        self._counts += other._counts
        self._messages += other._messages

    @property
    def counts(self) -> dict[str, int]:
        """How many values look like what, most first; those that are empty look like nothing."""
        found: dict[str, int] = {}
        content = self.content
        for look in np.flatnonzero(self._counts).tolist():
            if look != _EMPTY:
                name = content if _fits(look, content) else _name(look)
                if content == "raw" and name in ("example", "proto"):  # by chance, as the others are not
                    name = "raw"
                found[name] = found.get(name, 0) + int(self._counts[look])
        return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))

    @property
    def content(self) -> str:
        """What all look like that are not empty: "image" for several formats, "raw" for no one thing."""
        if not self._counts.sum() - self._counts[_EMPTY]:
            return "empty"
        for name in (*IMAGES, "utf-8", "example", "proto"):
            if self._all(name) and (name not in ("example", "proto") or self._messages >= _ENOUGH):
                return name
        return "image" if not self._counts[:16].sum() - self._counts[_EMPTY] else "raw"

    def _all(self, name: str) -> bool:
        seen = np.flatnonzero(self._counts).tolist()
        if name == "utf-8" and self._share(_TEXT) * 2 < self._share(_UTF8):
            return False  # as numbers in four bytes are, and much else
        return all(_fits(look, name) for look in seen)

    def _share(self, flag: int) -> int:
        return int(sum(self._counts[look] for look in range(16) if look & flag and look != _EMPTY))


def _fits(look: int, name: str) -> bool:
    if look >= 16:
        return name == IMAGES[look // 16 - 1]
    return look == _EMPTY or bool(look & {"utf-8": _UTF8, "proto": _PROTO, "example": _EXAMPLE}.get(name, 0))


def _name(look: int) -> str:
    """Of a single value."""
    if look >= 16:
        return IMAGES[look // 16 - 1]
    for flag, name in ((_TEXT, "utf-8"), (_EXAMPLE, "example"), (_PROTO, "proto")):
        if look & flag:
            return name
    return "raw"


def printable(text: str, *, most: int = 200) -> str:
    """Text from a record as it may be shown: nothing in it moves a cursor or hides what follows."""
    cut = text if len(text) <= most else text[:most] + "..."
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in cut)


def text_of(value: bytes, *, cut: bool = False) -> str | None:
    """The text that a value is; None if it is none. Of a `cut` one the last character may be incomplete."""
    for lost in range(4 if cut else 1):
        head, tail = value[: len(value) - lost], value[len(value) - lost :]
        if looks_like(head) in ("utf-8", "empty") and all(byte >= 0x80 for byte in tail):
            return head.decode() if head or not value else None
    return None


def looks_like(value: bytes) -> str:
    """What a single value looks like: "jpeg", ..., "utf-8", "example", "proto", "raw", or "empty"."""
    if not value:
        return "empty"
    look = np.zeros(1, np.uint8)
    _kernel.inspect_values(value, np.array([0, len(value)], np.uint64), np.zeros(1, np.uint64), look)
    name = _name(int(look[0]))
    return "raw" if name == "proto" and len(value) < SURE else name


class Image(NamedTuple):
    """What an image's header says."""

    format: str
    width: int
    height: int
    channels: int | None
    """None where the header does not say."""


def image(value: bytes) -> Image | None:
    """The header of an image; None if it is none, or its header is damaged or not the kind that is known."""
    kind = looks_like(value)
    reader = _READERS.get(kind)
    if reader is None:
        return None
    try:
        found = reader(value)
    except (struct.error, IndexError):  # it ends inside of its header
        return None
    return found if found is not None and found.width and found.height else None


def _jpeg(value: bytes) -> Image | None:
    at = 2
    for _ in range(SEGMENTS):
        mark, kind = value[at], value[at + 1]
        if mark != 0xFF:
            return None
        if kind == 0xFF:  # any number of them may stand before a marker
            at += 1
            continue
        if 0xD0 <= kind <= 0xD8 or kind == 0x01:  # without a length
            at += 2
            continue
        (length,) = struct.unpack_from(">H", value, at + 2)
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            _, height, width, channels = struct.unpack_from(">BHHB", value, at + 4)
            return Image("jpeg", width, height, channels)
        if length < 2 or kind in (0xD9, 0xDA):  # the end, or the pixels, and no size before them
            return None
        at += 2 + length
    return None


def _png(value: bytes) -> Image | None:
    length, kind, width, height, _, colours = struct.unpack_from(">I4sIIBB", value, 8)
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colours)
    return Image("png", width, height, channels) if (length, kind) == (13, b"IHDR") else None


def _gif(value: bytes) -> Image | None:
    width, height = struct.unpack_from("<HH", value, 6)
    return Image("gif", width, height, 3)


def _webp(value: bytes) -> Image | None:
    kind = value[12:16]
    if kind == b"VP8X":
        flags, width, height = struct.unpack_from("<B3x3s3s", value, 20)
        width, height = (int.from_bytes(edge, "little") + 1 for edge in (width, height))
        return Image("webp", width, height, 4 if flags & 16 else 3)
    if kind == b"VP8L":
        signature, bits = struct.unpack_from("<BI", value, 20)
        width, height, alpha = bits & 0x3FFF, bits >> 14 & 0x3FFF, bits >> 28 & 1
        return Image("webp", width + 1, height + 1, 3 + alpha) if signature == 0x2F else None
    if kind == b"VP8 ":
        start, width, height = struct.unpack_from("<3x3sHH", value, 20)
        return Image("webp", width & 0x3FFF, height & 0x3FFF, 3) if start == b"\x9d\x01\x2a" else None
    return None


def _bmp(value: bytes) -> Image | None:
    (header,) = struct.unpack_from("<I", value, 14)
    form = "<HHHH" if header == 12 else "<iiHH"
    width, height, _, bits = struct.unpack_from(form, value, 18)
    return Image("bmp", width, abs(height), {1: 3, 4: 3, 8: 3, 24: 3, 32: 4}.get(bits)) if width > 0 else None


def _tiff(value: bytes) -> Image | None:
    order = "<" if value[:2] == b"II" else ">"
    (at,) = struct.unpack_from(f"{order}I", value, 4)
    (count,) = struct.unpack_from(f"{order}H", value, at)
    tags = {}
    for place in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, _ = struct.unpack_from(f"{order}HHI", value, place)
        if kind in (3, 4):
            (tags[tag],) = struct.unpack_from(order + "HI"[kind - 3], value, place + 8)
    return Image("tiff", tags.get(256, 0), tags.get(257, 0), tags.get(277, 1))


_READERS: dict[str, Callable[[bytes], Image | None]] = {
    "jpeg": _jpeg,
    "png": _png,
    "gif": _gif,
    "webp": _webp,
    "bmp": _bmp,
    "tiff": _tiff,
}
