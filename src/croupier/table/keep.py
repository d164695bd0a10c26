"""Where tables are kept, and when a kept one is still right.

A folder's table is `.croupier/records.table`, one for all its files; where nothing can be written there, in
a cache folder. What is kept is a hint: a table that is damaged, or of files that are no longer the same, is
made again.

Times of this very moment prove nothing: within the clock's grain a file can change and keep them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from croupier import _kernel, naming, storage
from croupier.errors import InputNotFoundError, StorageError, TableError
from croupier.runtime import Runtime
from croupier.table import format as on_disk
from croupier.table.identity import Identity, sample
from croupier.table.model import Table, join
from croupier.table.packed import Integers, Rows

NAME = "records.table"
GRAIN = 2_000_000_000
"""Nanoseconds: the coarsest clock that a file system stamps with (FAT's; NFS's and HFS+'s are 1 s)."""

Places = list[range]
"""Of some among many files: runs of neighbours."""


class Kept(NamedTuple):
    """What was found of some files."""

    known: Rows
    """Those with a fresh table, by their place among the files."""
    table: Table
    """Of these, in their order."""
    unknown: Rows
    """The others."""
    problem: TableError | None
    """What was wrong with a damaged table."""


def look_up(paths: Sequence[str], runtime: Runtime) -> Kept:
    """The fresh tables of files that are kept."""
    names, runs = naming.split_folders(paths)
    there = np.zeros(len(paths), np.bool_)
    known: list[Rows] = []
    tables: list[Table] = []
    problem = None
    for folder, places in _by_folder(runs).items():
        try:
            kept = load(folder)
        except TableError as error:
            problem = error
            continue
        if kept is None:
            continue
        table, made = kept
        found, rows = _rows(table, names, places)
        fresh = _fresh(_some(paths, found), table.identity.take(rows), made, runtime)
        if len(fresh) < len(found):
            found, rows = found[fresh], rows[fresh]
        tables.append(table.take(rows, _some(names, found)))
        there[found] = True
        known.append(found)
    return Kept(np.concatenate([_NO_ROWS, *known]), join(tables), np.flatnonzero(~there), problem)


def _some(names: Sequence[str], numbers: Rows) -> Sequence[str]:
    """Those of ascending numbers."""
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):  # nearly always
        return names[numbers[0] : numbers[-1] + 1]
    return [names[number] for number in numbers.tolist()]


_NO_ROWS = np.empty(0, np.intp)


def _rows(table: Table, names: Sequence[str], places: Places) -> tuple[Rows, Integers]:
    """Which of the files in these places a folder's table has, and in which rows."""
    numbers = np.concatenate([np.arange(some.start, some.stop) for some in places])
    if len(places) == 1 and names[places[0].start : places[0].stop] == table.names:  # nearly always
        return numbers, np.arange(len(table), dtype=np.uint64)
    row_of = {name: row for row, name in enumerate(table.names)}
    rows = [row_of.get(names[number], -1) for number in numbers.tolist()]
    found = np.array(rows, np.intp)
    return numbers[found >= 0], found[found >= 0].astype(np.uint64)


def load(folder: str) -> tuple[Table, int] | None:
    """A folder's kept table and when it was made; None where there is none.

    The later one where there are two: in a folder that can no longer be written to, the one beside the files
    stays as it was.
    """
    kept, problem = [], None
    for place in storage.side_folders(folder):
        path = os.path.join(place, NAME)
        try:
            with storage.reporting("open", path):
                content = _content(path)
            kept.append(on_disk.load(content, path))
        except (InputNotFoundError, StorageError):  # none there, or not ours to read
            continue
        except TableError as error:
            problem = error
    if problem is not None and not kept:
        raise problem
    return max(kept, key=lambda one: one[1], default=None)


def _content(path: str) -> Integers:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer must not hang
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise TableError(f"{path}: is not a file, where an offset table should be; delete it")
        with open(fd, "rb", closefd=False) as file:
            content = np.empty(status.st_size // 8, np.uint64)
            got = file.readinto(content.data.cast("B"))
    finally:
        os.close(fd)
    if status.st_size % 8 or got != status.st_size:
        raise TableError(f"{path}: this offset table is damaged (its size is impossible); delete it")
    return content


def save(paths: Sequence[str], table: Table, runtime: Runtime | None = None) -> list[str]:
    """Keep the table of these files, beside those of others in their folders; gives where, or nothing."""

    def save_one(item: tuple[str, Places]) -> str | None:
        folder, places = item
        rows = np.concatenate([np.arange(some.start, some.stop, dtype=np.uint64) for some in places])
        part = table.take(rows, [name for some in places for name in table.names[some.start : some.stop]])
        for place in storage.side_folders(folder):
            try:
                storage.make_folder(place)
                with _locked(place):
                    storage.sweep(place, [NAME])
                    content = on_disk.dump(_sorted(_with_others(folder, part)), time.time_ns())
                    storage.write_file(os.path.join(place, NAME), content)
            except StorageError:
                continue
            return os.path.join(place, NAME)
        return None

    folders = _by_folder(naming.folders_of(paths, table.names)).items()
    # At the same time where there are many: each waits for the device, to which it is flushed.
    saved = map(save_one, folders) if runtime is None else runtime.map(save_one, folders)
    return [path for path in saved if path is not None]


def _with_others(folder: str, part: Table) -> Table:
    """The new rows, and the kept ones of the folder's other files that are still there."""
    try:
        kept = load(folder)
    except TableError:
        kept = None
    if kept is None or kept[0].names == part.names:
        return part
    old, ours = kept[0], set(part.names)
    others = [row for row, name in enumerate(old.names) if name not in ours]
    there = _stamps([folder + old.names[row] for row in others])[0] != _NOTHING
    others = [row for row, here in zip(others, there.tolist(), strict=True) if here]
    return join([part, old.take(np.array(others, np.uint64), [old.names[row] for row in others])])


def _sorted(table: Table) -> Table:
    names = naming.in_byte_order(table.names)
    if names == list(table.names):
        return table
    row_of = {name: row for row, name in enumerate(table.names)}
    return table.take(np.array([row_of[name] for name in names], np.uint64), names)


def _by_folder(runs: Iterable[tuple[str, int]]) -> dict[str, Places]:
    """For each folder (with its slash) which of the files are in it."""
    places: dict[str, Places] = {}
    end = 0
    for folder, count in runs:
        begin, end = end, end + count
        before = places.setdefault(folder, [])
        if before and before[-1].stop == begin:
            before[-1] = range(before[-1].start, end)
        else:
            before.append(range(begin, end))
    return places


def _fresh(paths: Sequence[str], identity: Identity, made: int, runtime: Runtime) -> Rows:
    """The places of files that are what they were when a table was made."""
    step = 4096

    def check(begin: int) -> Rows:
        runtime.check()
        part = slice(begin, begin + step)
        rows, now = np.stack([column[part] for column in identity]), _stamps(paths[part])
        alike = (rows[:2] == now[:2]).all(axis=0)
        settled = now[1:3].view(np.int64).max(axis=0) < made - GRAIN
        sure = alike & settled & (rows[2:4] == now[2:]).all(axis=0)
        doubtful = np.flatnonzero(alike & ~sure).tolist()
        sure[[place for place in doubtful if _has_digest(paths[begin + place], *rows[[0, 4], place])]] = True
        return begin + np.flatnonzero(sure)

    starts = range(0, len(paths), step)
    checked = map(check, starts) if len(starts) < 2 else runtime.map(check, starts)
    return np.concatenate([_NO_ROWS, *checked])


_NOTHING = np.uint64((1 << 64) - 1)


def _stamps(paths: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    """Sizes, times of modification and of change, inodes: all _NOTHING where there is no such file."""
    return np.frombuffer(_kernel.stamps(naming.packed(paths)), np.uint64).reshape(4, len(paths))


def _has_digest(path: str, size: np.uint64, digest: np.uint64) -> bool:
    try:
        return sample(path, int(size)) == int(digest)
    except OSError:
        return False  # said when it is opened


@contextlib.contextmanager
def _locked(place: str) -> Iterator[None]:
    """One process at a time merges its rows into a folder's table; without locks, the last one wins."""
    with storage.reporting("lock", place):
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        storage.close(fd)
