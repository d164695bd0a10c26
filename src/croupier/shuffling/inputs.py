"""The files that are shuffled: which ones, in which order, and what they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isal import isal_zlib

from croupier import naming, storage
from croupier.codec.detect import HEAD, Compression, detect
from croupier.codec.inflate import Inflater
from croupier.errors import DataError, StaleError, UsageError
from croupier.frames import BLOCK
from croupier.streams import open_file

SAMPLE = 1 << 18
"""Decompressed bytes that tell how much a file expands."""
SAMPLED = 64
"""Files of which that is asked; the others are taken to be like them."""


@dataclass(frozen=True)
class Input:
    """A file."""

    path: str
    size: int
    modified: int
    compression: Compression

    @property
    def is_plain(self) -> bool:
        """Whether its bytes are frames."""
        return self.compression is Compression.NONE

    def check_unchanged(self) -> None:
        """After it was read: is it still the file that was planned with?"""
        with storage.reporting("read", self.path):
            now = os.stat(self.path)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.modified):
            raise StaleError(
                f"{self.path}: was written to while it was read; shuffle again when it is complete"
            )


def find_inputs(patterns: storage.PathLike | Iterable[storage.PathLike]) -> list[Input]:
    """All files, in the order of the bytes of their paths (below the common root): their places are their
    numbers, which their records' keys depend on.

    A file that two patterns name is refused: its records would come twice.
    """
    paths = naming.expand(patterns)
    if storage.STDIN in paths:
        raise UsageError(
            "-: a pipe cannot be shuffled, as it may have to be read twice: save it to a file first"
        )
    seen: dict[str, str] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise UsageError(f"{path}: is the same file as {seen[real]}: its records would come twice")
        seen[real] = path
    return sorted(map(_look_at, paths), key=lambda one: os.fsencode(os.path.abspath(one.path)))


def _look_at(path: str) -> Input:
    """Refuses what cannot be read, or does not begin with a record."""
    with storage.reporting("open", path):
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path}: not a regular file")
    with storage.FileSource(path) as file:
        compression = detect(file.peek(HEAD))
    return Input(path, status.st_size, status.st_mtime_ns, compression)


def expansion(inputs: Iterable[Input]) -> float:
    """Decompressed bytes to bytes on disk, from the beginnings of some of the compressed files."""
    packed = [one for one in inputs if not one.is_plain and one.size]
    step = len(packed) // SAMPLED + 1
    raw = stored = 0
    for one in packed[::step]:
        with storage.FileSource(one.path) as file:
            inflater = Inflater(file, one.path, one.compression)
            room = memoryview(bytearray(SAMPLE))
            while inflater.produced < SAMPLE and inflater.readinto(room):
                pass
            raw += inflater.produced
            stored += inflater.consumed
    return raw / stored if raw else 1.0


def compressibility(inputs: Sequence[Input]) -> float:
    """Bytes of plain files to what they take when compressed, from the beginnings of some."""
    raw = packed = 0
    for one in inputs[:: len(inputs) // SAMPLED + 1]:
        with storage.FileSource(one.path) as file:
            head = file.peek(SAMPLE)
        raw += len(head)
        packed += len(isal_zlib.compress(head, 1, -15))
    return raw / packed if packed else 1.0


def mean_frame(inputs: Sequence[Input]) -> int:
    """Bytes of a record with its frame, from the beginnings of some files."""
    size = records = 0
    some = [one for one in inputs if one.size]
    for one in some[:: len(some) // SAMPLED + 1]:
        with open_file(one.path, "skip", on_damage=lambda damage: None, giants_from=BLOCK) as opened:
            for block in opened.frames:
                size += int(block.bounds[-1] - block.bounds[0])
                records += len(block)
                break
    return size // records if records else 0


def check_beginnings(inputs: Iterable[Input], on_corrupt: str) -> None:
    """Raise what is wrong with the first records of files, hours before they would be read."""
    if on_corrupt != "fail":
        return
    for one in inputs:
        with open_file(one.path, giants_from=BLOCK) as opened:
            try:
                next(iter(opened.frames), None)
            except DataError as error:
                error.add_note("Found before anything was read or written: see `croupier verify`.")
                raise
