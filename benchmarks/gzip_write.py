"""Writing seekable gzip on all cores, against the codec alone: one plain stream a core."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    ANY,
    CORES,
    MIB,
    begin,
    click_pages,
    clicks,
    deepvariant,
    deepvariant_source,
    folder,
    framed,
    image_tiles,
    note,
    number,
    race,
    ratio,
    say,
    shared_memory,
    spread,
    table,
)
from isal import isal_zlib
from zlib_ng import zlib_ng

import croupier
from croupier import _kernel
from croupier.codec import deflate
from croupier.codec.deflate import SeekableGzip

LEVELS = (1, 2, 3, 5, 6, 9)
PIECE = MIB
DATA = {
    "DeepVariant, 155 KB": (deepvariant, {1: 256, 2: 256, 3: 128, 5: 96, 6: 64, 9: 16}),
    "image tiles, 20 KB": (image_tiles, {1: 256, 2: 256, 3: 128, 5: 96, 6: 64, 9: 16}),
    "click pages, 20 KB": (click_pages, {1: 128, 2: 128, 3: 64, 5: 40, 6: 24, 9: 8}),
    "clicks, 418 B": (clicks, {1: 128, 2: 128, 3: 64, 5: 40, 6: 24, 9: 8}),
}


def stream(level: int) -> Any:
    """The library that croupier uses at this level, making gzip with its checksum."""
    return (isal_zlib if level <= 2 else zlib_ng).compressobj(level, 8, 31)


def one_stream(data: memoryview, level: int) -> int:
    """Bytes of `data` in one ordinary gzip stream."""
    out = stream(level)
    size = sum(len(out.compress(data[at : at + PIECE])) for at in range(0, len(data), PIECE))
    return size + len(out.flush())


class Alone:
    """The limit: the codec alone, one stream and one share of the data for each core."""

    def __init__(self, data: memoryview, level: int) -> None:
        share = -(-len(data) // CORES)
        self.shares = [data[at : at + share] for at in range(0, len(data), share)]
        self.level = level
        self.speeds: list[float] = []  # of all cores together, a turn each

    def __call__(self) -> None:
        speeds: list[float] = []
        barrier = threading.Barrier(len(self.shares))

        def work(share: memoryview) -> None:
            barrier.wait()
            began = time.perf_counter()
            one_stream(share, self.level)
            speeds.append(len(share) / (time.perf_counter() - began))

        threads = [threading.Thread(target=work, args=(share,)) for share in self.shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.speeds.append(sum(speeds) / 1e6)


def encoder(data: memoryview, level: int, pool: ThreadPoolExecutor) -> Callable[[], int]:
    """Our fragments with the output thrown away: tasks of about a megabyte, as the writer makes them."""
    bounds = np.zeros(len(data) // 100 + 2, np.uint64)
    count, _ = _kernel.scan(data, 0, bounds, False, ANY)
    _, edges = deflate.cut(bounds[: count + 1], last=True)
    tasks, task = [], [edges[0]]
    for edge in edges[1:]:
        task.append(edge)
        if edge - task[0] >= MIB or edge == edges[-1]:
            tasks.append(task)
            task = [edge]
    seekable = SeekableGzip(level)
    return lambda: sum(len(done.data) for done in pool.map(lambda task: seekable.encode(data, task), tasks))


def write(path: Path, payloads: list[bytes], level: int) -> None:
    with croupier.writer(path, level=level, overwrite=True) as out:
        out.write_many(payloads)


def tensorflow(path: str, payloads: list[bytes], level: int) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions("GZIP", compression_level=level)) as out:
        for payload in payloads:
            out.write(payload)


def main() -> None:
    options = begin("Writing seekable gzip")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    disk, memory = folder(), folder(shared_memory())
    pool = ThreadPoolExecutor(CORES)
    rows = []
    for name, (make, amounts) in DATA.items():
        everything = list(make((8 if options.quick else max(amounts.values())) * MIB))
        for level in (1, 6) if options.quick else LEVELS:
            say(f"{name}, level {level}")
            want, payloads = amounts[level] * MIB, []
            for payload in everything:
                if want <= 0:
                    break
                payloads.append(payload)
                want -= len(payload)
            data = memoryview(framed(payloads))
            some = payloads[: max(1, len(payloads) // 8)]
            share = sum(len(payload) + 16 for payload in some) / len(data)
            alone = Alone(data, level)
            encode = encoder(data, level, pool)
            contestants = {
                "memory": partial(write, memory / "us.tfrecord.gz", payloads, level),
                "alone": alone,
                "encoder": encode,
                "disk": partial(write, disk / "us.tfrecord.gz", payloads, level),
                "tf": partial(tensorflow, str(memory / "tf.tfrecord.gz"), some, level),
            }
            times = race(contestants, 2 if options.quick else 5, slow=0.3)
            rates = {key: timed.rates(len(data) / 1e6) for key, timed in times.items()}
            rates["alone"] = alone.speeds[1:]
            rates["tf"] = [rate * share for rate in rates["tf"]]
            whole = one_stream(data, level)
            ours = (memory / "us.tfrecord.gz").stat().st_size
            cpu = {key: timed.cpu / len(data) * 1e9 for key, timed in times.items()}
            rows.append(
                [
                    f"{name}, level {level}",
                    spread(rates["memory"]),
                    spread(rates["disk"]),
                    spread(rates["encoder"]),
                    spread(rates["alone"]),
                    f"**{ratio(rates['memory'], rates['alone']):.0%}**",
                    f"{ratio(rates['encoder'], rates['alone']):.0%}",
                    f"{cpu['alone'] / cpu['memory']:.0%}",
                    f"**{ours / whole - 1:+.1%}**",
                    f"{len(data) / ours:.2f}x",
                    number(ratio(rates["memory"], rates["tf"])) + "x",
                ]
            )
    table(
        ["records", "writer, to memory", "writer, to disk", "encoder alone", f"codec alone, {CORES} streams",
         "writer ÷ codec", "encoder ÷ codec", "CPU: codec ÷ writer", "size against one stream", "ratio",
         "÷ TensorFlow"],
        rows,
    )  # fmt: skip
    note(
        "MB/s of framed records, median (lowest–highest). Codec: isal at levels 1 and 2, zlib-ng above. "
        "'Codec alone' is one gzip stream a core, fed 1 MiB pieces, output thrown away, speeds added "
        "up. The writer frames, checksums, verifies, compresses, writes, flushes to the device and "
        "renames; to memory is /dev/shm. TensorFlow's TFRecordWriter (zlib, one core) writes an eighth "
        f"of the records at the same level. Records: {deepvariant_source()}; tiles are pieces of them; "
        "clicks are synthetic Examples, pages 48 of those together. Targets: 90 % of the codec alone, "
        "size within 2 % of one stream.",
        "Bound by the codec's processor time. What the writer does besides (framing and its checksum, "
        "proving, writing, flushing) costs some 0.15 s a GB, and the Huffman codes of a fragment for each "
        "DeepVariant record about 0.06: little at level 5 and above, half as much again as the codec at "
        "level 1. 'CPU' compares processor time, which others on the machine disturb less than the clock.",
    )


if __name__ == "__main__":
    main()
