"""Columns as Arrow and back: types, sharing of memory, what cannot be, and who reads it."""

import math
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
from croupier import UsageError
from croupier.example import (
    Column,
    Columns,
    Feature,
    Kind,
    Schema,
    decode,
    decode_batch,
    encode,
    encode_batch,
)
from croupier.example.arrow import arrow_schema, record_batch
from croupier.example.from_arrow import columns_of


def column(name, kind, records, **more):
    """Of a list for each record, or None where it lacks the feature."""
    present = None if None not in records else np.array([values is not None for values in records])
    lists = [values or [] for values in records]
    rows = np.cumsum([0, *map(len, lists)])
    flat = [value for values in lists for value in values]
    if kind is Kind.BYTES:
        items = np.cumsum([0, *map(len, flat)])
        return Column(name, kind, np.frombuffer(b"".join(flat), np.uint8), rows, items, present, **more)
    values = np.array(flat, {Kind.FLOAT: np.float32, Kind.INT64: np.int64}[kind])
    return Column(name, kind, values, rows, None, present, **more)


def columns(records, **named):
    return Columns(
        {name: column(name, kind, values, **more) for name, (kind, values, more) in named.items()}, records
    )


def feature(name, kind, records, **more):
    counts = [len(values) for values in records if values is not None]
    return Feature(name, kind, shortest=min(counts, default=1), longest=max(counts, default=1), **more)


B, F, I = Kind.BYTES, Kind.FLOAT, Kind.INT64  # noqa: E741


@pytest.mark.parametrize(
    ("kind", "records", "arrow_type", "expected"),
    [
        (I, [[1], [2], [3]], pa.int64(), [1, 2, 3]),
        (I, [[1], None, [3]], pa.int64(), [1, None, 3]),
        (I, [None, None], pa.int64(), [None, None]),
        (I, [[1, 2], [], None], pa.large_list(pa.int64()), [[1, 2], [], None]),
        (I, [[], []], pa.large_list(pa.int64()), [[], []]),
        (F, [[1.5], [2.5]], pa.float32(), [1.5, 2.5]),
        (F, [None, [2.5]], pa.float32(), [None, 2.5]),
        (F, [[1.5, 2.5], [3.5, 4.5]], pa.large_list(pa.float32()), [[1.5, 2.5], [3.5, 4.5]]),
        (B, [[b"a"], [b""], [b"\xff"]], pa.large_binary(), [b"a", b"", b"\xff"]),
        (B, [[b"a"], None, [b"c"]], pa.large_binary(), [b"a", None, b"c"]),
        (
            B,
            [[b"a", b"b"], None, [], [b""]],
            pa.large_list(pa.large_binary()),
            [[b"a", b"b"], None, [], [b""]],
        ),
    ],
)
def test_a_batch_has_the_types_that_fit_it(kind, records, arrow_type, expected):
    table = pa.table(columns(len(records), x=(kind, records, {})))
    assert table.schema == pa.schema([("x", arrow_type)])
    assert table["x"].to_pylist() == expected
    table.validate(full=True)


def test_a_schema_fixes_the_types():
    schema = Schema(
        {
            "list": Feature("list", I, shortest=0, longest=4),
            "text": Feature("text", B, shortest=1, longest=1, content="utf-8"),
            "image": Feature("image", B, shortest=1, longest=1, content="jpeg"),
            "texts": Feature("texts", B, content="utf-8"),
            "point": Feature("point", F, True, 2, 2, shape=(2,)),
            "one": Feature("one", F, shortest=1, longest=1, shape=()),
            "row": Feature("row", I, True, 1, 1, shape=(1,)),
            "raw": Feature("raw", B, True, 1, 1, dtype="int8", shape=(2, 3)),
            "pixels": Feature("pixels", B, True, 1, 1, dtype="uint8", shape=(2, 3)),
            "loss": Feature("loss", F, False, 2, 2, shape=(2,)),
            "loose": Feature("loose", B, shortest=1, longest=1, dtype="float32"),
            "number": Feature("number", B, shortest=1, longest=1, dtype="int16", shape=()),
            "foreign": Feature("foreign", B, shortest=1, longest=1, dtype=">f4"),
            "several": Feature("several", B, shortest=2, longest=2, dtype="float32"),
        }
    )
    types = {
        "list": pa.large_list(pa.int64()),
        "text": pa.large_string(),
        "image": pa.large_binary(),
        "texts": pa.large_list(pa.large_string()),
        "point": pa.list_(pa.float32(), 2),
        "one": pa.float32(),
        "row": pa.list_(pa.int64(), 1),
        "loss": pa.large_list(pa.float32()),
        "raw": pa.list_(pa.int8(), 6),
        "pixels": pa.large_binary(),
        "loose": pa.large_list(pa.float32()),
        "number": pa.int16(),
        "foreign": pa.large_binary(),
        "several": pa.large_list(pa.large_binary()),
    }
    assert dict(zip(*(lambda s: (s.names, s.types))(arrow_schema(schema)), strict=True)) == types
    plain = arrow_schema(schema, ["raw", "list"], tensors=False)
    assert plain == pa.schema([("raw", pa.large_binary()), ("list", pa.large_list(pa.int64()))])
    with pytest.raises(UsageError, match="no feature 'none'"):
        arrow_schema(schema, ["none"])


def address(array):
    return array.__array_interface__["data"][0]


def test_values_are_shared_and_not_copied():
    many = columns(
        3,
        whole=(I, [[1], [2], [3]], {}),
        ragged=(F, [[1.0], [], [2.0, 3.0]], {}),
        bytes=(B, [[b"a"], None, [b"ccc"]], {}),
        fixed=(F, [[1.0, 2.0]] * 3, {"shape": (2,)}),
        raw=(B, [[b"abcd"]] * 3, {"dtype": np.dtype(np.int16), "shape": (2,)}),
    )
    batch = record_batch(many)
    found = {
        "whole": batch["whole"].buffers()[1],
        "ragged": batch["ragged"].values.buffers()[1],
        "bytes": batch["bytes"].buffers()[2],
        "fixed": batch["fixed"].values.buffers()[1],
        "raw": batch["raw"].values.buffers()[1],
    }
    for name, buffer in found.items():
        assert buffer.address == address(many[name].values), name
    assert batch["ragged"].buffers()[1].address == address(many["ragged"].rows)
    back = columns_of(batch)
    for name in ("whole", "ragged", "fixed", "raw"):  # what has nulls is put together anew
        assert address(back[name].values) == address(many[name].values), name
    full = columns(2, x=(B, [[b"a"], [b"bb"]], {}))
    assert address(columns_of(record_batch(full))["x"].values) == address(full["x"].values)
    text = record_batch(many, pa.schema([("bytes", pa.large_string())]))
    assert text["bytes"].to_pylist() == ["a", None, "ccc"]
    assert text["bytes"].buffers()[2].address == address(many["bytes"].values)


def test_arrow_keeps_the_memory_alive():
    table = pa.table(columns(10_000, x=(I, [[n] for n in range(10_000)], {})))
    assert table["x"].to_pylist() == list(range(10_000))


def test_a_part_of_a_column_is_that_part():
    whole = column("x", B, [[b"one"], [b"two", b"three"], None, [b"four"]])
    part = Column("x", B, whole.values, whole.rows[1:], whole.items, whole.present[1:])
    assert record_batch(Columns({"x": part}, 3))["x"].to_pylist() == [[b"two", b"three"], None, [b"four"]]
    numbers = column("n", I, [[1], [2], [3]])
    part = Column("n", I, numbers.values, numbers.rows[1:])
    assert record_batch(Columns({"n": part}, 2))["n"].to_pylist() == [2, 3]


def test_requested_schema_is_met():
    stream = columns(2, x=(B, [[b"a"], [b"b"]], {})).__arrow_c_stream__(
        pa.schema([("x", pa.string())]).__arrow_c_schema__()
    )

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return stream

    assert pa.table(Stream()) == pa.table({"x": pa.array(["a", "b"], pa.string())})


def test_raw_tensors_are_numbers_and_come_back_as_bytes():
    numbers = np.arange(12, dtype=np.float32).reshape(2, 6)
    for records in (
        [[row.tobytes()] for row in numbers],
        [[numbers[0].tobytes()], None, [numbers[1].tobytes()]],
    ):
        for shape in ((2, 3), None):
            made = columns(len(records), x=(B, records, {"dtype": np.dtype(np.float32), "shape": shape}))
            batch = record_batch(made)
            expected = [
                None if values is None else np.frombuffer(values[0], np.float32).tolist()
                for values in records
            ]
            assert batch["x"].to_pylist() == expected
            batch.validate(full=True)
            assert encode_batch(columns_of(batch)).tolist() == encode_batch(made).tolist()
    field = record_batch(
        columns(1, x=(B, [[b"abcd"]], {"dtype": np.dtype("i1"), "shape": (2, 2)}))
    ).schema.field("x")
    assert field.metadata == {
        b"croupier.kind": b"string",
        b"croupier.dtype": b"|i1",
        b"croupier.shape": b"[2, 2]",
    }


@pytest.mark.parametrize(
    ("kind", "records", "arrow_type", "record", "problem"),
    [
        (I, [[1], [2, 3]], pa.int64(), 1, "has 2 values"),
        (I, [[1], None, []], pa.int64(), 2, "has 0 values"),
        (B, [[b"a", b"b"]], pa.large_binary(), 0, "has 2 values"),
        (F, [[1.0, 2.0], [1.0]], pa.list_(pa.float32(), 2), 1, "has 1 values"),
        (B, [[b"a"], [b"b"], [b"\xff"]], pa.large_string(), 2, "is not UTF-8"),
        (B, [[], [b"a"], [], [b"b", b"", b"\xff"]], pa.large_list(pa.large_string()), 3, "is not UTF-8"),
        (B, [None, [b"\xe2\x82"]], pa.large_string(), 1, "is not UTF-8"),
    ],
)
def test_a_record_that_departs_from_the_type_is_named(kind, records, arrow_type, record, problem):
    with pytest.raises(croupier.ExampleError, match=problem) as caught:
        record_batch(columns(len(records), x=(kind, records, {})), pa.schema([("x", arrow_type)]))
    assert caught.value.record == record


def test_another_kind_than_the_schema_says():
    with pytest.raises(UsageError, match="feature 'x' is int64"):
        record_batch(columns(1, x=(I, [[1]], {})), pa.schema([("x", pa.float32())]))


def test_a_raw_tensor_of_another_size_is_named():
    types = arrow_schema(Schema({"x": Feature("x", B, True, dtype="float32", shape=(2,))}))
    with pytest.raises(croupier.ExampleError, match="has 4 bytes") as caught:
        record_batch(columns(2, x=(B, [[bytes(8)], [bytes(4)]], {})), types)
    assert caught.value.record == 1
    types = arrow_schema(Schema({"x": Feature("x", B, dtype="float32")}))
    with pytest.raises(croupier.ExampleError, match="has 5 bytes"):
        record_batch(columns(1, x=(B, [[bytes(5)]], {})), types)


def test_no_columns_and_no_records():
    assert (lambda batch: (batch.num_rows, batch.num_columns))(record_batch(Columns({}, 7))) == (7, 0)
    empty = record_batch(columns(0, x=(I, [], {}), y=(B, [], {})))
    assert empty.num_rows == 0
    assert columns_of(empty).records == 0
    absent = record_batch(Columns({}, 2), pa.schema([("x", pa.large_list(pa.int64()))]))
    assert absent["x"].to_pylist() == [None, None]


def test_without_pyarrow_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'croupier\[arrow\]'"):
        columns(1, x=(I, [[1]], {})).__arrow_c_stream__()


def test_dlpack():
    numbers = column("x", F, [[1.0, 2.0], [3.0, 4.0]])
    shared = np.from_dlpack(numbers)
    assert shared.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert address(shared) == address(numbers.values)
    found = decode_batch([encode({"tokens": [1, 2]}), encode({"tokens": [3]})])["tokens"]
    assert np.from_dlpack(found.values).tolist() == [1, 2, 3]
    assert np.from_dlpack(found.rows).tolist() == [0, 2, 3]


# From Arrow

small = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32)
ELEMENTS = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): small,
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float16(): st.floats(width=16).map(np.float16),
    pa.float32(): floats,
    pa.float64(): floats,
    pa.string(): st.text(),
    pa.large_string(): st.text(),
    pa.string_view(): st.text(),
    pa.binary(): st.binary(),
    pa.large_binary(): st.binary(),
    pa.binary_view(): st.binary(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.dictionary(pa.int8(), pa.string()): st.text(max_size=1),
}


@st.composite
def arrays(draw):
    """An Arrow array of any type that can become a feature, and its values: (kind, list of lists or None)."""
    element = draw(st.sampled_from(list(ELEMENTS)))
    values = ELEMENTS[element]
    nested = draw(st.sampled_from(["no", "list", "large", "fixed", "view"]))
    if pa.types.is_dictionary(element):
        nested = "no"
    if nested == "no":
        rows, kind = st.lists(st.none() | values, max_size=20), element
    elif nested == "fixed":
        rows, kind = (
            st.lists(st.none() | st.lists(values, min_size=2, max_size=2), max_size=10),
            pa.list_(element, 2),
        )
    else:
        rows = st.lists(st.none() | st.lists(values, max_size=3), max_size=10)
        kind = {"list": pa.list_, "large": pa.large_list, "view": pa.list_view}[nested](element)
    found = draw(rows)
    array = pa.array(found, kind)
    begin = draw(st.integers(0, len(found)))
    end = draw(st.integers(begin, len(found)))
    return array.slice(begin, end - begin), [
        row if row is None or isinstance(row, list) else [row] for row in found[begin:end]
    ]


def plain(value):
    return (
        value.encode()
        if isinstance(value, str)
        else bytes(value)
        if isinstance(value, bytes)
        else float(value)
    )


@settings(max_examples=300)
@given(arrays())
def test_any_array_becomes_what_its_values_say(case):
    array, expected = case
    made = columns_of(pa.record_batch([array], ["x"]))
    payloads = encode_batch(made).tolist() if expected else []
    assert made.records == len(expected)
    for payload, values in zip(payloads, expected, strict=True):
        found = decode(payload)
        assert ("x" in found) == (values is not None)
        if values is not None:
            same = [plain(value) for value in values]
            got = [plain(value) for value in found["x"]]
            assert len(same) == len(got)
            for one, other in zip(same, got, strict=True):
                assert one == other or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize(
    ("array", "row", "problem"),
    [
        (pa.array([1, 2**63], pa.uint64()), 1, f"{2**63} does not fit int64"),
        (pa.array([[1], [2, None]]), 1, "has a null among the values of a list"),
        (pa.array([1.0, 1e300]), 1, r"1e\+300 does not fit float32"),
        (pa.array([1.0, None, 16777217.0]), 2, "16777217.0 is a number that float32 would change"),
        (pa.array([[], [0.5, 123456789.0]]), 1, "123456789.0 is a number that float32 would change"),
        (pa.array([[], None], pa.list_(pa.null())), 0, "nothing but empty lists"),
    ],
)
def test_what_would_change_is_refused(array, row, problem):
    with pytest.raises(croupier.RowError, match=problem) as caught:
        columns_of(pa.record_batch([array], ["x"]))
    assert caught.value.record == row
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.date32(),
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal128(5, 2),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.timestamp("s")),
    ],
)
def test_types_that_no_feature_has_are_refused_with_advice(kind):
    with pytest.raises(UsageError, match=r"column 'x' is .*: (make it|split it)"):
        columns_of(pa.record_batch([pa.nulls(1, kind)], ["x"]))


def test_kinds_that_are_asked_for():
    batch = pa.record_batch(
        {
            "number": pa.array(["1", "-07", None]),
            "float": pa.array([b"0.5", b"nan", b"16777217"]),
            "whole": pa.array([1.0, -2.0, None]),
            "text": pa.array([7, None, -1]),
            "rounded": pa.array([16777217, 1, None]),
        }
    )
    asked = {"number": I, "float": F, "whole": I, "text": B, "rounded": F}
    made = columns_of(batch, asked, rounded=["float", "rounded"])
    assert made["number"].values.tolist() == [1, -7]
    assert made["whole"].values.tolist() == [1, -2]
    assert made["float"].values[[0, 2]].tolist() == [0.5, 16777216.0]
    assert (made["text"][0], made["text"][1], made["text"][2]) == ([b"7"], None, [b"-1"])
    assert made["rounded"].values.tolist() == [16777216.0, 1.0]
    for name, value, problem in [
        ("number", "1.5", "cannot be int64"),
        ("number", "9" * 20, "does not fit int64"),
        ("float", "abc", "cannot be float32"),
        ("float", "1234567890123456789", "float32 would change"),
        ("whole", 0.5, "cannot be int64"),
        ("whole", math.nan, "cannot be int64"),
        ("whole", 2.0**63, "cannot be int64"),
        ("rounded", 2**62 + 1, "float32 would change"),
    ]:
        with pytest.raises(croupier.RowError, match=problem):
            columns_of(pa.record_batch({name: pa.array([value])}), asked)
    with pytest.raises(UsageError, match="cannot be string"):
        columns_of(pa.record_batch({"text": pa.array([0.5])}), asked)


def test_strict_refuses_every_rounding():
    batch = pa.record_batch({"x": pa.array([0.5, 0.1])})
    assert columns_of(batch)["x"].values.tolist() == [0.5, np.float32(0.1)]
    with pytest.raises(croupier.RowError, match="float32 would change") as caught:
        columns_of(batch, strict=True)
    assert caught.value.record == 1


def test_two_columns_of_one_name():
    with pytest.raises(UsageError, match="two columns 'x'"):
        columns_of(pa.record_batch([pa.array([1]), pa.array([2])], ["x", "x"]))


# Datasets


@pytest.fixture
def data(tmp_path):
    """Five labels, one optional feature, a list of two, 3,000 records in three files."""
    with croupier.writer(tmp_path / "data" / "x", shards=3, compression="gzip") as out:
        for number in range(3000):
            record = {
                "id": number,
                "label": f"l{number % 5}",
                "v": [float(number), 1.0],
                "image": b"\xff\xd8",
            }
            out.write(encode(record | ({"opt": number} if number % 3 else {})))
    return croupier.open(tmp_path / "data" / "x@3")


def test_a_dataset_is_a_stream(data):
    table = pa.table(data)
    assert table.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("image", pa.large_binary()),
            ("label", pa.large_string()),
            ("opt", pa.int64()),
            ("v", pa.large_list(pa.float32())),
        ]
    )
    records = [decode(payload) for payload in data]
    assert table["id"].to_pylist() == [int(record["id"][0]) for record in records]
    assert table["opt"].to_pylist() == [int(r["opt"][0]) if "opt" in r else None for r in records]
    assert pa.table(data) == table, "it can be read again"
    assert data.arrow(["v", "id"]).schema.names == ["v", "id"]


def test_a_record_that_is_not_like_the_schema_is_named_by_file(data):
    schema = croupier.infer_schema(data).replace("image", content="utf-8")
    with pytest.raises(croupier.ExampleError, match="not UTF-8") as caught:
        data.skip(1500).arrow(schema=schema).read_all()
    assert (caught.value.path, caught.value.record) == (data.paths[1], 500)


def test_a_reader_that_stops_leaves_no_thread(data):
    before = threading.active_count()
    stream = data.arrow()
    stream.read_next_batch()
    assert threading.active_count() > before
    stream.close()
    del stream
    assert threading.active_count() == before


@pytest.mark.interop
def test_pandas_polars_and_duckdb_query_a_dataset(data):
    import duckdb
    import pandas
    import polars

    expected = {f"l{label}": sum(range(label, 3000, 5)) for label in range(5)}
    frame = pandas.DataFrame.from_arrow(data)
    assert frame.groupby("label")["id"].sum().to_dict() == expected
    assert int(frame["opt"].isna().sum()) == 1000
    lazy = polars.DataFrame(data).lazy().group_by("label").agg(polars.col("id").sum()).collect()
    assert dict(lazy.rows()) == expected
    found = duckdb.sql("select label, sum(id), count(opt), sum(v[2]) from data group by label").fetchall()
    assert {label: (int(total), count, ones) for label, total, count, ones in found} == {
        label: (total, 400, 600.0) for label, total in expected.items()
    }
    assert duckdb.sql("select id from data where label = 'l3' limit 2").fetchall() != []


@pytest.mark.interop
def test_hugging_face_datasets_take_a_dataset(data, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    found = datasets.Dataset(pa.table(data))
    assert found.to_list() == pa.table(data).to_pylist()
    stream = datasets.IterableDataset.from_generator(
        lambda: (row for batch in data.arrow(["id"]) for row in batch.to_pylist())
    )
    assert [row["id"] for row in stream.take(3)] == found["id"][:3]


@pytest.mark.interop
@pytest.mark.real
def test_real_records_are_what_tensorflow_says(shared_data):
    import tensorflow as tf

    data = croupier.open(shared_data / "iris.tfrecords", index="memory")
    rows = pa.table(data).to_pylist()
    assert len(rows) == len(data)
    for payload, row in zip(data, rows, strict=True):
        features = tf.train.Example.FromString(payload).features.feature
        expected = {
            name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()
        }
        found = {name: value if isinstance(value, list) else [value] for name, value in row.items()}
        text = {
            name: [v.encode() if isinstance(v, str) else v for v in values] for name, values in found.items()
        }
        assert text == expected
