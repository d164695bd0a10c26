"""Writing records: framed by the kernel, dealt to shards in turn, published whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Any, Self

import numpy as np

from croupier import _kernel
from croupier.codec.deflate import check_level
from croupier.errors import UsageError
from croupier.frames import OVERHEAD
from croupier.output import Output, Shard
from croupier.proof import Proof
from croupier.runtime import Runtime
from croupier.storage import PathLike, ReadableBuffer

BATCH = 4096  # payloads that `write_many` takes from an iterator at once


def writer(
    prefix_or_path: PathLike,
    shards: int = 1,
    compression: str | None = None,
    level: int | None = None,
    *,
    overwrite: bool = False,
    workers: int | None = None,
) -> Writer:
    """Write records to one file or to shards that appear together when the block ends well::

        with croupier.writer("out/train", shards=8, compression="gzip") as out:
            out.write(payload)

    A name that ends in .tfrecord, .tfrecords, .tfrec, .gz or .zlib is the file itself (or, with several
    shards, says how to name them); any other is a prefix: PREFIX-00000-of-00008.tfrecord[.gz].
    Records are dealt to the shards in turn. `compression` is "none", "gzip" (seekable) or "zlib"; by default
    the name decides. `level` is 1 (fast) to 9 (small).
    """
    return Writer(prefix_or_path, shards, compression, level, overwrite=overwrite, workers=workers)


class Writer:
    """See `writer`. Not for several threads at once."""

    def __init__(
        self,
        prefix_or_path: PathLike,
        shards: int,
        compression: str | None,
        level: int | None,
        *,
        overwrite: bool,
        workers: int | None,
    ) -> None:
        self._runtime = Runtime(workers=workers)
        path = os.fspath(prefix_or_path)
        self._output = Output(
            path, shards, compression, check_level(level), overwrite=overwrite, runtime=self._runtime
        )
        self._totals = np.zeros(4, np.uint64)  # of the payloads that came in
        self._shards: list[Shard] = []
        self._next = 0
        self._used = self._broken = False
        self.receipt: dict[str, Any] = {}
        """What was written, once it is published."""

    @property
    def name(self) -> str:
        """The name that the receipt goes by."""
        return self._output.name

    @property
    def paths(self) -> list[str]:
        """The files that will appear."""
        return self._output.paths

    def __enter__(self) -> Self:
        if self._used:
            raise UsageError(f"{self.name}: a writer can be used once")
        self._used = True
        try:
            self._output.open()
            self._shards = [self._output.begin() for _ in self.paths]
        except BaseException:
            self._output.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._runtime.close()
            self._output.close()
            self._shards = []

    @property
    def records(self) -> int:
        """Records written so far."""
        return int(self._totals[0])

    def write(self, payload: ReadableBuffer) -> None:
        """Add one record."""
        try:
            shard = self._shards[self._next]
        except IndexError:
            raise UsageError("use a writer in a with block: with croupier.writer(...) as out") from None
        position = _kernel.append(shard.block, shard.position, payload, self._totals)
        if position < 0:
            self._output.make_room(shard, memoryview(payload).nbytes + OVERHEAD)
            position = _kernel.append(shard.block, shard.position, payload, self._totals)
        shard.position = position
        self._next = (self._next + 1) % len(self._shards)

    def write_many(self, payloads: Iterable[ReadableBuffer]) -> None:
        """Add records, with less to do for each than `write`."""
        if not self._shards:
            raise UsageError("use a writer in a with block: with croupier.writer(...) as out")
        source = iter(payloads)
        try:
            while batch := list(islice(source, BATCH)):
                for turn in range(min(len(self._shards), len(batch))):
                    shard = self._shards[(self._next + turn) % len(self._shards)]
                    self._append_all(shard, batch[turn :: len(self._shards)])
                self._next = (self._next + len(batch)) % len(self._shards)
        except BaseException:
            self._broken = True  # part of the batch is in
            raise

    def _append_all(self, shard: Shard, payloads: list[ReadableBuffer]) -> None:
        first = 0
        while True:
            first, shard.position = _kernel.append_many(
                shard.block, shard.position, payloads, first, self._totals
            )
            if first == len(payloads):
                return
            self._output.make_room(shard, memoryview(payloads[first]).nbytes + OVERHEAD)

    def _finish(self) -> None:
        if self._broken:
            raise UsageError(f"{self.name}: an earlier write failed half-way; nothing was published")
        self.receipt = self._output.publish(Proof.of(self._totals), {"job": "write"})
