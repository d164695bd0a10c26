"""What tells that a file is still the one that a table was made of.

Its size and its time of modification must be the same, and either its time of change and its inode as well or
some of its content: a copied dataset keeps its tables, and so does one that was only linked to or given
another mode.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from croupier import _kernel, storage
from croupier.table.packed import Integers


class Identity(NamedTuple):
    """Of files: a number each."""

    size: Integers
    modified: Integers
    """Nanoseconds, as is `changed`; both as the unsigned form of a signed number."""
    changed: Integers
    inode: Integers
    digest: Integers
    """CRC-32C of sampled content."""

    def take(self, rows: Integers) -> Identity:
        """Of some rows."""
        return Identity(*(column[rows] for column in self))

    def row(self, number: int) -> tuple[int, ...]:
        """Of one file."""
        return tuple(int(column[number]) for column in self)


def stamp(status: os.stat_result) -> tuple[int, ...]:
    """Size, times and inode, as in a row."""
    return (
        status.st_size,
        status.st_mtime_ns % (1 << 64),
        status.st_ctime_ns % (1 << 64),
        status.st_ino,
    )


def is_same(row: Sequence[int], now: tuple[int, ...], digest: Callable[[], int]) -> bool:
    """Whether a file whose stamp is `now` is a row's."""
    return row[:2] == now[:2] and (row[2:4] == now[2:] or row[4] == digest())


def sample(path: str, size: int) -> int:
    """The digest of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer must not hang
    try:
        return _kernel.digest(fd, size)
    finally:
        storage.close(fd)
