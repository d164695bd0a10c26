"""A table in memory: for each of some files, where its records stand."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from croupier import _kernel
from croupier.frames import OVERHEAD
from croupier.table.identity import Identity
from croupier.table.packed import Integers, Packed, Packer, integers

STEP = 1 << 16  # lengths that are unpacked at once when a table is put together from others


class Kind(enum.IntEnum):
    """How a file's records are reached."""

    PLAIN = 0
    SEEKABLE = 1
    """Gzip in fragments of whole frames, as `croupier.writer` makes it."""
    GZIP = 2
    """Any other gzip: streamed from its beginning."""
    ZLIB = 3


@dataclass(frozen=True)
class Table:
    """Files in the order of `names`; their records one behind the other, and so their fragments."""

    names: Sequence[str]
    kind: Integers
    identity: Identity
    records: Integers
    """How many, of each file."""
    fragments: Integers
    """How many, of each file; zero where there are none to enter at."""
    lengths: Packed
    """Of every record's payload."""
    raw: Packed
    """Of every fragment, when inflated."""
    stored: Packed
    """Of every fragment, in the file."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def firsts(self) -> Integers:
        """The number of each file's first record, and of all records."""
        return edges(self.records)

    @cached_property
    def bases(self) -> Integers:
        """The sum of all lengths before each file's."""
        return self.lengths.sums_before(self.firsts[:-1])

    @cached_property
    def fragment_firsts(self) -> Integers:
        """The number of each file's first fragment, and of all fragments."""
        return edges(self.fragments)

    @cached_property
    def raw_bases(self) -> Integers:
        """The sum of all fragments' inflated sizes before each file's."""
        return self.raw.sums_before(self.fragment_firsts[:-1])

    @cached_property
    def stored_bases(self) -> Integers:
        """The sum of all fragments' sizes before each file's."""
        return self.stored.sums_before(self.fragment_firsts[:-1])

    @cached_property
    def payload_bytes(self) -> Integers:
        """Of each file."""
        return _differences(self.lengths, self.firsts)

    @cached_property
    def stream_bytes(self) -> Integers:
        """Of each file, decompressed."""
        return self.payload_bytes + np.uint64(OVERHEAD) * self.records

    def locate(self, records: Integers, threads: int = 1) -> tuple[Integers, Integers, Integers]:
        """(file, offset in its decompressed stream, payload bytes) of each record."""
        file, offset, length = (np.empty(len(records), np.uint64) for _ in range(3))
        _kernel.locate(self.lengths, self.firsts, self.bases, records, file, offset, length, threads)
        return file, offset, length

    def check(self) -> None:
        """ValueError where the parts contradict each other; what reads by this table relies on it."""
        files = len(self)
        columns = (self.kind, *self.identity, self.records, self.fragments)
        if any(len(column) != files for column in columns):
            raise ValueError("the columns differ in length")
        _check_sum(self.records, self.lengths.size, "records")
        _check_sum(self.fragments, self.raw.size, "fragments")
        _check_sum(self.fragments, self.stored.size, "fragments")
        if (self.kind > max(Kind)).any():
            raise ValueError("there is no such kind of file")
        plain, seekable = self.kind == Kind.PLAIN, self.kind == Kind.SEEKABLE
        if (self.fragments[~seekable] != 0).any():
            raise ValueError("only seekable gzip has fragments")
        if self.lengths.total + OVERHEAD * self.lengths.size >= 1 << 63:
            raise ValueError("the records are too large")
        if (self.stream_bytes[plain] != self.identity.size[plain]).any():
            raise ValueError("the records do not cover their file")
        if (self.stream_bytes // np.uint64(DEFLATE_MOST) > self.identity.size)[~plain].any():
            raise ValueError("the records are larger than what their file can inflate to")
        raw = _differences(self.raw, self.fragment_firsts)
        stored = _differences(self.stored, self.fragment_firsts)
        if (raw[seekable] != self.stream_bytes[seekable]).any():
            raise ValueError("the fragments do not cover the records")
        if (stored[seekable] + np.uint64(SEEKABLE_ENDS) != self.identity.size[seekable]).any():
            raise ValueError("the fragments do not cover their file")

    def take(self, rows: Integers, names: Sequence[str]) -> Table:
        """Some of the files, in this order, under these names."""
        if len(rows) == len(self) and (rows == np.arange(len(self), dtype=np.uint64)).all():
            return self if names is self.names else _renamed(self, names)
        return join([_part(self, rows, names)])


def _renamed(table: Table, names: Sequence[str]) -> Table:
    values = {name: getattr(table, name) for name in table.__dataclass_fields__}
    return Table(**values | {"names": names})


def _part(table: Table, rows: Integers, names: Sequence[str]) -> Table:
    """Some of the files: packed anew, a run of neighbours at a time."""
    packers = [
        (Packer(), table.lengths, table.firsts),
        (Packer(), table.raw, table.fragment_firsts),
        (Packer(), table.stored, table.fragment_firsts),
    ]
    cuts = np.flatnonzero(np.diff(rows.astype(np.int64)) != 1) + 1
    for run in np.split(rows, cuts):
        if len(run):
            for packer, whole, firsts in packers:
                _copy(packer, whole, int(firsts[run[0]]), int(firsts[run[-1] + np.uint64(1)]))
    parts = [packer.finish() for packer, _, _ in packers]
    return Table(
        names,
        table.kind[rows],
        table.identity.take(rows),
        table.records[rows],
        table.fragments[rows],
        *parts,
    )


def join(tables: Sequence[Table]) -> Table:
    """One table of several, their files one behind the other."""
    tables = [table for table in tables if len(table)]
    if len(tables) == 1:
        return tables[0]
    packers = Packer(), Packer(), Packer()
    for table in tables:
        for packer, whole in zip(packers, (table.lengths, table.raw, table.stored), strict=True):
            _copy(packer, whole, 0, whole.size)
    columns = ([table.identity[i] for table in tables] for i in range(len(Identity._fields)))
    identity = Identity(*map(_concat, columns))
    return Table(
        [name for table in tables for name in table.names],
        _concat([table.kind for table in tables]),
        identity,
        _concat([table.records for table in tables]),
        _concat([table.fragments for table in tables]),
        *(packer.finish() for packer in packers),
    )


DEFLATE_MOST = 1032
"""Bytes that one byte of deflate stands for at the most."""

SEEKABLE_ENDS = 20
"""Bytes of a seekable gzip file that are no fragment's: its header, its empty last block, its trailer."""


def edges(counts: Integers) -> Integers:
    """Where each of them begins, and where the last ends, when they stand one behind the other."""
    result = integers(len(counts) + 1)
    np.cumsum(counts, out=result[1:])
    return result


def _check_sum(counts: Integers, total: int, what: str) -> None:
    # The largest first: a sum that wraps around must not look right.
    if (len(counts) and int(counts.max()) > total) or int(counts.sum(dtype=np.float64)) > 2 * total + 1:
        raise ValueError(f"the files have more {what} than there are")
    if int(counts.sum()) != total:
        raise ValueError(f"the files have fewer or more {what} than there are")


def _differences(packed: Packed, firsts: Integers) -> Integers:
    return np.diff(packed.sums_before(firsts))


def _concat(columns: Sequence[Integers]) -> Integers:
    return np.concatenate([integers(0), *columns])


def _copy(packer: Packer, whole: Packed, begin: int, end: int) -> None:
    for first in range(begin, end, STEP):
        packer.add(whole.part(first, min(STEP, end - first)))
