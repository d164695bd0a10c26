"""The files that are shuffled: which ones, in which order, and what they are."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from isal import isal_zlib

from croupier import _kernel, naming, storage
from croupier.codec.detect import HEAD, Compression, detect
from croupier.codec.inflate import Inflater
from croupier.errors import DataError, StaleError, UsageError
from croupier.frames import BLOCK, MAX_RECORD
from croupier.proof import Proof
from croupier.publish import files_packed
from croupier.runtime import Runtime
from croupier.shuffling.run import PER_PIECE, PER_RECORD, Run
from croupier.shuffling.small import FEW, TOGETHER, Kept, SmallFiles
from croupier.streams import open_file
from croupier.table.packed import Rows, integers

SAMPLE = 1 << 18
"""Decompressed bytes that tell how much a file expands."""
SAMPLED = 64
"""Files of which that is asked; the others are taken to be like them."""

MANY = 10_000
"""Files from which on a receipt lists them by their folders."""
_SPARE = 64 << 20  # bytes of memory for records, beyond what a sample wants; they are not touched


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


class Inputs(Sequence[Input]):
    """All of them, in columns: of a million files, objects would take more memory than the records."""

    def __init__(self, paths: Sequence[str], absolute: Sequence[str]) -> None:
        self._names = _packed(paths)
        self._absolute = self._names if paths == absolute else _packed(absolute)
        self.sizes, self.modified = integers(len(paths)), np.zeros(len(paths), np.int64)
        self.inode, self.device, self.records = (integers(len(paths)) for _ in range(3))
        self.kinds = np.zeros(len(paths), np.uint8)
        self.small = np.zeros(len(paths), np.bool_)
        """Those of which everything has been read, and is right."""
        self.kept: Kept | None = None
        """All that was read, where memory has room for it."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> Input: ...
    @overload
    def __getitem__(self, index: slice) -> list[Input]: ...
    def __getitem__(self, index: int | slice) -> Input | list[Input]:
        if isinstance(index, slice):
            return self.some(range(len(self))[index])
        return self.some([range(len(self))[index]])[0]

    def __iter__(self) -> Iterator[Input]:
        for begin in range(0, len(self), TOGETHER):
            yield from self[begin : begin + TOGETHER]

    def some(self, numbers: Iterable[int]) -> list[Input]:
        """Those of these numbers, ascending."""
        found = []
        at, paths = -1, [""]
        for number in numbers:
            if number // TOGETHER != at:
                at = number // TOGETHER
                paths = os.fsdecode(self._names[at]).split("\0")
            found.append(
                Input(
                    paths[number % TOGETHER],
                    int(self.sizes[number]),
                    int(self.modified[number]),
                    _KINDS[self.kinds[number]],
                )
            )
        return found

    def names(self, begin: int, end: int) -> bytes:
        """Of neighbours, for the kernel; they do not go beyond a multiple of TOGETHER."""
        first = begin // TOGETHER * TOGETHER
        names = self._names[begin // TOGETHER]
        if (begin, end) == (first, min(first + TOGETHER, len(self))):
            return names
        return b"\0".join([*names.split(b"\0")[begin - first : end - first], b""])

    @property
    def paths(self) -> list[str]:
        """Of all."""
        return os.fsdecode(b"".join(self._names)).split("\0")[:-1]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What they are called, their sizes and times: for a million files in 50 bytes."""
        columns = self.sizes, self.modified
        content = b"".join([*self._absolute, *(column.tobytes() for column in columns)])
        found = hashlib.blake2b(content, digest_size=16).hexdigest()
        return {"files": len(self), "bytes": self.total, "digest": found}

    def told(self) -> list[dict[str, Any]]:
        """For the receipt: see `publish.files_packed`."""
        if len(self) < MANY:
            paths = os.fsdecode(b"".join(self._absolute)).split("\0")
            return [
                {"path": path, "bytes": size} for path, size in zip(paths, self.sizes.tolist(), strict=False)
            ]
        told = []
        for number, names in enumerate(self._absolute):
            told += files_packed(names, self.sizes[number * TOGETHER : (number + 1) * TOGETHER])
        return told

    @property
    def total(self) -> int:
        """Bytes of all."""
        return int(self.sizes.sum())

    def bytes_of(self, kind: Compression) -> int:
        """Of all that are compressed so."""
        return int(self.sizes[self.kinds == _KINDS.index(kind)].sum())

    @property
    def packed(self) -> Rows:
        """Those that are compressed, and not empty."""
        return np.flatnonzero((self.kinds != _PLAIN) & (self.sizes > 0))

    @property
    def are_plain(self) -> bool:
        """Whether all are."""
        return not (self.kinds != _PLAIN).any()

    @property
    def counted(self) -> int | None:
        """All records, where they were counted."""
        return int(self.records.sum()) if self.small.all() else None

    def set(self, number: int, one: Input) -> None:
        """What was found of a file."""
        self.sizes[number], self.modified[number] = one.size, one.modified
        self.kinds[number] = _KINDS.index(one.compression)


def _packed(paths: Sequence[str]) -> list[bytes]:
    return [naming.packed(paths[at : at + TOGETHER]) for at in range(0, len(paths), TOGETHER)]


_KINDS = list(Compression)
_PLAIN = _KINDS.index(Compression.NONE)


def find_inputs(
    patterns: storage.PathLike | Iterable[storage.PathLike],
    runtime: Runtime,
    limit: int = MAX_RECORD,
    *,
    room: int = 0,
) -> Inputs:
    """All files, in the order of the bytes of their paths (below the common root): their places are their
    numbers, which their records' keys depend on.

    A file that two patterns name is refused: its records would come twice. Where all are small and their
    records fit into so much `room`, these are kept: to open them all a second time would take as long again.
    """
    given = naming.expand(patterns)
    if storage.STDIN in given:
        raise UsageError(
            "-: a pipe cannot be shuffled, as it may have to be read twice: save it to a file first"
        )
    absolute = naming.absolute(given)
    order = naming.byte_order(absolute)
    paths = given if order is None else [given[number] for number in order]
    inputs = Inputs(paths, absolute if order is None else [absolute[number] for number in order])
    if len(paths) >= FEW:
        _look_at_small(inputs, runtime, limit, room)
    turn = (
        range(len(paths)) if order is None else np.argsort(order).tolist()
    )  # errors come in the order given
    _refuse_twice(paths, inputs, turn)
    others = np.flatnonzero(~inputs.small).tolist()
    for number in others if order is None else sorted(others, key=turn.__getitem__):
        inputs.set(number, _look_at(paths[number]))
    return inputs


def _refuse_twice(paths: Sequence[str], inputs: Inputs, turn: Sequence[int]) -> None:
    """By their real paths; only those are asked for them that could be one file."""
    inodes = np.sort(inputs.inode)
    twice = inodes[1:][inodes[1:] == inodes[:-1]]  # zeros, too: could not be opened, or was not
    seen: dict[str, str] = {}
    for number in sorted(np.flatnonzero(np.isin(inputs.inode, twice)).tolist(), key=turn.__getitem__):
        real = os.path.realpath(paths[number])
        if real in seen:
            raise UsageError(
                f"{paths[number]}: is the same file as {seen[real]}: its records would come twice"
            )
        seen[real] = paths[number]


def _look_at_small(inputs: Inputs, runtime: Runtime, limit: int, room: int) -> None:
    """All files, and at whatever is small thoroughly."""
    runtime.phase("open", len(inputs), "files")
    reader, run = SmallFiles(limit), _kept_run(inputs, room)
    came, lock = Proof(), threading.Lock()

    def look(first: int) -> None:
        nonlocal came, run
        end = min(first + TOGETHER, len(inputs))
        for block in reader.read(inputs.names(first, end)):
            runtime.check()
            rows = slice(first, first + len(block.size))
            inputs.sizes[rows], inputs.modified[rows] = block.size, block.modified.view(np.int64)
            inputs.inode[rows], inputs.device[rows] = block.inode, block.device
            inputs.small[rows], inputs.records[rows] = block.taken, block.records
            keeping = run
            if keeping is not None:
                whole = bool(block.taken.all())
                if whole and keeping.add_files(first, block.records, block.buffer, block.bounds) == len(
                    block.size
                ):
                    proof = block.proof(0, len(block.bounds) - 1)
                    with lock:
                        came = came.plus(proof)
                else:
                    run = None  # all or nothing
            runtime.advance(len(block.size), int(block.records.sum()))
            first = rows.stop

    for _ in runtime.map(look, range(0, len(inputs), TOGETHER)):
        pass
    if run is not None:
        inputs.kept = Kept(run, came)


def _kept_run(inputs: Inputs, room: int) -> Run | None:
    """For all records, if the files are like some of them."""
    step = len(inputs) // SAMPLED + 1
    sizes = np.frombuffer(_kernel.stamps(naming.packed([one.path for one in inputs[::step]])), np.uint64)
    most = int(sizes[: len(sizes) // 4].max())
    if most > _kernel.SURVEY_SMALL or len(inputs) * (most + PER_RECORD + PER_PIECE) > room:
        return None
    return Run(np.empty(len(inputs) * most + _SPARE, np.uint8), room)


def _look_at(path: str) -> Input:
    """Refuses what cannot be read, or does not begin with a record."""
    with storage.reporting("open", path):
        status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path}: not a regular file")
    with storage.FileSource(path) as file:
        compression = detect(file.peek(HEAD))
    return Input(path, status.st_size, status.st_mtime_ns, compression)


def expansion(inputs: Inputs) -> float:
    """Decompressed bytes to bytes on disk, from the beginnings of some of the compressed files."""
    packed = inputs.packed
    step = len(packed) // SAMPLED + 1
    raw = stored = 0
    for one in inputs.some(packed[::step].tolist()):
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


def mean_frame(inputs: Inputs) -> int:
    """Bytes of a record with its frame, from the beginnings of some files."""
    size = records = 0
    some = np.flatnonzero(inputs.sizes)
    for one in inputs.some(some[:: len(some) // SAMPLED + 1].tolist()):
        with open_file(one.path, "skip", on_damage=lambda damage: None, giants_from=BLOCK) as opened:
            for block in opened.frames:
                size += int(block.bounds[-1] - block.bounds[0])
                records += len(block)
                break
    return size // records if records else 0


def check_beginnings(inputs: Inputs, on_corrupt: str) -> None:
    """Raise what is wrong with the first records of files, hours before they would be read."""
    if on_corrupt != "fail":
        return
    for one in inputs.some(np.flatnonzero(~inputs.small).tolist()):
        with open_file(one.path, giants_from=BLOCK) as opened:
            try:
                next(iter(opened.frames), None)
            except DataError as error:
                error.add_note("Found before anything was read or written: see `croupier verify`.")
                raise
