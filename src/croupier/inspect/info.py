"""What a dataset is: how many records of which sizes in which files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from croupier.dataset import Dataset, Shard
from croupier.frames import OVERHEAD
from croupier.table.packed import Integers

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
STEP = 1 << 20  # records that are looked at together: lengths of all of them need not fit in memory


class Bin(NamedTuple):
    """Records of at least `least` payload bytes, and less than `below`."""

    least: int
    below: int
    records: int


@dataclass
class Info:
    """See `info`."""

    records: int = 0
    payload_bytes: int = 0
    file_bytes: int = 0
    compression: str = ""
    """What all files have in common, or "mixed"."""
    ratio: float = 1.0
    """Decompressed bytes to file bytes."""
    smallest: int = 0
    mean: float = 0.0
    largest: int = 0
    quantiles: dict[str, int] = field(default_factory=dict)
    """Of payload bytes; each is right to within a part in 256."""
    bins: list[Bin] = field(default_factory=list)
    """How sizes are distributed."""
    shards: list[Shard] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        bins = [one._asdict() for one in self.bins]
        return vars(self) | {"bins": bins, "shards": [shard._asdict() for shard in self.shards]}


def info(data: Dataset) -> Info:
    """What is known of a dataset from its table alone: no record is read."""
    shards = data.shards
    found = Info(len(data), shards=shards)
    found.file_bytes = sum(shard.file_bytes for shard in shards)
    kinds = {shard.compression for shard in shards if shard.file_bytes}
    found.compression = kinds.pop() if len(kinds) == 1 else "mixed" if kinds else "none"
    stream = sum(shard.payload_bytes + OVERHEAD * shard.records for shard in shards)
    found.ratio = stream / found.file_bytes if found.file_bytes else 1.0
    sizes = _Sizes()
    for begin in range(0, len(data), STEP):
        sizes.add(data.skip(begin).take(STEP).lengths())
    if len(data):
        found.payload_bytes, found.smallest, found.largest = sizes.total, sizes.smallest, sizes.largest
        found.mean = sizes.total / len(data)
        found.quantiles = {f"{q:g}": sizes.quantile(q) for q in QUANTILES}
        found.bins = sizes.bins()
    return found


class _Sizes:
    """Counts of sizes, in bins that are a 256th of a power of two wide; exact up to 511."""

    _BITS = 8

    def __init__(self) -> None:
        self.total, self.smallest, self.largest = 0, 1 << 63, 0
        self._counts = np.zeros(64 << self._BITS, np.int64)

    def add(self, lengths: Integers) -> None:
        self.total += int(lengths.sum())
        self.smallest = min(self.smallest, int(lengths.min()))
        self.largest = max(self.largest, int(lengths.max()))
        self._counts += np.bincount(self._places(lengths), minlength=len(self._counts))

    def _places(self, sizes: Integers) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Where sizes are counted."""
        shift = np.maximum(np.frexp(sizes.astype(np.float64))[1] - self._BITS - 1, 0)
        shifted = (sizes >> shift.astype(np.uint64)).astype(np.int64)
        places: np.ndarray[tuple[int], np.dtype[np.int64]] = (shift.astype(np.int64) << self._BITS) + shifted
        return places

    def _least(self, place: int) -> int:
        """The smallest size that is counted at a place."""
        shift = max((place >> self._BITS) - 1, 0)
        return (place - (shift << self._BITS)) << shift

    def quantile(self, share: float) -> int:
        """The size that this share of the records does not exceed."""
        wanted = max(int(np.ceil(share * int(self._counts.sum()))), 1)
        place = int(np.searchsorted(np.cumsum(self._counts), wanted))
        return min(max(self._least(place), self.smallest), self.largest)

    def bins(self, most: int = 16) -> list[Bin]:
        """At most so many from the smallest to the largest: of about equal width, or of powers of two."""
        if self.largest < 4 * max(self.smallest, 1):
            step = max(-(-(self.largest + 1 - self.smallest) // most), 1)
            wanted = np.arange(self.smallest, self.largest + 1, step, dtype=np.uint64)
            inner = {
                self._least(place) for place in self._places(wanted).tolist()
            }  # so that counts are exact
            edges = [self.smallest, *sorted(edge for edge in inner if edge > self.smallest)]
        else:
            edges = [0 if self.smallest == 0 else 1 << (self.smallest.bit_length() - 1)]
            factor = 1 << max(-(-(self.largest.bit_length() - self.smallest.bit_length() + 1) // most), 1)
            while edges[-1] <= self.largest:
                edges.append(max(edges[-1] * factor, 1))
            edges.pop()
        edges.append(self.largest + 1)
        starts = np.array([self._least(place) for place in np.flatnonzero(self._counts).tolist()])
        counts = self._counts[self._counts > 0]
        which = np.clip(np.searchsorted(edges, starts, side="right") - 1, 0, len(edges) - 2)
        sums = np.bincount(which, counts, len(edges) - 1)
        return [Bin(edges[i], edges[i + 1], int(sums[i])) for i in range(len(edges) - 1)]
