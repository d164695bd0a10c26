"""Making tables: small files together, large plain ones in parts, compressed ones by their fragments.

Only lengths are looked at and checked (and, on the way, what is compressed): payloads are when they are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from croupier import _kernel, naming, storage
from croupier.codec.detect import Compression
from croupier.errors import DataError, StaleError, UsageError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.runtime import MIB, Runtime
from croupier.streams import open_file
from croupier.table import seekable
from croupier.table.identity import Identity, is_same, sample, stamp
from croupier.table.model import Kind, Table
from croupier.table.packed import Integers, Packer, integers

PART = 64 * MIB
"""Of a plain file, walked by one thread."""
_WAITING = 14
"""Threads beside those that compute: who walks from one header to the next of large records waits for the
device each time. 40,000 records of 100 KB took 0.95 s, on two cores, instead of 2.6."""
_LARGE, _HEAD = 32 << 10, 1 << 20
"""Bytes of such a record, and of a file's beginning that tells."""
TOGETHER = 1024
"""Files that one thread opens one after the other: a million tiny ones are a million times little work."""


@dataclass
class Holes:
    """Damage that was passed over: what stands between records, by the number of the record behind it."""

    files: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """For each file with damage: (record, bytes passed over before it), in order."""
    damage: list[Damage] = field(default_factory=list)


class _Survey(NamedTuple):
    columns: np.ndarray[tuple[int, int], np.dtype[np.uint64]]
    lengths: np.ndarray[tuple[int], np.dtype[np.uint16]]  # of files of 64 KiB at most


_KINDS = {Compression.NONE: Kind.PLAIN, Compression.GZIP: Kind.GZIP, Compression.ZLIB: Kind.ZLIB}
_RECORDS, _KIND, _WALKED, _ERRNO = range(5, 9)  # behind what an Identity has


def build(
    paths: Sequence[str],
    runtime: Runtime,
    on_corrupt: OnCorrupt = "fail",
    limit: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] = lambda damage: None,
) -> tuple[Table, Holes]:
    """The table of some files, in their order; there are holes only where damage may be passed over."""
    size = max(1, min(TOGETHER, len(paths) // (4 * runtime.workers)))
    batches = [paths[at : at + size] for at in range(0, len(paths), size)]
    runtime.phase("open", len(paths), "files")
    surveys: list[_Survey] = []
    names: list[str] = []
    for batch, survey in zip(
        batches, runtime.map(lambda one: _survey(one, limit, runtime), batches), strict=True
    ):
        surveys.append(survey)
        names += naming.split_folders(batch)[0]  # while the threads go on
    return _Maker(paths, names, surveys, runtime, on_corrupt, limit, on_damage).make()


def _survey(paths: Sequence[str], limit: int, runtime: Runtime) -> _Survey:
    runtime.check()
    columns, lengths = _kernel.survey(naming.packed(paths), limit)
    table = np.frombuffer(columns, np.uint64).reshape(9, len(paths))
    runtime.advance(len(paths), int(table[_RECORDS].sum()))
    return _Survey(table, np.frombuffer(lengths, np.uint64).astype(np.uint16))


class _Task(NamedTuple):
    row: int
    kind: Kind
    """What the file seems to be."""
    begin: int
    end: int


class _Part(NamedTuple):
    """What one thread found in (a part of) a file."""

    kind: Kind
    begin: int
    end: int
    why: int
    lengths: Integers
    fragments: seekable.Walk | None = None


class _Maker:
    """Puts together what the threads find, in the order of the files."""

    def __init__(
        self,
        paths: Sequence[str],
        names: Sequence[str],
        surveys: list[_Survey],
        runtime: Runtime,
        on_corrupt: OnCorrupt,
        limit: int,
        on_damage: Callable[[Damage], None],
    ) -> None:
        self._paths, self._names, self._surveys, self._runtime = paths, names, surveys, runtime
        self._policy, self._limit, self._on_damage = on_corrupt, limit, on_damage
        nothing = np.zeros((9, 0), np.uint64)
        self._columns = np.concatenate([nothing, *(one.columns for one in surveys)], axis=1)
        self._identity = Identity(*self._columns[:_RECORDS].copy())
        self._kind = np.full(len(paths), Kind.PLAIN, np.uint64)
        self._records, self._fragments = self._columns[_RECORDS].copy(), integers(len(paths))
        self._lengths, self._raw, self._stored = Packer(), Packer(), Packer()
        self._tasks_of: dict[int, list[_Task]] = {}
        self._holes = Holes()

    def make(self) -> tuple[Table, Holes]:
        self._refuse_unreadable()
        left = self._columns[_WALKED] == 0
        if self._policy in ("skip", "salvage"):  # payloads decide there, and nobody has looked at them
            left = np.ones_like(left)
        self._runtime.phase("index", int(self._identity.size[left].sum()))
        rows = np.flatnonzero(left).tolist()
        with self._runtime.beside(waiting=_WAITING if self._waits(rows) else 0) as threads:
            parts = threads.map(self._do, self._tasks(rows))
            row = 0
            for survey in self._surveys:
                files = survey.columns.shape[1]
                self._add_survey(survey, row, np.flatnonzero(left[row : row + files]).tolist(), parts)
                row += files
        packed = self._lengths.finish(), self._raw.finish(), self._stored.finish()
        columns = self._kind, self._identity, self._records, self._fragments
        return Table(self._names, *columns, *packed), self._holes

    def _waits(self, rows: list[int]) -> bool:
        """Whether who walks these files waits for the device: plain ones, of large records (in the first)."""
        plain = (self._columns[_KIND][rows] == _kernel.SURVEY_PLAIN).all()
        if not rows or not plain or self._policy != "fail":
            return False
        end = min(_HEAD, int(self._identity.size[rows[0]]))
        head = self._walk_plain(_Task(rows[0], Kind.PLAIN, 0, end), 0, sync=False)
        return head.end >= _LARGE * max(len(head.lengths), 1)

    def _refuse_unreadable(self) -> None:
        for row in np.flatnonzero(self._columns[_KIND] == _kernel.SURVEY_FAILED).tolist():
            path, number = self._paths[row], int(self._columns[_ERRNO][row])
            if not number:
                raise UsageError(f"{path}: not a regular file: only files have records by number")
            with storage.reporting("open", path):
                raise OSError(number, os.strerror(number))

    def _add_survey(self, survey: _Survey, row: int, others: list[int], parts: Iterator[_Part]) -> None:
        """Files that were surveyed together: runs of small ones at once, and the `others` one by one."""
        counts = survey.columns[_RECORDS]
        begin = taken = 0
        for other in [*others, len(counts)]:
            count = int(counts[begin:other].sum())
            self._lengths.add(survey.lengths[taken : taken + count].astype(np.uint64))
            taken += count
            if other < len(counts):
                taken += int(counts[other])
                self._add_file(row + other, parts)
            begin = other + 1

    # What is to be done about single files

    def _tasks(self, rows: list[int]) -> Iterator[_Task]:
        for row in rows:
            size, kind = int(self._identity.size[row]), self._seems(row)
            step = {Kind.PLAIN: PART, Kind.SEEKABLE: seekable.PART}.get(kind, size)
            if self._policy != "fail":
                step = size
            starts = range(0, max(size, 1), max(step, 1))
            self._tasks_of[row] = [_Task(row, kind, begin, min(begin + step, size)) for begin in starts]
            yield from self._tasks_of[row]

    def _seems(self, row: int) -> Kind:
        if self._columns[_KIND][row] == _kernel.SURVEY_PLAIN:
            return Kind.PLAIN
        path = self._paths[row]
        with storage.reporting("open", path), open(path, "rb") as file:
            ours = seekable.is_candidate(file.fileno(), int(self._identity.size[row]))
        return Kind.SEEKABLE if ours else Kind.GZIP

    def _do(self, task: _Task) -> _Part:
        """On a thread."""
        self._runtime.check()
        if self._policy == "fail" and task.kind is Kind.PLAIN:
            part = self._walk_plain(task, task.begin, sync=task.begin > 0)
        elif self._policy == "fail" and task.kind is Kind.SEEKABLE:
            part = self._walk_fragments(task, max(task.begin, seekable.HEAD), sync=task.begin > 0)
        else:
            part = self._stream(task.row)
        self._runtime.advance(task.end - task.begin, len(part.lengths))
        return part

    def _walk_plain(self, task: _Task, begin: int, *, sync: bool) -> _Part:
        path, size = self._paths[task.row], int(self._identity.size[task.row])
        with storage.reporting("read", path), open(path, "rb", buffering=0) as file:
            first, last, why, lengths = _kernel.walk(file.fileno(), size, begin, task.end, sync, self._limit)
        return _Part(Kind.PLAIN, first, last, why, np.frombuffer(lengths, np.uint64))

    def _walk_fragments(self, task: _Task, begin: int, *, sync: bool) -> _Part:
        path, size = self._paths[task.row], int(self._identity.size[task.row])
        try:
            with storage.reporting("read", path):
                walk = seekable.walk(path, size, begin, task.end, sync=sync, limit=self._limit)
        except seekable.NotSeekableError:
            return _Part(Kind.GZIP, begin, begin, _kernel.BAD_HEADER, integers(0))
        return _Part(Kind.SEEKABLE, walk.begin, walk.end, _kernel.FULL, walk.lengths, walk)

    def _stream(self, row: int) -> _Part:
        """All of a file from its beginning, whatever it is and whatever is to be done about damage."""
        path, lengths, holes = self._paths[row], [], []
        expected = records = 0
        with open_file(path, self._policy, self._limit, self._note) as opened:
            for block in opened.frames:
                self._runtime.check()
                begin = block.origin + int(block.bounds[0])
                if begin != expected:
                    holes.append((records, begin - expected))
                lengths.append(np.diff(block.bounds) - np.uint64(_kernel.FRAME_OVERHEAD))
                records += len(block)
                expected = block.origin + int(block.bounds[-1])
            kind = _KINDS[opened.compression]
        if holes:
            self._holes.files[row] = holes
        return _Part(kind, 0, expected, _kernel.FULL, np.concatenate([integers(0), *lengths]))

    def _note(self, damage: Damage) -> None:
        self._holes.damage.append(damage)
        self._on_damage(damage)

    # How the parts of a file fit together: each must begin where the one before ended

    def _add_file(self, row: int, parts: Iterator[_Part]) -> None:
        try:
            joined = self._joined(row, parts)
        except DataError:
            self._check_unchanged(row)
            raise
        self._check_unchanged(row)
        self._kind[row] = joined[0].kind
        self._records[row] = sum(len(part.lengths) for part in joined)
        for part in joined:
            self._lengths.add(part.lengths)
            if part.fragments is not None:
                self._fragments[row] += np.uint64(len(part.fragments.raw))
                self._raw.add(part.fragments.raw)
                self._stored.add(part.fragments.stored)

    def _joined(self, row: int, parts: Iterator[_Part]) -> list[_Part]:
        found = [next(parts)]  # which makes sure that the tasks of this file are known
        tasks = self._tasks_of.pop(row)
        found += [next(parts) for _ in tasks[1:]]
        joined: list[_Part] | None = found
        if self._policy == "fail" and tasks[0].kind is Kind.PLAIN:
            joined = self._join_plain(tasks, found)
        elif self._policy == "fail" and tasks[0].kind is Kind.SEEKABLE:
            joined = self._join_fragments(tasks, found)
        return [self._stream(row)] if joined is None else joined

    def _join_plain(self, tasks: list[_Task], found: list[_Part]) -> list[_Part]:
        joined, expected, records = [], 0, 0
        for task, part in zip(tasks, found, strict=True):
            if expected >= task.end > 0:  # a record from before covers all of this part
                continue
            if part.begin != expected:  # what was taken for a frame stands inside a payload
                part = self._walk_plain(task, expected, sync=False)
            expected, records = part.end, records + len(part.lengths)
            if part.why != _kernel.FULL:
                self._explain(self._paths[task.row], expected, records)
            joined.append(part)
        return joined

    def _explain(self, path: str, offset: int, record: int) -> None:
        """Raise what is wrong at a place where a frame should begin."""
        with open_file(path, "fail", self._limit, start=offset, record=record) as opened:
            for _ in opened.frames:
                break
        raise _busy(path)

    def _join_fragments(self, tasks: list[_Task], found: list[_Part]) -> list[_Part] | None:
        """None if the file is not of this kind after all."""
        joined, expected, crc, total = [], seekable.HEAD, 0, 0
        for task, part in zip(tasks, found, strict=True):
            if expected >= task.end:
                continue
            if part.fragments is None or part.begin != expected:
                part = self._walk_fragments(task, expected, sync=False)
            if part.fragments is None:
                return None
            joined.append(part)
            expected = part.end
            crc = isal_zlib.crc32_combine(crc, part.fragments.crc, part.fragments.size)
            total += part.fragments.size
        path, size = self._paths[tasks[0].row], int(self._identity.size[tasks[0].row])
        declared = struct.pack("<II", crc, total & 0xFFFFFFFF)
        whole = expected == size - seekable.TAIL and seekable.trailer(path, size) == declared
        return joined if whole and joined else None

    def _check_unchanged(self, row: int) -> None:
        path, then = self._paths[row], self._identity.row(row)
        with storage.reporting("open", path):
            if not is_same(then, stamp(os.stat(path)), lambda: sample(path, then[0])):
                raise _busy(path)


def _busy(path: str) -> StaleError:
    return StaleError(f"{path}: was written to while its table was made; try again when it is complete")
