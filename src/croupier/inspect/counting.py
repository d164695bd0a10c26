"""Numbers and bytes that are summed up part by part: what the statistics of a feature are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from croupier.example import content
from croupier.example.columns import Column, Int64s
from croupier.inspect.sketch import (
    Different,
    Frequent,
    Quantiles,
    Values,
    floats_of,
    grouped,
    hashed,
    ordered,
    restored,
    runs,
)

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
TOP = 10
"""Of the most frequent values, how many are named."""
SHOWN = 32
"""Bytes of a value that are."""
TOGETHER = 1 << 20
"""Numbers that are summed up at once."""
BINS = 16
SKEWED = 1000
"""So many times the median makes the largest value one that bins of equal width would say nothing beside."""


class Bin(NamedTuple):
    """Values of at least `least` and less than `below`; the last bin of floats has those of `below`, too."""

    least: int | float
    below: int | float
    values: int


class Top(NamedTuple):
    """A frequent value."""

    value: Any
    """A number, or the first bytes of a value."""
    times: int
    size: int | None = None
    """Of bytes: how many there are of it."""


@dataclass
class Range:
    """Of numbers. NaN and the infinities are counted; all else is of the finite ones."""

    finite: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    smallest: int | float | None = None
    mean: float | None = None
    std: float | None = None
    """Of all values: the sum is divided by their number, as numpy does."""
    largest: int | float | None = None
    quantiles: dict[str, float] = field(default_factory=dict)
    """Of the share q: the smallest value that a share of q does not exceed."""
    quantile_error: float = 0.0
    """A quantile is less than the exact one by this share of itself at most; 0: it is exact."""
    different: int = 0
    different_error: float = 0.0
    """The standard deviation of `different`, as a share of it; 0: it is exact."""
    top: list[Top] = field(default_factory=list)
    top_error: int = 0
    """A value in `top` may have come so many times more, and one that is not there so many times at most."""
    bins: list[Bin] = field(default_factory=list)
    """How the values are distributed; exact as quantiles are."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tops = [{"value": one.value, "times": one.times} for one in self.top]
        return vars(self) | {"top": tops, "bins": [one._asdict() for one in self.bins]}


@dataclass
class Octets:
    """Of bytes: their number in each value, and what they are."""

    sizes: Range = field(default_factory=Range)
    """Of the values' lengths."""
    looks: dict[str, int] = field(default_factory=dict)
    """How many values look like what: "jpeg", "utf-8", "raw"..."""
    different: int = 0
    """Told apart by hashes of 64 bits. For the errors see `Range`."""
    different_error: float = 0.0
    top: list[Top] = field(default_factory=list)
    top_error: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        tops = [_shown(one) for one in self.top]
        return vars(self) | {"sizes": self.sizes.as_dict(), "top": tops}


def _shown(one: Top) -> dict[str, Any]:
    """Text as text, and else as hexadecimal digits."""
    text = content.text_of(one.value, cut=one.size != len(one.value))
    shown = {"hex": one.value.hex()} if text is None else {"text": text}
    return shown | {"bytes": one.size, "times": one.times}


def _unsigned(values: Any) -> Any:
    """Integers as such that no difference of them is too large for: it is taken modulo 2^64."""
    return values.astype(np.int64).view(np.uint64)


class Numbers:
    """Numbers that come part by part."""

    def __init__(self, dtype: np.dtype[Any], groups: int) -> None:
        self._dtype = (
            np.dtype(np.float64) if dtype.kind == "u" and dtype.itemsize == 8 else dtype.newbyteorder("=")
        )
        self._range = Range()
        self._floats = floats_of(self._dtype)
        self._origin: Any = None  # the mean is taken from here, or it would lose digits far from zero
        self._mean = self._m2 = 0.0  # and the sum of squared differences from it
        self._quantiles = Quantiles(self._dtype, groups)
        self._frequent, self._different = Frequent(), Different()

    def add(self, values: Values) -> None:
        """More of them."""
        for begin in range(0, len(values), TOGETHER):
            self._add(values[begin : begin + TOGETHER].astype(self._dtype, copy=False))

    def _add(self, values: Any) -> None:
        found = self._range
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            nan, bad = int(np.isnan(values).sum()), ~np.isfinite(values)
            found.nan += nan
            found.infinite += int(bad.sum()) - nan
            values = values[~bad]
        if not len(values):
            return
        found.zeros += int(len(values) - np.count_nonzero(values))
        self._widen(values.min().item(), values.max().item())
        self._add_moments(values)
        keys, counts = grouped(ordered(values))
        self._quantiles.add(keys, counts)
        self._different.add(hashed(keys))
        self._frequent.add(
            *self._frequent.thinned(keys.view(np.uint64), counts, restored(keys, self._floats))
        )

    def _widen(self, smallest: float | None, largest: float | None) -> None:
        found = self._range
        if smallest is not None and largest is not None:
            found.smallest = smallest if found.smallest is None else min(found.smallest, smallest)
            found.largest = largest if found.largest is None else max(found.largest, largest)

    def _add_moments(self, values: Any) -> None:
        origin = values.min()
        with np.errstate(over="ignore", invalid="ignore"):
            wide = _unsigned if self._floats is None else np.float64
            away = np.asarray(wide(values) - wide(origin), np.float64)
            mean = float(away.mean())
            away -= mean
            m2 = float(np.square(away, out=away).sum())
        self._merge_moments(len(values), origin.item(), mean, m2)

    def _merge_moments(self, count: int, origin: Any, mean: float, m2: float) -> None:
        """Chan's formula."""
        total = self._range.finite + count
        if self._origin is None:
            self._origin, self._mean, self._m2 = origin, mean, m2
        elif count:
            apart = mean - self._mean + float(origin - self._origin)
            self._mean += apart * (count / total)
            self._m2 += m2 + apart * apart * (self._range.finite * count / total)
        self._range.finite = total

    def settle(self) -> None:
        """Do what work there is before it is merged into another one."""
        for part in (self._quantiles, self._frequent, self._different):
            part.settle()

    def merge(self, other: Numbers) -> None:
        """Add what another one was given."""
        found, more = self._range, other._range
        found.nan += more.nan
        found.infinite += more.infinite
        found.zeros += more.zeros
        self._widen(more.smallest, more.largest)
        self._merge_moments(more.finite, other._origin, other._mean, other._m2)
        self._quantiles.merge(other._quantiles)
        self._frequent.merge(other._frequent)
        self._different.merge(other._different)

    def result(self) -> Range:
        """All that is known."""
        self.settle()
        found = self._range
        if not found.finite:
            return found
        if math.isfinite(self._m2):  # as it is but for float64s near the end of their range
            found.mean, found.std = float(self._origin + self._mean), math.sqrt(self._m2 / found.finite)
        found.quantiles = dict(
            zip(map("{:g}".format, QUANTILES), self._quantiles.quantiles(QUANTILES), strict=True)
        )
        found.quantile_error = self._quantiles.error
        different = self._quantiles.different
        found.different = self._different.count if different is None else different
        found.different_error = self._different.error if different is None else 0.0
        found.top_error = self._frequent.lost
        found.top = [Top(value.item(), count) for count, value in self._frequent.top(TOP)]
        found.bins = _bins(*self._quantiles.groups(), found, self._floats is None)
        return found


_HEAD = np.dtype([("size", np.int64), ("head", np.uint8, SHOWN)])


class Bytes:
    """Values of a bytes feature that come part by part."""

    def __init__(self, groups: int) -> None:
        self._sizes = Numbers(np.dtype(np.int64), groups)
        self._looks = content.Looks()
        self._frequent, self._different = Frequent(), Different()

    def add(self, column: Column) -> None:
        """More of them."""
        if column.items is None or len(column.items) < 2:
            return
        sizes = np.diff(column.items)
        hashes, looks = content.inspect(column)
        self._sizes.add(sizes)
        self._looks.add(looks, sizes)
        order = np.argsort(hashes)
        keys, counts, starts = runs(hashes[order])
        self._different.add(keys)
        keys, counts, places = self._frequent.thinned(keys, counts, order[starts])
        self._frequent.add(keys, counts, _heads(column, column.items, places))

    def settle(self) -> None:
        """Do what work there is before it is merged into another one."""
        for part in (self._sizes, self._frequent, self._different):
            part.settle()

    def merge(self, other: Bytes) -> None:
        """Add what another one was given."""
        self._sizes.merge(other._sizes)
        self._looks.merge(other._looks)
        self._frequent.merge(other._frequent)
        self._different.merge(other._different)

    def result(self) -> Octets:
        """All that is known."""
        self.settle()
        different, lost = self._different, self._frequent.lost
        tops = [
            Top(one["head"][: one["size"]].tobytes(), count, int(one["size"]))
            for count, one in self._frequent.top(TOP)
        ]
        return Octets(self._sizes.result(), self._looks.counts, different.count, different.error, tops, lost)


def _heads(column: Column, items: Int64s, places: Int64s) -> Any:
    """Size and first bytes of some values."""
    heads = np.zeros(len(places), _HEAD)
    begin, heads["size"] = items[places], items[places + 1] - items[places]
    which = np.arange(SHOWN) < heads["size"][:, None]
    heads["head"][which] = column.values[(begin[:, None] + np.arange(SHOWN))[which]]
    return heads


def _bins(values: Values, counts: Int64s, found: Range, integers: bool) -> list[Bin]:
    """How values are distributed: in bins of equal width, or of powers of two where most are near zero."""
    smallest, largest = found.smallest or 0, found.largest or 0
    skewed = smallest >= 0 and largest > SKEWED * max(found.quantiles["0.5"], 1 if integers else 0)
    if smallest == largest:
        return [Bin(smallest, largest + integers, int(counts.sum()))]
    if skewed:
        edges = _powers(values, largest)
    elif integers:
        edges = list(range(int(smallest), int(largest) + 1, -(-(int(largest - smallest) + 1) // BINS)))
    else:
        edges = [half * 2 for half in np.linspace(smallest / 2, largest / 2, BINS + 1).tolist()[:-1]]
    wide = np.float64 if values.dtype.kind == "f" else np.int64
    places = np.searchsorted(np.array(edges[1:], wide), values.astype(wide), side="right")
    sums = np.bincount(places, counts, len(edges))
    ends = [*edges[1:], largest + integers]
    return [Bin(*one) for one in zip(edges, ends, map(int, sums.tolist()), strict=True)]


def _powers(values: Values, largest: float) -> list[Any]:
    """Edges: zero, and some powers of two from the smallest number above it."""
    least, most = (math.frexp(float(value))[1] - 1 for value in (values[values > 0][0], largest))
    step = -(-(most - least + 1) // (BINS - 1))
    powers = [2**power if power >= 0 else 2.0**power for power in range(least, most + 1, step)]
    return [0, *powers] if values[0] == 0 else powers
