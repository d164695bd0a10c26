"""Shuffling: every record of a dataset in one new order, within a memory budget, proven.

    planning   which files, how many shards, which strategy, what it takes; all that can be refused is refused
    forecast   how long it will take; from facts, and those from a probe of devices and codecs
    job        the work from beginning to end
    reading    all files, several at a time, into runs
    small      thousands of small files, read together
    load       some records on their way there; large ones compressed once and for all
    run        as many records as memory holds, sorted by their keys
    spill      a run on disk, when there are several
    merging    runs as one order again
    giants     records too large for memory
    gathering  records by number, where that is better
    journal    what is done, so that another process can go on

A record's key is a 64-bit pseudo-random function of seed, file and record. The order is that of (key, file,
record), and shards are equal cuts of it: memory, threads and strategy change the time and never the output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from croupier import storage, streams
from croupier.codec.transcode import Level
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.runtime import Progress, Runtime
from croupier.shuffling.facts import expect, forecast
from croupier.shuffling.job import carry_out, conclude
from croupier.shuffling.planning import (
    STRATEGIES,
    Asked,
    Plan,
    Request,
    Strategy,
    make_plan,
    other_strategies,
)
from croupier.shuffling.reading import Tally

__all__ = ["STRATEGIES", "Plan", "plan", "shuffle"]


def plan(
    inputs: storage.PathLike | Iterable[storage.PathLike],
    output_prefix: storage.PathLike,
    *,
    memory: int | None = None,
    workers: int | None = None,
    **options: Any,
) -> Plan:
    """What `shuffle` would do with these arguments (all but its callbacks), and how long it would take.

    No output is written; devices that are not known yet are tried out with a temporary file, for a second.
    """
    with Runtime(workers=workers, memory=memory) as runtime:
        made = make_plan(inputs, output_prefix, runtime, Request(**options), look_only=True)
        if made.finished is not None:
            return made
        return replace(made, forecast=forecast(made, runtime, others=other_strategies(made)))


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
    level: Level | None = None,
    workers: int | None = None,
    strategy: Strategy | Literal["auto"] = "auto",
    on_corrupt: OnCorrupt = "fail",
    dedup: bool = False,
    overwrite: bool = False,
    resume: bool = False,
    max_records: int | None = None,
    max_record_bytes: int = MAX_RECORD,
    tally: Tally | None = None,
    on_damage: Callable[[Damage], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Write all records of `inputs` to shards in an order that is random, and the same for a seed::

        croupier.shuffle("examples-*.tfrecord.gz", "shuffled/train", seed=7, memory=8_000_000_000)

    Files appear as PREFIX-00000-of-00064.tfrecord[.gz], all together, when what went out is proven to be
    what came in; gives the receipt. The output depends on inputs, seed, number of shards and codec alone.
    Shards aim at 150 MB. `memory` is a budget in bytes for the whole process (by default 80 % of what is
    free); what does not fit is spilled to `tmp_dir` (by default the folder of the output). What a call that
    was interrupted had done is kept, and gone on with by the same call with `resume`. With `dedup`, of
    records with equal payloads the first stays, and their content decides the order. `level` is 1 (fast) to
    9 (small), or "same": gzip as small as compressed inputs were, from the matches that their own compressor
    found. `max_records` limits how many are in memory at once. `tally` is called on threads with each block
    of records and gives numbers to add up; the receipt has them.
    """
    asked = Request(
        seed, shards, shard_size, tmp_dir, compression, level, strategy, on_corrupt, dedup, overwrite, resume,
        max_records, max_record_bytes,
    )  # fmt: skip
    with Runtime(workers=workers, memory=memory, progress=progress, cancel=cancel) as runtime:
        made = make_plan(inputs, output_prefix, runtime, asked)
        if made.finished is not None:
            conclude(made)
            return made.finished
        if progress is not None:
            made = replace(made, forecast=expect(made, runtime))
        return carry_out(made, runtime, on_damage or streams.warn, tally)
