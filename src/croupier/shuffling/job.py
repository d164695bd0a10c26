"""A shuffle under way: read into runs, emit in order, note what is done, prove and publish."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from croupier import _kernel, storage
from croupier.codec import transcode
from croupier.errors import CancelledError, IntegrityError, StorageError
from croupier.frames import Damage
from croupier.output import Output, Shard
from croupier.proof import Proof
from croupier.rooms import Rooms
from croupier.runtime import Runtime, Task
from croupier.shuffling import probe
from croupier.shuffling.equal import without_equals
from croupier.shuffling.gathering import Gathering
from croupier.shuffling.giants import Giants
from croupier.shuffling.journal import NO_KEY, Finished, Journal, digest
from croupier.shuffling.load import PARCEL, STUB, Preparing, unpacked
from croupier.shuffling.merging import Merge, Ordered, Resident, Source
from croupier.shuffling.planning import Plan
from croupier.shuffling.reading import Reading, Tally
from croupier.shuffling.run import DIGEST, Order, Run, Sorted
from croupier.shuffling.spill import PER_RECORD, Spill
from croupier.table.model import Table
from croupier.table.new import keep_new
from croupier.table.packed import Integers, integers
from croupier.work import WorkFolder, is_left

_MOST_BLOCK, _LEAST_BLOCK = 4 << 20, 1 << 16
_KEPT = 64
"""Rooms for blocks of spills that are kept to be used again."""
_TWO_FROM = 64 << 20
"""Bytes for records: of fewer, two runs would be many small ones, and a block of each is merged at once."""
_LEAST_RUN = 16 << 20
"""Of compressed records, where memory has room for more."""
_SPLICE = 1 << 20
"""Bytes of parcels that one task takes."""


def carry_out(
    plan: Plan, runtime: Runtime, on_damage: Callable[[Damage], None], tally: Tally | None
) -> dict[str, Any]:
    """Do what was planned; gives the receipt."""
    output = Output(
        plan.prefix,
        plan.shards,
        plan.compression.value,
        plan.level,
        overwrite=plan.overwrite,
        runtime=runtime,
    )
    work = WorkFolder(plan.folder, output.name)
    try:
        try:
            journal = Journal(work, plan.identity, tmp_dir=plan.tmp_dir, resume=plan.resume)
        except BaseException:
            if not plan.resume:
                work.remove()
            raise
        try:
            with ExitStack() as stack:
                receipt, tables = _Job(plan, output, journal, runtime, stack).do(on_damage, tally)
        except (KeyboardInterrupt, SystemExit, CancelledError, StorageError) as error:
            output.close(keep=journal.worth_keeping)
            if journal.worth_keeping:
                error.add_note(journal.how_to_go_on())
            else:
                work.remove()
            raise
        except BaseException:
            output.close()
            work.remove()
            raise
        work.remove()
        if tables:
            keep_new(output.paths, tables)
        return receipt
    finally:
        work.close()


def conclude(plan: Plan) -> None:
    """Remove what a process has left that was killed when all was done."""
    side = os.path.join(plan.folder, storage.SIDE_FOLDER)
    notes = (f"{plan.name}.{what}.json" for what in ("publishing", "receipt"))
    storage.sweep(side, [*notes, "records.table"])
    if not is_left(plan.folder, plan.name):
        return
    work = WorkFolder(plan.folder, plan.name)
    try:
        Journal(work, plan.identity, tmp_dir=None, resume=False)
        work.remove()
    finally:
        work.close()


class _Job:
    def __init__(
        self, plan: Plan, output: Output, journal: Journal, runtime: Runtime, stack: ExitStack
    ) -> None:
        self._plan, self._output, self._journal, self._runtime = plan, output, journal, runtime
        self._stack = stack
        self._duplicates = 0
        self._spills: list[Spill] = []
        self._rooms = Rooms(_KEPT, most=2 * _MOST_BLOCK, together=plan.run_bytes // 16)
        self._spilled_runs = self._spilled_bytes = 0
        self._told = runtime.submit(plan.inputs.told)  # half a second, of a million files

    def do(
        self, on_damage: Callable[[Damage], None], tally: Tally | None
    ) -> tuple[dict[str, Any], list[Table]]:
        """The receipt, and the shards' tables."""
        plan = self._plan
        self._giants = Giants(plan, self._runtime, self._journal.spills, looked_at=tally is not None)
        by_number = plan.strategy == "gather"
        # Who reads by number counts what is written: shards that are done would not be counted again.
        most = 0 if by_number and tally else plan.shards
        earlier = self._journal.earlier_shards(plan.folder, most)
        self._output.open(
            plan.output_bytes, self._sealed, adopted=[(shard.temporary, shard.proof) for shard in earlier]
        )
        if by_number:
            came, counts = self._gather(earlier, tally)
        else:
            came, counts = self._shuffle(earlier, on_damage, tally)
        about = self._about() | ({} if tally is None else {"tally": dict(sorted(counts.items()))})
        return self._output.publish(came, about), self._journal.tables(plan.run_bytes)

    # By way of runs

    def _shuffle(
        self, earlier: Sequence[Finished], on_damage: Callable[[Damage], None], tally: Tally | None
    ) -> tuple[Proof, Mapping[str, int]]:
        plan = self._plan
        preparing = None
        if plan.strategy == "fragments" or plan.dedup:
            level = plan.level if plan.strategy == "fragments" else None
            preparing = Preparing(level, plan.seed if plan.dedup else None)
        reading = Reading(
            plan.inputs, self._runtime, plan.on_corrupt, plan.max_record_bytes, on_damage,
            preparing=preparing, tally=tally,
            past_cache=probe.better_past_cache([(one.path, one.size) for one in plan.inputs]),
            # what a giant is depends on memory, and level same needs all of a record
            giants=None if plan.level == transcode.SAME else self._giants,
        )  # fmt: skip
        with self._runtime.beside() as beside:
            sources, memory = self._read(reading, beside)
            if isinstance(sources, Sorted):
                whole = _whole(sources)
                records, dropped = len(whole.order), whole.dropped
                parts = iter([whole._replace(order=whole.order[self._rank(len(earlier), records) :])])
            else:
                merge = Merge(sources, memory, beside, plan.max_records)
                records, dropped = merge.count()
                parts = merge.ordered(earlier[-1].key if earlier else 0, self._rank(len(earlier), records))
            self._duplicates = dropped.records
            self._runtime.phase("write", reading.stream_bytes)
            self._emit(parts, len(earlier), records, reading.stream_bytes)
        return reading.came.minus(dropped), reading.counts

    def _read(self, reading: Reading, beside: Runtime) -> tuple[Sorted | list[Source], int]:
        """All records, as one run in memory, or as several and the memory to merge them with.

        Where several are expected, one is spilled while the next is filled: devices read and write at once.
        """
        plan = self._plan
        self._runtime.phase("read", plan.input_bytes)
        self._spills = [self._reopen(number) for number in range(self._go_on(reading))]
        several = bool(self._spills or plan.temporary_bytes)
        budget = plan.run_bytes
        kept, plan.inputs.kept = reading.adopt(plan.inputs.kept), None
        share = budget // 2 if several and kept is None and budget >= _TWO_FROM else budget
        if several and plan.strategy == "fragments":  # a tenth of the work is lost at most
            share = min(share, max(plan.held_bytes // 10, _LEAST_RUN))
        free = [self._new_run(share) for _ in range(1 + (2 * share <= budget))] if kept is None else [kept]
        runs = plan.held_bytes * 5 // (4 * share) + 2  # a block of each is in memory at once
        block = min(max(budget // (8 * runs), _LEAST_BLOCK), _MOST_BLOCK)
        spilling: Task[Run] | None = None
        while True:
            run = free.pop()
            reading.fill(run)
            if spilling is not None:
                free.append(spilling.result())
                spilling = None
            if not run.records and not reading.done:
                if share == budget:
                    raise reading.too_large()
                share = budget  # a record that a part of it has no room for
                free.clear()
                del run
                free.append(self._new_run(share))
                continue
            if reading.done and not self._spills and plan.strategy != "spill":
                return run.sort(plan.seed), budget
            if reading.done and 2 * run.held <= budget and run.records and plan.strategy != "spill":
                step = max(run.records * block // (run.bytes + run.records * PER_RECORD), 1)
                rest = budget - run.held - 2 * block * len(self._spills)
                return [*self._spills, Resident(run.sort(plan.seed), step)], rest
            if run.records:
                spilling = beside.submit(self._spill, run, block, reading.state(), beside)
            if spilling is not None and not (free and not reading.done):
                free.append(spilling.result())
                spilling = None
            if reading.done:
                return list(self._spills), budget - 2 * block * len(self._spills)

    def _new_run(self, memory: int) -> Run:
        room = min(memory, 2 * self._plan.held_bytes + (64 << 20))
        most, extra = self._plan.max_records, DIGEST * self._plan.dedup
        if most is not None and memory < self._plan.run_bytes:  # one of two
            most = max(most // 2, 1)
        return Run(np.empty(room, np.uint8), memory, most, extra=extra)

    def _go_on(self, reading: Reading) -> int:
        """With what an earlier process read; gives how many runs that is."""
        state = self._journal.earlier_runs()
        if state is not None:
            reading.go_on(state)
        return self._journal.runs

    def _reopen(self, number: int) -> Spill:
        path = self._journal.spill_path(number)
        spill = Spill(path, self._plan.seed, 0, self._rooms, digests=self._plan.dedup)
        self._stack.callback(spill.close)
        spill.open()
        return spill

    def _spill(self, run: Run, block: int, state: dict[str, Any], beside: Runtime) -> Run:
        """On a thread; gives the run, empty. `state`: of the reading, when it was full."""
        path = self._journal.spill_path(self._journal.runs)
        spill = Spill(path, self._plan.seed, block, self._rooms, digests=self._plan.dedup)
        self._stack.callback(spill.close)
        spill.write(run.sort(self._plan.seed), beside)
        self._journal.note_run(state)
        self._spills.append(spill)
        self._spilled_runs += 1
        self._spilled_bytes += spill.stored
        run.clear()
        return run

    # By number

    def _gather(self, earlier: Sequence[Finished], tally: Tally | None) -> tuple[Proof, Mapping[str, int]]:
        gathering = Gathering(self._plan, self._runtime, tally, self._giants)
        rank = self._rank(len(earlier), gathering.records)
        self._runtime.phase("gather", gathering.stream_bytes)
        self._emit(gathering.ordered(rank), len(earlier), gathering.records, gathering.stream_bytes)
        came = gathering.came
        for shard in earlier:
            came = came.plus(shard.proof)
        if came.records != gathering.records:
            raise IntegrityError(f"{came.records:,} records were read of {gathering.records:,}")
        return came, gathering.counts

    # Out

    def _rank(self, shard: int, records: int) -> int:
        """Of a shard's first record."""
        return shard * records // self._plan.shards

    def _emit(self, parts: Iterator[Ordered], number: int, records: int, stream: int) -> None:
        """Shard i holds the records from rank floor(i N / S) on; those before `number` are done."""
        rank, shard = self._rank(number, records), None
        for part in parts:
            order = part.order
            while len(order):
                while shard is None or self._rank(number + 1, records) <= rank:
                    if shard is not None:
                        self._output.finish(shard)
                        number += 1
                    self._journal.note_key(number, int(part.keys[order[0]]))
                    shard = self._output.begin()
                count = min(len(order), self._rank(number + 1, records) - rank)
                self._put(shard, part, order[:count])
                order = order[count:]
                rank += count
                self._runtime.advance(stream * count // max(records, 1), count)
        for rest in range(number + 1, self._plan.shards):
            self._journal.note_key(rest, NO_KEY)

    def _put(self, shard: Shard, part: Ordered, order: Order) -> None:
        """Some records, all into one shard."""
        if part.parcels is None:
            self._output.gather(shard, part.buffer, part.bounds, order.view(np.uint64))
            return
        flags = part.parcels[order]
        for stretch in np.split(order, np.flatnonzero(np.diff(flags)) + 1):
            kind = part.parcels[stretch[0]]
            if kind == STUB:
                for place in stretch.tolist():
                    stub = part.buffer.data[int(part.bounds[place]) : int(part.bounds[place + 1])]
                    self._giants.write(stub, self._output, shard)
            elif kind == PARCEL:
                self._splice(shard, part, stretch.view(np.uint64))
            else:
                self._output.gather(shard, part.buffer, part.bounds, stretch.view(np.uint64))

    def _splice(self, shard: Shard, part: Ordered, parcels: Integers) -> None:
        ends = np.cumsum(part.bounds[parcels + np.uint64(1)] - part.bounds[parcels])
        for some in np.split(parcels, np.flatnonzero(np.diff(ends // np.uint64(_SPLICE))) + 1):
            size = int((part.bounds[some + np.uint64(1)] - part.bounds[some]).sum())
            content, bounds = np.empty(size, np.uint8), integers(len(some) + 1)
            _kernel.gather(part.buffer, part.bounds, some, content, bounds, 1)
            self._output.splice(shard, size, unpacked, content.data, bounds)

    def _sealed(self, number: int, shard: Shard, table: Table) -> None:
        last = number + 1 == self._plan.shards
        self._journal.note_shard(
            number, shard.file.temporary, shard.file.written, shard.proof, table, last=last
        )
        for spill in self._spills:
            spill.forget(self._journal.key)

    def _about(self) -> dict[str, Any]:
        plan = self._plan
        about = {
            "job": "shuffle",
            "plan": digest(plan.identity),
            "seed": plan.seed,
            "order": plan.order,
            "strategy": plan.strategy,
            "spilled_runs": self._spilled_runs,
            "spilled_bytes": self._spilled_bytes,
            "resumed": self._journal.resumed,
            "workers": plan.workers,
            "memory": plan.memory,
            "inputs": self._told.result(),
        }
        if plan.forecast is not None:
            told = {"seconds": plan.forecast.seconds, "limit_seconds": plan.forecast.limit_seconds}
            about["forecast"] = {name: round(value, 3) for name, value in told.items()}
        return about | ({"duplicates": self._duplicates} if plan.dedup else {})


def _whole(run: Sorted) -> Ordered:
    """All records are in memory."""
    order, dropped = run.order, Proof()
    if run.digests is not None:
        order, dropped = without_equals(run.buffer, run.bounds, order, run.keys, run.digests, run.parcels)
    return Ordered(run.buffer, run.bounds, order, run.keys, run.parcels, dropped)
