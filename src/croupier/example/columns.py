"""Features of many Examples as columns: a few arrays each, no Python object per record."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from croupier.errors import UsageError

Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Kind(enum.IntEnum):
    """What a feature holds; the numbers are the fields of tf.train.Feature."""

    BYTES = 1
    FLOAT = 2
    INT64 = 3

    @property
    def label(self) -> str:
        """As TensorFlow names it: string, float32, int64."""
        return {Kind.BYTES: "string", Kind.FLOAT: "float32", Kind.INT64: "int64"}[self]


@dataclass(frozen=True)
class Column:
    """A feature of some records.

    The values of record i are `values[rows[i]:rows[i + 1]]`. Of bytes, value j is
    `values[items[j]:items[j + 1]]`, and those of record i are the items rows[i] to rows[i + 1].
    """

    name: str
    kind: Kind
    values: np.ndarray[tuple[int], np.dtype[Any]]
    """int64, float32, or uint8: all bytes one behind the other."""
    rows: Int64s
    """Edges of the records: one more than there are."""
    items: Int64s | None = None
    """Edges of the values, for bytes alone."""
    present: Flags | None = None
    """Which records have the feature at all; None: all of them."""
    dtype: np.dtype[Any] | None = None
    """What the bytes are, when a schema says that each value is a raw tensor."""
    shape: tuple[int, ...] | None = None
    """Of one record, when a schema gives it."""

    def __len__(self) -> int:
        return len(self.rows) - 1

    @property
    def counts(self) -> Int64s:
        """How many values each record has."""
        return np.diff(self.rows)

    @property
    def length(self) -> int | None:
        """How many values each record has, where all have as many."""
        counts = self.counts
        if not len(counts):
            return None
        first = int(counts[0])
        return first if int(self.rows[-1]) == first * len(counts) and (counts == first).all() else None

    @property
    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """All values as one array, a row for each record; of bytes an array of objects.

        A record with a single value gives a number and not a row of one, unless the schema has a shape.
        """
        if self.dtype is not None:
            return self._tensors(self.dtype)
        length = self.length
        missing = self.present is not None and not self.present.all()
        if len(self) and (missing or length is None):
            problem = "is missing from some records" if missing else "differs in length"
            raise UsageError(f"feature {self.name!r} {problem}: use .values and .rows, or .padded()")
        values = self._objects() if self.items is not None else self.values
        if self.shape is not None:
            return values.reshape(len(self), *self.shape)
        return values if length in (1, None) else values.reshape(len(self), length)

    def _tensors(self, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
        """Raw tensors of equal size, as they stand in the records: nothing is copied."""
        items, each = self.items, dtype.itemsize
        for extent in self.shape or ():
            each *= extent
        sizes = np.diff(items) if items is not None else np.zeros(0, np.int64)
        size = each if self.shape is not None else int(sizes[0]) if len(sizes) else dtype.itemsize
        if (self.counts != 1).any() or (sizes != size).any() or size % dtype.itemsize:
            shown = f"{dtype}{list(self.shape) if self.shape is not None else ''}"
            raise UsageError(f"feature {self.name!r}: not every record has one value that is {shown}")
        rest = self.shape if self.shape is not None else (size // dtype.itemsize,)
        return self.values.view(dtype).reshape(len(self), *rest)

    def _objects(self) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
        items = self.items if self.items is not None else np.zeros(1, np.int64)
        whole = self.values.tobytes()
        objects = np.empty(len(items) - 1, np.object_)
        objects[:] = [whole[begin:end] for begin, end in pairwise(items.tolist())]
        return objects

    def padded(self, value: Any = None, length: int | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        """A row for each record, filled up with `value` (0 or b"") to the longest, or cut to `length`."""
        counts = self.counts
        width = int(counts.max(initial=0)) if length is None else length
        values = self._objects() if self.items is not None else self.values
        default = b"" if self.items is not None else 0
        result = np.full((len(self), width), default if value is None else value, values.dtype)
        which = np.arange(width) < counts[:, None]
        taken = np.minimum(counts, width)
        if (taken == counts).all():
            result[which] = values
        else:
            places = self.rows[:-1, None] + np.arange(width)
            result[which] = values[places[which]]
        return result

    def __getitem__(self, number: int) -> Any:
        """Of one record: an array, a list of bytes, or None where the feature is missing."""
        number = range(len(self))[number]
        if self.present is not None and not self.present[number]:
            return None
        begin, end = self.rows[number : number + 2].tolist()
        if self.items is None:
            return self.values[begin:end]
        edges = self.items[begin : end + 1].tolist()
        return [self.values[first:last].tobytes() for first, last in pairwise(edges)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, np.dtype[Any]]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the processor's memory

    def __repr__(self) -> str:
        values = int(self.rows[-1])
        return f"<Column {self.name!r}: {self.kind.label} of {len(self):,} records, {values:,} values>"


class Columns(Mapping[str, Column]):
    """Columns of the same records, by name."""

    def __init__(self, columns: Mapping[str, Column | tuple[Any, ...]], records: int) -> None:
        self._columns = dict(columns)  # tuples become columns when they are asked for: a batch may have many
        self.records = records
        """How many records; there may be no columns."""

    def __getitem__(self, name: str) -> Column:
        column = self._columns[name]
        if isinstance(column, tuple):
            column = self._columns[name] = Column(*column)
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """For pyarrow, pandas, polars, DuckDB: nothing is copied."""
        from croupier.example.arrow import stream_of

        return stream_of(self, requested_schema)

    def __repr__(self) -> str:
        return f"<croupier.Columns of {self.records:,} records: {', '.join(self._columns)}>"
