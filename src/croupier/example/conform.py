"""Columns as a schema wants them: defaults filled in, and what departs from it found."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from croupier.errors import UsageError
from croupier.example.columns import Column, Int64s, Kind
from croupier.example.encode import of_items, plain
from croupier.example.schema import Feature

Departure = tuple[int, str]
"""A record and what is wrong with it."""


def conform(column: Column, feature: Feature) -> Column:
    """With the schema's default, dtype and shape."""
    if column.present is not None and feature.default is not None:
        column = _filled(column, feature, column.present)
    dtype = None if feature.dtype is None else np.dtype(feature.dtype)
    return dataclasses.replace(column, dtype=dtype, shape=feature.shape)


def departure(column: Column, feature: Feature) -> Departure | None:
    """The first record that is not as the schema says."""
    found = [_missing(column, feature), _count(column, feature), _tensor(column, feature)]
    return min((one for one in found if one is not None), default=None)


def _first(wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _missing(column: Column, feature: Feature) -> Departure | None:
    if not feature.required or column.present is None:
        return None
    record = _first(~column.present)
    return None if record is None else (record, f"feature {feature.name!r} is missing")


def _count(column: Column, feature: Feature) -> Departure | None:
    least, most = feature.shortest, feature.longest
    if feature.shape is not None and feature.dtype is None:
        least = most = math.prod(feature.shape)
    if least == 0 and most is None:
        return None
    counts = column.counts
    wrong = counts < least
    if most is not None:
        wrong |= counts > most
    if column.present is not None:
        wrong &= column.present
    record = _first(wrong)
    if record is None:
        return None
    wanted = (
        f"{least:,}" if least == most else f"{least:,} or more" if most is None else f"{least:,} to {most:,}"
    )
    return record, f"feature {feature.name!r} has {int(counts[record]):,} values, and not {wanted}"


def _tensor(column: Column, feature: Feature) -> Departure | None:
    """The first record that has a value of another size than the tensor's."""
    if feature.dtype is None or column.items is None:
        return None
    each, sizes = np.dtype(feature.dtype).itemsize, np.diff(column.items)
    if feature.shape is not None:
        each *= math.prod(feature.shape)
        wrong = sizes != each
    else:
        wrong = sizes % each != 0
    value = _first(wrong)
    if value is None:
        return None
    record = int(np.searchsorted(column.rows, value, "right")) - 1
    shown = f"{feature.dtype}{list(feature.shape) if feature.shape is not None else 's'}"
    return (
        record,
        f"feature {feature.name!r} has {int(sizes[value]):,} bytes, which are no {shown} ({each:,} bytes)",
    )


def _filled(column: Column, feature: Feature, present: np.ndarray[Any, np.dtype[np.bool_]]) -> Column:
    """The default in every record that lacks the feature."""
    default = _default(feature)
    counts = column.counts + np.where(present, 0, len(default))
    rows = _edges(counts)
    fresh = np.repeat(~present, counts)
    if column.items is None:
        values = np.empty(len(fresh), column.values.dtype)
        values[~fresh] = column.values
        values[fresh] = np.tile(default, int((~present).sum()))
        return dataclasses.replace(column, values=values, rows=rows, present=None)
    sizes = np.empty(len(fresh), np.int64)
    sizes[~fresh] = np.diff(column.items)
    sizes[fresh] = np.tile([len(value) for value in default], int((~present).sum()))
    items = _edges(sizes)
    values = np.empty(int(items[-1]), np.uint8)
    of_default = np.repeat(fresh, sizes)
    values[~of_default] = column.values
    values[of_default] = np.tile(np.frombuffer(b"".join(default), np.uint8), int((~present).sum()))
    return dataclasses.replace(column, values=values, rows=rows, items=items, present=None)


def _edges(sizes: Int64s) -> Int64s:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _default(feature: Feature) -> Any:
    """One record's values: a single one stands for as many as there are."""
    single = isinstance(feature.default, int | float | str | bytes | np.generic)
    default = feature.default
    if feature.dtype is not None and not isinstance(default, str | bytes):
        default = np.full(feature.shape or 1, default, feature.dtype).tobytes()
    try:
        kind, values = of_items([default]) if single else plain(feature.name, default)
        if (kind == Kind.BYTES) != (feature.kind == Kind.BYTES) and len(values):
            raise TypeError
        if feature.kind == Kind.BYTES:
            return values * (feature.length or 1) if single else values
        if feature.kind == Kind.INT64 and kind == Kind.FLOAT:
            raise TypeError
        array = np.asarray(values, np.float32 if feature.kind == Kind.FLOAT else np.int64)
    except (TypeError, ValueError, OverflowError):
        problem = f"feature {feature.name!r}: the default {feature.default!r} is no {feature.kind.label}"
        raise UsageError(problem) from None
    return np.repeat(array, feature.length or 1) if single else array
