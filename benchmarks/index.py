"""Making offset tables, of plain files and of seekable gzip."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from common import (
    ANY,
    CORES,
    MIB,
    Mapped,
    bare,
    begin,
    clicks,
    deepvariant,
    deepvariant_source,
    folder,
    framed,
    noise,
    note,
    number,
    race,
    ratio,
    say,
    spread,
    table,
)
from isal import isal_zlib
from scan import idx_loop

import croupier
from croupier import _kernel
from croupier.table import seekable

BODY = 64 * MIB
PLAIN = {  # size of records, MiB, files
    "200 B": (200, 512, 1),
    "1 KB": (1000, 1024, 1),
    "1 KB, 16 shards": (1000, 1024, 16),
    "100 KB": (100_000, 1024, 1),
}
ZIPPED = {  # payloads, MiB of them, files
    "DeepVariant, 155 KB": (deepvariant, 512, 1),
    "DeepVariant, 8 shards": (deepvariant, 512, 8),
    "clicks, 418 B": (clicks, 128, 1),
    "clicks, 8 shards": (clicks, 128, 8),
}


def make_plain(home: Path, size: int, total: int, files: int) -> list[Path]:
    body = framed(noise(size, min(total // files, BODY)))
    paths = []
    for shard in range(files):
        paths.append(home / f"plain-{shard:05d}-of-{files:05d}.tfrecord")
        with paths[-1].open("wb") as file:
            for _ in range(total // files // len(body) or 1):
                file.write(body)
            os.fsync(file.fileno())
    return paths


def make_zipped(home: Path, payloads: list[bytes], files: int) -> list[Path]:
    with croupier.writer(home / "zipped", shards=files, compression="gzip", level=1) as out:
        out.write_many(payloads)
    return sorted(home.glob("zipped*"))


def walk_alone(paths: list[Path]) -> int:
    count = 0
    for path in paths:
        with path.open("rb") as file:
            size = path.stat().st_size
            count += len(_kernel.walk(file.fileno(), size, 0, size, False, ANY)[3]) // 8
    return count


def tfrecord2idx(paths: list[Path], out: Path) -> None:
    from tfrecord.tools.tfrecord2idx import create_index

    for path in paths:
        create_index(str(path), str(out))


def tfrecord2idx_seeks(paths: list[Path], out: Path) -> None:
    for path in paths:
        idx_loop(path, out)


def make_table(home: Path, paths: list[Path]) -> int:
    """All of it; gives the table's size."""
    done, kept = croupier.index(paths, force=True)
    assert len(done) == len(paths)
    assert [Path(one).parent.parent for one in kept] == [home]
    return sum(Path(one).stat().st_size for one in kept)


def shares(paths: list[Path]) -> list[tuple[Path, int, int]]:
    """The compressed bytes, cut where fragments begin: a file by itself is inflated by all cores as well."""
    found = []
    for path in paths:
        size = path.stat().st_size
        walk = seekable.walk(str(path), size, seekable.HEAD, size, sync=False, limit=ANY)
        edges = seekable.HEAD + np.cumsum(walk.stored).astype(np.int64)
        wanted = [size * part // CORES for part in range(1, CORES)] if len(paths) < CORES else []
        inner = [int(edges[np.searchsorted(edges, place)]) for place in wanted]
        cuts = [seekable.HEAD, *inner, int(edges[-1])]
        found += [(path, cut, end) for cut, end in pairwise(cuts)]
    return found


def inflate(share: tuple[Path, int, int]) -> int:
    """isal alone, with the checksum that gzip has, and what comes out thrown away."""
    path, at, end = share
    stream, crc, total = isal_zlib.decompressobj(-15), 0, 0
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        while piece := file.read(min(1 << 18, end - at)):
            at += len(piece)
            while piece:
                out = stream.decompress(piece, MIB)
                crc, total, piece = isal_zlib.crc32(out, crc), total + len(out), stream.unconsumed_tail
    return total


def plain_rows(home: Path, library, quick: bool) -> list[list[str]]:
    rows, other = [], np.ones(192 * MIB, np.uint8)

    def forget() -> None:
        library.sum(other.ctypes.data, other.nbytes)

    for name, (size, total, files) in PLAIN.items():
        total = (32 if quick else total) * MIB
        say(name)
        paths = make_plain(home, size, total, files)
        mapped = [Mapped(path) for path in paths]
        count = walk_alone(paths)
        offsets = np.zeros(count + 1, np.uint64)

        def bare_walk(walk, mapped=mapped, at: int = offsets.ctypes.data) -> None:
            for one in mapped:
                walk(one.address, one.size, at)

        contestants = {
            "us": partial(make_table, home, paths),
            "walk": partial(walk_alone, paths),
            "bare": partial(bare_walk, library.walk),
            "ahead": partial(bare_walk, library.walk_ahead),
            "seeks": partial(tfrecord2idx_seeks, paths, home / "idx"),
            "idx": partial(tfrecord2idx, paths, home / "idx"),
        }
        times = race(contestants, 3 if quick else 11, slow=1, before=forget)
        bytes_each = make_table(home, paths) / count
        theirs = sum(_lines(path, home / "idx") for path in paths) / count
        rates = {key: timed.rates(count / 1e6) for key, timed in times.items()}
        limit = max(("bare", "ahead"), key=lambda key: times[key].rate(1))
        peer = max(("seeks", "idx"), key=lambda key: times[key].rate(1))
        rows.append(
            [
                f"{name}, {count:,} in {total // MIB:,} MiB",
                *(spread(rates[key]) for key in contestants),
                f"**{ratio(rates['us'], rates[limit]):.2f}**",
                f"{ratio(rates['walk'], rates[limit]):.2f}",
                number(ratio(rates["us"], rates[peer]), 1) + "x",
                number(ratio(rates["us"], rates["idx"]), 1) + "x",
                f"{bytes_each:.2f}",
                f"{theirs:.1f}",
            ]
        )
        for one in mapped:
            one.view.release()
        for path in paths:
            path.unlink()
    return rows


def _lines(path: Path, out: Path) -> int:
    idx_loop(path, out)
    return out.stat().st_size


def zipped_rows(home: Path, quick: bool) -> list[list[str]]:
    rows, pool = [], ThreadPoolExecutor(CORES)
    for name, (make, total, files) in ZIPPED.items():
        say(name)
        payloads = list(make((16 if quick else total) * MIB))
        count, raw = len(payloads), sum(map(len, payloads)) + 16 * len(payloads)
        paths = make_zipped(home, payloads, files)
        del payloads
        parts = shares(paths)
        assert sum(pool.map(inflate, parts)) == raw
        contestants = {
            "us": partial(make_table, home, paths),
            "alone": lambda parts=parts: list(pool.map(inflate, parts)),
        }
        times = race(contestants, 3 if quick else 9)
        bytes_each = make_table(home, paths) / count
        rates = {key: timed.rates(count / 1e3) for key, timed in times.items()}
        cpu = [a.cpu / b.cpu for a, b in zip(times["alone"], times["us"], strict=False)]
        rows.append(
            [
                f"{name}, {count:,} in {sum(path.stat().st_size for path in paths) / MIB:.0f} MiB",
                spread(rates["us"]),
                number(raw / 1e6 * times["us"].rate(1)),
                spread(rates["alone"]),
                f"**{ratio(rates['us'], rates['alone']):.0%}**",
                f"{sorted(cpu)[len(cpu) // 2]:.0%}",
                f"{bytes_each:.2f}",
            ]
        )
        for path in paths:
            path.unlink()
    return rows


def main() -> None:
    options = begin("Making offset tables")
    library = bare()
    table(
        ["plain: records", "croupier.index", "kernel's walk, one core", "bare C walk",
         "bare walk, fetching ahead", "tfrecord2idx with seek", "tfrecord2idx itself", "÷ better bare",
         "walk ÷ better bare", "÷ best peer", "÷ tfrecord2idx", "table, bytes a record",
         ".idx, bytes a record"],
        plain_rows(folder(), library, options.quick),
    )  # fmt: skip
    table(
        ["gzip: records", "croupier.index", "MB/s inflated", f"isal's inflate alone, {CORES} cores",
         "÷ inflate", "CPU: inflate ÷ us", "table, bytes a record"],
        zipped_rows(folder(), options.quick),
    )  # fmt: skip
    note(
        "Million (plain) or thousand (gzip) records a second by the clock, median (lowest–highest); files "
        "are in the page cache, lengths vary by a quarter. croupier.index(force=True) opens and samples the "
        "files, walks them on all cores in parts of 64 MiB, checking each length's checksum, packs the "
        "lengths, writes the table, flushes it to the device and renames it. The bare walks are one thread "
        "that follows the lengths in a mapped file, no checks, offsets kept in memory; tfrecord2idx writes "
        "text, checks nothing, and reads all payloads; 'with seek' it does not.",
        "gzip files are as croupier.writer makes them (level 1). croupier finds their fragments, inflates "
        "each once, checks the file's checksum and all lengths; the limit is isal's inflate and crc32 of "
        f"the same bytes on all cores, cut where fragments begin. Records: {deepvariant_source()}; clicks "
        "are synthetic.",
        "Bound by copying out of the page cache (200 B, 1 KB), by a call for each record (100 KB), by "
        "inflate (gzip).",
    )


if __name__ == "__main__":
    main()
