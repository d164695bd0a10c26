"""tf.train.Examples to columns and back."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import CORES, begin, folder, note, number, ratio, say, spread, table, write

import croupier
from croupier.example import decode_batch, encode, encode_batch

SMALL, LARGE = 256, 4096
Run = Callable[[], int]
"""Does some work once; gives how many records that were."""


# Data


def tabular(count: int) -> Iterator[dict[str, Any]]:
    """Like Criteo's: a label, 13 counts, 26 hashed categories; about 730 bytes."""
    draw = random.Random(39)
    words = [f"{draw.getrandbits(32):08x}".encode() for _ in range(100_000)]
    for _ in range(count):
        record: dict[str, Any] = {"label": draw.randrange(2)}
        record |= {f"I{i}": int(draw.paretovariate(0.7)) % 1_000_000 for i in range(1, 14)}
        yield record | {f"C{i}": words[int(draw.paretovariate(0.6)) % len(words)] for i in range(1, 27)}


def tokens(count: int) -> Iterator[dict[str, Any]]:
    """50 to 500 token numbers of one to three bytes each."""
    draw = np.random.default_rng(50)
    for _ in range(count):
        yield {"ids": draw.integers(0, 50_000, draw.integers(50, 501))}


def images(count: int) -> Iterator[dict[str, Any]]:
    """100 KB and a label."""
    draw = random.Random(100)
    for _ in range(count):
        yield {"image/encoded": draw.randbytes(100_000), "label": draw.randrange(1000)}


def shuffled(count: int) -> Iterator[bytes]:
    """Tabular ones, whose features stand in another order in every record, as some protobufs write maps."""
    draw = random.Random(1)
    for record in tabular(count):
        entries = [encode({name: value})[2:] for name, value in record.items()]
        draw.shuffle(entries)
        yield b"\n" + _varint(sum(map(len, entries))) + b"".join(entries)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


WORKLOADS: dict[str, tuple[Callable[[int], Iterator[Any]], int]] = {
    "tabular": (tabular, 16_384),
    "tabular, any order": (shuffled, 16_384),
    "tokens": (tokens, 8_192),
    "images, label": (images, 512),
}


class Task(NamedTuple):
    """What a contestant is asked to do."""

    path: str
    workload: str
    size: int
    """Of a batch, or of what is encoded."""
    threads: int = 1


# Contestants: each in a process of its own


def payloads_of(path: str, size: int) -> list[list[bytes]]:
    payloads = list(croupier.read(path))
    return [payloads[at : at + size] for at in range(0, len(payloads), size)]


def ours(task: Task) -> Run:
    batches = [_batch(payloads) for payloads in payloads_of(task.path, task.size)]
    columns = ["label"] if task.workload.startswith("images") else None
    return lambda: sum(
        decode_batch(batch, columns=columns, threads=task.threads).records for batch in batches
    )


def _batch(payloads: list[bytes]) -> croupier.Batch:
    offsets = np.zeros(len(payloads) + 1, np.int64)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    return croupier.Batch(np.frombuffer(b"".join(payloads), np.uint8), offsets)


def tensorflow(task: Task) -> Run:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    one = tf.io.FixedLenFeature
    if task.workload == "tokens":
        spec: dict[str, Any] = {"ids": tf.io.RaggedFeature(tf.int64)}
    elif task.workload.startswith("images"):
        spec = {"label": one([], tf.int64)}
    else:
        spec = {"label": one([], tf.int64)} | {f"I{i}": one([], tf.int64) for i in range(1, 14)}
        spec |= {f"C{i}": one([], tf.string) for i in range(1, 27)}
    parse = tf.function(lambda batch: tf.io.parse_example(batch, spec))
    batches = [tf.constant(batch) for batch in payloads_of(task.path, task.size)]

    def run() -> int:
        for batch in batches:
            parse(batch)
        return sum(len(batch) for batch in batches)

    return run


def upb(task: Task) -> Run:
    """Each record to a dict of lists, as one does by hand."""
    from tfrecord import example_pb2

    payloads = payloads_of(task.path, 1 << 30)[0]
    if task.workload.startswith("tabular"):
        payloads = payloads[:4096]

    def run() -> int:
        for payload in payloads:
            found = {}
            for name, feature in example_pb2.Example.FromString(payload).features.feature.items():
                kind = feature.WhichOneof("kind")
                found[name] = list(getattr(feature, kind).value) if kind else []
        return len(payloads)

    return run


def vahidk(task: Task) -> Run:
    """Its example loader, which reads the file as well."""
    from tfrecord import tfrecord_loader

    wanted = {"ids": "int"} if task.workload == "tokens" else {"label": "int"}
    if task.workload.startswith("tabular"):
        wanted |= {f"I{i}": "int" for i in range(1, 14)} | {f"C{i}": "byte" for i in range(1, 27)}
    return lambda: sum(1 for _ in tfrecord_loader(task.path, None, wanted))


def ours_reading(task: Task) -> Run:
    """The records' bytes, and nothing else."""
    data = croupier.open(task.path)
    return lambda: sum(len(data.read_many(part)) for part in _parts(len(data)))


def ours_reading_labels(task: Task) -> Run:
    """The records' bytes, and their labels from them."""
    data = croupier.open(task.path)

    def run() -> int:
        for part in _parts(len(data)):
            decode_batch(data.read_many(part), columns=["label"], threads=1)
        return len(data)

    return run


def _parts(records: int) -> list[range]:
    return [range(at, min(at + 64, records)) for at in range(0, records, 64)]


def ours_encode(task: Task) -> Run:
    records = list(WORKLOADS[task.workload][0](task.size))
    return lambda: sum(1 for record in records if encode(record))


def ours_encode_batch(task: Task) -> Run:
    records = list(WORKLOADS[task.workload][0](task.size))
    columns = decode_batch([encode(record) for record in records])
    return lambda: len(encode_batch(columns, threads=task.threads))


def tensorflow_encode(task: Task) -> Run:
    """As every tutorial does it."""
    import tensorflow as tf

    train = tf.train
    records = list(WORKLOADS[task.workload][0](task.size))

    def feature(value: Any) -> Any:
        if isinstance(value, bytes):
            return train.Feature(bytes_list=train.BytesList(value=[value]))
        return train.Feature(int64_list=train.Int64List(value=[value] if isinstance(value, int) else value))

    def run() -> int:
        for record in records:
            made = {name: feature(value) for name, value in record.items()}
            train.Example(features=train.Features(feature=made)).SerializeToString()
        return len(records)

    return run


RUNS: dict[str, Callable[[Task], Run]] = {
    "croupier": ours,
    "parse_example": tensorflow,
    "upb": upb,
    "vahidk": vahidk,
    "reading": ours_reading,
    "reading and labels": ours_reading_labels,
    "encode": ours_encode,
    "encode_batch": ours_encode_batch,
    "tf.train.Example": tensorflow_encode,
}


def serve(name: str, threads: int) -> None:
    """Do what is asked for, in a process of its own."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not an answer
    made: dict[str, Run] = {}
    for line in sys.stdin:
        path, workload, size, seconds = json.loads(line)
        if line not in made:
            made.clear()
            made[line] = RUNS[name](Task(path, workload, size, threads))
            made[line]()
        count, wall, cpu = 0, time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - wall) < seconds:
            count += made[line]()
        print(json.dumps([count, spent, time.process_time() - cpu]), file=out, flush=True)


class Contestant:
    """One process."""

    def __init__(self, name: str, threads: int = 1) -> None:
        command = [sys.executable, __file__, "--serve", name, str(threads)]
        quiet = subprocess.DEVNULL if name in ("parse_example", "tf.train.Example") else None
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True
        )

    def run(self, path: Path, workload: str, size: int, seconds: float) -> tuple[float, float]:
        """Thousand records a second: by the processor's time, and by the clock."""
        self.process.stdin.write(json.dumps([str(path), workload, size, seconds]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args[3]} ended with {self.process.wait()}")
        count, wall, cpu = json.loads(answer)
        return count / cpu / 1000, count / wall / 1000


def compare(
    contestants: dict[str, Contestant], path: Path, workload: str, size: int, quick: bool, pieces: int = 1
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Rates by processor time and by the clock, all in turn; in so many more turns that are shorter."""
    by_cpu: dict[str, list[float]] = {name: [] for name in contestants}
    by_clock: dict[str, list[float]] = {name: [] for name in contestants}
    turns, seconds = (2, 0.05) if quick else (5, 0.4)
    for turn in range(-1, turns * pieces):
        for name, contestant in contestants.items():
            cpu, clock = contestant.run(path, workload, size, seconds / pieces)
            if turn >= 0:
                by_cpu[name].append(cpu)
                by_clock[name].append(clock)
    return by_cpu, by_clock


def beside(ours: list[float], theirs: list[float]) -> str:
    return f"{spread(theirs)}, **{number(ratio(ours, theirs), 1)}x**"


def decoding(paths: dict[str, Path], quick: bool) -> None:
    single = {name: Contestant(name) for name in ("croupier", "parse_example", "upb", "vahidk")}
    many = {name: Contestant(name, CORES) for name in ("croupier", "parse_example")}
    rows = []
    for workload, path in paths.items():
        for size in (SMALL, LARGE):
            say(f"{workload}, {size}")
            chosen = single if size == LARGE else {name: single[name] for name in many}
            by_cpu, _ = compare(chosen, path, workload, size, quick)
            _, by_clock = compare(many, path, workload, size, quick)
            best = by_cpu["croupier"]
            others = [
                beside(best, by_cpu[name]) if name in by_cpu else ""
                for name in ("parse_example", "upb", "vahidk")
            ]
            fast = by_clock["croupier"]
            rows.append(
                [
                    workload,
                    f"{size:,}",
                    spread(best),
                    *others,
                    spread(fast),
                    beside(fast, by_clock["parse_example"]),
                ]
            )
    table(
        ["records", "batch", "croupier", "parse_example, us ÷ it", "upb to dict, us ÷ it",
         "vahidk, us ÷ it", f"croupier, {CORES} cores", f"parse_example, {CORES} cores, us ÷ it"],
        rows,
    )  # fmt: skip


def labels(path: Path, quick: bool) -> None:
    contestants = {name: Contestant(name) for name in ("reading", "reading and labels")}
    # Short turns, so that both meet the same load.
    by_cpu, by_clock = compare(contestants, path, "images, label", 64, quick, pieces=16)
    first, second = (by_clock[name] for name in contestants)
    cpu = ratio(by_cpu["reading and labels"], by_cpu["reading"])
    table(
        ["images of 100 KB", "reading", "and their labels", "of that, by the clock", "by processor time"],
        [["64 at a time", spread(first), spread(second), f"{ratio(second, first):.0%}", f"{cpu:.0%}"]],
    )


def encoding(quick: bool) -> None:
    contestants = {name: Contestant(name) for name in ("encode", "encode_batch", "tf.train.Example")}
    rows = []
    for workload in ("tabular", "tokens"):
        say(f"encode {workload}")
        by_cpu, _ = compare(contestants, Path(), workload, LARGE // 4, quick)
        theirs = by_cpu["tf.train.Example"]
        rows.append(
            [
                workload,
                spread(theirs),
                *(
                    f"{spread(rates)}, **{number(ratio(rates, theirs), 1)}x**"
                    for rates in list(by_cpu.values())[:2]
                ),
            ]
        )
    table(["records", "tf.train.Example", "encode, ÷ it", "encode_batch, ÷ it"], rows)


def main() -> None:
    options = begin("Examples")
    home = folder()
    paths = {}
    for workload, (make, count) in WORKLOADS.items():
        records = make(count // (8 if options.quick else 1))
        name = workload.replace(", ", "-").replace(" ", "-")
        payloads = (record if isinstance(record, bytes) else encode(record) for record in records)
        paths[workload] = write(home / f"{name}.tfrecord", payloads)
    decoding(paths, options.quick)
    labels(paths["images, label"], options.quick)
    encoding(options.quick)
    note(
        "Thousand records a second of processor time, so for one core, median (lowest–highest); on all "
        "cores by the clock. A process each, in turn; payloads in memory (vahidk's loader reads its file "
        "from the page cache). parse_example is compiled by tf.function, and given as many threads as we "
        "have. Tabular: 13 int64, 26 strings of 8 bytes and a label, 730 bytes; in any order: each record "
        "has its features in another one. Tokens: 50 to 500 int64s of one to three bytes. Images: 100 KB in "
        "one feature, of which nothing is looked at, and a label.",
        "What bounds them. Tabular: 8 ns a feature, one after the other, as each tells where the next one "
        "begins; of batches of 256 a quarter goes into 40 columns' arrays, of large ones more the less "
        "cache neighbours leave. In any order: a name has to be looked up for each feature. Tokens: 0.4 to "
        "0.5 ns for each number, of which 0.05 count them and 0.2 put them together (AVX-512; 1.0 by pext); "
        "the rest is memory, where a bare copy of the array takes 0.2. upb takes 35 to 45. Images: what is "
        "passed over costs nothing; reading copies it. encode: Python's dict and its values, 200 ns a "
        "feature; encode_batch 37.",
        "Other work on the machine takes caches and memory from large batches, and cores from whatever is "
        "told by the clock: the load at the start says how far to believe those columns.",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main()
