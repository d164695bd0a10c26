"""The tables of files that are just being written: known on the way, so that nobody has to look for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from croupier import _kernel, storage
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
        """Once the file has its name."""
        size, modified, changed, inode = np.frombuffer(_kernel.stamps([path]), np.uint64).tolist()
        columns = [kind, size, modified, changed, inode, sample(path, size), self._records, self._fragments]
        kinds, *identity, records, fragments = (np.array([one], np.uint64) for one in columns)
        packed = self._lengths.finish(), self._raw.finish(), self._stored.finish()
        names = storage.names_in_folders([path])
        return Table(names, kinds, Identity(*identity), records, fragments, *packed)


def keep_new(paths: Sequence[str], kind: Kind, indexes: Sequence[FileIndex]) -> None:
    """Keep the tables of files that were just published, where that can be done: they are hints."""
    try:
        tables = [index.table(path, kind) for path, index in zip(paths, indexes, strict=True)]
        keep.save(paths, join(tables))
    except OSError:
        return
