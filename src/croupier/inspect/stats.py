"""Statistics of features: presence, counts, ranges, moments, quantiles, the most frequent values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croupier.dataset.features import stream_columns
from croupier.errors import UsageError
from croupier.example.columns import Column, Columns, Kind
from croupier.example.schema import Schema
from croupier.inspect import sketch
from croupier.inspect.counting import Bytes, Numbers, Octets, Range
from croupier.inspect.schema import NAMES, Source, conflict, kinds_differ, open_source
from croupier.runtime import Progress, Runtime

MOST_FEATURES = 4096
"""That statistics are kept of, at once."""


@dataclass
class FeatureStatistics:
    """What is known of one feature."""

    name: str
    kind: str
    """"string", "float32" or "int64"."""
    present: int
    """Records that have it."""
    missing: int
    """Records that have it not."""
    values: int
    """Of all records."""
    fewest: int
    """Values of a record that has it; `mean` and `most` likewise."""
    mean: float
    most: int
    numbers: Range | None = None
    """Of its values, where these are numbers; of raw tensors' elements, where a schema gives their dtype."""
    bytes: Octets | None = None
    """Of its values, where these are bytes."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        parts = {name: part.as_dict() for name in ("numbers", "bytes") if (part := getattr(self, name))}
        return {name: value for name, value in vars(self).items() if value is not None} | parts


class Statistics(Mapping[str, FeatureStatistics]):
    """Statistics by the feature's name."""

    def __init__(self, features: Mapping[str, FeatureStatistics], records: int) -> None:
        self._features = dict(features)
        self.records = records

    def __getitem__(self, name: str) -> FeatureStatistics:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        features = {name: feature.as_dict() for name, feature in self._features.items()}
        return {"records": self.records, "features": features}

    def __repr__(self) -> str:
        return f"<croupier.Statistics of {len(self):,} features, {self.records:,} records>"


def statistics(
    data: Source,
    columns: Sequence[str] | None = None,
    *,
    schema: Schema | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Statistics:
    """Statistics of each feature of a dataset's Examples, or of some, in one pass and bounded memory::

        found = croupier.statistics("train-*.tfrecord.gz")
        found["age"].numbers.mean, found["age"].numbers.quantiles["0.5"], found["city"].bytes.top

    Counts, ranges and moments are exact. Quantiles and the most frequent values are as well where there are
    not too many different ones; else `quantile_error`, `top_error` and `different_error` say what they may be
    off. With a `schema` that gives them a dtype, raw tensors are numbers too. The result depends on the
    records and their order alone, not on the number of workers.
    """
    data = open_source(data)
    found = _Found(len(columns) if columns is not None else 0)
    with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
        runtime.phase("statistics", len(data), "records")
        parts = stream_columns(data, runtime, schema, columns)
        for part in runtime.map(found.look, parts):
            found.add(part, lambda problem, record: conflict(problem, data, record))
    return found.statistics()


@dataclass
class _Counted:
    """One feature of some records."""

    kind: Kind
    first: int
    """The record that first had it."""
    present: int
    fewest: int
    most: int
    values: int
    numbers: Numbers | None = None
    bytes: Bytes | None = None

    def merge(self, other: _Counted) -> None:
        """Add what later records have."""
        self.present += other.present
        self.values += other.values
        self.fewest, self.most = min(self.fewest, other.fewest), max(self.most, other.most)
        if self.numbers is not None and other.numbers is not None:
            self.numbers.merge(other.numbers)
        if self.bytes is not None and other.bytes is not None:
            self.bytes.merge(other.bytes)

    def result(self, name: str, records: int) -> FeatureStatistics:
        return FeatureStatistics(
            name,
            self.kind.label,
            self.present,
            records - self.present,
            self.values,
            self.fewest,
            self.values / self.present,
            self.most,
            None if self.numbers is None else self.numbers.result(),
            None if self.bytes is None else self.bytes.result(),
        )


@dataclass
class _Found:
    """All features of the records so far."""

    expected: int
    """How many features there will be; 0: that is not known."""
    _records: int = 0
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _most: int = 0

    def look(self, columns: Columns) -> tuple[int, dict[str, _Counted]]:
        """What some records have; on a thread."""
        groups = sketch.groups_for(self.expected or len(columns))
        counted = {}
        for name, column in columns.items():
            where = None if column.present is None else np.flatnonzero(column.present)
            if len(column) and (where is None or len(where)):
                counted[name] = _count(column, where, groups)
        return columns.records, counted

    def add(self, part: tuple[int, dict[str, _Counted]], refuse: Callable[[str, int], Exception]) -> None:
        """Parts come in the order of the records."""
        records, counted = part
        for name, more in counted.items():
            more.first += self._records
            known = self._counted.setdefault(name, more)
            if known.kind is not more.kind:
                raise refuse(kinds_differ(name, more.kind, known.kind), more.first)
            if known is not more:
                known.merge(more)
        if len(self._counted) > MOST_FEATURES or sum(map(len, self._counted)) > NAMES:
            raise UsageError(f"there are more than {MOST_FEATURES:,} features: name the columns you want")
        self._records += records

    def statistics(self) -> Statistics:
        features = {name: self._counted[name].result(name, self._records) for name in sorted(self._counted)}
        return Statistics(features, self._records)


def _count(column: Column, where: np.ndarray[Any, Any] | None, groups: int) -> _Counted:
    counts = column.counts if where is None else column.counts[where]
    first = 0 if where is None else int(where[0])
    values = int(counts.sum())
    counted = _Counted(column.kind, first, len(counts), int(counts.min()), int(counts.max()), values)
    numbers = column.values
    if column.items is not None:
        counted.bytes = Bytes(groups)
        counted.bytes.add(column)
        counted.bytes.settle()
        if column.dtype is None:
            return counted
        numbers = column.values.view(column.dtype)
    counted.numbers = Numbers(numbers.dtype, groups)
    counted.numbers.add(numbers)
    counted.numbers.settle()
    return counted
