"""What a forecast is made from: samples of the inputs, codecs tried on them, devices, tables."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from croupier import _kernel, storage
from croupier.codec import deflate
from croupier.codec.deflate import SeekableGzip
from croupier.codec.detect import Compression
from croupier.codec.inflate import Inflater
from croupier.errors import DataError
from croupier.frames import OVERHEAD
from croupier.runtime import Expected, Runtime
from croupier.shuffling import probe
from croupier.shuffling.forecast import Facts, Forecast, Level, Place, predict
from croupier.shuffling.inputs import Input, Inputs
from croupier.shuffling.planning import Plan, cache_holds, fragments_stay
from croupier.table.keep import look_up
from croupier.table.packed import Integers

LEVELS = 1, 3, 5, 6, 9
"""What a table of levels shows, beside the one that was asked for."""
_FILES = 8
_PIECE = 1 << 20
"""Decompressed bytes from the beginning of each of so many files."""
_SECONDS = 0.15
"""For the highest level; the others compress what it managed by then."""
_INFLATE = 1.2e9
"""Where nothing compressed is read: decompressed bytes a second and core, of what was spilled."""


class Sample:
    """Beginnings of some of the inputs, decompressed."""

    def __init__(self, inputs: Sequence[Input], runtime: Runtime) -> None:
        spent: list[tuple[int, float]] = []
        self.pieces: list[memoryview] = []
        self._bytes = self._records = 0
        for piece, seconds in runtime.map(_beginning, inputs[:: -(-len(inputs) // _FILES)]):
            bounds = _frames(piece)
            if len(bounds) > 1:  # else one record is longer
                piece = piece[: int(bounds[-1])]
            self.pieces.append(piece)
            self._bytes += len(piece)
            self._records += max(len(bounds) - 1, int(len(piece) > 0))
            if seconds:
                spent.append((len(piece), seconds))
        self.inflate = (
            sum(size for size, _ in spent) / sum(taken for _, taken in spent) if spent else _INFLATE
        )
        """Bytes a second and core."""

    def records(self, stream: int) -> int:
        """How many so many bytes are, if they are like these."""
        return round(stream * self._records / self._bytes) if self._bytes else 0


def _beginning(one: Input) -> tuple[memoryview, float]:
    """Of a file, and the processor time that inflating it took."""
    with storage.FileSource(one.path) as file:
        if one.compression is Compression.NONE:
            return memoryview(file.peek(_PIECE)), 0.0
        inflater = Inflater(file, one.path, one.compression)
        room, have = memoryview(bytearray(_PIECE)), 0
        began = time.thread_time()
        with contextlib.suppress(DataError):  # what stands before the damage will do
            while have < _PIECE and (more := inflater.readinto(room[have:])):
                have += more
        return room[:have], time.thread_time() - began


def _frames(piece: memoryview) -> Integers:
    """The edges of the whole frames that it begins with."""
    bounds = np.zeros(len(piece) // OVERHEAD + 1, np.uint64)
    count, _ = _kernel.scan(piece, 0, bounds, False, 1 << 63)
    return bounds[: count + 1]


def codec_costs(
    pieces: Sequence[memoryview], compression: Compression, levels: Sequence[int], runtime: Runtime
) -> list[Level]:
    """How small and how fast each level makes these, as the writer would, while all cores do the same.

    All levels compress the same bytes: as many as the highest manages in its time.
    """
    fragments = [fragment for piece in pieces for fragment in _fragments(piece, compression)]
    order = np.random.default_rng(0).permutation(len(fragments)).tolist()  # not the first file alone
    costs: list[Level] = []
    for level in sorted(set(levels), reverse=True):
        limit = float("inf") if costs else _SECONDS
        job = [fragments[number] for number in order], compression, level, limit
        tried = list(runtime.map(_try, [job] * runtime.workers))
        order = order[: min(count for count, *_ in tried)]
        _, raw, packed, seconds = map(sum, zip(*tried, strict=True))
        if raw:
            costs.append(Level(level, raw / packed, raw / max(seconds, 1e-6)))
    return costs[::-1]


def _try(job: tuple[list[memoryview], Compression, int, float]) -> tuple[int, int, int, float]:
    """Fragments that were compressed within the limit, their bytes, compressed bytes, processor time."""
    fragments, compression, level, limit = job
    count = raw = packed = 0
    began = time.thread_time()
    for fragment in fragments:
        count, raw = count + 1, raw + len(fragment)
        packed += len(_compress(fragment, compression, level))
        if time.thread_time() - began > limit:
            break
    return count, raw, packed, time.thread_time() - began


def _fragments(piece: memoryview, compression: Compression) -> Iterator[memoryview]:
    bounds = _frames(piece)
    edges = [0, len(piece)] if piece else []
    if len(bounds) > 1 and compression is Compression.GZIP:
        _, edges = deflate.cut(bounds, last=True)
    yield from (piece[begin:end] for begin, end in pairwise(edges))


def _compress(fragment: memoryview, compression: Compression, level: int) -> bytes | memoryview:
    if compression is Compression.GZIP:
        return SeekableGzip(level).encode(fragment, [0, len(fragment)]).data
    stream = deflate.zlib_stream(level)
    return b"".join([stream.compress(fragment), stream.flush()])


def forecast(plan: Plan, runtime: Runtime, *, others: Sequence[str] = ()) -> Forecast:
    """Of a plan, at all levels, and of `others`, strategies that it could have had.

    Takes about a second where devices are measured for the first time, else a part of one.
    """
    facts = gather(plan, runtime, measure=True)
    packs = plan.compression is not Compression.NONE
    return predict(facts, levels=[one.level for one in facts.levels] if packs else (), others=others)


def expect(plan: Plan, runtime: Runtime) -> None:
    """Let the runtime's progress know what is to come.

    In a part of a second: devices are what is remembered of them, and one level is tried.
    """
    found = predict(gather(plan, runtime, measure=False))
    runtime.expect(
        [
            Expected(one.name, one.seconds, one.bytes / one.limit_seconds if one.limit_seconds else None)
            for one in found.phases
        ]
    )


def gather(plan: Plan, runtime: Runtime, *, measure: bool) -> Facts:
    """Look at what a plan is about."""
    sample = Sample(plan.inputs, runtime)
    packs = plan.compression is not Compression.NONE
    kind = plan.compression if packs else Compression.GZIP  # of what is spilled
    levels = {1, *((plan.level,) if packs else ()), *(LEVELS if packs and measure else ())}
    plain = plan.inputs.bytes_of(Compression.NONE)
    records = plan.inputs.counted
    if records is None:
        known = look_up(plan.inputs.paths, runtime)
        records = None if len(known.unknown) else int(known.table.records.sum())
    target, temporary, source = (
        _place(folder, measure)
        for folder in (plan.folder, plan.tmp_dir or plan.folder, _main_folder(plan.inputs))
    )
    return Facts(
        strategy=plan.strategy,
        stays=fragments_stay(plan.output_bytes, plan.mean_bytes, plan.run_bytes),
        memory=plan.memory,
        fixed=plan.memory - plan.run_bytes,
        workers=plan.workers,
        compression=plan.compression,
        level=plan.level,
        input_bytes=plan.input_bytes,
        inflated_bytes=max(plan.stream_bytes - plain, 0),
        stream_bytes=plan.stream_bytes,
        records=sample.records(plan.stream_bytes) if records is None else records,
        counted=records is not None,
        cached=_cached(plan.inputs),
        roomy=cache_holds(plan.input_bytes),
        inflate=sample.inflate,
        levels=codec_costs(sample.pieces, kind, sorted(levels), runtime)
        or [Level(n, 1.0, 1e9) for n in levels],
        source=source,
        target=target,
        temporary=temporary,
    )


_ASKED = 4096  # files, of more, that stand for all


def _cached(inputs: Inputs) -> float:
    return probe.cached((one.path, one.size) for one in inputs[:: len(inputs) // _ASKED + 1])


def _main_folder(inputs: Inputs) -> str:
    """Where most bytes are."""
    sizes: dict[str, int] = {}
    for one in inputs[:: len(inputs) // _ASKED + 1]:
        folder = os.path.dirname(one.path)
        sizes[folder] = sizes.get(folder, 0) + one.size
    return max(sizes, key=lambda folder: sizes[folder])


def _place(folder: str, measure: bool) -> Place:
    """Of a folder that may not be there yet."""
    folder = os.path.abspath(folder)
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    with storage.reporting("read", folder):
        number = os.stat(folder).st_dev
    return Place(folder, number, probe.device(folder, measure=measure))
