"""Records for people: their features and values, shortened, each as what it looks like."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from croupier.errors import ExampleError
from croupier.example import SequenceExample, decode, decode_sequence
from croupier.example.content import IMAGES, image, looks_like, printable, text_of
from croupier.example.decode import Values

ROOM = 60
"""Characters of text, or of numbers, that are shown of a feature."""
SHORT = 20
"""The same, where a whole record has a line."""
FEW = 4
"""Strings, or steps of a list, that are."""
FEATURES = 200
"""Of a record, that are listed."""
DEEPEST = 3
"""Examples within Examples that are looked into."""


class Row(NamedTuple):
    """A feature, or something within one."""

    depth: int
    name: str
    kind: str
    shown: str


def parse(payload: bytes) -> SequenceExample | None:
    """What a payload holds: of an Example the features are the context. None if it is neither kind."""
    for read in (decode_sequence, lambda payload: SequenceExample(decode(payload))):
        try:
            found = read(payload)
        except ExampleError:
            continue
        return found if found.context or found.feature_lists or not payload else None
    return None


def rows(record: SequenceExample, depth: int = 0) -> Iterator[Row]:
    """A line for each feature, and more for what is in it."""
    room = FEATURES >> 2 * depth
    for name, values in islice(record.context.items(), room):
        yield from _feature(name, values, depth)
    for name, steps in islice(record.feature_lists.items(), room):
        yield Row(depth, printable(name, most=ROOM), "list", f"{len(steps):,} steps")
        for number, values in enumerate(steps[:FEW]):
            yield from _feature(f"[{number}]", values, depth + 1)
        if len(steps) > FEW:
            yield Row(depth + 1, "...", "", "")
    more = max(len(record.context) - room, 0) + max(len(record.feature_lists) - room, 0)
    if more:
        yield Row(depth, "...", "", f"and {more:,} more")


def _feature(name: str, values: Values, depth: int) -> Iterator[Row]:
    yield Row(depth, printable(name, most=ROOM), kind_of(values), shown(values))
    if depth == DEEPEST or isinstance(values, np.ndarray) or len(values) != 1:
        return
    inner = parse(values[0]) if looks_like(values[0]) == "example" else None
    if inner is not None:
        yield from rows(inner, depth + 1)


def kind_of(values: Values) -> str:
    """As TensorFlow names it; nothing where a feature has none."""
    return str(values.dtype) if isinstance(values, np.ndarray) else "string" if values else ""


def line(record: SequenceExample, room: int) -> str:
    """All of a record in one line, as far as there is room."""
    parts = (
        f"{printable(name, most=ROOM)}={shown(values, SHORT)}" for name, values in record.context.items()
    )
    lists = record.feature_lists.items()
    steps = (f"{printable(name, most=ROOM)}: {len(steps):,} steps" for name, steps in lists)
    whole = ""
    for part in chain(parts, steps):
        whole += f"  {part}" if whole else part
        if len(whole) > room:
            return f"{whole[: max(room - 3, 0)]}..."
    return whole


def shown(values: Values, room: int = ROOM) -> str:
    """Values in about so many characters."""
    if not len(values):
        return "nothing"
    if isinstance(values, np.ndarray):
        return _numbers(values, room)
    if len(values) == 1 or room <= SHORT:
        rest = f" ... ({len(values):,} values)" if len(values) > 1 else ""
        return _bytes(values[0], room) + rest
    some = [_bytes(value, max(room // FEW, 8)) for value in values[:FEW]]
    return ", ".join(some) + (f", ... ({len(values):,} values)" if len(values) > FEW else "")


def _numbers(values: np.ndarray[Any, np.dtype[Any]], room: int) -> str:
    form = "{:.6g}" if values.dtype.kind == "f" else "{}"
    text = ""
    for place, value in enumerate(values[:room].tolist()):
        one = form.format(value)
        if len(text) + len(one) > room and place:
            return f"{text} ... ({len(values):,} values)"
        text += f" {one}" if place else one
    return text if len(values) <= room else f"{text} ... ({len(values):,} values)"


def _bytes(value: bytes, room: int) -> str:
    looks = looks_like(value)
    if looks in ("utf-8", "empty"):
        text = text_of(value[: 4 * room], cut=len(value) > 4 * room) or ""
        return f"'{printable(text, most=room)}'" + (f" ({len(value):,} bytes)" if len(text) > room else "")
    size = f"{len(value):,} bytes"
    if looks in IMAGES:
        found = image(value)
        if found is None:
            return f"{looks.upper()} with a damaged header, {size}"
        colours = "" if found.channels is None else f"{found.channels} channel{'s' * (found.channels != 1)}, "
        return f"{looks.upper()} {found.width}x{found.height}, {colours}{size}"
    names = {"example": "an Example", "proto": "a protobuf message"}
    if looks in names:
        return f"{names[looks]}, {size}"
    if room <= SHORT < 3 * len(value):
        return size
    head = value[: max(room // 4, 4)]
    return f"{head.hex(' ')}{' ...' if len(head) < len(value) else ''} ({size})"


def as_dict(record: SequenceExample) -> dict[str, Any]:
    """For JSON: lists of numbers and of texts; bytes that are no text are {"b64": ...}."""
    features = {name: _plain(values) for name, values in record.context.items()}
    if not record.feature_lists:
        return {"features": features}
    lists = {name: [_plain(values) for values in steps] for name, steps in record.feature_lists.items()}
    return {"features": features, "feature_lists": lists}


def _plain(values: Values) -> list[Any]:
    if isinstance(values, np.ndarray):
        numbers: list[Any] = values.tolist()
        return numbers
    return [_text(value) for value in values]


def _text(value: bytes) -> Any:
    text = text_of(value)
    return {"b64": base64.b64encode(value).decode()} if text is None else text
