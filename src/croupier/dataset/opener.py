"""What a dataset is made of: files, how they were opened, and their table once it is needed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from croupier import _kernel, streams
from croupier.dataset.files import Files
from croupier.errors import StaleError, TableError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.runtime import Progress, Runtime
from croupier.table import keep
from croupier.table.build import Holes, build
from croupier.table.model import Table, join

Index = Literal["auto", "memory", "require"]
"""Where the offset table comes from: `auto` uses a fresh one that is kept beside the data, else makes one at
the first need and keeps it where it can; `memory` makes one if need be, but writes nothing; `require` makes
none."""


class Opener:
    """Opens the files at the first need; what a pickled dataset is made of."""

    def __init__(
        self,
        paths: list[str],
        verify: bool,
        index: Index,
        on_corrupt: OnCorrupt,
        limit: int,
        on_damage: Callable[[Damage], None] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.paths, self.verify, self.index = paths, verify, index
        self.on_corrupt, self.limit = on_corrupt, limit
        self.on_damage = on_damage or streams.warn
        self.progress = progress
        self.known: Files | None = None
        self.expected = 0  # a fingerprint of what a pickled dataset was
        self._lock = threading.Lock()
        _ALL.add(self)

    def after_fork(self) -> None:
        """In the child: a thread that was making the table is not there to unlock."""
        self._lock = threading.Lock()

    def files(self) -> Files:
        """The files with their table."""
        known = self.known
        if known is None:
            with self._lock:
                known = self.known
                if known is None:
                    table, holes = self._find()
                    self._compare(table)
                    known = self.know(table, holes)
        return known

    def know(self, table: Table, holes: Holes) -> Files:
        """Use this table."""
        policy = self.on_corrupt
        self.known = Files(self.paths, table, holes, verify=self.verify, on_corrupt=policy, limit=self.limit)
        return self.known

    def _find(self) -> tuple[Table, Holes]:
        with Runtime(progress=self.progress) as runtime:
            if self.on_corrupt != "fail":  # what is kept describes whole files alone
                return build(self.paths, runtime, self.on_corrupt, self.limit, self.on_damage)
            kept = keep.look_up(self.paths, runtime)
            if len(kept.unknown) and self.index == "require":
                raise kept.problem or TableError(
                    f"{self.paths[kept.unknown[0]]}: has no fresh offset table (nor have "
                    f"{len(kept.unknown) - 1:,} others): make it with `croupier index`"
                )
            paths, tables = [self.paths[number] for number in kept.unknown.tolist()], [kept.table]
            if paths:
                made, _ = build(paths, runtime, "fail", self.limit)
                tables.append(made)
                if self.index == "auto":
                    keep.save(paths, made, runtime)
            table, order = join(tables), np.argsort(np.concatenate([kept.known, kept.unknown]))
            if (order[1:] > order[:-1]).all():  # nearly always
                return table, Holes()
            return table.take(order.astype(np.uint64), [table.names[row] for row in order.tolist()]), Holes()

    def _compare(self, table: Table) -> None:
        if self.expected and self.expected != fingerprint(table):
            problem = "these files are not those that were pickled: they have other sizes, counts or content"
            raise StaleError(f"{self.paths[0]}: {problem}")

    def __reduce__(self) -> tuple[Any, ...]:
        options = self.paths, self.verify, self.index, self.on_corrupt, self.limit
        return _restore, (*options, fingerprint(self.known.table) if self.known else self.expected)


def _restore(
    paths: list[str], verify: bool, index: Index, on_corrupt: OnCorrupt, limit: int, expected: int
) -> Opener:
    opener = Opener(paths, verify, index, on_corrupt, limit)
    opener.expected = expected
    return opener


def join_openers(openers: Sequence[Opener]) -> Opener:
    """Of all their files, each once. Their tables are put together, so nothing is read again."""
    seen: dict[str, tuple[int, ...]] = {}
    paths: list[str] = []
    tables, holes = [], Holes()
    for opener in openers:
        files = opener.files()
        table, rows = files.table, []
        columns = (table.records, table.identity.size, table.identity.modified, table.identity.digest)
        states = zip(*(column.tolist() for column in columns), strict=True)
        for row, (path, state) in enumerate(zip(opener.paths, states, strict=True)):
            if seen.setdefault(path, state) != state:
                raise StaleError(f"{path}: was changed between the times when the datasets were opened")
            if len(seen) > len(paths):
                if row in files.holes.files:
                    holes.files[len(paths)] = files.holes.files[row]
                paths.append(path)
                rows.append(row)
        tables.append(table.take(np.array(rows, np.uint64), [table.names[row] for row in rows]))
    first = openers[0]
    options = first.verify, first.index, first.on_corrupt, first.limit, first.on_damage, first.progress
    opener = Opener(paths, *options)
    opener.know(join(tables), holes)
    return opener


def fingerprint(table: Table) -> int:
    """Of the files' sizes, counts and sampled content; copies of them have the same."""
    columns = table.records, table.identity.size, table.identity.digest
    return 1 + _kernel.crc32c(b"".join(column.tobytes() for column in columns))


def make_tables(
    paths: list[str], runtime: Runtime, limit: int = MAX_RECORD, *, force: bool = False
) -> tuple[list[str], list[str]]:
    """Make and keep the tables that are missing: (files that were indexed, where tables are kept)."""
    unknown = paths if force else [paths[number] for number in keep.look_up(paths, runtime).unknown.tolist()]
    if not unknown:
        return [], []
    table, _ = build(unknown, runtime, "fail", limit)
    return unknown, keep.save(unknown, table, runtime)


_ALL: weakref.WeakSet[Opener] = weakref.WeakSet()


def _after_fork() -> None:
    for opener in list(_ALL):
        opener.after_fork()


os.register_at_fork(after_in_child=_after_fork)
