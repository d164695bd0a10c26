"""Files: told apart by content, read whole or refused, written the same every time.

Proves, on files made here with the standard library and with tests/oracle.py: no bit and no byte of a file
can be lost or changed without an error, whatever its compression; what each `on_corrupt` word gives back is
exactly what a simple oracle says; a hostile file costs neither memory nor time; the writer's bytes depend on
the records and the settings alone, and any fragment of its gzip decompresses without the ones before it.
"""

import gzip
import io
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
import oracle
from croupier import _kernel, frames
from croupier.codec import deflate, inflate
from croupier.codec.detect import Compression, detect
from croupier.codec.transcode import NotingInflater
from croupier.frames import FrameReader
from croupier.streams import open_file

BGZIP_EOF = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
EMPTY = gzip.compress(b"", mtime=0)
LINUX = sys.platform == "linux"


def frame(payload):
    """As oracle.frame, at the kernel's speed: test_kernel.py proves that its checksums are right."""
    raw = struct.pack("<Q", len(payload))
    check = struct.pack("<I", _kernel.masked_crc32c(raw))
    return raw + check + payload + struct.pack("<I", _kernel.masked_crc32c(payload))


def framed(payloads):
    return b"".join(map(frame, payloads))


def edges_of(payloads):
    return list(accumulate((len(p) + 16 for p in payloads), initial=0))


def noise(seed, *sizes):
    """Payloads that do not compress."""
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


def text(seed, *sizes):
    """Payloads that compress about five times."""
    rng = random.Random(seed)
    return [(b"%d" % rng.randrange(10) * 8 * (size // 8 + 1))[:size] for size in sizes]


def member(data, pad=0, level=6):
    """One gzip member, longer by `pad` bytes (0, or 2 and more) with an extra field; level 0 stores."""
    body = zlib.compressobj(level, zlib.DEFLATED, -15)
    raw = body.compress(data) + body.flush()
    flag, extra = (4, struct.pack("<H", pad - 2) + bytes(pad - 2)) if pad else (0, b"")
    head = b"\x1f\x8b\x08" + bytes([flag]) + bytes(4) + b"\x00\xff"
    return head + extra + raw + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def bgzip(data, size=0xFF00):
    """As htslib's bgzip writes it: members of at most 64 KiB that give their own length."""
    out = b""
    for at in range(0, len(data), size):
        part = data[at : at + size]
        body = zlib.compressobj(6, zlib.DEFLATED, -15)
        raw = body.compress(part) + body.flush()
        head = (
            b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + struct.pack("<H2sHH", 6, b"BC", 2, len(raw) + 25)
        )
        out += head + raw + struct.pack("<II", zlib.crc32(part), len(part))
    return out + BGZIP_EOF


def save(folder, data, name="x.tfrecord"):
    path = folder / name
    path.write_bytes(data)
    return path


def outcome(path, *args, **kwargs):
    """(payloads until the end or an error, the error)."""
    got = []
    try:
        got.extend(croupier.read(path, *args, **kwargs))
    except croupier.DataError as error:
        return got, error
    return got, None


def outcome_of_each(path, *args, **kwargs):
    """As `outcome`, and sees payloads that come before the error in the same block."""
    got, error = [], None
    try:
        for payload in croupier.read(path, *args, **kwargs):
            got.append(payload)  # noqa: PERF402
    except croupier.DataError as caught:
        error = caught
    return got, error


def read_back(path, payloads):
    got, error = outcome_of_each(path)
    assert error is None, error
    assert got == payloads
    (report,) = croupier.verify(path)
    assert report.ok
    assert report.records == len(payloads)
    assert report.payload_bytes == sum(map(len, payloads))
    assert report.file_bytes == os.path.getsize(path)
    return report


class Slow:
    """A Source that gives at most `step` bytes at a time."""

    def __init__(self, data, step):
        self.data, self.step = memoryview(data), step

    def readinto(self, view):
        count = min(len(view), self.step, len(self.data))
        view[:count] = self.data[:count]
        self.data = self.data[count:]
        return count


# Telling files apart


def zlib_looking(length):
    low, high = length & 255, length >> 8 & 255
    return low & 15 == 8 and low >> 4 <= 7 and (low << 8 | high) % 31 == 0


LOOKALIKES = [376, 35_615, 559_903, *filter(zlib_looking, range(70_000))]


def test_lengths_that_look_like_gzip_or_zlib_are_plain(tmp_path):
    assert len(LOOKALIKES) > 70
    payload = bytes(600_000)
    for length in LOOKALIKES:
        head = frame(payload[:length])
        assert detect(head[:512]) is Compression.NONE
        assert detect(head[:12]) is Compression.NONE
    for length in (376, 35_615, 559_903, LOOKALIKES[10], LOOKALIKES[-1]):
        payloads = [payload[:length], b"second"]
        for name in ("x.gz", "x.zlib", "x"):
            assert outcome(save(tmp_path, framed(payloads), name)) == (payloads, None)


@pytest.mark.parametrize("length", [376, 35_615, 559_903])
def test_damaged_lookalikes_are_errors(tmp_path, length):
    data = framed([bytes(length), b"second"])
    for bit in range(96):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        got, error = outcome_of_each(save(tmp_path, damaged))
        assert (got, error is None) == ([], False), bit


def test_names_mean_nothing(tmp_path):
    payloads = text(1, 0, 5, 300)
    data = framed(payloads)
    forms = {"plain": data, "gzip": gzip.compress(data), "zlib": zlib.compress(data), "empty": b""}
    names = ["x.tfrecord", "x.gz", "x.zlib", "x.zz", "examples.tfrecord.gz-00000-of-00003", "x.parquet", "x"]
    for (kind, content), name in itertools.product(forms.items(), names):
        expected = [] if kind == "empty" else payloads
        read_back(save(tmp_path, content, name), expected)


def test_zero_records_in_every_form(tmp_path):
    for data in (b"", EMPTY, zlib.compress(b""), zlib.compress(b"", 0), EMPTY * 3, BGZIP_EOF):
        read_back(save(tmp_path, data), [])


@given(
    st.lists(st.binary(max_size=400), max_size=4), st.integers(0, 9), st.integers(9, 15), st.integers(0, 4)
)
@settings(max_examples=200)
def test_zlib_is_known_by_content(payloads, level, window, strategy):
    stream = zlib.compressobj(level, zlib.DEFLATED, window, 8, strategy)
    data = stream.compress(framed(payloads)) + stream.flush()
    assert detect(data[:512]) is Compression.ZLIB


FOREIGN = {
    "Parquet": b"PAR1\x15\x04",
    "Arrow": b"ARROW1\0\0",
    "HDF5": b"\x89HDF\r\n\x1a\n",
    "zip": b"PK\x03\x04\x14",
    "NumPy": b"\x93NUMPY\x01\0",
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff\xe0",
    "bzip2": b"BZh91AY&SY",
    "zstd": b"\x28\xb5\x2f\xfd\x04",
    "xz": b"\xfd7zXZ\0",
    "Riegeli": b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f",
    "gzip with an unknown method": b"\x1f\x8b\x07",
    "TFRecord file at all": b"a,b,c\n1,2,3\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_formats_are_named(tmp_path, name, command):
    path = save(tmp_path, FOREIGN[name] + random.Random(name).randbytes(1000))
    got, error = outcome(path)
    assert got == []
    assert isinstance(error, croupier.HeaderError)
    assert name in str(error)
    assert (error.offset, error.record) == (0, 0)
    ran = command("verify", path)
    assert ran.code == 1
    assert name in ran.out


# Reading what others compress

SIZES = (0, 1, 30, 400, 5_000, 70_000, 0, 2, 300_000, 17)


def cut_at_random(data, seed, pieces):
    rng = random.Random(seed)
    at = sorted(rng.randrange(len(data) + 1) for _ in range(pieces - 1))
    return [data[a:b] for a, b in pairwise([0, *at, len(data)])]


def flushed(data, mode, pieces, level=6, bits=31):
    stream = zlib.compressobj(level, zlib.DEFLATED, bits)
    parts = cut_at_random(data, 5, pieces)
    return b"".join(stream.compress(part) + stream.flush(mode) for part in parts) + stream.flush()


def named_member(data, name, comment):
    """All optional parts of a header, its own checksum among them."""
    head = b"\x1f\x8b\x08\x1e" + bytes(4) + b"\x02\x03" + b"\x04\x00ABCD" + name + b"\0" + comment + b"\0"
    body = member(data)[10:]
    return head + struct.pack("<H", zlib.crc32(head) & 0xFFFF) + body


GOOD = {
    "one member": lambda d: gzip.compress(d),
    "many members": lambda d: b"".join(map(gzip.compress, cut_at_random(d, 1, 40))),
    "members with stored blocks": lambda d: b"".join(member(p, level=0) for p in cut_at_random(d, 2, 9)),
    "stored": lambda d: gzip.compress(d, 0),
    "empty first": lambda d: EMPTY + gzip.compress(d),
    "empty between": lambda d: EMPTY.join(map(gzip.compress, cut_at_random(d, 3, 9))),
    "empty last": lambda d: gzip.compress(d) + EMPTY * 2,
    "empty everywhere": lambda d: (
        EMPTY * 3 + (EMPTY * 5).join(map(gzip.compress, cut_at_random(d, 4, 9))) + EMPTY
    ),
    "bgzip": bgzip,
    "bgzip, two files": lambda d: bgzip(d[:100_000]) + bgzip(d[100_000:]),
    "tiny members": lambda d: b"".join(member(d[i : i + 100]) for i in range(0, len(d), 100)),
    "sync flushes": lambda d: flushed(d, zlib.Z_SYNC_FLUSH, 30),
    "full flushes": lambda d: flushed(d, zlib.Z_FULL_FLUSH, 30),
    "partial flushes": lambda d: flushed(d, zlib.Z_PARTIAL_FLUSH, 30),
    "fixed codes": lambda d: flushed(d, zlib.Z_SYNC_FLUSH, 30, level=1),
    "headers with everything": lambda d: (
        named_member(d[:999], b"n" * 400_000, b"c" * 9) + named_member(d[999:], b"", b"")
    ),
    "zlib": zlib.compress,
    "zlib, stored": lambda d: zlib.compress(d, 0),
    "zlib, flushes": lambda d: flushed(d, zlib.Z_FULL_FLUSH, 30, bits=15),
    "zlib, small window": lambda d: flushed(d, zlib.Z_SYNC_FLUSH, 3, bits=9),
    "zlib twice": lambda d: zlib.compress(d[:60_000]) + zlib.compress(d[60_000:]),
    "zlib, many": lambda d: b"".join(map(zlib.compress, cut_at_random(d, 6, 30))),
}


@pytest.mark.parametrize("form", GOOD)
@pytest.mark.parametrize("make", [text, noise])
def test_every_form_of_compression_is_read(tmp_path, form, make):
    payloads = make(7, *SIZES)
    read_back(save(tmp_path, GOOD[form](framed(payloads))), payloads)


def test_thousands_of_empty_members(tmp_path):
    payloads = text(8, 10, 20)
    data = framed(payloads)
    report = read_back(save(tmp_path, EMPTY * 20_000 + gzip.compress(data) + EMPTY * 20_000), payloads)
    assert report.members == 40_001


@pytest.mark.parametrize("zeros", [1, 2, 7, 511, 512, inflate.SLICE, inflate.READ + 1, (1 << 20) + 3])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_zeros_after_the_data_are_padding(tmp_path, zeros, compress):
    payloads = text(9, 100, 3_000)
    data = compress(framed(payloads))
    read_back(save(tmp_path, data + bytes(zeros)), payloads)
    again = data + bytes(zeros) + data
    read_back(save(tmp_path, again), payloads * 2)
    got, error = outcome_of_each(save(tmp_path, data + bytes(zeros) + b"\x01"))
    assert got == payloads
    assert isinstance(error, croupier.CompressionError)
    assert error.offset == len(data) + zeros


@pytest.mark.parametrize(
    "garbage", [b"\x01", b"\x1f\x8b\x07", b"hello world", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x08"]
)
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_garbage_after_the_data_is_an_error(tmp_path, garbage, compress):
    payloads = text(10, 100, 3_000)
    path = save(tmp_path, compress(framed(payloads)) + garbage)
    got, error = outcome_of_each(path)
    assert got == payloads
    assert isinstance(error, croupier.CompressionError | croupier.TruncatedError)
    (report,) = croupier.verify(path)
    assert not report.ok


def test_garbage_after_plain_records_is_an_error(tmp_path):
    payloads = text(11, 100, 3_000)
    for garbage in (b"\0", bytes(11), bytes(12), bytes(10_000), b"hello, this is not a record"):
        got, error = outcome_of_each(save(tmp_path, framed(payloads) + garbage))
        assert got == payloads
        assert isinstance(error, croupier.HeaderError | croupier.TruncatedError)
        assert error.offset == 3_132


def headed(flags, *fields):
    """A member whose header has the optional fields of `flags`."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x02\x03" + b"".join(fields)
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    whole = head + member(framed([b"one", b"two"]))[10:]
    assert zlib.decompressobj(31).decompress(whole) == framed([b"one", b"two"])
    return whole


HEADS = {
    "name": headed(8, b"x.tfrecord\0"),
    "extra": headed(4, b"\x06\0BC\x02\0\x34\x12"),
    "checksum": headed(2),
    "name and checksum": headed(10, b"x.tfrecord\0"),
    "extra and name": headed(12, b"\x06\0BC\x02\0\x34\x12", b"x.tfrecord\0"),
    "everything": headed(31, b"\x06\0BC\x02\0\x34\x12", b"x.tfrecord\0", b"a comment\0"),
}


@pytest.mark.parametrize("head", HEADS)
def test_headers_on_every_byte_of_the_readers_edge(tmp_path, head):
    """`cat a.gz b.gz` puts a header with a name anywhere."""
    filler = noise(40, inflate.READ - 3_000)
    body = framed(filler)
    unpadded = len(member(body, level=0))
    for before in range(70):
        first = member(body, inflate.READ - before - unpadded, level=0)
        path = save(tmp_path, first + HEADS[head])
        assert outcome(path) == ([*filler, b"one", b"two"], None), before


@pytest.mark.parametrize("reserved", [0x20, 0x40, 0x80])
def test_reserved_header_flags_are_an_error(tmp_path, reserved):
    """RFC 1952, 2.3.1.2; zlib, and so TensorFlow, refuses them too."""
    data = bytearray(gzip.compress(TEN_BYTES))
    data[3] |= reserved
    with pytest.raises(zlib.error):
        zlib.decompressobj(31).decompress(data)
    assert isinstance(outcome(save(tmp_path, data))[1], croupier.CompressionError)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("more", [-17, -1, 0, 1, 2, 17, 100, 258, 300])
def test_what_the_codec_took_in_too_much(tmp_path, level, more):
    """When output fills the caller's buffer just before a stream's end, the codec has already taken in the
    last bytes of input, and what stands behind the stream among them."""
    payloads = [bytes(frames.BLOCK + more - 32), b""]
    data = framed(payloads)
    for compress in (zlib.compress, gzip.compress):
        packed = compress(data, level)
        for zeros in range(10):
            assert outcome(save(tmp_path, packed + bytes(zeros))) == (payloads, None), zeros
        again = compress(framed([b"again"]))
        assert outcome(save(tmp_path, packed + again)) == ([*payloads, b"again"], None)
        got, error = outcome_of_each(save(tmp_path, packed + b"\x01"))
        assert got == payloads
        assert error.offset == len(packed)


@pytest.mark.parametrize("edge", [inflate.SLICE, 2 * inflate.SLICE, inflate.READ])
def test_member_ends_on_every_byte_around_the_readers_edges(tmp_path, edge):
    first, second = noise(12, edge - 3_000, 2_000)
    payloads = [first, second]
    head, tail = framed(payloads[:1]), framed(payloads[1:])
    unpadded = len(member(head, level=0))
    for end in range(edge - 24, edge + 25):
        begin = member(head, edge - unpadded + end - edge, level=0)
        assert len(begin) == end
        for middle in (b"", EMPTY, bytes(3)):
            path = save(tmp_path, begin + middle + member(tail) + EMPTY)
            assert outcome(path) == (payloads, None), (end, middle)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("inflater", [inflate.Inflater, NotingInflater])
@pytest.mark.parametrize(("room", "piece"), [(10, 1), (11, 3), (16, 16), (64, 16), (100, 7)])
def test_tiny_buffers_change_nothing(monkeypatch, room, piece, inflater):
    """With buffers of a few bytes every position is an edge; the fixed part of a gzip header needs ten."""
    monkeypatch.setattr(inflate, "READ", room)
    monkeypatch.setattr(inflate, "SLICE", piece)
    monkeypatch.setattr(frames, "BLOCK", 64)
    payloads = text(13, 0, 1, 30, 400, 0, 2, 3_000, 17)
    data = framed(payloads)
    for form, make in GOOD.items():
        if form == "headers with everything":
            continue
        kind = Compression.ZLIB if form.startswith("zlib") else Compression.GZIP
        packed = make(data)
        for step, zeros in ((1, 0), (5, 9), (1 << 20, 1)):
            source = inflater(Slow(packed + bytes(zeros), step), "x", kind)
            reader = FrameReader(source, "x", size=None, inflated=True)
            got = [p for block in reader for p in _kernel.payloads(block.buffer, block.bounds)]
            assert got == payloads, form
            assert source.consumed == len(packed) + zeros
            assert source.produced == len(data)
            assert source.padding == zeros


def test_more_records_than_one_scan_reports(tmp_path):
    payloads = [b"", b"x"] * 100_000
    for data in (framed(payloads), gzip.compress(framed(payloads), 1)):
        read_back(save(tmp_path, data), payloads)


# Every bit, every byte

TEN = noise(14, 0, 1, 7, 8, 13, 21, 29, 33, 44, 15)
TEN_BYTES = framed(TEN)
TEN_EDGES = edges_of(TEN)


def written(folder, name, payloads, **options):
    path = folder / name
    with croupier.writer(path, **options) as out:
        out.write_many(payloads)
    return path.read_bytes()


FORMS = {
    "plain": lambda folder: TEN_BYTES,
    "gzip by croupier": lambda folder: written(folder, "ours.gz", TEN),
    "gzip by python": lambda folder: gzip.compress(TEN_BYTES, mtime=0),
    "zlib by croupier": lambda folder: written(folder, "ours.zlib", TEN),
    "zlib by python": lambda folder: zlib.compress(TEN_BYTES),
}

# Bits of a gzip header that say nothing about the data: FTEXT, the time, extra flags, operating system.
# RFC 1952 wants an error for the reserved flags 5, 6 and 7; the other four announce fields.
FREE_HEADER_BITS = {3 * 8 + 0} | set(range(4 * 8, 10 * 8))


def dead_bits(kind, whole):
    """Bits that may flip: those of the header above, and those of the deflate stream where the standard
    library, too, decodes the very same data (padding to a byte's end, a code that is never used)."""
    if kind == "plain":
        return set()
    head, bits = (10, 31) if kind.startswith("gzip") else (2, 15)
    dead = set()
    for bit in range(head * 8, len(whole) * 8):
        stream = zlib.decompressobj(bits)
        try:
            same = stream.decompress(flip(whole, bit)) == TEN_BYTES
        except zlib.error:
            continue
        if same and stream.eof and not stream.unused_data:
            dead.add(bit)
    assert len(dead) <= 16  # two paddings of at most 7 bits, and hardly ever more
    assert all(bit < (len(whole) - (8 if bits == 31 else 4)) * 8 for bit in dead)  # none in the trailer
    return dead | (FREE_HEADER_BITS if bits == 31 else set())


def flip(data, bit):
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def damaged_files(folder, kind):
    """(expected number of records that come before the error, or None if there is no error; path) of all."""
    whole = FORMS[kind](folder)
    dead = dead_bits(kind, whole)
    into = folder / "damaged"
    into.mkdir()
    for bit in range(len(whole) * 8):
        path = into / f"flip-{bit}"
        path.write_bytes(flip(whole, bit))
        yield bit in dead, bit // 8, path
    for cut in range(len(whole)):
        path = into / f"cut-{cut}"
        path.write_bytes(whole[:cut])
        yield cut == 0 or (kind == "plain" and cut in TEN_EDGES), cut, path


@pytest.mark.parametrize("kind", FORMS)
def test_every_flip_and_every_cut_read(tmp_path, kind):
    for fine, byte, path in damaged_files(tmp_path, kind):
        got, error = outcome_of_each(path)
        flipped = path.name.startswith("flip")
        assert got == TEN[: len(got)], path.name  # never a wrong payload, not even before the error
        assert (error is None) == fine, path.name
        if kind == "plain":
            number = sum(edge <= byte for edge in TEN_EDGES[1:])
            assert len(got) == number
            if error:
                assert (error.record, error.offset) == (number, TEN_EDGES[number])
                header = byte - TEN_EDGES[number] < 12
                wanted = croupier.HeaderError if header else croupier.PayloadError
                assert type(error) is (wanted if flipped else croupier.TruncatedError)
        elif fine:
            assert got == (TEN if flipped else [])
        elif not flipped:
            assert type(error) is croupier.TruncatedError


@pytest.mark.parametrize("kind", FORMS)
def test_every_flip_and_every_cut_verify(tmp_path, kind):
    cases = list(damaged_files(tmp_path, kind))
    reports = list(croupier.verify(path for _, _, path in cases))
    assert len(reports) == len(cases)
    for (fine, _, path), report in zip(cases, reports, strict=True):
        assert report.path == str(path)
        assert report.ok == fine, path.name
        assert bool(report.damage) != fine


@pytest.mark.parametrize("kind", FORMS)
def test_every_flip_and_every_cut_command(tmp_path, kind, command):
    """One in seven through `croupier verify`, in this process."""
    for fine, _, path in list(damaged_files(tmp_path, kind))[::7]:
        ran = command("verify", path, "--workers", "1")
        assert ran.code == (0 if fine else 1), (path.name, ran)
        assert ran.out.startswith("ok " if fine else "DAMAGED ")
        assert ran.err == ""


@pytest.mark.parametrize("kind", FORMS)
def test_some_flips_and_cuts_as_processes(tmp_path, kind):
    cases = [case for case in damaged_files(tmp_path, kind) if not case[0]]
    for _, _, path in random.Random(kind).sample(cases, 2):
        for arguments in (["verify", path], ["show", path, "--head", "99"]):
            ran = subprocess.run([sys.executable, "-m", "croupier", *arguments], capture_output=True)
            assert ran.returncode == 1, (path.name, ran)
            assert b"Traceback" not in ran.stderr


# Damage passed over


def simple(data, policy, limit=frames.MAX_RECORD):
    """What a plain file gives under a policy, in plain Python: (payloads, ranges, whether it raises)."""
    got, ranges, at = [], [], 0

    def header_at(i):
        return i + 12 <= len(data) and struct.unpack_from("<I", data, i + 8)[0] == _kernel.masked_crc32c(
            data[i : i + 8]
        )

    def end_of(i):
        return i + 16 + int.from_bytes(data[i : i + 8], "little")

    def sum_is_right(i):
        end = end_of(i)
        return struct.unpack_from("<I", data, end - 4)[0] == _kernel.masked_crc32c(data[i + 12 : end - 4])

    def allowed(i):
        return header_at(i) and end_of(i) - i - 16 <= limit

    def whole_at(i):
        return allowed(i) and end_of(i) <= len(data) and sum_is_right(i)

    while at < len(data):
        if whole_at(at):
            got.append(data[at + 12 : end_of(at) - 4])
            at = end_of(at)
            continue
        headed = header_at(at)
        torn = len(data) - at < 12 or (allowed(at) and end_of(at) > len(data))
        if policy == "fail" or (policy == "tolerate-tail" and not torn):
            return got, ranges, True
        begin = at
        if policy == "salvage":
            chained = allowed(at) and not torn and (end_of(at) == len(data) or header_at(end_of(at)))
            at = (
                end_of(at)
                if chained
                else next((i for i in range(at + 1, len(data)) if whole_at(i)), len(data))
            )
        else:
            at = min(end_of(at), len(data)) if headed and not torn else len(data)
        ranges.append((begin, at))
    return got, ranges, False


def passed_over(path, policy, **options):
    """As `simple`, by croupier.read."""
    damage = []
    got, error = outcome_of_each(path, policy, on_damage=damage.append, **options)
    assert all(item.path == str(path) and not item.inflated and item.reason for item in damage)
    return got, [(item.begin, item.end) for item in damage], error is not None


POLICIES = ("fail", "tolerate-tail", "skip", "salvage")


@pytest.mark.parametrize("policy", POLICIES)
def test_one_damage_and_every_word(tmp_path, policy):
    """Every third bit, and every cut, of the ten records."""
    for damaged in [flip(TEN_BYTES, b) for b in range(0, 2648, 3)] + [TEN_BYTES[:c] for c in range(331)]:
        path = save(tmp_path, damaged)
        assert passed_over(path, policy) == simple(damaged, policy)


def test_the_report_is_exact(tmp_path):
    payloads = [bytes([65 + i]) * 20 for i in range(6)]  # frames of 36 bytes
    data = bytearray(framed(payloads))
    data[36 + 20] ^= 1  # payload of record 1
    data[4 * 36] ^= 1  # length of record 4
    path = save(tmp_path, data)
    damage = []
    got = list(croupier.read(path, "skip", on_damage=damage.append))
    assert got == [payloads[0], payloads[2], payloads[3]]
    assert [(d.begin, d.end, d.record, d.inflated) for d in damage] == [
        (36, 72, 1, False),
        (144, 216, 3, False),
    ]
    damage.clear()
    assert list(croupier.read(path, "salvage", on_damage=damage.append)) == [*got, payloads[5]]
    assert [(d.begin, d.end) for d in damage] == [(36, 72), (144, 180)]
    with pytest.warns(croupier.CorruptionWarning, match="passed over") as said:
        assert len(list(croupier.read(path, "salvage"))) == 4
    assert [str(one.message).split(" passed")[0] for one in said] == [
        f"{path}: bytes [36, 72)",
        f"{path}: bytes [144, 180)",
    ]
    assert said[0].filename == __file__
    (report,) = croupier.verify(path)
    assert [(d.begin, d.end) for d in report.damage] == [(36, 72), (144, 180)]
    assert (report.records, report.damaged_ranges, report.ok) == (4, 2, False)


def test_unknown_words_are_refused(tmp_path):
    path = save(tmp_path, TEN_BYTES)
    for word in ("ignore", "", "Skip", None):
        with pytest.raises(croupier.UsageError, match="on_corrupt"):
            croupier.read(path, word)


edits = st.lists(
    st.tuples(st.sampled_from(["flip", "cut", "insert"]), st.floats(0, 1), st.integers(1, 60), st.randoms()),
    min_size=1,
    max_size=6,
)


def apply_edits(data, spans, plan):
    """(damaged data, numbers of the records that no edit touched)."""
    spots = sorted(
        {int(place * (len(data) - 1)): (kind, size, rng) for kind, place, size, rng in plan}.items()
    )
    out, at, untouched = b"", 0, set(range(len(spans)))

    def touch(begin, end):
        untouched.difference_update(i for i, (a, b) in enumerate(spans) if a < end and begin < b)

    for spot, (kind, size, rng) in spots:
        if spot < at:
            continue
        out += data[at:spot]
        at = spot
        if kind == "flip":
            out += bytes([data[spot] ^ 1 << size % 8])
            at += 1
            touch(spot, at)
        elif kind == "cut":
            at = min(len(data), spot + size)
            touch(spot, at)
        else:
            out += rng.randbytes(size)
            untouched.difference_update(i for i, (a, b) in enumerate(spans) if a < spot < b)
    return out + data[at:], untouched


def test_eight_bytes_and_their_checksum_are_a_header_as_well(tmp_path):
    """The format's own limit, whoever reads: what is cut out between two such places cannot be seen."""
    one, empty, eight = frame(bytes(30)), frame(b""), frame(b"12345678")
    got, damage = [], []
    got += croupier.read(save(tmp_path, eight[:12] + empty), "salvage", on_damage=damage.append)
    assert got == [bytes(8)]  # the length of the empty record
    assert [(part.begin, part.end) for part in damage] == [(24, 28)]
    got, damage = [], []
    got += croupier.read(save(tmp_path, one[:34] + eight), "salvage", on_damage=damage.append)
    assert not got
    assert [(part.begin, part.end) for part in damage] == [(0, 46), (46, 58)]


# Not 8: see test_eight_bytes_and_their_checksum_are_a_header_as_well.
@given(
    st.lists(st.integers(0, 80).filter(lambda size: size != 8), min_size=1, max_size=25),
    edits,
    st.sampled_from([64, 100, 1 << 20]),
    st.sampled_from([1, 13, 1 << 20]),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=400)
def test_salvage_of_several_damages(sizes, plan, block, step, piped, seed):
    payloads = noise(seed, *sizes)
    spans = list(pairwise(edges_of(payloads)))
    damaged, untouched = apply_edits(framed(payloads), spans, plan)
    true_order = iter(payloads)
    for policy in POLICIES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "BLOCK", block)
            damage, got, raised = [], [], False
            reader = FrameReader(
                Slow(damaged, step),
                "x",
                size=None if piped else len(damaged),
                on_corrupt=policy,
                on_damage=damage.append,
            )
            try:
                for one in reader:
                    got += _kernel.payloads(one.buffer, one.bounds)
            except croupier.DataError:
                raised = True
        ranges = [(d.begin, d.end) for d in damage]
        assert (got, ranges, raised) == simple(damaged, policy)
        if not raised:
            assert sum(len(p) + 16 for p in got) + sum(end - begin for begin, end in ranges) == len(damaged)
    # The last one was salvage: nothing invented, and nothing whole lost, except inside a record whose
    # header is right and whose end meets the next header, although something else now stands between them.
    assert all(payload in true_order for payload in got)
    inside = {
        i for begin, end in ranges for i in untouched if _frame_within(payloads[i], damaged, begin, end)
    }
    chained = [d for d in damage if "payload" in d.reason]
    lost = untouched - {i for i in untouched if payloads[i] in got}
    assert lost <= inside
    assert not lost or chained


def _frame_within(payload, data, begin, end):
    return frame(payload) in data[begin:end]


def test_salvage_across_real_buffers(tmp_path):
    payloads = noise(15, *random.Random(16).choices([0, 100, 5_000, 300_000, 1_200_000], k=25))
    data = bytearray(framed(payloads))
    rng = random.Random(17)
    edges = edges_of(payloads)
    for begin, end in rng.sample(list(pairwise(edges)), 6):
        data[rng.choice([begin, begin + 9, (begin + end) // 2, end - 1])] ^= 0x10
    path = save(tmp_path, data)
    for policy in POLICIES:
        assert passed_over(path, policy) == simple(bytes(data), policy)


def test_record_limits(tmp_path):
    payloads = noise(18, 10, 100, 50, 101, 0)
    data = framed(payloads)
    for limit in (0, 9, 10, 99, 100, 101):
        for policy in POLICIES:
            expected = simple(data, policy, limit)
            assert passed_over(save(tmp_path, data), policy, max_record_bytes=limit) == expected
    _, error = outcome(save(tmp_path, gzip.compress(data)), max_record_bytes=50)
    assert isinstance(error, croupier.RecordTooLargeError)
    assert (error.record, error.offset, error.inflated) == (1, 26, True)
    assert (error.found, error.expected) == (100, 50)


@pytest.mark.parametrize("kind", ["gzip by croupier", "gzip by python", "zlib by croupier"])
@pytest.mark.parametrize("policy", POLICIES[1:])
def test_cut_compressed_files(tmp_path, kind, policy):
    """What the standard library can decompress of a cut file is given, and the loss is reported."""
    payloads = text(19, *random.Random(20).choices(range(2_000), k=60))
    whole = written(tmp_path, "x.zlib" if kind.startswith("zlib") else "x.gz", payloads)
    if kind == "gzip by python":
        whole = gzip.compress(framed(payloads), mtime=0)
    edges = edges_of(payloads)
    for cut in range(11, len(whole), 7):
        path = save(tmp_path, whole[:cut])
        there = zlib.decompressobj(47).decompress(whole[:cut])
        damage = []
        got, error = outcome_of_each(path, policy, on_damage=damage.append)
        assert error is None
        # isal may hold back the last symbols of its input.
        least, most = (sum(edge <= len(there) - held for edge in edges[1:]) for held in (258, 0))
        assert got == payloads[: len(got)]
        assert least <= len(got) <= most, cut
        assert (damage[0].begin, damage[0].end, damage[0].inflated) == (cut, None, False)
        torn = [(d.begin, d.end) for d in damage if d.inflated]
        last = torn[0][1] if torn else edges[len(got)]
        assert len(torn) <= 1
        assert all(begin == edges[len(got)] for begin, _ in torn)
        assert len(there) - 258 <= last <= len(there)


@pytest.mark.parametrize("policy", POLICIES)
def test_damaged_compressed_files(tmp_path, policy):
    """Records before the damage, and a report; the codec may lose what it took in at once with the damage."""
    payloads = noise(21, *[9_000] * 60)
    data = framed(payloads)
    whole = gzip.compress(data, mtime=0)
    for byte in random.Random(22).sample(range(20, len(whole)), 40):
        path = save(tmp_path, flip(whole, byte * 8))
        damage = []
        got, error = outcome_of_each(path, policy, on_damage=damage.append)
        if policy in ("fail", "tolerate-tail"):
            assert isinstance(error, croupier.DataError)
            assert not damage
        else:
            assert error is None
            assert damage
        before = (byte - inflate.SLICE) // 9_016 - 1  # noise: bytes in and out go together
        assert got[: max(before, 0)] == payloads[: max(before, 0)], byte
        order = iter(payloads)
        assert all(payload in order for payload in got)  # where the codec gets on, whole records may follow


# Hostile lengths and hostile compression


def memory_script(body):
    """A script whose last line tells by how many MiB the peak of resident memory grew while `body` ran."""
    return f"""
import gzip, os, resource, sys, threading, time, zlib
import croupier
sys.path.insert(0, {os.path.dirname(__file__)!r})
def peak():
    try:  # ru_maxrss would count what the parent had
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
paths = sys.argv[2:]
warm = sys.argv[1]
list(croupier.read(warm)); list(croupier.verify(warm))
before = peak()
{body}
print(peak() - before)
"""


def run_script(body, *arguments):
    argv = [sys.executable, "-c", memory_script(body), *map(str, arguments)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    return lines[:-1], float(lines[-1])


BOMBS = sorted({n for k in range(24, 65) for n in (2**k - 16, 2**k - 1, 2**k, 2**k + 1) if n < 2**64})

READ_BOMBS = """
def kind_of(path, **options):
    began = time.monotonic()
    count, kind = 0, "nothing"
    try:
        for payload in croupier.read(path, **options):
            count += 1
    except croupier.DataError as error:
        kind = type(error).__name__
    return count, kind, time.monotonic() - began
for path in paths:
    for limit in (2**31 - 1, 2**64 - 1):
        print(*kind_of(path, max_record_bytes=limit))
    with open(path, "rb") as file:
        data = file.read()
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)
    print(*kind_of(f"/dev/fd/{read_end}"))
    os.close(read_end)
    list(croupier.verify(path))
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress])
@pytest.mark.parametrize("rest", [b"", bytes(1000)])
def test_length_bombs(tmp_path, pack, rest):
    """A header whose checksum is right and which declares up to 2^64 bytes."""
    paths = []
    for length in BOMBS:
        paths.append(tmp_path / str(length))
        paths[-1].write_bytes(pack(framed([b"first"]) + oracle.header(length) + rest))
    warm = tmp_path / "warm"
    warm.write_bytes(pack(framed([bytes(100)])))
    lines, grown = run_script(READ_BOMBS, warm, *paths)
    assert grown <= 16
    assert len(lines) == 3 * len(BOMBS)
    for index, line in enumerate(lines):
        count, kind, seconds = line.split()
        length, unlimited = BOMBS[index // 3], index % 3 == 1
        small = length < 2**31 or unlimited
        assert (count, kind) == ("1", "TruncatedError" if small else "RecordTooLargeError"), (length, line)
        assert float(seconds) < 5


@pytest.mark.unsanitized
def test_a_gigabyte_of_zeros_streams(tmp_path):
    """1 MB that expands to 1 GiB of no records, and one that expands to 250,000 records of 1,008 bytes."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = [stream.compress(bytes(1 << 24)) for _ in range(64)]
    bomb = save(tmp_path, b"".join(zeros) + stream.flush(), "bomb")
    stream, inside = zlib.compressobj(1, zlib.DEFLATED, 31), framed([bytes(1_008)] * 8_000)
    valid = save(tmp_path, b"".join(stream.compress(inside) for _ in range(32)) + stream.flush(), "valid")
    nested = save(tmp_path, gzip.compress(frame(bomb.read_bytes()), 1), "nested")
    assert bomb.stat().st_size < 1_100_000
    assert valid.stat().st_size < 4_000_000
    warm = save(tmp_path, gzip.compress(framed([bytes(3_000_000)])), "warm")
    lines, grown = run_script(
        """
for policy in ("fail", "salvage"):
    try:
        records = croupier.read(paths[0], policy, on_damage=lambda damage: print(damage.begin, damage.end))
        print(sum(1 for _ in records))
    except croupier.HeaderError:
        print("HeaderError")
print(sum(1 for _ in croupier.read(paths[1])))
print(*(report.records for report in croupier.verify(paths[1:], workers=1)))
print(len(next(croupier.read(paths[2]))))
""",
        warm,
        bomb,
        valid,
        nested,
    )
    assert lines == ["HeaderError", f"0 {1 << 30}", "0", "256000", "256000 1", str(bomb.stat().st_size)]
    assert grown <= 16


# Pipes


def feed(process, data, step, pause):
    for at in range(0, len(data), step):
        process.stdin.write(data[at : at + step])
        process.stdin.flush()
        time.sleep(pause)
    process.stdin.close()


@pytest.mark.parametrize("kind", FORMS)
def test_standard_input_one_byte_at_a_time(tmp_path, kind):
    data = FORMS[kind](tmp_path)
    for content, code in ((data, 0), (data[:-1], 1), (b"", 0)):
        argv = [sys.executable, "-m", "croupier", "show", "-", "--raw", "--head", "99"]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            feed(process, content, 1, 0.0002)
            out, err = process.stdout.read(), process.stderr.read()
        assert process.returncode == code, err
        assert out == b"".join(TEN) if content == data else b"".join(TEN).startswith(out)


def test_verify_standard_input(tmp_path):
    for content, code in ((TEN_BYTES, 0), (TEN_BYTES[:-3], 1), (flip(TEN_BYTES, 99), 1)):
        ran = subprocess.run(
            [sys.executable, "-m", "croupier", "verify", "-", "--json"], input=content, capture_output=True
        )
        assert ran.returncode == code
        report = json.loads(ran.stdout)
        assert report["path"] == "-"
        assert report["ok"] == (code == 0)
        assert report["file_bytes"] == len(content)


@pytest.mark.parametrize("kind", FORMS)
def test_fifo(tmp_path, kind):
    data = FORMS[kind](tmp_path)
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def serve():
        with open(path, "wb", buffering=0) as file:
            for at in range(len(data)):
                file.write(data[at : at + 1])

    thread = threading.Thread(target=serve)
    thread.start()
    assert outcome(path) == (TEN, None)
    thread.join()


# Writing

MIXED = [
    *text(23, *random.Random(24).choices(range(3_000), k=900)),
    b"",
    *noise(25, 32_751, 32_752, 16_369, 0, 200_000, 5, 3_000_000, 262_128, 7),
    *text(26, 1_600_000, 40_000, 0, 12),
]


@pytest.mark.parametrize("name", ["x.tfrecord", "x.gz", "x.zlib"])
def test_bytes_depend_on_records_and_settings_alone(tmp_path, name):
    """Any number of workers, and any way of handing the records over."""

    def one_by_one(out):
        for payload in MIXED:
            out.write(payload)

    def at_once(out):
        out.write_many(MIXED)

    def mixed(out):
        rng, at = random.Random(27), 0
        while at < len(MIXED):
            count = rng.choice([1, 1, 2, 17, 300])
            if count == 1:
                out.write(MIXED[at])
            else:
                out.write_many(iter(MIXED[at : at + count]))
            at += count

    results = set()
    for way, workers in itertools.product((one_by_one, at_once, mixed), (1, 2, 3, 9)):
        with croupier.writer(tmp_path / name, workers=workers, overwrite=True) as out:
            way(out)
        results.add((tmp_path / name).read_bytes())
    assert len(results) == 1
    read_back(tmp_path / name, MIXED)
    if name == "x.tfrecord":
        assert results == {framed(MIXED)}


@pytest.mark.parametrize("level", range(1, 10))
def test_levels(tmp_path, level):
    data = framed(MIXED[:700])
    for name, kind in (("x.gz", 31), ("x.zlib", 15)):
        packed = written(tmp_path, name, MIXED[:700], level=level)
        stream = zlib.decompressobj(kind)
        assert stream.decompress(packed) == data
        assert stream.eof
        assert not stream.unused_data
        assert len(packed) < len(data) / 3
        read_back(tmp_path / name, MIXED[:700])


def test_levels_that_do_not_exist(tmp_path):
    for level in (0, -1, 10):
        with pytest.raises(croupier.UsageError, match="level"):
            croupier.writer(tmp_path / "x.gz", level=level)
    assert not list(tmp_path.iterdir())


def fragments_of(packed, raw_edges):
    """Positions where the fragments of a seekable gzip begin, and where the last one ends.

    A fragment ends with the marker of a full flush behind which all of its bytes have come out.
    """
    starts = [10]
    for begin, end in pairwise(raw_edges):
        stream, size, at = zlib.decompressobj(-15), 0, starts[-1]
        while size < end - begin or at == starts[-1]:
            marker = packed.index(b"\x00\x00\xff\xff", at) + 4
            size += len(stream.decompress(packed[at:marker]))
            at = marker
        assert size == end - begin
        starts.append(at)
    return starts


def expected_edges(payloads):
    """Where fragments must be cut, from the record lengths alone."""
    bounds = edges_of(payloads)
    ends = oracle.fragments(bounds, 1 << 15, 3 << 17)
    if payloads and (not ends or ends[-1] < len(payloads)):
        ends.append(len(payloads))
    return [0, *(bounds[end] for end in ends)]


def check_seekable(packed, payloads):
    data, edges = framed(payloads), expected_edges(payloads)
    assert packed[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"  # no name, no time
    assert packed[9] == 255
    assert packed[-8:] == struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    starts = fragments_of(packed, edges)
    assert packed[starts[-1] : -8] == b"\x03\x00"
    for start, edge in zip(starts, edges, strict=True):
        stream = zlib.decompressobj(-15)
        assert stream.decompress(packed[start:-8]) == data[edge:]
        assert stream.eof
        assert not stream.unused_data
    whole = zlib.decompressobj(31)
    assert whole.decompress(packed) == data
    assert whole.eof
    assert not whole.unused_data  # one member
    return len(starts) - 1


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_a_cut_behind_a_fragment_loses_nothing_before_it(tmp_path, policy):
    payloads = text(41, *random.Random(42).choices([0, 300, 33_000], k=90))
    packed, edges = written(tmp_path, "x.gz", payloads), expected_edges(payloads)
    for start, edge in zip(fragments_of(packed, edges), edges, strict=True):
        damage = []
        got, error = outcome(save(tmp_path, packed[:start]), policy, on_damage=damage.append)
        assert error is None
        assert framed(got) == framed(payloads)[:edge]
        assert [(d.begin, d.end, d.inflated) for d in damage] == [(start, None, False)]


def test_fragment_rule_is_as_documented():
    assert (deflate.LARGE_FRAME, deflate.GROUP) == (1 << 15, 3 << 17)


@pytest.mark.parametrize("level", [1, 2, 3, 5, 6, 9])
@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [b""],
        [b""] * 5,
        text(28, 32_751),
        text(29, 32_752),
        text(30, 5, 32_752, 5, 5, 32_751, 20_000, 20_000, 1),
        text(31, *[400] * 3_000),
        text(32, *[240] * 1_536, *[240] * 1_536),
        text(33, *[240] * 1_535, 223, *[240] * 1_535, 224),
        text(34, *random.Random(35).choices([0, 10, 500, 16_000, 33_500, 90_000], k=120)),
        noise(36, *random.Random(37).choices([0, 10, 500, 16_000, 33_500], k=60)),
    ],
    ids=len,
)
def test_every_fragment_stands_alone(tmp_path, payloads, level):
    check_seekable(written(tmp_path, "x.gz", payloads, level=level), payloads)


@given(st.lists(st.sampled_from([0, 1, 100, 32_751, 32_752, 70_000]), max_size=40), st.integers(0, 9))
@settings(max_examples=30)
def test_fragments_of_any_lengths(tmp_path_factory, sizes, seed):
    payloads = text(seed, *sizes)
    check_seekable(written(tmp_path_factory.mktemp("x"), "x.gz", payloads), payloads)


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "x.tfrecord.zlib"])
def test_a_record_that_changes_in_memory_is_noticed(tmp_path, name):
    """Every bit of two frames, while they wait in the writer's block; none of it is published."""
    frames = oracle.frame(b"abc") + oracle.frame(b"")
    for bit in range(8 * len(frames)):
        with pytest.raises(croupier.IntegrityError, match=name), croupier.writer(tmp_path / name) as out:  # noqa: PT012
            out.write_many([b"abc", b""])
            (shard,) = out._shards
            assert shard.block[: shard.position] == frames
            shard.block[bit // 8] ^= 1 << bit % 8
        assert os.listdir(tmp_path) in ([], [".croupier"])


def test_shards_are_files_of_their_own(tmp_path):
    with croupier.writer(tmp_path / "deal", shards=3, compression="gzip") as out:
        out.write_many(MIXED[:500])
        for payload in MIXED[500:]:
            out.write(payload)
    assert len(out.paths) == 3
    for number, path in enumerate(out.paths):
        with open(path, "rb") as file:
            shard = file.read()
        check_seekable(shard, MIXED[number::3])
        assert shard == written(tmp_path, f"alone-{number}.gz", MIXED[number::3])


@pytest.mark.parametrize("name", ["x.tfrecord", "x.gz", "x.zlib"])
def test_large_payloads(tmp_path, name):
    payloads = [b"", bytes(1 << 26), noise(38, 1 << 24)[0], b"x", bytes((1 << 20) - 16), bytes(1 << 20), b""]
    with croupier.writer(tmp_path / name, level=1) as out:
        for payload in payloads:
            out.write(payload)
    read_back(tmp_path / name, payloads)


def test_payloads_of_any_buffer_type(tmp_path):
    array = np.arange(5_000, dtype=np.float32).reshape(50, 100)
    given_payloads = [
        b"bytes",
        bytearray(b"bytearray"),
        memoryview(b"a view of more")[2:6],
        array,
        memoryview(array),
        array[3],
        np.zeros(0),
        np.frombuffer(b"frozen", np.uint8),
        memoryview(b""),
        np.zeros(1 << 21, np.uint16),
    ]
    expected = [bytes(memoryview(p).cast("B")) if memoryview(p).nbytes else b"" for p in given_payloads]
    for name in ("x.tfrecord", "x.gz", "x.zlib"):
        one, many = (tmp_path / way / name for way in ("one", "many"))
        with croupier.writer(one) as out:
            for payload in given_payloads:
                out.write(payload)
        with croupier.writer(many) as out:
            out.write_many(given_payloads)
        assert one.read_bytes() == many.read_bytes()
        read_back(one, expected)


@pytest.mark.parametrize("wrong", ["text", 5, None, [1], np.zeros((4, 4))[:, 1]])
@pytest.mark.parametrize("many", [False, True])
def test_what_is_no_payload_is_refused(tmp_path, wrong, many):
    with pytest.raises((TypeError, ValueError, BufferError)), croupier.writer(tmp_path / "x.gz") as out:  # noqa: PT012
        out.write(b"fine")
        if many:
            out.write_many([b"fine", wrong])
        else:
            out.write(wrong)
    assert not (tmp_path / "x.gz").exists()


# Naming inputs


def test_lists_globs_and_folders(tmp_path):
    names = [
        "b.tfrecord",
        "a.tfrecord.gz",
        "c.tfrecord-00000-of-00001",
        ".hidden.tfrecord",
        "notes.txt",
        "d.tfrec",
    ]
    for name in names:
        save(tmp_path, frame(name.encode()), name)
    (tmp_path / "sub.tfrecord").mkdir()
    save(tmp_path / "sub.tfrecord", frame(b"deep"), "deep.tfrecord")
    (tmp_path / ".croupier").mkdir()
    save(tmp_path / ".croupier", frame(b"side"), "side.tfrecord")

    def read(*paths):
        return [payload.decode() for payload in croupier.read(paths[0] if len(paths) == 1 else paths)]

    whole = ["a.tfrecord.gz", "b.tfrecord", "c.tfrecord-00000-of-00001", "d.tfrec"]
    assert read(tmp_path) == whole
    assert read(str(tmp_path)) == whole
    assert read(f"{tmp_path}/*") == sorted([*whole, "notes.txt"])
    assert read(f"{tmp_path}/*.tfrec*") == whole
    assert read(f"{tmp_path}/**/deep*") == ["deep"]
    assert read(tmp_path / "d.tfrec", f"{tmp_path}/[ab]*", tmp_path / "d.tfrec") == [
        "d.tfrec",
        *whole[:2],
        "d.tfrec",
    ]
    assert read(tmp_path / ".hidden.tfrecord") == [".hidden.tfrecord"]
    bracket = save(tmp_path, frame(b"bracket"), "e[1].tfrecord")
    assert read(bracket) == ["bracket"]
    assert list(croupier.read(iter([bracket]))) == [b"bracket"]
    assert [report.path for report in croupier.verify([bracket, tmp_path / "d.tfrec", bracket])] == [
        str(bracket),
        str(tmp_path / "d.tfrec"),
    ]


def test_inputs_that_are_not_there(tmp_path, command):
    (tmp_path / "empty").mkdir()
    for missing in (tmp_path / "no", f"{tmp_path}/no*", tmp_path / "empty", tmp_path / "no" / "x", ""):
        with pytest.raises(croupier.InputNotFoundError):
            croupier.read(missing)
        with pytest.raises(FileNotFoundError):
            croupier.verify(missing)
        assert command("verify", missing).code == 2
        assert command("show", missing).code == 2
    with pytest.raises(croupier.UsageError):
        croupier.read([])
    for remote in ("gs://bucket/x.tfrecord", "https://host/x"):
        with pytest.raises(croupier.UsageError, match="local"):
            croupier.read(remote)


def test_files_are_opened_one_at_a_time_and_closed(tmp_path):
    for number in range(5):
        save(tmp_path, framed([b"%d" % number] * 3), f"{number}.tfrecord")
    count = len(os.listdir("/dev/fd"))
    stream = croupier.read(tmp_path)
    assert len(os.listdir("/dev/fd")) == count
    assert next(stream) == b"0"
    assert len(os.listdir("/dev/fd")) == count + 1
    stream.close()
    assert len(os.listdir("/dev/fd")) == count


def test_the_error_says_where(tmp_path):
    data = framed(text(39, 100, 100, 100))
    good, bad = (
        save(tmp_path, data, "1.tfrecord"),
        save(tmp_path, gzip.compress(flip(data, 8 * 250)), "2.tfrecord"),
    )
    got, error = outcome_of_each([good, bad])
    assert len(got) == 5
    assert (error.path, error.record, error.offset, error.inflated) == (str(bad), 2, 232, True)
    assert "decompressed byte 232" in str(error)
    with open_file(str(good)) as opened:
        assert (opened.compression, opened.file.size) == (Compression.NONE, 348)


def test_show_gives_payloads_as_they_are(tmp_path, command):
    path = save(tmp_path, gzip.compress(TEN_BYTES))
    assert command("show", path, "--raw").raw == b"".join(TEN)
    for number, payload in enumerate(TEN):
        assert command("show", path, "--raw", "--record", number).raw == payload
    lines = [json.loads(line) for line in command("show", path, "--json").out.splitlines()]
    assert [(line["record"], line["offset"], line["bytes"]) for line in lines] == [
        (number, TEN_EDGES[number], len(payload)) for number, payload in enumerate(TEN)
    ]
    assert command("show", path, "--record", 10).code == 2
    assert io.StringIO(command("show", path).out).readline().split()[:3] == ["record", "byte", "size"]
