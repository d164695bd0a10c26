"""Records of files, with where they stand: the first ones, one by its number, or some at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from croupier import _kernel, dataset, naming, storage
from croupier.errors import InputNotFoundError, TableError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.streams import open_file


class Shown(NamedTuple):
    """One record."""

    path: str
    record: int
    """Its number among the records of all files."""
    offset: int
    """Where its frame begins in its file, in decompressed bytes."""
    payload: bytes


def show(
    path: str,
    *,
    head: int | None = None,
    record: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    on_corrupt: OnCorrupt = "fail",
    max_record: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] = lambda damage: None,
) -> Iterator[Shown]:
    """The first `head` records (None: all), only number `record`, or `sample` of them at random."""
    files = naming.expand(path)
    if sample is not None or (record is not None and _has_table(files, on_corrupt)):
        data = dataset.open(path, on_corrupt=on_corrupt, max_record_bytes=max_record, on_damage=on_damage)
        yield from _by_number(data, _chosen(data, path, record, sample, seed))
        return
    first, last = (0, head) if record is None else (record, record + 1)
    numbered = 0
    for file in files:
        with open_file(file, on_corrupt, max_record, on_damage) as opened:
            for block in opened.frames:
                begin = max(first - numbered, 0)
                end = len(block) if last is None else min(last - numbered, len(block))
                if begin < end:
                    payloads = _kernel.payloads(block.buffer, block.bounds[begin : end + 1])
                    for number, payload in enumerate(payloads, begin):
                        offset = block.origin + int(block.bounds[number])
                        yield Shown(file, numbered + number, offset, payload)
                numbered += len(block)
                if last is not None and numbered >= last:
                    return
    if record is not None:
        raise _no_such(path, record, numbered)


def _has_table(files: list[str], on_corrupt: OnCorrupt) -> bool:
    """Whether there is a fresh table already: for one record of one file, none is made."""
    if storage.STDIN in files or on_corrupt != "fail":
        return False
    try:
        len(dataset.open(files, index="require"))
    except TableError:
        return False
    return True


def _chosen(data: dataset.Dataset, path: str, record: int | None, sample: int | None, seed: int) -> list[int]:
    if record is not None:
        if record >= len(data):
            raise _no_such(path, record, len(data))
        return [record]
    return sorted(random.Random(seed).sample(range(len(data)), min(sample or 0, len(data))))  # noqa: S311


def _by_number(data: dataset.Dataset, numbers: list[int]) -> Iterator[Shown]:
    for number in numbers:
        place = data.where(number)
        yield Shown(place.path, number, place.offset, data[number])


def _no_such(path: str, record: int, records: int) -> InputNotFoundError:
    return InputNotFoundError(f"{path}: there is no record {record}: it has {records:,}")
