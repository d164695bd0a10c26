"""Columns as Arrow record batches; the values are shared, not copied.

    int64, float32      as they are
    bytes               large_string where a schema says that all are UTF-8, else large_binary
    one value a record  a plain column; null where the feature is missing
    a known shape       fixed_size_list, where no record lacks it
    else                large_list; null is missing, and an empty list is empty
    raw tensors         as numbers, but uint8 as bytes; what they are is in the field's metadata

A schema fixes the types for a whole dataset; a batch alone has those that fit what is in it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croupier.errors import ExampleError, UsageError
from croupier.example.columns import Column, Columns, Kind
from croupier.example.schema import Feature, Schema

if TYPE_CHECKING:
    from croupier.dataset import Dataset

KIND, DTYPE, SHAPE = b"croupier.kind", b"croupier.dtype", b"croupier.shape"
"""Metadata of a field: what the Arrow type does not tell."""

# pyarrow has no types of its own.
RecordBatch = Any
ArrowSchema = Any
Field = Any
Array = Any


def pyarrow(module: str = "") -> Any:
    """pyarrow, or one of its modules, which everybody else can do without."""
    try:
        return importlib.import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise UsageError("this needs pyarrow: pip install 'croupier[arrow]'") from error


def stream_of(columns: Columns, requested_schema: object = None) -> Any:
    """One record batch, as the capsule that Arrow's readers pass around."""
    batch = record_batch(columns)
    reader = pyarrow().RecordBatchReader.from_batches(batch.schema, [batch])
    return reader.__arrow_c_stream__(requested_schema)


def dataset_stream(data: Dataset, requested_schema: object = None) -> Any:
    """Record batches of some megabytes of records each, as a capsule."""
    return reader(data).__arrow_c_stream__(requested_schema)


def reader(data: Dataset, columns: Sequence[str] | None = None, schema: Schema | None = None) -> Any:
    """A pyarrow.RecordBatchReader of a dataset's records, in order and in bounded memory."""
    if schema is None:
        import croupier

        schema = croupier.infer_schema(data)
    types = arrow_schema(schema, columns)

    def batches() -> Iterator[RecordBatch]:
        parts = data.columns(columns, schema=schema)
        yield from located(data, parts, lambda part: record_batch(part, types))

    return pyarrow().RecordBatchReader.from_batches(types, batches())


def located(
    data: Dataset, parts: Generator[Columns, None, None], make: Callable[[Columns], RecordBatch]
) -> Iterator[RecordBatch]:
    """What is made of each part; an error says which record of which file it is."""
    first = 0
    with contextlib.closing(parts):  # its threads end here, whatever still holds an error's traceback
        for part in parts:
            try:
                made = make(part)
            except ExampleError as error:
                place = data.where(first + (error.record or 0))
                error.path, error.record = place.path, place.record
                raise
            yield made
            first += part.records


def arrow_schema(
    schema: Schema, columns: Sequence[str] | None = None, *, tensors: bool = True
) -> ArrowSchema:
    """The Arrow types of a schema's features; without `tensors`, raw tensors are bytes."""
    names = list(schema) if columns is None else list(columns)
    if lacking := [name for name in names if name not in schema]:
        raise UsageError(f"there is no feature {lacking[0]!r}: there are {', '.join(map(repr, schema))}")
    return pyarrow().schema([field_of(schema[name], tensors=tensors) for name in names])


def field_of(feature: Feature, *, tensors: bool = True) -> Field:
    """Name, type and metadata of a feature."""
    pa = pyarrow()
    element, shape = _element(feature), feature.shape
    raw = _raw_element(feature) if tensors else None
    metadata: dict[bytes, str] = {}
    if feature.dtype is not None:
        metadata[DTYPE] = str(feature.dtype)
    if shape is not None:
        metadata[SHAPE] = json.dumps(shape)
    if raw is not None:
        element, metadata[KIND] = raw, feature.kind.label
    elif feature.kind is Kind.BYTES and (shape or feature.dtype is not None):
        shape = None
    if shape and math.prod(shape) and feature.required:  # Parquet has no missing lists of fixed size
        whole = pa.list_(element, math.prod(shape))
    elif shape == () or (feature.length == 1 and raw is None):
        whole = element
    else:
        whole = pa.large_list(element)
    return pa.field(feature.name, whole, metadata=metadata or None)


def _element(feature: Feature) -> Any:
    pa = pyarrow()
    if feature.kind is Kind.BYTES:
        return pa.large_string() if feature.content in ("utf-8", "empty") else pa.large_binary()
    return pa.int64() if feature.kind is Kind.INT64 else pa.float32()


def _raw_element(feature: Feature) -> Any:
    """The Arrow type of a raw tensor's numbers; None where there is none with their bytes.

    Of uint8 neither: Parquet would need four bytes for each, and images are bytes to everybody.
    """
    several = feature.longest is not None and feature.length != 1
    if feature.dtype is None or several or 0 in (feature.shape or ()):
        return None
    try:
        dtype = np.dtype(feature.dtype)
    except TypeError:  # bfloat16 is known where ml_dtypes is
        return None
    if dtype.kind not in "iuf" or dtype == np.uint8 or not dtype.isnative or dtype.itemsize > 8:
        return None
    return pyarrow().from_numpy_dtype(dtype)


def record_batch(columns: Columns, types: ArrowSchema | None = None) -> RecordBatch:
    """The columns with these types, or with those that fit."""
    pa = pyarrow()
    if types is None:
        types = pa.schema([field_of(_feature_of(column)) for column in columns.values()])
    if not len(types):  # arrays would have to tell the number of rows
        return pa.RecordBatch.from_struct_array(pa.array([{}] * columns.records, pa.struct([])))
    arrays = [_array(columns.get(field.name), field, columns.records) for field in types]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


def _feature_of(column: Column) -> Feature:
    """What can be said of a feature from one batch."""
    counts = column.counts if column.present is None else column.counts[column.present]
    least, most = (int(counts.min()), int(counts.max())) if len(counts) else (1, 1)
    dtype = None if column.dtype is None else column.dtype.str
    required = column.present is None or bool(column.present.all())
    return Feature(column.name, column.kind, required, least, most, dtype=dtype, shape=column.shape)


def _array(column: Column | None, field: Field, records: int) -> Array:
    pa = pyarrow()
    if column is None:
        return pa.nulls(records, field.type)
    types, raw = pa.types, KIND in (field.metadata or {})
    fixed = types.is_fixed_size_list(field.type)
    nested = fixed or types.is_large_list(field.type)
    element = field.type.value_type if nested else field.type
    if column.kind is not (Kind.BYTES if raw else _KINDS[str(element)]):
        raise UsageError(f"feature {column.name!r} is {column.kind.label}, which cannot be {field.type}")
    if nested and not fixed:
        return _ragged(column, field.type, raw=raw)
    if column.items is not None and not raw:
        _require(column, column.counts, 1)
        return _strings(column, element, column.items[column.rows], _validity(column), None)
    size = field.type.list_size if fixed else 1
    values = _numbers(column, element, size, raw=raw)
    if column.present is not None and not column.present.all():  # Arrow has room for what is missing, too
        spread = np.zeros((len(column), size), values.dtype)
        spread[column.present] = values.reshape(-1, size)
        values = spread.reshape(-1)
    if not fixed:
        return _plain(element, values, _validity(column))
    child = _plain(element, values, None)
    return pa.Array.from_buffers(field.type, len(column), [_validity(column)], children=[child])


_KINDS = {
    "int64": Kind.INT64,
    "float": Kind.FLOAT,
    "large_binary": Kind.BYTES,
    "large_string": Kind.BYTES,
}


def _ragged(column: Column, whole: Any, *, raw: bool) -> Array:
    """Lists of any length, whose edges are the records'."""
    element, rows = whole.value_type, column.rows
    if raw:
        values = _numbers(column, element, None, raw=True)
        rows = (_edges(column) - _edges(column)[0]) // values.itemsize
        child = _plain(element, values, None)
    elif column.items is not None:
        child = _strings(column, element, column.items, None, column.rows)
    else:
        child = _plain(element, column.values, None)
    buffers = [_validity(column), pyarrow().py_buffer(np.ascontiguousarray(rows))]
    return pyarrow().Array.from_buffers(whole, len(column), buffers, children=[child])


def _numbers(column: Column, element: Any, size: int | None, *, raw: bool) -> np.ndarray[Any, Any]:
    """The numbers of the records that have them, `size` for each, or any number of raw ones."""
    if not raw:
        _require(column, column.counts, size or 1)
        return column.values[column.rows[0] : column.rows[-1]]
    _require(column, column.counts, 1)
    edges, dtype = _edges(column), np.dtype(element.to_pandas_dtype())
    sizes = np.diff(edges)
    _require(
        column, sizes, size * dtype.itemsize if size else sizes // dtype.itemsize * dtype.itemsize, "bytes"
    )
    return column.values[edges[0] : edges[-1]].view(dtype)


def _edges(column: Column) -> np.ndarray[Any, Any]:
    """Of the bytes of each record."""
    return np.zeros(1, np.int64) if column.items is None else column.items[column.rows]


def _require(column: Column, found: Any, expected: Any, unit: str = "values") -> None:
    """Every record that has the feature has as many."""
    wrong = found != expected
    if column.present is not None:
        wrong &= column.present
    if wrong.any():
        record = int(wrong.argmax())
        problem = f"feature {column.name!r} has {found[record]:,} {unit}, unlike what the schema says"
        raise ExampleError(problem, record=record)


def _validity(column: Column) -> Any:
    """A bit for each record, or nothing where none lacks the feature."""
    if column.present is None or column.present.all():
        return None
    return pyarrow().py_buffer(np.packbits(column.present, bitorder="little"))


def _plain(element: Any, values: np.ndarray[Any, Any], validity: Any) -> Array:
    pa = pyarrow()
    return pa.Array.from_buffers(element, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def _strings(
    column: Column,
    element: Any,
    edges: np.ndarray[Any, Any],
    validity: Any,
    rows: np.ndarray[Any, Any] | None,
) -> Array:
    """Bytes between these edges; as text, they are checked: Arrow's readers trust it."""
    pa = pyarrow()
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(edges)), pa.py_buffer(column.values)]
    found = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
    if not pa.types.is_large_string(element):
        return found
    try:
        return found.cast(element)
    except pa.ArrowInvalid:
        number = next(number for number, value in enumerate(found) if not _is_text(value.as_py()))
        record = number if rows is None else int(np.searchsorted(rows, number, side="right")) - 1
        problem = f"feature {column.name!r} is not UTF-8, unlike what the schema says"
        raise ExampleError(problem, record=record) from None


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True
