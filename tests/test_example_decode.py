"""One tf.train.Example at a time: what is accepted, and which values it has."""

import copy
import pickle
import random
import re
from pathlib import Path

import numpy as np
import pytest

import croupier
import example_check as check
import example_oracle as oracle
from croupier import DataError, ExampleError
from croupier.example import BytesList, decode, decode_batch, decode_sequence, encode
from croupier.frames import Block
from dataset_help import framed
from example_wire import Maker, field, mutate, varint

CORPUS = sorted((Path(__file__).parent / "corpus" / "example").iterdir())
REFUSED = {  # of the corpus: what is said, and of which byte
    "floats-of-seven-bytes": "packed floats",
    "field-0": "a field that cannot be",
    "group-ended-by-another": "a group",
    "group-not-begun": "a group",
    "group-not-ended": "a group",
    "groups-101-deep": "more than a hundred",
    "kind-0": "a field that cannot be",
    "length-beyond-the-end": "cut short",
    "name-not-utf8": "not UTF-8",
    "tag-of-six-bytes": "more than ten bytes",
    "varint-cut": "cut short",
    "varint-eleven-bytes": "more than ten bytes",
    "wire-type-6": "a field that cannot be",
}


def payloads(seed, count):
    """Of every layout, half of them with something wrong, and changed ones."""
    rng = random.Random(seed)
    made = [b""]
    for _ in range(count):
        maker = Maker(rng, rng.choice((0, 0.1, 0.5)), rng.choice((0, 0, 0.1, 0.5)))
        made.append(maker.example() if rng.random() < 0.7 else maker.sequence())
        if rng.random() < 0.5:
            made.append(mutate(made[-1], rng, made))
    return made


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus(path):
    payload = path.read_bytes()
    assert check.check_example(payload) == (path.name not in REFUSED)
    check.check_sequence(payload)
    if path.name in REFUSED:
        with pytest.raises(ExampleError, match=REFUSED[path.name]) as caught:
            decode(payload)
        assert 0 <= caught.value.offset <= len(payload)


def test_corpus_is_there():
    assert {path.name for path in CORPUS} > set(REFUSED)


@pytest.mark.interop
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus_as_protobuf(path):
    import example_upb

    check.check_example(path.read_bytes(), example_upb)
    check.check_sequence(path.read_bytes(), example_upb)


def test_as_the_oracle():
    accepted = [check.check_example(payload) for payload in payloads(1, 1500)]
    assert 500 < sum(accepted) < len(accepted) - 300
    accepted = [check.check_sequence(payload) for payload in payloads(2, 700)]
    assert 200 < sum(accepted) < len(accepted) - 100


@pytest.mark.interop
def test_as_protobuf():
    import example_upb

    for payload in payloads(3, 3000):
        check.check_example(payload, example_upb)
        check.check_sequence(payload, example_upb)


def test_every_cut_is_what_the_oracle_says():
    rng = random.Random(5)
    for odd in (0, 0.5):
        payload = Maker(rng, odd).sequence() + Maker(rng, odd).example(["a", "label", "ä"])
        for size in range(min(len(payload), 700)):
            check.check_example(payload[:size])
            check.check_sequence(payload[:size])


def test_values():
    payload = encode({"ints": [1, -1, 2**63 - 1], "floats": [0.5, -0.0], "bytes": [b"", b"\0"], "none": []})
    found = decode(payload)
    assert list(found) == ["bytes", "floats", "ints", "none"]
    assert found["ints"].dtype == np.int64
    assert found["ints"].tolist() == [1, -1, 2**63 - 1]
    assert found["floats"].dtype == np.float32
    assert np.signbit(found["floats"]).tolist() == [False, True]
    assert found["bytes"] == [b"", b"\0"]
    assert found["none"] == []
    found["ints"][0] = 7  # an array of its own
    assert decode(payload)["ints"][0] == 1


def test_kinds_of_empty_lists_are_kept():
    payload = encode({"b": BytesList(), "f": np.zeros(0, np.float32), "i": np.zeros(0, np.int64), "n": []})
    found = decode(payload)
    assert oracle.example(payload) == {"b": (1, []), "f": (2, []), "i": (3, []), "n": (0, [])}
    assert encode(found) == payload
    assert found["b"] == []
    assert encode(copy.deepcopy(found)) == payload
    assert encode(pickle.loads(pickle.dumps(found))) == payload


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda payload: np.frombuffer(payload, np.uint8)]
)
def test_payloads_of_any_kind(kind):
    assert decode(kind(encode({"a": 1})))["a"].tolist() == [1]
    assert decode_sequence(kind(b"")).context == {}


@pytest.mark.parametrize("wrong", [None, "text", 3, [b""]])
def test_what_is_no_payload(wrong):
    with pytest.raises(TypeError, match="payload must be"):
        decode(wrong)
    with pytest.raises(TypeError, match="payload must be"):
        decode_sequence(wrong)


def test_errors_say_where():
    payload = encode({"a": [1, 2, 3]})
    with pytest.raises(ExampleError) as caught:
        decode(payload[:-1])
    assert isinstance(caught.value, DataError)
    assert str(caught.value) == "byte 1 of the payload: " + caught.value.problem
    inner = field(1, field(1, field(1, b"k") + field(2, field(3, field(1, b"\x01\x80")))))
    with pytest.raises(
        ExampleError, match=r"byte 14 of the payload: no tf.train.Example: it is cut short"
    ) as caught:
        decode(inner)
    error = pickle.loads(pickle.dumps(caught.value))
    error.path, error.record = "x.tfrecord", 41
    assert str(error).startswith("x.tfrecord: record 41, byte 14 of the payload: no tf.train.Example")
    assert croupier.ExampleError is ExampleError


def test_groups_as_deep_as_protobuf_lets_them():
    for deep in range(95, 103):
        group = varint(5 << 3 | 3) * deep + varint(5 << 3 | 4) * deep
        check.check_example(group)
        check.check_example(field(1, field(1, field(1, b"k") + field(2, field(3, group)))))
        check.check_sequence(field(2, field(1, field(2, field(1, field(3, group))))))


def test_sequence():
    found = decode_sequence((Path(__file__).parent / "corpus" / "example" / "sequence").read_bytes())
    assert found.context["id"].tolist() == [7]
    assert list(found.feature_lists) == ["empty", "frames"]
    assert found.feature_lists["empty"] == []
    first, second, third, last = found.feature_lists["frames"]
    assert (first, second, third) == ([b"a"], [], [])
    assert isinstance(second, BytesList)
    assert not isinstance(third, BytesList)
    assert last.tolist() == [1.0]
    with pytest.raises(ExampleError, match="byte 1 of the payload"):
        decode_sequence(b"\x12\x05")


@pytest.mark.parametrize("seed", range(20))
def test_a_block_of_frames_is_decoded_as_its_payloads(seed):
    some = payloads(seed, 5)
    data = b"before" + framed(some) + b"behind"
    edges = np.cumsum([6, *(len(payload) + 16 for payload in some)]).astype(np.uint64)
    block = Block(memoryview(data), edges, 0, 0)
    try:
        expected = decode_batch(some)
    except ExampleError as error:
        with pytest.raises(ExampleError, match=f"^{re.escape(str(error))}$"):
            decode_batch(block)
        return
    for threads in (1, 3):
        columns = decode_batch(block, threads=threads)
        assert list(columns) == list(expected)
        for name, column in columns.items():
            assert column.kind == expected[name].kind
            assert [repr(one) for one in column] == [repr(one) for one in expected[name]]
    assert decode_batch(block, columns=["nowhere"], lacking=True).records == len(some)
    with pytest.raises(croupier.UsageError, match="no record has a feature 'nowhere'"):
        decode_batch(block, columns=["nowhere"])


@pytest.mark.parametrize("edges", [[0, 15], [0, 16, 17], [0, 100], [16, 0]])
def test_frames_that_cannot_be(edges):
    block = Block(memoryview(framed([b"", b""])), np.array(edges, np.uint64), 0, 0)
    with pytest.raises((ValueError, IndexError)):
        decode_batch(block)
