"""The files that tables go to. `prepare` is called on many threads, `write` on one at a time, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from croupier.errors import UsageError
from croupier.example.arrow import ArrowSchema, Field, RecordBatch, pyarrow
from croupier.runtime import MIB
from croupier.storage import ReadableBuffer
from croupier.tables.lines import csv_header, csv_lines, json_lines

ROW_GROUP = 64 * MIB
"""Of a Parquet file, before it is encoded: all of it is in memory."""

Write = Callable[[ReadableBuffer], object]


class Sink(Protocol):
    """A table that is being written."""

    def prepare(self, batch: RecordBatch, /) -> Any:
        """What `write` takes."""

    def write(self, piece: Any, /) -> None:
        """Append it."""

    def finish(self) -> None:
        """The table is complete."""

    def abandon(self) -> None:
        """Whatever else comes is thrown away."""


class _Handle:
    """A file as pyarrow wants one."""

    closed = False

    def __init__(self, write: Write) -> None:
        self._write: Write | None = write
        self._position = 0

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        if self._write is not None:
            self._write(view)
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        """pyarrow's writers end their files when they are collected: not this one."""
        self._write = None


class ParquetSink:
    """Row groups of some 64 MiB, compressed with zstd."""

    def __init__(self, write: Write, types: ArrowSchema) -> None:
        pa = pyarrow()
        self._handle, self._types = _Handle(write), types
        self._writer = pyarrow("parquet").ParquetWriter(
            pa.PythonFile(self._handle, mode="w"),
            types,
            compression="zstd",
            use_dictionary=_with_dictionaries(types),
        )
        self._held: list[RecordBatch] = []

    def prepare(self, batch: RecordBatch, /) -> RecordBatch:
        return batch

    def write(self, piece: RecordBatch, /) -> None:
        self._held.append(piece)
        if sum(batch.nbytes for batch in self._held) >= ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        table = pyarrow().Table.from_batches(self._held, self._types)
        self._held = []
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def finish(self) -> None:
        if self._held:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        self._handle.abandon()


def _is_nested(field: Field) -> bool:
    types = pyarrow().types
    return bool(types.is_large_list(field.type) or types.is_fixed_size_list(field.type))


def _with_dictionaries(types: ArrowSchema) -> list[str]:
    """All columns but floats, as Parquet calls them: a dictionary would take one NaN for all."""
    found = []
    for field in types:
        name, element = field.name, field.type
        if _is_nested(field):
            name, element = f"{name}.list.element", element.value_type
        if not pyarrow().types.is_floating(element):
            found.append(name)
    return found


class ArrowSink:
    """An Arrow IPC file, which others can map into memory."""

    def __init__(self, write: Write, types: ArrowSchema) -> None:
        pa = pyarrow()
        self._handle = _Handle(write)
        self._writer = pa.ipc.new_file(pa.PythonFile(self._handle, mode="w"), types)

    def prepare(self, batch: RecordBatch, /) -> RecordBatch:
        return batch

    def write(self, piece: RecordBatch, /) -> None:
        self._writer.write_batch(piece)

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._handle.abandon()


class JsonSink:
    """An object in each line."""

    def __init__(self, write: Write, _types: ArrowSchema) -> None:
        self._write = write

    def prepare(self, batch: RecordBatch, /) -> bytes:
        return json_lines(batch)

    def write(self, piece: bytes, /) -> None:
        self._write(piece)

    def finish(self) -> None:
        """Lines have no end mark."""

    def abandon(self) -> None:
        """Nor does anything follow."""


class CsvSink(JsonSink):
    """A header and a line for each row, of features with a single value."""

    def __init__(self, write: Write, types: ArrowSchema) -> None:
        super().__init__(write, types)
        advice = "choose parquet, arrow or jsonl, or leave it out by naming the columns you want"
        for field in types:
            if _is_nested(field):
                raise UsageError(f"feature {field.name!r} has not one value in each record: {advice}")
            if pyarrow().types.is_large_binary(field.type):
                raise UsageError(f"feature {field.name!r} is bytes that need not be UTF-8: {advice}")
        write(csv_header(types.names))

    def prepare(self, batch: RecordBatch, /) -> bytes:
        return csv_lines(batch)


SINKS: dict[str, Callable[[Write, ArrowSchema], Sink]] = {
    "parquet": ParquetSink,
    "arrow": ArrowSink,
    "csv": CsvSink,
    "jsonl": JsonSink,
}
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
