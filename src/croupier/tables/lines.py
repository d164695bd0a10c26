"""Record batches as lines of CSV or JSON: put together by Arrow's own loops, no Python object per value.

Numbers are written so that they come back the same: float32 as the shortest decimal that is read as it, and
from 2^24 on, where all are whole, as the number that it is. JSON has NaN, Infinity and -Infinity, as Python's
json writes and reads them; CSV has NaN, inf and -inf.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from croupier.example.arrow import Array, RecordBatch, pyarrow

# The one float32 whose shortest decimal, read as a float64 and then rounded, is another: all were tried.
_ODD, _ODD_TEXT = 0x15AE43FD, ("7.038531e-26", "7.0385307e-26")


def json_lines(batch: RecordBatch) -> bytes:
    """An object for each row; what is null is left out. Bytes that need not be text are {"b64": "..."}."""
    members: list[Any] = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        name = json.dumps(field.name, ensure_ascii=False)
        member = [f",{name}:", *_json(array)]
        members += [_joined(member).fill_null("")] if array.null_count else member
    # Lines begin with a comma too many, and are nowhere else like this. (pyarrow has a join that skips nulls,
    # but it skips rows as well that have nothing else.)
    lines = _text(_joined(["\n{", *members, "}"])).replace(b"\n{,", b"\n{")
    return lines[1:] + b"\n" if lines else b""


def csv_lines(batch: RecordBatch) -> bytes:
    """A line for each row; what is null is nothing, and an empty string is ""."""
    columns = [_csv(array) for array in batch.columns]
    return _text(_joined([_joined(columns, ","), "\n"]))


def csv_header(names: list[str]) -> bytes:
    """The first line."""
    pa = pyarrow()
    return (",".join(_quoted(pa.array(names, pa.large_string())).to_pylist()) + "\n").encode()


def _text(rows: Array) -> bytes:
    """All of them, one behind the other: they stand like this in memory."""
    _, edges, content = rows.buffers()
    if not len(rows):
        return b""
    begin, end = np.frombuffer(edges, np.int64)[[rows.offset, rows.offset + len(rows)]].tolist()
    return bytes(memoryview(content)[begin:end])


def _joined(parts: list[Any], separator: str = "") -> Array:
    """Put together row by row: null as soon as one is."""
    pa, compute = pyarrow(), pyarrow("compute")
    if len(parts) == 1:
        return parts[0]
    strings = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return compute.binary_join_element_wise(*strings, pa.scalar(separator, pa.large_string()))


def _csv(array: Array) -> Array:
    pa = pyarrow()
    if pa.types.is_floating(array.type):
        found = _float_text(array, {"nan": "NaN"})
    elif pa.types.is_integer(array.type):
        found = array.cast(pa.large_string())
    else:
        found = _quoted(array)
    return found.fill_null("")


def _quoted(strings: Array) -> Array:
    """In quotes where CSV needs them, and where nothing would mean a missing value."""
    compute = pyarrow("compute")
    special = compute.match_substring_regex(strings, r'^$|[",\r\n]|^\s|\s$')
    if not compute.any(special).as_py():
        return strings
    doubled = compute.replace_substring(strings, '"', '""')
    return compute.if_else(special, _joined(['"', doubled, '"']), strings)


def _json(array: Array) -> list[Any]:
    """Each value as JSON, in parts that are put together; null is null in one of them."""
    pa, compute = pyarrow(), pyarrow("compute")
    types = pa.types
    if types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        if types.is_fixed_size_list(array.type):
            array = array.cast(pa.large_list(array.type.value_type))
        inner = _joined(_json(array.values))
        lists = pa.LargeListArray.from_arrays(array.offsets, inner, mask=_nulls(array))
        return ["[", compute.binary_join(lists, pa.scalar(",", pa.large_string())), "]"]
    if types.is_floating(array.type):
        return [_float_text(array, {"nan": "NaN", "inf": "Infinity"})]
    if types.is_integer(array.type):
        return [array.cast(pa.large_string())]
    if types.is_large_string(array.type):
        return ['"', _escaped(array), '"']
    return ['{"b64":"', _each(array, _base64), '"}']


def _nulls(array: Array) -> Array | None:
    return array.is_null() if array.null_count else None


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _each(array: Array, function: Callable[[Any], str]) -> Array:
    """For what Arrow has no loop."""
    pa = pyarrow()
    values = array.to_pylist()
    return pa.array([None if value is None else function(value) for value in values], pa.large_string())


def _escaped(strings: Array) -> Array:
    compute = pyarrow("compute")
    if not compute.any(compute.match_substring_regex(strings, r'["\\\x00-\x1f]')).as_py():
        return strings
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        strings = compute.replace_substring(strings, plain, escaped)
    rare = compute.match_substring_regex(strings, r"[\x00-\x1f]")
    if not compute.any(rare).as_py():
        return strings
    return _each(strings, lambda value: "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in value))


def _float_text(array: Array, names: dict[str, str]) -> Array:
    """As the head of this file says; always with a point, an exponent or a letter."""
    pa, compute = pyarrow(), pyarrow("compute")
    text = array.cast(pa.large_string())
    size = compute.abs(array)
    large = compute.greater_equal(size, pa.scalar(2.0**24, pa.float32()))
    if compute.any(large).as_py():
        text = compute.if_else(large, array.cast(pa.float64()).cast(pa.large_string()), text)
    odd = compute.equal(size.view(pa.uint32()), pa.scalar(_ODD, pa.uint32()))
    if compute.any(odd).as_py():
        text = compute.if_else(odd, compute.replace_substring(text, *_ODD_TEXT), text)
    finite = compute.is_finite(array)
    whole = compute.and_(finite, compute.invert(compute.match_substring_regex(text, "[.e]")))
    text = compute.if_else(whole, _joined([text, ".0"]), text)
    if not compute.all(finite).as_py():
        for old, new in names.items():
            text = compute.if_else(finite, text, compute.replace_substring(text, old, new))
    return text
