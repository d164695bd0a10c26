"""One tf.train.Example or SequenceExample as a dict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.errors import ExampleError
from croupier.example.columns import Kind

Values = np.ndarray[tuple[int], np.dtype[Any]] | list[bytes]
"""Of a feature in one record: an array of int64 or float32, or a list of bytes."""


class BytesList(list[bytes]):
    """A list of bytes that says so even when it is empty: `encode` gives a plain empty list no kind."""


@dataclass
class SequenceExample:
    """What a tf.train.SequenceExample holds."""

    context: dict[str, Values] = field(default_factory=dict)
    feature_lists: dict[str, list[Values]] = field(default_factory=dict)
    """Of each name the steps."""


PROBLEMS = {
    _kernel.FLAW_CUT: "no tf.train.Example: it is cut short, or a length in it is wrong",
    _kernel.FLAW_VARINT: "no tf.train.Example: a number of more than ten bytes",
    _kernel.FLAW_TAG: "no tf.train.Example: a field that cannot be",
    _kernel.FLAW_GROUP: "no tf.train.Example: a group without its begin or end",
    _kernel.FLAW_DEEP: "no tf.train.Example: more than a hundred groups in each other",
    _kernel.FLAW_PACKED: "no tf.train.Example: packed floats that are not of four bytes each",
    _kernel.FLAW_NAME: "no tf.train.Example: a feature's name is not UTF-8",
}


def decode(payload: _kernel.Data) -> dict[str, Values]:
    """The features of a tf.train.Example by name, in the order of the names' bytes.

    int64 and float32 arrays that may be written to, and lists of bytes. A feature whose kind is not set gives
    an empty list. Accepted and refused (ExampleError) is what protobuf accepts and refuses.
    """
    found = _kernel.parse_example(payload)
    if isinstance(found, tuple):
        raise _error(found)
    return {name: _values(kind, values) for name, kind, values in found}


def decode_sequence(payload: _kernel.Data) -> SequenceExample:
    """A tf.train.SequenceExample; see `decode`."""
    found = _kernel.parse_sequence(payload)
    if isinstance(found[0], int):
        raise _error(found)
    context, lists = found
    return SequenceExample(
        {name: _values(kind, values) for name, kind, values in context},
        {name: [_values(kind, values) for kind, values in steps] for name, steps in lists},
    )


def _error(found: tuple[Any, Any]) -> ExampleError:
    flaw, offset = found
    return ExampleError(PROBLEMS[flaw], offset=offset)


def _values(kind: int, values: _kernel.Values) -> Values:
    if kind == Kind.INT64:
        return np.frombuffer(values, np.int64)  # type: ignore[arg-type]
    if kind == Kind.FLOAT:
        return np.frombuffer(values, np.float32)  # type: ignore[arg-type]
    return BytesList() if kind == Kind.BYTES and not values else values  # type: ignore[return-value]
