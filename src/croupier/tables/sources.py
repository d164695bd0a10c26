"""Tables that are read: some megabytes of rows at a time, which become record batches on the threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from croupier.errors import RowError, UsageError
from croupier.example.arrow import ArrowSchema, RecordBatch, pyarrow
from croupier.example.columns import Kind
from croupier.example.from_arrow import kind_of
from croupier.runtime import MIB, Runtime
from croupier.storage import reporting

PART = 4 * MIB
"""Bytes of a table that one task makes into records."""
MOST_ROWS = 1 << 16
SAMPLE = 64
"""Rows that tell how large rows are."""


class Part(NamedTuple):
    """Some rows."""

    weight: int
    """Bytes, roughly."""
    read: Callable[[], RecordBatch]
    """RowError counts rows from the part's first one."""


class Source(Protocol):
    """A table that was opened. Rows and kinds may take a pass over it, which `survey` does."""

    path: str
    bytes: int
    """That `survey` has to read."""
    inferred: bool
    """Its kinds are those that the values fit in, and not declared."""
    rows: int | None
    """How many there are, if that is known."""
    kinds: dict[str, Kind | None]
    """What each column becomes; None: it has no values."""

    def survey(self, columns: Sequence[str] | None, asked: Mapping[str, Kind], runtime: Runtime, /) -> None:
        """Find out `rows` and `kinds`."""

    def parts(self) -> Iterator[Part]:
        """All rows in order, of the columns that were surveyed."""


class ArrowTable:
    """Whatever speaks Arrow: record batches in memory, a file of them, a stream."""

    inferred, bytes = False, 0

    def __init__(
        self,
        path: str,
        schema: ArrowSchema,
        batches: Callable[[list[str]], Iterable[RecordBatch]],
        rows: int | None,
        *,
        trusted: bool = True,
    ) -> None:
        """Without trust, each batch is checked: Arrow believes what a file says about where values are."""
        self.path, self.rows = path, rows
        self.kinds: dict[str, Kind | None] = {}
        self._schema, self._batches, self._trusted = schema, batches, trusted

    def survey(self, columns: Sequence[str] | None, asked: Mapping[str, Kind], _runtime: Runtime) -> None:
        """The schema says it all."""
        with reading(self.path):  # names need not be UTF-8
            names = chosen(self.path, self._schema.names, columns)
            self.kinds = {name: asked.get(name, kind_of(self._schema.field(name))) for name in names}

    def parts(self) -> Iterator[Part]:
        """Batches, cut where they are large."""
        with reading(self.path):
            names = list(self.kinds)
            for whole in self._batches(names):
                batch = whole.select(names)  # Parquet takes "a" for "a.b" as well
                if not self._trusted:
                    batch.validate()
                rows = max(1, min(MOST_ROWS, batch.num_rows * PART // max(batch.nbytes, 1)))
                for begin in range(0, batch.num_rows, rows):
                    part = batch.slice(begin, rows)
                    yield Part(batch.nbytes * len(part) // len(batch), partial(self._checked, part))

    def _checked(self, part: RecordBatch) -> RecordBatch:
        if not self._trusted:
            with reading(""):
                part.validate(full=True)
        return part


def chosen(path: str, names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """The columns that are wanted, in the table's order."""
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise UsageError(f"{path}: has two columns {twice[0]!r}")
    if columns is None:
        return list(names)
    for column in columns:
        if column not in names:
            raise UsageError(f"{path}: has no column {column!r}: it has {', '.join(map(repr, names))}")
    return [name for name in names if name in columns]


def parquet(path: str) -> ArrowTable:
    """A Parquet file, read some rows at a time, however large its row groups are."""
    with reading(path):
        # Without a buffer size, a row group's columns would be read whole.
        file = pyarrow("parquet").ParquetFile(path, pre_buffer=False, buffer_size=MIB >> 2)

    def batches(columns: list[str]) -> Iterator[RecordBatch]:
        for group in range(file.metadata.num_row_groups):
            options = {"row_groups": [group], "columns": columns}
            # What the file says of sizes is before a dictionary's long strings come again and again.
            first = next(file.iter_batches(SAMPLE, **options), None)
            if first is not None:
                rows = max(_encoded(file.metadata.row_group(group), columns), first.nbytes / len(first))
                yield from file.iter_batches(max(1, min(MOST_ROWS, int(PART // max(rows, 1)))), **options)

    return ArrowTable(path, file.schema_arrow, batches, file.metadata.num_rows)


def _encoded(group: Any, columns: list[str]) -> float:
    """Bytes of a row in a row group, uncompressed."""
    size, roots = 0.0, set(columns)
    for number in range(group.num_columns):
        column = group.column(number)
        name = column.path_in_schema
        if name in roots or name.partition(".")[0] in roots:
            size += column.total_uncompressed_size
    return size / max(int(group.num_rows), 1)


def arrow_file(path: str) -> ArrowTable:
    """An Arrow IPC file (Feather is one)."""
    with reading(path):
        file = pyarrow().ipc.open_file(pyarrow().memory_map(path))
        rows = sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))

        def batches(_columns: list[str]) -> Iterable[RecordBatch]:
            return map(file.get_batch, range(file.num_record_batches))

        return ArrowTable(path, file.schema, batches, rows, trusted=False)


def arrow_stream(path: str) -> ArrowTable:
    """An Arrow IPC stream in a file."""

    def opened() -> Any:
        return pyarrow().ipc.open_stream(pyarrow().memory_map(path))

    with reading(path):
        rows = sum(batch.num_rows for batch in opened())
        return ArrowTable(path, opened().schema, lambda _columns: opened(), rows, trusted=False)


def in_memory(table: Any) -> ArrowTable:
    """A pandas or polars frame, a pyarrow table or reader, a DuckDB result..."""
    pa = pyarrow()
    rows = len(table) if hasattr(table, "__len__") else None  # which may be a query
    readers = [pa.RecordBatchReader.from_stream(table)]

    def batches(_columns: list[str]) -> Iterator[RecordBatch]:
        yield from readers.pop() if readers else pa.RecordBatchReader.from_stream(table)

    return ArrowTable(type(table).__name__, readers[0].schema, batches, rows)


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """pyarrow's errors as ours."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise RowError(first_line(error), path) from error
    except OSError as error:
        if error.errno is None:  # pyarrow's word for damage
            raise RowError(first_line(error), path) from error
        with reporting("read", path):
            raise


def first_line(error: Exception) -> str:
    """Of what pyarrow says."""
    return str(error).strip().partition("\n")[0]


def size_of(path: str) -> int:
    """Bytes on disk."""
    with reporting("read", path):
        return os.stat(path).st_size


FORMATS = ("parquet", "arrow", "csv", "jsonl")


def format_of(path: str) -> str:
    """What a file is: by its first bytes, else by its name."""
    with reporting("open", path), open(path, "rb") as file:
        head = file.read(8)
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1":
        return "arrow"
    if head[:4] == b"\xff\xff\xff\xff":
        return "stream"
    name = path.lower()
    for suffix in (".gz", ".bz2", ".zst", ".lz4"):
        name = name.removesuffix(suffix)
    suffix = os.path.splitext(name)[1]
    known = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    if suffix not in known:
        raise UsageError(
            f"{path}: is neither Parquet nor Arrow; for CSV and JSON lines say so (--from csv, --from jsonl)"
        )
    return known[suffix]


class TextFile:
    """A text file, maybe compressed, which knows how far it was read."""

    _CODECS: ClassVar[dict[str, str]] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}

    def __init__(self, path: str) -> None:
        pa = pyarrow()
        self._raw = pa.OSFile(path)
        codec = self._CODECS.get(os.path.splitext(path)[1].lower())
        self.stream = pa.CompressedInputStream(self._raw, codec) if codec else self._raw
        self._seen = 0

    def moved(self) -> int:
        """Bytes of the file that were read since the last call."""
        seen, self._seen = self._seen, self._raw.tell()
        return int(self._seen - seen)
