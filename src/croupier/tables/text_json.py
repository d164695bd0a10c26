"""Files of JSON lines: an object in each line."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from croupier.errors import RowError
from croupier.example.arrow import Array, RecordBatch, pyarrow
from croupier.example.columns import Kind
from croupier.example.from_arrow import WHOLE, kind_of
from croupier.frames import MAX_RECORD
from croupier.runtime import Runtime
from croupier.tables.sources import PART, Part, TextFile, chosen, reading, size_of

B64 = "b64"
_ROW = re.compile(r"(.*?) in row (\d+)", re.DOTALL)


class JsonTable:
    """JSON lines. An absent key and null are missing values; {"b64": "..."} is bytes."""

    inferred = True

    def __init__(self, path: str) -> None:
        self.path, self.bytes = path, size_of(path)
        self.rows: int | None = None
        self.kinds: dict[str, Kind | None] = {}
        self._types: dict[str, Any] = {}
        self._all = True

    def survey(self, columns: Sequence[str] | None, asked: Mapping[str, Kind], runtime: Runtime) -> None:
        """All lines are parsed for the types of their values, which must fit together."""
        pa = pyarrow()
        self.rows = 0
        types: dict[str, Any] = {}
        huge: dict[str, int] = {}
        file = TextFile(self.path)
        for part in runtime.map(_survey, self._blocks(file)):
            if isinstance(part, RowError):
                raise RowError(part.problem, self.path, row=self.rows + (part.record or 0)) from part
            for name, found in part.types.items():
                types[name] = self._merged(name, types.get(name, pa.null()), found)
            huge = part.huge | huge
            self.rows += part.rows
            runtime.advance(file.moved(), part.rows)
        names = chosen(self.path, list(types), columns)
        self._all = len(names) == len(types)
        self._types = {name: types[name] for name in names}
        for name in names:
            kind = asked.get(name, kind_of(pa.field(name, _content(types[name]))))
            if kind is Kind.FLOAT and name in huge and name not in asked:
                raise RowError(
                    f"column {name!r} has the whole number {huge[name]} among numbers that are no int64: "
                    "make all of them strings, or ask for float32 to have them rounded",
                    self.path,
                )
            self.kinds[name] = kind

    def _merged(self, name: str, one: Any, other: Any) -> Any:
        """The type that values of both have."""
        pa = pyarrow()
        types = pa.types
        if one.equals(other) or types.is_null(other):
            return one
        if types.is_null(one):
            return other
        if types.is_list(one) and types.is_list(other):
            return pa.list_(self._merged(name, one.value_type, other.value_type))
        if {one, other} == {pa.int64(), pa.float64()}:
            return pa.float64()
        raise RowError(
            f"column {name!r} is {_content(one)} in some rows, {_content(other)} in others", self.path
        )

    def parts(self) -> Iterator[Part]:
        """Lines, which are parsed where they are needed."""
        pa = pyarrow()
        schema = pa.schema(list(self._types.items()))
        for block in self._blocks(TextFile(self.path)):
            yield Part(len(block), partial(_parse, block, schema, others=not self._all))

    def _blocks(self, file: TextFile) -> Iterator[bytes]:
        """Whole lines, some megabytes of them."""
        with reading(self.path):
            pieces: list[bytes] = []
            while piece := file.stream.read(PART):
                end = piece.rfind(b"\n") + 1
                pieces.append(piece[:end] if end else piece)
                if end:
                    yield b"".join(pieces)
                    pieces = [piece[end:]]
                elif sum(map(len, pieces)) > MAX_RECORD // 2:
                    raise RowError(f"no line ends within {MAX_RECORD // 2:,} bytes", self.path)
            if rest := b"".join(pieces):
                yield rest


class _Survey(NamedTuple):
    rows: int
    types: dict[str, Any]
    huge: dict[str, int]
    """Of columns, a whole number that float64 may not have."""


def _survey(block: bytes) -> _Survey | RowError:
    """The types of some lines."""
    pa = pyarrow()
    try:
        table = _read(block, None)
    except RowError as error:
        return error
    types, huge = {}, {}
    for field, column in zip(table.schema, table.columns, strict=True):
        types[field.name] = _plain(field.type)
        numbers = column.combine_chunks()
        while pa.types.is_list(numbers.type):
            numbers = numbers.flatten()
        if pa.types.is_integer(numbers.type) or pa.types.is_floating(numbers.type):
            values = np.abs(numbers.drop_null().to_numpy(zero_copy_only=False).astype(np.float64))
            large = values[np.isfinite(values)] >= WHOLE
            if large.any():
                huge[field.name] = 0
    return _Survey(len(table), types, _exactly(block, huge) if huge else {})


def _exactly(block: bytes, names: dict[str, int]) -> dict[str, int]:
    """Of these columns, those whose lines do have such a number written as a whole one."""
    found: dict[str, int] = {}
    for line in block.splitlines():
        if not line.strip():
            continue
        row = json.loads(line)
        for name in names:
            values = row.get(name)
            for value in values if isinstance(values, list) else [values]:
                if isinstance(value, int) and abs(value) >= WHOLE:
                    found[name] = value
    return found


def _plain(kind: Any) -> Any:
    """The type to read a column as: text stays text, even where it looks like a time."""
    pa = pyarrow()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _content(kind: Any) -> Any:
    """The type once bytes are bytes."""
    pa = pyarrow()
    if pa.types.is_list(kind):
        return pa.list_(_content(kind.value_type))
    return pa.large_binary() if _is_b64(kind) else kind


def _is_b64(kind: Any) -> bool:
    types = pyarrow().types
    names = [kind.field(number).name for number in range(kind.num_fields)] if types.is_struct(kind) else []
    return names == [B64] and types.is_string(kind.field(0).type)


def _parse(block: bytes, schema: Any, *, others: bool) -> RecordBatch:
    """Some lines as a record batch of these types."""
    table = _read(block, schema, others=others)
    columns = {
        name: _decoded(name, column.combine_chunks())
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    pa = pyarrow()
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(table), pa.struct([])))
    return pa.RecordBatch.from_pydict(columns)


def _read(block: bytes, schema: Any, *, others: bool = False) -> Any:
    pa, reader = pyarrow(), pyarrow("json")
    beyond = "infer" if schema is None else "ignore" if others else "error"
    try:
        with reading(""):
            return reader.read_json(
                pa.BufferReader(block),
                reader.ReadOptions(use_threads=False, block_size=max(len(block), 1)),
                reader.ParseOptions(explicit_schema=schema, unexpected_field_behavior=beyond),
            )
    except RowError as error:
        problem = error.problem.removeprefix("JSON parse error: ")
        if block.lstrip()[:1] == b"[":
            problem = "this is an array, and not an object in each line (jq -c '.[]' makes such lines of it)"
        found = _ROW.match(problem)
        raise RowError(found[1] if found else problem, row=int(found[2]) if found else None) from error


def _decoded(name: str, array: Array) -> Array:
    """The bytes that {"b64": "..."} stands for."""
    pa = pyarrow()
    if pa.types.is_list(array.type):
        try:
            inner = _decoded(name, array.values)
        except RowError as error:  # which counted the values
            edges, number = np.asarray(array.offsets), error.record or 0
            error.record = int(np.searchsorted(edges, number, side="right")) - 1
            raise
        return pa.ListArray.from_arrays(
            array.offsets, inner, mask=array.is_null() if array.null_count else None
        )
    if not _is_b64(array.type):
        return array
    values = []
    for row, value in enumerate(array.to_pylist()):
        try:
            values.append(None if value is None else binascii.a2b_base64(value[B64], strict_mode=True))
        except (binascii.Error, ValueError, TypeError) as error:
            raise RowError(f"column {name!r}: its bytes are not base64: {error}", row=row) from error
    return pa.array(values, pa.large_binary())
