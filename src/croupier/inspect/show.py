"""Records of a file, one at a time, with where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from croupier import _kernel, storage
from croupier.errors import InputNotFoundError, UsageError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.streams import open_file


class Shown(NamedTuple):
    """One record."""

    record: int
    offset: int
    """Where its frame begins, in decompressed bytes."""
    payload: bytes


def show(
    path: str,
    *,
    head: int | None = None,
    record: int | None = None,
    on_corrupt: OnCorrupt = "fail",
    max_record: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] = lambda damage: None,
) -> Iterator[Shown]:
    """The first `head` records of a file (None: all), or only number `record`."""
    files = storage.expand(path)
    if len(files) != 1:
        raise UsageError(f"{path}: names {len(files)} files; show looks into one")
    first, last = (0, head) if record is None else (record, record + 1)
    with open_file(files[0], on_corrupt, max_record, on_damage) as opened:
        for block in opened.frames:
            begin = max(first - block.record, 0)
            end = len(block) if last is None else min(last - block.record, len(block))
            if begin < end:
                payloads = _kernel.payloads(block.buffer, block.bounds[begin : end + 1])
                for number, payload in enumerate(payloads, begin):
                    offset = block.origin + int(block.bounds[number])
                    yield Shown(block.record + number, offset, payload)
            if last is not None and block.record + len(block) >= last:
                return
        if record is not None:
            raise InputNotFoundError(f"{path}: there is no record {record}: it has {opened.frames.records:,}")
