"""How well records are mixed: neighbours of the source, distances from it, runs of labels, duplicates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from croupier.batch import Batch
from croupier.dataset import Dataset
from croupier.dataset.features import stream_looks
from croupier.errors import UsageError
from croupier.example.columns import Column, Columns, Kind
from croupier.inspect.glance import glance
from croupier.inspect.labels import Looked, Runs, TooMany, look_at
from croupier.inspect.origin import (
    MOST,
    ByFeature,
    ByReceipt,
    Keys,
    Ordinals,
    by_receipt,
    chosen,
    hashes_of,
    ordinals,
)
from croupier.inspect.schema import Source, conflict, kinds_differ, open_source
from croupier.inspect.verdict import Mixing, Order, against, judge
from croupier.runtime import Progress, Runtime

LABEL, ORDER = "label", "locus"
"""Features that are looked at when none is named."""
UNKNOWN = "the order of the source is not known"


def mixing(
    data: Source,
    feature: str | None = None,
    *,
    order: str | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Mixing:
    """How far the order of records is from a random one, in one pass::

        found = croupier.mixing("shuffled/train-*")
        found.verdict, found.reason, found.order.adjacent, found.labels.runs

    `feature` is a label (by default "label"), of which runs are counted. `order` is a feature that says where
    records stood in the source: a number, or a text with one in it (by default "locus"). Without it, the
    receipt of the shuffle says so, and is compared with what is left of its inputs. All numbers are exact up
    to 4 million records; of more, those that are about the source are of a sample.
    """
    data = open_source(data)
    found = Mixing(len(data), len(data.paths))
    with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
        schema = glance(data).schema or ()
        label = feature or (LABEL if LABEL in schema else None)
        key = order or (ORDER if ORDER in schema and feature != ORDER else None)
        if label is None:
            found.notes.append(f"no label: the records have no feature {LABEL!r} (--feature names another)")
        seen = _Seen(data, None if label is None else Runs(label), _by(key, data), feature, order)
        runtime.phase("mixing", len(data), "records")
        for part in _parts(data, runtime, label, key):
            seen.add(part)
    seen.conclude(found)
    judge(found)
    return found


def _by(key: str | None, data: Dataset) -> ByFeature | ByReceipt | str:
    return by_receipt(data) if key is None else ByFeature(key, len(data))


class _Part(NamedTuple):
    """What some records say."""

    payloads: Keys
    """Hashes."""
    labels: Looked | None
    ordinals: Ordinals | None
    kinds: dict[str, tuple[Kind, int]]
    """Of each feature, and a record that has it."""


def _parts(data: Dataset, runtime: Runtime, label: str | None, key: str | None) -> Iterator[_Part]:
    def look(batch: Batch, columns: Columns) -> _Part:
        kinds = {name: (column.kind, _first(column)) for name, column in columns.items()}
        return _Part(
            hashes_of(batch.buffer, batch.offsets.view(np.uint64)),
            None if label is None else look_at(columns.get(label), len(batch)),
            ordinals(columns[key]) if key is not None and key in columns else None,
            kinds,
        )

    def plain(batch: Batch) -> _Part:
        runtime.check()
        part = look(batch, Columns({}, len(batch)))
        runtime.advance(len(batch), len(batch))
        return part

    names = [name for name in (label, key) if name is not None]
    if names:
        yield from stream_looks(data, runtime, look, columns=names)
    else:
        yield from runtime.map(plain, data.batches_in_order())


def _first(column: Column) -> int:
    return 0 if column.present is None else int(np.argmax(column.present))


class _Seen:
    """All records so far; parts come in their order."""

    def __init__(
        self,
        data: Dataset,
        runs: Runs | None,
        by: ByFeature | ByReceipt | str,
        feature: str | None,
        order: str | None,
    ) -> None:
        self._data, self._runs, self._by = data, runs, by
        self._feature_named, self._order_named = feature is not None, order is not None
        self._records = 0
        self._kinds: dict[str, Kind] = {}
        self._notes: list[str] = []
        self._last: int | None = None  # the hash of the last record
        self._identical = 0
        self._sample: list[Keys] = []
        self._wanted = by.checks if isinstance(by, ByReceipt) else {}
        self._places = np.array(sorted(self._wanted), np.int64)
        self._different = 0  # records that are not what the receipt says
        whole = data.identity() is not None
        self._edges = np.cumsum([shard.records for shard in data.shards]).tolist() if whole else [len(data)]

    def add(self, part: _Part) -> None:
        """More records."""
        first, count = self._records, len(part.payloads)
        for name, (kind, record) in part.kinds.items():
            if self._kinds.setdefault(name, kind) is not kind:
                problem = kinds_differ(name, kind, self._kinds[name])
                raise conflict(problem, self._data, first + record)
        self._add_payloads(first, part.payloads)
        try:
            if part.labels is not None and self._runs is not None:
                self._runs.add(first, part.labels, self._edges)
        except TooMany as problem:
            if self._feature_named:
                raise UsageError(str(problem)) from None
            self._runs = None
            self._notes.append(str(problem))
        try:
            if part.ordinals is not None and isinstance(self._by, ByFeature):
                self._by.add(first, part.ordinals)
        except UsageError as problem:
            if self._order_named:
                raise
            self._by = str(problem)
        self._records += count

    def _add_payloads(self, first: int, hashes: Keys) -> None:
        if not len(hashes):
            return
        self._identical += int((hashes[1:] == hashes[:-1]).sum()) + (int(hashes[0]) == self._last)
        self._last = int(hashes[-1])
        here = self._places[(self._places >= first) & (self._places < first + len(hashes))].tolist()
        self._different += sum(int(hashes[place - first]) != self._wanted[place] for place in here)
        if len(self._data) > MOST:
            places = np.arange(first, first + len(hashes), dtype=np.uint64)
            hashes = hashes[chosen(places, len(self._data))]
        self._sample.append(hashes)

    def conclude(self, found: Mixing) -> None:
        """All that is known."""
        found.identical, found.identical_expected = self._identical, self._expected_identical()
        found.labels = None if self._runs is None else self._runs.result()
        found.order = self._order()
        found.notes += self._notes

    def _expected_identical(self) -> float:
        """As many of the pairs of neighbours as of all pairs of records: these are told by a sample."""
        if not self._sample or self._records < 2:
            return 0.0
        hashes = np.concatenate(self._sample)
        self._sample.clear()
        hashes.sort()
        edges = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1], [True]]))
        counts = np.diff(edges).astype(np.float64)
        pairs = max(len(hashes) * (len(hashes) - 1.0), 1.0)
        return float((counts * (counts - 1)).sum()) / pairs * (self._records - 1)

    def _order(self) -> Order | None:
        by = self._by
        if isinstance(by, str):
            self._notes.append(f"{UNKNOWN}: {by} (--order names a feature that tells it)")
            return None
        if isinstance(by, ByReceipt):
            if self._different:
                self._notes.append(
                    f"{UNKNOWN}: {self._different:,} of {len(self._wanted):,} records that were compared are "
                    f"not where {by.path} says"
                )
                return None
            if not self._wanted:
                self._notes.append(f"{by.path} is believed: its inputs are gone or were changed")
            return against(f"receipt {by.path}", self._records, by.placed, checked=len(self._wanted))
        placed = by.placed()
        if by.records < self._records:
            missing = self._records - by.records
            self._notes.append(
                f"{missing:,} records without one value of {by.name!r} are left out of the order"
            )
        if by.different * 2 < len(placed.even):
            self._notes.append(
                f"{by.name!r} has few different values: which of equal ones were neighbours is not known"
            )
        return against(f"feature {by.name!r}", self._records, placed) if len(placed.even) > 1 else None
