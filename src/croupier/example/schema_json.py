"""A schema as JSON. Files are written by others as well: each field is looked at before it is believed."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from croupier.errors import UsageError
from croupier.example.columns import Kind

if TYPE_CHECKING:
    from croupier.example.schema import Feature

Read = TypeVar("Read")

FORMAT, VERSION = "croupier schema", 1
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
MOST = 32 << 20
"""Bytes of a file that is read at all."""

_KINDS = {kind.label: kind for kind in Kind}


def kind_of(label: str) -> Kind:
    """The kind that TensorFlow, or Python, names so."""
    others = {"bytes": Kind.BYTES, "str": Kind.BYTES, "float": Kind.FLOAT, "int": Kind.INT64}
    kind = _KINDS.get(label) or others.get(label)
    if kind is None:
        raise UsageError(f"{label!r} is no kind of feature: only {', '.join(_KINDS)}")
    return kind


def dtype_of(dtype: Any) -> np.dtype[Any]:
    """What the values of a raw tensor may be: numbers, and nothing that numpy would follow as a pointer."""
    found: np.dtype[Any] = np.dtype(object)
    if not isinstance(dtype, str) or len(dtype) < 20:
        with contextlib.suppress(TypeError, ValueError, SyntaxError):
            found = np.dtype(dtype)
    if found.fields is not None or found.newbyteorder("=").name not in DTYPES:
        raise UsageError(f"dtype {str(dtype)[:40]!r} is none of {', '.join(DTYPES)}")
    return found


def name_of(dtype: Any) -> str:
    """A dtype's name; of a big-endian one its code, as in ">f4"."""
    found = dtype_of(dtype)
    return found.str if found.str.startswith(">") else found.name


def dump(records: int, features: Iterable[Feature]) -> dict[str, Any]:
    """For JSON; fields that say nothing are left out."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "records": records,
        "features": [_feature_out(feature) for feature in features],
    }


def _feature_out(feature: Feature) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": feature.name, "kind": feature.kind.label, "required": feature.required}
    fields |= {"shortest": feature.shortest, "longest": feature.longest}
    if feature.default is not None:
        fields["default"] = _default_out(feature.default)
    for name in ("dtype", "shape", "content", "sizes", "present"):
        value = getattr(feature, name)
        if value is not None:
            fields[name] = [int(one) for one in value] if isinstance(value, tuple) else value
    return fields


def _default_out(value: Any) -> Any:
    """Numbers as they are; bytes, and numbers that JSON has not, as an object that says what they are."""
    if isinstance(value, list | tuple | np.ndarray):
        return [_default_out(one) for one in np.ravel(np.array(value, object)).tolist()]
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return {"b64": base64.b64encode(raw).decode()}
    if isinstance(value, np.generic):
        value = value.item()
    return {"float": str(value)} if isinstance(value, float) and not np.isfinite(value) else value


def load(text: str | bytes) -> tuple[int, list[Feature]]:
    """(records, features); UsageError for what is not a schema."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"this is not a schema: {str(error)[:200]}") from None
    whole = _Fields(content, "the schema")
    if whole.text("format") != FORMAT:
        raise UsageError("this is not a schema")
    if (version := whole.number("version")) != VERSION:
        raise UsageError(f"this schema is of version {version}, and only {VERSION} can be read")
    listed = whole.list("features")
    features = [_feature_in(_Fields(fields, f"feature {place}")) for place, fields in enumerate(listed)]
    if len({feature.name for feature in features}) < len(features):
        raise UsageError("a feature comes twice in this schema")
    return whole.number("records"), features


def _feature_in(fields: _Fields) -> Feature:
    from croupier.example.schema import Feature

    default = fields.raw.get("default")
    return Feature(
        fields.text("name"),
        kind_of(fields.text("kind")),
        required=fields.flag("required"),
        shortest=fields.number("shortest"),
        longest=fields.optional("longest", fields.number),
        default=None if default is None else _default_in(default),
        dtype=fields.optional("dtype", fields.text),
        shape=fields.optional("shape", fields.numbers),
        content=fields.optional("content", fields.text),
        sizes=fields.optional("sizes", fields.pair),
        present=fields.optional("present", fields.number),
    )


def _default_in(value: Any) -> Any:
    if isinstance(value, list):
        return [_default_in(one) for one in value]
    if isinstance(value, dict):
        try:
            if isinstance(raw := value.get("b64"), str):
                return base64.b64decode(raw, validate=True)
            if isinstance(word := value.get("float"), str):
                return float(word)
        except (ValueError, binascii.Error):
            pass
    elif isinstance(value, int | float):
        return value
    raise UsageError("a default in this schema is neither numbers nor bytes")


class _Fields:
    """Fields of a JSON object, each of the type that it must have."""

    def __init__(self, raw: Any, what: str) -> None:
        if not isinstance(raw, dict):
            raise UsageError(f"{what} is not what it should be")
        self.raw: dict[str, Any] = raw
        self._what = what

    def _typed(self, name: str, good: Callable[[Any], bool]) -> Any:
        value = self.raw.get(name)
        if not good(value):
            raise UsageError(f"{self._what}: its {name!r} is missing or not what it should be")
        return value

    def text(self, name: str) -> str:
        found: str = self._typed(name, lambda value: isinstance(value, str) and _is_text(value))
        return found

    def flag(self, name: str) -> bool:
        found: bool = self._typed(name, lambda value: isinstance(value, bool))
        return found

    def number(self, name: str) -> int:
        found: int = self._typed(name, _is_number)
        return found

    def list(self, name: str) -> list[Any]:
        found: list[Any] = self._typed(name, lambda value: isinstance(value, list))
        return found

    def numbers(self, name: str) -> tuple[int, ...]:
        return tuple(self._typed(name, lambda value: isinstance(value, list) and all(map(_is_number, value))))

    def pair(self, name: str) -> tuple[int, int]:
        found = self.numbers(name)
        if len(found) != 2:
            raise UsageError(f"{self._what}: its {name!r} must be two numbers")
        return found[0], found[1]

    def optional(self, name: str, read: Callable[[str], Read]) -> Read | None:
        return None if self.raw.get(name) is None else read(name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
