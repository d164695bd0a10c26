"""Tables as Examples: read some rows at a time, encoded on all cores, written as shards."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from croupier import naming, storage
from croupier.batch import Batch
from croupier.codec.deflate import SUFFIXES, check_level, zlib_stream
from croupier.codec.detect import Compression
from croupier.errors import RowError, UsageError
from croupier.example import encode_batch
from croupier.example.columns import Kind
from croupier.example.from_arrow import columns_of
from croupier.frames import OVERHEAD
from croupier.runtime import Ordered, Progress, Runtime
from croupier.storage import PathLike
from croupier.tables import sinks
from croupier.tables.sources import (
    FORMATS,
    PART,
    Part,
    Source,
    arrow_file,
    arrow_stream,
    format_of,
    in_memory,
    parquet,
    reading,
)
from croupier.tables.text_csv import CsvTable
from croupier.tables.text_json import JsonTable
from croupier.writing import writer

SHARD = 150_000_000
"""Bytes that a shard aims at."""
SAMPLE = 8
"""Parts of a few megabytes that tell how large the shards will be."""
_KINDS = {
    "int64": Kind.INT64,
    "int": Kind.INT64,
    "float32": Kind.FLOAT,
    "float": Kind.FLOAT,
    "string": Kind.BYTES,
    "bytes": Kind.BYTES,
}


class Converted(NamedTuple):
    """What was written."""

    paths: list[str]
    records: int
    kinds: dict[str, str]
    """string, float32 or int64, of each feature."""
    receipt: dict[str, Any]


def convert_table(
    tables: PathLike | Iterable[PathLike] | Any,
    prefix: PathLike,
    *,
    shards: int | None = None,
    shard_size: int | None = None,
    compression: str | None = None,
    level: int | None = None,
    format: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    types: Mapping[str, str] | None = None,
    strict: bool = False,
    delimiter: str | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Converted:
    """Make an Example of each row of tables, and write them as `croupier.writer` does::

        croupier.convert_table("clicks-*.parquet", "out/clicks", compression="gzip")
        croupier.convert_table(pandas_frame, "out/train.tfrecord")

    `tables` are Parquet, Arrow (file or stream), CSV or JSON lines files, told apart by content and name (or
    by `format`), or one object that speaks Arrow: a frame of pandas or polars, a pyarrow table. Integers and
    booleans become int64, floating point float32, text and binary bytes; lists of these several values; null
    is missing. `types` asks for others: {"zip": "string", "score": "float32"}.
    Whole numbers never change: where float32 would change one, RowError says so, unless `types` asks for
    float32. Fractions are rounded, unless it is `strict`.
    By default a file's name gets one shard, and a prefix as many as make about 150 MB each, or `shard_size`.
    """
    if os.path.splitext(os.fspath(prefix))[1].lower() in sinks.SUFFIXES:
        raise UsageError(f"{os.fspath(prefix)}: is a table's name; what comes last is what shall be written")
    if shard_size is not None and shard_size < 1:
        raise UsageError(f"shard_size must be at least 1 byte, not {shard_size}")
    asked = _asked(types or {})
    alone = writer(prefix, 1, compression, level).paths  # which refuses what cannot be
    if shards is None and shard_size is None and alone == [os.fspath(prefix)]:
        shards = 1
    with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
        sources = _sources(tables, format, delimiter)
        runtime.phase("survey", sum(source.bytes for source in sources))
        for source in sources:
            source.survey(columns, asked, runtime)
        job = _Job(sources, asked, strict)
        if shards is None:
            shards = job.shards(alone[0], shard_size or SHARD, compression, level, runtime)
        runtime.phase("convert", job.rows, "records")
        with writer(prefix, shards, compression, level, overwrite=overwrite, workers=workers) as out:
            for batch in job.batches(job.parts(), runtime):
                out.write_many(batch)
                runtime.advance(len(batch), len(batch))
        kinds = {name: kind.label for name, kind in job.kinds.items() if kind is not None}
        return Converted(out.paths, out.records, kinds, out.receipt)


def _asked(types: Mapping[str, str]) -> dict[str, Kind]:
    for name, kind in types.items():
        if kind not in _KINDS:
            raise UsageError(f"column {name!r} can be int64, float32 or string, not {kind!r}")
    return {name: _KINDS[kind] for name, kind in types.items()}


def _sources(tables: Any, kind: str | None, delimiter: str | None) -> list[Source]:
    if kind is not None and kind not in FORMATS:
        raise UsageError(f"a table is {', '.join(FORMATS)}, not {kind!r}")
    if hasattr(tables, "__arrow_c_stream__"):
        return [in_memory(tables)]
    given = [tables] if isinstance(tables, str | os.PathLike) else list(tables)
    for path in given:
        if os.fspath(path) == storage.STDIN:
            raise UsageError("standard input cannot be read twice: name a file")
        if os.path.isdir(path):
            raise UsageError(f"{path}: is a folder: name the tables in it, as in '{path}/*.parquet'")
    return [_open(path, kind, delimiter) for path in naming.expand(given)]


def _open(path: str, kind: str | None, delimiter: str | None) -> Source:
    found = kind if kind in ("parquet", "csv", "jsonl") else format_of(path)
    if found == "csv":
        return CsvTable(path, delimiter)
    if found == "jsonl":
        return JsonTable(path)
    return {"parquet": parquet, "arrow": arrow_file, "stream": arrow_stream}[found](path)


class _Job:
    """Tables that become records."""

    def __init__(self, sources: list[Source], asked: Mapping[str, Kind], strict: bool) -> None:
        self._sources, self._strict = sources, strict
        self._rounded = [name for name, kind in asked.items() if kind is Kind.FLOAT]
        self.kinds: dict[str, Kind | None] = {}
        first: dict[str, Source] = {}
        for source in sources:
            for name, kind in source.kinds.items():
                known = self.kinds.get(name)
                self.kinds[name] = _both(name, first.get(name, source), known, source, kind)
                if kind is not None:
                    first.setdefault(name, source)
        if unknown := asked.keys() - self.kinds.keys():
            raise UsageError(
                f"there is no column {min(unknown)!r}: there are {', '.join(map(repr, self.kinds))}"
            )

    @property
    def rows(self) -> int | None:
        """Of all tables, if that is known."""
        rows = [source.rows for source in self._sources if source.rows is not None]
        return sum(rows) if len(rows) == len(self._sources) else None

    def parts(self) -> Iterator[tuple[Source, Part]]:
        """Of all tables, one after the other."""
        for source in self._sources:
            for part in source.parts():
                yield source, part

    def batches(self, parts: Iterable[tuple[Source, Part]], runtime: Runtime) -> Iterator[Batch]:
        """Their rows as records, in order."""
        done = dict.fromkeys((source.path for source in self._sources), 0)
        budget = min(2 * runtime.workers * PART, runtime.memory // 8)
        ordered: Ordered[tuple[Source, Batch | RowError]] = Ordered(runtime, budget)

        def results() -> Iterator[tuple[Source, Batch | RowError]]:
            for source, part in parts:
                yield from ordered.put(part.weight, self._encode, source, part)
            yield from ordered.drain()

        for source, made in results():
            if isinstance(made, RowError):
                row = None if made.record is None else made.record + done[source.path]
                raise RowError(made.problem, source.path, row=row) from made
            done[source.path] += len(made)
            yield made

    def _encode(self, source: Source, part: Part) -> tuple[Source, Batch | RowError]:
        """On a thread."""
        kinds = {name: kind for name, kind in self.kinds.items() if kind is not None}
        try:
            with reading(""):
                columns = columns_of(part.read(), kinds, rounded=self._rounded, strict=self._strict)
        except (
            RowError
        ) as error:  # only when those before it are through is known which row of the table it is
            return source, error
        return source, encode_batch(columns, threads=1)

    def shards(
        self, path: str, size: int, compression: str | None, level: int | None, runtime: Runtime
    ) -> int:
        """How many shards of this size there will be, as far as the first rows of some tables tell."""
        if not self.rows:
            return 1
        sources = self._sources[:: -(-len(self._sources) // SAMPLE)]
        each = -(-SAMPLE // len(sources))
        sample = [(source, part) for source in sources for part in islice(source.parts(), each)]
        records = raw = packed = 0
        named = SUFFIXES.get(os.path.splitext(path)[1].lower(), Compression.NONE).value
        codec = None if (compression or named) == "none" else zlib_stream(check_level(level))
        for batch in self.batches(sample, runtime):
            records += len(batch)
            raw += len(batch.buffer) + len(batch) * OVERHEAD
            packed += len(codec.compress(batch.buffer)) if codec else 0
        if codec:
            raw = packed + len(codec.flush())
        return -(-raw * self.rows // max(records, 1) // size) or 1


def _both(name: str, first: Source, one: Kind | None, source: Source, other: Kind | None) -> Kind | None:
    """What a column of two tables becomes."""
    if one is other or other is None or one is None:
        return one if other is None else other
    if first.inferred and source.inferred:
        if {one, other} == {Kind.INT64, Kind.FLOAT}:
            return Kind.FLOAT
        if isinstance(first, CsvTable) and isinstance(source, CsvTable):
            return Kind.BYTES
    raise UsageError(
        f"column {name!r} is {one.label} in {first.path} and {other.label} in {source.path}: "
        f"say which it shall be, as in {name}={Kind.BYTES.label if Kind.BYTES in (one, other) else 'float32'}"
    )
