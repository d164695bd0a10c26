"""Many tf.train.Examples as columns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.errors import ExampleError, UsageError
from croupier.example.columns import Column, Columns, Int64s, Kind
from croupier.example.conform import conform, departure
from croupier.example.decode import PROBLEMS, decode
from croupier.example.schema import Feature, Schema
from croupier.runtime import usable_cpus

SHOWN = 8
"""Names that an error lists."""
SEARCHED = 1000
"""Records that are looked through for names like one that was not found."""


def decode_batch(
    batch: Sequence[Any],
    schema: Schema | None = None,
    columns: Iterable[str] | None = None,
    *,
    threads: int | None = None,
) -> Columns:
    """The features of many Examples as columns::

        columns = decode_batch(data[:10_000], columns=["label", "image/encoded"])
        columns["label"].array

    `batch` is a croupier.Batch, or any sequence of payloads. `columns` are the names that are wanted: others
    are passed over without a look at their values. Without it come all that the schema has, or without a
    schema all that occur, in the order of their names' bytes. A departure from the schema is an ExampleError.
    """
    buffer, bounds = _payloads(batch)
    wanted = None if columns is None else list(dict.fromkeys(columns))
    features = _features(schema, wanted)
    names = wanted if wanted is not None else list(features)
    parsed = _kernel.ExampleColumns(
        buffer,
        bounds,
        False,
        [name.encode() for name in names],
        bytes(features[name].kind if name in features else 0 for name in names),
        schema is None and wanted is None,
        schema is not None and wanted is None,
        threads or usable_cpus(),
    )
    if parsed.flaw is not None:
        raise _located(*parsed.flaw)
    records = len(bounds) - 1
    shared: dict[int, Int64s] = {}
    found, wrong = {}, []
    for number, (raw, kind, *sizes) in enumerate(parsed.columns):
        name = raw.decode()
        if kind == 0 and name in features:
            kind = features[name].kind
        if kind == 0:
            if records == 0:
                continue
            raise _unknown(name, batch)
        found[name] = _column(parsed, number, name, Kind(kind), records, sizes, shared)
        if name in features:
            found[name] = conform(found[name], features[name])
            wrong.append(departure(found[name], features[name]))
    departures = [one for one in wrong if one is not None]
    if departures:
        record, problem = min(departures)
        raise ExampleError(problem, record=record)
    return Columns(found, records)


def _payloads(batch: Sequence[Any]) -> tuple[Any, _kernel.U64]:
    """(bytes, edges) of all payloads."""
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


def _column(
    parsed: _kernel.ExampleColumns,
    number: int,
    name: str,
    kind: Kind,
    records: int,
    sizes: list[Any],
    shared: dict[int, Int64s],
) -> Column:
    """Its arrays; columns whose records all have the same length share their rows."""
    count, size, missing, ragged, each = sizes
    items = np.empty(count + 1, np.uint64) if kind == Kind.BYTES else None
    dtype = {Kind.BYTES: np.uint8, Kind.FLOAT: np.float32, Kind.INT64: np.int64}[kind]
    values = np.empty(size if items is not None else count, dtype)
    present = np.empty(records, np.bool_) if missing else None
    if ragged:
        rows = np.empty(records + 1, np.uint64)
    elif each not in shared:
        shared[each] = np.arange(records + 1, dtype=np.int64) * each
        shared[each].flags.writeable = False
    parsed.fill(number, values, rows if ragged else None, items, present)
    return Column(
        name,
        kind,
        values,
        rows.view(np.int64) if ragged else shared[each],
        None if items is None else items.view(np.int64),
        present,
    )


def _located(flaw: int, record: int, offset: int, name: bytes, expected: int, found: int) -> ExampleError:
    shown = name.decode(errors="replace")
    if flaw == _kernel.FLAW_MANY:
        return ExampleError(
            "too many different names of features: say which columns are wanted", record=record
        )
    if flaw == _kernel.FLAW_HOLDS:
        problem = f"feature {shown!r} holds {Kind(found).label}, and not {Kind(expected).label}"
    elif flaw == _kernel.FLAW_UNASKED:
        problem = f"feature {shown!r} is not in the schema"
    else:
        problem = PROBLEMS[flaw]
    return ExampleError(problem, offset=offset, record=record)


def _unknown(name: str, batch: Sequence[Any]) -> UsageError:
    names: dict[str, None] = {}
    for payload in batch[:SEARCHED] if isinstance(batch, list) else batch:
        names |= dict.fromkeys(decode(payload))
    return UsageError(f"no record has a feature {name!r}{_like(name, names)}")


def _like(name: str, names: Iterable[str]) -> str:
    like = difflib.get_close_matches(name, names, SHOWN, 0.5)
    return f": do you mean {', '.join(map(repr, like))}?" if like else ""
