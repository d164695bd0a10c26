"""The features of a dataset's records as columns, some megabytes at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from croupier.batch import Batch
from croupier.errors import ExampleError, UsageError
from croupier.example import decode_batch
from croupier.example.columns import Column, Columns
from croupier.example.schema import Schema
from croupier.runtime import Runtime

if TYPE_CHECKING:
    from croupier.dataset import Dataset

Result = TypeVar("Result")

FIRST = 1000
"""Records whose features are named when one that was asked for is nowhere."""


def stream_columns(
    data: Dataset, runtime: Runtime, schema: Schema | None = None, columns: Sequence[str] | None = None
) -> Generator[Columns, None, None]:
    """Columns of all records in order: read here, decoded on the threads, a few batches ahead."""
    yield from stream_looks(data, runtime, lambda batch, found: found, schema, columns)


def stream_looks(
    data: Dataset,
    runtime: Runtime,
    look: Callable[[Batch, Columns], Result],
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
) -> Generator[Result, None, None]:
    """What `look`, on the threads, makes of each batch and its columns, in order.

    Without a schema, a batch in which no record has one of `columns` lacks it, as nothing tells its kind; in
    the end, what no record has is an error.
    """

    def decode(work: tuple[int, Batch]) -> tuple[list[str], Result]:
        first, batch = work
        runtime.check()
        try:
            found = decode_batch(batch, schema, columns, threads=1)
        except ExampleError as error:
            raise _located(error, data, first) from None
        except UsageError:
            found = _those_there(batch, schema, columns or ())
        result = look(batch, found)
        runtime.advance(len(batch), len(batch))
        return list(found), result

    unseen = set(columns or ())
    for names, result in runtime.map(decode, _numbered(data)):
        unseen.difference_update(names)
        yield result
    if unseen and len(data):
        decode_batch(data[:FIRST], schema, sorted(unseen))  # says so, and which names are like it


def _those_there(batch: Batch, schema: Schema | None, columns: Sequence[str]) -> Columns:
    """Of the columns those that some record has."""
    found: dict[str, Column] = {}
    for name in columns:
        with contextlib.suppress(UsageError):
            found |= decode_batch(batch, schema, [name], threads=1)
    return Columns(found, len(batch))


def _numbered(data: Dataset) -> Iterator[tuple[int, Batch]]:
    """Each batch with the number of its first record."""
    first = 0
    for batch in data.batches_in_order():
        yield first, batch
        first += len(batch)


def _located(error: ExampleError, data: Dataset, first: int) -> ExampleError:
    """Say which file's record it is, where so far it was one of a batch."""
    place = data.where(first + (error.record or 0))
    error.path, error.record = place.path, place.record
    return error
