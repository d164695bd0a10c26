"""Records from front to back: any TFRecord file, plain or compressed, on disk or from a pipe."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from croupier import _kernel, naming, storage
from croupier.codec.detect import HEAD, Compression, describe, detect
from croupier.codec.inflate import Inflater
from croupier.codec.transcode import NotingInflater
from croupier.errors import CorruptionWarning
from croupier.frames import EVERYTHING, MAX_RECORD, Block, Damage, FrameReader, OnCorrupt, check_on_corrupt


@dataclass(frozen=True)
class OpenFile:
    """A TFRecord file that is being read."""

    path: str
    compression: Compression
    frames: FrameReader
    file: storage.FileSource
    inflater: Inflater | None
    """What stands between them when the file is compressed."""

    @property
    def consumed(self) -> int:
        """Bytes of the file that have been worked through."""
        return self.inflater.consumed if self.inflater else self.frames.offset

    def blocks(self) -> Iterator[Block]:
        """All frames; with their tokens, where those are noted."""
        for block in self.frames:
            if isinstance(self.inflater, NotingInflater):
                begin, end = int(block.bounds[0]), int(block.bounds[-1])
                yield block.with_tokens(self.inflater.tokens(block.origin + begin, block.origin + end))
            else:
                yield block


@contextlib.contextmanager
def open_file(
    path: str,
    on_corrupt: OnCorrupt = "fail",
    max_record: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] = lambda damage: None,
    *,
    start: int = 0,
    record: int = 0,
    past_cache: bool = False,
    giants_from: int = EVERYTHING,
    noting: bool = False,
) -> Iterator[OpenFile]:
    """Open one file, whatever it is by its content; a plain one also at byte `start`, where `record` is.

    With `noting`, the blocks of a compressed one have tokens.
    """
    with storage.FileSource(path, start, past_cache=past_cache) as file:
        head = file.peek(HEAD)
        compression = Compression.NONE if start else detect(head)
        kind = NotingInflater if noting else Inflater
        inflater = None if compression is Compression.NONE else kind(file, path, compression)
        frames = FrameReader(
            inflater or file,
            path,
            size=None if inflater else file.size,
            inflated=inflater is not None,
            on_corrupt=on_corrupt,
            max_record=max_record,
            on_damage=on_damage,
            hint=describe(head),
            start=start,
            record=record,
            giants_from=giants_from,
        )
        if isinstance(inflater, NotingInflater):
            inflater.serve(frames)
        yield OpenFile(path, compression, frames, file, inflater)


def read(
    paths: storage.PathLike | Iterable[storage.PathLike],
    on_corrupt: OnCorrupt = "fail",
    *,
    max_record_bytes: int = MAX_RECORD,
    on_damage: Callable[[Damage], None] | None = None,
) -> Iterator[bytes]:
    """Yield the payload of every record of files, globs and folders, in order; "-" is standard input.

    Both checksums of every record are verified. Content, not the name, tells whether a file is plain, gzip or
    zlib. `on_corrupt` is "fail", "tolerate-tail", "skip" or "salvage"; each range of bytes that is passed
    over is given to `on_damage`, or becomes a `CorruptionWarning`::

        for payload in croupier.read("train-*.tfrecord.gz"):
            ...
    """
    check_on_corrupt(on_corrupt)
    return _payloads(naming.expand(paths), on_corrupt, max_record_bytes, on_damage or warn)


def _payloads(
    files: list[str], on_corrupt: OnCorrupt, limit: int, on_damage: Callable[[Damage], None]
) -> Iterator[bytes]:
    for path in files:
        with open_file(path, on_corrupt, limit, on_damage) as opened:
            for block in opened.frames:
                yield from _kernel.payloads(block.buffer, block.bounds)


def warn(damage: Damage) -> None:
    """Point at the line that reads, however deep in this package the damage was met."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__package__", "").startswith("croupier"):
        level, frame = level + 1, frame.f_back
    warnings.warn(str(damage), CorruptionWarning, stacklevel=level)
