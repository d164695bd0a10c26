"""The command as a person or a script meets it: output, exit codes, pipes."""

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

import croupier
from croupier.cli import text
from croupier.runtime import Progress

COMMAND = [sys.executable, "-m", "croupier"]


@pytest.fixture
def data(tmp_path):
    with croupier.writer(tmp_path / "data" / "train", shards=3, compression="gzip") as out:
        out.write_many([b"record %d" % number for number in range(100)])
    return tmp_path / "data"


def test_show_prints_the_first_ten(command, data):
    ran = command("show", data / "train-00000-of-00003.tfrecord.gz")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert len(lines) == 11
    assert lines[2].split()[:3] == ["1", "24", "8"]
    assert "|record 3|" in lines[2]


def test_show_one_record_raw(command, data):
    ran = command("show", data / "train-00001-of-00003.tfrecord.gz", "--record", 5, "--raw")
    assert (ran.code, ran.raw) == (0, b"record 16")


def test_show_head_as_json(command, data):
    ran = command("show", data / "train-00000-of-00003.tfrecord.gz", "--head", 3, "--json")
    first, _, third = map(json.loads, ran.out.splitlines())
    path = str(data / "train-00000-of-00003.tfrecord.gz")
    assert first == {"path": path, "record": 0, "offset": 0, "bytes": 8, "first": b"record 0".hex()}
    assert third["offset"] == 48


def test_show_head_zero_shows_nothing(command, data):
    ran = command("show", data / "train-00000-of-00003.tfrecord.gz", "--head", 0)
    assert (ran.code, ran.out) == (0, "")


def test_show_reads_a_pipe(data):
    with (data / "train-00002-of-00003.tfrecord.gz").open("rb") as file:
        done = subprocess.run(
            [*COMMAND, "show", "-", "--record", "32", "--raw"], stdin=file, capture_output=True, check=True
        )
    assert done.stdout == b"record 98"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "NONE"], 2, "no such file"),
        (["show", "FILE", "--record", "34"], 2, "there is no record 34: it has 34"),
        (["show", "FILE", "--head", "1", "--record", "1"], 2, "exclude each other"),
        (["show", "FILE", "--raw", "--json"], 2, "exclude each other"),
        (["show", "FILE", "--record", "-1"], 2, "not in the range"),
        (["show", "FILE", "--colour"], 2, "No such option"),
        (["show", "FILE", "--sample", "1", "--record", "1"], 2, "exclude each other"),
        (["show", "DATA/*", "--record", "100"], 2, "there is no record 100: it has 100"),
        (["index"], 2, "Missing argument"),
        (["index", "NONE"], 2, "no such file"),
        (["index", "-"], 2, "no records by number"),
        (["info", "DATA/*00004*"], 2, "no file matches"),
        (["info", "DATA/train@4"], 2, "4 of 4 shards are not there"),
        (["info", "-"], 2, "no records by number"),
        (["verify"], 2, "name files, or an output by --receipt"),
        (["verify", "NONE"], 2, "no such file"),
        (["verify", "s3://bucket/x"], 2, "only local files"),
        (["verify", "FILE", "--workers", "0"], 2, "not in the range"),
        (["shufle"], 2, "No such command"),
    ],
)
def test_wrong_calls_end_with_2_and_one_clear_line(command, data, arguments, code, message):
    names = {"NONE": data / "none", "FILE": data / "train-00000-of-00003.tfrecord.gz", "DATA": data}
    arguments = [str(names.get(word, word)).replace("DATA/", f"{data}/") for word in arguments]
    ran = command(*arguments)
    assert ran.code == code
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_verify_says_what_is_whole(command, data):
    ran = command("verify", data)
    assert ran.code == 0
    assert ran.out.count("ok ") == 3
    assert ran.out.endswith("3 files: 100 whole records, all whole\n")
    quiet = command("verify", data, "--quiet")
    assert quiet.out == "3 files: 100 whole records, all whole\n"


def test_verify_lists_damage_and_ends_with_1(command, data):
    broken = data / "broken.tfrecord"
    with croupier.writer(broken) as out:
        out.write_many([bytes(100)] * 10)
    content = bytearray(broken.read_bytes())
    content[116 * 3 + 50] ^= 1  # payload of record 3
    content[116 * 7 + 2] ^= 1  # length of record 7
    broken.write_bytes(content + b"tail")
    ran = command("verify", data)
    assert ran.code == 1
    assert "DAMAGED" in ran.out
    assert "bytes 348 to 464, after record 2: the record's payload does not match" in ran.out
    assert "bytes 812 to 928, after record 5: the record's length does not match" in ran.out
    assert "bytes 1160 to 1164, after record 7: the file ends 4 bytes into a record's header" in ran.out
    report = json.loads(command("verify", broken, "--json").out)
    assert (report["ok"], report["records"], report["damaged_ranges"]) == (False, 8, 3)
    assert [(item["begin"], item["end"]) for item in report["damage"]] == [
        (348, 464),
        (812, 928),
        (1160, 1164),
    ]


def test_verify_of_what_is_no_tfrecord_says_what_it_looks_like(command, tmp_path):
    (tmp_path / "table.tfrecord").write_bytes(b"PAR1" + bytes(100))
    ran = command("verify", tmp_path)
    assert ran.code == 1
    assert "a Parquet file" in ran.out


def test_verify_goes_on_after_an_unreadable_file(command, data, monkeypatch):
    (data / "a-tfrecord-loop").symlink_to(data / "a-tfrecord-loop")
    ran = command("verify", data / "train-00000-of-00003.tfrecord.gz", data)
    assert ran.code == 0  # a dangling link is no file
    (data / "a-tfrecord-loop").unlink()
    from croupier import storage

    opened = storage.FileSource.__init__

    def refuse(self, path, start=0, **options):
        with storage.reporting("open", path):
            if "00001" in path:
                raise PermissionError(13, "Permission denied")
        opened(self, path, start, **options)

    monkeypatch.setattr(storage.FileSource, "__init__", refuse)
    ran = command("verify", data)
    assert ran.code == 2
    assert "UNREADABLE" in ran.out
    assert ran.out.count("ok ") == 2


def test_on_corrupt_reports_to_stderr_what_it_passes_over(command, data):
    broken = data / "broken.tfrecord"
    with croupier.writer(broken) as out:
        out.write_many([bytes(100)] * 3)
    content = bytearray(broken.read_bytes())
    content[116 + 50] ^= 1
    broken.write_bytes(content)
    failed = command("show", broken)
    assert failed.code == 1
    assert f"{broken}: record 1, byte 116: the record's payload does not match its checksum" in failed.err
    skipped = command("show", broken, "--on-corrupt", "skip")
    assert skipped.code == 0
    assert "bytes [116, 232) passed over" in skipped.err
    assert len(skipped.out.splitlines()) == 3


def run_on_a_terminal(arguments):
    """Standard error is a terminal, standard output a pipe: (code, output, what the terminal was shown)."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal closes
            while more := os.read(ours, 65536):
                shown += more
        output = process.stdout.read()
    os.close(ours)
    return process.returncode, output.decode(), shown.decode()


def test_progress_on_a_terminal_and_silence_off_it(data):
    code, output, shown = run_on_a_terminal(["verify", data])
    assert code == 0
    assert output.endswith("3 files: 100 whole records, all whole\n")
    assert "100%" in shown
    assert "100 records" in shown
    done = subprocess.run([*COMMAND, "verify", str(data)], capture_output=True, check=True, text=True)
    assert done.stdout == output
    assert done.stderr == ""


def test_a_shuffle_tells_of_all_its_phases_in_one_line(data, tmp_path):
    code, output, shown = run_on_a_terminal(["shuffle", data, tmp_path / "new" / "t"])
    assert code == 0
    assert "100 records" in output
    assert "shuffle: write  100%" in shown
    assert re.search(r"\(\d+% of limit\)  [\d.]+ MB memory", shown)
    lines = shown.replace("\033[K", "").split("\r")
    assert shown.count("\n") == 1
    assert max(len(line.rstrip("\n")) for line in lines) < 80
    assert 1 < len(lines) < 50


def test_a_line_has_what_matters_most_and_no_more_than_there_is_room_for():
    state = Progress("write", 3_000_000_000, 4_000_000_000, "bytes", 1_234_567, 8e8, 1e9, 75.0, 2_500_000_000)
    whole = text.progress_line("shuffle", state, 200)
    assert whole == (
        "shuffle: write   75%  [█████████   ]  3.0 GB of 4.0 GB  1,234,567 records  "
        "800 MB/s (80% of limit)  2.5 GB memory  1:15 min left"
    )
    assert text.progress_line("shuffle", state, 79) == (
        "shuffle: write   75%  800 MB/s (80% of limit)  2.5 GB memory  1:15 min left"
    )
    for width in range(1, 200):
        assert len(text.progress_line("shuffle", state, width)) <= width
    assert text.progress_line("shuffle", state, 40) == "shuffle: write   75%  1:15 min left"
    assert text.progress_line("verify", Progress("verify", 5, None), 79) == "verify  5 B"
    assert text.progress_line("verify", Progress("verify", 0, 0), 79).startswith("verify  100%")
    assert text.progress_line("x", Progress("x", 2, 4, "records"), 79) == "x   50%  [██████      ]  2 of 4"


def test_durations_for_people():
    said = [
        text.duration(seconds) for seconds in (0, 0.44, 9.94, 9.96, 59.4, 59.6, 185, 3599.6, 7800, 360000)
    ]
    assert said == [
        "0.0 s",
        "0.4 s",
        "9.9 s",
        "10 s",
        "59 s",
        "1:00 min",
        "3:05 min",
        "1:00 h",
        "2:10 h",
        "100:00 h",
    ]


def test_index_makes_tables_once(command, data):
    first = command("index", data)
    assert first.code == 0
    assert first.out.splitlines()[0] == "100 records in 3 files: 3 indexed, 0 known already"
    assert first.out.splitlines()[1] == str(data / ".croupier" / "records.table")
    again = command("index", data, "--json")
    assert json.loads(again.out) == {"files": 3, "indexed": 0, "records": 100, "tables": []}
    forced = json.loads(command("index", data, "--json", "--force").out)
    assert forced["indexed"] == 3
    assert forced["tables"] == [str(data / ".croupier" / "records.table")]


def test_index_of_damaged_files_says_where(command, data):
    path = data / "plain.tfrecord"
    path.write_bytes(b"these are no records, and no other format that is known")
    done = command("index", path)
    assert done.code == 1
    assert done.err.startswith(f"croupier: {path}: record 0, byte 0: ")
    assert not (data / ".croupier" / "records.table").exists()


def test_index_that_can_be_kept_nowhere(command, data, monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "cache").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.rmtree(data / ".croupier")
    (data / ".croupier").write_bytes(b"")  # a file where the folder would be: even root cannot write there
    done = command("index", data)
    assert done.code != 0
    assert "kept neither beside the data nor in the cache folder" in done.err
    assert command("info", data).code == 0  # in memory it does


def test_info_for_people_and_for_scripts(command, data):
    shown = command("info", data)
    assert shown.code == 0
    assert shown.out.startswith("100 records in 3 files: ")
    assert "█" in shown.out
    report = json.loads(command("info", data, "--json").out)
    sizes = sorted(map(len, croupier.read(data)))
    assert report["records"] == 100
    assert report["payload_bytes"] == sum(sizes)
    assert (report["smallest"], report["largest"]) == (sizes[0], sizes[-1])
    assert report["quantiles"]["0.5"] == sizes[49]  # exact below 512
    assert sum(one["records"] for one in report["bins"]) == 100
    for one in report["bins"]:
        assert one["records"] == sum(one["least"] <= size < one["below"] for size in sizes)
    assert [shard["records"] for shard in report["shards"]] == [
        len(list(croupier.read(path))) for path in sorted(data.glob("*tfrec*"))
    ]


def test_info_of_nothing_and_of_many_files(command, tmp_path):
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    assert command("info", tmp_path).out.startswith(
        "0 records in 1 file: 0 B of payload, 0 B on disk (plain)"
    )
    with croupier.writer(tmp_path / "many", shards=20) as out:
        out.write_many([b"x"] * 100)
    short, full = command("info", tmp_path / "many@20"), command("info", tmp_path / "many@20", "--shards")
    assert "and 8 more (--shards lists them)" in short.out
    assert full.out.count("many-000") == 20


def test_show_by_number_with_and_without_a_table(command, data):
    payloads = list(croupier.read(data))
    for _ in range(2):
        for number in (0, 41, 99):
            assert command("show", data, "--record", number, "--raw").raw == payloads[number]
            one = json.loads(command("show", data, "--record", number, "--json").out)
            assert (one["record"], one["bytes"]) == (number, len(payloads[number]))
        beyond = command("show", data, "--record", 100)
        assert beyond.code == 2
        assert beyond.err == f"croupier: {data}: there is no record 100: it has 100\n"
        command("index", data)


def test_show_samples(command, data):
    payloads = list(croupier.read(data))
    lines = [json.loads(line) for line in command("show", data, "--sample", 7, "--json").out.splitlines()]
    numbers = [line["record"] for line in lines]
    assert len(set(numbers)) == 7
    assert numbers == sorted(numbers)
    assert all(line["bytes"] == len(payloads[line["record"]]) for line in lines)
    assert (
        command("show", data, "--sample", 7, "--json").out
        == command("show", data, "--sample", 7, "--json").out
    )
    other = command("show", data, "--sample", 7, "--json", "--seed", 1).out
    assert [json.loads(line)["record"] for line in other.splitlines()] != numbers
    assert len(command("show", data, "--sample", 1000, "--json").out.splitlines()) == 100
    people = command("show", data, "--sample", 100).out
    assert all(str(path) in people for path in data.glob("*tfrec*"))


def test_version(command):
    assert command("--version").out.strip() == f"croupier, version {croupier.__version__}"
