"""Examples as a table: decoded on all cores, written in order, in bounded memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from croupier import storage
from croupier.dataset import READ, Dataset
from croupier.dataset.features import stream_columns
from croupier.errors import IntegrityError, UsageError
from croupier.example.arrow import RecordBatch, arrow_schema, located, record_batch
from croupier.example.schema import Schema
from croupier.inspect.schema import infer_schema, open_source
from croupier.runtime import Ordered, Progress, Runtime, Task
from croupier.storage import AtomicFile, PathLike, ReadableBuffer
from croupier.tables.sinks import SINKS, SUFFIXES, Sink, Write


class BinaryFile(Protocol):
    """Whatever bytes can be written to."""

    def write(self, data: ReadableBuffer, /) -> object:
        """Append."""


class Exported(NamedTuple):
    """A table that was written."""

    path: str | None
    """None: an open file."""
    format: str
    records: int
    bytes: int
    columns: dict[str, str]
    """The Arrow type of each."""


def export(
    data: Dataset | PathLike | Iterable[PathLike],
    out: PathLike | BinaryFile,
    to: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Exported:
    """Write a dataset's Examples as a Parquet, Arrow, CSV or JSON lines file::

        croupier.export("train-*.tfrecord.gz", "train.parquet", columns=["label", "age"])

    `to` is "parquet", "arrow", "csv" or "jsonl"; by default the name decides. The file appears whole, or not
    at all; an open binary file may be given as well. The columns' types come from the `schema`, by default
    the inferred one.
    """
    kind = _format(out, to)
    data = open_source(data)
    if schema is None:
        schema = infer_schema(data, workers=workers, progress=progress, cancel=cancel)
    types = arrow_schema(schema, columns, tensors=kind in ("parquet", "arrow"))
    if not len(types):
        raise UsageError("these records have no features that could be columns")
    records = 0
    with _open(out, overwrite) as output:
        with Runtime(workers=workers, progress=progress, cancel=cancel) as runtime:
            runtime.phase("export", len(data), "records")
            sink = SINKS[kind](output.write, types)
            try:
                parts = stream_columns(data, runtime, schema, columns)
                batches = located(data, parts, lambda part: record_batch(part, types))
                records = _write_all(sink, batches, runtime)
                if records != len(data):
                    raise IntegrityError(f"{len(data):,} records were to be written, but {records:,} came")
                sink.finish()
            except BaseException:
                sink.abandon()
                raise
        output.publish()
    described = {field.name: str(field.type) for field in types}
    return Exported(output.path, kind, records, output.written, described)


def _write_all(sink: Sink, batches: Iterator[RecordBatch], runtime: Runtime) -> int:
    """Pieces are made on the threads, and written on one while the next are read here."""
    records = 0
    ordered: Ordered[object] = Ordered(runtime, min(2 * runtime.workers * READ, runtime.memory // 16))
    writing: Task[None] | None = None

    def write(piece: object) -> Task[None]:
        if writing is not None:
            writing.result()
        return runtime.submit(sink.write, piece)

    for batch in batches:
        records += batch.num_rows
        for piece in ordered.put(batch.nbytes, sink.prepare, batch):
            writing = write(piece)
    for piece in ordered.drain():
        writing = write(piece)
    if writing is not None:
        writing.result()
    return records


def _format(out: PathLike | BinaryFile, to: str | None) -> str:
    if to is None and isinstance(out, str | os.PathLike):
        to = SUFFIXES.get(os.path.splitext(os.fspath(out))[1].lower())
        if to is None:
            raise UsageError(f"{os.fspath(out)}: say what it shall be: {', '.join(SINKS)}")
    if to not in SINKS:
        raise UsageError(f"a table can be written as {', '.join(SINKS)}, not as {to!r}")
    return to


class _Output:
    """Where the bytes go."""

    def __init__(self, write: Write, file: AtomicFile | None, overwrite: bool) -> None:
        self._write, self._file, self._overwrite = write, file, overwrite
        self.path = None if file is None else file.path
        self.written = 0

    def write(self, data: ReadableBuffer) -> None:
        self._write(data)
        self.written += memoryview(data).nbytes

    def publish(self) -> None:
        """Everything is there."""
        if self._file is not None:
            self._file.seal()
            _refuse_existing(self._file.path, self._overwrite)
            self._file.publish(replace=self._overwrite)
            storage.flush_folder(self._file.folder)


@contextmanager
def _open(out: PathLike | BinaryFile, overwrite: bool) -> Iterator[_Output]:
    """The output, and nothing of it if the block ends badly."""
    if not isinstance(out, str | os.PathLike):
        yield _Output(out.write, None, overwrite)
        return
    path = os.fspath(out)
    folder, name = os.path.split(os.path.abspath(path))
    _refuse_existing(path, overwrite)
    storage.make_folder(folder)
    storage.sweep(folder, [name])
    file = AtomicFile(path)
    try:
        yield _Output(file.write, file, overwrite)
    finally:
        file.discard()


def _refuse_existing(path: str, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise UsageError(f"{path}: is a folder; name the file")
    if os.path.lexists(path) and not overwrite:
        raise UsageError(f"{path}: exists; ask for overwrite to replace it")
