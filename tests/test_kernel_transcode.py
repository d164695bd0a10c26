"""Frames deflated again by the tokens of another stream: always the same bytes, and as small as they were."""

import gzip
import random
import struct
import subprocess
import warnings
import zlib

import numpy as np
import pytest
from isal import isal_zlib

from croupier import _kernel as kernel
from deflate_help import END, GOLDEN, contents, inflated, packed, spans, streams
from kernel_help import u64, zeros

CONTENTS = contents()
SYNC = b"\0\0\xff\xff"


def cut(raw, draw, most):
    """Edges of frames, from 0 to the end."""
    edges = [0]
    while edges[-1] < len(raw):
        edges.append(min(edges[-1] + draw.randint(0, draw.choice([2, 400, most])), len(raw)))
    return u64(edges)


def fragments(raw, tokens, edges):
    """Of each frame."""
    index, into = zeros(len(edges)), zeros(len(edges))
    assert kernel.find_tokens(tokens, edges, index, into)
    places = zip(edges.tolist()[:-1], edges.tolist()[1:], index.tolist(), into.tolist(), strict=False)
    return [kernel.transcode(raw[begin:end], tokens[at:], before) for begin, end, at, before in places]


@pytest.mark.parametrize("name", CONTENTS)
def test_frames_stand_alone(name):
    draw, raw = random.Random(name), CONTENTS[name][:250_000]
    for about, data in streams(raw):
        edges = cut(raw, draw, 60_000)
        made = fragments(raw, inflated(data)[2], edges)
        for begin, end, one in zip(edges[:-1], edges[1:], made, strict=True):
            frame = raw[begin:end]
            assert one.endswith(SYNC), about
            assert zlib.decompress(one + END, -15) == frame, about
            assert len(one) <= len(frame) + len(frame) // 32_000 * 5 + 16, about
        assert isal_zlib.decompress(b"".join(made) + END, -15) == raw, about


@pytest.mark.parametrize("name", CONTENTS)
def test_a_whole_stream_stays_as_small(name):
    raw = CONTENTS[name]
    for about, data in streams(raw):
        made = kernel.transcode(raw, inflated(data)[2], 0)
        assert len(made) <= 1.01 * len(data) + 20, about


def example_frames():
    raw, edges = CONTENTS["examples"], [0]
    while edges[-1] + 16 < len(raw):
        edges.append(edges[-1] + 16 + struct.unpack_from("<Q", raw, edges[-1])[0])
    return raw, u64(edges[:-1] if edges[-1] > len(raw) else edges)


@pytest.mark.skipif(not GOLDEN, reason="no ../shared/data here")
def test_examples_stay_as_small():
    raw, edges = example_frames()
    raw = raw[: int(edges[-1])]
    data = packed(raw, 6)
    made = fragments(raw, inflated(data)[2], edges)
    assert sum(map(len, made)) < 1.01 * len(data)


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A gzip file of fragments, and what it holds: frames that TensorFlow can read."""
    draw = random.Random(4)
    payloads = [CONTENTS["rows"][draw.randrange(9_000) :][: draw.randint(0, 90_000)] for _ in range(30)]
    edges = [0, *np.cumsum([len(one) + 16 for one in payloads]).tolist()]
    raw = bytearray(edges[-1])
    for at, payload in zip(edges, payloads, strict=False):
        kernel.append(raw, at, payload, zeros(4))
    raw = bytes(raw)
    made = fragments(raw, inflated(packed(raw), slots=1 << 18)[2], u64(edges))
    path = tmp_path_factory.mktemp("joined") / "a.tfrecord.gz"
    head, tail = b"\x1f\x8b\x08\0\0\0\0\0\0\xff", struct.pack("<II", zlib.crc32(raw), len(raw))
    path.write_bytes(head + b"".join(made) + END + tail)
    return path, raw, payloads


def test_joined_fragments_are_gzip(joined):
    path, raw, _ = joined
    assert gzip.decompress(path.read_bytes()) == raw
    assert isal_zlib.decompress(path.read_bytes(), 31) == raw
    subprocess.run(["gzip", "-t", path], check=True)


@pytest.mark.interop
@pytest.mark.xdist_group("tensorflow")
def test_tensorflow_reads_joined_fragments(joined):
    path, _, payloads = joined
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow as tf
    found = [one.numpy() for one in tf.data.TFRecordDataset([str(path)], compression_type="GZIP")]
    assert found == payloads


@pytest.mark.parametrize("name", ["rows", "text", "far"])
def test_wrong_tokens_make_no_wrong_bytes(name):
    draw, raw = random.Random(name), CONTENTS[name]
    right, refused = inflated(packed(raw), slots=1 << 18)[2], 0
    for _ in range(400):
        tokens = right.copy()
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(min(len(tokens), draw.choice([3, 100, 5_000])))
            tokens[at] = draw.choice([int(tokens[at]) ^ 1 << draw.randrange(32), draw.randrange(1 << 32)])
        begin = draw.choice([0, draw.randrange(9_000)])
        lead = draw.choice([begin, begin, draw.randrange(9_000), draw.randrange(1 << 64)])
        frame = raw[begin : begin + draw.randint(0, 90_000)]
        try:
            made = kernel.transcode(frame, tokens, lead)
        except ValueError:
            refused += 1
        else:
            assert zlib.decompress(made + END, -15) == frame
    assert 20 < refused < 400


def test_tokens_that_end_too_early():
    raw = CONTENTS["text"]
    tokens = inflated(packed(raw), slots=1 << 18)[2]
    with pytest.raises(ValueError, match="tokens end before the frame"):
        kernel.transcode(raw, tokens[:-1], 0)
    with pytest.raises(ValueError, match="tokens end before the frame"):
        kernel.transcode(raw, tokens, len(raw))


def test_longest_distance():
    raw = random.Random(6).randbytes(1 << 15) * 2
    tokens = np.array([127 << 25 | 1 << 15, *[256 << 16 | 0x7FFF] * 128], np.uint32)
    made = kernel.transcode(raw, tokens, 0)
    assert len(made) < 33_200
    assert zlib.decompress(made + END, -15) == raw
    assert (inflated(made)[2] == 256 << 16 | 0x7FFF).sum() == 128
    with pytest.raises(ValueError, match="none of deflate's"):
        kernel.transcode(raw, tokens + np.uint32(1), 0)


def test_where_frames_begin():
    draw = random.Random(5)
    raw = CONTENTS["text"]
    tokens = inflated(packed(raw), slots=1 << 18)[2]
    starts = np.concatenate([[0], np.cumsum(spans(tokens))])
    for _ in range(50):
        edges = np.sort(np.array(draw.choices(range(len(raw)), k=20), np.uint64))
        index, into = zeros(20), zeros(20)
        assert kernel.find_tokens(tokens, edges, index, into)
        expected = np.searchsorted(starts, edges.astype(np.int64), side="right") - 1
        assert index.tolist() == expected.tolist()
        assert into.tolist() == (edges.astype(np.int64) - starts[expected]).tolist()
    end = u64([len(raw)])
    assert kernel.find_tokens(tokens, end, zeros(1), zeros(1))
    assert not kernel.find_tokens(tokens, end + np.uint64(1), zeros(1), zeros(1))
    assert not kernel.find_tokens(tokens[:-1], end, zeros(1), zeros(1))


@pytest.mark.parametrize("edges", [[3, 2], [0, 9, 8]])
def test_edges_that_fall_are_refused(edges):
    tokens = inflated(packed(b"0123456789"))[2]
    with pytest.raises(ValueError, match="must not fall"):
        kernel.find_tokens(tokens, u64(edges), zeros(3), zeros(3))


@pytest.mark.parametrize(
    "tokens",
    [zeros(3), np.zeros(3, np.int32), np.zeros((1, 3), np.uint32), np.zeros(6, np.uint32)[::2], b"", None],
)
def test_tokens_of_the_wrong_kind(tokens):
    for call in (
        lambda: kernel.transcode(b"", tokens, 0),
        lambda: kernel.find_tokens(tokens, zeros(1), zeros(1), zeros(1)),
        lambda: kernel.Inflater().inflate(b"", bytearray(9), tokens),
    ):
        with pytest.raises(TypeError):
            call()


def test_rooms_that_are_too_small():
    with pytest.raises(ValueError, match="at least 3 elements"):
        kernel.Inflater().inflate(b"", bytearray(9), np.zeros(2, np.uint32))
    for index, into in ((zeros(1), zeros(2)), (zeros(2), zeros(1))):
        with pytest.raises(ValueError, match="a slot for each edge"):
            kernel.find_tokens(np.zeros(2, np.uint32), zeros(2), index, into)
    frozen = np.zeros(9, np.uint32)
    frozen.setflags(write=False)
    with pytest.raises(TypeError, match="tokens must be a writable"):
        kernel.Inflater().inflate(b"", bytearray(9), frozen)
