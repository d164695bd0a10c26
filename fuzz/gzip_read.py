"""Mutated gzip and zlib files through our readers and through zlib: all must agree.

    python fuzz/gzip_read.py --seconds 20 --seed 1 [FILE...]     # FILEs are replayed first

Agreement: the same bytes, or an error from all. A file that makes them differ is kept by its digest.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import random
import sys
import time
import zlib
from pathlib import Path

from croupier.codec.detect import Compression
from croupier.codec.inflate import Inflater
from croupier.codec.transcode import NotingInflater
from croupier.errors import DataError

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus" / "gzip"


class Memory:
    """A source that gives its bytes in pieces of odd sizes."""

    def __init__(self, content: bytes, step: int) -> None:
        self._rest, self._step = memoryview(content), step

    def readinto(self, view: memoryview, /) -> int:
        piece = self._rest[: min(len(view), self._step)]
        view[: len(piece)] = piece
        self._rest = self._rest[len(piece) :]
        return len(piece)


def ours(
    kind: type[Inflater], content: bytes, compression: Compression, step: int, room: int
) -> bytes | None:
    """What our reader makes of it; None for an error."""
    inflater = kind(Memory(content, step), "fuzz", compression)
    view, output = memoryview(bytearray(room)), bytearray()
    try:
        while count := inflater.readinto(view):
            output += view[:count]
    except DataError:
        return None
    return bytes(output)


def theirs(content: bytes, compression: Compression) -> bytes | None:
    """What zlib makes of it, stream after stream, with zeros between and behind them passed over.

    Not Python's gzip module: it takes flags that do not exist, and headers that do not match their checksum.
    """
    output = b""
    try:
        while True:
            stream = zlib.decompressobj(31 if compression is Compression.GZIP else 15)
            output += stream.decompress(content)
            if not stream.eof:
                return None
            content = stream.unused_data.lstrip(b"\0")
            if not content:
                return output
    except zlib.error:
        return None


def seeds(rng: random.Random) -> list[tuple[bytes, Compression]]:
    """Whole files of every kind to begin with."""
    text = bytes(rng.choice(b"ACGT\n") for _ in range(3000))
    noise = rng.randbytes(700)
    flushed = zlib.compressobj(6, zlib.DEFLATED, 31)
    parts = b"".join(
        flushed.compress(text[i : i + 500]) + flushed.flush(zlib.Z_FULL_FLUSH) for i in range(0, 3000, 500)
    )
    stored = zlib.compressobj(0, zlib.DEFLATED, 31)
    gz = [
        gzip.compress(text, 6, mtime=0),
        gzip.compress(noise, 1, mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(text[:50], mtime=0),
        gzip.compress(text, 9) + bytes(600),
        parts + flushed.flush(),
        stored.compress(noise) + stored.flush(),
        b"\x1f\x8b\x08\x1c"
        + bytes(6)
        + b"\x06\x00BC\x02\x00\x10\x00name\x00comment\x00"
        + gzip.compress(text)[10:],
    ]
    return [(item, Compression.GZIP) for item in gz] + [
        (zlib.compress(text), Compression.ZLIB),
        (zlib.compress(noise) + zlib.compress(text), Compression.ZLIB),
    ]


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A few random changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 100))]
        elif kind == 3:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 4:
            data[at:at] = data[at : at + rng.choice((4, 20, 500))]
        else:
            del data[at:]
    return bytes(data)


def differ(content: bytes, compression: Compression, rng: random.Random) -> bool:
    """Whether readers disagree about a file."""
    if not content:
        return False  # zero bytes are a plain file to us
    step, room = rng.choice((1, 7, 300, 1 << 20)), rng.choice((1, 100, 1 << 16))
    right = theirs(content, compression)
    return any(ours(kind, content, compression, step, room) != right for kind in (Inflater, NotingInflater))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    failures = 0
    for path in [*arguments.files, *sorted(CORPUS.glob("*"))]:
        kind = Compression.ZLIB if path.suffix == ".zlib" else Compression.GZIP
        if differ(path.read_bytes(), kind, rng):
            print(f"differs: {path}")
            failures += 1
    corpus, runs, end = seeds(rng), 0, time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        content, compression = rng.choice(corpus)
        mutant = mutate(content, rng)
        runs += 1
        if differ(mutant, compression, rng):
            kind = "zlib" if compression is Compression.ZLIB else "gz"
            name = f"{hashlib.sha256(mutant).hexdigest()[:16]}.{kind}"
            Path(name).write_bytes(mutant)
            print(f"differs: kept as {name}")
            failures += 1
    print(f"gzip_read: {runs} executions, {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
