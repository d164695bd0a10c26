"""The tables of files that are just being written: known on the way, so that nobody has to look for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from croupier import _kernel, naming, storage
from croupier.frames import OVERHEAD
from croupier.table import keep
from croupier.table.identity import Identity, sample
from croupier.table.model import Kind, Table, join
from croupier.table.packed import Integers, Packer


class FileIndex:
    """Records and fragments of one file, as they come."""

    def __init__(self) -> None:
        self._lengths, self._raw, self._stored = Packer(), Packer(), Packer()
        self._records = self._fragments = 0

    def add(self, bounds: Integers, edges: Sequence[int], stored: Sequence[int]) -> None:
        """Frames between `bounds`; fragments, if there are any, end at `edges` and take `stored` bytes."""
        self._lengths.add(bounds[1:] - bounds[:-1] - np.uint64(OVERHEAD))
        self._records += len(bounds) - 1
        if stored:
            cuts = np.array(edges, np.uint64)
            self._raw.add(cuts[1:] - cuts[:-1])
            self._stored.add(np.array(stored, np.uint64))
            self._fragments += len(stored)

    def table(self, path: str, kind: Kind) -> Table:
        """Once the file is complete."""
        columns = [kind, *_stamp(path), self._records, self._fragments]
        kinds, *identity, records, fragments = (np.array([one], np.uint64) for one in columns)
        packed = self._lengths.finish(), self._raw.finish(), self._stored.finish()
        names, _ = naming.split_folders([path])
        return Table(names, kinds, Identity(*identity), records, fragments, *packed)


def _stamp(path: str) -> list[int]:
    with storage.reporting("read", path):
        size, modified, changed, inode = np.frombuffer(
            _kernel.stamps(naming.packed([path])), np.uint64
        ).tolist()
        return [size, modified, changed, inode, sample(path, size)]


def keep_new(paths: Sequence[str], tables: Iterable[Table]) -> None:
    """Keep the tables of files that have just got these names, where that can be done: they are hints."""
    try:
        named = [_named(table, path) for path, table in zip(paths, tables, strict=True)]
        keep.save(paths, join(named))
    except OSError:
        return


def _named(table: Table, path: str) -> Table:
    identity = Identity(*(np.array([one], np.uint64) for one in _stamp(path)))
    return replace(table, names=naming.split_folders([path])[0], identity=identity)
