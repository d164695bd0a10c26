"""Summaries of values in bounded memory: quantiles, the most frequent values, how many different ones.

Each is made of parts that were summed up apart, on any thread. Quantiles and counts of different values do
not depend on how the values were divided among parts or in which order these were merged; the most frequent
values depend on the parts alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Keys = np.ndarray[tuple[int], np.dtype[np.int64]]
Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]
Values = np.ndarray[tuple[int], np.dtype[Any]]

BINS = 16_384
"""Different values up to which quantiles are exact, and groups of values from there on."""
ALL = 1 << 21
"""Groups of all features together."""
WAITING = 4
"""Parts are put aside until they are this many times what is kept, and sorted together then."""


def ordered(values: Any) -> Keys:
    """Integers in the order of the values: floats' bits, integers as they are."""
    wide = floats_of(values.dtype)
    if wide is None:
        keys: Keys = values.astype(np.int64)
        return keys
    bits = _mirrored((values.astype(wide) + wide(0)).view(_BITS[wide]))  # and no -0.0
    return np.asarray(bits, np.int64)


def restored(keys: Keys, floats: Any) -> Any:
    """The values that `ordered` made keys of; `floats` is float32, float64, or None for integers."""
    return keys if floats is None else _mirrored(keys.astype(_BITS[floats])).view(floats)


_BITS: dict[Any, Any] = {np.float32: np.int32, np.float64: np.int64}


def _mirrored(bits: Any) -> Any:
    """Negative floats have the order of their absolute values: turned around."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def floats_of(dtype: np.dtype[Any]) -> Any:
    """What `restored` needs to know of values."""
    return None if dtype.kind != "f" else np.float32 if dtype.itemsize <= 4 else np.float64


def groups_for(features: int) -> int:
    """How many groups each of so many features may have, so that all take a few hundred megabytes at most."""
    return max(min(ALL // max(features, 1), BINS), 256)


def grouped(keys: Keys) -> tuple[Keys, Keys]:
    """(the different ones in order, how many there are of each)"""
    return runs(np.sort(keys))[:2]


def runs(keys: Any) -> tuple[Any, Keys, Keys]:
    """Of sorted keys: (the different ones, how many there are of each, where each begins)"""
    edges = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    bounds = np.concatenate([[0], edges, [len(keys)]]) if len(keys) else np.zeros(1, np.int64)
    return keys[bounds[:-1]], bounds[1:] - bounds[:-1], bounds[:-1]


class Quantiles:
    """Values in at most `most` groups of neighbours, each known by its smallest value and its size.

    A group is of all values that have the same bits but for the last `dropped`, which are the fewest that
    leave so few groups. So a quantile is right to within a share of 2^dropped / 2^(bits of the mantissa), and
    exact while there are no more different values than groups. With more, integers are treated as float64.
    """

    def __init__(self, dtype: np.dtype[Any], most: int = BINS) -> None:
        self._integers = dtype.kind != "f"
        self._floats = floats_of(dtype) or np.float64
        self._exact = self._integers
        self._most = most
        self._dropped = 0
        self._keys: Keys = np.zeros(0, np.int64)
        self._counts: Keys = np.zeros(0, np.int64)
        self._aside: list[tuple[Keys, Keys]] = []
        self._waiting = 0

    def add(self, keys: Keys, counts: Keys) -> None:
        """Different values, as `ordered` gives them, with how many there are of each."""
        self._put(keys if self._exact else self._as_floats(keys), counts)

    def merge(self, other: Quantiles) -> None:
        """Add what another one was given."""
        other.settle()
        if not other._exact:
            self.settle()
            self._become_floats()
        keys = self._as_floats(other._keys) if other._exact and not self._exact else other._keys
        self._dropped = max(self._dropped, other._dropped)
        self._put(keys, other._counts)

    def _put(self, keys: Keys, counts: Keys) -> None:
        self._aside.append((keys, counts))
        self._waiting += len(keys)
        if self._waiting > WAITING * self._most:
            self.settle()

    def settle(self) -> None:
        """Sort what was put aside into the groups, and make fewer of them where there are too many."""
        if not self._aside:
            return
        parts = [(self._keys, self._counts), *self._aside] if len(self._keys) else self._aside
        keys, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self._aside, self._waiting = [], 0
        if len(parts) > 1:
            order = np.argsort(keys, kind="stable")
            keys, counts = keys[order], counts[order]
        self._keys, self._counts = _joined(keys, counts, self._dropped)
        if len(self._keys) > self._most:
            self._become_floats()
        if len(self._keys) > self._most:
            self._dropped = _fewest_bits(self._keys, self._most)
            self._keys, self._counts = _joined(self._keys, self._counts, self._dropped)

    def _become_floats(self) -> None:
        if self._exact:
            self._exact = False
            self._keys, self._counts = _joined(self._as_floats(self._keys), self._counts, 0)

    def _as_floats(self, keys: Keys) -> Keys:
        return ordered(keys.astype(np.float64)) if self._integers else keys

    @property
    def error(self) -> float:
        """A quantile is too small by this share of itself at most."""
        self.settle()
        mantissa = 23 if self._floats is np.float32 else 52
        return 2.0 ** (self._dropped - mantissa) if self._dropped else 0.0

    @property
    def different(self) -> int | None:
        """How many different values there are, while that is known."""
        return None if self.error else len(self._keys)

    def groups(self) -> tuple[Values, Keys]:
        """(the smallest value of each group, how many values it has)"""
        self.settle()
        return restored(self._keys, None if self._exact else self._floats), self._counts

    def quantiles(self, shares: tuple[float, ...]) -> list[float] | list[int]:
        """For each share the smallest value such that this share of all values are not above it."""
        values, counts = self.groups()
        if not len(values):
            return []
        sums = np.cumsum(counts)
        wanted = np.maximum(np.ceil(np.array(shares) * sums[-1]), 1)
        found: list[Any] = values[np.searchsorted(sums, wanted)].tolist()
        return list(map(int, found)) if self._integers else found


def _joined(keys: Keys, counts: Keys, dropped: int) -> tuple[Keys, Keys]:
    """Keys in order, those together that only differ in their last bits."""
    if not len(keys):
        return keys, counts
    starts = runs(keys >> dropped)[2]
    return keys[starts], np.add.reduceat(counts, starts)


def _fewest_bits(keys: Keys, most: int) -> int:
    """How many of the last bits must be dropped for no more than `most` groups to be left.

    Neighbours become one where the highest bit in which they differ is dropped.
    """
    differ = (keys[1:] ^ keys[:-1]).view(np.uint64)
    high = (differ >> np.uint64(32)).astype(np.float64)  # in halves, for a float64 would round all of it
    low = (differ & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
    groups = 1 + len(bits) - np.cumsum(np.bincount(bits, minlength=65))
    return int(np.argmax(groups <= most))


class Frequent:
    """The most frequent of any values, by a 64-bit key, with a sample of each (Misra and Gries).

    Counts are exact while there are at most `most` different keys. Else each is too small by `lost` at most,
    and what is not there came `lost` times at most; that is less than one in `most` of all.
    """

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self.lost = 0
        self._keys: Hashes = np.zeros(0, np.uint64)
        self._counts: Keys = np.zeros(0, np.int64)
        self._samples: Any = None
        self._aside: list[tuple[Hashes, Keys, Any]] = []
        self._waiting = 0

    def add(self, keys: Hashes, counts: Keys, samples: Any) -> None:
        """Different keys, how many of each, and an array with a row for each."""
        self._aside.append((keys, counts, samples))
        self._waiting += len(keys)
        if self._waiting > WAITING * self._most:
            self.settle()

    def merge(self, other: Frequent) -> None:
        """Add what another one was given."""
        other.settle()
        self.lost += other.lost
        if other._samples is not None:
            self.add(other._keys, other._counts, other._samples)

    def settle(self) -> None:
        """Sort what was put aside into the rest."""
        if not self._aside:
            return
        kept = [] if self._samples is None else [(self._keys, self._counts, self._samples)]
        parts = [*kept, *self._aside]
        self._aside, self._waiting = [], 0
        if len(parts) == 1:
            self._keys, self._counts, self._samples = self.thinned(*parts[0])
            return
        keys, counts, samples = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(keys, kind="stable")
        keys, _, starts = runs(keys[order])
        counts = np.add.reduceat(counts[order], starts) if len(keys) else counts
        self._keys, self._counts, self._samples = self.thinned(keys, counts, samples[order[starts]])

    def thinned(self, keys: Hashes, counts: Keys, samples: Any) -> tuple[Hashes, Keys, Any]:
        """Take from each count what leaves no more than `most` of them."""
        if len(keys) <= self._most:
            return keys, counts, samples
        least = int(np.partition(counts, -self._most - 1)[-self._most - 1])
        self.lost += least
        kept = np.flatnonzero(counts > least)
        return keys[kept], counts[kept] - least, samples[kept]

    def top(self, most: int) -> list[tuple[int, Any]]:
        """(count, sample) of the most frequent, in an order that is always the same."""
        self.settle()
        if self._samples is None:
            return []
        order = np.lexsort((self._keys, -self._counts))[:most]
        return [(int(self._counts[place]), self._samples[place]) for place in order.tolist()]


class Different:
    """How many different 64-bit hashes there are: exact below `most`, else by the smallest ones (KMV)."""

    def __init__(self, most: int = 2048) -> None:
        self._most = most
        self._least: Hashes = np.zeros(0, np.uint64)
        self._aside: list[Hashes] = []
        self._waiting = 0

    def add(self, hashes: Hashes) -> None:
        """Any hashes."""
        if len(self._least) == self._most:
            hashes = hashes[hashes < self._least[-1]]
        self._aside.append(hashes)
        self._waiting += len(hashes)
        if self._waiting > WAITING * self._most:
            self.settle()

    def merge(self, other: Different) -> None:
        """Add what another one was given."""
        other.settle()
        self.add(other._least)

    def settle(self) -> None:
        """Sort what was put aside into the rest."""
        if self._waiting:
            hashes = np.sort(np.concatenate([self._least, *self._aside]))
            self._least = runs(hashes)[0][: self._most].copy()
            self._aside, self._waiting = [], 0

    @property
    def error(self) -> float:
        """The standard deviation of `count`, as a share of it."""
        self.settle()
        return 0.0 if len(self._least) < self._most else 1 / (self._most - 2) ** 0.5

    @property
    def count(self) -> int:
        if not self.error:
            return len(self._least)
        return round((self._most - 1) / ((int(self._least[-1]) + 1) / 2**64))


def hashed(keys: Keys) -> Hashes:
    """Integers as hashes: the finalizer of splitmix64, under which no two become one."""
    mixed = keys.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
