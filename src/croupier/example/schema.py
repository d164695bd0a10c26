"""What features a dataset's Examples have."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from croupier import storage
from croupier.errors import UsageError
from croupier.example import schema_json
from croupier.example.columns import Kind
from croupier.example.content import printable


@dataclass(frozen=True)
class Feature:
    """One feature of all records."""

    name: str
    kind: Kind
    required: bool = False
    """Every record has it."""
    shortest: int = 0
    """The fewest values that a record has which has the feature."""
    longest: int | None = None
    """The most; None: any number."""
    default: Any = None
    """Stands for it in records that lack it (with `length` values, or one)."""
    dtype: str | None = None
    """Of raw tensors in bytes: each value is one. "float32", "uint8"...; ">f4" is a big-endian one."""
    shape: tuple[int, ...] | None = None
    """Of one record's values, or of its one raw tensor."""
    content: str | None = None
    """What all bytes look like: "jpeg", "png", "gif", "webp", "bmp", "tiff", "image" (several of these),
    "utf-8", "example" (a tf.train.Example), "proto", "raw"."""
    sizes: tuple[int, int] | None = None
    """Bytes of the shortest and of the longest value."""
    present: int | None = None
    """How many records have it, where they were counted."""

    @property
    def length(self) -> int | None:
        """How many values each record has that has the feature, where all have as many."""
        return self.longest if self.longest == self.shortest else None


class Schema(Mapping[str, Feature]):
    """Features by name::

        schema = croupier.infer_schema("train-*.tfrecord.gz")
        schema = schema.replace("inputs", dtype="float32", shape=[100, 221, 7])
        print(schema, schema.parse_spec())

    It cannot be changed: each change gives another one.
    """

    def __init__(self, features: Mapping[str, Feature], records: int = 0) -> None:
        self._features = dict(features)
        self.records = records
        """How many records it was inferred from; 0: it was made by hand."""
        for name, feature in self._features.items():
            _check(name, feature)

    def __getitem__(self, name: str) -> Feature:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)

    def replace(self, name: str, /, **changes: Any) -> Schema:
        """The same schema but for one feature: its `dtype`, `shape`, `default`, `required`...

        A feature that it has not yet is added; then its `kind` is needed ("string", "float32", "int64").
        """
        known = self._features.get(name)
        fields = {field.name for field in dataclasses.fields(Feature)} - {"name"}
        if unknown := set(changes) - fields:
            raise UsageError(f"a feature has no {unknown.pop()!r}: only {', '.join(sorted(fields))}")
        if isinstance(changes.get("kind"), str):
            changes["kind"] = schema_json.kind_of(changes["kind"])
        if changes.get("shape") is not None:
            changes["shape"] = tuple(changes["shape"])
        if changes.get("dtype") is not None:
            changes["dtype"] = schema_json.name_of(changes["dtype"])
        if known is None and "kind" not in changes:
            raise UsageError(f"there is no feature {name!r}: to add it, give its kind")
        changed = dataclasses.replace(known, **changes) if known else Feature(name, **changes)
        return Schema(self._features | {name: changed}, self.records)

    def select(self, names: Sequence[str]) -> Schema:
        """These features alone, in this order."""
        for name in names:
            if name not in self._features:
                raise UsageError(f"there is no feature {name!r}")
        return Schema({name: self._features[name] for name in names}, self.records)

    # For files

    def to_json(self) -> str:
        """As text; `from_json` gives it back."""
        return json.dumps(schema_json.dump(self.records, self._features.values()), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """What `to_json` gave; UsageError for anything else."""
        records, features = schema_json.load(text)
        return cls({feature.name: feature for feature in features}, records)

    def save(self, path: storage.PathLike) -> None:
        """Write it to a file, whole or not at all."""
        storage.write_file(path, self.to_json().encode())

    @classmethod
    def load(cls, path: storage.PathLike) -> Schema:
        """What `save` wrote."""
        content = storage.read_small(path, schema_json.MOST)
        try:
            return cls.from_json(content)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None

    # For people

    def parse_spec(self, *, ragged: bool = True) -> str:
        """The text of a dict for `tf.io.parse_example`.

        Lists become ragged tensors; with `ragged=False` sparse ones. What some records lack and is of one
        length in the others gets its default, or zeros.
        """
        lines = [f"    {feature.name!r}: {_spec(feature, ragged)}\n" for feature in self._features.values()]
        return "{\n" + "".join(lines) + "}"

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Name, kind, values of a record, which records have it, what it looks like: for a table."""
        return [_row(feature, self.records) for feature in self._features.values()]

    def __str__(self) -> str:
        head = ("feature", "kind", "values", "in", "looks like")
        rows = [head, *self.rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    def __repr__(self) -> str:
        of = f", of {self.records:,} records" if self.records else ""
        return f"<croupier.Schema of {len(self):,} features{of}>\n{self}"


def _check(name: str, feature: Feature) -> None:
    """Refuse what no records could have."""

    def refuse(why: str) -> None:
        raise UsageError(f"feature {name!r}: {why}")

    if feature.name != name:
        refuse(f"is named {feature.name!r} in itself")
    if feature.shortest < 0 or (feature.longest is not None and feature.longest < feature.shortest):
        refuse(f"cannot have {feature.shortest} to {feature.longest} values")
    if feature.shape is not None and any(
        isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 0
        for extent in feature.shape
    ):
        refuse(f"{feature.shape} is no shape")
    if feature.shape is not None and math.prod(feature.shape) >= 1 << 40:
        refuse(f"no record has room for a shape of {feature.shape}")
    if feature.dtype is not None and feature.kind is not Kind.BYTES:
        refuse(f"only bytes can hold raw tensors, not {feature.kind.label}")
    if feature.dtype is not None:
        schema_json.dtype_of(feature.dtype)
    sized = feature.dtype is None and feature.length is not None
    if sized and feature.shape is not None and math.prod(feature.shape) != feature.length:
        refuse(f"{feature.length} values do not have the shape {feature.shape}")
    if feature.default is not None and not _is_default(feature):
        refuse(f"{feature.default!r} cannot stand for {feature.kind.label}")


def _is_default(feature: Feature) -> bool:
    values = feature.default
    many = isinstance(values, list | tuple | np.ndarray)
    if feature.dtype is not None:  # all elements alike, or the bytes of one tensor
        return not many and any(_stands_for(values, kind) for kind in (Kind.BYTES, Kind.FLOAT))
    listed = np.ravel(np.array(values, object)).tolist() if many else [values]
    if many and feature.length is not None and len(listed) != feature.length:
        return False
    return all(_stands_for(value, feature.kind) for value in listed)


def _stands_for(value: Any, kind: Kind) -> bool:
    if kind is Kind.BYTES:
        return isinstance(value, bytes | str)
    if kind is Kind.FLOAT:
        return isinstance(value, float | int | np.floating | np.integer)
    return isinstance(value, int | np.integer) and -(1 << 63) <= int(value) < 1 << 63


def _spec(feature: Feature, ragged: bool) -> str:
    """As in `tf.io.FixedLenFeature([], tf.int64),  # what to know`."""
    dtype = f"tf.{feature.kind.label}"
    length = 1 if feature.dtype is not None else feature.length
    if not length:
        return f"tf.io.RaggedFeature({dtype})," if ragged else f"tf.io.VarLenFeature({dtype}),"
    shape = [] if length == 1 else [length]
    if feature.shape is not None and feature.dtype is None:
        shape = list(feature.shape)
    default = notes = ""
    if not feature.required:
        default = f", default_value={_default(feature, length)}"
        notes = "  # some records lack it"
    if feature.dtype is not None:
        order = ", little_endian=False" if feature.dtype.startswith(">") else ""
        name = np.dtype(feature.dtype).newbyteorder("=").name
        decode = f"tf.io.decode_raw(..., tf.{name}{order})"
        notes += f"  # {decode}" + (
            f", reshaped to {list(feature.shape)}" if feature.shape is not None else ""
        )
    return f"tf.io.FixedLenFeature({shape}, {dtype}{default}),{notes}"


def _default(feature: Feature, length: int) -> str:
    value = feature.default
    if value is None:
        value = {Kind.BYTES: b"", Kind.FLOAT: 0.0, Kind.INT64: 0}[feature.kind]
    if feature.dtype is not None and not isinstance(value, str | bytes):
        value, length = np.array(value, feature.dtype).tobytes(), math.prod(feature.shape or ())
        return f"{value!r} * {length}" if length != 1 else repr(value)
    if isinstance(value, list | tuple | np.ndarray):
        listed = [_literal(one) for one in np.ravel(np.array(value, object)).tolist()]
        return f"[{', '.join(listed)}]" if length > 1 else listed[0]
    return f"[{_literal(value)}] * {length}" if length > 1 else _literal(value)


def _literal(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"float({str(value)!r})"


def _row(feature: Feature, records: int) -> tuple[str, str, str, str, str]:
    least, most = feature.shortest, feature.longest
    if feature.shape is not None and feature.dtype is None:
        values = "x".join(map(str, feature.shape)) or "1"
    else:
        values = (
            f"{least:,}" if most == least else f"{least:,} {'or more' if most is None else f'to {most:,}'}"
        )
    if feature.required:
        where = "all"
    elif feature.present is not None and records:
        where = f"{100 * feature.present / records:.3g} %" if feature.present else "none"
    else:
        where = "some"
    return printable(feature.name, most=60), feature.kind.label, values, where, _looks(feature)


def _looks(feature: Feature) -> str:
    if feature.kind is not Kind.BYTES:
        return ""
    parts = [feature.content] if feature.content else []
    if feature.dtype is not None:
        parts = [f"{feature.dtype} {list(feature.shape)}" if feature.shape is not None else feature.dtype]
    if feature.sizes is not None and feature.sizes[1]:
        least, most = feature.sizes
        parts.append(f"{least:,} bytes" if least == most else f"{least:,} to {most:,} bytes")
    return ", ".join(parts)
