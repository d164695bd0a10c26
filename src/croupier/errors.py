"""Everything that can go wrong, as one family.

The tree::

    CroupierError
    ├── UsageError                 the call cannot be right: a flag, a name, outputs that exist
    ├── InputNotFoundError         no file there, or a shard of a set is missing
    ├── StorageError               the operating system refused: no space, no permission, I/O error
    ├── DataError                  the bytes are wrong: carries path, record, offset, expected, found
    │   ├── TruncatedError         the file ends inside a record or inside its compressed stream
    │   ├── HeaderError            a record's length does not match its checksum: what follows is unreachable
    │   ├── PayloadError           a record's payload does not match its checksum: only that record is lost
    │   ├── RecordTooLargeError    a record declares more bytes than the caller allows
    │   ├── CompressionError       the gzip or zlib stream is damaged
    │   ├── ExampleError           the payload is no tf.train.Example, or not what the schema says
    │   └── RowError               a table cannot be read, or a row of it cannot become a record
    ├── TableError                 a kept offset table is damaged, or none is there where one is required
    ├── StaleError                 a file is not what it was when it was opened, or is being written to
    ├── IntegrityError             what was written is not what went in: nothing was published
    └── CancelledError             stopped on request, nothing half-done is left
"""

from __future__ import annotations

import os
from typing import Any


class CroupierError(Exception):
    """Whatever Croupier raises on purpose."""


class UsageError(CroupierError, ValueError):
    """The call cannot be right; nothing was read or written."""


class InputNotFoundError(CroupierError, FileNotFoundError):
    """There is no such input, or a set of shards is incomplete."""

    def __str__(self) -> str:  # OSError's would show a tuple
        return str(self.args[0]) if self.args else ""


class StorageError(CroupierError, OSError):
    """The operating system refused to read or write."""

    def __init__(self, action: str, path: str, error: OSError, done: int | None = None) -> None:
        super().__init__(error.errno, os.strerror(error.errno) if error.errno else str(error), path)
        self.action, self.path, self.done = action, path, done

    def __str__(self) -> str:
        after = "" if self.done is None else f" after {self.done:,} bytes"
        return f"{self.path}: cannot {self.action}{after}: {self.strerror}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.action, self.path, OSError(self.errno, self.strerror), self.done)


class DataError(CroupierError):
    """The bytes are wrong. Says which file, which record and which byte."""

    def __init__(
        self,
        problem: str,
        path: str,
        *,
        offset: int,
        record: int | None = None,
        expected: object = None,
        found: object = None,
        inflated: bool = False,
    ) -> None:
        super().__init__(problem)
        self.problem, self.path, self.offset, self.record = problem, path, offset, record
        self.expected, self.found = expected, found
        self.inflated = inflated
        """`offset` counts decompressed bytes, not bytes of the file."""

    def __str__(self) -> str:
        record = "" if self.record is None else f"record {self.record}, "
        unit = "decompressed byte" if self.inflated else "byte"
        values = ""
        if self.expected is not None:
            values = f" (expected {self.expected}, found {self.found})"
        return f"{self.path}: {record}{unit} {self.offset}: {self.problem}{values}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[DataError], args: tuple[Any, ...], state: dict[str, Any]) -> DataError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class TruncatedError(DataError):
    """The file ends inside a record or inside its compressed stream."""


class HeaderError(DataError):
    """A record's length does not match its checksum."""


class PayloadError(DataError):
    """A record's payload does not match its checksum."""


class RecordTooLargeError(DataError):
    """A record declares more bytes than the caller allows (`max_record_bytes`)."""


class CompressionError(DataError):
    """The gzip or zlib stream is damaged."""


class ExampleError(DataError):
    """The payload is no tf.train.Example, or is not what the schema says.

    `offset` counts bytes of the payload. Where no file is known `path` is "" and `record` counts in the
    batch: whoever knows sets both.
    """

    def __init__(self, problem: str, *, offset: int | None = None, record: int | None = None) -> None:
        super().__init__(problem, "", offset=offset or 0, record=record)
        self.located = offset is not None
        """A byte is to blame, and not the payload as a whole."""

    def __str__(self) -> str:
        of_record = [] if self.record is None else [f"record {self.record}"]
        where = [*of_record, f"byte {self.offset} of the payload"] if self.located else of_record
        return ": ".join(part for part in (self.path, ", ".join(where), self.problem) if part)


class RowError(DataError):
    """A table cannot be read, or a row of it cannot become a record. `record` is the row: the first is 0."""

    def __init__(self, problem: str, path: str = "", *, row: int | None = None) -> None:
        super().__init__(problem, path, offset=0, record=row)

    def __str__(self) -> str:
        row = "" if self.record is None else f"row {self.record}"
        return ": ".join(part for part in (self.path, row, self.problem) if part)


class TableError(CroupierError):
    """A kept offset table is damaged, or none is there where one is required. It can always be made again."""


class StaleError(CroupierError):
    """A file is not what it was when it was opened: it was replaced, truncated or written to."""


class IntegrityError(CroupierError):
    """What would have been published is not what went in."""


class CancelledError(CroupierError):
    """The work was stopped on request."""


class CorruptionWarning(UserWarning):
    """Damage was passed over, as `on_corrupt` asked."""


class SlowAccessWarning(UserWarning):
    """What was asked for can be had, but slowly: random access to a file that has no entry points."""
