"""Python values and columns as tf.train.Examples."""

import math
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import example_oracle as oracle
from croupier import UsageError, _kernel
from croupier.example import (
    BytesList,
    Column,
    Columns,
    Kind,
    SequenceExample,
    decode,
    decode_batch,
    decode_sequence,
    encode,
    encode_batch,
    encode_sequence,
)
from example_oracle import BYTES, FLOAT, INT64


def bits(*floats):
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in floats]


def ints(*values):
    return INT64, list(values)


class Text(str):
    pass


class Number(int):
    pass


class Tensor:
    """Something of a library that we do not know."""

    def __array__(self, dtype=None, copy=None):
        return np.array([[1.5, 2.5]], np.float64)


objects = np.array([b"x", "y", b"z\0"], object)
TABLE = [
    (3, ints(3)),
    (True, ints(1)),
    (-(2**63), ints(-(2**63))),
    (1.5, (FLOAT, bits(1.5))),
    (0.1, (FLOAT, bits(0.1))),
    (1e300, (FLOAT, bits(math.inf))),
    (b"\0", (BYTES, [b"\0"])),
    ("ä", (BYTES, ["ä".encode()])),
    (bytearray(b"x"), (BYTES, [b"x"])),
    (memoryview(b"x"), (BYTES, [b"x"])),
    (Text("x"), (BYTES, [b"x"])),
    (Number(5), ints(5)),
    ([], (0, [])),
    ((), (0, [])),
    ([[], []], (0, [])),
    (BytesList(), (BYTES, [])),
    ([1, True, -1], ints(1, 1, -1)),
    ((1, 2), ints(1, 2)),
    ([[1, 2], [3, 4]], ints(1, 2, 3, 4)),
    ([1, 2.5], (FLOAT, bits(1, 2.5))),
    ([2.5, np.int8(1), True], (FLOAT, bits(2.5, 1, 1))),
    ([b"a", "b"], (BYTES, [b"a", b"b"])),
    ([["a"], [b"b\0"]], (BYTES, [b"a", b"b\0"])),
    ([bytearray(b"a")], (BYTES, [b"a"])),
    ([np.int32(3), np.uint64(4)], ints(3, 4)),
    ([np.float16(3), np.bool_(True)], (FLOAT, bits(3, 1))),
    ([np.array([1, 2]), 3], ints(1, 2, 3)),
    ([np.str_("a"), np.bytes_(b"b")], (BYTES, [b"a", b"b"])),
    (np.int8(-3), ints(-3)),
    (np.bool_(True), ints(1)),
    (np.float16(0.5), (FLOAT, bits(0.5))),
    (np.float64(1e300), (FLOAT, bits(math.inf))),
    (np.str_("ä"), (BYTES, ["ä".encode()])),
    (np.bytes_(b"x"), (BYTES, [b"x"])),
    (np.array([True, False]), ints(1, 0)),
    (np.array([[1, 2], [3, 4]], np.uint8).T, ints(1, 3, 2, 4)),
    (np.array([1, 2], ">i4"), ints(1, 2)),
    (np.array([1, 2**63 - 1], np.uint64), ints(1, 2**63 - 1)),
    (np.arange(6)[::2], ints(0, 2, 4)),
    (np.array(7), ints(7)),
    (np.array([0.1, 1e39]), (FLOAT, bits(0.1, math.inf))),
    (np.array([0.1], ">f4"), (FLOAT, bits(0.1))),
    (np.zeros(0, np.int16), (INT64, [])),
    (np.zeros((0, 3), np.float64), (FLOAT, [])),
    (np.zeros(0, "S1"), (BYTES, [])),
    (np.zeros(0, object), (BYTES, [])),
    (np.array(["a", "ä"]), (BYTES, [b"a", "ä".encode()])),
    (np.array([b"a", b"bc"]), (BYTES, [b"a", b"bc"])),
    (objects, (BYTES, [b"x", b"y", b"z\0"])),
    (np.array([1, 2], object), ints(1, 2)),
    (Tensor(), (FLOAT, bits(1.5, 2.5))),
]


@pytest.mark.parametrize(("value", "wanted"), TABLE, ids=[str(number) for number in range(len(TABLE))])
def test_values(value, wanted):
    assert oracle.example(encode({"x": value})) == {"x": wanted}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (2**63, "an int beyond int64"),
        ([1, -(2**63) - 1], "an int beyond int64"),
        (np.array([2**63], np.uint64), "an int beyond int64"),
        ([1.5, 10**400], "an int beyond int64"),
        ([b"a", 1], "strings and numbers in one list"),
        ([[b"a"], [1]], "strings and numbers in one list"),
        (np.array([b"a", 1], object), "strings and numbers in one list"),
        (None, "NoneType is nothing that an Example can hold"),
        ({"a": 1}, "dict is nothing"),
        ({1, 2}, "set is nothing"),
        ([None], "NoneType is nothing"),
        ([1j], "complex is nothing"),
        (1j, "complex is nothing"),
        (np.array([1j]), "an array of complex128 is nothing"),
        (np.array(["2020-01-01"], "datetime64[D]"), "an array of datetime64"),
        (np.zeros(2, [("a", "i4")]), "is nothing that an Example can hold"),
        ("\ud800", "surrogates not allowed"),
        (["\ud800"], "surrogates not allowed"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_held(value, problem):
    with pytest.raises(UsageError, match=r"feature 'wrong': .*" + problem):
        encode({"right": 1, "wrong": value})
    with pytest.raises(UsageError, match=r"feature 'wrong': .*" + problem):
        encode_sequence(SequenceExample({"a": 1}, {"wrong": [1, value]}))


@pytest.mark.parametrize("features", [None, [], 3, "text", [("a", 1)]])
def test_what_is_no_mapping(features):
    with pytest.raises(UsageError, match="features must be a mapping"):
        encode(features)


@pytest.mark.parametrize("name", [1, b"a", None, "\ud800"])
def test_names_are_text(name):
    with pytest.raises(UsageError, match=r"names of features|surrogates"):
        encode({name: 1})
    with pytest.raises(UsageError, match=r"names of features|surrogates"):
        encode_batch({name: [1]})


def test_order_of_insertion_does_not_matter():
    features = {name: [len(name)] for name in ("b", "", "a", "ä", "ab", "B", "z" * 200)}
    shuffled = list(features)
    random.Random(1).shuffle(shuffled)
    payload = encode(features)
    assert payload == encode({name: features[name] for name in shuffled})
    ((_, _, inside),) = oracle.fields(payload, 100)
    names = [next(oracle.fields(entry, 98))[2] for _, _, entry in oracle.fields(inside, 99)]
    assert names == sorted(name.encode() for name in features)
    assert encode({}) == b"\n\0"


def test_a_value_whose_code_changes_the_mapping():
    class Sly:
        def __array__(self, dtype=None, copy=None):
            features.clear()
            strings.clear()
            return np.array([5])

    strings = [bytes([number]) * 100 for number in range(50)]
    features = {f"name {number}" * 3: f"{number}" * 3 for number in range(50)}
    features |= {"list": strings, "sly": Sly()}
    features |= {f"later {number}": [b"%d" % number] for number in range(50)}
    found = decode(encode(features))
    assert len(found) == 102
    assert found["list"] == [bytes([number]) * 100 for number in range(50)]
    assert found["sly"].tolist() == [5]
    assert found["later 49"] == [b"49"]


numbers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32, allow_nan=False)
values = st.one_of(
    st.lists(numbers).map(lambda some: np.array(some, np.int64)),
    st.lists(floats).map(lambda some: np.array(some, np.float32)),
    st.lists(st.binary(max_size=200)).map(BytesList),
)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def same(one, two):
    if isinstance(one, list):
        return type(one) is type(two) or one == two != []
    return one.dtype == two.dtype and one.tobytes() == two.tobytes()


@given(st.dictionaries(names, values, max_size=6))
@settings(max_examples=200)
def test_round_trip(features):
    payload = encode(features)
    found = decode(payload)
    assert found.keys() == features.keys()
    assert all(same(found[name], features[name]) for name in found)
    assert encode(found) == payload
    batch = encode_batch(decode_batch([payload, encode({}), payload]))
    assert batch.tolist() == [payload, encode({}), payload]


@given(
    st.dictionaries(names, values, max_size=3),
    st.dictionaries(names, st.lists(values, max_size=3), max_size=3),
)
def test_sequence_round_trip(context, lists):
    payload = encode_sequence(SequenceExample(context, lists))
    found = decode_sequence(payload)
    assert found.feature_lists.keys() == lists.keys()
    for name, steps in lists.items():
        assert len(found.feature_lists[name]) == len(steps)
        assert all(same(one, two) for one, two in zip(found.feature_lists[name], steps, strict=True))
    assert all(same(found.context[name], value) for name, value in context.items())
    assert encode_sequence(found) == payload


@pytest.mark.interop
@given(st.dictionaries(names, values, max_size=6))
def test_the_bytes_are_protobufs(features):
    import example_upb

    kinds = {name: example_upb.BYTES if isinstance(value, list) else 0 for name, value in features.items()}
    kinds |= {name: FLOAT for name, value in features.items() if getattr(value, "dtype", None) == np.float32}
    kinds |= {name: INT64 for name, value in features.items() if getattr(value, "dtype", None) == np.int64}
    assert encode(features) == example_upb.build(
        {name: (kinds[name], list(value)) for name, value in features.items()}
    )


def test_columns_of_anything():
    batch = encode_batch(
        {
            "number": np.arange(3),
            "row": np.eye(3),
            "text": ["a", b"b", ["c", "d"]],
            "ragged": [[1, 2], None, []],
            "mixed": [1, [0.5, 2], 3.0],
            "nothing": [None, [], None],
            "objects": objects,
            "strings": np.array(["x", "y", "z"]),
            "tuple": ((1, 2), (3,), ()),
        }
    )
    first, second, third = map(oracle.example, batch.tolist())
    assert first["number"] == ints(0)
    assert second["row"] == (FLOAT, bits(0, 1, 0))
    assert third["text"] == (BYTES, [b"c", b"d"])
    assert (first["ragged"], third["ragged"]) == (ints(1, 2), ints())
    assert "ragged" not in second
    assert second["mixed"] == (FLOAT, bits(0.5, 2))
    assert not any("nothing" in record for record in (first, second, third))
    assert third["objects"] == (BYTES, [b"z\0"])
    assert second["strings"] == (BYTES, [b"y"])
    assert third["tuple"] == ints()
    assert len(encode_batch({})) == 0
    assert encode_batch(Columns({}, 2)).tolist() == [b"\n\0", b"\n\0"]


def test_columns_under_another_name():
    column = decode_batch([encode({"a": [1, 2]})])["a"]
    assert decode(encode_batch({"b": column})[0])["b"].tolist() == [1, 2]


def number_column(values=(1, 2), rows=(0, 1, 2), **more):
    values = np.array(values, np.int64)
    return Column("x", more.pop("kind", Kind.INT64), values, np.array(rows), **more)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"a": [1, 2], "b": [1]}, "feature 'b' has 1 records, and others 2"),
        ({"a": np.array(3)}, "feature 'a': an array of no dimension"),
        ({"a": [1, b"x"]}, "feature 'a': strings and numbers in one feature"),
        ({"a": [1, 2**63]}, "feature 'a': an int beyond int64"),
        ({"a": [{}]}, "feature 'a': dict is nothing"),
        ({"a": 3}, "feature 'a': .*not iterable"),
        ({"x": number_column(rows=(0, 2, 1))}, "rows do not fit"),
        ({"x": number_column(rows=(0, 1, 3))}, "rows do not fit"),
        ({"x": number_column(rows=(-1, 1, 2))}, "rows do not fit"),
        ({"x": number_column(present=np.ones(3, np.bool_))}, "present is not one for each record"),
        ({"x": number_column(kind=Kind.BYTES, items=np.array([0, 99, 2]))}, "items do not fit"),
        ({"x": number_column(kind=Kind.BYTES, items=np.zeros(0, np.int64))}, "items must have at least"),
        ({"x": number_column(kind=Kind.BYTES)}, "items"),
    ],
)
def test_columns_that_cannot_be(columns, problem):
    with pytest.raises(UsageError, match=problem):
        encode_batch(columns)


def test_threads_write_the_same():
    rng = np.random.default_rng(3)
    count = 60_000
    lengths = rng.integers(0, 30, count)
    columns = {
        "ids": np.split(rng.integers(-9, 1 << 40, lengths.sum()), np.cumsum(lengths)[:-1]),
        "weights": rng.random((count, 3)),
        "text": [b"x" * int(size) if size else None for size in rng.integers(0, 50, count)],
    }
    one = encode_batch(columns, threads=1)
    for threads in (2, 3, 4):
        many = encode_batch(columns, threads=threads)
        assert (many.offsets == one.offsets).all()
        assert (many.buffer == one.buffer).all()
    for number in (0, 1, count // 2, count - 1):
        record = {name: values[number] for name, values in columns.items() if values[number] is not None}
        assert bytes(one[number]) == encode(record)


def test_the_kernel_believes_nothing():
    offsets, out = np.zeros(3, np.uint64), np.zeros(100, np.uint8)
    rows = np.array([0, 1, 2], np.uint64)
    good = (b"x", 3, np.array([1, 2]), rows, None, None)
    _kernel.batch_sizes([good], offsets, 1)
    assert offsets.tolist() == [0, 14, 28]
    for edges, room in (
        ([0, 14, 27], 100),
        ([0, 14, 29], 100),
        ([0, 14, 28], 27),
        ([14, 28, 0], 100),
        ([0, 1, 2], 9),
    ):
        with pytest.raises(ValueError, match=r"changed|bounds"):
            _kernel.write_batch([good], np.array(edges, np.uint64), out[:room], 1)
    for wrong in ((b"x", 0, *good[2:]), good[:5], (b"x", "3", *good[2:]), None):
        with pytest.raises(TypeError, match="columns must be tuples"):
            _kernel.batch_sizes([wrong], offsets, 1)
    for wrong in ((1, 2, 3), None, (9, []), (1, "text"), (1, [3]), (1, [[]])):
        with pytest.raises(TypeError, match="plain must give"):
            _kernel.build_example({"a": object()}, lambda name, value, wrong=wrong: wrong)
