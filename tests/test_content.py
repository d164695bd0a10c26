"""What bytes look like: image headers against Pillow, hostile ones, and what is said of many values."""

import io
import random
import struct

import numpy as np
import pytest
from PIL import Image

from croupier.example import encode
from croupier.example.columns import Column, Kind
from croupier.example.content import Image as Header
from croupier.example.content import Looks, image, inspect, looks_like, printable, text_of

FORMS = {
    "jpeg": ("JPEG", {"RGB": 3, "L": 1, "CMYK": 4}),
    "png": ("PNG", {"RGB": 3, "RGBA": 4, "L": 1, "LA": 2, "P": 3, "I;16": 1}),
    "gif": ("GIF", {"P": 3, "L": 3}),
    "webp": ("WEBP", {"RGB": 3, "RGBA": 4}),
    "bmp": ("BMP", {"RGB": 3, "RGBA": 4, "L": 3}),
    "tiff": ("TIFF", {"RGB": 3, "L": 1, "RGBA": 4}),
}
CASES = [(form, mode, channels) for form, (_, modes) in FORMS.items() for mode, channels in modes.items()]


def saved(form, mode, size, **options):
    out = io.BytesIO()
    picture = Image.new(mode, size)
    if mode == "RGBA":
        picture.putpixel((0, 0), (1, 2, 3, 4))  # or the alpha channel may be left out
    picture.save(out, FORMS[form][0], **options)
    return out.getvalue()


@pytest.mark.parametrize(("form", "mode", "channels"), CASES)
def test_headers_as_pillow_writes_them(form, mode, channels):
    for size in ((1, 1), (640, 480), (3, 1000)):
        value = saved(form, mode, size)
        assert looks_like(value) == form
        assert image(value) == Header(form, *size, channels)


def test_more_kinds_of_headers():
    assert image(saved("webp", "RGB", (40, 30), lossless=True)) == Header("webp", 40, 30, 3)
    assert image(saved("webp", "RGBA", (40, 30), lossless=True)) == Header("webp", 40, 30, 4)
    assert image(saved("webp", "RGB", (40, 30), exif=b"Exif\0\0x")) == Header("webp", 40, 30, 3)
    assert image(saved("jpeg", "RGB", (40, 30), progressive=True)) == Header("jpeg", 40, 30, 3)
    assert image(saved("jpeg", "RGB", (40, 30), comment=b"c" * 60_000)) == Header("jpeg", 40, 30, 3)
    plain = saved("jpeg", "RGB", (40, 30))
    padded = plain[:2] + b"\xff" * 9 + plain[2:]  # any number of these may stand before a marker
    assert image(padded) == Header("jpeg", 40, 30, 3)
    thumbnail = saved("jpeg", "RGB", (7, 5))  # inside a segment: not the image's own size
    segment = b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    assert image(plain[:2] + segment + plain[2:]) == Header("jpeg", 40, 30, 3)


@pytest.mark.parametrize(("form", "mode", "channels"), CASES)
def test_no_bytes_make_it_fail(form, mode, channels):
    """Cut anywhere, or with wrong bytes, a header is the image's, another one, or none."""
    rng = random.Random(mode)
    value = saved(form, mode, (64, 48))[:2000]
    for end in range(min(len(value), 700)):
        image(value[:end])
    for _ in range(1000):
        changed = bytearray(value)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(min(len(value), 100))] = rng.choice(
                [0, 1, 127, 128, 255, rng.randrange(256)]
            )
        found = image(bytes(changed))
        assert found is None or (found.width > 0 and found.height > 0)


def test_hostile_headers():
    endless = b"\xff\xd8" + b"\xff\xe0\x00\x02" * 1_000_000
    assert image(endless) is None
    assert image(b"\xff\xd8\xff" + b"\xff" * 100_000_000) is None
    assert image(b"\xff\xd8\xff\xe0\x00\x00\xff\xc0" + bytes(20)) is None  # a length of 0
    assert image(b"\xff\xd8\xff\xd9" + b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x03") is None
    assert image(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 0, 5, 8, 2)) is None
    assert image(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 12, b"IHDR", 5, 5, 8, 2)) is None
    assert image(b"II*\0" + struct.pack("<I", 2**32 - 1)) is None
    assert image(b"II*\0" + struct.pack("<IH", 8, 65535) + bytes(100)) is None


def test_single_values():
    assert looks_like(b"") == "empty"
    assert looks_like("Übung\n".encode()) == "utf-8"
    assert looks_like(b"\x00\x01") == "raw"
    assert looks_like(encode({"a": 1})) == "example"
    assert looks_like(b"\x0a\x10" + b"\x00" * 16) == "proto"
    assert looks_like(b"\x08\x01") == "raw"  # too little to be sure
    assert text_of("größer".encode()) == "größer"
    assert text_of("größe".encode()[:4]) == "grö"
    assert text_of("grö".encode()[:3]) is None
    assert text_of("grö".encode()[:3], cut=True) == "gr"
    assert text_of(b"\xff\xfe", cut=True) is None
    assert text_of(b"a\x00") is None
    assert text_of(b"a\x00", cut=True) is None


def test_what_is_shown_moves_no_cursor():
    hostile = "a\x1b[2Jb\rc\u202ed\u2028e\x9b1mé漢"
    assert printable(hostile) == "a\\x1b[2Jb\\rc\\u202ed\\u2028e\\x9b1mé漢"
    assert printable("x" * 300) == "x" * 200 + "..."
    assert printable("\udcff") == "\\udcff"


def looks_of(values):
    items = np.cumsum([0, *map(len, values)])
    raw = np.frombuffer(b"".join(values), np.uint8)
    column = Column("x", Kind.BYTES, raw, np.arange(len(values) + 1), items)
    looks = Looks()
    for begin in range(0, len(values), 3):  # in parts
        part = Looks()
        part.add(inspect(column)[1][begin : begin + 3], np.diff(items)[begin : begin + 3])
        looks.merge(part)
    return looks.content, looks.counts


def test_what_many_values_look_like():
    jpeg, png = saved("jpeg", "RGB", (2, 2)), saved("png", "RGB", (2, 2))
    message, example = b"\x08\x01\x12\x03\x00\x01\x02", encode({"a": [1, 2, 3]})
    assert looks_of([]) == ("empty", {})
    assert looks_of([b"", b""]) == ("empty", {})
    assert looks_of([jpeg] * 5 + [b""]) == ("jpeg", {"jpeg": 5})
    assert looks_of([jpeg] * 5 + [png]) == ("image", {"jpeg": 5, "png": 1})
    assert looks_of([b"some", b"words", b""]) == ("utf-8", {"utf-8": 2})
    assert looks_of([b"some", b"words", b"bell\x07"]) == ("utf-8", {"utf-8": 3})
    assert looks_of([b"\x00\x01\x02\x03"] * 9 + [b"text"])[0] == "raw"  # UTF-8 by chance
    assert looks_of([b"\x00\x80\xff"] * 3) == ("raw", {"raw": 3})
    assert looks_of([example] * 9) == ("example", {"example": 9})
    assert looks_of([message] * 20) == ("proto", {"proto": 20})
    assert looks_of([message] * 2) == ("raw", {"raw": 2})  # a few bytes could be anything
    assert looks_of([message] * 20 + [example]) == ("proto", {"proto": 21})
    assert looks_of([message] * 20 + [b"\xff\xff"]) == ("raw", {"raw": 21})
    assert looks_of([b"text"] * 2 + [jpeg] + [b"\xff\xff"]) == ("raw", {"utf-8": 2, "jpeg": 1, "raw": 1})
