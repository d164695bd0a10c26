"""Verifying both checksums of every record, against reading the same bytes once."""

from __future__ import annotations

import os
from functools import partial

import crc32c
import numpy as np
from common import (
    ANY,
    CORES,
    MIB,
    Mapped,
    bare,
    begin,
    folder,
    lengths_walk,
    noise,
    note,
    number,
    race,
    ratio,
    say,
    spread,
    table,
    write,
)

from croupier import _kernel

SIZES = {"200 B": 200, "1 KB": 1000, "10 KB": 10_000, "100 KB": 100_000}


def python_check(view: memoryview) -> int:
    """Both checksums by the crc32c wheel (hardware, as google-crc32c), record by record."""
    checksum, count = crc32c.crc32c, 0
    for at, length in lengths_walk(view):
        end = at + 12 + length
        for begin_, end_ in ((at, at + 8), (at + 12, end)):
            crc = checksum(view[begin_:end_])
            masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
            if masked != int.from_bytes(view[end_ : end_ + 4], "little"):
                raise ValueError(at)
        count += 1
    return count


def tensorflow_check(path: str) -> int:
    """TensorFlow's reader, all in its own C++: batches of 1,024 that never become numpy."""
    import tensorflow as tf

    dataset = tf.data.TFRecordDataset(path, buffer_size=8 * MIB).batch(1024)
    return sum(1 for _ in dataset)


def main() -> None:
    options = begin("Verifying checksums")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    library, home = bare(), folder()
    total = (16 if options.quick else 384) * MIB
    rows = []
    for name, size in SIZES.items():
        say(name)
        path = write(home / "crc.tfrecord", noise(size, total))
        data = Mapped(path)
        bounds = np.zeros(total // (size * 3 // 4 + 16) + 2, np.uint64)
        count, why = _kernel.scan(data.view, 0, bounds, True, ANY)
        assert why == _kernel.PARTIAL
        assert int(bounds[count]) == data.size
        edges, totals = bounds[: count + 1].copy(), np.zeros(4, np.uint64)
        contestants = {
            "scan": lambda data=data, bounds=bounds: _kernel.scan(data.view, 0, bounds, True, ANY),
            "sum": lambda data=data: library.sum(data.address, data.size),
            "check": partial(_kernel.check_frames, data.view, edges, totals, 1),
            "check all": partial(_kernel.check_frames, data.view, edges, totals, CORES),
            "sum all": lambda data=data: library.sum_threads(data.address, data.size, CORES),
            "python": lambda data=data: python_check(data.view),
        }
        times = race(contestants, 3 if options.quick else 11, slow=0.5)
        times |= race({"tf": lambda path=path: tensorflow_check(str(path))}, 3)
        rates = {
            contestant: timed.rates(data.size / 1e9, cpu=contestant not in ("check all", "sum all", "tf"))
            for contestant, timed in times.items()
        }
        peer = max(("python", "tf"), key=lambda name: times[name].rate(1))
        rows.append(
            [
                name,
                spread(rates["scan"], 1),
                spread(rates["check"], 1),
                spread(rates["sum"], 1),
                f"**{ratio(rates['scan'], rates['sum']):.0%}**",
                spread(rates["check all"], 1),
                spread(rates["sum all"], 1),
                f"{ratio(rates['check all'], rates['sum all']):.0%}",
                spread(rates["python"], 2),
                spread(rates["tf"], 2),
                number(ratio(rates["scan"], rates[peer])) + "x",
            ]
        )
        data.view.release()
    table(
        ["records", "croupier scan + verify", "croupier verify", "one pass over memory", "÷ pass",
         f"verify, {CORES} threads", f"pass, {CORES} threads", "÷ pass, threads", "crc32c wheel in Python",
         "TensorFlow", "÷ best peer"],
        rows,
    )  # fmt: skip
    note(
        "GB/s, median (lowest–highest), by processor time where one thread works, else (threads, "
        f"TensorFlow) by the clock; {total // MIB} MiB in the page cache, mapped; lengths vary by a "
        "quarter. The pass is a sum of all bytes with 512-bit loads and prefetch. All verify both "
        "checksums; 'croupier verify' has the offsets already, and adds up the fingerprint as well. "
        "TensorFlow comes after the others: its threads live on. Target: 60 % at 1 KB and more.",
        "Bound by what one core folds into a checksum, about 30 GB/s here, at 1 KB and more, and by "
        "memory where all cores work; at 200 B by what a record costs however short it is (two "
        "checksums to begin and to end).",
    )


if __name__ == "__main__":
    main()
