"""Columns as many tf.train.Examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.batch import Batch, make_room
from croupier.errors import UsageError
from croupier.example.columns import Column, Columns, Kind
from croupier.example.encode import Plain, of_array, of_items, plain
from croupier.runtime import usable_cpus


def encode_batch(
    columns: Columns | Mapping[str, Column | np.ndarray[Any, Any] | Sequence[Any]],
    *,
    threads: int | None = None,
) -> Batch:
    """The payloads of many Examples from their columns::

        encode_batch({"label": np.arange(1000), "image/encoded": jpegs, "tokens": [[1, 2], [], None, ...]})

    An array has a row for each record; in a list stands what `encode` takes for each record, or None where it
    lacks the feature (an empty list is there, and empty). Columns as `decode_batch` gives them come back so.
    """
    made = sorted((as_column(name, column) for name, column in columns.items()), key=_name)
    records = columns.records if isinstance(columns, Columns) else len(made[0]) if made else 0
    for column in made:
        if len(column) != records:
            raise UsageError(f"feature {column.name!r} has {len(column):,} records, and others {records:,}")
    arrays = [_arrays(column) for column in made]
    offsets = np.zeros(records + 1, np.uint64)
    threads = threads or usable_cpus()
    try:
        _kernel.batch_sizes(arrays, offsets, threads)
        buffer = make_room(int(offsets[-1]))
        _kernel.write_batch(arrays, offsets, buffer, threads)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Batch(buffer, offsets.view(np.int64))


def _name(column: Column) -> bytes:
    return column.name.encode()


def _arrays(column: Column) -> _kernel.BuildColumn:
    dtype = {Kind.BYTES: np.uint8, Kind.FLOAT: np.float32, Kind.INT64: np.int64}[column.kind]
    items = None if column.items is None else np.ascontiguousarray(column.items, np.int64).view(np.uint64)
    return (
        _name(column),
        int(column.kind),
        np.ascontiguousarray(column.values, dtype),
        np.ascontiguousarray(column.rows, np.int64).view(np.uint64),
        items,
        None if column.present is None else np.ascontiguousarray(column.present, np.bool_),
    )


def as_column(name: str, values: Column | np.ndarray[Any, Any] | Sequence[Any]) -> Column:
    """A column of whatever stands for one."""
    if not isinstance(name, str):
        raise UsageError(f"names of features must be str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"feature {name!r}: {error}") from None
    if isinstance(values, Column):
        return values if values.name == name else Column(name, *_parts(values))
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind != "O":
            return _of_array(name, values)
        return _of_records(name, list(values))
    except (TypeError, ValueError, OverflowError) as error:
        reason = "an int beyond int64" if isinstance(error, OverflowError) else str(error)
        raise UsageError(f"feature {name!r}: {reason}") from None


def _parts(column: Column) -> tuple[Any, ...]:
    return column.kind, column.values, column.rows, column.items, column.present, column.dtype, column.shape


def _of_array(name: str, array: np.ndarray[Any, Any]) -> Column:
    if array.ndim == 0:
        raise TypeError("an array of no dimension has no records")
    kind, flat = of_array(array)
    each = len(flat) // len(array) if len(array) else 0
    return _column(name, Kind(kind), flat, np.arange(len(array) + 1, dtype=np.int64) * each, None)


def _of_records(name: str, values: list[Any]) -> Column:
    """Of what each record has."""
    missing = np.array([value is None for value in values], np.bool_)
    records = [_record(name, value) for value in values]
    counts = np.array([len(items) for _, items in records], np.int64)
    rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    kinds = {kind for kind, items in records if kind}
    if Kind.BYTES in kinds and len(kinds) > 1:
        raise TypeError("strings and numbers in one feature")
    present = ~missing if missing.any() else None
    if Kind.BYTES in kinds:
        strings = [item for _, items in records for item in items]
        return _column(name, Kind.BYTES, strings, rows, present)
    if not kinds:  # nobody knows the kind: then no record has it
        return Column(name, Kind.INT64, np.zeros(0, np.int64), rows, None, np.zeros(len(values), np.bool_))
    kind, dtype = (Kind.FLOAT, np.float32) if Kind.FLOAT in kinds else (Kind.INT64, np.int64)
    arrays = [np.asarray(items, dtype) for _, items in records]
    return _column(name, kind, np.concatenate(arrays), rows, present)


def _record(name: str, value: Any) -> Plain:
    if value is None:
        return 0, []
    return of_items([value]) if isinstance(value, int | float) else plain(name, value)


def _column(name: str, kind: Kind, values: Any, rows: Any, present: Any) -> Column:
    if kind != Kind.BYTES:
        return Column(name, kind, values, rows, None, present)
    items = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=items[1:])
    return Column(name, kind, np.frombuffer(b"".join(values), np.uint8), rows, items, present)
