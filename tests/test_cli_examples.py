"""What `croupier info` and `croupier show` say of the features of records."""

import base64
import io
import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

import croupier
from croupier.example import SequenceExample, encode, encode_sequence
from croupier.inspect.describe import line, parse, rows, shown
from test_cli import run_on_a_terminal


def write(path, payloads, **options):
    with croupier.writer(path, **options) as out:
        out.write_many(payloads)
    return path


def jpeg(size):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture
def examples(tmp_path):
    rng = random.Random(1)
    picture = jpeg((640, 480))
    payloads = [
        encode(
            {
                "image": picture,
                "label": number % 3,
                "text": f"record {number}",
                "tokens": list(range(number % 50)) or np.zeros(0, np.int64),
                "raw": rng.randbytes(40),
            }
        )
        for number in range(300)
    ]
    write(tmp_path / "x", payloads, shards=3)
    return tmp_path


HOSTILE = "a\x1b[2J\u202eb"


@pytest.fixture
def hostile(tmp_path):
    """Names, texts and images that would do something to a terminal, or to us."""
    payload = encode(
        {HOSTILE: f"{HOSTILE}\r\n", "image": b"\xff\xd8\xff\xe0\x00\x00", HOSTILE * 99: [b"\x1b"] * 99}
    )
    return write(tmp_path / "hostile.tfrecord", [payload] * 3)


# info


def test_info_looks_at_a_few_records(command, examples):
    ran = command("info", examples)
    assert ran.code == 0
    assert "Schema of 48 records at the beginning of 3 files (--schema reads all):" in ran.out
    assert any(row.split()[:5] == ["image", "string", "1", "all", "jpeg,"] for row in ran.out.splitlines())
    report = json.loads(command("info", examples, "--json").out)
    assert report["schema_of"] == 48
    assert [feature["name"] for feature in report["schema"]["features"]] == [
        *("image", "label", "raw", "text", "tokens"),
    ]
    assert not list(examples.glob(".croupier/schema*"))


def test_info_keeps_the_schema_of_all_and_shows_it_from_then_on(command, examples):
    first = command("info", examples, "--schema")
    assert "Schema of all records:" in first.out
    assert "0 to 49" in first.out
    assert len(list(examples.glob(".croupier/schema*"))) == 1
    assert command("info", examples).out == first.out
    report = json.loads(command("info", examples, "--json").out)
    assert report["schema_of"] == report["records"] == 300
    assert json.loads(croupier.infer_schema(examples).to_json()) == report["schema"]
    write(examples / "x", [encode({"other": 1})] * 300, shards=3, overwrite=True)
    assert "at the beginning of" in command("info", examples).out


@pytest.mark.interop
def test_info_prints_a_spec_that_can_be_used(command, examples):
    import tensorflow as tf

    ran = command("info", examples, "--spec")
    assert (ran.code, ran.out) == (0, croupier.infer_schema(examples).parse_spec() + "\n")
    parsed = tf.io.parse_example(list(croupier.read(examples)), eval(ran.out, {"tf": tf}))
    assert sorted(parsed["label"].numpy().tolist()) == [0] * 100 + [1] * 100 + [2] * 100


def test_info_shows_statistics(command, examples):
    ran = command("info", examples, "--stats")
    assert ran.code == 0
    assert "Statistics of 300 records:" in ran.out
    lines = [row.strip() for row in ran.out.splitlines()]
    assert "label  int64, in all records, 1 value each" in lines
    assert "0 to 2, mean 1, std 0.8165, median 1, 5 % to 95 %: 0 to 2" in lines
    assert [row.split() for row in lines if row.endswith(" 100")] == [
        [label, "█" * 40, "100"] for label in "012"
    ]
    report = json.loads(command("info", examples, "--stats", "--json").out)
    assert report["statistics"] == croupier.statistics(examples).as_dict()
    only = json.loads(command("info", examples, "--stats", "--column", "label", "--json").out)
    assert list(only["statistics"]["features"]) == ["label"]


def test_info_shows_progress_on_a_terminal(examples):
    for option, phase in (("--stats", "statistics"), ("--schema", "schema")):
        code, output, terminal = run_on_a_terminal(["info", examples, option])
        assert (code, output[:3]) == (0, "300")
        assert phase in terminal
        assert "300 of 300  300 records" in terminal


def test_info_of_what_is_no_example(command, tmp_path):
    path = write(tmp_path / "x.tfrecord", [b"record %d" % number for number in range(100)])
    ran = command("info", path)
    assert ran.code == 0
    assert "Schema: 16 of 16 records that were looked at are no Examples" in ran.out
    assert json.loads(command("info", path, "--json").out)["schema"] is None
    for option in ("--schema", "--stats", "--spec"):
        ran = command("info", path, option)
        assert ran.code == 1
        assert ran.err.startswith(f"croupier: {path}: record 0")
        assert "no tf.train.Example" in ran.err


def test_info_of_what_cannot_be_read(command, examples):
    path = examples / "x-00000-of-00003.tfrecord"
    command("index", examples)
    content = bytearray(path.read_bytes())
    content[50] ^= 1
    path.write_bytes(content)
    ran = command("info", examples)
    assert ran.code == 0  # as its table says; whether payloads are whole is for verify to say
    assert "Schema: " in ran.out
    assert "payload does not match" in ran.out


def test_info_of_lists(command, tmp_path):
    record = SequenceExample({"a": np.array([1])}, {"b": [np.array([1.5], np.float32)] * 3})
    path = write(tmp_path / "x.tfrecord", [encode_sequence(record)] * 5)
    for options in ([], ["--schema"]):
        assert "SequenceExamples: this is their context" in command("info", path, *options).out


def test_info_of_hostile_names(command, hostile):
    for options in ([], ["--schema"], ["--stats"], ["--spec"]):
        ran = command("info", hostile, *options)
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert "\u202e" not in ran.out
    assert "\\x1b[2J\\u202eb" in ran.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--column", "a"], "--column goes with --stats"),
        (["--spec", "--json"], "--spec prints nothing else"),
        (["--stats", "--column", "labl"], "do you mean 'label'"),
    ],
)
def test_wrong_calls_of_info(command, examples, options, message):
    ran = command("info", examples, *options)
    assert ran.code == 2
    assert message in ran.err


# show


def test_show_has_a_line_for_each_record(command, examples, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = command("show", examples / "x-00000-of-00003.tfrecord").out.splitlines()
    assert len(lines) == 11
    assert "image=JPEG 640x480, 3 channels," in lines[1]
    assert "label=0" in lines[1]
    assert all(len(one) <= 120 for one in lines)
    monkeypatch.setenv("COLUMNS", "20")
    assert len(command("show", examples / "x-00000-of-00003.tfrecord").out.splitlines()) == 11


def test_show_has_a_line_for_each_feature(command, examples):
    payload = next(iter(croupier.read(examples / "x-00001-of-00003.tfrecord")))
    for options in (["--record", 100], ["--record", 100, "--features"]):
        lines = command("show", examples, *options).out.splitlines()
        assert lines[0].startswith("record 100: ")
        assert lines[0].endswith(f"byte 0, {len(payload):,} bytes")
        picture = len(jpeg((640, 480)))
        assert lines[1].split(None, 2) == ["image", "string", f"JPEG 640x480, 3 channels, {picture:,} bytes"]
        assert [one.split()[0] for one in lines[1:]] == ["image", "label", "raw", "text", "tokens"]
    assert command("show", examples, "--sample", 5).out.count("JPEG 640x480") == 5
    assert command("show", examples, "--head", 2, "--features").out.count("JPEG 640x480") == 2


def test_show_gives_features_to_scripts(command, examples):
    plain = json.loads(command("show", examples, "--record", 5, "--json").out)
    assert "features" not in plain
    full = json.loads(command("show", examples, "--record", 5, "--json", "--features").out)
    assert {name: full[name] for name in plain} == plain
    found = croupier.example.decode(croupier.open(examples)[5])
    assert full["features"]["label"] == found["label"].tolist()
    assert full["features"]["text"] == [found["text"][0].decode()]
    assert base64.b64decode(full["features"]["image"][0]["b64"]) == jpeg((640, 480))


def test_show_of_what_is_no_example(command, tmp_path):
    path = write(tmp_path / "x.tfrecord", [b"record 0", encode({"a": 1}), b"", b"\x78\x01"])
    lines = command("show", path).out.splitlines()
    assert "|record 0|" in lines[1]
    assert lines[2].endswith("a=1")
    assert "|x.|" in lines[4]  # a field that no Example has
    assert "no Example" in command("show", path, "--record", 0).out
    assert json.loads(command("show", path, "--record", 0, "--json", "--features").out)["features"] is None
    assert json.loads(command("show", path, "--record", 2, "--json", "--features").out)["features"] == {}


def test_show_of_lists(command, tmp_path):
    steps = [np.array([number, 2], np.int64) for number in range(9)]
    record = SequenceExample({"id": [b"x"]}, {"steps": steps})
    path = write(tmp_path / "x.tfrecord", [encode_sequence(record)])
    assert command("show", path).out.splitlines()[1].endswith("id='x'  steps: 9 steps")
    lines = command("show", path, "--features").out.splitlines()
    assert [row.split() for row in lines[2:5]] == [
        ["steps", "list", "9", "steps"],
        ["[0]", "int64", "0", "2"],
        ["[1]", "int64", "1", "2"],
    ]
    found = json.loads(command("show", path, "--json", "--features").out)
    assert found["features"] == {"id": ["x"]}
    assert found["feature_lists"] == {"steps": [step.tolist() for step in steps]}


def test_show_of_hostile_records(command, hostile):
    for options in ([], ["--features"], ["--json", "--features"]):
        ran = command("show", hostile, *options)
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert "\u202e" not in ran.out
        assert "\r" not in ran.out
        assert len(ran.out) < 20_000
    assert "JPEG with a damaged header, 6 bytes" in command("show", hostile, "--features").out


def test_names_of_files_move_no_cursor(command, tmp_path):
    folder = tmp_path / "\x1b[2J"
    folder.mkdir()
    path = write(folder / "x.tfrecord", [encode({"a": 1})])
    for arguments in (["show", tmp_path / "*" / "*"], ["show", path, "--features"], ["info", path]):
        ran = command(*arguments)
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert "\\x1b[2J/x.tfrecord" in ran.out


def test_raw_and_features_exclude_each_other(command, examples):
    assert command("show", examples, "--raw", "--features").code == 2


# What is shown of values


def test_values_in_short():
    assert shown(np.arange(3)) == "0 1 2"
    assert shown(np.arange(1000)) == f"{' '.join(map(str, range(24)))} ... (1,000 values)"
    assert shown(np.array([1.0, np.nan, 0.1], np.float32)) == "1 nan 0.1"
    assert shown(np.zeros(0, np.int64)) == shown([]) == "nothing"
    assert shown([b""]) == "''"
    assert shown([b"x" * 100]) == f"'{'x' * 60}...' (100 bytes)"
    assert shown([b"a", b"b"]) == "'a', 'b'"
    assert shown([b"a"] * 9) == "'a', 'a', 'a', 'a', ... (9 values)"
    assert shown([b"\x00\xff"]) == "00 ff (2 bytes)"
    assert shown([encode({"a": 1})]) == f"an Example, {len(encode({'a': 1}))} bytes"


def test_examples_in_examples():
    payload = encode({"x": 1})
    for _ in range(10):
        payload = encode({"x": payload})
    listed = list(rows(parse(payload)))
    assert [row.depth for row in listed] == [0, 1, 2, 3]
    assert all(row.shown.startswith("an Example") for row in listed)


def test_features_without_end():
    record = parse(encode({f"{number:05d}": number for number in range(5000)}))
    listed = list(rows(record))
    assert len(listed) == 201
    assert listed[-1].shown == "and 4,800 more"
    assert len(line(record, 80)) == 80


@pytest.mark.parametrize("option", ["--stats", "--schema"])
def test_ctrl_c_in_the_middle_of_a_pass(option, tmp_path):
    """It ends at once, and keeps nothing of what it has seen."""
    path = write(tmp_path / "x.tfrecord", [encode({"x": bytes(100_000)})] * 400)
    script = (
        "import os, sys, time, croupier.cli, croupier.dataset.features as f\n"
        "old = f.decode_batch\n"
        "def decode(*args, **options):\n"
        "    os.write(1, b'reading\\n'); time.sleep(0.2); return old(*args, **options)\n"
        "f.decode_batch = decode\n"
        "croupier.cli.main()\n"
    )
    command = [sys.executable, "-c", script, "info", str(path), option]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert (process.returncode, error.strip()) == (130, b"croupier: interrupted")
    kept = tmp_path / ".croupier"
    assert not [name for name in os.listdir(kept) if "schema" in name or name.endswith(".tmp")]
