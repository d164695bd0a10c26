"""Writing records: framed by the kernel, compressed on the threads, published whole."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

import croupier
from croupier import _kernel
from croupier.codec import deflate
from croupier.codec.deflate import Encoded, SeekableGzip
from croupier.codec.detect import Compression
from croupier.errors import IntegrityError, UsageError
from croupier.frames import OVERHEAD
from croupier.publish import ShardSet
from croupier.runtime import MIB, Ordered, Runtime
from croupier.storage import AtomicFile, PathLike, ReadableBuffer

# A task for the threads is what fills a block, less an open group: at least 1 MiB, as smaller tasks scale
# badly (two threads give 1.95x at eight records of 155 KB, 1.55x at one).
BLOCK = MIB + 2 * deflate.GROUP
BATCH = 4096  # payloads that `write_many` takes from an iterator at once

_Integers = np.ndarray[tuple[int], np.dtype[np.uint64]]

_SUFFIX = re.compile(r"(\.(tfrecords?|tfrec))?(\.(gz|zlib|zz))?$")
_EXACT = re.compile(r"-\d{5,}-of-\d{5,}$")


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


class _Shard:
    """One output file and the block that is being filled for it."""

    __slots__ = ("block", "crc", "file", "position", "proof", "size", "stream", "under_way")

    def __init__(self, file: AtomicFile, stream: Any) -> None:
        self.file = file
        self.block = bytearray(BLOCK)
        self.position = 0
        self.proof = Proof()
        self.crc = 0
        self.size = 0
        self.stream = stream  # zlib's compressor
        self.under_way = 0


class Proof(NamedTuple):
    """Records, payload bytes and fingerprint: of what came in, and of what went out."""

    records: int = 0
    payload_bytes: int = 0
    fingerprint: int = 0

    @classmethod
    def of(cls, totals: _Integers) -> Proof:
        """From what the kernel adds up."""
        records, payload, low, high = totals.tolist()
        return cls(records, payload, low + (high << 64))

    def plus(self, other: Proof) -> Proof:
        """Of both together."""
        fingerprint = (self.fingerprint + other.fingerprint) % (1 << 128)
        return Proof(self.records + other.records, self.payload_bytes + other.payload_bytes, fingerprint)

    def as_dict(self) -> dict[str, Any]:
        """For the receipt."""
        return self._asdict() | {"fingerprint": f"{self.fingerprint:032x}"}


class _Work(NamedTuple):
    shard: _Shard
    block: bytearray
    view: memoryview
    bounds: _Integers
    """Edges of the frames to encode."""
    edges: list[int]
    """Positions in the block where fragments begin and end."""


class _Done(NamedTuple):
    shard: _Shard
    encoded: Encoded
    proof: Proof
    block: bytearray


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
        self._compression = _choose_compression(os.fspath(prefix_or_path), compression)
        self._level = deflate.check_level(level)
        self._gzip = SeekableGzip(self._level)
        self.name, self.paths = _file_names(os.fspath(prefix_or_path), shards, self._compression)
        """The name that the receipt goes by, and the files that will appear."""
        self._overwrite = overwrite
        self._runtime = Runtime(workers=workers)
        self._ordered: Ordered[_Done] = Ordered(self._runtime, budget=self._budget())
        self._totals = np.zeros(4, np.uint64)  # of the payloads that came in
        self._shards: list[_Shard] = []
        self._free: list[bytearray] = []
        self._next = 0
        self._set: ShardSet | None = None
        self._broken = False
        self._began = 0.0
        self.receipt: dict[str, Any] = {}
        """What was written, once it is published."""

    def __enter__(self) -> Self:
        if self._set is not None:
            raise UsageError(f"{self.name}: a writer can be used once")
        self._began = time.monotonic()
        self._set = ShardSet(self.name, self.paths, overwrite=self._overwrite)
        try:
            for file in self._set.files:
                stream = deflate.zlib_stream(self._level) if self._compression is Compression.ZLIB else None
                self._shards.append(_Shard(file, stream))
        except BaseException:  # no memory; without __enter__ there is no __exit__
            self._set.discard()
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
            if self._set is not None:
                self._set.discard()
            self._shards, self._free = [], []

    def _budget(self) -> int:
        """Bytes of blocks that may be under way: four for each thread, where memory allows."""
        return min(self._runtime.workers * 4 * BLOCK, self._runtime.memory // 2)

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
            self._make_room(shard, memoryview(payload).nbytes + OVERHEAD)
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

    def _append_all(self, shard: _Shard, payloads: list[ReadableBuffer]) -> None:
        first = 0
        while True:
            first, shard.position = _kernel.append_many(
                shard.block, shard.position, payloads, first, self._totals
            )
            if first == len(payloads):
                return
            self._make_room(shard, memoryview(payloads[first]).nbytes + OVERHEAD)

    def _make_room(self, shard: _Shard, need: int) -> None:
        """Hand over what is ready; where that is not enough, the record gets a block of its size."""
        self._hand_over(shard, last=False)
        if len(shard.block) - shard.position < need:
            larger = bytearray(shard.position + need)
            larger[: shard.position] = memoryview(shard.block)[: shard.position]
            shard.block = larger

    def _hand_over(self, shard: _Shard, *, last: bool) -> None:
        """Give the block's whole fragments to the codec, and begin a new block with what is left."""
        view = memoryview(shard.block)[: shard.position]
        bounds = np.empty(shard.position // OVERHEAD + 1, np.uint64)
        frames, _ = _kernel.scan(view, 0, bounds, False, 1 << 63)
        edges = [0, shard.position]
        if self._compression is Compression.GZIP:
            frames, edges = deflate.cut(bounds[: frames + 1], last=last)
        if not shard.position or not frames:
            return
        work = _Work(shard, shard.block, view, bounds[: frames + 1].copy(), edges)
        kept = view[edges[-1] :]
        fits = len(kept) <= BLOCK
        shard.block = self._free.pop() if self._free and fits else bytearray(max(BLOCK, len(kept)))
        shard.block[: len(kept)] = kept
        shard.position = len(kept)
        if self._compression is Compression.NONE:
            self._store(self._encode(work))
            return
        while shard.under_way and self._compression is Compression.ZLIB:  # one stream, one at a time
            self._store(self._ordered.take())
        shard.under_way += 1
        for done in self._ordered.put(edges[-1], self._encode, work):
            self._store(done)

    def _encode(self, work: _Work) -> _Done:
        """On a thread: prove what stands in memory now, and compress that."""
        shard, _, view, bounds, edges = work
        if int(bounds[-1]) != edges[-1] or _kernel.check_payloads(view, bounds, 1) != len(bounds) - 1:
            raise IntegrityError(f"{shard.file.path}: a record changed in memory before it was written")
        totals = np.zeros(4, np.uint64)
        _kernel.fingerprint(view, bounds, totals)
        if self._compression is Compression.GZIP:
            encoded = self._gzip.encode(view, edges)
        elif self._compression is Compression.ZLIB:
            encoded = Encoded(shard.stream.compress(view), 0, len(view))
        else:
            encoded = Encoded(view, 0, len(view))
        return _Done(shard, encoded, Proof.of(totals), work.block)

    def _store(self, done: _Done) -> None:
        shard = done.shard
        if not shard.size and self._compression is Compression.GZIP:
            shard.file.write(self._gzip.header)
        shard.file.write(done.encoded.data)
        if self._compression is Compression.GZIP:
            shard.crc = deflate.combine(shard.crc, done.encoded)
        shard.size += done.encoded.size
        shard.proof = shard.proof.plus(done.proof)
        shard.under_way = max(0, shard.under_way - 1)
        if len(done.block) == BLOCK:
            self._free.append(done.block)

    def _finish(self) -> None:
        if self._broken:
            raise UsageError(f"{self.name}: an earlier write failed half-way; nothing was published")
        for shard in self._shards:
            self._hand_over(shard, last=True)
        for done in self._ordered.drain():
            self._store(done)
        for shard in self._shards:
            if self._compression is Compression.GZIP:
                if not shard.size:
                    shard.file.write(self._gzip.header)
                shard.file.write(self._gzip.trailer(shard.crc, shard.size))
            elif self._compression is Compression.ZLIB:
                shard.file.write(shard.stream.flush())
        receipt = self._make_receipt()
        if self._set is not None:
            self._set.publish(receipt)
        self.receipt = receipt

    def _make_receipt(self) -> dict[str, Any]:
        """The proof: what was handed to the codecs is what came in, by count, bytes and fingerprint."""
        came, went = Proof.of(self._totals), Proof()
        for shard in self._shards:
            went = went.plus(shard.proof)
        if came != went:
            raise IntegrityError(f"{self.name}: {came} came in, but {went} would be published")
        codec: dict[str, Any] = {"kind": self._compression.value}
        if self._compression is not Compression.NONE:
            codec |= {"level": self._level, "codec": deflate.codec_name(self._compression, self._level)}
        return {
            "croupier": croupier.__version__,
            "job": "write",
            "machine": platform.machine(),
            "seconds": round(time.monotonic() - self._began, 3),
            "compression": codec,
            "in": came.as_dict(),
            "out": went.as_dict(),
            "shards": [
                {"name": shard.file.name, "file_bytes": shard.file.written, **shard.proof.as_dict()}
                for shard in self._shards
            ],
        }


def _choose_compression(path: str, compression: str | None) -> Compression:
    """What was asked for, else what the name says; TensorFlow's spellings are understood."""
    suffix = os.path.splitext(path)[1].lower()
    by_name = deflate.SUFFIXES.get(suffix)
    if compression is None:
        return by_name or Compression.NONE
    try:
        chosen = Compression((compression or "none").lower())
    except ValueError:
        raise UsageError(f"compression must be none, gzip or zlib, not {compression!r}") from None
    if by_name not in (None, chosen):
        raise UsageError(f"{path}: the name says {by_name.value}, compression says {chosen.value}")
    return chosen


def _file_names(path: str, shards: int, compression: Compression) -> tuple[str, list[str]]:
    """The name of the output as a whole, and of each file."""
    if shards < 1:
        raise UsageError(f"shards must be at least 1, not {shards}")
    folder, base = os.path.split(path)
    if not base:
        raise UsageError(f"{path}: a name for the files is missing")
    match = _SUFFIX.search(base)
    stem, suffix = (base[: match.start()], match.group()) if match else (base, "")
    if shards == 1 and (suffix or _EXACT.search(base)):
        return base, [path]
    if not suffix:
        suffix = ".tfrecord" + {Compression.GZIP: ".gz", Compression.ZLIB: ".zlib"}.get(compression, "")
    names = [f"{stem}-{number:05d}-of-{shards:05d}{suffix}" for number in range(shards)]
    return stem, [os.path.join(folder, name) for name in names]
