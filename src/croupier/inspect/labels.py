"""Runs of equal labels, and each file's share of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from croupier.example.columns import Column, Int64s, Kind
from croupier.inspect import chance
from croupier.inspect.origin import hashes_of
from croupier.inspect.verdict import Labels

CLASSES, SHOWN, TOP = 1 << 16, 32, 10
"""Different labels that there may be; bytes, or numbers, of a label that are shown; labels that are named."""


class TooMany(Exception):  # noqa: N818
    """Labels are too different."""


class Looked(NamedTuple):
    """The labels of some records."""

    which: Int64s
    """Of each record the place of its label in what follows."""
    hashes: list[int]
    shown: list[str]
    """In words; none of them where there are too many."""


def look_at(column: Column | None, records: int) -> Looked:
    """Labels may be numbers, several of them, or bytes: equal is what is equal byte for byte."""
    if column is None:
        return Looked(np.zeros(records, np.int64), [0], ["(missing)"])
    edges = column.rows * column.values.itemsize if column.items is None else column.items[column.rows]
    hashes = hashes_of(column.values.view(np.uint8), edges.view(np.uint64))
    hashes[column.counts == 0] = 0
    different, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    shown = [_shown(column, number) for number in first.tolist()] if len(first) <= CLASSES else []
    return Looked(which, different.tolist(), shown)


def _shown(column: Column, number: int) -> str:
    from croupier.example.content import text_of

    values = column[number]
    if values is None or not len(values):
        return "(missing)"
    if column.items is None:
        said = "{:g}".format if column.kind is Kind.FLOAT else str
        text = " ".join(map(said, values[:SHOWN].tolist()))
        return text if len(values) <= SHOWN else f"{text} ..."
    value = values[0]
    cut = len(value) > SHOWN
    head = text_of(value[:SHOWN], cut=cut)
    shown = value[:SHOWN].hex() if head is None else head
    return f"{shown}..." if cut or len(values) > 1 else shown


class Runs:
    """Runs of equal labels, part by part."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._classes: dict[int, int] = {}
        self._shown: list[str] = []
        self._counts = self._in_file = np.zeros(0, np.int64)
        self._files, self._file = chance.ChiSquare(), 0
        self._runs = 0
        self._last, self._length = -1, 0  # the run that is under way
        self._longest = (0, -1)

    def add(self, first: int, labels: Looked, edges: list[int]) -> None:
        """More records; files end at `edges`."""
        which, hashes, shown = labels
        if len(self._classes.keys() | hashes) > CLASSES:
            raise TooMany(
                f"feature {self._name!r} has more than {CLASSES:,} different values: it is no label; where "
                "it says how records were ordered, name it by --order"
            )
        for number, text in zip(hashes, shown, strict=True):
            if self._classes.setdefault(number, len(self._classes)) == len(self._shown):
                self._shown.append(text)
        classes = np.array([self._classes[number] for number in hashes], np.int64)[which]
        self._count(first, classes, edges)
        bounds = np.concatenate([[0], np.flatnonzero(classes[1:] != classes[:-1]) + 1, [len(classes)]])
        lengths, starts = np.diff(bounds), classes[bounds[:-1]]
        self._runs += len(lengths) - (starts[0] == self._last)
        if starts[0] == self._last:
            lengths[0] += self._length
        most = int(np.argmax(lengths))
        self._longest = max(self._longest, (int(lengths[most]), int(starts[most])))
        self._last, self._length = int(starts[-1]), int(lengths[-1])

    def _count(self, first: int, classes: Int64s, edges: list[int]) -> None:
        grown = len(self._classes) - len(self._counts)
        if grown:
            more = np.zeros(grown, np.int64)
            self._counts, self._in_file = np.append(self._counts, more), np.append(self._in_file, more)
        begin = 0
        while begin < len(classes):
            while edges[self._file] <= first + begin:
                self._end_file()
            some = classes[begin : edges[self._file] - first]
            counts = np.bincount(some, minlength=len(self._counts))
            self._counts, self._in_file = self._counts + counts, self._in_file + counts
            begin += len(some)

    def _end_file(self) -> None:
        self._files.add(self._in_file)
        self._in_file = np.zeros_like(self._in_file)
        self._file += 1

    def result(self) -> Labels | None:
        """Of all records."""
        if not self._runs:
            return None
        self._end_file()
        counts = self._counts.tolist()
        runs, longest = chance.number_of_runs(counts), chance.LongestRun(counts)
        length, label = self._longest
        top = sorted(range(len(counts)), key=lambda one: -counts[one])[:TOP]
        found = Labels(
            self._name, len(counts), int(self._runs), runs.mean, runs.z(self._runs),
            length, longest.mean, longest.beyond(length), self._shown[label],
            [(self._shown[one], counts[one]) for one in top],
        )  # fmt: skip
        if (squares := self._files.result(counts)) is not None:
            found.chi_square, found.freedom, expected, found.cramers_v = squares
            found.chi_square_expected, found.chi_square_z = expected.mean, expected.z(found.chi_square)
        return found
