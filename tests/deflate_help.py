"""Deflate streams of all kinds, and the kernel's inflater as the tests call it."""

import random
import zlib

import numpy as np
from isal import isal_zlib
from zlib_ng import zlib_ng

from conftest import SHARED_DATA
from croupier import _kernel as kernel

GOLDEN = sorted(SHARED_DATA.glob("golden*"))
STRATEGIES = {
    "default": zlib.Z_DEFAULT_STRATEGY,
    "filtered": zlib.Z_FILTERED,
    "huffman": zlib.Z_HUFFMAN_ONLY,
    "rle": zlib.Z_RLE,
    "fixed": zlib.Z_FIXED,
}
END = b"\x03\x00"
"""An empty last block."""


def contents():
    """Bytes of many kinds, by name."""
    draw = random.Random(1)
    words = [bytes(draw.choices(b"abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(500)]
    many = {
        "nothing": b"",
        "one": b"x",
        "zeros": bytes(100_000),
        "random": draw.randbytes(100_000),
        "text": b" ".join(draw.choices(words, k=30_000)),
        "far": (far := draw.randbytes(32_500)) + far * 2,  # zlib looks no further back
        "rows": b"".join(bytes([row % 7]) * 150 + draw.randbytes(3) for row in range(1_500)),
        "few": bytes(draw.choices(b"ab", k=50_000)),
    }
    if GOLDEN:
        many["examples"] = zlib.decompress(GOLDEN[0].read_bytes(), 31)[:1_200_000]
    return many


def packed(raw, level=6, *, codec=zlib, window=15, memory=8, strategy=zlib.Z_DEFAULT_STRATEGY, flush=None):
    """Raw deflate; `flush` comes after each 5,000 bytes."""
    packer = codec.compressobj(level, 8, -window, memory, strategy)
    if flush is None:
        return packer.compress(raw) + packer.flush()
    pieces = [raw[at : at + 5_000] for at in range(0, len(raw), 5_000)]
    return b"".join(packer.compress(piece) + packer.flush(flush) for piece in pieces) + packer.flush()


def streams(raw):
    """The same bytes from different compressors, by name."""
    for level in range(10):
        yield f"zlib {level}", packed(raw, level)
        yield f"zlib-ng {level}", packed(raw, level, codec=zlib_ng)
    for level in range(4):
        yield f"isal {level}", packed(raw, level, codec=isal_zlib)
    for name, strategy in STRATEGIES.items():
        yield name, packed(raw, strategy=strategy)
    yield "small window", packed(raw, 9, window=9)
    yield "little memory", packed(raw, memory=1)
    yield "much memory", packed(raw, memory=9)
    yield "sync flushes", packed(raw, flush=zlib.Z_SYNC_FLUSH)
    yield "full flushes", packed(raw, flush=zlib.Z_FULL_FLUSH)


def inflated(data, pieces=None, rooms=None, slots=1 << 12):
    """(why it stopped, the bytes, the tokens, what it did not consume); `pieces`, `rooms`: endless sizes."""
    inflater, output, tokens = kernel.Inflater(), bytearray(), []
    at, given = 0, next(pieces) if pieces else len(data)
    while True:
        room = bytearray(next(rooms) if rooms else 1 << 18)
        noted = np.zeros(slots, np.uint32)
        consumed, produced, count, why = inflater.inflate(data[at : at + given], room, noted)
        output += room[:produced]
        tokens.append(noted[:count])
        at, given = at + consumed, given - consumed
        if why in (kernel.ENDED, kernel.BAD_STREAM):
            break
        if why == kernel.NEEDS_INPUT:
            assert given == 0 or at == len(data)
            if at == len(data):
                break
            given = next(pieces) if pieces else len(data)
    return why, bytes(output), np.concatenate(tokens), data[at:]


def by_zlib(data):
    """The same by zlib, byte by byte, so that what comes before an error is seen; no tokens."""
    inflater, output = zlib.decompressobj(-15), bytearray()
    for at in range(len(data)):
        try:
            output += inflater.decompress(data[at : at + 1])
        except zlib.error:
            return kernel.BAD_STREAM, bytes(output), None, None
        if inflater.eof:
            return kernel.ENDED, bytes(output), None, data[at + 1 :]
    return kernel.NEEDS_INPUT, bytes(output), None, b""


def replay(tokens, raw):
    """What tokens make, taking literals from `raw`."""
    made = bytearray()
    for token in tokens.tolist():
        run = token >> 25 == 127
        count = token & 0x1FFFFFF if run else token >> 25
        made += raw[len(made) : len(made) + count]
        if not run:
            length, distance = token >> 16 & 511, (token & 0xFFFF) + 1
            for _ in range(length):
                made.append(made[-distance])
    return bytes(made)


def spans(tokens):
    """How many bytes each token covers."""
    runs = tokens >> 25 == 127
    return np.where(runs, tokens & 0x1FFFFFF, (tokens >> 25) + (tokens >> 16 & 511)).astype(np.int64)
