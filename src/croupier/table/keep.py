"""Where tables are kept, and when a kept one is still right.

A folder's table is `.croupier/records.table`, one for all its files; where nothing can be written there, in
a cache folder. What is kept is a hint: a table that is damaged, or of files that are no longer the same, is
made again.

A file counts as the same when its size and time of modification are, and either its inode and time of change
are as well or sampled content is (a copied data set keeps its tables). Times of this very moment prove
nothing: within the clock's grain a file can change and keep them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from croupier import _kernel, storage
from croupier.errors import InputNotFoundError, StorageError, TableError
from croupier.runtime import Runtime
from croupier.table import format as on_disk
from croupier.table.model import Table, join
from croupier.table.packed import Integers

NAME = "records.table"
GRAIN = 2_000_000_000
"""Nanoseconds: the coarsest clock that a file system stamps with (FAT's; NFS's and HFS+'s are 1 s)."""


def kept_tables(paths: Sequence[str], runtime: Runtime) -> Table | None:
    """The table of these files in their order, if fresh ones of all of them are kept."""
    tables = []
    for folder, run in _by_folder(paths):
        kept = load(folder)
        if kept is None:
            return None
        table, made = kept
        names = _names(run)
        rows = _rows(table, names)
        if len(rows) < len(run):
            return None
        part = table.take(rows, names)
        if len(_fresh(run, part, made, runtime)) < len(run):
            return None
        tables.append(part)
    return join(tables)


def missing(paths: Sequence[str], runtime: Runtime) -> list[str]:
    """Those of the files that have no fresh table."""
    fresh: set[str] = set()
    for folder, run in _by_folder(paths):
        try:
            kept = load(folder)
        except TableError:
            continue
        if kept is not None:
            table, made = kept
            known = set(table.names)
            run = [path for path in run if os.path.basename(path) in known]
            names = _names(run)
            fresh.update(_fresh(run, table.take(_rows(table, names), names), made, runtime))
    return [path for path in paths if path not in fresh]


def load(folder: str) -> tuple[Table, int] | None:
    """A folder's kept table and when it was made; None where there is none.

    The later one where there are two: in a folder that can no longer be written to, the one beside the files
    stays as it was.
    """
    kept, problem = [], None
    for place in (_beside(folder), _in_cache(folder)):
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


def save(paths: Sequence[str], table: Table) -> list[str]:
    """Keep the table of these files, beside those of others in their folders; gives where, or nothing."""
    number = {path: row for row, path in enumerate(paths)}
    kept = []
    for folder, run in _by_folder(sorted(number, key=_folder_and_name)):
        part = table.take(np.array([number[path] for path in run], np.uint64), _names(run))
        for place in (_beside(folder), _in_cache(folder)):
            try:
                storage.make_folder(place)
                with _locked(place):
                    content = on_disk.dump(_with_others(folder, part), time.time_ns())
                    storage.write_file(os.path.join(place, NAME), content)
            except StorageError:
                continue
            kept.append(os.path.join(place, NAME))
            break
    return kept


def _with_others(folder: str, part: Table) -> Table:
    """The new rows and the kept ones of the folder's other files, by name."""
    try:
        kept = load(folder)
    except TableError:
        kept = None
    if kept is None:
        return part
    old, ours = kept[0], set(part.names)
    others = [row for row, name in enumerate(old.names) if name not in ours]
    others = [row for row in others if os.path.exists(os.path.join(folder, old.names[row]))]
    if not others:
        return part
    both = join([part, old.take(np.array(others, np.uint64), [old.names[row] for row in others])])
    names = list(both.names)
    order = sorted(range(len(names)), key=lambda row: os.fsencode(names[row]))
    return both.take(np.array(order, np.uint64), [names[row] for row in order])


def _folder_and_name(path: str) -> tuple[bytes, bytes]:
    folder, name = os.path.split(os.fsencode(path))
    return folder, name


def _by_folder(paths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Runs of files in the same folder."""
    for folder, run in groupby(paths, key=os.path.dirname):
        yield folder, list(run)


def _names(paths: Sequence[str]) -> list[str]:
    return [os.path.basename(path) for path in paths]


def _rows(table: Table, names: list[str]) -> Integers:
    """Where these files are in a table; fewer where one is missing."""
    if list(table.names) == names:
        return np.arange(len(names), dtype=np.uint64)
    number = {name: row for row, name in enumerate(table.names)}
    return np.array([number[name] for name in names if name in number], np.uint64)


def _fresh(paths: list[str], table: Table, made: int, runtime: Runtime) -> list[str]:
    """Those of the files that are what they were when their rows in the table were made."""
    step = 4096

    def check(begin: int) -> list[str]:
        runtime.check()
        part = slice(begin, begin + step)
        rows = zip(paths[part], *(column[part].tolist() for column in table.identity), strict=True)
        return [row[0] for row in rows if _is_fresh(*row, made=made)]

    starts = range(0, len(paths), step)
    checked = map(check, starts) if len(starts) < 2 else runtime.map(check, starts)
    return [path for part in checked for path in part]


def _is_fresh(
    path: str, size: int, modified: int, changed: int, inode: int, digest: int, *, made: int
) -> bool:
    try:
        now = os.stat(path)
        if (now.st_size, now.st_mtime_ns % (1 << 64)) != (size, modified):
            return False
        settled = max(now.st_mtime_ns, now.st_ctime_ns) + GRAIN < made
        if settled and (now.st_ctime_ns % (1 << 64), now.st_ino) == (changed, inode):
            return True
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return _kernel.digest(fd, size) == digest
        finally:
            os.close(fd)
    except OSError:
        return False  # said when it is opened


def _beside(folder: str) -> str:
    return os.path.join(folder, storage.SIDE_FOLDER)


def _in_cache(folder: str) -> str:
    """For folders that cannot be written to."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    key = hashlib.sha256(os.fsencode(os.path.realpath(folder or "."))).hexdigest()[:32]
    return os.path.join(root, "croupier", "tables", key)


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
        os.close(fd)
