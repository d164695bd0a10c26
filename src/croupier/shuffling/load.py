"""Some neighbouring records of a file, on their way into a run; and parcels.

A parcel is a frame whose payload is another frame, deflated as a fragment of seekable gzip: a large record
that is to be written compressed is deflated once, when it is read, and moved compressed from then on.

parcel:  length (8) | masked crc32c of the payload (4) | crc32 of the frame (4) | fragment

A stub stands for a frame that is too large for memory: see `giants`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from croupier import _kernel
from croupier.codec import deflate, transcode
from croupier.codec.deflate import Encoded
from croupier.frames import HEADER, OVERHEAD, Block, Giant
from croupier.proof import Proof
from croupier.table.packed import Integers, Octets, integers

_HEAD = np.dtype([("length", "<u8"), ("crc32c", "<u4"), ("crc32", "<u4")])

PARCEL, STUB = 1, 2
"""What a frame is, if not the record itself."""

Digests = np.ndarray[tuple[int, int], np.dtype[np.uint64]]


@dataclass(frozen=True)
class Load:
    """Whole frames in memory."""

    file: int
    record: int
    """Number of the first."""
    buffer: memoryview
    bounds: Integers
    edges: Integers
    """Where the records begin and end in the (decompressed) file."""
    parcels: Octets | None = None
    """Which ones are parcels or stubs; none where this is None."""
    digests: Digests | None = None
    """(key, rest) of each record's content, where records of equal content are sought."""
    original: Block | None = None
    """The records, where some are parcels here."""
    giant: Giant | None = None
    """The one record, where a stub stands here."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def after(self, count: int) -> Load:
        """Without the first `count`."""
        parcels = None if self.parcels is None else self.parcels[count:]
        digests = None if self.digests is None else self.digests[count:]
        original = None if self.original is None else part(self.original, count, len(self))
        bounds, edges = self.bounds[count:], self.edges[count:]
        return replace(
            self, record=self.record + count, bounds=bounds, edges=edges, parcels=parcels, digests=digests,
            original=original,
        )  # fmt: skip

    def kept(self) -> Load:
        """The same in memory of its own."""
        frames = copied(Block(self.buffer, self.bounds, 0, self.record))
        original = self.original and copied(self.original)
        return replace(self, buffer=frames.buffer, bounds=frames.bounds, original=original)

    def records(self, count: int) -> Block:
        """The first `count`, as they were read."""
        whole = self.original or Block(self.buffer, self.bounds, 0, self.record)
        return part(whole, 0, count)

    def proof(self, count: int) -> Proof:
        """Of the first `count` records."""
        if self.giant is not None and self.giant.crc is not None:
            return Proof.of_one(self.giant.length, self.giant.crc)
        totals, records = np.zeros(4, np.uint64), self.records(count)
        _kernel.fingerprint(records.buffer, records.bounds, totals)
        return Proof.of(totals)


def copied(block: Block) -> Block:
    """So that the file can be read on."""
    begin, end = int(block.bounds[0]), int(block.bounds[-1])
    bounds = block.bounds - block.bounds[0]
    buffer = memoryview(bytes(block.buffer[begin:end]))
    return Block(buffer, bounds, block.origin + begin, block.record, block.giant, block.tokens)


def part(block: Block, begin: int, end: int) -> Block:
    """Some of its records."""
    bounds = block.bounds[begin : end + 1]
    return Block(block.buffer, bounds, block.origin, block.record + begin, block.giant, block.tokens)


def plain_load(file: int, block: Block) -> Load:
    """A block as it is: valid until the next one is asked for."""
    edges = block.bounds + np.uint64(block.origin)
    made = Load(file, block.record, block.buffer, block.bounds, edges, giant=block.giant)
    if block.giant is None:
        return made
    bounds = np.array([0, len(block.buffer)], np.uint64)
    return replace(made, bounds=bounds, parcels=np.array([STUB], np.uint8))


class Preparing:
    """What is done to records on the way in: on any thread."""

    def __init__(self, level: transcode.Level | None, seed: int | None) -> None:
        """With a level, large frames become parcels; with a seed, records get digests."""
        self._level, self._seed = level, seed
        self.noting = level == transcode.SAME
        """Whether blocks should come with tokens."""

    def load(self, file: int, block: Block) -> Load:
        """A block: valid as long as that is."""
        made = plain_load(file, block)
        if block.giant is not None:
            return made
        if self._seed is not None:
            made = replace(made, digests=_digests(block, self._seed))
        sizes = block.bounds[1:] - block.bounds[:-1]
        large = sizes >= deflate.LARGE_FRAME
        if self._level is None or not large.any():
            return made if self._level is None else replace(made, parcels=np.zeros(len(block), np.uint8))
        buffer, bounds = self._parcelled(block, large.tolist(), self._level)
        parcels, original = large.astype(np.uint8), block.with_tokens(None)
        return replace(made, buffer=buffer, bounds=bounds, parcels=parcels, original=original)

    def _parcelled(
        self, block: Block, large: list[bool], level: transcode.Level
    ) -> tuple[memoryview, Integers]:
        pack, frames = transcode.packer(block, level), block.buffer
        edges = list(pairwise(block.bounds.tolist()))
        packed = [
            pack(number, frames[begin:end]) if is_large else (b"", 0)
            for number, ((begin, end), is_large) in enumerate(zip(edges, large, strict=True))
        ]
        heads = np.empty(len(block), _HEAD)
        heads["length"] = np.diff(block.bounds) - np.uint64(OVERHEAD)
        heads["crc32c"] = _fields(frames, block.bounds[1:] - np.uint64(4), np.dtype("<u4"))
        heads["crc32"] = [crc for _, crc in packed]
        payloads = [
            head + fragment if fragment else frames[begin + HEADER : end - 4]
            for head, (fragment, _), (begin, end) in zip(_pieces(heads), packed, edges, strict=True)
        ]
        bounds = integers(len(payloads) + 1)
        bounds[1:] = np.cumsum([len(payload) + OVERHEAD for payload in payloads], dtype=np.uint64)
        made = bytearray(int(bounds[-1]))
        _kernel.append_many(made, 0, payloads, 0, integers(4))
        return memoryview(made), bounds


def _fields(
    buffer: memoryview, places: Integers, kind: np.dtype[Any]
) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """What stands at these places."""
    octets = places.astype(np.intp)[:, None] + np.arange(kind.itemsize)
    found: np.ndarray[tuple[int], np.dtype[Any]] = np.frombuffer(buffer, np.uint8)[octets].view(kind)[:, 0]
    return found


def _pieces(heads: np.ndarray[tuple[int], np.dtype[Any]]) -> Iterator[bytes]:
    """The bytes of each."""
    whole = heads.tobytes()
    return (whole[at : at + _HEAD.itemsize] for at in range(0, len(whole), _HEAD.itemsize))


def _digests(block: Block, seed: int) -> Digests:
    """128 bits of each payload's content under the seed: nobody can make two records that collide."""
    key, edges = seed.to_bytes(8, "little"), block.bounds.tolist()
    made = b"".join(
        hashlib.blake2b(block.buffer[begin + HEADER : end - 4], digest_size=16, key=key).digest()
        for begin, end in pairwise(edges)
    )
    return np.frombuffer(made, np.uint64).reshape(-1, 2)


def unpacked(parcels: memoryview, bounds: Integers) -> tuple[Encoded, Proof, Integers]:
    """What parcels hold, as it goes into a file; its proof, and the edges of the frames when inflated."""
    heads = _fields(parcels, bounds[:-1] + np.uint64(HEADER), _HEAD)
    lengths = heads["length"].astype(np.uint64)
    totals, frames = integers(4), integers(len(heads) + 1)
    _kernel.fingerprint_of(lengths, heads["crc32c"].astype(np.uint64), totals)
    frames[1:] = np.cumsum(lengths + np.uint64(OVERHEAD))
    crc = 0
    for length, check in zip(lengths.tolist(), heads["crc32"].tolist(), strict=True):
        crc = deflate.crc32_combine(crc, check, length + OVERHEAD)
    behind = HEADER + _HEAD.itemsize
    fragments = [parcels[begin + behind : end - 4] for begin, end in pairwise(bounds.tolist())]
    data = b"".join(fragments)
    return Encoded(data, crc, int(frames[-1]), list(map(len, fragments))), Proof.of(totals), frames
