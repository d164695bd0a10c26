"""Tables to Examples: what each format's values become, what is refused, and where."""

import decimal
import gzip
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import croupier
from croupier import RowError, UsageError
from croupier.example import decode


def converted(source, tmp_path, **options):
    """The records of a table as dicts of lists, and what was said."""
    done = croupier.convert_table(source, tmp_path / "out" / "x.tfrecord", overwrite=True, **options)
    records = [decode(payload) for payload in croupier.read(done.paths)]
    assert len(records) == done.records
    return [{name: list(values) for name, values in record.items()} for record in records], done


def text(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# CSV


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", "0"], "int64"),
        (["1", "", "3"], "int64"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808"], "string"),
        (["007", "12"], "string"),
        (["+1"], "string"),
        (["1 "], "string"),
        (["-0"], "float32"),
        (["1", "2.5"], "float32"),
        (["1e5", "-2.5E-3", ".5", "1.", "NaN", "nan", "inf", "-inf", "Infinity"], "float32"),
        (["0.5", "1234567890123456"], "string"),
        (["00.5"], "string"),
        (["1,5"], "string"),
        (["0x10"], "string"),
        (["1_000"], "string"),
        (["true", "false"], "string"),
        (["2024-01-01"], "string"),
        (["1", "x"], "string"),
        (['""'], "string"),
        (["NULL", "NA"], "string"),
        (["", ""], None),
    ],
)
def test_csv_values_never_change_in_silence(values, kind, tmp_path):
    quoted = [f'"{value}"' if "," in value else value for value in values]
    path = text(tmp_path, "id,x\n" + "".join(f"{number},{value}\n" for number, value in enumerate(quoted)))
    records, done = converted(path, tmp_path)
    assert done.kinds == {"id": "int64"} | ({"x": kind} if kind else {})
    for record, value in zip(records, values, strict=True):
        if value == "":
            assert "x" not in record
        elif kind == "string":
            assert record["x"] == [value.strip('"').encode()]
        else:
            one = float(value) if kind == "float32" else int(value)
            np.testing.assert_array_equal(np.float32(record["x"]), np.float32([one]))
            assert kind == "float32" or record["x"] == [one]


def test_csv_kinds_come_from_all_rows(tmp_path):
    rows = "x\n" + "".join(f"{number}\n" for number in range(700_000))
    for last, kind in (("7", "int64"), ("0.5", "float32"), ("?", "string")):
        path = text(tmp_path, f"{rows}{last}\n")
        assert croupier.convert_table(path, tmp_path / f"{kind}.tfrecord").kinds == {"x": kind}


def test_csv_forms(tmp_path):
    expected = [{"a": [1], "b": [b"x\ny"]}, {"b": [b'q"q']}, {"a": [3]}, {"a": [4], "b": [b""]}]
    content = 'a,b\n1,"x\ny"\n,"q""q"\n\n3,\n4,""\n'
    assert converted(text(tmp_path, content), tmp_path)[0] == expected
    assert (
        converted(text(tmp_path, "\ufeff" + content.replace("\n", "\r\n")), tmp_path)[0][2:] == expected[2:]
    )
    zipped = text(tmp_path, gzip.compress(content.encode()), "t.csv.gz")
    assert converted(zipped, tmp_path)[0] == expected
    tabs = text(tmp_path, content.replace(",", "\t"), "t.tsv")
    assert converted(tabs, tmp_path)[0] == expected
    odd = text(tmp_path, content.replace(",", ";"), "t.txt")
    assert converted(odd, tmp_path, format="csv", delimiter=";")[0] == expected
    assert converted(text(tmp_path, "a\n1\n\n3\n"), tmp_path)[0] == [{"a": [1]}, {}, {"a": [3]}]
    latin = text(tmp_path, b"a,b\n\xe9,1\n")
    assert converted(latin, tmp_path)[0] == [{"a": [b"\xe9"], "b": [1]}], "bytes stay what they are"


def test_csv_rows_longer_than_a_block(tmp_path):
    long = "x" * 5_000_000
    path = text(tmp_path, f"a,b\n1,{long}\n2,{long}\n")
    assert [len(record["b"][0]) for record in converted(path, tmp_path)[0]] == [5_000_000] * 2


@pytest.mark.parametrize(
    ("content", "row", "problem"),
    [
        ("a,b\n1,2\n3\n", 1, "Expected 2 columns, got 1"),
        ("a,b\n" + "1,2\n" * 400_000 + "1,2,3\n", 400_000, "Expected 2 columns, got 3: 1,2,3"),
        ("a,b\n1,0.5\n2,16777217\n", 1, "column 'b': 16777217 is a number that float32 would change"),
        ("a,b\n" + "1,0.5\n" * 500_000 + "2,16777217\n", 500_000, "16777217 is a number that float32"),
        ("a,b\n1,0.5\n2,1e39\n", 1, "column 'b': 1e39 does not fit float32"),
        ("", None, "Empty CSV"),
    ],
)
def test_csv_errors_name_file_and_row(content, row, problem, tmp_path):
    path = text(tmp_path, content)
    with pytest.raises(RowError, match=problem) as caught:
        converted(path, tmp_path)
    assert (caught.value.path, caught.value.record) == (str(path), row)
    assert str(caught.value).startswith(f"{path}: " if row is None else f"{path}: row {row}: ")
    assert not (tmp_path / "out" / "x.tfrecord").exists()


def test_csv_types_that_are_asked_for(tmp_path):
    path = text(tmp_path, "zip,age,score,id\n00501,42,1,1.0\n10001,7,16777217,2.0\n")
    kinds = {"zip": "string", "age": "float32", "score": "float32", "id": "int64"}
    records, done = converted(path, tmp_path, types=kinds)
    assert done.kinds == kinds
    assert records[1] == {"zip": [b"10001"], "age": [7.0], "score": [16777216.0], "id": [2]}


def test_csv_types_that_cannot_be(tmp_path):
    path = text(tmp_path, "a\n1\nx\n")
    with pytest.raises(RowError, match="row 1: column 'a': x cannot be int64"):
        converted(path, tmp_path, types={"a": "int64"})
    with pytest.raises(UsageError, match="can be int64, float32 or string, not 'date'"):
        converted(path, tmp_path, types={"a": "date"})
    with pytest.raises(UsageError, match="there is no column 'b'"):
        converted(path, tmp_path, types={"b": "int64"})
    with pytest.raises(UsageError, match="has two columns 'a'"):
        converted(text(tmp_path, "a,a\n1,2\n"), tmp_path)
    with pytest.raises(UsageError, match="a delimiter is one character"):
        converted(path, tmp_path, delimiter="::")


# JSON lines


def test_json_lines(tmp_path):
    rows = [
        {
            "i": 1,
            "f": 0.5,
            "s": "a",
            "l": [1, 2],
            "b": {"b64": "/w=="},
            "t": True,
            "d": "2020-01-01 00:00:00",
        },
        {},
        {"i": None, "f": 2, "l": [], "b": {"b64": ""}, "n": None, "e": ["x"], "g": [1, 2.5]},
        {"s": "é\u0000", "bb": [{"b64": "AAE="}, {"b64": ""}]},
    ]
    path = text(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", "t.jsonl")
    records, done = converted(path, tmp_path)
    assert records == [
        {
            "i": [1],
            "f": [0.5],
            "s": [b"a"],
            "l": [1, 2],
            "b": [b"\xff"],
            "t": [1],
            "d": [b"2020-01-01 00:00:00"],
        },
        {},
        {"f": [2.0], "l": [], "b": [b""], "e": [b"x"], "g": [1.0, 2.5]},
        {"s": ["é\u0000".encode()], "bb": [b"\x00\x01", b""]},
    ]
    assert done.kinds["l"] == "int64"
    assert "n" not in done.kinds
    zipped = text(tmp_path, gzip.compress(path.read_bytes()), "t.ndjson.gz")
    assert converted(zipped, tmp_path)[0] == records
    assert converted(path, tmp_path, columns=["i", "s"])[0][0] == {"i": [1], "s": [b"a"]}


def test_json_kinds_come_from_all_rows(tmp_path):
    rows = "".join(f'{{"x":{number},"y":[]}}\n' for number in range(300_000))
    path = text(tmp_path, rows + '{"x":0.5,"y":["a"]}\n', "t.jsonl")
    done = croupier.convert_table(path, tmp_path / "x.tfrecord")
    assert done.kinds == {"x": "float32", "y": "string"}
    record = decode(croupier.open(done.paths)[299_999])
    assert (record["x"].tolist(), record["y"]) == ([299_999.0], [])


@pytest.mark.parametrize(
    ("content", "row", "problem"),
    [
        ('{"a":1}\n{"a":"x"}\n', 1, "changed from number to string"),
        ('{"a":1}\n' * (1 << 19) + '{"a":"x"}\n', None, "column 'a' is int64 in some rows, string in others"),
        ('{"a":1}\n{bad\n', 1, "Missing a name for object member"),
        ('{"a":1}\n' * 700_000 + "{bad\n", 700_000, "Missing a name"),
        ('[{"a":1}]\n', 0, "this is an array"),
        ('{"a":1}\n{"a":[1]}\n', 1, "changed from number to array"),
        ('{"a":[1,null]}\n', 0, "has a null among the values of a list"),
        ('{"a":{"b64":"/w=="}}\n{"a":{"b64":"!"}}\n', 1, "column 'a': its bytes are not base64"),
        ('{"a":[]}\n{"a":[{"b64":""},{"b64":"/w"}]}\n', 1, "column 'a': its bytes are not base64"),
        ('{"a":[]}\n', 0, "column 'a' has nothing but empty lists"),
        ('{"a":1}\n{"a":18446744073709551615}\n', None, "whole number 18446744073709551615 among"),
        ('{"a":0.5}\n{"a":9007199254740993}\n', None, "whole number 9007199254740993 among"),
        ('{"a":0.5}\n{"a":123456789}\n', 1, "123456789.0 is a number that float32 would change"),
    ],
)
def test_json_errors_name_file_and_row(content, row, problem, tmp_path):
    path = text(tmp_path, content, "t.jsonl")
    with pytest.raises(RowError, match=problem) as caught:
        converted(path, tmp_path)
    assert (caught.value.path, caught.value.record) == (str(path), row)


def test_json_of_structures_says_what_to_do(tmp_path):
    for value in ('{"b":1}', '[{"b":1}]', "[[1]]"):
        with pytest.raises(UsageError, match=r"column 'a' .* which no feature can be: split it"):
            converted(text(tmp_path, f'{{"a":{value}}}\n', "t.jsonl"), tmp_path)
    assert converted(text(tmp_path, '{"a":[[1]],"b":1}\n', "t.jsonl"), tmp_path, columns=["b"])[0] == [
        {"b": [1]}
    ]


def test_json_types_that_are_asked_for(tmp_path):
    path = text(tmp_path, '{"a":18446744073709551615,"b":"7","c":5,"d":[]}\n', "t.jsonl")
    types = {"a": "float32", "b": "int64", "c": "string", "d": "float32"}
    records, done = converted(path, tmp_path, types=types)
    assert records == [{"a": [2.0**64], "b": [7], "c": [b"5"], "d": []}]
    assert done.kinds == types


# Parquet, Arrow, frames


def write_as(table, path, kind):
    """One file format; the stream and the file of Arrow are two."""
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=1000)
        return
    with {"arrow": pa.ipc.new_file, "stream": pa.ipc.new_stream}[kind](path, table.schema) as out:
        for batch in table.to_batches(max_chunksize=700):
            out.write_batch(batch)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_arrow_tables_of_every_form(kind, tmp_path):
    rng = np.random.default_rng(1)
    numbers = rng.integers(-5, 5, 5000)
    table = pa.table(
        {
            "i": pa.array(numbers, pa.int16(), mask=numbers == 0),
            "f": pa.array(rng.normal(size=5000)),
            "s": pa.array([f"s{n}" for n in numbers]).dictionary_encode(),
            "l": pa.array([list(range(n)) if n >= 0 else None for n in numbers], pa.list_(pa.uint8())),
            "a.b": pa.array(numbers),
            "a": pa.array([None] * 5000, pa.null()),
        }
    )
    write_as(table, tmp_path / "t", kind)
    records, done = converted(tmp_path / "t", tmp_path, workers=3)
    assert done.kinds == {"i": "int64", "f": "float32", "s": "string", "l": "int64", "a.b": "int64"}
    for record, row in zip(records, table.to_pylist(), strict=True):
        expected = {name: value for name, value in row.items() if value is not None}
        expected |= {"f": float(np.float32(row["f"])), "s": row["s"].encode()}
        assert record == {name: v if isinstance(v, list) else [v] for name, v in expected.items()}
    assert converted(tmp_path / "t", tmp_path, columns=["a.b", "f"])[1].kinds.keys() == {"a.b", "f"}
    with pytest.raises(UsageError, match="has no column 'z': it has 'i', 'f'"):
        converted(tmp_path / "t", tmp_path, columns=["z"])


def test_the_row_at_fault_is_named_far_into_a_table(tmp_path):
    values = np.arange(300_000).astype(np.uint64)
    values[250_000] = 2**63
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet", row_group_size=40_000)
    with pytest.raises(
        RowError, match=r"t.parquet: row 250000: column 'x': 9223372036854775808 does not fit int64"
    ):
        converted(tmp_path / "t.parquet", tmp_path)


def test_what_speaks_arrow_needs_no_file(tmp_path):
    table = pa.table({"x": [1, 2, 3]})
    assert converted(table, tmp_path)[0] == [{"x": [1]}, {"x": [2]}, {"x": [3]}]
    assert converted(table.to_reader(), tmp_path)[0][2] == {"x": [3]}
    with pytest.raises(RowError, match="Table: row 1: column 'x'"):
        converted(pa.table({"x": pa.array([0.5, 123456789.0])}), tmp_path)


@pytest.mark.interop
def test_frames_of_pandas_polars_and_duckdb(tmp_path):
    import duckdb
    import pandas
    import polars

    rows = {"x": [1, 2], "s": ["a", None], "l": [[0.5], []]}
    expected = [{"x": [1], "s": [b"a"], "l": [0.5]}, {"x": [2], "l": []}]
    assert converted(pandas.DataFrame(rows), tmp_path)[0] == expected
    assert converted(polars.DataFrame(rows), tmp_path)[0] == expected
    frame = polars.DataFrame(rows)  # noqa: F841 - by its name
    assert converted(duckdb.sql("select * from frame order by x"), tmp_path)[0] == expected


@pytest.mark.interop
def test_tensorflow_reads_what_a_table_became(tmp_path):
    import tensorflow as tf

    table = pa.table(
        {"i": [2**62, None], "f": [0.5, -1.5], "s": ["é", ""], "l": [[1, 2], []], "b": [b"\xff", None]}
    )
    croupier.convert_table(table, tmp_path / "x.tfrecord")
    raw = [record.numpy() for record in tf.data.TFRecordDataset(str(tmp_path / "x.tfrecord"))]
    expected = [
        {"i": [2**62], "f": [0.5], "s": ["é".encode()], "l": [1, 2], "b": [b"\xff"]},
        {"f": [-1.5], "s": [b""], "l": []},
    ]
    for payload, values in zip(raw, expected, strict=True):
        features = tf.train.Example.FromString(payload).features.feature
        found = {
            name: list(getattr(value, value.WhichOneof("kind")).value) for name, value in features.items()
        }
        assert found == values


# Several tables, shards


def test_several_tables_are_one(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "y": ["a", "b"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": [3], "z": [0.5]}), tmp_path / "2.parquet")
    records, done = converted([tmp_path / "1.parquet", tmp_path / "2.parquet"], tmp_path)
    assert records == [{"x": [1], "y": [b"a"]}, {"x": [2], "y": [b"b"]}, {"x": [3], "z": [0.5]}]
    assert done.kinds == {"x": "int64", "y": "string", "z": "float32"}
    assert converted(str(tmp_path / "*.parquet"), tmp_path)[0] == records
    pq.write_table(pa.table({"x": ["3"]}), tmp_path / "3.parquet")
    with pytest.raises(UsageError, match=r"'x' is int64 in .*1.parquet and string in .*3.parquet: say which"):
        converted(str(tmp_path / "*.parquet"), tmp_path)
    assert converted(str(tmp_path / "*.parquet"), tmp_path, types={"x": "string"})[0][2:] == [
        {"x": [b"3"], "z": [0.5]},
        {"x": [b"3"]},
    ]


def test_inferred_kinds_of_several_files_meet(tmp_path):
    paths = [text(tmp_path, "x\n1\n", "1.csv"), text(tmp_path, "x\n0.5\n", "2.csv")]
    assert converted(paths, tmp_path)[0] == [{"x": [1.0]}, {"x": [0.5]}]
    paths.append(text(tmp_path, "x\nfoo\n", "3.csv"))
    assert converted(paths, tmp_path)[0] == [{"x": [b"1"]}, {"x": [b"0.5"]}, {"x": [b"foo"]}]
    large = text(tmp_path, "x\n123456789123456789\n", "4.csv")
    with pytest.raises(
        RowError, match=r"4.csv: row 0: column 'x': 123456789123456789 is a number that float32"
    ):
        converted([large, paths[1]], tmp_path)
    lines = [text(tmp_path, '{"x":9007199254740993}\n', "1.jsonl"), text(tmp_path, '{"x":0.5}\n', "2.jsonl")]
    with pytest.raises(
        RowError, match=r"1.jsonl: row 0: column 'x': 9007199254740993 is a number that float32"
    ):
        converted(lines, tmp_path)
    lines[0].write_text('{"x":7}\n')
    assert converted(lines, tmp_path)[0] == [{"x": [7.0]}, {"x": [0.5]}]
    lines[0].write_text('{"x":"7"}\n')
    with pytest.raises(UsageError, match="say which it shall be, as in x=string"):
        converted(lines, tmp_path)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_shards_have_about_the_size_that_is_asked_for(compression, tmp_path):
    rng = np.random.default_rng(3)
    values = [
        rng.bytes(500) if compression == "none" else rng.integers(0, 9, 1000).tobytes() for _ in range(4000)
    ]
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet")
    done = croupier.convert_table(
        tmp_path / "t.parquet", tmp_path / "out" / "x", shard_size=200_000, compression=compression
    )
    sizes = [os.path.getsize(path) for path in done.paths]
    assert len(sizes) > 4
    assert 150_000 < np.mean(sizes) < 220_000
    assert done.records == 4000
    firsts = [decode(next(iter(croupier.read(path))))["x"][0] for path in done.paths]
    assert firsts == values[: len(sizes)], "rows are dealt in turn"
    one = croupier.convert_table(tmp_path / "t.parquet", tmp_path / "one" / "x")
    assert [os.path.basename(path) for path in one.paths] == ["x-00000-of-00001.tfrecord"]
    three = croupier.convert_table(tmp_path / "t.parquet", tmp_path / "three" / "x", shards=3)
    assert len(three.paths) == 3


def test_workers_make_no_difference(tmp_path):
    table = pa.table({"x": np.arange(200_000), "y": [[number] for number in range(200_000)]})
    for workers in (1, 2, 5):
        croupier.convert_table(table, tmp_path / f"{workers}.tfrecord", workers=workers)
    contents = {(tmp_path / f"{workers}.tfrecord").read_bytes() for workers in (1, 2, 5)}
    assert len(contents) == 1


# What is wrong


def test_wrong_calls(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"x": [decimal.Decimal("1.5")]}), tmp_path / "d.parquet")
    text(tmp_path, "hello", "t.txt")
    for source, prefix, options, problem in [
        (tmp_path / "t.txt", "x", {}, "is neither Parquet nor Arrow; for CSV and JSON lines say so"),
        (tmp_path, "x", {}, "is a folder: name the tables in it"),
        ("-", "x", {}, "standard input cannot be read twice"),
        (tmp_path / "t.parquet", "y.parquet", {}, "is a table's name"),
        (tmp_path / "d.parquet", "x", {}, "column 'x' is decimal128.*: make it a number or text first"),
        (tmp_path / "t.parquet", "x", {"format": "xls"}, "a table is parquet, arrow, csv, jsonl, not 'xls'"),
        (tmp_path / "t.parquet", "x", {"shard_size": 0}, "shard_size must be at least 1"),
        (tmp_path / "t.parquet", "x", {"shards": 0}, "shards must be at least 1"),
        (tmp_path / "t.parquet", "x", {"compression": "lz4"}, "compression must be none, gzip or zlib"),
        ([], "x", {}, "no input was given"),
    ]:
        with pytest.raises(UsageError, match=problem):
            croupier.convert_table(source, tmp_path / prefix, **options)
    with pytest.raises(croupier.InputNotFoundError):
        croupier.convert_table(tmp_path / "none.parquet", tmp_path / "x")
    (tmp_path / "there.tfrecord").write_bytes(b"")
    with pytest.raises(UsageError, match="exists"):
        croupier.convert_table(tmp_path / "t.parquet", tmp_path / "there.tfrecord")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_damaged_tables_are_errors_and_never_crashes(kind, tmp_path):
    """In a process of its own, as a crash would take this one along."""
    table = pa.table(
        {"s": [f"value {n}" * (n % 5) for n in range(300)], "l": [[n] * (n % 3) for n in range(300)]}
    )
    write_as(table, tmp_path / "t", kind)
    script = (
        "import sys, random, croupier\n"
        "whole = open(sys.argv[1], 'rb').read(); rng = random.Random(7); outcomes = {}\n"
        "for turn in range(400):\n"
        "    content = bytearray(whole)\n"
        "    for _ in range(rng.randint(1, 4)):\n"
        "        content[rng.randrange(8, len(content) - 8)] = rng.randrange(256)\n"
        "    if turn % 4 == 0: del content[rng.randrange(8, len(content)):]\n"
        "    open(sys.argv[2], 'wb').write(content)\n"
        "    try: croupier.convert_table(sys.argv[2], sys.argv[3], overwrite=True); name = 'whole'\n"
        "    except croupier.CroupierError as error: name = type(error).__name__\n"
        "    outcomes[name] = outcomes.get(name, 0) + 1\n"
        "print(outcomes)\n"
    )
    arguments = [tmp_path / "t", tmp_path / "broken", tmp_path / "x.tfrecord"]
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "RowError" in done.stdout


@settings(max_examples=100)
@given(st.binary(max_size=60), st.sampled_from(["csv", "jsonl"]))
def test_any_text_is_read_or_refused(content, kind):
    import tempfile

    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, f"t.{kind}")
        with open(path, "wb") as file:
            file.write(b"a,b\n" + content if kind == "csv" else b'{"a":1}\n{"b":"' + content)
        croupier.convert_table(path, os.path.join(folder, "x.tfrecord"))
    except (RowError, UsageError):
        pass
    finally:
        shutil.rmtree(folder)


# The command


def test_convert_for_people_and_for_scripts(command, tmp_path):
    path = text(tmp_path, "id,name\n1,007\n2,008\n")
    done = command("convert", path, tmp_path / "out" / "people", "--compression", "gzip")
    assert (done.code, done.err) == (0, "")
    target = tmp_path / "out" / "people-00000-of-00001.tfrecord.gz"
    assert done.out.splitlines() == [
        f"2 records in 1 file: {os.path.getsize(target)} B, {target}",
        "  id    int64",
        "  name  string",
    ]
    done = command("convert", path, tmp_path / "x.tfrecord", "--types", "name=int64,id=float32", "--json")
    assert json.loads(done.out) == {
        "records": 2,
        "features": {"id": "float32", "name": "int64"},
        "files": [str(tmp_path / "x.tfrecord")],
    }
    assert [decode(p)["name"].tolist() for p in croupier.read(tmp_path / "x.tfrecord")] == [[7], [8]]
    for arguments, code, problem in [
        ([path, tmp_path / "x.tfrecord"], 2, "exists"),
        ([path], 2, "Missing argument"),
        ([path, tmp_path / "y", "--shards", 2, "--shard-size", "1MB"], 2, "exclude each other"),
        ([path, tmp_path / "y", "--shard-size", "many"], 2, "'many' is no size"),
        ([path, tmp_path / "y", "--types", "name"], 2, "--types wants name=type"),
        (
            [path, tmp_path / "y", "--types", "name=float32", "--columns", "id"],
            2,
            "there is no column 'name'",
        ),
        ([text(tmp_path, "a,b\n1\n", "bad.csv"), tmp_path / "y"], 1, "bad.csv: row 0: Expected 2 columns"),
    ]:
        done = command("convert", *arguments)
        assert (done.code, "Traceback" in done.err) == (code, False), done.err
        assert problem in done.err


@pytest.mark.parametrize(
    ("said", "size"),
    [("1000", 1000), ("150MB", 150_000_000), ("1.5 GB", 1_500_000_000), ("64MiB", 64 << 20), ("2k", 2000)],
)
def test_sizes_as_people_write_them(said, size):
    from croupier.cli import text as cli_text

    assert cli_text.bytes_of(None, None, said) == size
