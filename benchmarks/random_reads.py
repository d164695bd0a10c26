"""Reading records by number: warm from the page cache, and cold against what the device gives."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import (
    ANY,
    CORES,
    MIB,
    Mapped,
    bare,
    begin,
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

import croupier
from croupier import _kernel

SIZES = {"200 B": 200, "1 KB": 1000, "10 KB": 10_000, "100 KB": 100_000}
BODY = 64 * MIB
U64 = np.ndarray
PEERS = {"ArrayRecord": None, "ArrayRecord, tuned": {"max_parallelism": "1"}}  # better than 0, 2 and 4


def make(path: Path, size: int, total: int) -> U64:
    """A file of records of about `size` bytes; gives the edges of its frames."""
    body = framed(noise(size, min(total, BODY)))
    edges = np.zeros(len(body) // 16 + 2, np.uint64)
    count, _ = _kernel.scan(body, 0, edges, False, ANY)
    turns = total // BODY or 1
    with path.open("wb") as file:
        for _ in range(turns):
            file.write(body)
        os.fsync(file.fileno())
    starts = np.arange(turns, dtype=np.uint64)[:, None] * np.uint64(len(body)) + edges[:count]
    return np.append(starts.ravel(), np.uint64(turns * len(body)))


def make_array_record(path: Path, source: Path, bounds: U64) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    out = ArrayRecordWriter(str(path), "group_size:1")
    for payload in croupier.read(source):
        out.write(payload)
    out.close()
    say(f"  ArrayRecord: {path.stat().st_size / (len(bounds) - 1):,.0f} bytes a record")


class Draws:
    """Batches of random numbers, none of which comes again before all others have come."""

    def __init__(self, records: int, batch: int, turn: int) -> None:
        self._records, self._batch, self._turn = records, batch, min(turn, records // batch * batch)
        self._random = np.random.default_rng(records)
        self._left = np.zeros(0, np.int64)
        self.batches: list[np.ndarray] = []
        self.lists: list[list[int]] = []

    @property
    def count(self) -> int:
        return self._turn

    def __call__(self) -> None:
        if len(self._left) < self._turn:
            self._left = self._random.permutation(self._records)
        drawn, self._left = self._left[: self._turn], self._left[self._turn :]
        self.batches = np.split(drawn, range(self._batch, self._turn, self._batch))
        self.lists = [batch.tolist() for batch in self.batches]


class Known:
    """Where payloads stand: what the loops are given."""

    def __init__(self, bounds: U64) -> None:
        self.offsets = bounds[:-1] + np.uint64(12)
        self.lengths = np.diff(bounds) - np.uint64(16)
        self.of: list[tuple[U64, U64, U64]] = []

    def __call__(self, batches: list[np.ndarray]) -> None:
        self.of = []
        for batch in batches:
            lengths = self.lengths[batch]
            self.of.append((self.offsets[batch], lengths, np.cumsum(lengths) - lengths))


def warm(home: Path, library, quick: bool) -> None:
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    other, rows = np.ones(192 * MIB, np.uint8), []
    for name, size in SIZES.items():
        say(f"warm, {name}")
        total = (64 if quick else 256 if size < 1000 else 512) * MIB
        path, theirs = home / "warm.tfrecord", home / "warm.array_record"
        bounds = make(path, size, total)
        make_array_record(theirs, path, bounds)
        data, unverified = croupier.open(path), croupier.open(path, verify=False)
        sources = {peer: ArrayRecordDataSource(str(theirs), options) for peer, options in PEERS.items()}
        mapped, known, fd = Mapped(path), Known(bounds), os.open(path, os.O_RDONLY)
        offsets, lengths = known.offsets.tolist(), known.lengths.tolist()
        assert len(data) == len(offsets) == len(sources["ArrayRecord"])
        for batch in (256, 4096) if len(data) >= 4096 else (256,):
            draws = Draws(len(data), batch, 4096 if size >= 100_000 else 16384)
            out = np.ones(batch * (size * 5 // 4 + 16), np.uint8)
            out_bounds = np.zeros(batch + 1, np.uint64)

            def forget(draws: Draws = draws, known: Known = known) -> None:
                """Draw other records, and empty the processor's caches."""
                draws()
                known(draws.batches)
                library.sum(other.ctypes.data, other.nbytes)

            def loop(read: Callable[[object], object], lists: bool, draws: Draws = draws) -> None:
                for drawn in draws.lists if lists else draws.batches:
                    read(drawn)

            def as_bytes(drawn: list[int], data: croupier.Dataset = data) -> list[bytes]:
                return data.read_many(drawn).tolist()

            def pread(drawn: list[int], fd=fd, offsets=offsets, lengths=lengths) -> list[bytes]:
                return [os.pread(fd, lengths[i], offsets[i]) for i in drawn]

            def bare_pread(fd=fd, known: Known = known, at: int = out.ctypes.data) -> None:
                for where, sizes, _ in known.of:
                    assert library.pread_loop(fd, where.ctypes.data, sizes.ctypes.data, len(where), at)

            def gather(drawn, mapped=mapped, bounds=bounds, out=out, out_bounds=out_bounds) -> None:
                _kernel.gather(mapped.view, bounds, drawn.view(np.uint64), out, out_bounds, CORES)

            draws()
            expected = pread(draws.lists[0])
            assert as_bytes(draws.lists[0]) == expected
            assert all(source.__getitems__(draws.lists[0]) == expected for source in sources.values())
            contestants = {
                "us": partial(loop, data.read_many, False),
                "unverified": partial(loop, unverified.read_many, False),
                "bytes": partial(loop, as_bytes, True),
                **{peer: partial(loop, source.__getitems__, True) for peer, source in sources.items()},
                "python": partial(loop, pread, True),
                "pread": bare_pread,
                "gather": partial(loop, gather, False),
            }
            times = race(contestants, 3 if quick else 9, slow=1, before=forget)
            rates = {key: timed.rates(draws.count / 1e3) for key, timed in times.items()}
            best = max(PEERS, key=lambda peer: times[peer].rate(1))
            rows.append(
                [
                    f"{name}, {batch:,}",
                    *(spread(rates[key]) for key in contestants),
                    f"**{number(ratio(rates['us'], rates[best]), 1)}x**",
                    f"{number(ratio(rates['bytes'], rates[best]), 1)}x",
                    f"**{number(ratio(rates['us'], rates['python']), 1)}x**",
                    f"{number(ratio(rates['us'], rates['pread']), 1)}x",
                    f"{ratio(rates['us'], rates['gather']):.0%}",
                ]
            )
        os.close(fd)
        mapped.view.release()
        theirs.unlink()
        path.unlink()
    table(
        ["warm: records, batch", "croupier", "verify=False", "lists in, bytes out", *PEERS,
         "os.pread, Python", "pread, C", "gather alone", "÷ ArrayRecord", "÷ it, bytes out",
         "÷ pread, Python", "÷ pread, C", "÷ gather"],
        rows,
    )  # fmt: skip


class Cold:
    """A file that is not in the page cache when a turn begins."""

    def __init__(self, path: Path, library) -> None:
        self._library, self.size = library, path.stat().st_size
        self.fd = os.open(path, os.O_RDONLY)
        os.fsync(self.fd)
        self.direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self.left = 0

    def drop(self) -> None:
        for _ in range(10):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not (left := self.pages()):
                break
            time.sleep(0.1)
        self.left = max(self.left, left)

    def pages(self) -> int:
        """How much of it is in the page cache, by mincore."""
        return self._library.resident(self.fd, self.size)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.direct)


def cold(home: Path, library, quick: bool) -> None:
    rows, pages, turns = [], 0, 0
    for name, size in SIZES.items():
        say(f"cold, {name}")
        path = home / "cold.tfrecord"
        bounds = make(path, size, (128 if quick else 2048) * MIB)
        data, known, file = croupier.open(path), Known(bounds), Cold(path, library)
        turn = 4096 if size >= 100_000 else 16384
        records = len(data)  # which makes the table
        draws = Draws(records, min(4096, records), turn)
        one = Draws(records, draws.count, turn)  # the loops get all of a turn at once
        out = np.ones(one.count * (size * 5 // 4), np.uint8)

        def before(draws=draws, one=one, known=known, file=file) -> None:
            draws()
            one()
            known(one.batches)
            file.drop()

        def us(data=data, draws=draws) -> None:
            for batch in draws.batches:
                data.read_many(batch)

        def past(files=data._files) -> None:
            """As when more was read than there is memory for."""
            was, files._cold, files._past_cache = files._cold, 1 << 60, True
            us()
            files._cold, files._past_cache = was, False

        def loop(fd: int, align: int, threads: int, known=known, out=out) -> None:
            offsets, lengths, places = known.of[0]
            wanted = int(lengths.sum())
            columns = (column.ctypes.data for column in (offsets, lengths, places))
            done = library.pread_threads(fd, *columns, len(offsets), out.ctypes.data, align, threads)
            assert done == wanted

        contestants: dict[str, Callable[[], object]] = {"us": us, "past": past}
        for threads, direct in itertools.product((64, 128), (False, True)):
            key = f"{'O_DIRECT' if direct else 'pread'}, {threads}"
            contestants[key] = partial(loop, file.direct if direct else file.fd, 4096 * direct, threads)
        times = race(contestants, 2 if quick else 9, slow=2, before=before)
        rates = {key: timed.rates(draws.count / 1e3) for key, timed in times.items()}
        loops = list(contestants)[2:]
        best = max(loops, key=lambda key: times[key].rate(1))
        cached = max((key for key in loops if "DIRECT" not in key), key=lambda key: times[key].rate(1))
        before()
        us()
        rows.append(
            [
                f"{name}, {draws.count:,} of {records:,}",
                *(spread(rates[key]) for key in contestants),
                best,
                f"{ratio(rates['us'], rates[cached]):.0%}",
                f"{ratio(rates['us'], rates[best]):.0%}",
                f"**{ratio(rates['past'], rates[best]):.0%}**",
                *(f"{times[best].cpu / times[key].cpu:.0%}" for key in ("us", "past")),
                number(file.pages() / draws.count, 1),
            ]
        )
        pages, turns = max(pages, file.left), turns + sum(map(len, times.values()))
        file.close()
        path.unlink()
    table(
        ["cold: records", "croupier", "croupier, data larger than memory", *loops, "best of these",
         "÷ better pread", "÷ best", "larger ÷ best", "CPU: best ÷ us", "CPU: best ÷ larger",
         "pages fetched a record"],
        rows,
    )  # fmt: skip
    left = "none" if not pages else f"**up to {pages:,}**"
    print(
        f"Before each of {turns} cold turns the file was dropped from the page cache; mincore found {left} "
        "of its pages there.\n"
    )


def main() -> None:
    options = begin("Reading records by number", only=("warm", "cold"))
    library, home = bare(), folder()
    if options.only != "cold":
        warm(home, library, options.quick)
    if options.only != "warm":
        cold(home, library, options.quick)
    note(
        "Thousand records a second by the clock, median (lowest–highest); random numbers, none twice in a "
        "turn; payloads are random bytes, lengths vary by a quarter. croupier gives a Batch (one buffer and "
        "edges) and checks headers and, unless verify=False, payloads; 'lists in, bytes out' takes and "
        "gives what ArrayRecord does. ArrayRecord: ArrayRecordDataSource.__getitems__ of a file written "
        "with group_size:1, as it comes, and tuned: max_parallelism:1; '÷ ArrayRecord' is the better of the "
        "two. The preads are told where payloads stand and check nothing: os.pread makes bytes, the C loop "
        "(one thread) fills one buffer that it keeps; so does the kernel's gather of whole frames from a "
        "mapped file, on all cores. Each warm contestant gets records that no other got in that turn, and "
        "the processor's caches are emptied before. Targets at 200 B: ten times ArrayRecord, three times "
        "the pread loop.",
        "Cold: batches of at most 4,096 for croupier, all records of a turn at once for the C loops, which "
        "have 64 or 128 requests under way, a thread each, buffered or with O_DIRECT (whole pages). 'Cold' "
        "means this machine's page cache; what a host below keeps is out of reach. The second "
        "column is croupier as it reads once more came from the device than there is memory for: records of "
        "6 KB and more then go past the page cache. Target: 85 % of the best loop.",
        "Bound by what a batch costs before its first record (256 short ones), by the latency of memory "
        "(4,096 short ones), by fresh memory for what is read (warm, long), by the device or the system's "
        "work for each request (cold), and, where the device gives more than some 1.2 GB/s, by filling the "
        "page cache: that is what the second column is about.",
    )


if __name__ == "__main__":
    main()
