"""Writing seekable gzip on all cores, against the codec alone: one plain stream a core."""

from __future__ import annotations

import gc
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
from croupier.output import BLOCK

LEVELS = (1, 2, 3, 5, 6, 9)
# The writer is given the records so many times, where one turn takes a tenth of a second: else threads that
# start, publishing, and the last task, for which one core waits, would be 2 to 15 % of the time.
TURNS = {1: 4, 2: 4, 3: 4, 5: 2, 6: 2}
PIECE = MIB
DATA = {
    "DeepVariant, 155 KB": (deepvariant, {1: 128, 2: 128, 3: 64, 5: 64, 6: 48, 9: 12}),
    "image tiles, 20 KB": (image_tiles, {1: 128, 2: 128, 3: 64, 5: 64, 6: 48, 9: 12}),
    "click pages, 20 KB": (click_pages, {1: 64, 2: 64, 3: 32, 5: 32, 6: 16, 9: 6}),
    "clicks, 418 B": (clicks, {1: 64, 2: 64, 3: 32, 5: 32, 6: 16, 9: 6}),
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
    tasks, seekable = tasks_of(bounds[: count + 1]), SeekableGzip(level)
    return lambda: sum(len(done.data) for done in pool.map(lambda task: seekable.encode(data, task), tasks))


def tasks_of(bounds: np.ndarray[Any, np.dtype[np.uint64]]) -> list[list[int]]:
    """Edges of fragments, a megabyte or more in each list."""
    _, edges = deflate.cut(bounds, last=True)
    tasks, task = [], [edges[0]]
    for edge in edges[1:]:
        task.append(edge)
        if edge - task[0] >= MIB or edge == edges[-1]:
            tasks.append(task)
            task = [edge]
    return tasks


def write(path: Path, payloads: list[bytes], level: int, turns: int) -> None:
    with croupier.writer(path, level=level) as out:
        for _ in range(turns):
            out.write_many(payloads)


class Steps:
    """What the writer does to a task's frames, one step at a time on one core, in seconds a GB."""

    def __init__(self, payloads: list[bytes], data: memoryview, level: int, scratch: Path) -> None:
        self.payloads, self.data, self.level, self.scratch = payloads, data, level, scratch
        self.blocks = [bytearray(BLOCK) for _ in range(2 * CORES + 1)]  # as many as are under way
        self.totals, self.bounds = np.zeros(4, np.uint64), np.zeros(len(payloads) + 1, np.uint64)
        _kernel.scan(data, 0, self.bounds, False, ANY)
        self.tasks = tasks_of(self.bounds)
        self.out: list[Any] = []

    def frame(self) -> None:
        first = turn = 0
        while first < len(self.payloads):
            block = self.blocks[turn % len(self.blocks)]
            first, _ = _kernel.append_many(block, 0, self.payloads, first, self.totals)
            turn += 1

    def find(self) -> None:
        _kernel.scan(self.data, 0, self.bounds, False, ANY)

    def prove(self) -> None:
        _kernel.check_frames(self.data, self.bounds, self.totals, 1)

    def compress(self) -> None:
        seekable = SeekableGzip(self.level)
        self.out = [seekable.encode(self.data, task).data for task in self.tasks]

    def store(self) -> None:
        with open(self.scratch / "steps", "wb", buffering=0) as file:
            for piece in self.out:
                file.write(piece)

    def one_stream(self) -> None:
        one_stream(self.data, self.level)

    def times(self, repeats: int) -> dict[str, float]:
        steps = (self.one_stream, self.compress, self.frame, self.find, self.prove, self.store)
        taken = race({step.__name__: step for step in steps}, repeats, before=partial(clear, self.scratch))
        return {name: times.cpu / len(self.data) * 1e9 for name, times in taken.items()}


def clear(*folders: Path) -> None:
    """No file is left: giving back the memory of an old one is not the work of who writes a new one."""
    for path in folders:
        for file in path.glob("*"):
            if file.is_file():
                file.unlink()
    gc.collect()


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
    rows, steps = [], []
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
            turns = TURNS.get(level, 1)
            if level in (1, 3):
                steps.append(Steps(payloads, data, level, memory).times(2 if options.quick else 5))
            contestants = {
                "memory": partial(write, memory / "us.tfrecord.gz", payloads, level, turns),
                "alone": alone,
                "encoder": encode,
                "disk": partial(write, disk / "us.tfrecord.gz", payloads, level, turns),
                "tf": partial(tensorflow, str(memory / "tf.tfrecord.gz"), some, level),
            }
            repeats, before = 2 if options.quick else 5, partial(clear, memory, disk)
            times = race(contestants, repeats, slow=0.3, before=before)
            write(memory / "us.tfrecord.gz", payloads, level, 1)
            work = {"memory": len(data) * turns, "disk": len(data) * turns}
            rates = {key: timed.rates(work.get(key, len(data)) / 1e6) for key, timed in times.items()}
            rates["alone"] = alone.speeds[1:]
            rates["tf"] = [rate * share for rate in rates["tf"]]
            whole = one_stream(data, level)
            ours = (memory / "us.tfrecord.gz").stat().st_size  # as written last
            cpu = {key: timed.cpu / work.get(key, len(data)) * 1e9 for key, timed in times.items()}
            if level in (1, 3):
                steps[-1] |= {"name": f"{name}, level {level}", "writer": cpu["memory"]}
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
    table(
        ["a GB of records", "codec, one stream", "codec, fragments", "framing", "finding frames", "proving",
         "storing", "the rest", "writer", "90 % would leave", "steps take", "framed already: stream ÷ steps"],
        [step_row(step) for step in steps],
    )  # fmt: skip
    note(
        "MB/s of framed records, median (lowest–highest). Codec: isal at levels 1 and 2, zlib-ng above. "
        "'Codec alone' is one gzip stream a core, fed 1 MiB pieces, output thrown away, speeds added "
        "up. The writer frames, checksums, verifies, compresses, writes, flushes to the device and "
        "renames; to memory is /dev/shm. TensorFlow's TFRecordWriter (zlib, one core) writes an eighth "
        f"of the records at the same level. Records: {deepvariant_source()}; tiles are pieces of them; "
        "clicks are synthetic Examples, pages 48 of those together. Targets: 90 % of the codec alone, "
        "size within 2 % of one stream. 'CPU' compares processor time, which others on the machine "
        "disturb less than the clock.",
        "The second table is processor seconds a GB: the steps one at a time on one core, then the writer "
        "to memory as a whole. Framing copies each payload once and sums it on the way; proving reads "
        "what stands in memory once more, lengths and checksums, and adds up the fingerprint; storing is "
        "the page cache's copy; the rest is threads, hand-overs, publishing, and what steps cost each "
        "other in the caches. '90 % would leave' is what everything but the codec may take if the writer "
        "is to reach 90 % of one stream; 'steps take' is framing, finding, proving, storing, and what "
        "fragments take more than one stream (Huffman codes for each, their checksum in a pass of its "
        "own). The last column is for frames that need not be framed, as a shuffle's. Where spreads are "
        "wide, others used the machine: then processor time is what to compare.",
        "Bound by the codec's processor time at level 5 and above. At level 1 the codec takes so little "
        "that 90 % would leave less than framing, proving and storing take, and for DeepVariant's records "
        "the codes of a fragment each take that much alone. At level 3 it is enough for records of 20 KB.",
    )


def step_row(step: dict[str, Any]) -> list[str]:
    stream, parts = (
        step["one_stream"],
        [step[name] for name in ("compress", "frame", "find", "prove", "store")],
    )
    rest, leaves, took = step["writer"] - sum(parts), stream / 9, sum(parts) - stream
    figures = [stream, *parts, rest, step["writer"], leaves, took]
    framed_already = stream / (sum(parts) - step["frame"])
    return [step["name"], *(f"{figure:.3f}" for figure in figures), f"{framed_already:.0%}"]


if __name__ == "__main__":
    main()
