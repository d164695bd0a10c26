"""Records by number, in the new order: each byte is read once and written once, whatever the memory.

Reading at random costs nothing where records are large, or in the page cache. The order is not held: keys are
made anew for each stretch of it, at 200 million a second, and those that fall into it are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import numpy as np

from croupier import _kernel, storage
from croupier.dataset.files import Files
from croupier.dataset.opener import Opener
from croupier.errors import RecordTooLargeError, UsageError
from croupier.frames import EVERYTHING, FOOTER, HEADER, OVERHEAD, Block
from croupier.proof import Proof
from croupier.runtime import Runtime
from croupier.shuffling import probe
from croupier.shuffling.giants import STUB_BYTES, Giants, Stub
from croupier.shuffling.load import STUB
from croupier.shuffling.merging import Ordered
from croupier.shuffling.planning import Plan
from croupier.shuffling.run import settle
from croupier.table.packed import Integers, Octets, integers

_KEY_STEP = 1 << 18
_PER_CHOSEN = 64
"""Bytes of memory for a record of the stretch that is being sorted: number, key, order, place, length."""
_WINDOW = 128 << 20
_SMALL = 1 << 20
"""Bytes of a record that any memory has room for."""


class Gathering:
    """All records of plain files."""

    def __init__(
        self,
        plan: Plan,
        runtime: Runtime,
        tally: Callable[[Block], Mapping[str, int]] | None,
        giants: Giants,
    ) -> None:
        self._giants = giants
        self._plan, self._runtime, self._tally = plan, runtime, tally
        runtime.phase("index", plan.input_bytes)
        once = probe.better_past_cache([(one.path, one.size) for one in plan.inputs])
        opener = Opener([one.path for one in plan.inputs], True, "auto", "fail", plan.max_record_bytes)
        self._files: Files = opener.files()
        if once:
            self._files.read_once()
        table = self._files.table
        self._firsts = table.firsts
        self.records = int(table.firsts[-1])
        self.stream_bytes = int(table.payload_bytes.sum()) + OVERHEAD * self.records
        if tally is not None:
            self._refuse_giants()
        self.came = Proof()
        self.counts: dict[str, int] = {}

    def _refuse_giants(self) -> None:
        """Records of which not two, and their compressed copies, have room in memory."""
        for begin in range(0, self.records, _KEY_STEP):
            lengths = self._files.table.lengths.part(begin, min(_KEY_STEP, self.records - begin))
            longest = int(lengths.argmax())
            if lengths[longest] > max(self._plan.run_bytes // 4, _SMALL):
                number = begin + longest
                file = int(np.searchsorted(self._firsts, np.uint64(number), side="right")) - 1
                size, path = int(lengths[longest]), self._plan.inputs[file].path
                raise UsageError(
                    f"{path}: record {number - int(self._firsts[file])} has {size:,} bytes: too many for "
                    f"this memory; give at least {4 * size // 1_000_000 + 100} MB"
                )

    def ordered(self, rank: int) -> Iterator[Ordered]:
        """From `rank` on; each part is valid until the next but one is asked for."""
        rooms = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        pending = None
        for number, (records, keys, size) in enumerate(self._windows(rank)):
            room = rooms[number % 2]
            if len(room) < size:
                room = rooms[number % 2] = np.empty(max(size, self._window), np.uint8)
            task = self._runtime.submit(self._read, records, keys, room)
            if pending is not None:
                yield self._count(pending.result())
            pending = task
        if pending is not None:
            yield self._count(pending.result())
        for one in self._plan.inputs:
            one.check_unchanged()

    @property
    def _window(self) -> int:
        """Bytes of frames that are read at once."""
        return min(self._plan.run_bytes // 4, _WINDOW)

    def _windows(self, rank: int) -> Iterator[tuple[Integers, Integers, int]]:
        """(numbers, keys, bytes) of the records that are read together."""
        most = max(self._plan.run_bytes // (4 * _PER_CHOSEN), 1000)
        stretches = -(-self.records // most)
        passed = 0
        for stretch in range(stretches):
            low, high = ((number << 64) // stretches for number in (stretch, stretch + 1))
            numbers, keys = self._between(low, high - 1)
            passed += len(numbers)
            if passed <= rank:
                continue
            if len(numbers) - (passed - rank) > 0:
                skip = len(numbers) - (passed - rank)
                numbers, keys = numbers[skip:], keys[skip:]
            rank = passed
            sizes = self._files.table.locate(numbers)[2] + np.uint64(OVERHEAD)
            alone = self._are_giants(sizes)
            sizes[alone] = STUB_BYTES
            ends = np.cumsum(sizes)
            full = np.diff(ends // np.uint64(self._window)) > 0
            cuts = np.flatnonzero(full | alone[1:] | alone[:-1]) + 1
            edges = [0, *cuts.tolist(), len(numbers)]
            for begin, end in pairwise(edges):
                size = int(ends[end - 1]) - (int(ends[begin - 1]) if begin else 0)
                yield numbers[begin:end], keys[begin:end], size

    def _between(self, low: int, last: int) -> tuple[Integers, Integers]:
        """The records with such keys, in their order."""
        found, found_keys = [integers(0)], [integers(0)]
        for begin in range(0, self.records, _KEY_STEP):
            self._runtime.check()
            keys = self._keys(begin, min(begin + _KEY_STEP, self.records))
            chosen = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(last)))
            found.append(chosen.astype(np.uint64) + np.uint64(begin))
            found_keys.append(keys[chosen])
        numbers, keys = np.concatenate(found), np.concatenate(found_keys)
        order = np.argsort(keys)
        settle(order, keys, lambda some: (some.view(np.uint64), some.view(np.uint64)))
        return numbers[order], keys[order]

    def _keys(self, begin: int, end: int) -> Integers:
        """Of the records begin to end."""
        first = int(np.searchsorted(self._firsts, np.uint64(begin), side="right")) - 1
        last = int(np.searchsorted(self._firsts, np.uint64(end), side="left"))
        edges = self._firsts[first : last + 1].copy()
        edges[0], edges[-1] = begin, end
        files = np.arange(first, last, dtype=np.uint64)
        keys = integers(end - begin)
        _kernel.record_keys(
            self._plan.seed, files, edges[:-1] - self._firsts[first:last], np.diff(edges), keys
        )
        return keys

    def _read(self, records: Integers, keys: Integers, room: Octets) -> Ordered:
        """On a thread."""
        files, offsets, lengths = self._files.table.locate(records)
        if (too := np.flatnonzero(lengths > self._plan.max_record_bytes)).size:
            file = int(np.searchsorted(self._firsts, records[too[0]], side="right")) - 1
            path, limit = self._plan.inputs[file].path, self._plan.max_record_bytes
            problem = f"the record declares {int(lengths[too[0]]):,} bytes, more than the {limit:,} allowed"
            raise RecordTooLargeError(
                problem, path, offset=0, record=int(records[too[0]] - self._firsts[file])
            )
        if self._are_giants(lengths + np.uint64(OVERHEAD)).any():  # it is alone
            file = int(files[0])
            number = int(records[0] - self._firsts[file])
            return self._stub(Stub(int(lengths[0]), number, int(offsets[0]), file, 0), keys)
        bounds = self._files.read_frames(records, room)
        return Ordered(room, bounds, np.arange(len(records), dtype=np.intp), keys, None)

    def _are_giants(self, sizes: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return sizes > np.uint64(min(self._giants.least, EVERYTHING - 1))

    def _stub(self, stub: Stub, keys: Integers) -> Ordered:
        """With the checksum that the file has; that it is the payload's is seen when that is read."""
        crc = memoryview(bytearray(FOOTER))
        behind = stub.offset + HEADER + stub.length
        with storage.FileSource(self._plan.inputs[stub.file].path, behind) as source:
            source.readinto(crc)
        stub = stub._replace(crc=int.from_bytes(crc, "little"))
        bounds, flags = np.array([0, STUB_BYTES], np.uint64), np.array([STUB], np.uint8)
        return Ordered(np.frombuffer(stub.framed(), np.uint8), bounds, np.zeros(1, np.intp), keys, flags)

    def _count(self, part: Ordered) -> Ordered:
        if part.parcels is not None:
            stub = Stub.unframed(part.buffer.data)
            self.came = self.came.plus(Proof.of_one(stub.length, stub.crc))
            return part
        totals = integers(4)
        _kernel.fingerprint(part.buffer.data, part.bounds, totals)
        self.came = self.came.plus(Proof.of(totals))
        if self._tally is not None:
            for name, count in self._tally(Block(part.buffer.data, part.bounds, 0, 0)).items():
                self.counts[name] = self.counts.get(name, 0) + count
        return part
