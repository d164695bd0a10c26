"""What a dataset is made of: files, how they were opened, and their table once it is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Literal

from croupier import _kernel, streams
from croupier.dataset.files import Files
from croupier.errors import StaleError, TableError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt
from croupier.runtime import Progress, Runtime
from croupier.table import keep
from croupier.table.build import Holes, build
from croupier.table.model import Table

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

    def files(self) -> Files:
        """The files with their table."""
        if self.known is None:
            with self._lock:
                if self.known is None:
                    table, holes = self._find()
                    self._compare(table)
                    self.known = Files(
                        self.paths,
                        table,
                        holes,
                        verify=self.verify,
                        on_corrupt=self.on_corrupt,
                        limit=self.limit,
                    )
        return self.known

    def _find(self) -> tuple[Table, Holes]:
        with Runtime(progress=self.progress) as runtime:
            if self.on_corrupt != "fail":  # what is kept describes whole files alone
                return build(self.paths, runtime, self.on_corrupt, self.limit, self.on_damage)
            try:
                kept = keep.kept_tables(self.paths, runtime)
            except TableError:
                if self.index == "require":
                    raise
                kept = None
            if kept is None and self.index == "require":
                stale = keep.missing(self.paths, runtime)
                raise TableError(
                    f"{stale[0]}: has no fresh offset table (nor have {len(stale) - 1} others): "
                    "make it with `croupier index`"
                )
            if kept is None and self.index == "auto":
                make_tables(self.paths, runtime, self.limit)
                kept = keep.kept_tables(self.paths, runtime)
            if kept is None:
                return build(self.paths, runtime, "fail", self.limit)
            return kept, Holes()

    def _compare(self, table: Table) -> None:
        if self.expected and self.expected != fingerprint(table):
            problem = "these files are not those that were pickled: they have other sizes or counts"
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


def fingerprint(table: Table) -> int:
    """Of the files' sizes and counts."""
    return 1 + _kernel.crc32c(table.records.tobytes() + table.identity.size.tobytes())


def make_tables(
    paths: list[str], runtime: Runtime, limit: int = MAX_RECORD, *, force: bool = False
) -> tuple[list[str], list[str]]:
    """Make and keep the tables that are missing: (files that were indexed, where tables are kept)."""
    stale = paths if force else keep.missing(paths, runtime)
    if not stale:
        return [], []
    table, _ = build(stale, runtime, "fail", limit)
    return stale, keep.save(stale, table)
