"""Examples as TensorFlow reads and writes them, and both in one process."""

import random
import subprocess
import sys

import numpy as np
import pytest

import croupier
from croupier.example import (
    BytesList,
    Kind,
    decode,
    decode_batch,
    decode_sequence,
    encode,
    encode_batch,
    encode_sequence,
)
from example_wire import NAMES, Maker

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def dtypes(tf):
    return {Kind.BYTES: tf.string, Kind.FLOAT: tf.float32, Kind.INT64: tf.int64}


def values_of(column):
    """All values, floats as their bits."""
    if column.items is not None:
        return [value for number in range(len(column)) for value in column[number] or ()]
    return (column.values.view(np.uint32) if column.kind is Kind.FLOAT else column.values).tolist()


def theirs(tensor):
    found = tensor.numpy()
    return (found.view(np.uint32) if found.dtype == np.float32 else found).tolist()


def assert_same(tf, payloads, columns):
    """Ragged as TensorFlow's ragged tensors; sparse ones and defaults for what may be missing."""
    names = list(columns)
    spec = {name: tf.io.RaggedFeature(dtypes(tf)[columns[name].kind]) for name in names}
    spec |= {f"sparse {name}": tf.io.RaggedFeature(spec[name].dtype, value_key=name) for name in names}
    parsed = tf.io.parse_example(payloads, spec)
    for name in names:
        column = columns[name]
        assert theirs(parsed[name].values) == values_of(column), name
        assert parsed[name].row_splits.numpy().tolist() == column.rows.tolist(), name
    sparse = tf.io.parse_example(payloads, {name: tf.io.VarLenFeature(spec[name].dtype) for name in names})
    for name in names:
        column, width = columns[name], int(columns[name].counts.max(initial=0))
        assert theirs(sparse[name].values) == values_of(column)
        assert sparse[name].dense_shape.numpy().tolist() == [len(column), width]
        if column.kind is not Kind.FLOAT:  # NaNs are not equal
            assert tf.sparse.to_dense(sparse[name]).numpy().tolist() == column.padded().tolist()


@pytest.mark.parametrize("odd", [0, 0.3])
def test_generated_records_of_every_kind(tf, odd):
    rng = random.Random(7)
    for _ in range(30):
        names = rng.sample([name for name in NAMES if name], 6)
        payloads = []
        for _ in range(rng.randrange(1, 60)):
            maker = Maker(rng, 0)
            record = decode(maker.example([name for name in names if rng.random() < 0.9]))
            payloads.append(unpacked(rng, record) if rng.random() < odd else encode(record))
        assert_same(tf, payloads, decode_batch(payloads))


def unpacked(rng, record):
    """The same, in another order and with each number by itself."""
    from example_wire import field, varint

    def value(values):
        if isinstance(values, list):
            return field(1, b"".join(field(1, one) for one in values))
        if values.dtype == np.float32:
            return field(2, b"".join(varint(1 << 3 | 5) + one.tobytes() for one in values))
        return field(3, b"".join(varint(1 << 3) + varint(int(one) & (1 << 64) - 1) for one in values))

    known = {name: values for name, values in record.items() if not (type(values) is list and not values)}
    entries = [field(1, field(1, name.encode()) + field(2, value(values))) for name, values in known.items()]
    rng.shuffle(entries)
    return field(1, b"".join(entries))


def test_fixed_features_and_defaults(tf):
    rng = np.random.default_rng(3)
    records = [
        {"i": rng.integers(-(2**63), 2**63 - 1, (2, 3)), "f": rng.random(4), "s": rng.bytes(5), "one": number}
        | ({"rare": number, "pair": [0.5, number], "word": "x" * number} if number % 3 else {})
        for number in range(50)
    ]
    payloads = [encode(record) for record in records]
    fixed = tf.io.FixedLenFeature
    parsed = tf.io.parse_example(
        payloads,
        {
            "i": fixed([2, 3], tf.int64),
            "f": fixed([4], tf.float32),
            "s": fixed([], tf.string),
            "one": fixed([], tf.int64),
            "rare": fixed([], tf.int64, -1),
            "pair": fixed([2], tf.float32, [1.5, 2.5]),
            "word": fixed([], tf.string, "none"),
        },
    )
    schema = (
        croupier.Schema({}).replace("i", kind="int64", shape=(2, 3)).replace("f", kind="float32", shape=(4,))
    )
    schema = schema.replace("s", kind="string", shape=()).replace("one", kind="int64")
    schema = schema.replace("rare", kind="int64", default=-1).replace("word", kind="string", default="none")
    schema = schema.replace("pair", kind="float32", default=[1.5, 2.5])
    columns = decode_batch(payloads, schema)
    for name, tensor in parsed.items():
        assert columns[name].array.shape == tensor.shape, name
        assert columns[name].array.tolist() == tensor.numpy().tolist(), name


@pytest.mark.real
@pytest.mark.parametrize("name", ["iris.tfrecords*", "bridge-train*", "dmlab-test*", "golden*"])
def test_real_records(tf, shared_data, name):
    for path in sorted(shared_data.glob(name)):
        payloads = list(croupier.read(path))
        columns = decode_batch(payloads)
        assert len(columns) > 1
        assert_same(tf, payloads, columns)
        for payload, again in zip(payloads, encode_batch(columns).tolist(), strict=True):
            assert as_message(tf, payload) == as_message(tf, again) == as_message(tf, encode(decode(payload)))


def as_message(tf, payload):
    return tf.train.Example.FromString(payload)


@pytest.mark.real
def test_real_sequences(tf, shared_data):
    payloads = list(croupier.read(shared_data / "sequence_example.tfrecord"))
    assert payloads
    for payload in payloads:
        found, message = decode_sequence(payload), tf.train.SequenceExample.FromString(payload)
        assert {name: list(values) for name, values in found.context.items()} == context_of(message.context)
        lists = message.feature_lists.feature_list
        assert {name: [list(step) for step in steps] for name, steps in found.feature_lists.items()} == {
            name: [value_of(step) for step in lists[name].feature] for name in lists
        }
        assert tf.train.SequenceExample.FromString(encode_sequence(found)) == message


def value_of(feature):
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def context_of(features):
    return {name: value_of(feature) for name, feature in features.feature.items()}


def test_tensorflow_reads_what_we_write(tf):
    record = {
        "ints": [1, -1, 2**63 - 1, -(2**63)],
        "floats": np.array([0.1, -0.0, np.inf], np.float64),
        "strings": ["a", b"\xff", ""],
        "bools": [True, False],
        "array": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "no ints": np.zeros(0, np.int32),
        "no strings": BytesList(),
        "ä": 1,
    }
    message = as_message(tf, encode(record))
    made = tf.train.Example()
    for name, value in record.items():
        feature = made.features.feature[name]
        if name in ("strings", "no strings"):
            feature.bytes_list.SetInParent()
            feature.bytes_list.value.extend(one.encode() if isinstance(one, str) else one for one in value)
        elif name == "floats":
            feature.float_list.value.extend(value.tolist())
        else:
            feature.int64_list.SetInParent()
            feature.int64_list.value.extend(map(int, np.ravel(value)))
    assert message == made
    assert encode(record) == made.SerializeToString(deterministic=True)


def test_steps_as_parse_sequence_example_has_them(tf):
    sequences = [
        croupier.example.SequenceExample(
            {"id": number, "name": f"n{number}"},
            {"tokens": [[step, step + 1] for step in range(number)], "frames": [[b"x" * 9]] * number},
        )
        for number in range(5)
    ]
    context, lists, _ = tf.io.parse_sequence_example(
        [encode_sequence(sequence) for sequence in sequences],
        {"id": tf.io.FixedLenFeature([], tf.int64), "name": tf.io.FixedLenFeature([], tf.string)},
        {"tokens": tf.io.RaggedFeature(tf.int64), "frames": tf.io.VarLenFeature(tf.string)},
    )
    assert context["id"].numpy().tolist() == [0, 1, 2, 3, 4]
    assert context["name"].numpy().tolist() == [b"n0", b"n1", b"n2", b"n3", b"n4"]
    assert lists["tokens"].to_list() == [sequence.feature_lists["tokens"] for sequence in sequences]
    assert lists["frames"].values.numpy().tolist() == [b"x" * 9] * 10


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("module", "read"),
    [
        (
            "tensorflow",
            "tensorflow.train.Example.FromString(payload).features.feature['a'].int64_list.value",
        ),
        ("tfrecord", "next(tfrecord.tfrecord_loader(path, None))['a'].tolist()"),
    ],
)
def test_beside_tensorflow_and_vahidks_tfrecord(first, module, read, tmp_path):
    """We register nothing, whoever comes first. (These two cannot be in one process with each other.)"""
    imports = ["import croupier, croupier.example", f"import {module}"]
    code = f"""
{"; ".join(imports if first else imports[::-1])}
path = {str(tmp_path / "x.tfrecord")!r}
with croupier.writer(path) as out:
    out.write(croupier.example.encode({{"a": [1, 2], "b": "x", "c": 0.5}}))
(payload,) = croupier.read(path)
print(croupier.example.decode(payload)["a"].tolist(), list({read}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1, 2] [1, 2]", done.stderr[-2000:]
