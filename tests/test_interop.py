"""TensorFlow, Beam, vahidk's tfrecord and gzip read what Croupier writes, and the other way round.

Proves that the payloads are the same in every pair, that plain files are byte for byte TensorFlow's, that the
fragments of a seekable gzip disturb nobody wherever they end, and that `croupier.verify` says of files of
several members exactly what TensorFlow makes of them. Nothing here is skipped where a library is missing.
"""

import gzip
import hashlib
import io
import json
import os
import random
import re
import struct
import subprocess
import sys
import warnings
import zlib
from itertools import accumulate, pairwise

import pytest

import croupier
from croupier import _kernel
from croupier.codec.deflate import SeekableGzip
from croupier.codec.detect import Compression
from croupier.codec.tensorflow import replay

# One worker of pytest-xdist for all of it: TensorFlow takes seconds and 600 MB to import.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("tensorflow")]

EDGE = 1 << 18  # TensorFlow's input buffer, and its output buffer
EMPTY = gzip.compress(b"", mtime=0)
BGZIP_EOF = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
NAMES = {"": "x.tfrecord", "GZIP": "x.gz", "ZLIB": "x.zlib"}


@pytest.fixture(scope="module")
def tf():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow

        tensorflow.get_logger().setLevel("ERROR")
        tensorflow.config.set_visible_devices([], "GPU")
        return tensorflow


@pytest.fixture(scope="module")
def beam():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import apache_beam.io.tfrecordio

        return apache_beam


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
    rng = random.Random(seed)
    return [rng.randbytes(size) for size in sizes]


def member(data, pad=0, level=1):
    """One gzip member, longer by `pad` bytes (0, or 2 and more) with an extra field; level 0 stores."""
    body = zlib.compressobj(level, zlib.DEFLATED, -15)
    raw = body.compress(data) + body.flush()
    flag, extra = (4, struct.pack("<H", pad - 2) + bytes(pad - 2)) if pad else (0, b"")
    head = b"\x1f\x8b\x08" + bytes([flag]) + bytes(4) + b"\x00\xff"
    return head + extra + raw + struct.pack("<II", zlib.crc32(data), len(data))


def bgzip(data, size=0xFF00):
    out = b""
    for at in range(0, len(data), size):
        part = data[at : at + size]
        out += member(part, 8)
    return out + BGZIP_EOF


def payloads_of(seed, kind="mixed"):
    """Some records: mostly small, some of 0 bytes, now and then a large one; text or noise."""
    rng = random.Random(seed)
    count = rng.choice([0, 1, 2, 10, 100, 600])
    sizes = rng.choices([0, 1, 30, 400, 3_000, 16_368, 60_000], [2, 1, 5, 5, 2, 0.3, 0.1], k=count)
    sizes += [rng.randrange(1 << 21)] * (seed % 16 == 0)
    rng.shuffle(sizes)
    return [rng.randbytes(n) if rng.random() < 0.5 else bytes([rng.randrange(256)]) * n for n in sizes]


def write(path, payloads, **options):
    with croupier.writer(path, overwrite=True, **options) as out:
        out.write_many(payloads)
    return path


def read_by_tensorflow(tf, path, compression):
    """(records, whether it ended with an error), by the reader behind tf.data, without a graph."""
    from tensorflow.python.lib.io import _pywrap_record_io

    got, records = [], _pywrap_record_io.RecordIterator(str(path), compression)
    try:
        for payload in records:
            got.append(payload)  # noqa: PERF402
    except tf.errors.DataLossError:
        return got, True
    return got, False


def read_by_tf_data(tf, path, compression):
    return list(tf.data.TFRecordDataset(str(path), compression_type=compression).as_numpy_iterator())


def read_by_beam(beam, path, compression):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    kinds = {"": "UNCOMPRESSED", "GZIP": "GZIP", "ZLIB": "DEFLATE"}
    kind = getattr(CompressionTypes, kinds[compression])
    got = []
    with FileSystems.open(str(path), "application/octet-stream", kind) as file:
        while (payload := beam.io.tfrecordio._TFRecordUtil.read_record(file)) is not None:
            got.append(payload)
    return got


# What we write


def agree(tf, beam, tmp_path, seeds):
    paths = []
    for seed in seeds:
        payloads = payloads_of(seed)
        compression = ["", "GZIP", "ZLIB"][seed % 3]
        path = write(tmp_path / f"{seed}-{NAMES[compression]}", payloads, level=1 + seed % 9)
        assert read_by_tensorflow(tf, path, compression) == (payloads, False), seed
        if seed % 5 == 0:
            assert read_by_tf_data(tf, path, compression) == payloads
        if seed % 4 == 0:
            assert read_by_beam(beam, path, compression) == payloads
        if compression == "GZIP":
            assert gzip.decompress(path.read_bytes()) == framed(payloads)
            paths.append(path)
    subprocess.run(["gzip", "-t", *paths], check=True)
    if sys.platform == "linux":
        out = subprocess.run(["gzip", "-dc", paths[0]], check=True, capture_output=True).stdout
        assert out == gzip.decompress(paths[0].read_bytes())


def test_others_read_what_we_write(tf, beam, tmp_path):
    agree(tf, beam, tmp_path, range(300))


@pytest.mark.slow
def test_others_read_what_we_write_in_thousands(tf, beam, tmp_path):
    for begin in range(1_000, 6_000, 100):
        agree(tf, beam, tmp_path, range(begin, begin + 100))
        for path in tmp_path.iterdir():
            if path.is_file():
                path.unlink()


VAHIDK = """
import hashlib, json, sys, warnings
warnings.simplefilter("ignore")
from tfrecord.reader import tfrecord_iterator
for path in sys.argv[1:]:
    kind = "gzip" if path.endswith("gz") else None
    digests = [hashlib.sha256(view).hexdigest() for view in tfrecord_iterator(path, compression_type=kind)]
    print(json.dumps(digests))
"""


def test_vahidk_reads_what_we_write(tmp_path):
    """In a process of its own: it cannot share one with TensorFlow."""
    expected, paths = [], []
    for seed in range(90):
        payloads = payloads_of(seed)
        paths.append(write(tmp_path / (f"{seed}.gz" if seed % 2 else f"{seed}.tfrecord"), payloads))
        expected.append([hashlib.sha256(payload).hexdigest() for payload in payloads])
    ran = subprocess.run([sys.executable, "-c", VAHIDK, *paths], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(line) for line in ran.stdout.splitlines()] == expected


def test_large_records_travel(tf, beam, tmp_path):
    payloads = [b"", noise(1, 5_000_000)[0], bytes(20_000_000), b"x"]
    for compression, name in NAMES.items():
        path = write(tmp_path / name, payloads, level=1)
        assert read_by_tensorflow(tf, path, compression) == (payloads, False)
        assert read_by_beam(beam, path, compression) == payloads


@pytest.mark.filterwarnings("ignore")
def test_a_beam_pipeline_reads_and_writes(beam, tmp_path):
    """The whole of it once, files found by glob and told apart by name."""
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.testing.util import assert_that, equal_to

    payloads = sorted({payload for payload in payloads_of(4) if len(payload) < 5_000})
    write(tmp_path / "in", payloads, shards=3, compression="gzip")
    coder = beam.coders.BytesCoder()
    with beam.Pipeline(runner="BundleBasedDirectRunner") as pipeline:
        records = pipeline | beam.io.ReadFromTFRecord(f"{tmp_path}/in-*.gz", coder=coder)
        assert_that(records, equal_to(payloads))
        written = records | beam.io.WriteToTFRecord(
            f"{tmp_path}/out",
            coder=coder,
            file_name_suffix=".gz",
            num_shards=2,
            compression_type=CompressionTypes.GZIP,
        )
        assert written is not None
    assert sorted(croupier.read(f"{tmp_path}/out*.gz")) == payloads


def fragment(level, payload):
    return len(SeekableGzip(level).encode(memoryview(frame(payload)), [0, len(payload) + 16]).data)


def payload_for(level, end, begin, source):
    """A payload whose fragment, begun at `begin`, ends at `end`; None when no length gives that."""
    size = end - begin - 60
    for _ in range(8):
        off = end - begin - fragment(level, source[:size])
        if not off:
            return source[:size]
        size += off
    return None


@pytest.mark.parametrize("level", [1, 2, 5, 9])
def test_fragments_end_on_every_byte_around_tensorflows_edges(tf, tmp_path, level):
    source, small = noise(2, 2 * EDGE)[0], noise(3, 5, 0, 300, 17_000, 1, 30)
    hit = 0
    for edge in (EDGE, 2 * EDGE):
        for off in range(-14, 15):
            first = source[: edge - EDGE // 2]
            begin = 10 + fragment(level, first)
            second = payload_for(level, edge + off, begin, source[1000:])
            if second is None:
                continue
            hit += 1
            for rest in (small, []):
                payloads = [first, second, *rest]
                path = write(tmp_path / "x.gz", payloads, level=level)
                data = path.read_bytes()
                assert data[edge + off - 4 : edge + off] == b"\x00\x00\xff\xff"
                assert read_by_tensorflow(tf, path, "GZIP") == (payloads, False), (edge, off)
                assert gzip.decompress(data) == framed(payloads)
    assert hit >= 50  # of 58


def test_the_end_of_the_file_on_every_byte_around_tensorflows_edges(tf, tmp_path):
    source = noise(4, EDGE)[0]
    for off in range(-14, 25):
        payload = payload_for(5, EDGE + off, 10, source + source)
        path = write(tmp_path / "x.gz", [payload])
        assert path.stat().st_size == EDGE + off + 10
        assert read_by_tensorflow(tf, path, "GZIP") == ([payload], False), off


# What we read


def test_tensorflows_files(tf, tmp_path):
    for seed in range(120):
        payloads = payloads_of(seed)
        compression = ["", "GZIP", "ZLIB"][seed % 3]
        path = tmp_path / f"{seed}.tfrecord"
        with tf.io.TFRecordWriter(str(path), compression) as out:
            for payload in payloads:
                out.write(payload)
        assert list(croupier.read(path)) == payloads
        (report,) = croupier.verify(path)
        assert (report.ok, report.records, report.warnings) == (True, len(payloads), [])
        if not compression:
            assert write(tmp_path / "ours.tfrecord", payloads).read_bytes() == path.read_bytes()


def test_beams_files(beam, tmp_path):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    kinds = [CompressionTypes.UNCOMPRESSED, CompressionTypes.GZIP, CompressionTypes.DEFLATE]
    for seed in range(1, 40):
        payloads = payloads_of(seed)
        path = tmp_path / f"{seed}.tfrecord"
        with FileSystems.create(str(path), "application/octet-stream", kinds[seed % 3]) as file:
            for payload in payloads:
                beam.io.tfrecordio._TFRecordUtil.write_record(file, payload)
        assert list(croupier.read(path)) == payloads


@pytest.mark.real
def test_real_files(tf, shared_data):
    files = sorted(path for path in shared_data.iterdir() if "tfrecord" in path.name)
    assert len(files) >= 8
    for path in files:
        packed = path.read_bytes()
        zipped = packed[:3] == b"\x1f\x8b\x08"
        got = list(croupier.read(path))
        assert got
        assert framed(got) == (gzip.decompress(packed) if zipped else packed)
        assert read_by_tensorflow(tf, path, "GZIP" if zipped else "") == (got, False)
        (report,) = croupier.verify(path)
        assert (report.ok, report.records, report.warnings) == (True, len(got), [])
        assert report.compression == ("gzip" if zipped else "none")


# What verify says of TensorFlow

STOPS = re.compile(r"TensorFlow .*after ([\d,]+) of ([\d,]+) records")


def check_prediction(tf, path, payloads, compression="GZIP"):
    """Whether TensorFlow read everything; fails unless verify warns just then, with the right numbers.

    TensorFlow gives the records that end within what its decompressor delivers.
    """
    got, raised = read_by_tensorflow(tf, path, compression)
    assert got == payloads[: len(got)]
    (report,) = croupier.verify(path)
    assert report.ok
    assert report.records == len(payloads)
    kind = Compression.GZIP if compression == "GZIP" else Compression.ZLIB
    delivered, edges = replay(str(path), kind), edges_of(payloads)
    assert sum(edge <= delivered.size for edge in edges[1:]) == len(got), "the replay is wrong"
    assert raised or not delivered.refused
    whole = len(got) == len(payloads) and not raised
    assert bool(report.warnings) != whole, (report.warnings, len(got), raised)
    if len(got) < len(payloads):
        numbers = [STOPS.search(text).groups() for text in report.warnings if STOPS.search(text)]
        assert numbers == [(f"{len(got):,}", f"{len(payloads):,}")], report.warnings
    return whole


def check_words(tf, path, compression="GZIP"):
    """It ends silently, unless it stands in a payload or refuses what follows: then it raises."""
    got, raised = read_by_tensorflow(tf, path, compression)
    (report,) = croupier.verify(path)
    said = " ".join(report.warnings)
    lost = len(got) < report.records
    assert ("silently" in said, "DataLossError" in said) == (lost and not raised, raised), (
        said,
        len(got),
        raised,
    )
    return raised


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_losses_are_called_silent_only_where_they_are(tf, tmp_path, compression):
    """A stop at every byte of a record: in its header TensorFlow ends silently, in its payload it raises."""
    payloads = noise(11, *[20] * 6)
    data, compress, gap = framed(payloads), gzip.compress, EMPTY
    if compression == "ZLIB":
        compress, gap = zlib.compress, b""
    raised = {}
    for cut in range(72, 109):
        path = tmp_path / "x"
        path.write_bytes(compress(data[:cut]) + gap + compress(data[cut:]))
        assert not check_prediction(tf, path, payloads, compression)
        raised[cut - 72] = check_words(tf, path, compression)
    assert [at for at, loud in raised.items() if loud] == list(range(12, 36))


def records(seed, total, size=60):
    """About `total` bytes of small records."""
    return noise(seed, *[size] * (total // (size + 16)))


def split(data, at):
    return [data[a:b] for a, b in pairwise([0, *at, len(data)])]


@pytest.mark.parametrize(
    "rest", ["records", "two members", "an empty member", "nothing", "more than a buffer"]
)
@pytest.mark.parametrize("edge", [EDGE, 2 * EDGE])
def test_trailers_across_tensorflows_edges(tf, tmp_path, rest, edge):
    """With 1 to 8 of a trailer's bytes behind the edge, TensorFlow loses what follows in the last buffer."""
    one, two = records(5, edge - 5_000), records(6, 20_000)
    if rest == "more than a buffer":
        two = records(6, 2 * EDGE)
    if rest in ("nothing", "an empty member"):
        two = []
    data, more = framed(one), framed(two)
    tails = {
        "nothing": b"",
        "an empty member": EMPTY,
        "two members": member(more[:9_000]) + member(more[9_000:]),
    }
    unpadded = len(member(data, level=0))
    lost = set()
    for cut in range(-2, 14):
        first = member(data, edge + cut - unpadded, level=0)
        assert len(first) == edge + cut
        path = tmp_path / "x.gz"
        path.write_bytes(first + tails.get(rest, member(more)))
        if not check_prediction(tf, path, one + two):
            lost.add(cut)
    if rest in ("records", "two members"):
        assert lost == set(range(1, 9))  # as perf.md measured; it says that the test can see a loss


def test_empty_members(tf, tmp_path):
    losses = 0
    for number, (place, size, before, empties) in enumerate(
        (place, size, before, empties)
        for place in ("leading", "middle", "trailing", "between all")
        for size in (3_000, EDGE - 30_000, EDGE + 30_000, 3 * EDGE)
        for before in (0.1, 0.5, 0.97)
        for empties in (1, 3)
    ):
        payloads = records(number, size)
        data = framed(payloads)
        cut = int(len(data) * before)
        head, tail = member(data[:cut]), member(data[cut:])
        gap = EMPTY * empties
        packed = {
            "leading": gap + head + tail,
            "middle": head + gap + tail,
            "trailing": head + tail + gap,
            "between all": gap + head + gap + tail + gap,
        }[place]
        path = tmp_path / "x.gz"
        path.write_bytes(packed)
        losses += not check_prediction(tf, path, payloads)
    assert losses > 10


def test_bgzip_files_that_were_concatenated(tf, tmp_path):
    losses = 0
    for number in range(40):
        rng = random.Random(number)
        parts = [
            records(rng.random(), rng.choice([500, 40_000, 200_000, 300_000]))
            for _ in range(rng.randrange(1, 5))
        ]
        path = tmp_path / "x.gz"
        path.write_bytes(b"".join(bgzip(framed(part)) for part in parts))
        losses += not check_prediction(tf, path, [payload for part in parts for payload in part])
    assert losses > 10


def test_several_zlib_streams(tf, tmp_path):
    for number in range(30):
        rng = random.Random(number)
        payloads = records(number, rng.choice([300, 5_000, 300_000, 700_000]))
        data = framed(payloads)
        cuts = sorted(rng.sample(range(len(data)), number % 4))
        path = tmp_path / "x.zlib"
        path.write_bytes(b"".join(zlib.compress(part, 1) for part in split(data, cuts)))
        whole = check_prediction(tf, path, payloads, "ZLIB")
        assert whole == (not cuts)


@pytest.mark.parametrize("at_edges", [True, False])
def test_random_files_of_small_members(tf, tmp_path, at_edges):
    """Members of 300 to 5,000 bytes, which end with records or anywhere."""
    losses = 0
    for number in range(150):
        rng = random.Random(number)
        payloads = noise(number, *rng.choices(range(20, 400), k=rng.randrange(1_000, 3_000)))
        data, edges = framed(payloads), edges_of(payloads)
        at, cuts, largest = 0, [], rng.choice([320, 600, 5_000])
        while (at := at + rng.randrange(300, largest)) < len(data):
            cuts.append(next(e for e in edges if e >= at) if at_edges and len(cuts) < 50 else at)
        cuts = sorted({cut for cut in cuts if cut < len(data)})
        path = tmp_path / "x.gz"
        path.write_bytes(b"".join(member(part, level=0) for part in split(data, cuts)))
        losses += not check_prediction(tf, path, payloads)
    assert losses >= 1


@pytest.mark.slow
def test_thousands_of_random_files_of_small_members(tf, tmp_path):
    for number in range(10_000, 14_000):
        rng = random.Random(number)
        payloads = noise(number, *rng.choices(range(20, 400), k=rng.randrange(1_000, 3_000)))
        data = framed(payloads)
        cuts, at, largest = [], 0, rng.choice([320, 600, 5_000])
        while (at := at + rng.randrange(300, largest)) < len(data):
            cuts.append(at)
        path = tmp_path / "x.gz"
        path.write_bytes(b"".join(member(part, level=rng.choice([0, 1])) for part in split(data, cuts)))
        check_prediction(tf, path, payloads)


@pytest.mark.parametrize("compressible", [True, False])
def test_members_that_fill_tensorflows_output(tf, tmp_path, compressible):
    """Raw data of 256 KiB, a multiple, or a byte beside it: the call that ends a member may give nothing."""
    for number, (times, off, pieces) in enumerate(
        (times, off, pieces) for times in (1, 2, 4) for off in (-1, 0, 1, 2, 258) for pieces in (2, 3)
    ):
        size = (times * EDGE + off) * pieces + 7_000
        payloads = [bytes(60)] * (size // 76) if compressible else records(number, size)
        data = framed(payloads)
        cuts = [
            (times * EDGE + off) * i for i in range(1, pieces + 1) if (times * EDGE + off) * i < len(data)
        ]
        for level in (0, 1, 9):
            path = tmp_path / "x.gz"
            path.write_bytes(b"".join(member(part, level=level) for part in split(data, cuts)))
            check_prediction(tf, path, payloads)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("size", [3_000, EDGE + 9_000])
def test_zeros_after_and_between(tf, tmp_path, compression, size):
    compress = gzip.compress if compression == "GZIP" else zlib.compress
    payloads = records(7, size)
    data = framed(payloads)
    half = len(payloads) // 2 * 76
    for zeros in (0, 1, 2, 3, 9, 10, 11, 17, 18, 19, 512, EDGE + 5):
        for packed in (
            compress(data) + bytes(zeros),
            compress(data[:half]) + bytes(zeros) + compress(data[half:]),
        ):
            path = tmp_path / "x"
            path.write_bytes(packed)
            check_prediction(tf, path, payloads, compression)
            check_words(tf, path, compression)


@pytest.mark.parametrize("flags", [8, 16, 24, 4, 12, 2, 30])
def test_headers_with_names_across_tensorflows_edges(tf, tmp_path, flags):
    one, two = records(8, EDGE - 5_000), records(9, 20_000)
    data = framed(one)
    unpadded = len(member(data, level=0))
    fields = {4: b"\x06\0BC\x02\0\x34\x12", 8: b"x.tfrecord\0", 16: b"a comment\0"}
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x02\x03"
    head += b"".join(field for flag, field in fields.items() if flags & flag)
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    for before in range(0, len(head) + 4, 2):
        first = member(data, EDGE - before - unpadded, level=0)
        path = tmp_path / "x.gz"
        path.write_bytes(first + head + member(framed(two))[10:])
        check_prediction(tf, path, one + two)


def test_tf_data_reads_as_its_record_reader(tf, tmp_path):
    """The losses are tf.data's too, not only those of the reader used above."""
    payloads = records(10, 30_000)
    data = framed(payloads)
    path = tmp_path / "x.gz"
    path.write_bytes(member(data[: 76 * 100]) + EMPTY + member(data[76 * 100 :]))
    assert read_by_tf_data(tf, path, "GZIP") == payloads[:100]
    assert not check_prediction(tf, path, payloads)


def test_members_through_a_pipe_cannot_be_foretold(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "croupier", "verify", "-", "--json"],
        input=gzip.compress(frame(b"1")) + gzip.compress(frame(b"2")),
        capture_output=True,
    )
    report = json.load(io.BytesIO(ran.stdout))
    assert report["ok"]
    assert "pipe" in report["warnings"][0]
