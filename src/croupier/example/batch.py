"""Many tf.train.Examples as columns."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.errors import ExampleError, UsageError
from croupier.example.columns import Columns, Int64s, Kind
from croupier.example.conform import conform, departure
from croupier.example.decode import PROBLEMS, decode
from croupier.example.schema import Feature, Schema
from croupier.frames import Block
from croupier.runtime import usable_cpus

OCTET, INT, FLOAT = np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.float32)
KINDS = (None, *sorted(Kind))
"""By their numbers, as the kernel gives them."""
ONE_CORE = 1 << 20
"""Bytes that are parsed sooner than the system has said how many cores there are, and started a thread."""
ALIGNED, WORTH_ALIGNING = 64, 1 << 12
"""Bytes."""
SEARCHED, SHOWN = 1000, 8
"""Records that are looked through for names like one that was not found, and how many are listed."""


def decode_batch(
    batch: Sequence[Any],
    schema: Schema | None = None,
    columns: Iterable[str] | None = None,
    *,
    lacking: bool = False,
    threads: int | None = None,
) -> Columns:
    """The features of many Examples as columns::

        columns = decode_batch(data[:10_000], columns=["label", "image/encoded"])
        columns["label"].array

    `batch` is a croupier.Batch, any sequence of payloads, or a block of frames. `columns` are the names that
    are wanted: others are passed over without a look at their values. Without it come all that the schema
    has, or without a schema all that occur, in the order of their names' bytes. A departure from the schema
    is an ExampleError.
    A column that no record has is an error where no schema says what it would hold; `lacking` leaves it out.
    """
    buffer, bounds = _payloads(batch)
    wanted = None if columns is None else list(dict.fromkeys(columns))
    features = _features(schema, wanted)
    names = wanted if wanted is not None else list(features)
    parsed = _kernel.ExampleColumns(
        buffer,
        bounds,
        [name.encode() for name in names],
        bytes(features[name].kind if name in features else 0 for name in names),
        schema is None and wanted is None,
        schema is not None and wanted is None,
        threads or (usable_cpus() if bounds[-1] > ONE_CORE else 1),
        isinstance(batch, Block),
    )
    if parsed.flaw is not None:
        raise _located(*parsed.flaw)
    records = len(bounds) - 1
    found = Columns(_columns(parsed, buffer, records), records)
    if records and not lacking:
        for name in names:
            if name not in found:
                raise _unknown(name, () if isinstance(batch, Block) else batch)
    return _conforming(found, features) if features else found


def _payloads(batch: Sequence[Any]) -> tuple[Any, _kernel.U64]:
    """(bytes, edges) of all payloads, or of a block's frames."""
    if isinstance(batch, Block):
        return batch.buffer, batch.bounds
    offsets = getattr(batch, "offsets", None)
    if offsets is not None:
        return batch.buffer, offsets.view(np.uint64)  # type: ignore[attr-defined]
    payloads = list(batch)
    bounds = np.zeros(len(payloads) + 1, np.uint64)
    np.cumsum([len(payload) for payload in payloads], out=bounds[1:])
    return b"".join(payloads), bounds


def _features(schema: Schema | None, wanted: list[str] | None) -> dict[str, Feature]:
    if schema is None:
        return {}
    for name in wanted or ():
        if name not in schema:
            raise UsageError(f"the schema has no feature {name!r}{_like(name, schema)}")
    return {name: schema[name] for name in (schema if wanted is None else wanted)}


def _columns(parsed: _kernel.ExampleColumns, buffer: Any, records: int) -> dict[str, tuple[Any, ...]]:
    """What columns are made of: arrays, which the kernel fills. Rows of equal lengths are shared."""
    found: dict[str, tuple[Any, ...]] = {}
    arrays: list[Any] = []
    shared: dict[int, Int64s] = {}
    numbers = np.arange(records + 1)
    empty = np.empty
    for name, number, count, size, missing, ragged, each in parsed.columns:
        kind = KINDS[number]
        if kind is None:
            arrays.append((empty(0, INT), None, None, None))
            continue
        items = present = None
        if ragged:
            rows = empty(records + 1, INT)
        elif each in shared:
            rows = shared[each]
        else:
            rows = shared[each] = numbers * each
            rows.flags.writeable = False
        if missing:
            present = empty(records, np.bool_)
        if kind is Kind.BYTES:
            values, items = _room(size, OCTET), empty(count + 1, INT)
        else:
            values = _room(count, INT if kind is Kind.INT64 else FLOAT)
        arrays.append((values, rows if ragged else None, items, present))
        found[name] = name, kind, values, rows, items, present
    try:
        parsed.fill(buffer, arrays)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return found


def _room(count: int, dtype: np.dtype[Any]) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """For so many values. JAX copies what does not begin at a multiple of 64: for a few that is cheaper."""
    size = count * dtype.itemsize
    if size < WORTH_ALIGNING:
        return np.empty(count, dtype)
    room = np.empty(size + ALIGNED, OCTET)
    begin = -room.ctypes.data % ALIGNED
    return room[begin : begin + size].view(dtype)


def _conforming(columns: Columns, features: dict[str, Feature]) -> Columns:
    """As the schema wants them; ExampleError for the first record that is not."""
    found = {name: conform(column, features[name]) for name, column in columns.items()}
    departures = [departure(column, features[name]) for name, column in found.items()]
    if wrong := [one for one in departures if one is not None]:
        record, problem = min(wrong)
        raise ExampleError(problem, record=record)
    return Columns(found, columns.records)


def _located(flaw: int, record: int, offset: int, name: bytes, expected: int, found: int) -> ExampleError:
    shown = name.decode(errors="replace")
    if flaw == _kernel.FLAW_MANY:
        return ExampleError("too many different names of features: say which columns are wanted")
    if flaw == _kernel.FLAW_HOLDS:
        problem = f"feature {shown!r} holds {Kind(found).label}, and not {Kind(expected).label}"
    elif flaw == _kernel.FLAW_UNASKED:
        problem = f"feature {shown!r} is not in the schema"
    else:
        problem = PROBLEMS[flaw]
    return ExampleError(problem, offset=offset, record=record)


def _unknown(name: str, batch: Sequence[Any]) -> UsageError:
    names: set[str] = set()
    for payload in islice(batch, SEARCHED):
        with contextlib.suppress(ExampleError):
            names.update(decode(payload))
    return UsageError(f"no record has a feature {name!r}{_like(name, names)}")


def _like(name: str, names: Iterable[str]) -> str:
    like = difflib.get_close_matches(name, sorted(names), SHOWN, 0.5)
    return f": do you mean {', '.join(map(repr, like))}?" if like else ""
