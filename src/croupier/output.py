"""Shards while they are written: frames gather in blocks, the threads compress them, files appear together.

What goes out is proven: each block is read again as it stands in memory, its checksums verified and its
fingerprint added up, before it is compressed; `publish` compares that with what the caller says came in.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import croupier
from croupier import _kernel
from croupier.codec import deflate
from croupier.codec.deflate import Encoded, SeekableGzip
from croupier.codec.detect import Compression
from croupier.codec.transcode import Level, base_level, codec_name
from croupier.errors import IntegrityError, UsageError
from croupier.frames import OVERHEAD
from croupier.framing import Framing, even
from croupier.output_names import choose_compression, file_names
from croupier.proof import Proof
from croupier.publish import ShardSet
from croupier.runtime import MIB, Ordered, Runtime, Task
from croupier.storage import AtomicFile
from croupier.table.model import Kind, Table
from croupier.table.new import FileIndex

# A task for the threads is what fills a block, less an open group: at least 1 MiB, as smaller tasks scale
# badly (two threads give 1.95x at eight records of 155 KB, 1.55x at one).
BLOCK = MIB + 2 * deflate.GROUP

DIRECT_FROM = 1 << 30
"""Bytes that are too many for the page cache to be of use to who reads them next."""

DIRECT_PIECE = 1 << 20
"""Bytes that are proven and then copied while they are in a cache."""

SHARD_BYTES = 150_000_000
"""What shards aim at, everywhere."""

_Integers = np.ndarray[tuple[int], np.dtype[np.uint64]]
_Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_KINDS = {
    Compression.NONE: Kind.PLAIN,
    Compression.GZIP: Kind.SEEKABLE,
    Compression.ZLIB: Kind.ZLIB,
}


class Shard:
    """One output file and the block that is being filled for it."""

    __slots__ = (
        "block", "crc", "ended", "file", "index", "position", "proof", "size", "stream", "under_way"
    )  # fmt: skip

    def __init__(self, file: AtomicFile, stream: Any = None) -> None:
        self.file = file
        self.block = bytearray()  # room comes with the first frame, and goes with the last
        self.position = 0
        """Where the next frame belongs: whole frames stand before it."""
        self.proof = Proof()
        self.crc = 0
        self.size = 0
        self.stream = stream  # zlib's compressor
        self.under_way = 0
        self.ended = False
        """No frame follows."""
        self.index: FileIndex | None = None
        """For its table, where that is asked for: it takes 15 ns a record."""


class _Work(NamedTuple):
    shard: Shard
    block: bytearray
    view: memoryview
    bounds: _Integers
    """Edges of the frames to encode."""
    edges: list[int]
    """Positions in the block where fragments begin and end."""


class _Done(NamedTuple):
    work: _Work
    encoded: Encoded
    proof: Proof


Splice = Callable[..., tuple[Encoded, Proof, _Integers]]


class Output:
    """The files of one output. Who writes puts whole frames into a shard's `block` and asks for `room`."""

    def __init__(
        self,
        prefix_or_path: str,
        shards: int,
        compression: str | None,
        level: Level,
        *,
        overwrite: bool,
        runtime: Runtime,
    ) -> None:
        self._compression = choose_compression(prefix_or_path, compression)
        self._level = level
        self._gzip = SeekableGzip(base_level(level))
        self.name, self.paths = file_names(prefix_or_path, shards, self._compression)
        """The name that the receipt goes by, and the files that will appear."""
        self._overwrite, self._runtime = overwrite, runtime
        self._ordered: Ordered[_Done] = Ordered(runtime, budget=self._budget())
        self._free: list[bytearray] = []
        self._set: ShardSet | None = None
        self._began = 0.0
        self._direct = False
        self._on_sealed: Callable[[int, Shard, Table], None] | None = None
        self._seals: list[tuple[int, Shard, Task[Table]]] = []
        self.shards: list[Shard] = []
        """Those that were begun; the others follow in their order."""

    def open(
        self,
        expected: int = 0,
        on_sealed: Callable[[int, Shard, Table], None] | None = None,
        adopted: Sequence[tuple[str, Proof]] = (),
    ) -> None:
        """Make ready; everything that can be refused is refused here.

        Who writes one shard after the other is told by `on_sealed` when one is complete on the device, and
        may go on behind those that an earlier process completed (temporary names and what is in them). Where
        many plain bytes are `expected`, they are written past the page cache.
        """
        self._direct = expected >= DIRECT_FROM and self._compression is Compression.NONE
        self._on_sealed = on_sealed
        self._began = time.monotonic()
        spare = None if on_sealed is None else [temporary for temporary, _ in adopted]
        self._set = ShardSet(self.name, self.paths, overwrite=self._overwrite, spare=spare)
        for number, (temporary, proof) in enumerate(adopted):
            shard = Shard(self._set.begin(number, temporary))
            shard.proof, shard.ended = proof, True
            self.shards.append(shard)

    def begin(self) -> Shard:
        """The next shard, under a temporary name."""
        if self._set is None:
            raise UsageError(f"{self.name}: is not open")
        stream = (
            deflate.zlib_stream(base_level(self._level)) if self._compression is Compression.ZLIB else None
        )
        shard = Shard(self._set.begin(len(self.shards)), stream)
        shard.index = None if self._on_sealed is None else FileIndex()
        self.shards.append(shard)
        return shard

    def close(self, *, keep: bool = False) -> None:
        """Remove whatever was not published; `keep` leaves complete shards for another process to adopt."""
        if self._set is not None:
            if keep:
                self._set.keep_sealed()
            self._set.discard()
        self.shards, self._free = [], []

    def _budget(self) -> int:
        """Bytes of blocks that may be under way: two for each thread, where memory allows."""
        return min(self._runtime.workers * 2 * BLOCK, self._runtime.memory // 2)

    def make_room(self, shard: Shard, need: int) -> None:
        """Hand over what is ready; where that is not enough, the record gets a block of its size."""
        self._hand_over(shard, last=False)
        if len(shard.block) - shard.position < need:
            size = max(BLOCK, shard.position + need)
            larger = self._free.pop() if self._free and size == BLOCK else bytearray(size)
            larger[: shard.position] = memoryview(shard.block)[: shard.position]
            shard.block = larger

    def gather(self, shard: Shard, source: _Bytes, bounds: _Integers, order: _Integers) -> None:
        """Add these frames of a buffer, in this order."""
        if self._compression is Compression.NONE and _are_neighbours(order):
            self._hand_over(shard, last=True)
            self._store_as_they_stand(shard, source, bounds[int(order[0]) : int(order[-1]) + 2])
            return
        done, edges = 0, np.empty(len(order) + 1, np.uint64)
        while True:
            room = memoryview(shard.block)[shard.position :]
            count = _kernel.gather(source, bounds, order[done:], room, edges, self._runtime.workers)
            shard.position += int(edges[count]) if count else 0
            done += count
            if done == len(order):
                return
            self._runtime.check()
            first = order[done]
            self.make_room(shard, int(bounds[first + np.uint64(1)] - bounds[first]))

    def _store_as_they_stand(self, shard: Shard, source: _Bytes, bounds: _Integers) -> None:
        """Plain frames that stand in their order need not be copied to a block."""
        cuts = np.flatnonzero(np.diff(bounds // np.uint64(DIRECT_PIECE))) + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(bounds) - 1]):
            if begin < end:
                low, high = int(bounds[begin]), int(bounds[end])
                view, edges = source.data[low:high], bounds[begin : end + 1] - bounds[begin]
                self._store(self._encode(_Work(shard, bytearray(), view, edges, [0, high - low])))
                self._runtime.check()

    def splice(self, shard: Shard, weight: int, make: Splice, *arguments: Any) -> None:
        """Add fragments that are compressed already: on a thread, `make` gives them, and what is in them."""
        self._hand_over(shard, last=True)
        shard.under_way += 1
        for done in self._ordered.put(weight, self._spliced, shard, make, arguments):
            self._store(done)

    @staticmethod
    def _spliced(shard: Shard, make: Splice, arguments: tuple[Any, ...]) -> _Done:
        encoded, proof, bounds = make(*arguments)
        return _Done(_Work(shard, bytearray(), memoryview(b""), bounds, bounds.tolist()), encoded, proof)

    def pour(self, shard: Shard, length: int, read: Callable[[], Iterator[memoryview]]) -> None:
        """Add a record longer than BLOCK, from pieces of its payload; the bytes are as for any other."""
        if self._compression is Compression.GZIP and length + OVERHEAD <= deflate.STREAMED:
            self.splice(shard, length, self._fragment, length, read)
            return
        self._hand_over(shard, last=True)
        for done in self._ordered.drain():
            self._store(done)
        self._begin_file(shard)
        frame, before, stream = Framing(length), shard.file.written, shard.stream
        if self._compression is Compression.GZIP:
            stream = deflate.FragmentStream(self._gzip.level)
        for piece in even(frame.pieces(read()), deflate.PIECE):
            self._runtime.check()
            shard.file.write(piece if stream is None else stream.compress(piece))
        size, fragments = length + OVERHEAD, []
        if self._compression is Compression.GZIP:
            shard.file.write(stream.flush())
            shard.crc = deflate.crc32_combine(shard.crc, stream.crc, size)
            fragments = [shard.file.written - before]
        shard.size += size
        shard.proof = shard.proof.plus(Proof.of_one(length, frame.crc))
        if shard.index is not None:
            shard.index.add(np.array([0, size], np.uint64), [0, size], fragments)

    def _fragment(
        self, length: int, read: Callable[[], Iterator[memoryview]]
    ) -> tuple[Encoded, Proof, _Integers]:
        """On a thread."""
        frame, whole = Framing(length), bytearray()
        for piece in frame.pieces(read()):
            whole += piece
        data, crc = deflate.fragment(memoryview(whole), self._gzip.level)
        bounds = np.array([0, len(whole)], np.uint64)
        return Encoded(data, crc, len(whole), [len(data)]), Proof.of_one(length, frame.crc), bounds

    def finish(self, shard: Shard) -> None:
        """No frame follows in this shard."""
        self._hand_over(shard, last=True)
        shard.ended = True
        if not shard.under_way:
            self._end(shard)

    def _hand_over(self, shard: Shard, *, last: bool) -> None:
        """Give the block's whole fragments to the codec, and begin a new block with what is left."""
        view = memoryview(shard.block)[: shard.position]
        bounds = np.empty(shard.position // OVERHEAD + 1, np.uint64)
        frames, _ = _kernel.scan(view, 0, bounds, False, 1 << 63)
        if int(bounds[frames]) != shard.position:
            raise _changed(shard)
        edges = [0, shard.position]
        if self._compression is Compression.GZIP:
            frames, edges = deflate.cut(bounds[: frames + 1], last=last)
        if not shard.position or not frames:
            return
        work = _Work(shard, shard.block, view, bounds[: frames + 1].copy(), edges)
        kept = view[edges[-1] :]
        if last:
            shard.block = bytearray()
        else:
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
        totals = np.zeros(4, np.uint64)
        if _kernel.check_frames(view, bounds, totals, 1) != len(bounds) - 1:
            raise _changed(shard)
        if self._compression is Compression.GZIP:
            encoded = self._gzip.encode(view, edges)
        elif self._compression is Compression.ZLIB:
            step = deflate.PIECE if len(view) > BLOCK else BLOCK  # longer: one record; see `pour`
            pieces = [shard.stream.compress(view[at : at + step]) for at in range(0, len(view), step)]
            encoded = Encoded(b"".join(pieces), 0, len(view), [])
        else:
            encoded = Encoded(view, 0, len(view), [])
        return _Done(work, encoded, Proof.of(totals))

    def _store(self, done: _Done) -> None:
        shard, block = done.work.shard, done.work.block
        self._begin_file(shard)
        shard.file.write(done.encoded.data)
        if self._compression is Compression.GZIP:
            shard.crc = deflate.crc32_combine(shard.crc, done.encoded.crc, done.encoded.size)
        shard.size += done.encoded.size
        shard.proof = shard.proof.plus(done.proof)
        shard.under_way = max(0, shard.under_way - 1)
        if shard.index is not None:
            shard.index.add(done.work.bounds, done.work.edges, done.encoded.fragments)
        if len(block) == BLOCK:
            self._free.append(block)
        if shard.ended and not shard.under_way:
            self._end(shard)

    def _begin_file(self, shard: Shard) -> None:
        """Before its first frames."""
        if not shard.size and self._direct:
            shard.file.write_direct()
        if not shard.size and self._compression is Compression.GZIP:
            shard.file.write(self._gzip.header)

    def _end(self, shard: Shard) -> None:
        """All frames are in the file: add what stands behind them."""
        if self._compression is Compression.GZIP:
            if not shard.size:
                shard.file.write(self._gzip.header)
            shard.file.write(self._gzip.trailer(shard.crc, shard.size))
        elif self._compression is Compression.ZLIB:
            shard.file.write(shard.stream.flush())
        shard.file.end_direct()
        if self._on_sealed is not None:
            self._seals.append((self.shards.index(shard), shard, self._runtime.submit(self._seal, shard)))
            self._tell_sealed(wait=False)

    def _seal(self, shard: Shard) -> Table:
        """On a thread: devices take their time to flush."""
        shard.file.seal()
        shard.file.rest()
        index = shard.index or FileIndex()
        return index.table(shard.file.temporary, _KINDS[self._compression])

    def _tell_sealed(self, *, wait: bool) -> None:
        while self._seals and (wait or self._seals[0][2].done()):
            number, shard, task = self._seals.pop(0)
            table = task.result()
            shard.index = None
            if self._on_sealed is not None:
                self._on_sealed(number, shard, table)

    def publish(self, came: Proof, job: dict[str, Any]) -> dict[str, Any]:
        """Finish all files and let them appear, if what went out is what came in; gives the receipt."""
        while len(self.shards) < len(self.paths):
            self.begin()
        for shard in self.shards:
            if not shard.ended:
                self.finish(shard)
        for done in self._ordered.drain():
            self._store(done)
        self._tell_sealed(wait=True)
        receipt = self._receipt(came, job)
        if self._set is not None:
            self._set.publish(receipt)
        return receipt

    def _receipt(self, came: Proof, job: dict[str, Any]) -> dict[str, Any]:
        """The proof: what was handed to the codecs is what came in, by count, bytes and fingerprint."""
        went = Proof()
        for shard in self.shards:
            went = went.plus(shard.proof)
        if came != went:
            raise IntegrityError(f"{self.name}: {came} came in, but {went} would be published")
        codec: dict[str, Any] = {"kind": self._compression.value}
        if self._compression is not Compression.NONE:
            codec |= {"level": self._level, "codec": codec_name(self._compression, self._level)}
        return {
            "croupier": croupier.__version__,
            **job,
            "machine": platform.machine(),
            "seconds": round(time.monotonic() - self._began, 3),
            "compression": codec,
            "in": came.as_dict(),
            "out": went.as_dict(),
            "shards": [
                {"name": shard.file.name, "file_bytes": shard.file.written, **shard.proof.as_dict()}
                for shard in self.shards
            ],
        }


def _changed(shard: Shard) -> IntegrityError:
    return IntegrityError(f"{shard.file.path}: a record changed in memory before it was written")


def _are_neighbours(order: _Integers) -> bool:
    """Whether these frames stand one behind the other."""
    return (
        len(order) > 0
        and int(order[-1]) - int(order[0]) == len(order) - 1
        and bool((np.diff(order) == 1).all())
    )
