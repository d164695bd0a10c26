"""What a random order would give: exact expectations, and how far from them is still chance.

All orders of the same records are equally likely, so what is random here is the order alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

POINTS, CLASSES = 256, 1024
"""Lengths of runs, and largest classes, that the longest run is computed from."""


class Chance(NamedTuple):
    """A number as it comes in a random order."""

    mean: float
    deviation: float
    """Its standard deviation."""

    def z(self, found: float) -> float:
        """How many standard deviations more than expected; 0 where nothing else can be."""
        return (found - self.mean) / self.deviation if self.deviation > 0 else 0.0


def still_adjacent(records: int, pairs: int, chained: int) -> Chance:
    """How many of these pairs of records stand side by side; `chained`: pairs of them that share a record."""
    if records < 2:
        return Chance(0.0, 0.0)
    one = 2 / records
    mean = pairs * one
    two_in_a_row = 2 / (records * (records - 1))  # a pair and another that shares a record with it
    apart = pairs * (pairs - 1) / 2 - chained
    square = mean + 2 * (chained * two_in_a_row + apart * 2 * two_in_a_row)
    return Chance(mean, math.sqrt(max(square - mean * mean, 0.0)))


def share_within(records: int, distance: Any) -> Any:
    """The probability that two records stand at most so far apart."""
    distance = np.minimum(distance, records - 1)
    return distance * (2 * records - distance - 1.0) / (records * (records - 1.0))


def within(records: int, pairs: int, distance: int) -> Chance:
    """How many pairs do. Pairs are taken to be independent, which those that share a record nearly are."""
    share = float(share_within(records, distance)) if records > 1 else 0.0
    return Chance(pairs * share, math.sqrt(pairs * share * (1 - share)))


def displacement(records: int, known: int) -> Chance:
    """The mean distance from the place in the source, as a share of all records: Spearman's footrule."""
    if not known:
        return Chance(0.0, 0.0)
    if known < records:  # places of the others are not known: a mean over `known` independent places
        return Chance(1 / 3, math.sqrt(1 / (20 * known)))
    variance = (records + 1) * (2 * records * records + 7) / 45
    return Chance((records * records - 1) / (3 * records * records), math.sqrt(variance) / records**2)


def equal_neighbours(counts: Sequence[int]) -> Chance:
    """How many records are like the one before, where so many are of each kind."""
    runs = number_of_runs(counts)
    return Chance(sum(counts) - runs.mean, runs.deviation)


def number_of_runs(counts: Sequence[int]) -> Chance:
    """Wald and Wolfowitz, for any number of kinds (Mood 1940)."""
    n = sum(counts)
    if n < 2:
        return Chance(float(n), 0.0)
    squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
    top = squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3  # of Python's integers: no digit is lost
    return Chance((n * n + n - squares) / n, math.sqrt(max(top / (n * n * (n - 1)), 0.0)))


class LongestRun:
    """How long the longest run of equal kinds is, where so many records are of each kind.

    The number of runs of at least some length has an exact mean; as long runs are rare and far apart, it is
    taken to have Poisson's distribution.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self._records = sum(counts)
        self._counts = sorted(counts, reverse=True)[:CLASSES]

    def runs(self, length: int) -> float:
        """The mean number of runs of at least this length."""
        n, found = self._records, 0.0
        for count in self._counts:
            if count < length:
                break
            if length == 0 or count == n:
                found += 1.0
                continue
            # a run begins with the first record, or behind another kind
            inside = _falling(count, length) - _falling(n, length)
            found += math.exp(inside) * (1 + n - count)
        return found

    def beyond(self, length: int) -> float:
        """The probability of a run of at least this length."""
        return -math.expm1(-self.runs(length)) if length <= self._records else 0.0

    @property
    def mean(self) -> float:
        """The sum of those probabilities over all lengths."""
        most = self._counts[0] if self._counts else 0
        sure, never = self._last(1 - 1e-9, most), self._last(1e-9, most)
        lengths = np.unique(np.linspace(sure, never + 1, POINTS).round().astype(np.int64))
        shares = np.array([self.beyond(length) for length in lengths.tolist()])
        steps = np.diff(lengths)
        # each length in a step from a to b counts with what lies between its ends, b included and a not
        between = (shares[:-1] + shares[1:]) / 2 * (steps - 1) + shares[1:]
        return sure + float(between.sum())

    def _last(self, share: float, most: int) -> int:
        """The longest length that a run reaches with more than this probability."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.beyond(middle) > share else (low, middle - 1)
        return low


def _falling(n: int, length: int) -> float:
    """The logarithm of n (n - 1) ... (n - length + 1)."""
    return math.lgamma(n + 1) - math.lgamma(n - length + 1)


class ChiSquare:
    """Whether each of several parts has its share of each kind; parts come one after the other."""

    def __init__(self) -> None:
        self._parts = self._records = 0
        self._inverse = 0.0  # the sum of 1 / records over the parts
        self._squares = np.zeros(0)  # of each kind: the sum of count^2 / records over the parts

    def add(self, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """How many records of a part are of each kind."""
        records = int(counts.sum())
        if not records:
            return
        self._parts += 1
        self._records += records
        self._inverse += 1 / records
        if len(counts) > len(self._squares):
            self._squares = np.append(self._squares, np.zeros(len(counts) - len(self._squares)))
        self._squares[: len(counts)] += counts.astype(np.float64) ** 2 / records

    def result(self, counts: Sequence[int]) -> tuple[float, int, Chance, float] | None:
        """(statistic, degrees of freedom, its chance, Cramer's V without bias), from the sums of all parts.

        The variance is Dawson's (1954), exact for orders of given records.
        """
        n, parts, kinds = self._records, self._parts, sum(count > 0 for count in counts)
        if parts < 2 or kinds < 2 or n <= 3:
            return None
        sums = np.asarray(counts, np.float64)
        there = sums > 0
        found = n * (float((self._squares[there] / sums[there]).sum()) - 1)
        freedom = (parts - 1) * (kinds - 1)
        (rows, rows_bent), (columns, columns_bent) = (
            ((many - 1) * (n - many) / (n - 1), (n * inverse - many * many) / (n - 2))
            for many, inverse in ((parts, self._inverse), (kinds, float((1 / sums[there]).sum())))
        )
        variance = 2 * n / (n - 3) * (rows - rows_bent) * (columns - columns_bent)
        variance += n * n / (n - 1) * rows_bent * columns_bent
        chance = Chance(n * freedom / (n - 1), math.sqrt(max(variance, 0.0)))
        room = n * (min(parts, kinds) - 1) - chance.mean
        excess = (found - chance.mean) / room if room > 1e-9 * n else 0.0
        return max(found, 0.0), freedom, chance, math.sqrt(min(max(excess, 0.0), 1.0))
