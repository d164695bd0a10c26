"""What a shuffle will do, before it does it; everything that can be refused is refused here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from croupier import _kernel, naming, storage
from croupier.codec import deflate, transcode
from croupier.codec.detect import Compression
from croupier.errors import UsageError
from croupier.frames import MAX_RECORD, OnCorrupt, check_on_corrupt
from croupier.output import BLOCK, SHARD_BYTES
from croupier.output_names import file_names
from croupier.publish import check_outputs, finish_publication
from croupier.runtime import MIB, Runtime, available_memory
from croupier.shuffling import probe
from croupier.shuffling.forecast import Forecast
from croupier.shuffling.inputs import (
    Inputs,
    check_beginnings,
    compressibility,
    expansion,
    find_inputs,
    mean_frame,
)
from croupier.shuffling.journal import finished
from croupier.shuffling.run import PER_RECORD
from croupier.work import is_left

AT_REST = 56 * MIB
"""What the process takes before it has read anything."""
PER_WORKER = 8 * MIB
"""What a thread takes: buffers to read and inflate, and a block that is being spilled."""
LEAST_RUN = 16 * MIB

SMALL_FILE = 1 << 20
"""Bytes of files, on average, below which opening them costs more than copying what is in them."""

Asked = Literal["same", "gzip", "zlib", "none"]
Strategy = Literal["memory", "gather", "spill", "fragments"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
"""memory     read once, written once; all records are in memory
gather     plain files: read by number in the new order, a window at a time, written once
spill      read, sorted and spilled in runs as large as memory; the runs are merged into the output
fragments  gzip of large records: each is compressed when it is read, and held, spilled and written as that
"""

GATHER_FROM = 16 << 10
"""Bytes of a record from which reading at random costs less than writing and reading everything once more."""


@dataclass(frozen=True)
class Request:
    """What is asked for beside inputs and output; see `croupier.shuffle`."""

    seed: int = 0
    shards: int | None = None
    shard_size: int | None = None
    tmp_dir: storage.PathLike | None = None
    compression: Asked = "same"
    level: transcode.Level | None = None
    strategy: Strategy | Literal["auto"] = "auto"
    on_corrupt: OnCorrupt = "fail"
    dedup: bool = False
    overwrite: bool = False
    resume: bool = False
    max_records: int | None = None
    max_record_bytes: int = MAX_RECORD


@dataclass(frozen=True)
class Plan:
    """See `plan`."""

    inputs: Inputs
    prefix: str
    seed: int
    shards: int
    compression: Compression
    level: transcode.Level
    strategy: Strategy
    """How: see STRATEGIES."""
    why: str
    """Why so."""
    workers: int
    memory: int
    """The budget."""
    run_bytes: int
    """Of that, what records may take at a time."""
    tmp_dir: str | None
    """Where to spill to; None: beside the output."""
    input_bytes: int
    stream_bytes: int
    """Decompressed; exact for plain files, else from samples."""
    held_bytes: int
    """What all records would take in memory, as this strategy holds them."""
    mean_bytes: int
    """Of a record, from samples."""
    temporary_bytes: int
    output_bytes: int
    on_corrupt: OnCorrupt
    dedup: bool
    overwrite: bool
    resume: bool
    max_records: int | None
    max_record_bytes: int
    finished: dict[str, Any] | None = None
    """The receipt, where an earlier process has done everything."""
    forecast: Forecast | None = None
    """How long it will take, where that was asked for."""

    @property
    def name(self) -> str:
        """What the receipt goes by."""
        return file_names(self.prefix, self.shards, self.compression)[0]

    @property
    def folder(self) -> str:
        """Of the output."""
        return os.path.dirname(os.path.abspath(self.prefix))

    @property
    def order(self) -> str:
        """For the receipt."""
        if self.dedup:
            return "blake2b-128(payload, key=seed)[:8], first of equal records"
        return "philox4x64-10(seed, file)[record], by (key, file, record)"

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides what the output's bytes will be."""
        packed = self.compression is not Compression.NONE
        return {
            "inputs": self.inputs.identity,
            "order": self.order,
            "seed": self.seed,
            "prefix": os.path.abspath(self.prefix),
            "shards": self.shards,
            "codec": transcode.codec_name(self.compression, self.level) if packed else "none",
            "compression": self.compression.value,
            "level": self.level if packed else 0,
            "on_corrupt": self.on_corrupt,
            "max_record_bytes": self.max_record_bytes,
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rest = {key: value for key, value in vars(self).items() if key not in ("inputs", "finished")}
        rest["forecast"] = self.forecast and self.forecast.as_dict()
        files = [
            {"path": one.path, "bytes": one.size, "compression": one.compression.value} for one in self.inputs
        ]
        return rest | {"compression": self.compression.value, "inputs": files}


def make_plan(
    inputs: storage.PathLike | Iterable[storage.PathLike],
    prefix: storage.PathLike,
    runtime: Runtime,
    asked: Request,
    *,
    look_only: bool = False,
) -> Plan:
    """Look at everything, and refuse what cannot work.

    Unless told to `look_only`, finish what a killed process had begun to publish.
    """
    _check(asked)
    # What a look at small files has read need not be read again, if it will all be in memory anyway.
    keeps = asked.strategy in ("auto", "memory") and not (look_only or asked.dedup or asked.resume)
    room = 0 if not keeps or asked.max_records is not None else runtime.memory - _fixed(runtime)
    files = find_inputs(inputs, runtime, asked.max_record_bytes, room=room)
    check_beginnings(files, asked.on_corrupt)
    kind = _output_kind(files, asked.compression)
    stored = files.total
    packed = stored - files.bytes_of(Compression.NONE)
    ratio = expansion(files) if packed else 1.0
    stream = stored - packed + int(packed * ratio)
    written = _output_bytes(kind, files, stream, ratio)
    count = asked.shards or max(1, -(-written // (asked.shard_size or SHARD_BYTES)))
    target = os.fspath(prefix)
    name, paths = file_names(target, count, kind)
    _refuse_own_inputs(files, paths)
    run = run_bytes(runtime)
    mean = mean_frame(files)
    strategy, why = _choose(asked, files, kind, stream, written, mean, run)
    if strategy != "memory":
        files.kept = None
    held = int(min(written, stream) * _PARCELS) if strategy == "fragments" else stream
    spilled = 0
    if strategy == "spill" or (strategy == "fragments" and not fragments_stay(written, mean, run)):
        spilled = held if strategy == "fragments" or not packed else min(stream, stored * 3)
    folder = os.path.dirname(os.path.abspath(target))
    tmp_dir = None if asked.tmp_dir is None else os.fspath(asked.tmp_dir)
    plan = Plan(
        files, target, asked.seed, count, kind, transcode.check_level(asked.level), strategy, why,
        runtime.workers, runtime.memory, run, tmp_dir, stored, stream, held, mean, spilled, written,
        asked.on_corrupt, asked.dedup, asked.overwrite, asked.resume, asked.max_records,
        asked.max_record_bytes,
    )  # fmt: skip
    ended = not look_only and finish_publication(folder, name)
    if asked.resume or ended or is_left(folder, name):
        plan = replace(plan, finished=finished(folder, name, plan.identity))
    if plan.finished:
        return plan
    check_outputs(name, paths, overwrite=asked.overwrite)
    _check_space(folder, written, tmp_dir or folder, spilled)
    return plan


_WORTH_KEEPING = 256_000_000
"""Bytes of fragments that took so long to compress that they are spilled as they come, whatever memory holds:
who goes on after an interruption has them. They are a twentieth of the bytes that were compressed."""
_PARCELS = 1.3
"""Bytes of compressed records in memory to those of the output: some compress less well than the sample."""


def fits(held: int, mean: int, run: int) -> bool:
    """Whether records that take `held` bytes fit in memory at once, with what is kept beside each."""
    return held * 5 // 4 + held // max(mean, 1) * PER_RECORD <= run


_PER_NUMBER = 8
"""Bytes for a record in an offset table, while that is made and kept."""


def numbers_fit(stream: int, mean: int, run: int) -> bool:
    """Whether memory has room for an offset table."""
    return stream // max(mean, 1) * _PER_NUMBER <= run


def cache_holds(stream: int) -> bool:
    """Whether the page cache has room for so many bytes of plain files."""
    return stream * 5 // 4 < available_memory()


def fragments_stay(written: int, mean: int, run: int) -> bool:
    """Whether compressed records, so many bytes of output, stay in memory until they are written."""
    return written < _WORTH_KEEPING and fits(int(written * _PARCELS), mean, run)


def other_strategies(plan: Plan) -> list[Strategy]:
    """Those that could have been asked for as well."""
    numbers = numbers_fit(plan.stream_bytes, plan.mean_bytes, plan.run_bytes)
    gathers = numbers and _gathers(plan.inputs, plan.on_corrupt, plan.dedup, plan.max_records)
    holds = fits(plan.stream_bytes, plan.mean_bytes, plan.run_bytes)
    packs = plan.compression is Compression.GZIP
    if plan.level == transcode.SAME and plan.compression is not Compression.NONE:
        return []
    others = [one for one in STRATEGIES if one != plan.strategy]
    return [one for one in others if _refusal(one, gathers, packs, holds) is None]


def _gathers(files: Inputs, on_corrupt: OnCorrupt, dedup: bool, max_records: int | None) -> bool:
    """Whether all records can be read by number."""
    return files.are_plain and on_corrupt == "fail" and not dedup and max_records is None


def _refusal(strategy: Strategy, gathers: bool, packs: bool, holds: bool) -> str | None:
    """Why a strategy cannot be had."""
    if strategy == "gather" and not gathers:
        wants = (
            "plain files, on_corrupt='fail', no dedup, no limit on records, and "
            f"{_PER_NUMBER} bytes of memory a record"
        )
        return f"reads records by number: that wants {wants}"
    if strategy == "fragments" and not packs:
        return "moves compressed records: that wants gzip as the output"
    if strategy == "memory" and not holds:
        return "holds all records: they do not fit"
    return None


def _choose(
    asked: Request, files: Inputs, kind: Compression, stream: int, written: int, mean: int, run: int
) -> tuple[Strategy, str]:
    """The strategy, and why."""
    if asked.level == transcode.SAME and kind is not Compression.NONE:
        if kind is not Compression.GZIP or asked.strategy not in ("auto", "fragments"):
            raise UsageError("level same wants gzip as the output, and fragments as the strategy")
        return "fragments", "level same compresses records as they are read"
    large = mean >= deflate.LARGE_FRAME and kind is Compression.GZIP
    gathers = _gathers(files, asked.on_corrupt, asked.dedup, asked.max_records)
    gathers &= numbers_fit(stream, mean, run)
    holds = fits(stream, mean, run)
    if asked.strategy != "auto":
        if why := _refusal(asked.strategy, gathers, kind is Compression.GZIP, holds):
            sizes = f": {stream:,} bytes of records, memory for {run:,}" if asked.strategy == "memory" else ""
            raise UsageError(f"strategy {asked.strategy} {why}{sizes}")
        return asked.strategy, "as asked"
    if large:
        where = "" if fragments_stay(written, mean, run) else "; what is compressed is kept on disk"
        return "fragments", f"records are large, about {mean:,} bytes{where}"
    if gathers and stream >= SMALL_FILE * len(files):
        if mean >= GATHER_FROM:
            return "gather", f"records are large, about {mean:,} bytes"
        # 4 GB of 1 KB that no cache holds: 14 s by way of spills past the cache, 16 by filling it
        if cache_holds(stream) and not probe.better_past_cache([(one.path, one.size) for one in files]):
            return "gather", "the page cache has room for all files"
    if holds:
        return "memory", "memory has room for all"
    return "spill", "memory has no room for all"


def _check(asked: Request) -> None:
    check_on_corrupt(asked.on_corrupt)
    if asked.strategy not in ("auto", *STRATEGIES):
        raise UsageError(f"strategy must be auto, {', '.join(STRATEGIES)}, not {asked.strategy!r}")
    if asked.max_records is not None and asked.max_records < 1:
        raise UsageError(f"max_records must be at least 1, not {asked.max_records}")
    _check_flags(asked.seed, asked.shards, asked.shard_size, asked.compression)


def _check_flags(seed: int, shards: int | None, shard_size: int | None, compression: str) -> None:
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed must be from 0 to 2^64 - 1, not {seed}")
    if shards is not None and shard_size is not None:
        raise UsageError("give the number of shards or their size, not both")
    if shards is not None and not 1 <= shards <= 99_999:
        raise UsageError(f"shards must be from 1 to 99,999, not {shards}")
    if shard_size is not None and shard_size < 1:
        raise UsageError(f"a shard's size must be at least 1 byte, not {shard_size}")
    if compression not in get_args(Asked):
        raise UsageError(f"compression must be one of {', '.join(get_args(Asked))}, not {compression!r}")


def _output_kind(files: Inputs, asked: Asked) -> Compression:
    """`same` is that of most input bytes."""
    if asked != "same":
        return Compression(asked)
    sizes = {kind: files.bytes_of(kind) for kind in Compression}
    return max(sizes, key=lambda kind: sizes[kind])


def _output_bytes(kind: Compression, files: Inputs, stream: int, ratio: float) -> int:
    """What the output will take, near enough to choose a number of shards by: from the inputs alone."""
    if kind is Compression.NONE:
        return stream
    return int(stream / (ratio if len(files.packed) else compressibility(files)))


def _fixed(runtime: Runtime) -> int:
    return AT_REST + runtime.workers * (PER_WORKER + 4 * BLOCK)


def run_bytes(runtime: Runtime) -> int:
    fixed = _fixed(runtime)
    run = runtime.memory - fixed
    if run < LEAST_RUN:
        least = (fixed + LEAST_RUN) // 1_000_000 + 1
        raise UsageError(
            f"{runtime.memory:,} bytes of memory are too few for {runtime.workers} workers: give {least} MB"
        )
    return run


def _refuse_own_inputs(files: Inputs, paths: Sequence[str]) -> None:
    """By their real paths; only those are asked for them that could be one of the outputs."""
    inodes = np.frombuffer(_kernel.stamps(naming.packed(paths)), np.uint64).reshape(4, -1)[3]
    unknown = ~files.small & (files.inode == 0)
    ours = {os.path.realpath(path) for path in paths}
    for one in files.some(np.flatnonzero(np.isin(files.inode, inodes) | unknown).tolist()):
        if os.path.realpath(one.path) in ours:
            raise UsageError(f"{one.path}: would be read and replaced: choose another prefix")


def _check_space(output: str, written: int, temporary: str, spilled: int) -> None:
    """Both together where they are on one device. Estimates: refused only when clearly too little."""

    def existing(folder: str) -> str:
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return folder

    if not os.path.isdir(temporary) and temporary != output:
        raise UsageError(f"{temporary}: the folder for temporary files is not there")
    needs: dict[int, tuple[str, int]] = {}
    for folder, need in ((existing(output), written), (existing(temporary), spilled)):
        with storage.reporting("read", folder):
            device = os.stat(folder).st_dev
        needs[device] = folder, needs.get(device, ("", 0))[1] + need
    for folder, need in needs.values():
        free = shutil.disk_usage(folder).free
        if need * 9 // 10 > free:
            raise UsageError(f"{folder}: has {free:,} bytes free, and about {need:,} are needed")
