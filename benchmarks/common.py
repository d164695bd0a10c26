"""What the benchmarks share: data, interleaved timing, Markdown tables, the machine, and bare C loops."""

from __future__ import annotations

import argparse
import atexit
import ctypes
import datetime
import gc
import itertools
import mmap
import os
import platform
import random
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import croupier
from croupier import _kernel
from croupier.runtime import usable_cpus

HERE = Path(__file__).parent
REAL = HERE.parent.parent / "shared" / "data"
MIB = 1 << 20
CORES = usable_cpus()
ANY = (1 << 64) - 1  # a limit on record length that limits nothing

_PEERS = (
    "isal",
    "zlib-ng",
    "numpy",
    "crc32c",
    "google-crc32c",
    "tensorflow-cpu",
    "apache-beam",
    "tfrecord",
    "array_record",
)


# Measuring


class Time(NamedTuple):
    wall: float
    cpu: float  # of the whole process: do not race a contestant whose threads go on afterwards


class Times(list[Time]):
    """The repetitions of one contestant."""

    def rates(self, work: float, *, cpu: bool = False) -> list[float]:
        """By the clock, or by processor time: what one thread does where others want the cores as well."""
        return [work / (time.cpu if cpu else time.wall) for time in self]

    def rate(self, work: float) -> float:
        return statistics.median(self.rates(work))

    @property
    def cpu(self) -> float:
        return statistics.median(time.cpu for time in self)


def race(
    contestants: dict[str, Callable[[], object]],
    repeats: int,
    *,
    slow: float = 3.0,
    before: Callable[[], object] = gc.collect,
) -> dict[str, Times]:
    """Run all in turn, A B C A B C ..., after a turn that does not count; slow ones three times."""
    times = {name: Times() for name in contestants}
    for turn in range(-1, repeats):
        for name, run in contestants.items():
            if turn >= 3 and times[name][0].wall > slow:
                continue
            before()
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            spent = Time(time.perf_counter() - wall, time.process_time() - cpu)
            if turn >= 0:
                times[name].append(spent)
    return times


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of ours/theirs, turn by turn, so that a machine that slows down for both does not count."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=False))


# Tables


def spread(values: Iterable[float], digits: int | None = None) -> str:
    """Median (lowest to highest)."""
    ordered = sorted(values)
    middle = statistics.median(ordered)
    return f"{number(middle, digits)} ({number(ordered[0], digits)}–{number(ordered[-1], digits)})"


def number(value: float, digits: int | None = None) -> str:
    """Three digits that count, or `digits` after the point."""
    if digits is None:
        digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f}"


def table(header: list[str], rows: list[list[str]]) -> None:
    """One Markdown table, columns lined up."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    print()


def note(*paragraphs: str) -> None:
    """What stands under a table."""
    print("\n\n".join(textwrap.fill(paragraph, 110) for paragraph in paragraphs))


def begin(title: str, only: Sequence[str] = ()) -> argparse.Namespace:
    """Read the command line and print the heading; `only` are the parts that can be had alone."""
    parser = argparse.ArgumentParser(description=title)
    if only:
        parser.add_argument("--only", choices=only, help="one part, while it is being worked on")
    parser.add_argument("--quick", action="store_true", help="a smoke run; figures mean nothing")
    options = parser.parse_args()
    print(f"# {title}\n")
    print(machine() + (" **Quick run: the figures mean nothing.**" if options.quick else "") + "\n")
    return options


def machine() -> str:
    """CPU, memory, versions and date; nothing that names the machine."""
    peers = [f"{name} {found}" for name in _PEERS if (found := _version(name))]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (
        f"{_cpu()}, {CORES} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; croupier {croupier.__version__} "
        f"(CRC: {_kernel.CRC32C_IMPLEMENTATION}); {', '.join(peers)}; {datetime.date.today()}. "
        f"Load at the start: {os.getloadavg()[0]:.1f}."
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def say(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)


# Data


def folder(parent: str | None = None) -> Path:
    """A temporary folder that goes away with the process."""
    path = Path(tempfile.mkdtemp(prefix="croupier-bench-", dir=parent))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def shared_memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def noise(size: int, total: int, *, vary: bool = True) -> Iterator[bytes]:
    """Incompressible payloads of `size` bytes, give or take a quarter, `total` bytes in all."""
    draw = random.Random(size)
    pool = draw.randbytes(4 * MIB + 2 * size)
    while total > 0:
        length = draw.randint(size * 3 // 4, size * 5 // 4) if vary else size
        at = draw.randrange(4 * MIB)
        yield pool[at : at + length]
        total -= length


def deepvariant(total: int) -> Iterator[bytes]:
    """DeepVariant's own 49 pileup examples of 155 KB, again and again with a few bytes changed."""
    files = sorted(REAL.glob("golden.training_examples*"))
    golden = list(croupier.read(files)) if files else [_image(i) for i in range(49)]
    draw = random.Random(49)
    for turn in itertools.count():
        for payload in golden:
            if total <= 0:
                return
            copy = bytearray(payload)
            if turn:
                for _ in range(16):
                    copy[draw.randrange(len(copy))] = draw.randrange(256)
            yield bytes(copy)
            total -= len(copy)


def deepvariant_source() -> str:
    """Where `deepvariant` has its records from."""
    if any(REAL.glob("golden.training_examples*")):
        return "DeepVariant's golden examples (49 records, repeated with 16 bytes changed in each)"
    return "a synthetic stand-in for DeepVariant's examples (the golden files are not here)"


def _image(seed: int) -> bytes:
    """Six channels of 100 x 221 like a pileup: rows of few values, with a little noise."""
    draw = random.Random(seed)
    rows = [bytes(draw.choice((0, 70, 152, 180, 211, 240, 254)) for _ in range(221)) * 7 for _ in range(12)]
    out = bytearray(b"".join(draw.choice(rows) for _ in range(100)))
    for _ in range(len(out) // 60):
        out[draw.randrange(len(out))] = draw.randrange(256)
    return bytes(out)


def clicks(total: int) -> Iterator[bytes]:
    """Examples of about 418 bytes like those of click prediction: 6 counts and 10 hashed categories."""
    draw = random.Random(418)
    words = [f"{draw.getrandbits(32):08x}".encode() for _ in range(100_000)]
    while total > 0:
        features = [_integer(f"I{i}", int(draw.paretovariate(0.7)) % 1_000_000) for i in range(6)]
        features += [_text(f"C{i:02d}", words[int(draw.paretovariate(0.6)) % len(words)]) for i in range(10)]
        example = _field(1, b"".join(_field(1, feature) for feature in features))
        yield example
        total -= len(example)


def click_pages(total: int) -> Iterator[bytes]:
    """Records of about 20 KB: forty-eight of those Examples together."""
    rows = clicks(total)
    while page := b"".join(itertools.islice(rows, 48)):
        yield page


def image_tiles(total: int) -> Iterator[bytes]:
    """Records of about 20 KB: pieces of DeepVariant's images."""
    for payload in deepvariant(total):
        for at in range(0, len(payload) - 20_000, 20_000):
            yield payload[at : at + 20_000 + at % 7]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _integer(name: str, value: int) -> bytes:
    return _field(1, name.encode()) + _field(2, _field(3, _field(1, _varint(value))))


def _text(name: str, value: bytes) -> bytes:
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, value)))


def framed(payloads: Iterable[bytes]) -> bytearray:
    """The payloads as they stand in a plain TFRecord file."""
    listed = list(payloads)
    out = bytearray(sum(map(len, listed)) + 16 * len(listed))
    import numpy as np

    done, end = _kernel.append_many(out, 0, listed, 0, np.zeros(4, np.uint64))
    assert (done, end) == (len(listed), len(out))
    return out


def write(path: Path, payloads: Iterable[bytes], level: int | None = None) -> Path:
    """A TFRecord file; its name says whether it is compressed."""
    with croupier.writer(path, level=level, overwrite=True) as out:
        out.write_many(payloads)
    return path


class Mapped:
    """A file in the page cache, mapped and populated."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            self.map = mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
        self.view = memoryview(self.map)
        self.size = len(self.view)
        self.address = address(self.view)


# C


def bare() -> ctypes.PyDLL:
    """bare.c, compiled for this very machine."""
    target = folder() / "bare.so"
    include = f"-I{sysconfig.get_paths()['include']}"
    flags = ["-O3", "-march=native", "-shared", "-fPIC", include]
    subprocess.run(["gcc", *flags, str(HERE / "bare.c"), "-o", str(target)], check=True)
    library = ctypes.PyDLL(str(target))  # keeps the GIL
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for name, result, arguments in (
        ("walk", size, [pointer, size, pointer]),
        ("walk_ahead", size, [pointer, size, pointer]),
        ("sum", ctypes.c_uint64, [pointer, size]),
        ("sum_threads", ctypes.c_uint64, [pointer, size, size]),
        ("bytes_list", ctypes.py_object, [pointer, pointer, size, size]),
        ("pread_loop", ctypes.c_uint64, [ctypes.c_int, pointer, pointer, size, pointer]),
        (
            "pread_threads",
            ctypes.c_uint64,
            [ctypes.c_int, pointer, pointer, pointer, size, pointer, size, size],
        ),
        ("read_files", ctypes.c_uint64, [pointer, size, size]),
        ("read_folders", ctypes.c_uint64, [pointer, size, size]),
        ("resident", size, [ctypes.c_int, size]),
        ("one_pass", ctypes.c_uint64, [pointer, pointer, size, ctypes.c_char_p, size, size, ctypes.c_int]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def address(buffer: object) -> int:
    """Where a buffer stands in memory."""
    import numpy as np

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)  # type: ignore[call-overload]


def lengths_walk(view: memoryview) -> Iterator[tuple[int, int]]:
    """(offset, length) of each record, in plain Python, with no checks."""
    unpack, at, end = struct.Struct("<Q").unpack_from, 0, len(view)
    while at < end:
        (length,) = unpack(view, at)
        yield at, length
        at += length + 16
