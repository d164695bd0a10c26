"""Reading records into Python, payload by payload."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path

import numpy as np
from common import (
    ANY,
    MIB,
    bare,
    begin,
    clicks,
    deepvariant,
    deepvariant_source,
    folder,
    image_tiles,
    noise,
    note,
    number,
    ratio,
    say,
    spread,
    table,
    write,
)

import croupier
from croupier import _kernel

SLICE, BLOCK, CHUNK, LARGE = 1 << 15, 1 << 18, 32, 1 << 16
END = object()


def ours(path: str) -> Iterator[bytes]:
    return croupier.read(path)


def tensorflow(path: str) -> Iterator[bytes]:
    import tensorflow as tf

    return tf.data.TFRecordDataset(path, "GZIP" if path.endswith(".gz") else "").as_numpy_iterator()


def tensorflow_batched(path: str) -> Iterator[bytes]:
    import tensorflow as tf

    dataset = tf.data.TFRecordDataset(path, "GZIP" if path.endswith(".gz") else "", buffer_size=8 * MIB)
    return chain.from_iterable(dataset.batch(256).prefetch(2).as_numpy_iterator())


def vahidk(path: str) -> Iterator[memoryview]:
    from tfrecord import tfrecord_iterator

    return tfrecord_iterator(path, compression_type="gzip" if path.endswith(".gz") else None)


def beam(path: str) -> Iterator[bytes]:
    """Its own loop over its own buffered file, given a hardware CRC (it falls back on crcmod here)."""
    import crc32c
    from apache_beam.io import filesystem, tfrecordio

    tfrecordio._default_crc32c_fn.fn = crc32c.crc32c
    kind = filesystem.CompressionTypes.GZIP if path.endswith(".gz") else None
    file = Path(path).open("rb")  # noqa: SIM115
    handle = filesystem.CompressedFile(file, compression_type=kind) if kind else file
    while (record := tfrecordio._TFRecordUtil.read_record(handle)) is not None:
        yield record


def python(path: str) -> Iterator[bytes]:
    """The loop everyone writes once; checks nothing."""
    import gzip

    with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
        while head := file.read(12):
            yield file.read(struct.unpack_from("<Q", head)[0])
            file.read(4)


def limit(path: str) -> Iterator[bytes]:
    """Plain: read() of blocks and bytes() of what is known to be a payload. gzip: isal's inflate alone."""
    if path.endswith(".gz"):
        return _inflate(path)
    return _known(path, *_known_bounds(path))


def _inflate(path: str) -> Iterator[bytes]:
    """No records come out; `serve` is told how many there are."""
    from isal import isal_zlib

    stream = isal_zlib.decompressobj(31)
    with Path(path).open("rb", buffering=0) as file:
        while piece := file.read(SLICE):
            while piece:
                stream.decompress(piece, MIB)
                piece = stream.unconsumed_tail
    return iter(())


_cache: dict[str, tuple[np.ndarray, list[int]]] = {}


def _known_bounds(path: str) -> tuple[np.ndarray, list[int]]:
    """Edges of all frames, and the frame numbers where blocks begin; not part of what is timed."""
    if path not in _cache:
        data = np.fromfile(path, np.uint8)
        bounds = np.zeros(len(data) // 100 + 2, np.uint64)
        count, _ = _kernel.scan(data, 0, bounds, False, ANY)
        bounds = bounds[: count + 1].copy()
        firsts = [0]
        while firsts[-1] < count:
            ahead = int(np.searchsorted(bounds, bounds[firsts[-1]] + np.uint64(BLOCK), "right")) - 1
            firsts.append(max(ahead, firsts[-1] + 1))
        _cache[path] = bounds, firsts
    return _cache[path]


def _known(path: str, bounds: np.ndarray, firsts: list[int]) -> Iterator[bytes]:
    import ctypes

    if int(bounds[-1]) > LARGE * len(bounds):  # large ones: straight into bytes, one copy
        with Path(path).open("rb", buffering=0) as file:
            for begin, end in pairwise(bounds.tolist()):
                yield os.pread(file.fileno(), end - begin - 16, begin + 12)
        return
    buffer = bytearray(2 * BLOCK)
    view = memoryview(buffer)
    at = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    with Path(path).open("rb", buffering=0) as file:
        for first, end in pairwise(firsts):
            origin = int(bounds[first])
            file.readinto(view[: int(bounds[end]) - origin])
            yield from LIBRARY.bytes_list(at, bounds.ctypes.data + 8 * first, origin, end - first)


READERS: dict[str, Callable[[str], Iterator[object]]] = {
    "croupier": ours,
    "limit": limit,
    "tf.data": tensorflow,
    "tf.data, batch(256)": tensorflow_batched,
    "vahidk": vahidk,
    "Beam": beam,
    "Python loop": python,
}


def serve(name: str) -> None:
    """Read the files that are asked for, one after the other, in a process of its own."""
    global LIBRARY
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    if name == "limit":
        LIBRARY = bare()
    for line in sys.stdin:
        path, seconds, records = json.loads(line)
        if name == "limit" and not path.endswith(".gz"):
            _known_bounds(path)
        count, wall, cpu = 0, time.perf_counter(), time.process_time()
        payloads = iter(READERS[name](path))
        while next(payloads, END) is not END:
            deque(islice(payloads, CHUNK - 1), maxlen=0)  # consumed in C, so that the reader is what is timed
            count += CHUNK
            if time.perf_counter() - wall > seconds:
                break
        else:
            count = records
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps([count, wall, cpu]), file=out, flush=True)


class Reader:
    """One contestant's process."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, __file__, "--serve", name]
        quiet = subprocess.DEVNULL if name not in ("croupier", "limit") else None
        environment = dict(os.environ)
        if name == "limit":  # memory that was touched once stays: no page faults
            environment |= {f"MALLOC_{what}_THRESHOLD_": str(64 * MIB) for what in ("TRIM", "MMAP")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True, env=environment
        )

    def read(self, path: Path, seconds: float, records: int) -> tuple[float, float]:
        """Records a second, by the clock and by processor time."""
        self.process.stdin.write(json.dumps([str(path), seconds, records]) + "\n")
        self.process.stdin.flush()
        count, wall, cpu = json.loads(self.process.stdout.readline())
        return count / wall, count / cpu


def main() -> None:
    options = begin("Reading into Python")
    readers = {name: Reader(name) for name in READERS}
    home = folder()
    sizes = {
        "200 B": lambda total: noise(200, total),
        "1 KB": lambda total: noise(1000, total),
        "20 KB": lambda total: noise(20_000, total),
        "155 KB": deepvariant,
        "418 B gzip": clicks,
        "20 KB gzip": image_tiles,
        "155 KB gzip": deepvariant,
    }
    if options.quick:
        sizes = {name: sizes[name] for name in ("200 B", "155 KB gzip")}
    rows = []
    for name, make in sizes.items():
        say(name)
        zipped = "gzip" in name  # read whole: vahidk's reads the file once more, just for its size
        payloads = list(make((16 if options.quick else 64 if zipped else 192) * MIB))
        path = write(
            home / f"{name.split(' gzip')[0].replace(' ', '-')}.tfrecord{'.gz' if zipped else ''}", payloads
        )
        records, total = len(payloads), sum(map(len, payloads))
        del payloads
        rates: dict[str, list[float]] = {reader: [] for reader in readers}
        by_processor: dict[str, list[float]] = {"croupier": [], "limit": []}
        for turn in range(-1, 2 if options.quick else 7):
            for reader, process in readers.items():
                by_clock, by_cpu = process.read(path, 60 if zipped else 0.5, records)
                if turn >= 0:
                    rates[reader].append(by_clock / 1000)
                    if reader in ("croupier", "limit"):
                        by_processor[reader].append(by_cpu)
        best = max(list(readers)[2:], key=lambda reader: sorted(rates[reader])[len(rates[reader]) // 2])
        gigabytes = sorted(rates["croupier"])[len(rates["croupier"]) // 2] * total / records / 1e6
        path.unlink()
        rows.append(
            [
                name,
                spread(rates["croupier"]),
                number(gigabytes, 2),
                spread(rates["limit"]),
                f"{ratio(rates['croupier'], rates['limit']):.0%}",
                f"{ratio(by_processor['croupier'], by_processor['limit']):.0%}",
                *(
                    f"{spread(rates[reader])}, **{number(ratio(rates['croupier'], rates[reader]), 1)}x**"
                    for reader in list(readers)[2:]
                ),
                best,
            ]
        )
    table(
        ["payloads", "croupier", "GB/s", "limit", "÷ limit", "÷ limit, CPU",
         *(f"{reader}, us ÷ it" for reader in list(readers)[2:]), "best peer"],
        rows,
    )  # fmt: skip
    note(
        "Thousand records a second in one Python thread, median (lowest–highest); a process each, in "
        "turn; files in the page cache. croupier, tf.data and Beam verify both checksums; vahidk's "
        "tfrecord and the Python loop verify none, and vahidk's yields views that the next record "
        "overwrites. tf.data uses its own threads as well. Beam is given the crc32c wheel. Plain "
        "payloads are random (155 KB: DeepVariant's); gzip ones are synthetic clicks, pieces of images, "
        f"and DeepVariant examples as `croupier.writer` writes them. Records: {deepvariant_source()}. "
        "Limit, plain: blocks of read() and C that copies payloads known beforehand into bytes, no "
        "checks (155 KB: pread() of each, one copy instead of two); gzip: isal's inflate of the file "
        "alone, no records; 'CPU' compares processor time. Target: five times each peer at 200 B.",
        "Bound by the making of Python objects (200 B, 1 KB), by copying (20 KB, 155 KB plain), by "
        "inflate (gzip).",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
