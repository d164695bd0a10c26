"""Where records stood in the source: by a feature that tells it, or by the receipt of a shuffle.

Of more than MOST records a sample is kept that is made of whole windows of the source, so that neighbours in
the source are in it together; which windows, a hash decides.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from croupier import _kernel, dataset, storage
from croupier.dataset import Dataset
from croupier.errors import CroupierError, UsageError
from croupier.example.columns import Column, Int64s, Kind
from croupier.inspect.receipt import MOST_BYTES
from croupier.inspect.sketch import ordered
from croupier.publish import files_told
from croupier.streams import open_file

MOST = 1 << 22
"""Records that all are looked at; of more, about so many: some 200 MB of keys and places."""
WINDOW, SHIFTS = 6, (0, 6, 14, 22, 30, 38)
"""Bits of a key that do not count for its window: one of SHIFTS fits, as keys are dense or far apart. With 0
it is not windows that are chosen but single records."""
ENOUGH = 8
"""Records of a window that it should have."""
STEP = 1 << 20
FILES, FIRST = 64, 16
"""Inputs of which the first records are compared with the output, and how many of each."""
GROUPS, NUMBER_BITS, LONGEST = 1 << 16, 48, 4096
"""Texts are a group (a chromosome, a prefix) and a number; how many groups, and how long a text may be."""

Keys = np.ndarray[tuple[int], np.dtype[np.uint64]]


class Placed(NamedTuple):
    """Records in the order of the source."""

    positions: Int64s
    """Where they stand now."""
    linked: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether each one and the next were neighbours in the source."""
    even: Int64s
    """As `positions`, of records that were chosen one by one."""


def scramble(numbers: Keys) -> Keys:
    """A hash of each (splitmix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def chosen(numbers: Keys, records: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """About MOST of `records`, the same for the same numbers."""
    return scramble(numbers) < np.uint64(min(MOST * (1 << 64) // max(records, 1), (1 << 64) - 1))


def hashes_of(buffer: Any, edges: Any) -> Keys:
    """Of each of some values that stand one behind the other, 64 bits: at 3 to 9 GB/s."""
    hashes, looks = np.empty(len(edges) - 1, np.uint64), np.empty(len(edges) - 1, np.uint8)
    _kernel.inspect_values(buffer, edges, hashes, looks)
    return hashes


# By a feature


class Ordinals(NamedTuple):
    """What a feature says of some records, one behind the other."""

    kind: Kind
    records: Int64s
    """Those that have it, once."""
    keys: Keys
    """In their order; of texts the number of the group, and their number in it."""
    groups: list[bytes]


_LOCUS = re.compile(rb"(.+):(\d{1,14})-\d+", re.DOTALL)
_NUMBERED = re.compile(rb"(.*?)(\d{1,14})(\D*)", re.DOTALL)


def ordinals(column: Column) -> Ordinals:
    """On a thread."""
    records = np.flatnonzero(column.counts == 1)
    first = column.rows[records]
    if column.items is None:
        keys = ordered(column.values[first]).view(np.uint64) ^ np.uint64(1 << 63)
        return Ordinals(column.kind, records, keys, [])
    begins, ends = column.items[first].tolist(), column.items[first + 1].tolist()
    whole = column.values.tobytes()
    groups: dict[bytes, int] = {}
    numbers = []
    for begin, end in zip(begins, ends, strict=True):
        group, number = _parted(whole[begin : min(end, begin + LONGEST)])
        place = min(groups.setdefault(group, len(groups)), GROUPS - 1)
        numbers.append(place << NUMBER_BITS | number)
    return Ordinals(column.kind, records, np.array(numbers, np.uint64), list(groups))


def _parted(value: bytes) -> tuple[bytes, int]:
    """chr20:10000524-10000525 is number 10000524 of chr20; img_0041.jpg is number 41 of its like."""
    if found := _LOCUS.fullmatch(value):
        return found[1], int(found[2])
    if found := _NUMBERED.fullmatch(value):
        return found[1] + b"\0" + found[3], int(found[2])
    return value, 0


def _natural(group: bytes) -> list[Any]:
    """chr2 comes before chr10."""
    return [int(part) if number % 2 else part for number, part in enumerate(re.split(rb"(\d+)", group))]


class ByFeature:
    """Keys of all records, part by part."""

    def __init__(self, name: str, records: int) -> None:
        self.name = name
        self.kind: Kind | None = None
        self.records = 0
        """That have the feature."""
        self.different = 0
        """Keys among those that were kept."""
        self._shifts = SHIFTS if records > MOST else SHIFTS[:1]
        self._shared = records * len(SHIFTS)
        self._groups: dict[bytes, int] = {}
        self._kept: dict[int, list[tuple[Int64s, Keys]]] = {shift: [] for shift in self._shifts}
        self._sizes = dict.fromkeys(self._shifts, 0)

    def add(self, first: int, found: Ordinals) -> None:
        """Of records from `first` on."""
        keys = self._known(found)
        positions = found.records + first
        self.records += len(keys)
        for shift, kept in self._kept.items():
            if self._sizes[shift] > MOST:  # where windows are that large, others fit better
                continue
            part: Any = slice(None)
            if len(self._shifts) > 1:
                window = (keys >> np.uint64(shift)) + np.uint64(shift)
                part = chosen(window if shift else positions.view(np.uint64), self._shared)
            kept.append((positions[part], keys[part]))
            self._sizes[shift] += len(kept[-1][1])
            if self._sizes[shift] > MOST:
                kept.clear()

    def _known(self, found: Ordinals) -> Keys:
        """Their keys, groups numbered as they came in all records."""
        if not found.groups:
            return found.keys
        numbers = [self._groups.setdefault(group, len(self._groups)) for group in found.groups]
        if len(self._groups) >= GROUPS:
            raise UsageError(
                f"feature {self.name!r} does not tell an order: its values are texts of more than {GROUPS:,} "
                "sorts, without a number in them that grows"
            )
        return _regrouped(found.keys, numbers)

    def placed(self) -> Placed:
        """In the order of the source; of equal keys in one that has nothing to do with their places."""
        even, keys = self._sorted(0)
        self.different = int((keys[1:] != keys[:-1]).sum()) + bool(len(keys))
        if len(self._shifts) == 1:
            return Placed(even, np.ones(max(len(even) - 1, 0), np.bool_), even)
        best = Placed(even[:0], np.zeros(0, np.bool_), even)
        for shift in self._shifts[1:]:
            positions, keys = self._sorted(shift)
            windows = keys >> np.uint64(shift)
            linked = windows[1:] == windows[:-1]
            if linked.sum() > best.linked.sum():
                best = Placed(positions, linked, even)
            if len(linked) and linked.mean() > 1 - 1 / ENOUGH:
                break
        return best

    def _sorted(self, shift: int) -> tuple[Int64s, Keys]:
        """Positions and keys of a sample, by key."""
        empty = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        positions, keys = (
            np.concatenate(column) for column in zip(empty, *self._kept.pop(shift), strict=True)
        )
        if self._groups:
            by_name = sorted(self._groups, key=_natural)
            ranks = np.empty(len(by_name), np.int64)
            ranks[[self._groups[group] for group in by_name]] = np.arange(len(by_name))
            keys = _regrouped(keys, ranks)
        order = np.lexsort((scramble(positions.view(np.uint64)), keys))
        return positions[order], keys[order]


def _regrouped(keys: Keys, groups: Any) -> Keys:
    """The same numbers in groups of other numbers."""
    bits = np.uint64(NUMBER_BITS)
    renamed: Keys = np.asarray(groups, np.uint64)[keys >> bits]
    return (renamed << bits) | (keys & np.uint64((1 << NUMBER_BITS) - 1))


# By a receipt


class _Unusable(Exception):  # noqa: N818
    """Why a receipt does not tell where records stood."""


@dataclass(frozen=True)
class ByReceipt:
    """What a receipt says of the places of records."""

    path: str
    placed: Placed
    checks: dict[int, int]
    """Positions, and the hashes of the records of the inputs that should stand there."""


def by_receipt(data: Dataset) -> ByReceipt | str:
    """Of the shuffle that wrote exactly these files; or why there is none."""
    if data.identity() is None or len({os.path.dirname(path) for path in data.paths}) != 1:
        return "these are not all records of an output"
    found = _find(data)
    if found is None:
        return "there is no receipt of a shuffle that wrote these files"
    path, receipt = found
    try:
        return _traced(path, receipt, data)
    except (LookupError, TypeError, ValueError, OverflowError):  # UsageError is one of these
        return f"{path} does not say enough"
    except _Unusable as reason:
        return f"{path}: {reason}"


def _find(data: Dataset) -> tuple[str, dict[str, Any]] | None:
    side = os.path.join(os.path.dirname(data.paths[0]), storage.SIDE_FOLDER)
    try:
        names = sorted(name for name in os.listdir(side) if name.endswith(".receipt.json"))
    except OSError:
        return None
    shards = [(os.path.basename(shard.path), shard.records) for shard in data.shards]
    for name in names:
        stem = name.removesuffix(".receipt.json")
        if not shards[0][0].startswith(stem):
            continue
        path = os.path.join(side, name)
        try:
            receipt = json.loads(storage.read_small(path, MOST_BYTES))
            wrote = [(shard["name"], shard["records"]) for shard in receipt["shards"]]
            if receipt["job"] == "shuffle" and wrote == shards:
                return path, receipt
        except (CroupierError, LookupError, TypeError, ValueError):
            continue
    return None


def _traced(path: str, receipt: dict[str, Any], data: Dataset) -> ByReceipt:
    told, seed = files_told(receipt), int(receipt["seed"])
    inputs = [str(one["path"]) for one in told]
    if "records" in told[0]:
        counts = [int(one["records"]) for one in told]
    else:
        try:
            counts = [shard.records for shard in dataset.open(inputs).shards]
        except CroupierError as error:
            raise _Unusable(f"the inputs cannot be counted ({error})") from None
    if sum(counts) != len(data) or min(counts) < 0:
        raise _Unusable(f"the inputs have {sum(counts):,} records, and the output {len(data):,}")
    firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    heads = dict(_heads(told, firsts))
    wanted = np.array(sorted(heads), np.uint64)
    sample = np.union1d(_windows(len(data)), wanted)
    positions = _ranks(seed, firsts, sample)
    places = positions[np.searchsorted(sample, wanted)].tolist()
    checks = {place: heads[number] for place, number in zip(places, wanted.tolist(), strict=True)}
    return ByReceipt(path, Placed(positions, np.diff(sample) == 1, positions), checks)


def _windows(records: int) -> Keys:
    """Records of the source that are looked at."""
    parts = []
    for begin in range(0, records, STEP):
        some = np.arange(begin, min(begin + STEP, records), dtype=np.uint64)
        parts.append(some if records <= MOST else some[chosen(some >> np.uint64(WINDOW), records)])
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _ranks(seed: int, firsts: Keys, sample: Keys) -> Int64s:
    """Where records of the source stand when all are sorted by their keys."""
    keys = np.empty(len(sample), np.uint64)
    for begin, block in _keys(seed, firsts):
        low, high = np.searchsorted(sample, np.array([begin, begin + len(block)], np.uint64))
        keys[low:high] = block[sample[low:high] - np.uint64(begin)]
    order = np.argsort(keys, kind="stable")
    keys, smaller = keys[order], np.zeros(len(sample), np.int64)
    for _, block in _keys(seed, firsts):
        block.sort()
        smaller += np.searchsorted(block, keys)
    ranks = np.empty_like(smaller)
    ranks[order] = smaller
    return ranks


def _keys(seed: int, firsts: Keys) -> Iterator[tuple[int, Keys]]:
    """The keys of all records of the source, some at a time, and the number of the first of them."""
    total = int(firsts[-1])
    for begin in range(0, total, STEP):
        end = min(begin + STEP, total)
        low = int(np.searchsorted(firsts, np.uint64(begin), "right")) - 1
        high = int(np.searchsorted(firsts, np.uint64(end)))
        edges = np.clip(firsts[low : high + 1], np.uint64(begin), np.uint64(end))
        files = np.arange(low, high, dtype=np.uint64)
        keys = np.empty(end - begin, np.uint64)
        _kernel.record_keys(seed, files, edges[:-1] - firsts[low:high], np.diff(edges), keys)
        yield begin, keys


def _heads(inputs: Sequence[dict[str, Any]], firsts: Keys) -> Iterator[tuple[int, int]]:
    """The first records of some inputs that are still what they were: number and hash."""
    for number in sorted({len(inputs) * step // FILES for step in range(FILES)}):
        path, size = inputs[number]["path"], inputs[number]["bytes"]
        try:
            with open_file(path) as opened:
                if opened.file.size != size:
                    continue
                block = next(iter(opened.frames), None)
                if block is None:
                    continue
                payloads = _kernel.payloads(block.buffer, block.bounds[: FIRST + 1])
        except CroupierError:
            continue
        edges = np.cumsum([0, *map(len, payloads)]).astype(np.uint64)
        hashes = hashes_of(b"".join(payloads), edges).tolist()
        first, last = firsts[number : number + 2].tolist()
        yield from zip(range(first, last), hashes, strict=False)
