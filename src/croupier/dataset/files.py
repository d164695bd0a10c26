"""Files with their table: reading records of any of them by number, together."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from croupier import _kernel, storage
from croupier.batch import Batch, make_room
from croupier.dataset.compressed import Fragments, Streams, blocks_of
from croupier.errors import HeaderError, PayloadError, StaleError, StorageError
from croupier.frames import HEADER, OVERHEAD, OnCorrupt
from croupier.runtime import available_memory, usable_cpus
from croupier.table.build import Holes
from croupier.table.identity import is_same
from croupier.table.model import Kind, Table, edges
from croupier.table.packed import Integers, Octets, Rows, distinct

Request = tuple[Integers, Integers, Integers, Integers]
"""Of many records: file, offset, length, and where the payload belongs."""

MOST_OPEN = 4096
"""Files that one dataset keeps open, where that is no more than a quarter of what the process may open."""


class Files:
    """Read-only; any number of threads may read at once, and so may forked children."""

    def __init__(
        self,
        paths: Sequence[str],
        table: Table,
        holes: Holes,
        *,
        verify: bool,
        on_corrupt: OnCorrupt,
        limit: int,
    ) -> None:
        self.paths, self.table, self.verify, self.holes = paths, table, verify, holes
        self._holes = _Skips(table, holes) if holes.files else None
        self._threads = usable_cpus()
        self.policy, self.limit = on_corrupt, limit
        self._kinds: list[int] = np.flatnonzero(np.bincount(table.kind.astype(np.intp))).tolist()
        self._open: OrderedDict[int, _kernel.File] = OrderedDict()
        self._fragments = Fragments(self, self._threads)
        self._streams = Streams(self)
        self._cold, self._past_cache = 0, False
        # A thousand shards are usual, and to open them anew for each batch makes reading 20 times slower. But
        # so is a limit of 1,024, of which others need some, too.
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_open = MOST_OPEN if allowed < 0 else min(max(allowed // 4, 16), MOST_OPEN)
        self._lock = threading.Lock()
        _ALL.add(self)

    def after_fork(self) -> None:
        """In the child: locks that another thread held are held for ever, and file positions are shared."""
        self._lock = threading.Lock()
        self._fragments.after_fork()
        self._streams.after_fork()

    def locate(self, records: Integers) -> tuple[Integers, Integers, Integers]:
        """(file, offset in its decompressed stream, payload bytes) of each record."""
        file, offset, length = self.table.locate(records, self._threads)
        if self._holes is not None:
            offset += self._holes.before(records)
        return file, offset, length

    def read(self, records: Integers) -> Batch:
        """The payloads, in this order."""
        file, offset, length = self.locate(records)
        bounds = edges(length)
        out = make_room(int(bounds[-1]))
        places = bounds[:-1]
        for kind, chosen in self._by_kind(file):
            part = file[chosen], offset[chosen], length[chosen], places[chosen]
            if kind == Kind.PLAIN:
                self._fetch(*part, out)
            elif kind == Kind.SEEKABLE:
                self._fragments.read(*part, out)
            else:
                self._streams.read(part[0], records[chosen] - self.table.firsts[part[0]], *part[2:], out)
        return Batch(out, bounds.view(np.int64))

    def read_frames(self, records: Integers, out: Octets) -> Integers:
        """Whole frames of plain files, in this order, to the front of `out`; gives their edges."""
        file, offset, length = self.locate(records)
        bounds = edges(length + np.uint64(OVERHEAD))
        self._fetch(file, offset, length, bounds[:-1] + np.uint64(HEADER), out, framed=True)
        return bounds

    def stream(self, number: int) -> Iterator[bytes]:
        """All payloads of a file, from front to back."""
        for block in blocks_of(self, number):
            yield from _kernel.payloads(block.buffer, block.bounds)

    def _by_kind(self, file: Integers) -> list[tuple[int, slice | Rows]]:
        """Which requests are of which kind of file; nearly always all are of one."""
        if len(self._kinds) == 1:
            return [(self._kinds[0], slice(None))]
        kinds = self.table.kind[file]
        found = [(kind, np.flatnonzero(kinds == kind)) for kind in self._kinds]
        return [(kind, rows) for kind, rows in found if len(rows)]

    def _fetch(
        self,
        file: Integers,
        offset: Integers,
        length: Integers,
        place: Integers,
        out: Octets,
        *,
        framed: bool = False,
    ) -> None:
        if len(file) == 1 or len(self.paths) == 1:  # as below, in a third of the time
            used, which = file[:1], np.zeros(len(file), np.int64)
        else:
            used, which = distinct(file, len(self.paths))
        wanted = which.view(np.uint64), offset, length, place
        for begin, request in _by_files(len(used), self._most_open, wanted):
            some = used[begin : begin + self._most_open]
            opened = [self.open(number) for number in some.tolist()]
            how = self.verify, self._threads, self._past_cache, framed
            wrong, fault, number, cold = _kernel.fetch(opened, *request, out, *how)
            if fault == _kernel.CHANGED:  # or touched: opened again if it is what it was, else refused
                opened = [self.open_again(file) for file in some.tolist()]
                wrong, fault, number, cold = _kernel.fetch(opened, *request, out, *how)
            if cold:
                self._note_cold(cold)
            if fault != _kernel.FETCHED:
                self._raise(int(some[request[0][wrong]]), int(request[1][wrong]), fault, number)

    def open(self, number: int) -> _kernel.File:
        """An open file that is the one that the table was made of."""
        with self._lock:
            file = self._open.get(number)
            if file is not None:
                self._open.move_to_end(number)
                return file
        path = self.paths[number]
        with storage.reporting("open", path):
            file = _kernel.File(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            self.require_same(number, file.stamp, file.fd)
        with self._lock:
            self._open[number] = file
            if len(self._open) > self._most_open:
                self._open.popitem(last=False)
        return file

    def require_same(self, number: int, now: tuple[int, ...], fd: int) -> None:
        """Raise StaleError unless an open file is the one that the table was made of."""
        if not is_same(self.table.identity.row(number), now, lambda: _kernel.digest(fd, now[0])):
            problem = "is not the file that its offset table was made of"
            raise StaleError(f"{self.paths[number]}: {problem}; open the dataset anew")

    def open_again(self, number: int) -> _kernel.File:
        """The same, where the one that is open may have been changed."""
        with self._lock:
            file = self._open.get(number)
            if file is not None and not file.unchanged():
                del self._open[number]
        return self.open(number)

    def _note_cold(self, count: int) -> None:
        """More was fetched than there is memory for, so what is fetched is gone before it is wanted again."""
        self._cold += count
        self._past_cache = self._past_cache or self._cold > available_memory()

    def read_once(self) -> None:
        """No record will be read twice: those that are in no cache need not come into one."""
        self._past_cache = True

    def _raise(self, number: int, offset: int, fault: int, errno: int) -> None:
        """Say what is wrong with a record of a plain file."""
        path = self.paths[number]
        record = self.record_at(number, offset)
        if fault == _kernel.REFUSED:
            raise StorageError("read", path, OSError(errno, os.strerror(errno)))
        if fault == _kernel.WRONG_PAYLOAD:
            problem = "the record's payload does not match its checksum"
            raise PayloadError(problem, path, offset=offset, record=record)
        with self._lock:
            self._open.pop(number, None)
        if fault == _kernel.WRONG_HEADER:
            problem = "no record begins here, where one was when the file was indexed: it was damaged since"
            raise HeaderError(problem, path, offset=offset, record=record)
        raise StaleError(
            f"{path}: changed while the dataset was open (record {record}, byte {offset}): it was truncated, "
            "written to or replaced; open the dataset anew"
        )

    def record_at(self, number: int, offset: int) -> int:
        """The record of a file that begins at an offset; for error messages alone."""
        first, last = self.table.firsts[number : number + 2].tolist()
        records = range(first, last)  # of which there may be too many to locate them all
        return bisect_left(
            records, offset, key=lambda one: int(self.locate(np.array([one], np.uint64))[1][0])
        )


def _by_files(files: int, step: int, request: Request) -> Iterator[tuple[int, Request]]:
    """Of `step` files at a time: (the first of them, the requests, in which files are counted from it)."""
    if files <= step:
        yield 0, request
        return
    order = np.argsort(request[0], kind="stable")
    file, offset, length, place = (column[order] for column in request)
    for begin in range(0, files, step):
        part = slice(*np.searchsorted(file, (begin, begin + step)).tolist())
        yield begin, (file[part] - np.uint64(begin), offset[part], length[part], place[part])


class _Skips:
    """Offsets behind damage that was passed over."""

    def __init__(self, table: Table, holes: Holes) -> None:
        numbers, sums = [], []
        for row in sorted(holes.files):
            total = 0
            for record, size in holes.files[row]:
                total += size
                numbers.append(int(table.firsts[row]) + record)
                sums.append(total)
            numbers.append(int(table.firsts[row + 1]))
            sums.append(0)
        self._numbers, self._sums = np.array(numbers, np.uint64), np.array([0, *sums], np.uint64)

    def before(self, records: Integers) -> Integers:
        """Bytes passed over before each record, in its file."""
        sums: Integers = self._sums[np.searchsorted(self._numbers, records, side="right")]
        return sums


_ALL: weakref.WeakSet[Files] = weakref.WeakSet()


def _after_fork() -> None:
    for files in list(_ALL):
        files.after_fork()


os.register_at_fork(after_in_child=_after_fork)
