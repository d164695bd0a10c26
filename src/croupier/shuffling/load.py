"""Some neighbouring records of a file, on their way into a run; and parcels.

A parcel is a frame whose payload is another frame, deflated as a fragment of seekable gzip: a large record
that is to be written compressed is deflated once, when it is read, and moved compressed from then on.

parcel:  length (8) | masked crc32c of the payload (4) | crc32 of the frame (4) | fragment
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from croupier import _kernel
from croupier.codec import deflate, transcode
from croupier.codec.deflate import Encoded
from croupier.frames import HEADER, OVERHEAD, Block
from croupier.output import Proof
from croupier.table.packed import Integers, Octets, integers

_HEAD = struct.Struct("<QII")

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
    """Which ones are parcels; none where this is None."""
    digests: Digests | None = None
    """(key, rest) of each record's content, where records of equal content are sought."""
    original: Block | None = None
    """The records, where some are parcels here."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def after(self, count: int) -> Load:
        """Without the first `count`."""
        parcels = None if self.parcels is None else self.parcels[count:]
        digests = None if self.digests is None else self.digests[count:]
        original = None if self.original is None else part(self.original, count, len(self))
        bounds, edges = self.bounds[count:], self.edges[count:]
        return Load(self.file, self.record + count, self.buffer, bounds, edges, parcels, digests, original)

    def records(self, count: int) -> Block:
        """The first `count`, as they were read."""
        whole = self.original or Block(self.buffer, self.bounds, 0, self.record)
        return part(whole, 0, count)

    def proof(self, count: int) -> Proof:
        """Of the first `count` records."""
        totals, records = np.zeros(4, np.uint64), self.records(count)
        _kernel.fingerprint(records.buffer, records.bounds, totals)
        return Proof.of(totals)


def part(block: Block, begin: int, end: int) -> Block:
    """Some of its records."""
    bounds = block.bounds[begin : end + 1]
    return Block(block.buffer, bounds, block.origin, block.record + begin, block.tokens)


def plain_load(file: int, block: Block) -> Load:
    """A block as it is: valid until the next one is asked for."""
    return Load(file, block.record, block.buffer, block.bounds, block.bounds + np.uint64(block.origin))


class Preparing:
    """What is done to records on the way in: on any thread, after their block was copied."""

    def __init__(self, level: transcode.Level | None, seed: int | None) -> None:
        """With a level, large frames become parcels; with a seed, records get digests."""
        self._level, self._seed = level, seed
        self.noting = level == transcode.SAME
        """Whether blocks should come with tokens."""

    def copied(self, block: Block) -> Block:
        """So that the file can be read on."""
        begin, end = int(block.bounds[0]), int(block.bounds[-1])
        bounds = block.bounds - block.bounds[0]
        buffer = memoryview(bytes(block.buffer[begin:end]))
        return Block(buffer, bounds, block.origin + begin, block.record, block.tokens)

    def load(self, file: int, block: Block) -> Load:
        """A block of which nobody else knows."""
        made = plain_load(file, block)
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
        pack = transcode.packer(block, level)
        edges, pieces, unused = block.bounds.tolist(), [], integers(4)
        for number, is_large in enumerate(large):
            frame = block.buffer[edges[number] : edges[number + 1]]
            if is_large:
                fragment, crc = pack(number, frame)
                (stored,) = struct.unpack_from("<I", frame, len(frame) - 4)
                parcel = bytearray(OVERHEAD + _HEAD.size + len(fragment))
                _kernel.append(parcel, 0, _HEAD.pack(len(frame) - OVERHEAD, stored, crc) + fragment, unused)
                frame = memoryview(parcel)
            pieces.append(frame)
        bounds = integers(len(pieces) + 1)
        bounds[1:] = np.cumsum(np.array([len(piece) for piece in pieces], np.uint64))
        return memoryview(b"".join(pieces)), bounds


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
    edges = bounds.tolist()
    fragments, heads = [], []
    for begin, end in pairwise(edges):
        heads.append(_HEAD.unpack_from(parcels, begin + HEADER))
        fragments.append(parcels[begin + HEADER + _HEAD.size : end - 4])
    lengths = np.array([head[0] for head in heads], np.uint64)
    totals, frames = np.zeros(4, np.uint64), integers(len(heads) + 1)
    _kernel.fingerprint_of(lengths, np.array([head[1] for head in heads], np.uint64), totals)
    frames[1:] = np.cumsum(lengths + np.uint64(OVERHEAD))
    crc = 0
    for length, _, check in heads:
        crc = deflate.crc32_combine(crc, check, length + OVERHEAD)
    data = b"".join(fragments)
    return Encoded(data, crc, int(frames[-1]), list(map(len, fragments))), Proof.of(totals), frames
