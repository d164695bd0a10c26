"""Records by number: any TFRecord files as one long sequence, and parts of it, without copying anything."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, get_args, overload

import numpy as np

from croupier import streams
from croupier.batch import Batch
from croupier.dataset.files import Files
from croupier.dataset.opener import Index, Opener, join_openers, make_tables
from croupier.dataset.split import split_by_key, split_by_number
from croupier.errors import UsageError
from croupier.frames import MAX_RECORD, Damage, OnCorrupt, check_on_corrupt
from croupier.naming import are_distinct, expand
from croupier.runtime import MIB, Progress, Runtime
from croupier.storage import STDIN, PathLike
from croupier.table.model import Kind
from croupier.table.packed import Integers, Shrunk, restore, shrink

if TYPE_CHECKING:
    from croupier.example.columns import Columns
    from croupier.example.schema import Schema

Numbers = Sequence[int] | Iterable[int] | Integers
READ = 4 * MIB
"""Bytes that iteration reads at once."""
AHEAD = 8192
"""Records that iteration looks up at once."""


class Shard(NamedTuple):
    """A file of a dataset."""

    path: str
    records: int
    payload_bytes: int
    file_bytes: int
    compression: str
    """"none", "gzip" or "zlib"."""
    seekable: bool
    """Whether its records can be reached without inflating what stands before them."""


class Place(NamedTuple):
    """Where a record stands."""

    path: str
    record: int
    """Its number in the file."""
    offset: int
    """Of its frame, in decompressed bytes."""


def open(  # noqa: A001 - croupier.open
    paths: PathLike | Iterable[PathLike],
    *,
    verify: bool = True,
    index: Index = "auto",
    on_corrupt: OnCorrupt = "fail",
    max_record_bytes: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Dataset:
    """TFRecord files as a sequence: files, globs, folders, `prefix-?????-of-?????`, `name@64`::

        data = croupier.open("train-*.tfrecord.gz")
        len(data), data[41], data[-1], data[[5, 3, 8]], data[100:200]

    Random access needs an offset table. With `index="auto"` a fresh one that is kept beside the data is
    used, else one is made at the first need and kept where it can be; "memory" writes nothing; "require"
    makes none.
    Each read checks the record's header and, unless `verify` is False, its payload; a file that was changed
    raises StaleError. With `on_corrupt` other than "fail", damaged records are found when the dataset is
    opened, and get no number.
    """
    check_on_corrupt(on_corrupt)
    if index not in get_args(Index):
        raise UsageError(f"index must be one of {', '.join(get_args(Index))}, not {index!r}")
    files = _files(paths)
    if not are_distinct(files):
        twice, _ = Counter(files).most_common(1)[0]
        raise UsageError(f"{twice}: is named twice; to repeat a dataset, use concat or subset")
    return Dataset(Opener(files, verify, index, on_corrupt, max_record_bytes, on_damage, progress))


def _files(paths: PathLike | Iterable[PathLike]) -> list[str]:
    files = expand(paths)
    if STDIN in files:
        raise UsageError(f"{STDIN}: standard input has no records by number: read it with croupier.read")
    return files


class Dataset:
    """Records by number. Reading is safe from any number of threads, forked children and spawned ones."""

    def __init__(self, opener: Opener, order: range | Integers | None = None) -> None:
        self._opener = opener
        self._chosen = order

    def __reduce__(self) -> tuple[Any, ...]:
        order = self._chosen
        return _restored, (self._opener, shrink(order) if isinstance(order, np.ndarray) else order)

    # Size and shape

    def __len__(self) -> int:
        return len(self._order)

    @property
    def _order(self) -> range | Integers:
        """The numbers of the records, among all of the files."""
        if self._chosen is None:
            self._chosen = range(self._files.table.lengths.size)
        return self._chosen

    @property
    def _files(self) -> Files:
        return self._opener.files()

    @property
    def paths(self) -> list[str]:
        """The files, in order."""
        return list(self._opener.paths)

    @property
    def index(self) -> Index:
        """What may be kept beside the files: see `open`."""
        return self._opener.index

    @property
    def shards(self) -> list[Shard]:
        """The files, with what is known of each."""
        table = self._files.table
        names = {Kind.PLAIN: "none", Kind.ZLIB: "zlib"}
        columns = (table.records, table.payload_bytes, table.identity.size, table.kind)
        rows = zip(self._opener.paths, *(column.tolist() for column in columns), strict=True)
        return [
            Shard(path, records, payload, size, names.get(kind, "gzip"), kind in (Kind.PLAIN, Kind.SEEKABLE))
            for path, records, payload, size, kind in rows
        ]

    def lengths(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Payload bytes of each record, from the table alone."""
        if isinstance(self._order, range) and self._order.step == 1:
            return self._files.table.lengths.part(self._order.start, len(self._order))
        return self._files.table.locate(_numbers(self._order))[2]

    def where(self, index: SupportsIndex) -> Place:
        """File, number and offset of a record."""
        number = int(self._order[range(len(self))[index]])
        file, offset, _ = (int(x[0]) for x in self._files.locate(np.array([number], np.uint64)))
        return Place(self._opener.paths[file], number - int(self._files.table.firsts[file]), offset)

    def __repr__(self) -> str:
        paths = self._opener.paths
        rest = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        part = "" if self._chosen is None else f", {len(self._chosen):,} records"
        return f"<croupier.Dataset of {paths[0]}{rest}{part}>"

    # Reading

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> bytes: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Integers) -> Batch: ...
    def __getitem__(self, index: int | np.integer[Any] | slice | Sequence[int] | Integers) -> bytes | Batch:
        """A record by its number (from the end if negative); several, by a slice or numbers, as a Batch."""
        if isinstance(index, slice):
            return self._files.read(_numbers(self._order[index]))
        if isinstance(index, int | np.integer):
            number = self._order[range(len(self))[index]]
            return self._files.read(np.array([number], np.uint64)).buffer.tobytes()
        return self.read_many(index)

    def read_many(self, indices: Numbers) -> Batch:
        """The records of these numbers, in this order."""
        return self._files.read(self._select(indices))

    def __iter__(self) -> Iterator[bytes]:
        opener = self._opener
        if self._chosen is None and opener.known is None and opener.on_corrupt == "fail" and opener.verify:
            for path in opener.paths:
                if os.path.exists(path) and not os.path.isfile(path):
                    raise UsageError(f"{path}: not a regular file: only files have records by number")
                yield from streams.read(path, max_record_bytes=opener.limit)
        elif opener.verify and self._is_everything():
            for number in range(len(opener.paths)):  # for small records three times as fast as by number
                yield from self._files.stream(number)
        else:
            for batch in self.batches_in_order():
                yield from batch.tolist()

    def _is_everything(self) -> bool:
        """Whether these are all records of the files, in their order."""
        return isinstance(self._order, range) and self._order == range(self._files.table.lengths.size)

    def identity(self) -> str | None:
        """A fingerprint of the files as they are; None for a part of them, or when damage is passed over."""
        if not self._is_everything() or self._opener.on_corrupt != "fail":
            return None
        table = self._files.table
        columns = (table.records, table.identity.size, table.identity.modified, table.identity.digest)
        return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()

    def batches_in_order(self) -> Iterator[Batch]:
        """All records in order, some megabytes at a time."""
        for begin in range(0, len(self), AHEAD):
            numbers = _numbers(self._order[begin : begin + AHEAD])
            sizes = np.cumsum(self._files.table.locate(numbers)[2])
            cuts = np.flatnonzero(np.diff(sizes // np.uint64(READ))) + 1
            for part in np.split(numbers, cuts):
                yield self._files.read(part)

    def columns(
        self,
        columns: Sequence[str] | None = None,
        *,
        schema: Schema | None = None,
        workers: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Generator[Columns, None, None]:
        """The records' features, some megabytes of records at a time, decoded on all cores::

            for part in data.columns(["label"]):
                part["label"].array

        See `croupier.example.decode_batch` for `schema` and `columns`. Without a schema, a part in which no
        record has one of the columns lacks it.
        """
        from croupier.dataset.features import stream_columns

        with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
            runtime.phase("decode", len(self), "records")
            yield from stream_columns(self, runtime, schema, columns)

    def arrow(self, columns: Sequence[str] | None = None, *, schema: Schema | None = None) -> Any:
        """A pyarrow.RecordBatchReader of the features; the schema, by default inferred, tells their types."""
        from croupier.example.arrow import reader

        return reader(self, columns, schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """For pandas, polars, DuckDB and whoever else reads Arrow: some megabytes of records at a time."""
        from croupier.example.arrow import dataset_stream

        return dataset_stream(self, requested_schema)

    def _select(self, indices: Numbers) -> Integers:
        """Their numbers among all records of the files."""
        wanted = np.asarray(indices if isinstance(indices, np.ndarray | Sequence) else list(indices))
        if wanted.ndim != 1:
            raise UsageError("record numbers must be a flat list or array")
        if wanted.dtype == np.bool_:
            if len(wanted) != len(self):
                raise IndexError(f"a mask of {len(wanted):,} for {len(self):,} records")
            wanted = np.flatnonzero(wanted)
        if len(wanted) == 0:
            return np.zeros(0, np.uint64)
        if wanted.dtype.kind not in "iu":
            raise TypeError(f"record numbers must be integers, not {wanted.dtype}")
        size, least = len(self), int(wanted.min())
        if least < -size or int(wanted.max()) >= size:
            bad = wanted[(wanted < -size) | (wanted >= size)][0]
            raise IndexError(f"there is no record {bad}: there are {size:,}")
        wanted = wanted.astype(np.int64)  # which has room for `size`, and is the caller's no more
        if least < 0:
            wanted[wanted < 0] += size
        order = self._order
        if isinstance(order, range):
            if order.start or order.step != 1:
                wanted = wanted * order.step + order.start
            return wanted.view(np.uint64)
        chosen: Integers = order[wanted]
        return chosen

    # Parts: by number, nothing is copied

    def _part(self, order: range | Integers) -> Dataset:
        return Dataset(self._opener, order)

    def subset(self, indices: Numbers) -> Dataset:
        """The records of these numbers, in this order; a number may come again."""
        if isinstance(indices, range) and indices and indices[0] >= 0 <= indices[-1] and indices.step > 0:
            self._select([indices[0], indices[-1]])  # which refuses what is not there
            return self._part(self._order[indices.start : indices.stop : indices.step])
        return self._part(self._select(indices))

    def take(self, count: int) -> Dataset:
        """The first records."""
        return self._part(self._order[: _count(count)])

    def skip(self, count: int) -> Dataset:
        """All but the first records."""
        return self._part(self._order[_count(count) :])

    def concat(self, *others: Dataset) -> Dataset:
        """These records, then those of the others."""
        return concat(self, *others)

    def split(
        self,
        fractions: Sequence[float] | Mapping[str, float] | None = None,
        *,
        key: Callable[[bytes], Hashable] | None = None,
        seed: int = 0,
    ) -> Any:
        """Disjoint parts that are all of it.

        `split([0.8, 0.1, 0.1])` gives a list of datasets, `split({"train": 0.9, "eval": 0.1})` a dict, at
        random but the same each time for a seed, in the order of the records. With a `key`, a function of the
        payload, records of equal keys stay together (so that no patient is in two parts); the sizes then are
        approximate. `split(key=...)` alone gives a dict with a dataset for each key.
        """
        if fractions is None:
            if key is None:
                raise UsageError("split needs fractions, a key, or both")
            groups = split_by_key(self, key)
            return {name: self._part(_numbers(self._order)[rows]) for name, rows in groups.items()}
        shares = list(fractions.values() if isinstance(fractions, Mapping) else fractions)
        numbers = _numbers(self._order)
        parts = [self._part(numbers[rows]) for rows in split_by_number(self, shares, seed, key)]
        return dict(zip(fractions, parts, strict=True)) if isinstance(fractions, Mapping) else parts


def concat(*datasets: Dataset) -> Dataset:
    """The records of one dataset after those of another; files may be the same or others."""
    if not datasets:
        raise UsageError("there is nothing to put together")
    openers = list(dict.fromkeys(dataset._opener for dataset in datasets))
    if len(openers) == 1:
        return Dataset(openers[0], _joined([dataset._order for dataset in datasets]))
    options = {(one.verify, one.index, one.on_corrupt, one.limit) for one in openers}
    if len(options) > 1:
        raise UsageError("only datasets that were opened with the same options can be put together")
    opener = join_openers(openers)
    firsts = dict(zip(opener.paths, opener.files().table.firsts.tolist(), strict=False))
    orders: list[range | Integers] = []
    for dataset in datasets:
        table = dataset._files.table
        old = zip(dataset.paths, table.firsts.tolist(), strict=False)
        shifts = [firsts[path] - first for path, first in old]
        order = dataset._order
        if len(set(shifts)) == 1 and isinstance(order, range):
            orders.append(range(order.start + shifts[0], order.stop + shifts[0], order.step))
            continue
        numbers = _numbers(order)
        file = np.searchsorted(table.firsts, numbers, side="right") - 1
        orders.append((numbers.astype(np.int64) + np.array(shifts, np.int64)[file]).astype(np.uint64))
    return Dataset(opener, _joined(orders))


def _joined(orders: Sequence[range | Integers]) -> range | Integers:
    """One behind the other; ranges that follow each other stay one."""
    orders = [order for order in orders if len(order)] or orders[:1]  # all empty ranges are equal
    whole = orders[0]
    for order in orders[1:]:
        if isinstance(whole, range) and isinstance(order, range) and order == range(whole.stop, order.stop):
            whole = range(whole.start, order.stop, whole.step) if whole.step == 1 else _both(whole, order)
        else:
            whole = _both(whole, order)
    return whole


def _both(first: range | Integers, second: range | Integers) -> Integers:
    return np.concatenate([_numbers(first), _numbers(second)])


def _numbers(order: range | Integers) -> Integers:
    if isinstance(order, range):
        return np.arange(order.start, order.stop, order.step, dtype=np.int64).astype(np.uint64)
    return np.ascontiguousarray(order)


def _restored(opener: Opener, order: range | Shrunk | None) -> Dataset:
    """From a pickle."""
    return Dataset(opener, restore(order) if isinstance(order, Shrunk) else order)


def _count(count: int) -> int:
    if count < 0:
        raise UsageError(f"a number of records must not be negative: {count}")
    return count


def index(
    paths: PathLike | Iterable[PathLike],
    *,
    force: bool = False,
    workers: int | None = None,
    max_record_bytes: int = MAX_RECORD,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> tuple[list[str], list[str]]:
    """Make and keep offset tables of files that have no fresh one, or of all with `force`.

    Gives (the files that were indexed, the table files that were written).
    """
    files = _files(paths)
    files = files if are_distinct(files) else list(dict.fromkeys(files))
    with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
        return make_tables(files, runtime, max_record_bytes, force=force)
