"""Mutated offset tables: refused, or harmless and in little memory; and no wrong record is read by one.

    python fuzz/table.py --seconds 20 --seed 1 [FILE...]     # FILEs are replayed first

Half of the mutants get their checksum put right, so that they reach what is checked behind it. A table that
does harm is kept as build/fuzz/table-crash-*; it belongs into tests/corpus/table/, with a name.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import struct
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

import croupier
from croupier import _kernel
from croupier.errors import CroupierError, SlowAccessWarning, TableError
from croupier.table import format as on_disk
from croupier.table.model import Kind, Table, join

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus" / "table"
MODIFIED = 10**18
"""Of all files: the tables of the corpus know it, and so are fresh wherever the files are made."""
NUMBERS = [0, 1, 2, 3, 7, 63, 64, 65]
NUMBERS += [(1 << power) - less for power in (31, 32, 40, 62, 63, 64) for less in (1, 0)]


class Small(NamedTuple):
    """A file of the dataset, made without a codec: its bytes must be the same everywhere."""

    name: str
    kind: Kind
    payloads: list[bytes]
    content: bytes
    raw: list[int]
    stored: list[int]


def frame(payload: bytes) -> bytes:
    size = struct.pack("<Q", len(payload))
    head = size + struct.pack("<I", _kernel.masked_crc32c(size))
    return head + payload + struct.pack("<I", _kernel.masked_crc32c(payload))


def stored_block(data: bytes) -> bytes:
    return b"\0" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data


def small_files() -> list[Small]:
    """A plain file of two blocks, one in fragments, one that is streamed, and an empty one."""
    payloads = [bytes([65 + number % 26]) * (number * number % 97) for number in range(70)]
    files = [Small("a.tfrecord", Kind.PLAIN, payloads, b"".join(map(frame, payloads)), [], [])]
    payloads = [bytes([97 + number]) * (60 * number) for number in range(7)]
    parts = [b"".join(map(frame, payloads[at : at + 3])) for at in (0, 3, 6)]
    fragments = [stored_block(part) + stored_block(b"") for part in parts]
    sizes = list(map(len, parts)), list(map(len, fragments))
    files.append(
        Small(
            "b.tfrecord.gz", Kind.SEEKABLE, payloads, gzip_file(b"".join(parts), b"".join(fragments)), *sizes
        )
    )
    payloads = [b"", b"streamed", b"0123456789" * 30, b"", b"last"]
    data = b"".join(map(frame, payloads))
    files.append(Small("c.tfrecord.gz", Kind.GZIP, payloads, gzip_file(data, stored_block(data)), [], []))
    return [*files, Small("d.tfrecord", Kind.PLAIN, [], b"", [], [])]


def gzip_file(data: bytes, deflated: bytes) -> bytes:
    head, tail = b"\x1f\x8b\x08" + bytes(6) + b"\xff", struct.pack("<II", zlib.crc32(data), len(data))
    return head + deflated + b"\x03\x00" + tail


class Scene:
    """The dataset in a folder, and the place of its table."""

    def __init__(self, folder: Path) -> None:
        self.table = folder / ".croupier" / "records.table"
        self.table.parent.mkdir()
        self.files = small_files()
        self.paths = [folder / file.name for file in self.files]
        for path, file in zip(self.paths, self.files, strict=True):
            path.write_bytes(file.content)
            os.utime(path, ns=(MODIFIED, MODIFIED))
        self.payloads = {str(path): file.payloads for path, file in zip(self.paths, self.files, strict=True)}

    def try_table(self, content: bytes, *, measured: bool = True) -> bool:
        """Whether the table is accepted; raises whatever must not happen."""
        if content and len(content) % 8 == 0:
            use(content, measured=measured)
        self.table.write_bytes(content)
        data = croupier.open(self.paths, index="require")
        try:
            size = len(data)
        except TableError:
            return False
        for numbers in (*([number] for number in range(min(size, 200))), range(min(size, 200))):
            try:
                got = data.read_many(numbers).tolist()
            except CroupierError:
                continue
            for number, payload in zip(numbers, got, strict=True):
                place = data.where(number)
                # A table may leave out a record, and nothing but a scan would tell: then numbers are others.
                assert payload in self.payloads[place.path], f"a record that {place} does not have"
        return True


def use(content: bytes, *, measured: bool) -> None:
    """All that a table can do, in memory in proportion to what it takes on disk."""
    if measured:
        tracemalloc.start()
    try:
        try:
            table, made = on_disk.load(np.frombuffer(content, np.uint64), "fuzz")
        except TableError:
            return
        finally:
            if measured:
                most = tracemalloc.get_traced_memory()[1]
                assert most <= 100 * len(content) + 100_000, f"{most} bytes for a table of {len(content)}"
        exercise(table, made)
        if measured:  # a number for each record and more: 64 alike are 9 bytes in the table
            most = tracemalloc.get_traced_memory()[1]
            assert most <= 1000 * len(content) + 1_000_000, f"{most} bytes to use a table of {len(content)}"
    finally:
        tracemalloc.stop()


def exercise(table: Table, made: int) -> None:
    records = np.arange(table.lengths.size, dtype=np.uint64)
    file, offset, length = table.locate(records, 2)
    assert (np.diff(file.astype(np.int64)) >= 0).all()
    assert (np.bincount(file.astype(np.int64), minlength=len(table)) == table.records).all()
    assert (length == table.lengths.part(0, table.lengths.size)).all()
    first = records == table.firsts[file]
    assert (offset[first] == 0).all()
    assert (offset[1:][~first[1:]] == (offset + length + np.uint64(16))[:-1][~first[1:]]).all()
    assert sum(table.payload_bytes.tolist()) == table.lengths.total
    rows = np.arange(len(table), dtype=np.uint64)[::-1].copy()
    back = table.take(rows, list(table.names)[::-1])
    back.check()
    assert back.payload_bytes.tolist() == table.payload_bytes.tolist()[::-1]
    if 2 * table.lengths.total < 1 << 62:  # else both together may be too large
        twice = join([table, table])
        twice.check()
        assert twice.lengths.total == 2 * table.lengths.total
    again, when = on_disk.load(np.frombuffer(on_disk.dump(table, made), np.uint64), "again")
    assert when == made
    assert again.names == table.names
    for name in ("kind", "records", "fragments"):
        assert (getattr(again, name) == getattr(table, name)).all()
    assert all((one == two).all() for one, two in zip(again.identity, table.identity, strict=True))
    for name in ("lengths", "raw", "stored"):
        one, two = getattr(again, name), getattr(table, name)
        assert (one.part(0, one.size) == two.part(0, two.size)).all()


def with_checksum(content: bytes) -> bytes:
    """Padded, and with the checksum that it should have."""
    body = content[:-8] + bytes(-len(content) % 8)
    return body + struct.pack("<II", _kernel.crc32c(body), 0)


def mutate(content: bytes, corpus: list[bytes], rng: random.Random) -> bytes:
    """A few random changes, half of the time under a right checksum."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        word = at // 8 * 8
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 63, 64, 65, 128, 255, rng.randrange(256)))
        elif kind in (2, 3, 4) and word + 8 <= len(data):
            (number,) = struct.unpack_from("<Q", data, word)
            number = rng.choice((number + rng.randrange(-9, 10), rng.choice(NUMBERS), rng.getrandbits(64)))
            struct.pack_into("<Q", data, word, number % (1 << 64))
        elif kind == 5:
            del data[word : word + 8 * rng.choice((1, 2, 8))]
        elif kind == 6:
            other = rng.choice(corpus)
            begin = rng.randrange(len(other) + 1) // 8 * 8
            data[word:word] = other[begin : begin + 8 * rng.choice((1, 2, 8))]
        else:
            other = rng.choice(corpus)
            data[word : word + 64] = other[word : word + 64]
    return with_checksum(bytes(data)) if rng.random() < 0.5 else bytes(data)


def limit_memory() -> None:
    """What a table declares must not be asked for: more than 2 GiB is refused."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + (2 << 30), hard))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    warnings.simplefilter("ignore", SlowAccessWarning)
    if sys.platform == "linux":
        limit_memory()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        (Path(folder) / "data").mkdir()
        scene = Scene(Path(folder) / "data")
        return fuzz(scene, arguments.files, arguments.seconds, rng)


def fuzz(scene: Scene, files: list[Path], seconds: float, rng: random.Random) -> int:
    failures: set[str] = set()

    def attempt(content: bytes, name: str) -> bool:
        try:
            return scene.try_table(content, measured=name != "" or rng.random() < 0.1)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {where.name} ({Path(where.filename).name}): {error}"
        if (kind := what.split(":")[0]) not in failures:
            failures.add(kind)
            print(f"{name or keep(content)}: {what}")
        return False

    corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*"))]
    for path in [*files, *sorted(CORPUS.glob("*"))]:
        attempt(path.read_bytes(), str(path))
    croupier.index(scene.paths, force=True)
    corpus.append(scene.table.read_bytes())
    runs, accepted, end = 0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        runs += 1
        accepted += attempt(mutate(rng.choice(corpus), corpus, rng), "")
    print(f"table: {runs} executions, {accepted} accepted, {len(failures)} kinds of failure")
    return 1 if failures else 0


def keep(content: bytes) -> Path:
    path = ROOT / "build" / "fuzz" / f"table-crash-{hashlib.sha256(content).hexdigest()[:16]}.table"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    sys.exit(main())
