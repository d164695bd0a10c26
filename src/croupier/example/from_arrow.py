"""Arrow record batches as columns; int64, float32 and bytes are shared, not copied.

integers, booleans                  int64
floating point                      float32, rounded; a whole number that would become another is refused
strings, binary, dictionaries       bytes
lists of these                      several values; null in place of a list: the feature is missing
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from croupier.errors import RowError, UsageError
from croupier.example.arrow import KIND, Array, Field, RecordBatch, pyarrow
from croupier.example.columns import Column, Columns, Int64s, Kind

WHOLE = float(1 << 53)
"""Below it a float64 can be a whole number that somebody counts with."""
FLOAT = r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|nan|-?(inf|Infinity)"
"""How a number is written, for text that becomes one."""
LONG = r"^-?[0-9]{16,}$"
"""Whole numbers that float64 has not all of."""


_LISTS = {"list", "large_list", "fixed_size_list", "list_view", "large_list_view"}
_BYTES = {
    "string",
    "large_string",
    "string_view",
    "binary",
    "large_binary",
    "binary_view",
    "fixed_size_binary",
}


def kind_of(field: Field) -> Kind | None:
    """What a field becomes; None where it has no values at all."""
    types, element = pyarrow().types, _storage(field.type)
    if _name(element) in _LISTS:
        element = _storage(element.value_type)
    if _is_raw(field) or _name(element) in _BYTES:
        return Kind.BYTES
    if types.is_null(element):
        return None
    if types.is_integer(element) or types.is_boolean(element):
        return Kind.INT64
    if types.is_floating(element):
        return Kind.FLOAT
    advice = "split it into columns of numbers or text"
    if types.is_temporal(element) or types.is_decimal(element):
        advice = "make it a number or text"
    problem = f"column {field.name!r} is {field.type}, which no feature can be"
    raise UsageError(f"{problem}: {advice} first, or leave it out by naming the columns you want")


def _name(whole: Any) -> str:
    """The type's name, without what it is of: older versions of pyarrow cannot ask for newer types."""
    return str(whole).partition("<")[0].partition("[")[0]


def _is_raw(field: Field) -> bool:
    """Whether the numbers were the bytes of a raw tensor."""
    return (field.metadata or {}).get(KIND) == Kind.BYTES.label.encode()


def _storage(whole: Any) -> Any:
    """What stands behind an extension type, a dictionary or runs."""
    pa = pyarrow()
    while True:
        if isinstance(whole, pa.BaseExtensionType):
            whole = whole.storage_type
        elif pa.types.is_dictionary(whole) or pa.types.is_run_end_encoded(whole):
            whole = whole.value_type
        else:
            return whole


def _plain(array: Array) -> Array:
    """The same without extension, dictionary, runs or views of strings."""
    pa, compute = pyarrow(), pyarrow("compute")
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = compute.run_end_decode(array)
        elif _name(array.type) in ("string_view", "binary_view"):  # few of pyarrow's functions take them
            array = array.cast(pa.large_binary())
        else:
            return array


def columns_of(
    batch: RecordBatch,
    kinds: Mapping[str, Kind] | None = None,
    *,
    rounded: Collection[str] = (),
    strict: bool = False,
) -> Columns:
    """The columns of a batch. RowError says which row of it cannot be a record.

    `kinds` are for columns that shall be others than they would be. Those in `rounded` become float32
    whatever they hold; with `strict`, no number is rounded at all.
    """
    columns: dict[str, Column] = {}
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if field.name in columns:
            raise UsageError(f"there are two columns {field.name!r}")
        kind = (kinds or {}).get(field.name, kind_of(field))
        if array.null_count == len(array):
            continue
        if kind is None:
            problem = f"column {field.name!r} has nothing but empty lists: say what they are of"
            raise RowError(problem, row=int(np.argmax(array.is_valid())))
        conversion = _Conversion(field, _plain(array), strict=strict, rounded=field.name in rounded)
        columns[field.name] = conversion.to(kind)
    return Columns(columns, batch.num_rows)


class _Conversion:
    """Of one column."""

    def __init__(self, field: Field, array: Array, *, strict: bool, rounded: bool) -> None:
        compute = pyarrow("compute")
        self.name, self.strict, self.rounded, self.raw = field.name, strict, rounded, _is_raw(field)
        self.present = np.asarray(array.is_valid()) if array.null_count else None
        if _name(array.type) in _LISTS:
            lengths = np.asarray(compute.list_value_length(array).fill_null(0)).astype(np.int64)
            if self.present is not None:
                lengths[~self.present] = 0
            self.values = _plain(array.flatten())  # less those behind nulls
        else:
            lengths = np.ones(len(array), np.int64) if self.present is None else self.present.astype(np.int64)
            self.values = array.drop_null() if array.null_count else array
        self.rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def to(self, kind: Kind) -> Column:
        """The column as this kind."""
        if self.values.null_count:
            self._refuse_where(np.asarray(self.values.is_null()), "has a null among the values of a list")
        if pyarrow().types.is_null(self.values.type):  # of lists that all are empty
            self.values = pyarrow().array([], pyarrow().int64())
        if self.raw:
            return self._tensors()
        if kind is Kind.BYTES:
            values, items = self._bytes()
            return Column(self.name, kind, values, self.rows, items, self.present)
        numbers = self._integers() if kind is Kind.INT64 else self._floats()
        return Column(self.name, kind, numbers, self.rows, None, self.present)

    def _tensors(self) -> Column:
        """The numbers of each row are one value again."""
        numbers = _numpy(self.values)
        items = self.rows * numbers.itemsize
        if self.present is not None:
            items = np.concatenate([items[:1], items[1:][self.present]])
        lengths = (
            np.ones(len(self.rows) - 1, np.int64) if self.present is None else self.present.astype(np.int64)
        )
        rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return Column(self.name, Kind.BYTES, numbers.view(np.uint8), rows, items, self.present)

    def _bytes(self) -> tuple[np.ndarray[Any, Any], Int64s]:
        pa, values = pyarrow(), self.values
        if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
            values = values.cast(pa.string())
        elif _name(values.type) not in _BYTES:
            raise UsageError(f"column {self.name!r} is {values.type}: it cannot be string")
        values = values.cast(pa.large_binary())
        _, edges, content = values.buffers()
        if not len(values) or content is None:
            return np.zeros(0, np.uint8), np.zeros(len(values) + 1, np.int64)
        items = np.frombuffer(edges, np.int64)[values.offset : values.offset + len(values) + 1]
        begin, end = items[[0, -1]].tolist()
        whole = np.frombuffer(content, np.uint8)[begin:end] if end > begin else np.zeros(0, np.uint8)
        return whole, items - begin if begin else items

    def _integers(self) -> np.ndarray[Any, Any]:
        pa, values = pyarrow(), self.values
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if _name(values.type) in _BYTES:
            return self._parsed(pa.int64(), r"-?[0-9]+(\.0*)?", "int64")
        numbers = _numpy(values)
        if numbers.dtype.kind == "f":
            whole = np.floor(numbers) == numbers
            self._refuse_where(~whole | (np.abs(numbers) >= 2.0**63), "cannot be int64")
        elif numbers.dtype == np.uint64:
            self._refuse_where(numbers > np.uint64(2**63 - 1), "does not fit int64")
        return numbers.astype(np.int64, copy=False)

    def _floats(self) -> np.ndarray[Any, Any]:
        pa, values = pyarrow(), self.values
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        if _name(values.type) in _BYTES:
            numbers = self._parsed(pa.float64(), FLOAT, "float32")
        else:
            numbers = _numpy(values)
        if numbers.dtype.itemsize <= 4 and numbers.dtype.kind == "f":
            return numbers.astype(np.float32, copy=False)
        double = numbers.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            single = double.astype(np.float32)
        self._refuse_where(np.isinf(single) & ~np.isinf(double), "does not fit float32")
        changed = (single != double) & ~np.isnan(double)
        if numbers.dtype.kind == "f" and not self.strict:
            changed &= (np.floor(double) == double) & (np.abs(double) < WHOLE)
        if numbers.dtype.kind != "f":
            changed |= np.abs(double) >= WHOLE
        elif _name(values.type) in _BYTES:
            changed |= np.asarray(pyarrow("compute").match_substring_regex(values, LONG))
        if self.strict or not self.rounded:
            self._refuse_where(changed, "is a number that float32 would change")
        return single

    def _parsed(self, kind: Any, pattern: str, label: str) -> np.ndarray[Any, Any]:
        """Text as numbers."""
        pa, compute = pyarrow(), pyarrow("compute")
        matches = compute.match_substring_regex(self.values, f"^({pattern})$")
        self._refuse_where(~np.asarray(matches), f"cannot be {label}")
        text = self.values.cast(pa.large_string())
        if label == "int64":
            text = compute.replace_substring_regex(text, r"\.0*$", "")
        try:
            return _numpy(compute.cast(text, kind))
        except pa.ArrowInvalid:  # digits alone that are too many
            least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
            wrong = np.array([not least <= int(value.as_py()) <= most for value in text])
            self._refuse_where(wrong, f"does not fit {label}")
            raise

    def _refuse_where(self, wrong: np.ndarray[Any, Any], problem: str) -> None:
        if not wrong.any():
            return
        number = int(wrong.argmax())
        row = int(np.searchsorted(self.rows, number, side="right")) - 1
        value = self.values[number].as_py()
        shown = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        raise RowError(f"column {self.name!r}{'' if value is None else f': {shown[:40]}'} {problem}", row=row)


def _numpy(values: Array) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return found
