"""Schemas: inferred from records, kept beside them, written as JSON and as specs for TensorFlow."""

import json
import os
import random
import shutil

import numpy as np
import pytest

import croupier
from croupier.errors import ExampleError, UsageError
from croupier.example import Kind, encode
from croupier.inspect import kept
from croupier.inspect import schema as inferring
from dataset_help import flip


def write(path, payloads, **options):
    with croupier.writer(path, **options) as out:
        out.write_many(payloads)
    return path


def random_records(rng, count):
    """Dicts with features of every sort: always there or not, of one length or not."""
    return [
        {
            "label": rng.randrange(5),
            "pair": [rng.random(), -1.0],
            "tokens": np.array([rng.randrange(9) for _ in range(rng.randrange(6))], np.int64),
            "word": rng.choice(["", "yes", "größer"]),
            "raw": rng.randbytes(12),
            "raw_shape": [2, 2, 3],
        }
        | ({"rare": 1.5} if rng.random() < 0.01 else {})
        | ({f"number {rng.randrange(3)}": [1, 2]} if rng.random() < 0.5 else {})
        for _ in range(count)
    ]


def oracle(records):
    """(name, kind, required, shortest, longest, present), from the definitions."""
    names = sorted({name for record in records for name in record})
    for name in names:
        have = [np.atleast_1d(record[name]) for record in records if name in record]
        lengths = [len(one) for one in have]
        kind = {"U": Kind.BYTES, "S": Kind.BYTES, "f": Kind.FLOAT, "i": Kind.INT64}[have[0].dtype.kind]
        yield name, kind, len(have) == len(records), min(lengths), max(lengths), len(have)


def facts(schema):
    return [(f.name, f.kind, f.required, f.shortest, f.longest, f.present) for f in schema.values()]


@pytest.fixture(scope="module")
def records():
    return random_records(random.Random(5), 30_000)  # several blocks of columns


@pytest.fixture
def files(records, tmp_path):
    write(tmp_path / "x", map(encode, records), shards=3)
    return tmp_path


def test_all_records_against_plain_python(records, files):
    texts = set()
    for workers in (1, 2, 5):
        schema = croupier.infer_schema(croupier.open(files, index="memory"), workers=workers)
        assert facts(schema) == list(oracle(records))
        texts.add(schema.to_json())
    assert len(texts) == 1
    assert schema.records == 30_000
    assert schema["word"].content == "utf-8"
    assert schema["word"].sizes == (0, 8)
    assert schema["label"].length == 1
    assert schema["tokens"].length is None
    assert (schema["raw"].dtype, schema["raw"].shape) == ("uint8", (2, 2, 3))
    assert (schema["raw_shape"].dtype, schema["raw_shape"].shape) == (None, None)


def test_a_schema_that_was_inferred_fits(records, files):
    data = croupier.open(files)
    schema = croupier.infer_schema(data)
    parts = list(data.columns(schema=schema))
    assert sum(part.records for part in parts) == len(records)
    assert parts[0]["raw"].array.shape == (parts[0].records, 2, 2, 3)


def test_a_sample(records, files):
    schema = croupier.infer_schema(files, 500)
    assert schema.records == 500
    assert {f.name for f in schema.values() if f.required} == {
        n for n, _, every, *_ in oracle(records) if every
    }
    assert schema.to_json() == croupier.infer_schema(files, 500).to_json()
    assert schema.to_json() != croupier.infer_schema(files, 500, seed=1).to_json()
    assert facts(croupier.infer_schema(files, 10**9)) == list(oracle(records))
    assert not list(files.glob(".croupier/schema*"))  # that is not all it seems


def test_shapes_come_from_a_feature_beside(tmp_path):
    def inferred(*rows):
        path = write(tmp_path / f"{random.random()}.tfrecord", map(encode, rows))
        return croupier.infer_schema(path)

    raw = bytes(range(245, 251))
    found = inferred({"image/encoded": raw, "image/shape": [2, 3]})["image/encoded"]
    assert (found.dtype, found.shape) == ("uint8", (2, 3))
    for other in (
        [{"image/encoded": raw, "image/shape": [2, 4]}],
        [{"image/encoded": raw, "image/shape": [2, 3]}, {"image/encoded": raw, "image/shape": [3, 2]}],
        [{"image/encoded": raw * 4, "image/shape": [2, 3]}],  # floats, or int32: who knows?
        [{"image/encoded": raw, "image/shape": [-2, -3]}],
        [{"image/encoded": raw, "image/shape": [6.0]}],
        [{"image/encoded": [raw, raw], "image/shape": [2, 3]}],
        [{"image/encoded": b"text!!", "image/shape": [2, 3]}],
        [{"image/encoded": raw, "image/shape": [1] * 17 + [6]}],
        [{"image/encoded": raw, "image/shape": np.array([], np.int64)}],
    ):
        assert inferred(*other)["image/encoded"].dtype is None


@pytest.mark.real
def test_real_records(shared_data):
    golden = croupier.open(
        shared_data / "golden.training_examples.tfrecord.gz-?????-of-00003", index="memory"
    )
    schema = croupier.infer_schema(golden)
    assert schema.records == 49
    assert list(schema) == [
        "alt_allele_indices/encoded",
        "image/encoded",
        "image/shape",
        "label",
        "locus",
        "sequencing_type",
        "variant/encoded",
        "variant_type",
    ]
    info = json.loads((shared_data / "example_info.json").read_text())
    assert schema["image/encoded"].shape == tuple(info["shape"])
    assert schema["image/encoded"].dtype == "uint8"
    assert [f.content for f in schema.values() if f.kind is Kind.BYTES] == ["proto", "raw", "utf-8", "proto"]
    assert all(feature.required for feature in schema.values())
    for part in golden.columns(["image/encoded"], schema=schema):
        assert part["image/encoded"].array.shape == (part.records, 100, 221, 7)
    bridge = croupier.open(shared_data / "bridge-train.tfrecord-00000-of-00001", index="memory")
    assert croupier.infer_schema(bridge)["steps/observation/image"].content == "png"
    dmlab = croupier.open(shared_data / "dmlab-test.tfrecord-00000-of-00001", index="memory")
    assert croupier.infer_schema(dmlab)["image"].content == "jpeg"


# What cannot be inferred


def test_records_that_are_no_examples(tmp_path):
    payloads = [encode({"a": 1})] * 9000 + [b"no Example"] + [encode({"a": 1})] * 10
    path = write(tmp_path / "x.tfrecord", payloads)
    for ask in (croupier.infer_schema, croupier.statistics):
        with pytest.raises(ExampleError, match=r"no tf\.train\.Example") as caught:
            ask(path)
        assert (caught.value.path, caught.value.record) == (str(path), 9000)


def test_a_feature_that_changes_its_kind(tmp_path):
    for before in (10, 9000):  # in one block of columns, and in different ones
        payloads = [encode({"b": 2, "a": 1})] * before + [encode({"b": 2})] * 5 + [encode({"a": 1.0})] * 3
        path = write(tmp_path / f"{before}.tfrecord", payloads)
        for ask in (croupier.infer_schema, croupier.statistics):
            with pytest.raises(ExampleError, match=r"feature 'a' holds float32, and .*int64") as caught:
                ask(path)
            assert (caught.value.path, caught.value.record) == (str(path), before + 5)


def test_features_without_end(tmp_path, monkeypatch):
    path = write(tmp_path / "x.tfrecord", (encode({f"{i}": 1}) for i in range(1000)))
    monkeypatch.setattr(inferring, "MOST_FEATURES", 900)
    with pytest.raises(ExampleError, match="different features"):
        croupier.infer_schema(path)
    monkeypatch.setattr("croupier.inspect.stats.MOST_FEATURES", 900)
    with pytest.raises(UsageError, match="name the columns"):
        croupier.statistics(path)
    assert len(croupier.statistics(path, ["1", "999"])) == 2


def test_names_without_end(tmp_path):
    path = write(tmp_path / "x.tfrecord", (encode({f"{i}" * 1_000_000: 1}) for i in range(9)))
    with pytest.raises(ExampleError, match="very long names"):
        croupier.infer_schema(path)
    with pytest.raises(UsageError, match="name the columns"):
        croupier.statistics(path)
    assert len(croupier.statistics(path, ["1" * 1_000_000])) == 1


def test_of_nothing(tmp_path):
    path = write(tmp_path / "x.tfrecord", [])
    assert (len(croupier.infer_schema(path)), croupier.infer_schema(path).parse_spec()) == (0, "{\n}")
    path = write(tmp_path / "y.tfrecord", [b"", b""])
    assert (len(croupier.infer_schema(path)), croupier.infer_schema(path).records) == (0, 2)


# Kept


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "x", [encode({"a": 1, "b": [i, i]}) for i in range(100)], shards=2).parent


def kept_files(folder):
    return sorted(folder.glob(".croupier/schema*"))


def no_reading(monkeypatch):
    def refuse(*_):
        raise AssertionError("records are read")

    monkeypatch.setattr(inferring, "stream_columns", refuse)


def test_kept_and_read_no_more(small, monkeypatch):
    schema = croupier.infer_schema(small)
    (file,) = kept_files(small)
    assert json.loads(file.read_bytes())["schema"] == json.loads(schema.to_json())
    with monkeypatch.context() as patched:
        no_reading(patched)
        again = croupier.infer_schema(small)
        assert (dict(again), again.records) == (dict(schema), schema.records)
        with pytest.raises(AssertionError, match="records are read"):
            croupier.infer_schema(croupier.open(small).take(99))
        with pytest.raises(AssertionError, match="records are read"):
            croupier.infer_schema(small / "x-00000-of-00002.tfrecord")
    croupier.infer_schema(small / "x-00000-of-00002.tfrecord")
    assert len(kept_files(small)) == 2


def test_a_copied_dataset_keeps_it(small, tmp_path, monkeypatch):
    croupier.infer_schema(small)
    shutil.copytree(small, tmp_path / "copy")
    no_reading(monkeypatch)
    assert croupier.infer_schema(tmp_path / "copy").records == 100
    monkeypatch.chdir(tmp_path / "copy")
    assert croupier.infer_schema("x@2").records == 100


def test_what_is_stale_is_made_again(small):
    assert set(croupier.infer_schema(small)) == {"a", "b"}
    path = small / "x-00001-of-00002.tfrecord"
    size = path.stat().st_size
    write(path, [encode({"a": 1, "c": [i, i]}) for i in range(50)], overwrite=True)
    assert path.stat().st_size == size
    assert set(croupier.infer_schema(small)) == {"a", "b", "c"}
    flip(path, 100, restore=False)
    with pytest.raises(croupier.DataError):
        croupier.infer_schema(small)


HOSTILE = {
    "nothing": lambda text: b"",
    "cut": lambda text: text[: len(text) // 2],
    "no JSON": lambda text: b"\xff" * 1000,
    "deep": lambda text: b'{"files":' + b"[" * 1_000_000,
    "a list": lambda text: b"[1, 2]",
    "a number": lambda text: b"5",
    "no schema": lambda text: json.dumps({"files": json.loads(text)["files"]}).encode(),
    "other kind": lambda text: text.replace(b"int64", b"int65"),
    "other version": lambda text: text.replace(b'"version": 1', b'"version": 2'),
    "wrong type": lambda text: text.replace(b'"shortest": 1', b'"shortest": "1"'),
    "negative": lambda text: text.replace(b'"shortest": 2', b'"shortest": -2'),
    "impossible": lambda text: text.replace(b'"shortest": 2', b'"shortest": 3'),
    "twice": lambda text: text.replace(b'"name": "a"', b'"name": "b"'),
    "huge number": lambda text: text.replace(b'"records": 100', b'"records": ' + b"9" * 5000),
    "no text": lambda text: text.replace(b'"name": "a"', b'"name": "\\ud800"'),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_damaged_is_made_again(small, what):
    schema = croupier.infer_schema(small)
    (file,) = kept_files(small)
    good = file.read_bytes()
    bad = HOSTILE[what](good)
    assert bad != good
    file.write_bytes(bad)
    assert kept.load(croupier.open(small)) is None
    assert dict(croupier.infer_schema(small)) == dict(schema)
    assert file.read_bytes() == good


def test_what_is_no_small_file_is_made_again(small, monkeypatch):
    croupier.infer_schema(small)
    (file,) = kept_files(small)
    monkeypatch.setattr("croupier.example.schema_json.MOST", file.stat().st_size - 1)
    assert kept.load(croupier.open(small)) is None
    monkeypatch.undo()
    file.unlink()
    os.mkfifo(file)
    assert croupier.infer_schema(small).records == 100  # and does not hang
    assert file.is_file()
    file.unlink()
    file.mkdir()
    assert croupier.infer_schema(small).records == 100  # the cache folder takes it
    with monkeypatch.context() as patched:
        no_reading(patched)
        assert croupier.infer_schema(small).records == 100


def test_where_nothing_may_be_written(small):
    shutil.rmtree(small / ".croupier")
    croupier.infer_schema(croupier.open(small, index="memory"))
    assert not (small / ".croupier").exists()
    (small / ".croupier").write_bytes(b"")  # a file where the folder would be: even root cannot write there
    assert croupier.infer_schema(small).records == 100
    assert kept.load(croupier.open(small)).records == 100
