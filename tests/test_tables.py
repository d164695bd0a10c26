"""Examples to tables and back: the same records, whatever is in them; and what cannot be, said clearly."""

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import croupier
from croupier import UsageError
from croupier.example import BytesList, Feature, Kind, Schema, decode, encode

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = {
    "int": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "float": st.floats(width=32) | st.sampled_from([1.0, -0.0, 16777217.0, 1e30, 7.038531e-26]),
    "text": text,
    "bytes": st.binary(max_size=5),
}


def array(kind, values):
    """A feature that has a kind even where it is empty."""
    if kind == "int":
        return np.array(values, np.int64)
    if kind == "float":
        return np.array([math.nan if math.isnan(value) else value for value in values], np.float32)
    return BytesList(value.encode() if isinstance(value, str) else value for value in values)


@st.composite
def records(draw, kinds=("int", "float", "text", "bytes"), lists=True):
    """(name to kind, records): some features have one value in each record, some any number."""
    names = draw(
        st.lists(text | st.sampled_from(["a", "a.b", "a.b.list"]), min_size=1, max_size=4, unique=True)
    )
    features = {name: draw(st.sampled_from(kinds)) for name in names}
    single = {name: not lists or draw(st.booleans()) for name in names}
    made = []
    for _ in range(draw(st.integers(1, 12))):
        record = {}
        for name, kind in features.items():
            if draw(st.integers(0, 3)):
                sizes = {"min_size": 1, "max_size": 1} if single[name] else {"max_size": 3}
                record[name] = array(kind, draw(st.lists(VALUES[kind], **sizes)))
        made.append(record)
    return features, made


def write(folder, made):
    """The payloads, in a file and as a list."""
    payloads = [encode(record) for record in made]
    with croupier.writer(folder / "in" / "x.tfrecord", overwrite=True) as out:
        out.write_many(payloads)
    return croupier.open(folder / "in" / "x.tfrecord", index="memory"), payloads


def there_and_back(folder, made, kind, content=None, **options):
    """What a table of these records becomes again."""
    data, payloads = write(folder, made)
    schema = croupier.infer_schema(data)
    for name in content or ():
        schema = schema.replace(name, content=content[name])
    table = croupier.export(data, folder / f"table.{kind}", schema=schema, overwrite=True)
    assert table.records == len(payloads)
    assert os.path.getsize(table.path) == table.bytes
    back = croupier.convert_table(table.path, folder / "back.tfrecord", overwrite=True, **options)
    assert back.records == len(payloads)
    return payloads, list(croupier.read(back.paths))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_records_come_back_byte_for_byte(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("round")

    @settings(max_examples=60)
    @given(records())
    def check(case):
        features, made = case
        assume(any(made))
        if kind == "jsonl":  # nobody can tell what a list is of that is always empty
            for name in features:
                values = [record[name] for record in made if name in record]
                assume(not values or any(map(len, values)))
        payloads, back = there_and_back(folder, made, kind)
        assert back == payloads

    check()


def test_csv_of_single_values_comes_back_byte_for_byte(tmp_path_factory):
    folder = tmp_path_factory.mktemp("round")

    @settings(max_examples=60)
    @given(records(("int", "float", "text"), lists=False))
    def check(case):
        features, made = case
        assume(any(made))
        there = {name for record in made for name in record}
        kinds = {"int": "int64", "float": "float32", "text": "string"}
        types = {name: kinds[kind] for name, kind in features.items() if name in there}
        content = {name: "utf-8" for name in there if features[name] == "text"}  # inferred where it is print
        payloads, back = there_and_back(folder, made, "csv", content, types=types)
        assert back == payloads

    check()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_numbers_are_told_from_each_other_without_help(kind, tmp_path):
    odd = np.uint32(0x15AE43FD).view(np.float32)  # whose shortest decimal a float64 leads astray
    numbers = [0.0, -0.0, 1.0, 1.5, 0.1, 1e-45, 3.4028235e38, 123456792.0, 16777216.0, odd, -odd, 5e-324]
    made = [{"i": number * 7, "f": np.float32(value)} for number, value in enumerate(numbers)]
    made += [{"i": 2**63 - 1, "f": np.float32(np.inf)}, {"i": -(2**63), "f": np.float32(-np.inf)}, {"i": 0}]
    payloads, back = there_and_back(tmp_path, made, kind)
    assert back == payloads
    rng = np.random.default_rng(5)
    many = rng.integers(0, 2**32, 20_000, np.uint32).view(np.float32)
    payloads, back = there_and_back(tmp_path, [{"f": value} for value in many[~np.isnan(many)]], kind)
    assert back == payloads


def test_bits_of_nans_survive_parquet_and_arrow(tmp_path):
    nans = np.array([0x7FC00000, 0x7FC00001, 0xFFC12345, 0x7F800001], np.uint32).view(np.float32)
    for kind in ("parquet", "arrow"):
        payloads, back = there_and_back(tmp_path, [{"f": nan} for nan in nans], kind)
        assert back == payloads


def test_raw_tensors_survive(tmp_path):
    data, payloads = write(tmp_path, [{"x": np.arange(6, dtype=np.float32).tobytes()}, {}, {"x": bytes(24)}])
    for shape in ((2, 3), None):
        schema = croupier.infer_schema(data).replace("x", dtype="float32", shape=shape)
        for kind in ("parquet", "arrow", "jsonl"):
            table = croupier.export(data, tmp_path / "t", kind, schema=schema, overwrite=True)
            kinds = {"parquet": pq.read_table, "arrow": lambda path: pa.ipc.open_file(path).read_all()}
            if kind in kinds:
                assert kinds[kind](table.path)["x"].to_pylist() == [[0, 1, 2, 3, 4, 5], None, [0] * 6]
            back = croupier.convert_table(table.path, tmp_path / "b.tfrecord", format=kind, overwrite=True)
            assert list(croupier.read(back.paths)) == payloads


# What others read

MADE = [
    {"id": 1, "w": [0.5, 2.0], "name": "a,b", "raw": b"\xff"},
    {"id": 2, "w": np.zeros(0, np.float32), "name": 'say "hi"', "raw": b""},
    {"id": 3, "name": "é\n\x01", "raw": b"\x00"},
]


def test_json_lines_are_json(tmp_path):
    data, _ = write(tmp_path, MADE)
    croupier.export(data, tmp_path / "t.jsonl")
    assert [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [
        {"id": 1, "w": [0.5, 2.0], "name": "a,b", "raw": {"b64": "/w=="}},
        {"id": 2, "w": [], "name": 'say "hi"', "raw": {"b64": ""}},
        {"id": 3, "name": "é\n\x01", "raw": {"b64": "AA=="}},
    ]


def test_csv_is_csv(tmp_path):
    data, _ = write(tmp_path, [*MADE, {"name": "", "id": -1}])
    croupier.export(data, tmp_path / "t.csv", columns=["name", "id"])
    content = (tmp_path / "t.csv").read_bytes().decode()
    assert list(csv.reader(io.StringIO(content, newline=""))) == [
        ["name", "id"],
        ["a,b", "1"],
        ['say "hi"', "2"],
        ["é\n\x01", "3"],
        ["", "-1"],
    ]


@pytest.mark.interop
def test_pandas_polars_and_duckdb_read_the_files(tmp_path):
    import duckdb
    import pandas
    import polars

    made = [
        {"id": n, "label": f"l{n % 3}", "x": [n / 2, 1.0]} | ({"opt": n} if n % 2 else {}) for n in range(99)
    ]
    data, _ = write(tmp_path, made)
    expected = {f"l{label}": sum(range(label, 99, 3)) for label in range(3)}
    for kind in ("parquet", "jsonl", "csv", "arrow"):
        path = tmp_path / f"t.{kind}"
        croupier.export(data, path, columns=["id", "label", "opt"] + (["x"] if kind != "csv" else []))
        read = {
            "parquet": (pandas.read_parquet, polars.read_parquet),
            "jsonl": (lambda path: pandas.read_json(path, lines=True), polars.read_ndjson),
            "csv": (pandas.read_csv, polars.read_csv),
            "arrow": (pandas.read_feather, polars.read_ipc),
        }[kind]
        frame = read[0](path)
        assert frame.groupby("label")["id"].sum().to_dict() == expected
        assert int(frame["opt"].isna().sum()) == 50
        assert dict(read[1](path).group_by("label").agg(polars.col("id").sum()).rows()) == expected
        if kind != "arrow":
            rows = duckdb.sql(f"select label, sum(id), count(opt) from '{path}' group by label").fetchall()
            assert {label: int(total) for label, total, _ in rows} == expected
            assert sum(count for _, _, count in rows) == 49


# What cannot be


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"w": [1.0, 2.0], "id": 1}, "feature 'w' has not one value in each record: choose parquet"),
        ({"raw": b"\xff"}, "feature 'raw' is bytes that need not be UTF-8"),
    ],
)
def test_csv_says_what_it_has_no_room_for(record, problem, tmp_path):
    data, _ = write(tmp_path, [record])
    with pytest.raises(UsageError, match=problem):
        croupier.export(data, tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


def test_wrong_calls(tmp_path):
    data, _ = write(tmp_path, MADE)
    (tmp_path / "there.parquet").write_bytes(b"")
    for out, to, more, problem in [
        ("t.txt", None, {}, "say what it shall be: parquet, arrow, csv, jsonl"),
        ("t", "xlsx", {}, "not as 'xlsx'"),
        ("there.parquet", None, {}, "exists; ask for overwrite"),
        ("t.parquet", None, {"columns": ["nay"]}, "there is no feature 'nay'"),
        ("t.parquet", None, {"columns": []}, "no features that could be columns"),
        (".", "csv", {}, "is a folder"),
    ]:
        with pytest.raises(UsageError, match=problem):
            croupier.export(data, tmp_path / out, to, **more)
    assert (tmp_path / "there.parquet").read_bytes() == b""
    empty, _ = write(tmp_path / "empty", [])
    with pytest.raises(UsageError, match="no features that could be columns"):
        croupier.export(empty, tmp_path / "t.parquet")


def test_tables_of_no_rows(tmp_path):
    empty, _ = write(tmp_path, [])
    schema = Schema({"x": Feature("x", Kind.INT64, shortest=1, longest=1)})
    for kind in ("parquet", "arrow", "csv"):
        table = croupier.export(empty, tmp_path / f"t.{kind}", schema=schema)
        assert table.records == 0
        assert croupier.convert_table(table.path, tmp_path / f"{kind}.tfrecord").records == 0


def test_a_record_unlike_the_schema_is_named_and_nothing_is_left(tmp_path):
    data, _ = write(tmp_path, MADE)
    for schema, problem in [
        (croupier.infer_schema(data).replace("raw", content="utf-8"), "record 0: feature 'raw' is not UTF-8"),
        (croupier.infer_schema(data.take(1)), "record 1: feature 'w'"),
    ]:
        for kind in ("parquet", "arrow", "jsonl"):
            with pytest.raises(croupier.ExampleError, match=problem) as caught:
                croupier.export(data, tmp_path / f"t.{kind}", schema=schema)
            assert str(tmp_path / "in" / "x.tfrecord") in str(caught.value)
    assert os.listdir(tmp_path) == ["in"]


def test_a_file_object_takes_a_table(tmp_path):
    data, payloads = write(tmp_path, MADE)
    room = io.BytesIO()
    done = croupier.export(data, room, "parquet")
    assert (done.path, done.bytes) == (None, len(room.getvalue()))
    back = croupier.convert_table(pq.read_table(io.BytesIO(room.getvalue())), tmp_path / "b.tfrecord")
    assert list(croupier.read(back.paths)) == payloads


def test_a_refusing_disk_leaves_nothing(tmp_path):
    """Through pyarrow's writers, too, the error is ours and says how far it came."""
    data, _ = write(tmp_path, [{"x": os.urandom(1000)} for _ in range(1000)])
    script = (
        "import resource, signal, sys, croupier\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "data = croupier.open(sys.argv[1], index='memory'); croupier.infer_schema(data)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: croupier.export(data, sys.argv[2])\n"
        "except croupier.StorageError as error: print(error)\n"
    )
    for kind in ("parquet", "arrow", "jsonl"):
        path = tmp_path / "out" / f"t.{kind}"
        done = subprocess.run(
            [sys.executable, "-c", script, data.paths[0], path], capture_output=True, text=True, check=True
        )
        assert f"{path}: cannot write after 100,000 bytes: File too large" in done.stdout
        assert done.stderr == ""
        assert os.listdir(tmp_path / "out") == []


def test_cancelling_and_progress(tmp_path):
    data, _ = write(tmp_path, [{"x": number} for number in range(30_000)])
    croupier.infer_schema(data)
    seen = []
    croupier.export(data, tmp_path / "t.parquet", progress=seen.append)
    assert (seen[-1].phase, seen[-1].done, seen[-1].total, seen[-1].records) == (
        "export",
        30_000,
        30_000,
        30_000,
    )
    stop = threading.Event()
    stop.set()
    with pytest.raises(croupier.CancelledError):
        croupier.export(data, tmp_path / "u.parquet", cancel=stop)
    assert not (tmp_path / "u.parquet").exists()
    stop = threading.Event()
    with pytest.raises(croupier.CancelledError):
        croupier.convert_table(
            tmp_path / "t.parquet", tmp_path / "b.tfrecord", cancel=stop, progress=lambda state: stop.set()
        )
    assert not (tmp_path / "b.tfrecord").exists()


# The command


def test_export_for_people_for_scripts_and_for_pipes(command, tmp_path):
    data, _ = write(tmp_path, MADE)
    path = data.paths[0]
    done = command("export", path, "-o", tmp_path / "t.parquet")
    assert (done.code, done.err) == (0, "")
    size = os.path.getsize(tmp_path / "t.parquet")
    assert done.out == f"3 records, 4 columns: {size / 1000:.1f} KB of parquet in {tmp_path / 't.parquet'}\n"
    done = json.loads(command("export", path, "-o", tmp_path / "t.csv", "--columns", "id,name", "--json").out)
    assert done["columns"] == {"id": "int64", "name": "large_string"}
    assert (done["records"], done["format"]) == (3, "csv")
    piped = command("export", path, "--to", "jsonl", "-o", "-")
    assert [json.loads(line)["id"] for line in piped.raw.splitlines()] == [1, 2, 3]
    schema = croupier.infer_schema(data)
    schema.save(tmp_path / "schema.json")
    done = command("export", path, "-o", tmp_path / "u.arrow", "--schema", tmp_path / "schema.json")
    assert done.code == 0
    for arguments, problem in [
        (["-o", tmp_path / "t.parquet"], "exists"),
        (["-o", "-"], "standard output takes --to csv or --to jsonl"),
        (["-o", "-", "--to", "parquet"], "standard output takes"),
        (["-o", "-", "--to", "csv", "--json"], "exclude each other"),
        ([], "Missing option"),
        (["-o", tmp_path / "v.csv"], "choose parquet"),
    ]:
        done = command("export", path, *arguments)
        assert done.code == 2
        assert problem in done.err
        assert "Traceback" not in done.err
    assert command("export", path, "-o", tmp_path / "t.parquet", "--overwrite").code == 0


def test_export_of_damaged_records_ends_with_1(command, tmp_path):
    path = tmp_path / "x.tfrecord"
    with croupier.writer(path) as out:
        out.write_many([encode({"x": 1}), b"no Example", encode({"x": 2})])
    done = command("export", path, "-o", tmp_path / "t.parquet")
    assert done.code == 1
    assert f"{path}: record 1" in done.err
    assert not (tmp_path / "t.parquet").exists()


def test_a_closed_pipe_is_no_error(tmp_path):
    data, _ = write(tmp_path, [{"x": number} for number in range(200_000)])
    croupier.infer_schema(data)
    line = f"{sys.executable} -m croupier export {data.paths[0]} --to jsonl -o - | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ('{"x":0}\n', "")


@pytest.mark.unsanitized
@pytest.mark.parametrize("verb", ["export", "convert"])
def test_ctrl_c_leaves_nothing(verb, tmp_path):
    data, _ = write(tmp_path, [{"x": bytes(200_000), "n": number} for number in range(1000)])
    croupier.infer_schema(data)
    source, target = data.paths[0], tmp_path / "out" / "t.jsonl"
    if verb == "convert":
        croupier.export(data, tmp_path / "t.jsonl")
        source, target = tmp_path / "t.jsonl", tmp_path / "out" / "b.tfrecord"
    script = (
        "import sys, os, croupier.cli, croupier.storage as s\n"
        "old = s.AtomicFile.write\n"
        "def write(self, *pieces):\n"
        "    '/out/' in self.path and print('writing', flush=True); old(self, *pieces)\n"
        "s.AtomicFile.write = write\n"
        "croupier.cli.main()\n"
    )
    arguments = [source, "-o", target] if verb == "export" else [source, target]
    with subprocess.Popen(
        [sys.executable, "-c", script, verb, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert error.strip() == b"croupier: interrupted"
    assert [name for name in os.listdir(tmp_path / "out") if name != ".croupier"] == []


def test_nan_is_written_as_readers_know_it(tmp_path):
    data, _ = write(tmp_path, [{"x": value} for value in (math.nan, math.inf, -math.inf, 1.0)])
    croupier.export(data, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().split() == ["x", "NaN", "inf", "-inf", "1.0"]
    croupier.export(data, tmp_path / "t.jsonl")
    values = [json.loads(line)["x"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert str(values) == "[nan, inf, -inf, 1.0]"
    assert decode(next(iter(data)))["x"].tolist() != [1.0]
