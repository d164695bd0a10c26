"""What a forecast is made from: samples of the inputs, codecs tried on them, devices, tables."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from croupier import _kernel, storage
from croupier.codec import deflate, transcode
from croupier.codec.deflate import SeekableGzip
from croupier.codec.detect import Compression
from croupier.codec.inflate import Inflater
from croupier.codec.transcode import NotingInflater
from croupier.errors import DataError
from croupier.frames import OVERHEAD, Block
from croupier.runtime import Expected, Runtime
from croupier.shuffling import probe
from croupier.shuffling.forecast import Facts, Forecast, Level, Place, predict
from croupier.shuffling.inputs import Input, Inputs
from croupier.shuffling.planning import Plan, cache_holds, fragments_stay
from croupier.table.keep import look_up

LEVELS = 1, 3, 5, 6, 9
"""What a table of levels shows, beside the one that was asked for, and "same" where records are large."""
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
        self.pieces: list[Block] = []
        self._bytes = self._records = 0
        for piece, seconds in runtime.map(_beginning, inputs[:: -(-len(inputs) // _FILES)]):
            self.pieces.append(piece)
            size = int(piece.bounds[-1])
            self._bytes += size
            self._records += max(len(piece), int(size > 0))
            if seconds:
                spent.append((size, seconds))
        self.inflate = (
            sum(size for size, _ in spent) / sum(taken for _, taken in spent) if spent else _INFLATE
        )
        """Bytes a second and core."""

    def records(self, stream: int) -> int:
        """How many so many bytes are, if they are like these."""
        return round(stream * self._records / self._bytes) if self._bytes else 0


def _beginning(one: Input) -> tuple[Block, float]:
    """Whole frames of a file, and the processor time that inflating them took."""
    if one.compression is Compression.NONE:
        with storage.FileSource(one.path) as file:
            return _frames(memoryview(file.peek(_PIECE))), 0.0
    began = time.thread_time()
    _inflate(one, Inflater)
    seconds = time.thread_time() - began
    piece, inflater = _inflate(one, NotingInflater)
    block = _frames(piece)
    return block.with_tokens(inflater.tokens(0, len(piece))), seconds


_AnyInflater = TypeVar("_AnyInflater", bound=Inflater)


def _inflate(one: Input, kind: type[_AnyInflater]) -> tuple[memoryview, _AnyInflater]:
    with storage.FileSource(one.path) as file:
        inflater = kind(file, one.path, one.compression)
        room, have = memoryview(bytearray(_PIECE)), 0
        with contextlib.suppress(DataError):  # what stands before the damage will do
            while have < _PIECE and (more := inflater.readinto(room[have:])):
                have += more
    return room[:have], inflater


def _frames(piece: memoryview) -> Block:
    """The whole frames that it begins with; all of it where the first one is longer."""
    bounds = np.zeros(len(piece) // OVERHEAD + 2, np.uint64)
    count, _ = _kernel.scan(piece, 0, bounds, False, 1 << 63)
    if count == 0:
        bounds[1] = len(piece)
    return Block(piece, bounds[: max(count, 1) + 1], 0, 0)


class _Fragment(NamedTuple):
    """What is compressed at once: frame `number` of a piece alone, or (-1) several small ones."""

    frames: memoryview
    number: int
    pack: Callable[[int, memoryview], tuple[bytes, int]]
    """By the tokens of the piece."""

    def compress(self, compression: Compression, level: transcode.Level) -> bytes | memoryview:
        if level == transcode.SAME and self.number >= 0:
            return self.pack(self.number, self.frames)[0]
        number = transcode.base_level(level)
        if compression is Compression.GZIP:
            return SeekableGzip(number).encode(self.frames, [0, len(self.frames)]).data
        stream = deflate.zlib_stream(number)
        return b"".join([stream.compress(self.frames), stream.flush()])


def codec_costs(
    pieces: Sequence[Block], compression: Compression, levels: Iterable[transcode.Level], runtime: Runtime
) -> list[Level]:
    """How small and how fast each level makes these, as the writer would, while all cores do the same.

    All levels compress the same bytes: as many as the highest manages in its time.
    """
    fragments = [fragment for piece in pieces for fragment in _fragments(piece, compression)]
    order = np.random.default_rng(0).permutation(len(fragments)).tolist()  # not the first file alone
    costs: list[Level] = []
    for level in sorted(set(levels), key=_height, reverse=True):
        limit = float("inf") if costs else _SECONDS
        job = [fragments[number] for number in order], compression, level, limit
        tried = list(runtime.map(_try, [job] * runtime.workers))
        order = order[: min(count for count, *_ in tried)]
        _, raw, packed, seconds = map(sum, zip(*tried, strict=True))
        if raw:
            costs.append(Level(level, raw / packed, raw / max(seconds, 1e-6)))
    return costs[::-1]


def _height(level: transcode.Level) -> int:
    """The table's order; "same" is fast, and would say of too much how long it takes."""
    return 0 if level == transcode.SAME else level


def _try(
    job: tuple[list[_Fragment], Compression, transcode.Level, float],
) -> tuple[int, int, int, float]:
    """Fragments that were compressed within the limit, their bytes, compressed bytes, processor time."""
    fragments, compression, level, limit = job
    count = raw = packed = 0
    began = time.thread_time()
    for fragment in fragments:
        count, raw = count + 1, raw + len(fragment.frames)
        packed += len(fragment.compress(compression, level))
        if time.thread_time() - began > limit:
            break
    return count, raw, packed, time.thread_time() - began


def _fragments(piece: Block, compression: Compression) -> Iterator[_Fragment]:
    edges = [0, int(piece.bounds[-1])]
    if compression is Compression.GZIP:
        _, edges = deflate.cut(piece.bounds, last=True)
    pack = transcode.packer(piece, transcode.SAME)
    numbers = {begin: number for number, begin in enumerate(piece.bounds.tolist())}
    for begin, end in pairwise(edges):
        number = numbers.get(begin, -1)
        alone = number >= 0 and end - begin >= deflate.LARGE_FRAME and end == int(piece.bounds[number + 1])
        if end > begin:
            yield _Fragment(piece.buffer[begin:end], number if alone else -1, pack)


def forecast(plan: Plan, runtime: Runtime, *, others: Sequence[str] = ()) -> Forecast:
    """Of a plan, at all levels, and of `others`, strategies that it could have had.

    Takes about a second where devices are measured for the first time, else a part of one.
    """
    facts = gather(plan, runtime, measure=True)
    packs = plan.compression is not Compression.NONE
    return predict(facts, levels=[one.level for one in facts.levels] if packs else (), others=others)


def expect(plan: Plan, runtime: Runtime) -> Forecast:
    """Let the runtime's progress know what is to come; gives that.

    In a part of a second: devices are what is remembered of them, and one level is tried.
    """
    found = predict(gather(plan, runtime, measure=False))
    runtime.expect(
        [
            Expected(one.name, one.seconds, one.bytes / one.limit_seconds if one.limit_seconds else None)
            for one in found.phases
        ]
    )
    return found


def gather(plan: Plan, runtime: Runtime, *, measure: bool) -> Facts:
    """Look at what a plan is about."""
    sample = Sample(plan.inputs, runtime)
    packs = plan.compression is not Compression.NONE
    kind = plan.compression if packs else Compression.GZIP  # of what is spilled
    levels: set[transcode.Level] = {
        1, *((plan.level,) if packs else ()), *(LEVELS if packs and measure else ()),
    }  # fmt: skip
    plain = plan.inputs.bytes_of(Compression.NONE)
    if measure and plan.strategy == "fragments" and plain < plan.input_bytes:
        levels.add(transcode.SAME)
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
        levels=codec_costs(sample.pieces, kind, levels, runtime) or [Level(one, 1.0, 1e9) for one in levels],
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
