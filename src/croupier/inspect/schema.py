"""The schema of a dataset: inferred from its records, in one pass, and kept beside them."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croupier import dataset, storage
from croupier.dataset import Dataset
from croupier.dataset.features import stream_columns
from croupier.errors import ExampleError
from croupier.example import content
from croupier.example.columns import Column, Columns, Kind
from croupier.example.schema import Feature, Schema
from croupier.inspect import kept
from croupier.runtime import Progress, Runtime

MOST_FEATURES = 20_000
"""That a dataset may have: beyond it, the names are data, and a schema of them would not end."""
NAMES = 4 << 20
"""Characters that all names together may have."""
ROW = 16
"""Integers that a record may have of a feature that is a shape."""
Source = Dataset | storage.PathLike | Iterable[storage.PathLike]


def infer_schema(
    data: Source,
    sample: int | None = None,
    *,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Schema:
    """The features that a dataset's Examples have, from all records, or from `sample` of them at random.

    What all records say is kept in `.croupier/`, and is taken from there while the files are the same::

        schema = croupier.infer_schema("train-*.tfrecord.gz")
        schema["label"].kind, schema["label"].required, schema["tokens"].longest
    """
    data = open_source(data)
    if sample is None and (known := kept.load(data)) is not None:
        return known
    found = _Found()
    with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
        if sample is not None:
            numbers = random.Random(seed).sample(range(len(data)), min(sample, len(data)))  # noqa: S311
            data = data.subset(sorted(numbers))
        runtime.phase("schema", len(data), "records")
        for part in runtime.map(_look, stream_columns(data, runtime)):
            found.add(part, data)
    schema = found.schema()
    if sample is None:
        kept.save(data, schema)
    return schema


def open_source(data: Source) -> Dataset:
    """A dataset as it is, or what paths name."""
    return data if isinstance(data, Dataset) else dataset.open(data)


def schema_of(parts: Iterable[Columns]) -> Schema:
    """The schema of columns that are at hand."""
    found = _Found()
    for part in parts:
        found.add(_look(part), None)
    return found.schema()


@dataclass
class _Seen:
    """What is known of a feature from some records."""

    kind: Kind
    first: int
    """The record that first had it."""
    present: int
    shortest: int
    longest: int
    row: list[int] | None = None
    """Integers that are the same in every record; None: they are not, or are too many."""
    looks: content.Looks = field(default_factory=content.Looks)
    sizes: tuple[int, int] | None = None
    """Of the shortest and the longest value."""

    def merge(self, other: _Seen) -> None:
        """Add what later records say."""
        self.present += other.present
        self.shortest, self.longest = min(self.shortest, other.shortest), max(self.longest, other.longest)
        self.row = self.row if self.row == other.row else None
        self.looks.merge(other.looks)
        if self.sizes is None or other.sizes is None:
            self.sizes = self.sizes or other.sizes
        else:
            self.sizes = min(self.sizes[0], other.sizes[0]), max(self.sizes[1], other.sizes[1])


def _look(columns: Columns) -> tuple[int, dict[str, _Seen]]:
    """What some records say; on a thread."""
    seen = {}
    for name, column in columns.items():
        where = None if column.present is None else np.flatnonzero(column.present)
        if len(column) and (where is None or len(where)):
            seen[name] = _look_at(column, where)
    return columns.records, seen


def _look_at(column: Column, where: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> _Seen:
    counts = column.counts if where is None else column.counts[where]
    first = 0 if where is None else int(where[0])
    seen = _Seen(column.kind, first, len(counts), int(counts.min()), int(counts.max()))
    if column.items is not None:
        sizes = np.diff(column.items)
        if len(sizes):
            seen.sizes = int(sizes.min()), int(sizes.max())
            seen.looks.add(content.inspect(column)[1], sizes)
    elif column.kind is Kind.INT64 and 0 < seen.shortest == seen.longest <= ROW:
        rows = column.values.reshape(len(counts), seen.longest)
        seen.row = rows[0].tolist() if (rows == rows[0]).all() else None
    return seen


class _Found:
    """What is known from the records so far; parts come in their order."""

    def __init__(self) -> None:
        self._records = self._named = 0
        self._seen: dict[str, _Seen] = {}

    def add(self, part: tuple[int, dict[str, _Seen]], data: Dataset | None) -> None:
        """`data` is what errors are located in."""
        records, seen = part
        for name, more in seen.items():
            more.first += self._records
            known = self._seen.setdefault(name, more)
            if known.kind is not more.kind:
                problem = (
                    f"feature {name!r} is {more.kind.label} here, and {known.kind.label} in records before"
                )
                raise conflict(problem, data, more.first)
            self._named += len(name) if known is more else 0
            if len(self._seen) > MOST_FEATURES or self._named > NAMES:
                problem = f"there are more than {MOST_FEATURES:,} different features, or very long names"
                raise conflict(problem, data, more.first)
            if known is not more:
                known.merge(more)
        self._records += records

    def schema(self) -> Schema:
        """What all records have in common."""
        features = {name: self._feature(name, self._seen[name]) for name in sorted(self._seen)}
        return Schema(features, self._records)

    def _feature(self, name: str, seen: _Seen) -> Feature:
        is_bytes = seen.kind is Kind.BYTES
        shape = self._tensor_shape(name, seen) if is_bytes else None
        return Feature(
            name,
            seen.kind,
            required=seen.present == self._records,
            shortest=seen.shortest,
            longest=seen.longest,
            dtype=None if shape is None else "uint8",
            shape=shape,
            content=seen.looks.content if is_bytes else None,
            sizes=seen.sizes,
            present=seen.present,
        )

    def _tensor_shape(self, name: str, seen: _Seen) -> tuple[int, ...] | None:
        """That of raw bytes whose shape stands in a feature beside them, the same in all records.

        Only where it is one byte for each element: of four, nothing tells whether they are floats.
        """
        if seen.shortest != 1 or seen.longest != 1 or seen.sizes is None or seen.looks.content != "raw":
            return None
        stem = name.removesuffix("/encoded").removesuffix("/raw").removesuffix("/data").removesuffix("_raw")
        for companion in (f"{stem}/shape", f"{stem}_shape", f"{name}/shape", f"{name}_shape"):
            other = self._seen.get(companion)
            row = other.row if other is not None else None
            if row and min(row) > 0 and seen.sizes == (math.prod(row),) * 2:
                return tuple(row)
        return None


def kinds_differ(name: str, here: Kind, before: Kind) -> str:
    return f"feature {name!r} holds {here.label}, and {before.label} in the records before"


def conflict(problem: str, data: Dataset | None, number: int) -> ExampleError:
    """An error that says which file's record it is, where that is known."""
    error = ExampleError(problem, record=number)
    if data is not None:
        place = data.where(number)
        error.path, error.record = place.path, place.record
    return error


def as_dict(schema: Schema) -> dict[str, Any]:
    """For JSON."""
    from croupier.example.schema_json import dump

    return dump(schema.records, schema.values())
