"""Whether files are whole: every frame, both checksums of each, gzip and zlib trailers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from croupier import _kernel, naming, storage
from croupier.codec import tensorflow
from croupier.codec.detect import Compression
from croupier.errors import CroupierError, DataError, UsageError
from croupier.frames import HEADER, MAX_RECORD, Damage
from croupier.inspect.receipt import Promise, read_receipt
from croupier.proof import Proof
from croupier.runtime import Progress, Runtime
from croupier.streams import OpenFile, open_file

MAX_LISTED = 1000
"""Damaged ranges that a report lists; it counts them all."""


@dataclass
class FileReport:
    """What `verify` found in one file."""

    path: str
    compression: str = Compression.NONE.value
    members: int = 0
    """Gzip members or zlib streams that were read to their end."""
    records: int = 0
    """Whole records, their checksums right."""
    payload_bytes: int = 0
    file_bytes: int = 0
    fingerprint: str = ""
    """Of all whole records, in whatever order: equal for equal records."""
    damage: list[Damage] = field(default_factory=list)
    damaged_ranges: int = 0
    unreadable: str = ""
    """Why the file could not be read at all."""
    warnings: list[str] = field(default_factory=list)
    """What other readers would make of an undamaged file."""
    mismatch: str = ""
    """How it differs from what its receipt promises."""

    @property
    def ok(self) -> bool:
        """Whether everything was read and right."""
        return not self.damaged_ranges and not self.unreadable and not self.mismatch

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        damage = [{k: v for k, v in vars(item).items() if k != "path"} for item in self.damage]
        return vars(self) | {"damage": damage, "ok": self.ok}


def verify(
    paths: storage.PathLike | Iterable[storage.PathLike] = (),
    *,
    receipt: storage.PathLike | None = None,
    workers: int | None = None,
    max_record_bytes: int = MAX_RECORD,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Iterator[FileReport]:
    """Check files, globs and folders, several files at a time; yields a report for each, in order.

    Damage does not end the check of a file: the search goes on for whole records behind it. With a `receipt`
    (its file, or the prefix of the output that it stands for) its files are checked, and whether they hold
    the records that were written.
    """
    if receipt is not None and paths != ():
        raise UsageError("give files or a receipt, not both: a receipt knows its files")
    promised = read_receipt(receipt) if receipt is not None else {}
    files = list(promised) or list(dict.fromkeys(naming.expand(paths)))
    runtime = Runtime(workers=workers, progress=progress, cancel=cancel)
    return _verify(files, promised, max_record_bytes, runtime)


def _verify(
    files: list[str], promised: dict[str, Promise], limit: int, runtime: Runtime
) -> Iterator[FileReport]:
    with runtime:
        runtime.phase("verify", sum(map(_size, files)))
        for report in runtime.map(lambda path: _check(path, limit, runtime), files):
            if report.ok and (promise := promised.get(report.path)):
                found = Promise(report.records, report.payload_bytes, report.fingerprint)
                report.mismatch = promise.differs(found)
            yield report


def _size(path: str) -> int:
    try:
        return 0 if path == storage.STDIN else os.path.getsize(path)
    except OSError:
        return 0  # said when it is opened


def _check(path: str, limit: int, runtime: Runtime) -> FileReport:
    report = FileReport(path)
    try:
        with open_file(path, "salvage", limit, lambda damage: _note(report, damage)) as opened:
            _read_all(opened, report, runtime)
        if opened.inflater and report.ok:
            report.warnings += _tensorflow_warnings(opened, report, limit)
    except DataError as error:  # only what even salvage cannot pass
        _note(report, Damage(path, error.offset, None, error.problem, report.records, error.inflated))
    except CroupierError as error:
        if isinstance(error, OSError):
            report.unreadable = str(error)
        else:
            raise
    return report


def _note(report: FileReport, damage: Damage) -> None:
    report.damaged_ranges += 1
    if len(report.damage) < MAX_LISTED:
        report.damage.append(damage)


def _read_all(opened: OpenFile, report: FileReport, runtime: Runtime) -> None:
    report.compression = opened.compression.value
    consumed, totals = 0, np.zeros(4, np.uint64)
    try:
        for block in opened.frames:
            runtime.check()
            _kernel.fingerprint(block.buffer, block.bounds, totals)
            runtime.advance(opened.consumed - consumed, len(block))
            consumed = opened.consumed
    finally:
        proof = Proof.of(totals).as_dict()
        report.records, report.payload_bytes = proof["records"], proof["payload_bytes"]
        report.fingerprint = proof["fingerprint"]
    runtime.advance(opened.consumed - consumed)
    report.file_bytes = opened.consumed
    if opened.inflater:
        report.members = opened.inflater.members


def _tensorflow_warnings(opened: OpenFile, report: FileReport, limit: int) -> list[str]:
    """What TensorFlow would make of the file, where that is not what we read."""
    inflater = opened.inflater
    if inflater is None or (inflater.members <= 1 and not inflater.padding):
        return []
    what = f"{inflater.members:,} {report.compression} members" if inflater.members > 1 else ""
    if inflater.padding:
        what += f"{' and ' if what else ''}{inflater.padding:,} zero bytes of padding"
    if opened.file.size is None:
        return [f"{what} came through a pipe: whether TensorFlow reads them all only a file can tell"]
    delivered = tensorflow.replay(opened.path, opened.compression)
    if delivered.size >= inflater.produced and not delivered.refused:
        return []
    kept, rest = _records_within(opened.path, delivered.size, limit)
    loud = delivered.refused or rest >= HEADER  # a record that is cut in its header is the end, to TensorFlow
    if kept == report.records and not loud:
        return []
    does = "raises DataLossError" if loud else "silently stops"
    return [
        f"TensorFlow {does} after {kept:,} of {report.records:,} records, because the file has {what}: "
        "write it again (croupier's files have one member)"
    ]


def _records_within(path: str, size: int, limit: int) -> tuple[int, int]:
    """Records that end within the first `size` decompressed bytes, and how many bytes follow them there."""
    records = end = 0
    with open_file(path, max_record=limit) as opened:
        for block in opened.frames:
            inside = int((block.bounds[1:] <= max(0, size - block.origin)).sum())
            records += inside
            end = block.origin + int(block.bounds[inside])
            if inside < len(block):
                break
    return records, size - end
