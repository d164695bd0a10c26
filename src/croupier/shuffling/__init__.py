"""Shuffling: every record of a dataset in one new order, within a memory budget, proven.

    planning  which files, how many shards, what it takes; everything that can be refused is refused
    reading   all files, several at a time, into runs
    run       as many records as memory holds, sorted by their keys
    spill     a run on disk, when there are several
    merging   spilled runs as one order again

A record's key is a 64-bit pseudo-random function of seed, file and record. The order is that of (key, file,
record), and shards are equal cuts of it, so memory and threads change the time and never the output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from croupier import storage, streams
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.output import Output
from croupier.runtime import Progress, Runtime
from croupier.shuffling.merging import Ordered, merge
from croupier.shuffling.planning import Asked, Plan, make_plan
from croupier.shuffling.reading import Reading
from croupier.shuffling.run import Run
from croupier.shuffling.spill import Spill

_MOST_BLOCK, _LEAST_BLOCK = 4 << 20, 1 << 16


def plan(
    inputs: storage.PathLike | Iterable[storage.PathLike],
    output_prefix: storage.PathLike,
    *,
    seed: int = 0,
    shards: int | None = None,
    shard_size: int | None = None,
    memory: int | None = None,
    tmp_dir: storage.PathLike | None = None,
    compression: Asked = "same",
    level: int | None = None,
    workers: int | None = None,
    on_corrupt: OnCorrupt = "fail",
    overwrite: bool = False,
) -> Plan:
    """What `shuffle` would do with these arguments; nothing is written."""
    with Runtime(workers=workers, memory=memory) as runtime:
        return make_plan(
            inputs,
            output_prefix,
            runtime,
            seed=seed,
            shards=shards,
            shard_size=shard_size,
            tmp_dir=tmp_dir,
            compression=compression,
            level=level,
            on_corrupt=on_corrupt,
            overwrite=overwrite,
        )


def shuffle(
    inputs: storage.PathLike | Iterable[storage.PathLike],
    output_prefix: storage.PathLike,
    *,
    seed: int = 0,
    shards: int | None = None,
    shard_size: int | None = None,
    memory: int | None = None,
    tmp_dir: storage.PathLike | None = None,
    compression: Asked = "same",
    level: int | None = None,
    workers: int | None = None,
    on_corrupt: OnCorrupt = "fail",
    overwrite: bool = False,
    max_record_bytes: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Write all records of `inputs` to shards in an order that is random, and the same for a seed::

        croupier.shuffle("examples-*.tfrecord.gz", "shuffled/train", seed=7, memory=8_000_000_000)

    Files appear as PREFIX-00000-of-00064.tfrecord[.gz], all together, when what went out is proven to be what
    came in; gives the receipt. The output depends on inputs, seed, number of shards and codec alone. `memory`
    is a budget in bytes for the whole process (by default 80 % of what is free); what does not fit is spilled
    to `tmp_dir` (by default the folder of the output). Shards aim at 150 MB.
    """
    with Runtime(workers=workers, memory=memory, progress=progress, cancel=cancel) as runtime:
        made = make_plan(
            inputs,
            output_prefix,
            runtime,
            seed=seed,
            shards=shards,
            shard_size=shard_size,
            tmp_dir=tmp_dir,
            compression=compression,
            level=level,
            on_corrupt=on_corrupt,
            overwrite=overwrite,
        )
        output = Output(
            made.prefix, made.shards, made.compression.value, made.level, overwrite=overwrite, runtime=runtime
        )
        return _Job(made, output, runtime).do(on_corrupt, max_record_bytes, on_damage or streams.warn)


class _Job:
    def __init__(self, made: Plan, output: Output, runtime: Runtime) -> None:
        self._plan, self._output, self._runtime = made, output, runtime
        self._spilled_runs = self._spilled_bytes = 0

    def do(self, on_corrupt: OnCorrupt, limit: int, on_damage: Callable[[Damage], None]) -> dict[str, Any]:
        with ExitStack() as stack:
            reading = Reading(self._plan.inputs, self._runtime, on_corrupt, limit, on_damage)
            stack.callback(self._output.close)
            self._output.open(self._plan.output_bytes)
            ordered = self._ordered(reading, stack)
            first = next(
                ordered, None
            )  # when everything is read: then it is known how many records there are
            self._runtime.phase("write", reading.stream_bytes)
            self._emit(first, ordered, reading.came.records)
            return self._output.publish(reading.came, self._about(), tables=True)

    def _ordered(self, reading: Reading, stack: ExitStack) -> Iterator[Ordered]:
        """All records in their order, as much at a time as memory holds."""
        self._runtime.phase("read", self._plan.input_bytes)
        budget = self._plan.run_bytes
        run, spills = Run(np.empty(budget, np.uint8), budget), list[Spill]()
        expected = (
            self._plan.stream_bytes * 5 // (4 * budget) + 2
        )  # runs: a block of each is in memory at once
        block = min(max(budget // (8 * expected), _LEAST_BLOCK), _MOST_BLOCK)
        while True:
            reading.fill(run)
            if reading.done and not spills:
                whole = run.sort(self._plan.seed)
                yield Ordered(whole.buffer, whole.bounds, whole.order)
                return
            if run.records:
                spill = Spill(self._plan.tmp_dir, self._plan.seed, block)
                stack.callback(spill.close)
                spills.append(spill)
                spill.write(run.sort(self._plan.seed), self._runtime)
                run.clear()
                self._spilled_runs += 1
                self._spilled_bytes += spill.stored
            if reading.done:
                break
        del run
        yield from merge(spills, budget - 2 * block * len(spills), self._runtime)

    def _emit(self, first: Ordered | None, rest: Iterator[Ordered], records: int) -> None:
        """Shard i holds the records from rank floor(i N / S) on."""
        shards = self._output.shards
        edges = [number * records // len(shards) for number in range(len(shards) + 1)]
        rank = shard = 0
        part = first
        while part is not None:
            order = part.order.view(np.uint64)
            while len(order):
                while edges[shard + 1] <= rank:
                    self._output.finish(shards[shard])
                    shard += 1
                some, order = order[: edges[shard + 1] - rank], order[edges[shard + 1] - rank :]
                self._output.gather(shards[shard], part.buffer, part.bounds, some)
                rank += len(some)
            part = next(rest, None)

    def _about(self) -> dict[str, Any]:
        made = self._plan
        return {
            "job": "shuffle",
            "seed": made.seed,
            "order": "philox4x64-10(seed, file)[record], by (key, file, record)",
            "spilled_runs": self._spilled_runs,
            "spilled_bytes": self._spilled_bytes,
            "workers": made.workers,
            "memory": made.memory,
            "inputs": [{"path": one.path, "bytes": one.size} for one in made.inputs],
        }
