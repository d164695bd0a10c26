"""Finding where the records of a file in the page cache begin."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from common import (
    ANY,
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

SIZES = {"200 B": 200, "200 B, all alike": 200, "1 KB": 1000, "100 KB": 100_000}


def idx_loop(path: Path, out: Path) -> None:
    """What tfrecord2idx does, with seeks in place of its reads of the payload: offset and size as text."""
    with path.open("rb") as file, out.open("w") as index:
        at = 0
        while head := file.read(8):
            size = struct.unpack("<Q", head)[0] + 16
            index.write(f"{at} {size}\n")
            at += size
            file.seek(at)


def python_walk(view: memoryview) -> list[int]:
    return [at for at, _ in lengths_walk(view)]


def main() -> None:
    options = begin("Scanning a file into offsets")
    library, home = bare(), folder()
    create_index = _tfrecord2idx()
    other = np.ones(192 * MIB, np.uint8)

    def forget() -> None:
        """Fill the caches with something else: what one contestant has fetched must not help the next."""
        library.sum(other.ctypes.data, other.nbytes)

    rows = []
    for name, size in SIZES.items():
        total = (16 if options.quick else 1024 if size >= 100_000 else 256) * MIB
        say(f"{name}: making {total // MIB} MiB")
        path = write(home / "scan.tfrecord", noise(size, total, vary="alike" not in name))
        data = Mapped(path)
        bounds, offsets = (np.zeros(total // (size * 3 // 4 + 16) + 2, np.uint64) for _ in range(2))
        count, why = _kernel.scan(data.view, 0, bounds, False, ANY)
        assert why == _kernel.PARTIAL
        assert int(bounds[count]) == data.size
        where = offsets.ctypes.data
        contestants = {
            "us": lambda data=data, bounds=bounds: _kernel.scan(data.view, 0, bounds, False, ANY),
            "bare": lambda data=data, where=where: library.walk(data.address, data.size, where),
            "ahead": lambda data=data, where=where: library.walk_ahead(data.address, data.size, where),
            "python": lambda data=data: python_walk(data.view),
            "idx": lambda path=path: idx_loop(path, home / "idx"),
            "tfrecord2idx": lambda path=path: create_index(str(path), str(home / "idx")),
        }
        times = race(contestants, 3 if options.quick else 15, slow=0.3, before=forget)
        offsets[:] = 0
        assert library.walk_ahead(data.address, data.size, where) == count
        assert np.array_equal(bounds[: count + 1], offsets[: count + 1])
        rates = {contestant: timed.rates(count / 1e6, cpu=True) for contestant, timed in times.items()}
        limit = max(("bare", "ahead"), key=lambda name: times[name].rate(count))
        peer = max(("python", "idx", "tfrecord2idx"), key=lambda name: times[name].rate(count))
        rows.append(
            [
                f"{name}, {count:,} in {total // MIB} MiB",
                spread(rates["us"]),
                spread(rates["bare"]),
                spread(rates["ahead"]),
                f"{ratio(rates['us'], rates['bare']):.2f}",
                f"**{ratio(rates['us'], rates[limit]):.2f}**",
                spread(rates["idx"]),
                spread(rates["tfrecord2idx"]),
                spread(rates["python"]),
                number(ratio(rates["us"], rates[peer]), 1) + "x",
                f"{1e9 * times['us'].cpu / count:.1f} ns",
            ]
        )
        data.view.release()
    table(
        ["records", "croupier", "bare C walk", "bare walk, fetching ahead", "÷ bare", "÷ better bare",
         "tfrecord2idx with seek", "tfrecord2idx itself", "Python walk of mmap", "÷ best peer", "a record"],
        rows,
    )  # fmt: skip
    note(
        "Million records a second of processor time, median (lowest–highest); lengths vary by a quarter "
        "except where all are alike. croupier checks every length's checksum and bound; nobody else "
        "does. The file is in the page cache; croupier, the bare walks and the Python walk see it "
        "mapped; the processor's caches are emptied before each. Target: 0.8 of the bare walk.",
        "What bounds: where a record begins is known only when the length before it has arrived, so a "
        "plain walk waits for memory once a record (the processor guesses ahead only where all are "
        "alike). croupier fetches short records ahead, and is then bound by the bandwidth of one core; "
        "at 100 KB by latency, like anybody.",
    )


def _tfrecord2idx():
    """The real one; reads whole payloads to move on."""
    from tfrecord.tools.tfrecord2idx import create_index

    return create_index


if __name__ == "__main__":
    main()
