"""Making files of every form, and what all of a dataset must be."""

import gzip
import os
import struct
import zlib
from itertools import accumulate, pairwise

import numpy as np
import pytest

import croupier
from croupier import _kernel

SLOW_IS_FINE = pytest.mark.filterwarnings("ignore::croupier.errors.SlowAccessWarning")
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u8", "intp"]
SEEKABLE = ("seekable 1", "seekable 5", "seekable 9")


# Making files


def frame(payload):
    """As oracle.frame, at the kernel's speed: test_kernel.py proves that its checksums are right."""
    raw = struct.pack("<Q", len(payload))
    check = struct.pack("<I", _kernel.masked_crc32c(raw))
    return raw + check + payload + struct.pack("<I", _kernel.masked_crc32c(payload))


def framed(payloads):
    return b"".join(map(frame, payloads))


def offsets_of(payloads):
    return list(accumulate((len(p) + 16 for p in payloads), initial=0))[:-1]


def noise(rng, *sizes):
    return [rng.randbytes(size) for size in sizes]


def many_members(data):
    cuts = [0, len(data) // 7, len(data) // 3, len(data)]
    return b"".join(gzip.compress(data[a:b], 1, mtime=0) for a, b in pairwise(cuts))


def bgzip(data, size=0xFF00):
    """As htslib's bgzip writes it: members of at most 64 KiB that give their own length."""
    out = b""
    for at in range(0, len(data), size):
        part = data[at : at + size]
        body = zlib.compressobj(1, zlib.DEFLATED, -15)
        raw = body.compress(part) + body.flush()
        extra = struct.pack("<H2sHH", 6, b"BC", 2, len(raw) + 25)
        out += b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + extra + raw
        out += struct.pack("<II", zlib.crc32(part), len(part))
    return out + bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


FOREIGN = {
    "plain": lambda data: data,
    "one member": lambda data: gzip.compress(data, 1, mtime=0),
    "many members": many_members,
    "bgzip": bgzip,
    "zlib": lambda data: zlib.compress(data, 1),
}
FORMS = (*FOREIGN, *SEEKABLE)
COMPRESSION = {"plain": "none", "zlib": "zlib"}


def make(path, payloads, form="plain"):
    if form in SEEKABLE:
        with croupier.writer(path, compression="gzip", level=int(form[-1]), overwrite=True, workers=1) as out:
            out.write_many(payloads)
    else:
        path.write_bytes(FOREIGN[form](framed(payloads)))
    return path


def random_payloads(rng, limit=400_000):
    """Of one file: nothing, one large record, some middling or many tiny ones; half of it compresses."""
    total = rng.choice([0, 1, 100, 2_000, 2_000, 20_000, 20_000, limit]) * rng.random()
    typical = rng.choice([0, 3, 50, 1_000, 30_000, limit])
    payloads = []
    while total > 0 and len(payloads) < 2_000:
        size = min(int(rng.expovariate(1 / (typical + 1))), limit)
        one = rng.randbytes(size) if rng.random() < 0.5 else b"%d," % rng.randrange(10**6) * (size // 7)
        payloads.append(one)
        total -= len(one) + 16
    return payloads


def tables(folder):
    """What stands in the data's hidden folder, but for writers' receipts."""
    return sorted(path.name for path in folder.glob(".croupier/*") if path.suffix != ".json")


def tree(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*") if not path.is_dir()}


def flip(path, position, bit=1, restore=True):
    """As a failing disk does it: nothing but the content tells."""
    stamp = path.stat()
    with open(path, "r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ bit]))
    if restore:
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


# What all of a dataset must be


def payloads_of(data):
    return data[:].tolist()


def check_batch(batch, expected):
    assert isinstance(batch, croupier.Batch)
    assert len(batch) == len(expected)
    assert batch.tolist() == expected
    assert list(batch) == expected
    assert batch.buffer.tobytes() == b"".join(expected)
    assert (batch.offsets.dtype, batch.buffer.dtype) == (np.int64, np.uint8)
    assert batch.offsets.tolist() == list(accumulate(map(len, expected), initial=0))
    if expected:
        assert batch[0] == expected[0]
        assert batch[-1] == expected[-1]
        assert batch[len(expected) // 2] == expected[len(expected) // 2]
    for wrong in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            batch[wrong]


def check_reads(data, expected, rng, rounds=4):
    """Every way to name records, with random numbers."""
    size = len(expected)
    assert len(data) == size
    assert data.lengths().tolist() == list(map(len, expected))
    check_batch(data[:], expected)
    for wrong in (size, -size - 1, 1 << 70, -(1 << 70)):
        with pytest.raises(IndexError):
            data[wrong]
    for wrong in ([size], [-size - 1], [0] * bool(size) + [size], np.array([2**64 - 1], np.uint64)):
        with pytest.raises(IndexError):
            data[wrong]
    for wrong in (np.ones(size + 1, bool), [True] * (size + 1)):
        with pytest.raises(IndexError):
            data[wrong]
    check_batch(data[[]], [])
    check_batch(data[size:], [])
    for _ in range(rounds):
        cuts = [rng.choice([None, rng.randrange(-size - 2, size + 3)]) for _ in range(2)]
        part = slice(*cuts, rng.choice([None, 1, 2, 7, -1, -2, -5]))
        check_batch(data[part], expected[part])
        mask = [rng.random() < 0.1 for _ in range(size)]
        chosen = [payload for payload, yes in zip(expected, mask, strict=True) if yes]
        check_batch(data[np.array(mask, bool)], chosen)
        if not size:
            continue
        one = rng.randrange(size)
        assert data[one] == data[one - size] == data[np.uint16(one)] == data[np.int64(one - size)]
        assert data[one] == expected[one]
        assert isinstance(data[one], bytes)
        kind = np.dtype(rng.choice(INTEGERS))
        low = max(-size, np.iinfo(kind).min)
        high = min(size - 1, np.iinfo(kind).max)
        numbers = [rng.randint(low, high) for _ in range(rng.randrange(1, 40))]
        wanted = [expected[number] for number in numbers]
        check_batch(data[numbers], wanted)
        check_batch(data[tuple(numbers)], wanted)
        check_batch(data[np.array(numbers, kind)], wanted)
        check_batch(data[np.array(numbers, kind)[::-2]], wanted[::-2])
        check_batch(data.read_many(iter(numbers)), wanted)
    with pytest.raises(TypeError):
        data[[0.0]]
    with pytest.raises(croupier.UsageError):
        data[np.zeros((1, 1), int)]


def check_places(data, states, numbers):
    """`where`, against [(path, payloads)]."""
    flat = [(str(path), k, at) for path, some in states for k, at in enumerate(offsets_of(some))]
    for number in numbers:
        assert data.where(number) == flat[number]
        assert data.where(number - len(flat)) == flat[number]
    for wrong in (len(flat), -len(flat) - 1):
        with pytest.raises(IndexError):
            data.where(wrong)


def check_shards(data, states, forms=None):
    assert data.paths == [str(path) for path, _ in states]
    for number, (shard, (path, payloads)) in enumerate(zip(data.shards, states, strict=True)):
        assert shard[:4] == (str(path), len(payloads), sum(map(len, payloads)), os.path.getsize(path))
        if forms is not None and shard.records:
            assert shard.compression == COMPRESSION.get(forms[number], "gzip")
            assert shard.seekable == (forms[number] in ("plain", *SEEKABLE)), forms[number]
