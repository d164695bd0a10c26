"""What the kernel says of values: their hashes and what they look like, against plain Python."""

import io
import random
import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croupier import _kernel as kernel
from kernel_help import quick, u64

TEXT, UTF8, PROTO, EXAMPLE = 1, 2, 4, 8
IMAGES = {"JPEG": 16, "PNG": 32, "GIF": 48, "WEBP": 64, "BMP": 80, "TIFF": 96}


def inspect(values):
    edges = np.cumsum([0, *map(len, values)]).astype(np.uint64)
    hashes, looks = np.zeros(len(values), np.uint64), np.zeros(len(values), np.uint8)
    kernel.inspect_values(b"".join(values), edges, hashes, looks)
    return hashes.tolist(), looks.tolist()


def mix(a, b):
    product = a * b
    return (product ^ product >> 64) & (1 << 64) - 1


def hash_of(value):
    one, two, size = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, len(value)
    state, rest = one ^ size, value
    while len(rest) > 16:
        state = mix(int.from_bytes(rest[:8], "little") ^ two, int.from_bytes(rest[8:16], "little") ^ state)
        rest = rest[16:]
    word = 8 if len(rest) >= 8 else 4 if len(rest) >= 4 else 0
    a, b = int.from_bytes(rest[:word], "little"), int.from_bytes(rest[len(rest) - word :], "little")
    if not word:
        a, b = (rest[0] << 16 | rest[len(rest) // 2] << 8 | rest[-1] if rest else 0), 0
    return mix(two ^ size, mix(a ^ two, b ^ state))


def varint(data):
    value = 0
    for place, byte in enumerate(data[:10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return (value, data[place + 1 :]) if value < 1 << 64 else None
    return None


def fields(data):
    """[(number, wire type, bytes)], or None."""
    found = []
    while data:
        tag, data = varint(data) or (0, b"")
        kind = tag & 7
        if not 1 <= tag >> 3 <= 100_000 or kind not in (0, 1, 2, 5):
            return None
        if kind == 0:
            if (got := varint(data)) is None:
                return None
            value, data = b"", got[1]
        else:
            size, data = (
                (varint(data) or (len(data) + 1, data)) if kind == 2 else (8 if kind == 1 else 4, data)
            )
            if size > len(data):
                return None
            value, data = data[:size], data[size:]
        found.append((tag >> 3, kind, value))
    return found


def text_of(value):
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return 0
    return UTF8 | TEXT * all(c >= " " or c in "\t\n\v\f\r" for c in text)


def is_entry(entry):
    found, named = fields(entry), False
    for number, kind, value in found or [(0, 0, b"")]:
        if kind != 2 or number not in (1, 2):
            return False
        if number == 1:
            named = value != b"" and bool(text_of(value) & TEXT)
    return named


def proto_of(value):
    found = fields(value)
    if found is None:
        return 0
    features = []
    for number, kind, part in found:
        inner = fields(part) if (number, kind) == (1, 2) else None
        if inner is None or not all((n, k) == (1, 2) and is_entry(v) for n, k, v in inner):
            return PROTO
        features += inner
    return PROTO | EXAMPLE * bool(features)


def image_of(value):
    for magic, kind in ((b"\xff\xd8\xff", "JPEG"), (b"\x89PNG\r\n\x1a\n", "PNG"), (b"II*\0", "TIFF"),
                        (b"MM\0*", "TIFF"), (b"GIF87a", "GIF"), (b"GIF89a", "GIF")):  # fmt: skip
        if value.startswith(magic):
            return IMAGES[kind]
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return IMAGES["WEBP"]
    sized = value[:2] == b"BM" and len(value) >= 26 and value[2:10] == len(value).to_bytes(8, "little")
    return IMAGES["BMP"] * sized


def looks_of(value):
    if image := image_of(value):
        return image
    return text_of(value) | proto_of(value) if value else TEXT | UTF8 | PROTO | EXAMPLE


def field(number, *parts):
    body = b"".join(parts)
    return bytes([number << 3 | 2]) + (bytes([len(body)]) if len(body) < 128 else b"\xff\x01") + body


def entry(name, feature=b""):
    return field(1, field(1, name), *([field(2, feature)] if feature else []))


def random_message(rng, depth=3):
    parts = []
    for _ in range(rng.randrange(4)):
        kind = rng.choice([0, 1, 2, 2, 5])
        tag = bytes([rng.choice([1, 1, 2, 3]) << 3 | kind])
        if kind == 2:
            body = random_message(rng, depth - 1) if depth and rng.random() < 0.8 else rng.randbytes(3)
            parts.append(tag + bytes([len(body) & 127]) + body)
        else:
            parts.append(tag + {0: b"\x81\x01", 1: bytes(8), 5: bytes(4)}[kind])
    return b"".join(parts)


def mutated(rng, value):
    value = bytearray(value)
    for _ in range(rng.randrange(3)):
        if value:
            value[rng.randrange(len(value))] = rng.choice(
                [0, 1, 10, 18, 65, 127, 128, 194, 224, 237, 240, 255]
            )
    return bytes(value[: rng.randrange(len(value) + 1)] if rng.random() < 0.2 else value)


@quick
@given(st.lists(st.binary(max_size=60) | st.text(max_size=20).map(str.encode), max_size=30))
@example(
    [b"\xff\xd8\xff", b"BM" + (26).to_bytes(8, "little") + bytes(16), b"RIFF1234WEBP", b"MM\0*", b"GIF89a"]
)
def test_as_plain_python(values):
    hashes, looks = inspect(values)
    assert hashes == list(map(hash_of, values))
    assert looks == list(map(looks_of, values))


def test_messages_as_plain_python():
    rng = random.Random(3)
    some = [entry(b"a") + entry("ü".encode(), b"\x0a\x00"), entry(b"", b"\x0a\x00"), entry(b"\x00"), b""]
    seeds = [field(1, part) for part in some] + [field(1, some[0]) * 2, b"\x0a\x00" * 2 + field(1, some[0])]
    values = [
        mutated(rng, random_message(rng) if rng.random() < 0.6 else rng.choice(seeds)) for _ in range(20000)
    ]
    _, looks = inspect(values)
    assert looks == list(map(looks_of, values))
    assert {PROTO, PROTO | EXAMPLE, 0, TEXT | UTF8} <= set(looks)


def test_every_two_and_many_longer_characters():
    pairs = [bytes([a, b]) for a in range(256) for b in range(256)]
    firsts = range(0xE0, 0xF8)
    longer = [
        bytes([a, b, c, 0x80]) for a in firsts for b in range(0x70, 0xC8) for c in (0x7F, 0x80, 0xBF, 0xC0)
    ]
    values = [*pairs, *longer, *(value[:3] for value in longer), *(b"12345678" + value for value in longer)]
    _, looks = inspect(values)
    assert [look & 3 for look in looks] == list(map(text_of, values))


@pytest.mark.parametrize("kind", IMAGES)
def test_images(kind):
    from PIL import Image

    for mode, size in (("RGB", (3, 2)), ("L", (640, 480))):
        out = io.BytesIO()
        Image.new(mode, size).save(out, kind)
        assert inspect([out.getvalue()])[1] == [IMAGES[kind]]


def test_words_that_begin_like_images_are_words():
    words = [b"BMW", b"BM" + b"x" * 40, b"RIFF or raff", b"GIF8", b"II*", b"MM and more"]
    assert inspect(words)[1] == [TEXT | UTF8] * len(words)
    assert inspect([b"\xff\xd8", b"\x89PNG"])[1] == [0, 0]


def test_long_values():
    rng = random.Random(1)
    values = [rng.randbytes(size) for size in (1 << 20, 17, 16, 15, 0)] + [
        "é".encode() * 100_000,
        b" " * 99_999,
    ]
    hashes, looks = inspect(values)
    assert hashes == list(map(hash_of, values))
    assert looks[-2:] == [TEXT | UTF8] * 2


def test_wrong_calls_are_refused():
    room = np.zeros(4, np.uint64), np.zeros(4, np.uint8)
    for edges in ([0, 5], [3, 2], [0, 2**64 - 1], [2**63, 2**63]):
        with pytest.raises(ValueError, match="edges must ascend"):
            kernel.inspect_values(b"1234", u64(edges), *room)
    with pytest.raises(ValueError, match="room for all"):
        kernel.inspect_values(b"1234", u64(range(5)), np.zeros(3, np.uint64), room[1])
    with pytest.raises(ValueError, match="room for all"):
        kernel.inspect_values(b"1234", u64(range(5)), room[0], np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="at least 1"):
        kernel.inspect_values(b"", u64([]), *room)
    with pytest.raises(TypeError):
        kernel.inspect_values(b"1234", np.arange(5), *room)
    kernel.inspect_values(b"", u64([0]), u64([]), np.zeros(0, np.uint8))


def test_hashes_are_pinned():
    """They must be the same tomorrow, and on another machine."""
    hashes, _ = inspect([b"", b"a", b"croupier", struct.pack("<4Q", 1, 2, 3, 4)])
    assert hashes == [0x42BC986DC5EEC4D3, 0x84508DC903C31551, 0x84EC08F72174DAA7, 0x3A8FFE503F3CE2E7]
