"""Python values as one tf.train.Example or SequenceExample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.errors import UsageError
from croupier.example.columns import Kind
from croupier.example.decode import BytesList, SequenceExample

Plain = tuple[int, Any]
"""A kind (0: none) and what the kernel takes for it: int64s or float32s in an array, or a list of bytes."""


def encode(features: Mapping[str, Any]) -> bytes:
    """The payload of a tf.train.Example::

        encode({"label": 3, "weights": [0.5, 1], "image/encoded": jpeg, "pixels": array})

    Ints, floats, bools, str and bytes, lists and tuples of them, and arrays of any width, which are
    flattened. Floats are rounded to float32. A list of ints and floats holds floats; an empty array has the
    kind of its dtype, an empty list has none. The bytes are those of protobuf's deterministic serialisation.
    """
    try:
        return _kernel.build_example(features, plain)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _blame(
            error, features, lambda name, value: _kernel.build_example({name: value}, plain)
        ) from error


def encode_sequence(sequence: SequenceExample) -> bytes:
    """The payload of a tf.train.SequenceExample; see `encode` for the values."""
    context, lists = sequence.context, sequence.feature_lists
    try:
        return _kernel.build_sequence(context, lists, plain)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        _blame(error, context, lambda name, value: _kernel.build_example({name: value}, plain))
        raise _blame(
            error, lists, lambda name, steps: _kernel.build_sequence({}, {name: steps}, plain)
        ) from error


def _blame(error: Exception, features: Any, attempt: Callable[[str, Any], object]) -> UsageError:
    """Say which feature it was."""
    if not isinstance(features, Mapping):
        return UsageError(f"features must be a mapping, not {type(features).__name__}")
    for name, value in features.items():
        if not isinstance(name, str):
            return UsageError(f"names of features must be str, not {type(name).__name__}")
        try:
            attempt(name, value)
        except (TypeError, ValueError, OverflowError, AttributeError) as found:
            return UsageError(f"feature {name!r}: {_reason(found)}")
    return UsageError(str(error))


def _reason(error: Exception) -> str:
    return "an int beyond int64" if isinstance(error, OverflowError) else str(error)


def plain(_name: str, value: Any) -> Plain:
    """What is none of Python's own ints, floats, bytes and strings, nor a list of them."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return Kind.BYTES, [_string(value)]
    if isinstance(value, BytesList) and not value:
        return Kind.BYTES, []
    if isinstance(value, list | tuple):
        return of_items(list(_flat(value)))
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return of_array(np.asarray(value))
    if isinstance(value, int | float):  # of a class of their own
        return of_items([value])
    raise TypeError(f"{type(value).__name__} is nothing that an Example can hold")


def _string(value: Any) -> bytes:
    return str(value).encode() if isinstance(value, str) else bytes(value)


def _flat(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list | tuple):
            yield from _flat(item)
        elif not isinstance(item, bytes | str) and hasattr(item, "__array__"):
            yield from _flat(np.asarray(item).ravel().tolist())
        else:
            yield item


def of_items(items: list[Any]) -> Plain:
    """Of a flat list."""
    if not items:
        return 0, []
    strings = [isinstance(item, bytes | bytearray | memoryview | str) for item in items]
    if all(strings):
        return Kind.BYTES, [_string(item) for item in items]
    if any(strings):
        raise TypeError("strings and numbers in one list")
    for item in items:
        if not isinstance(item, int | float):
            raise TypeError(f"{type(item).__name__} is nothing that an Example can hold")
    return of_array(
        np.array(items, np.float64 if any(isinstance(item, float) for item in items) else np.int64)
    )


def of_array(array: np.ndarray[Any, Any]) -> Plain:
    """Of an array of any shape and width."""
    kind, flat = array.dtype.kind, array.ravel()
    if kind == "V" and array.dtype.type is not np.void:  # bfloat16 and its like
        kind = "f" if "float" in array.dtype.name else "i"
    if kind in "biu":
        if array.dtype == np.uint64 and flat.size and flat.max() > np.iinfo(np.int64).max:
            raise OverflowError
        return Kind.INT64, np.ascontiguousarray(flat, np.int64)
    if kind == "f":
        with np.errstate(over="ignore"):
            return Kind.FLOAT, np.ascontiguousarray(flat, np.float32)
    if kind in "SUT":
        return Kind.BYTES, [_string(item) for item in flat.tolist()]
    if kind == "O":
        return of_items(list(_flat(flat.tolist()))) if flat.size else (int(Kind.BYTES), [])
    raise TypeError(f"an array of {array.dtype} is nothing that an Example can hold")
