"""CSV files. Their values are read as bytes, whatever they look like; what they are is found out here."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from croupier.errors import RowError, UsageError
from croupier.example.arrow import Array, RecordBatch, pyarrow
from croupier.example.columns import Kind
from croupier.example.from_arrow import FLOAT, LONG
from croupier.runtime import MIB, Runtime
from croupier.tables.sources import Part, TextFile, chosen, reading, size_of

_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_PADDED = r"^-?0[0-9]"
_LARGEST = 1 << 30
_ROW = re.compile(r"Row #(\d+): (.*)", re.DOTALL)


class CsvTable:
    """A CSV file with a header. Nothing between two commas is a missing value, "" an empty string."""

    inferred = True

    def __init__(self, path: str, delimiter: str | None) -> None:
        self.path = path
        self.bytes = size_of(path)
        self.rows: int | None = None
        self.kinds: dict[str, Kind | None] = {}
        self._delimiter = delimiter or ("\t" if ".tsv" in path.lower() else ",")
        if len(self._delimiter.encode()) != 1:
            raise UsageError(f"a delimiter is one character, not {self._delimiter!r}")
        self._block = MIB  # pyarrow reads several ahead
        self._names = self._fitting(self._header)
        chosen(path, self._names, None)  # which refuses a name that comes twice

    def survey(self, columns: Sequence[str] | None, asked: Mapping[str, Kind], runtime: Runtime) -> None:
        """A column is int64 if all of its values are printed like that, float32 if all are numbers."""
        names = chosen(self.path, self._names, columns)
        found = self._fitting(partial(self._survey, names, runtime))
        self.kinds = {name: asked.get(name, found[name].kind) for name in names}

    def _survey(self, names: list[str], runtime: Runtime) -> dict[str, _Looks]:
        found = {name: _Looks() for name in names}
        self.rows = 0
        file = TextFile(self.path)
        for rows, batch in runtime.map(_survey, self._batches(names, file)):
            self.rows += rows
            found = {name: looks.and_those(batch[name]) for name, looks in found.items()}
            runtime.advance(file.moved(), rows)
        return found

    def parts(self) -> Iterator[Part]:
        """As they come."""
        for batch in self._batches(list(self.kinds), TextFile(self.path)):
            yield Part(batch.nbytes, partial(lambda batch: batch, batch))

    def _header(self) -> list[str]:
        with _parsing(self.path):
            return list(self._open([], TextFile(self.path)).schema.names)

    def _batches(self, names: list[str], file: TextFile) -> Iterator[RecordBatch]:
        with _parsing(self.path):
            yield from self._open(names, file)

    def _open(self, names: list[str], file: TextFile) -> Any:
        pa, csv = pyarrow(), pyarrow("csv")
        alone = len(getattr(self, "_names", ())) == 1  # then an empty line is a row
        return csv.open_csv(
            file.stream,
            csv.ReadOptions(use_threads=False, block_size=self._block),  # threads would not know row numbers
            csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=not alone
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.binary()),
                include_columns=names,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )

    def _fitting(self, function: Any) -> Any:
        """Rows must fit in a block: it grows as it has to."""
        while True:
            try:
                return function()
            except RowError as error:
                if "straddl" not in error.problem or self._block >= _LARGEST:
                    raise
                self._block *= 16


@contextlib.contextmanager
def _parsing(path: str) -> Iterator[None]:
    try:
        with reading(path):
            yield
    except RowError as error:
        problem = error.problem.removeprefix("CSV parse error: ")
        found = _ROW.match(problem)  # the header is row 1
        raise RowError(
            found[2] if found else problem, path, row=int(found[1]) - 2 if found else None
        ) from error


class _Looks(NamedTuple):
    """What all values of a column could be."""

    some: bool = False
    whole: bool = True
    number: bool = True

    def and_those(self, other: _Looks) -> _Looks:
        return _Looks(self.some or other.some, self.whole and other.whole, self.number and other.number)

    @property
    def kind(self) -> Kind | None:
        if not self.some:
            return None
        return Kind.INT64 if self.whole else Kind.FLOAT if self.number else Kind.BYTES


def _survey(batch: RecordBatch) -> tuple[int, dict[str, _Looks]]:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return len(batch), {name: _looks(array.drop_null()) for name, array in columns}


def _looks(values: Array) -> _Looks:
    """Integers as Python prints them that fit int64; else decimals: without zeros in front, which are codes,
    and without integers of more than 15 digits, which float32 would change beyond recognition."""
    if not len(values):
        return _Looks()
    whole = _all_are(values, _WHOLE) and _fits(values)
    number = whole or (
        _all_are(values, f"^({FLOAT})$") and not _any_is(values, _PADDED) and not _any_is(values, LONG)
    )
    return _Looks(some=True, whole=whole, number=number)


def _all_are(values: Array, pattern: str) -> bool:
    compute = pyarrow("compute")
    # The first few tell of most columns.
    return all(
        compute.all(compute.match_substring_regex(part, pattern), min_count=0).as_py()
        for part in (values[:64], values[64:])
    )


def _any_is(values: Array, pattern: str) -> bool:
    compute = pyarrow("compute")
    return bool(compute.any(compute.match_substring_regex(values, pattern)).as_py())


def _fits(values: Array) -> bool:
    pa = pyarrow()
    try:
        values.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True
