"""Schemas as text: JSON, specs for TensorFlow, tables for people."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
from croupier.errors import UsageError
from croupier.example import Feature, Kind, Schema, encode
from test_schema import random_records

names = st.text(max_size=8)
sizes = st.integers(0, 5)


@st.composite
def features(draw):
    kind = draw(st.sampled_from(Kind))
    shortest = draw(sizes)
    feature = Feature(
        draw(names),
        kind,
        required=draw(st.booleans()),
        shortest=shortest,
        longest=draw(st.none() | st.integers(shortest, 9)),
        content=draw(st.none() | names),
        sizes=draw(st.none() | st.tuples(sizes, sizes)),
        present=draw(st.none() | sizes),
    )
    values = {
        Kind.BYTES: st.binary(max_size=9),
        Kind.FLOAT: st.floats(width=32, allow_nan=False),
        Kind.INT64: st.integers(-(2**63), 2**63 - 1),
    }[kind]
    most = 3 if feature.length is None else feature.length
    lists = st.lists(values, min_size=feature.length or 0, max_size=most)
    changes = {"default": draw(st.none() | values | lists)}
    if kind is Kind.BYTES and draw(st.booleans()):
        changes["default"] = draw(st.none() | st.just(3) | values)
        changes |= {
            "dtype": draw(st.sampled_from(["float32", ">f4", "uint8", "bool"])),
            "shape": (2, draw(sizes)),
        }
    elif feature.length:
        changes["shape"] = (feature.length, 1)
    return Schema({feature.name: feature}).replace(feature.name, **changes)[feature.name]


@settings(max_examples=200)
@given(st.lists(features(), max_size=5, unique_by=lambda feature: feature.name), st.integers(0, 10**9))
def test_json_there_and_back(some, records):
    schema = Schema({feature.name: feature for feature in some}, records)
    again = Schema.from_json(schema.to_json())
    assert (list(again.items()), again.records) == (list(schema.items()), records)
    assert repr(again) == repr(schema)
    spec = eval(schema.parse_spec(), {"tf": Recorder()})
    assert list(spec) == list(schema)


class Recorder:
    """Stands for the module `tf`: what matters is that the text is Python."""

    def __getattr__(self, name):
        return Recorder()

    def __call__(self, *arguments, **options):
        return arguments, options


def changed_json(rng, value):
    """One value somewhere inside becomes another."""
    if rng.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return rng.choice(
            [None, True, -1, 2**70, 1.5, "x", [], {}, [1, "2"], {"b64": "?"}, "float32", "\ud800"]
        )
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    changed = value.copy()
    changed[key] = changed_json(rng, value[key])
    return changed


def test_wrong_json_is_refused_or_right():
    rng = random.Random(11)
    schema = Schema({"a": Feature("a", Kind.BYTES, True, 1, 1, b"x", "uint8", (2, 3), "raw", (6, 6), 9)}, 9)
    whole, accepted = json.loads(schema.to_json()), 0
    for _ in range(3000):
        try:
            found = Schema.from_json(json.dumps(changed_json(rng, whole)))
        except UsageError:
            continue
        accepted += 1
        repr(found), found.parse_spec(), Schema.from_json(found.to_json())
    assert 20 < accepted < 1000


def test_files(tmp_path):
    schema = Schema({"a": Feature("a", Kind.FLOAT, default=math.inf)})
    schema.save(tmp_path / "schema.json")
    assert dict(Schema.load(tmp_path / "schema.json")) == dict(schema)
    (tmp_path / "other.json").write_text('{"format": "something else"}')
    with pytest.raises(UsageError, match=r"other\.json: this is not a schema"):
        Schema.load(tmp_path / "other.json")
    with pytest.raises(UsageError, match="is not a file"):
        Schema.load(tmp_path)
    with pytest.raises(croupier.InputNotFoundError):
        Schema.load(tmp_path / "none.json")


def test_changes():
    schema = Schema(
        {"x": Feature("x", Kind.BYTES, True, 1, 1), "y": Feature("y", Kind.INT64, False, 2, 2)}, 7
    )
    found = schema.replace("x", dtype="float32", shape=[100, 221, 7])
    assert (found["x"].dtype, found["x"].shape, found.records) == ("float32", (100, 221, 7), 7)
    assert schema["x"].dtype is None
    assert schema.replace("x", dtype=np.dtype(">i2"))["x"].dtype == ">i2"
    assert schema.replace("x", dtype=np.float64)["x"].dtype == "float64"
    assert schema.replace("z", kind="int64", default=3)["z"] == Feature("z", Kind.INT64, default=3)
    assert list(schema.select(["y"])) == ["y"]
    for wrong in (
        {"dtype": "object"},
        {"dtype": "O"},
        {"dtype": "S4"},
        {"dtype": "f4,i4"},
        {"dtype": "M8[s]"},
        {"dtype": "(" * 10_000},
        {"shape": [2, 3]},
        {"shape": [-1]},
        {"shape": [1.0]},
        {"dtype": "float32", "shape": [2**40, 2**40]},
        {"default": 5},
        {"default": [b"a", b"b"]},
        {"default": [1], "dtype": "int8"},
        {"shortest": -1},
        {"longest": 0},
        {"name": "other"},
        {"kind": "int32"},
        {"kind": Kind.INT64, "dtype": "int64"},
    ):
        with pytest.raises(UsageError):
            schema.replace("x", **wrong)
    with pytest.raises(UsageError, match="give its kind"):
        schema.replace("z", default=3)
    with pytest.raises(UsageError, match="no feature 'z'"):
        schema.select(["z"])


def test_for_people():
    schema = Schema(
        {
            "image": Feature("image", Kind.BYTES, True, 1, 1, content="jpeg", sizes=(1000, 20000)),
            "\x1b[31mred": Feature("\x1b[31mred", Kind.INT64, False, 0, None, present=5),
            "grid": Feature("grid", Kind.FLOAT, False, 6, 6, shape=(2, 3)),
        },
        200,
    )
    assert str(schema).splitlines() == [
        "feature      kind     values     in     looks like",
        "image        string   1          all    jpeg, 1,000 to 20,000 bytes",
        "\\x1b[31mred  int64    0 or more  2.5 %",
        "grid         float32  2x3        some",
    ]
    assert repr(schema).startswith("<croupier.Schema of 3 features, of 200 records>\n")


# For TensorFlow


@pytest.mark.interop
def test_the_spec_is_what_tensorflow_takes(tmp_path):
    import tensorflow as tf

    records = random_records(random.Random(5), 2000)
    with croupier.writer(tmp_path / "x.tfrecord") as out:
        out.write_many(map(encode, records))
    schema = croupier.infer_schema(tmp_path / "x.tfrecord")
    some = records[:400]
    serialized = [encode(record) for record in some]
    for ragged in (True, False):
        parsed = tf.io.parse_example(serialized, eval(schema.parse_spec(ragged=ragged), {"tf": tf}))
        assert parsed["label"].numpy().tolist() == [record["label"] for record in some]
        assert parsed["pair"].shape == (400, 2)
        tokens = parsed["tokens"] if ragged else tf.RaggedTensor.from_sparse(parsed["tokens"])
        assert tokens.to_list() == [record["tokens"].tolist() for record in some]
        assert parsed["rare"].numpy().tolist() == [record.get("rare", 0) for record in some]
        assert parsed["number 1"].numpy().tolist() == [record.get("number 1", [0, 0]) for record in some]
        assert parsed["word"].numpy().tolist() == [record["word"].encode() for record in some]
    defaults = schema.replace("rare", default=math.nan).replace("number 1", default=[7, -8])
    parsed = tf.io.parse_example(serialized, eval(defaults.parse_spec(), {"tf": tf}))
    assert np.isnan(parsed["rare"].numpy()).sum() == sum("rare" not in record for record in some)
    assert parsed["number 1"].numpy().tolist() == [record.get("number 1", [7, -8]) for record in some]


@pytest.mark.interop
def test_the_spec_says_how_to_decode_raw_tensors():
    import tensorflow as tf

    schema = Schema({"x": Feature("x", Kind.BYTES, True, 1, 1)}).replace("x", dtype=">f4", shape=[2, 1])
    (comment,) = [line for line in schema.parse_spec().splitlines() if "decode_raw" in line]
    call = comment.partition("# ")[2].partition(", reshaped")[0].replace("...", "raw")
    raw = np.array([1.5, -2], ">f4").tobytes()
    assert eval(call, {"tf": tf, "raw": raw}).numpy().tolist() == [1.5, -2]


@pytest.mark.interop
@pytest.mark.real
def test_the_spec_parses_real_records(shared_data):
    import tensorflow as tf

    for name in ("golden*", "iris.tfrecords", "bridge*", "dmlab*"):
        data = croupier.open(shared_data / name, index="memory")
        spec = eval(croupier.infer_schema(data).parse_spec(), {"tf": tf})
        parsed = tf.io.parse_example(data[:].tolist(), spec)
        done = 0
        for part in data.columns():
            for feature, column in part.items():
                theirs = parsed[feature].numpy()[done : done + part.records]
                assert theirs.tolist() == column.array.tolist()
            done += part.records
        assert done == len(data)
