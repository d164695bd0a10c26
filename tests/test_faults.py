"""The promises of storage.py and publish.py, kept when the machine or the user breaks in at any moment."""

import contextlib
import functools
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

import pytest

import croupier
import faults
from croupier import storage
from croupier.errors import StorageError, UsageError
from croupier.publish import finish_publication
from croupier.storage import AtomicFile
from faults import MODES, SCENARIOS

pytestmark = pytest.mark.unsanitized  # the shim and the sanitizers both want to be loaded first

linux = pytest.mark.skipif(sys.platform != "linux", reason="the shim and /dev/full are Linux's")
STRIDE = 4  # of the calls, in the scenarios that move megabytes; `make campaign` tries all


@pytest.fixture(scope="session")
def lab():
    lab = faults.Lab()
    yield lab
    lab.close()


def run(lab, name, mode, every=1):
    """All cases of one mode, or each `every`-th; the offset differs between modes, so that together they
    meet every call."""
    scenario = SCENARIOS[name]
    cases = lab.model(scenario).cases(mode)
    offset = list(MODES).index(mode) % every
    assert cases
    complaints = [text for at in cases[offset::every] for text in lab.trial(scenario, at, mode).complaints]
    assert not complaints, "\n".join(complaints)


# --- a fault at every call ------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["replace", "plain"])
def test_every_call(lab, name, mode):
    run(lab, name, mode)


@linux
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["gzip", "overwrite"])
def test_shards(lab, name, mode):
    run(lab, name, mode, every=STRIDE)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["gzip", "overwrite"])
def test_every_call_of_shards(lab, name, mode):
    run(lab, name, mode)


@linux
@pytest.mark.parametrize("first", ["journal", "half-way", "end"])
@pytest.mark.parametrize("name", ["plain", pytest.param("gzip", marks=pytest.mark.slow)])
def test_killed_again_while_finishing(lab, name, first):
    """The first writer is killed after its journal; the second at each call of finishing that."""
    scenario, model = SCENARIOS[name], lab.model(SCENARIOS[name])
    first_shard = model.trace.index("rename /" + scenario.files[0]) + 1
    at = {"journal": model.turn, "half-way": first_shard, "end": len(model.kinds)}[first]
    how = "kill-before" if first == "end" else "kill-after"
    complaints, outcome, then = [], "killed", 0
    while outcome == "killed":
        then += 1
        trial = lab.trial(scenario, at, how, [(then, "kill-after")])
        complaints += trial.complaints
        outcome = trial.outcomes[-1]
    assert then > 5
    assert not complaints, "\n".join(complaints)


@linux
def test_the_clean_files_are_right(lab):
    """All trials compare with these, so others than our writer must agree that they are whole."""
    contents = {"plain": faults.small(1, 200), "gzip": faults.large(2), "overwrite": faults.large(2)}
    for name, records in contents.items():
        scenario, model = SCENARIOS[name], lab.model(SCENARIOS[name])
        for number, file in enumerate(scenario.files):
            path, expected = model.after / file, records[number :: len(scenario.files)]
            (report,) = croupier.verify(path)
            assert report.ok
            assert report.records == len(expected)
            data = gzip.decompress(path.read_bytes()) if name != "plain" else path.read_bytes()
            assert payloads(data) == expected
        receipt = json.loads((model.after / model.receipt).read_text())
        assert receipt["in"] == receipt["out"]
        assert receipt["in"]["records"] == len(records)
        names = [os.path.basename(file) for file in scenario.files]
        assert [shard["name"] for shard in receipt["shards"]] == names
        sizes = [(model.after / file).stat().st_size for file in scenario.files]
        assert [shard["file_bytes"] for shard in receipt["shards"]] == sizes


def payloads(data):
    """TFRecord in four lines."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 12 : at + 12 + length])
        at += length + 16
    assert at == len(data)
    return found


@linux
def test_the_shim_sees_what_it_should(lab):
    """If the interpreter called something else than we count, the above would pass and prove nothing."""
    trace = lab.model(SCENARIOS["replace"]).trace
    kinds = [line.split()[0] for line in trace]
    for kind in ("open", "flock", "write", "fsync", "rename", "close"):
        assert kind in kinds, trace
    assert kinds.index("write") < kinds.index("fsync") < kinds.index("rename"), "flushed before it is renamed"
    assert kinds[-3:] == ["open", "fsync", "close"], "then the folder is flushed"


@linux
def test_shards_are_flushed_before_the_journal_and_renamed_after_it(lab):
    trace = lab.model(SCENARIOS["overwrite"]).trace
    named = [i for i, line in enumerate(trace) if line.startswith(("rename", "link"))]
    flushed = [i for i, line in enumerate(trace) if line.startswith("fsync")]
    targets = [trace[i].split("/")[-1] for i in named]
    assert targets == ["t.publishing.json", *SCENARIOS["overwrite"].files, "t.receipt.json"]
    assert sum(i < named[0] for i in flushed) >= 4, "three shards and the journal"
    between = [trace[i] for i in flushed if named[0] < i < named[1]]
    assert any(line.endswith("/.croupier") for line in between), "the journal's name, before it counts"
    assert trace[-1] == "unlink /.croupier/t.publishing.json"


# --- signals --------------------------------------------------------------------------------------------

ENDLESS = """
import random, signal, sys
import croupier
from croupier import cli
signal.signal(signal.SIGTERM, cli._stop)
signal.signal(signal.SIGINT, signal.default_int_handler)
chunk = [random.Random(1).randbytes(5000) + bytes(5000) for _ in range(100)]
for number in range(1_000_000):
    with croupier.writer(f"{sys.argv[1]}/s{number}", shards=2, compression="gzip", workers=2) as out:
        for _ in range(10):
            out.write_many(chunk)
    if not number:  # all is imported: Python drops what a signal raises in some corners of an import
        print("ready", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_at_any_moment(tmp_path, number):
    """What a writer leaves when it is interrupted: nothing, or a journal and the shards that it promises."""
    rng = random.Random(number)
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with subprocess.Popen(
            [sys.executable, "-c", ENDLESS, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 0.3))
            process.send_signal(number)
            try:
                _, said = process.communicate(timeout=10)
            finally:
                process.kill()
        assert "Exception ignored" not in said
        if number == signal.SIGTERM:
            assert (process.returncode, said) == (128 + signal.SIGTERM, "")
        else:
            assert process.returncode == -signal.SIGINT
            assert "KeyboardInterrupt" in said
        promised = {
            temporary
            for journal in folder.glob(".croupier/*.publishing.json")
            for temporary, _ in json.loads(journal.read_text())["renames"]
        }
        assert {path.name for path in folder.rglob("*.tmp")} <= promised
        for journal in list(folder.glob(".croupier/*.publishing.json")):
            assert finish_publication(str(folder), journal.name.removesuffix(".publishing.json"))
        sets = [path.name.removesuffix(".receipt.json") for path in folder.glob(".croupier/*.receipt.json")]
        shards = sorted(folder.glob("s*"))
        assert [path.name for path in shards] == sorted(
            f"{name}-{i:05d}-of-00002.tfrecord.gz" for name in sets for i in range(2)
        )
        assert not list(folder.rglob("*.tmp"))
        assert not shards or all(report.ok and report.records == 500 for report in croupier.verify(shards))


# --- standard output ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "r.tfrecord"
    with croupier.writer(path) as out:
        out.write_many(b"%06d" % number * 10 for number in range(20_000))
    return path


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "croupier", *map(str, arguments)], stderr=subprocess.PIPE, **options
    )


@linux
@pytest.mark.parametrize("flags", [["--raw"], ["--raw", "--head", "20000"], ["--json"], []])
def test_full_standard_output(records, flags):
    with open("/dev/full", "w") as full, command("show", records, *flags, stdout=full) as process:
        _, said = process.communicate(timeout=60)
    assert b"No space left on device" in said
    assert b"Traceback" not in said
    assert b"Exception ignored" not in said
    assert process.returncode == 2


@pytest.mark.parametrize("flags", [["--raw"], ["--json"], []])
def test_head_has_seen_enough(records, flags):
    """`croupier show ... | head -1` says nothing, and does not end with 1: that would mean damaged data."""
    with command("show", records, "--head", 20_000, *flags, stdout=subprocess.PIPE) as process:
        assert process.stdout.read(20)
        process.stdout.close()
        said = process.stderr.read()
        process.wait(timeout=60)
    assert said == b""
    assert process.returncode == 128 + signal.SIGPIPE


# --- sweep ----------------------------------------------------------------------------------------------


def test_sweep_knows_the_dead_from_the_living(tmp_path):
    living = AtomicFile(tmp_path / "t.tfrecord")
    dead = tmp_path / ".t.tfrecord.0123abcd.tmp"
    others = [
        tmp_path / name for name in (".u.tfrecord.0123abcd.tmp", ".t.tfrecord.tmp", "t.tfrecord.0123abcd.tmp")
    ]
    for path in (dead, *others):
        path.write_bytes(b"half")
    assert storage.sweep(str(tmp_path), ["t.tfrecord"]) == [str(dead)]
    assert not dead.exists()
    assert all(path.exists() for path in others)
    living.write(b"whole")
    living.seal()
    living.publish()
    assert (tmp_path / "t.tfrecord").read_bytes() == b"whole"


@pytest.mark.parametrize(
    "name", ["t[1].tfrecord", "t?*.tfrecord", "t" * 230 + ".tfrecord", "ü" * 110 + ".tfrecord"]
)
def test_what_a_killed_writer_left_is_swept_whatever_the_name(tmp_path, name):
    left = AtomicFile(tmp_path / name)
    os.close(left._fd)  # as a kill would
    with croupier.writer(tmp_path / name) as out:
        out.write(b"x")
    assert not list(tmp_path.rglob("*.tmp"))
    assert list(croupier.read(tmp_path / name)) == [b"x"]


def test_sweep_does_not_follow_links(tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"data")
    (tmp_path / ".t.tfrecord.0123abcd.tmp").symlink_to(target)
    storage.sweep(str(tmp_path), ["t.tfrecord"])
    assert target.read_bytes() == b"data"


# --- journals -------------------------------------------------------------------------------------------

OURS = ".t.tfrecord.0123abcd.tmp"


def lay(folder, journal):
    """A journal, and a temporary file that it may want to rename."""
    (folder / ".croupier").mkdir()
    path = folder / ".croupier/t.tfrecord.publishing.json"
    path.write_text(journal if isinstance(journal, str) else json.dumps(journal))
    (folder / OURS).write_bytes(b"new")
    return path


@pytest.mark.parametrize(
    ("temporary", "final"),
    [
        (OURS, "../x"),
        (OURS, "/etc/passwd"),
        (OURS, "sub/x"),
        (OURS, ""),
        (OURS, "."),
        (OURS, ".."),
        (OURS, ".croupier"),
        (OURS, "victim.tfrecord"),
        ("../" + OURS, "t.tfrecord"),
        ("./" + OURS, "t.tfrecord"),
        ("/etc/passwd", "t.tfrecord"),
        ("victim.tfrecord", "t.tfrecord"),
        (".t.tfrecord.0123ABCD.tmp", "t.tfrecord"),
        (".t.tfrecord.0123abcd.tmp\n", "t.tfrecord"),
        (".t.tfrecord.tmp", "t.tfrecord"),
        ("t.tfrecord.0123abcd.tmp", "t.tfrecord"),
        (".victim.tfrecord.0123abcd.tmp", "t.tfrecord"),
        ("", "t.tfrecord"),
        (None, "t.tfrecord"),
    ],
)
def test_journal_of_a_stranger(tmp_path, temporary, final):
    """Whoever can write to the folder must not get more through us than they have."""
    folder = tmp_path / "out"
    folder.mkdir()
    journal = lay(folder, {"renames": [[temporary, final]], "receipt": {}})
    for path in (folder / "victim.tfrecord", folder / ".victim.tfrecord.0123abcd.tmp", tmp_path / OURS):
        path.write_bytes(b"victim")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"publishing\.json"):
        croupier.writer(folder / "t.tfrecord").__enter__()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert journal.exists()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '{"renames": []}', '{"renames": 7, "receipt": {}}', '{"receipt": {}}',
     '{"renames": [["a"]], "receipt": {}}', '{"renames": ["abc"], "receipt": {}}', "\udcff"],
)  # fmt: skip
def test_damaged_journal(tmp_path, text):
    lay(tmp_path, "{}").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=r"publishing\.json.*damaged"):
        croupier.writer(tmp_path / "t.tfrecord").__enter__()
    assert (tmp_path / OURS).exists()


def test_journal_whose_shards_are_gone(tmp_path):
    """No receipt for what is not there: someone removed the temporary file that the journal counts on."""
    receipt = {"shards": [{"name": "t.tfrecord", "file_bytes": 3}]}
    lay(tmp_path, {"renames": [[OURS, "t.tfrecord"]], "receipt": receipt})
    (tmp_path / OURS).unlink()
    with contextlib.suppress(croupier.CroupierError):
        finish_publication(str(tmp_path), "t.tfrecord")
    assert not (tmp_path / ".croupier/t.tfrecord.receipt.json").exists()


def test_journal_is_finished(tmp_path):
    receipt = {"shards": [{"name": "t.tfrecord", "file_bytes": 3}]}
    journal = lay(tmp_path, {"renames": [[OURS, "t.tfrecord"]], "receipt": receipt})
    with pytest.raises(UsageError, match="exists"):
        croupier.writer(tmp_path / "t.tfrecord").__enter__()
    assert (tmp_path / "t.tfrecord").read_bytes() == b"new"
    assert json.loads((tmp_path / ".croupier/t.tfrecord.receipt.json").read_text()) == receipt
    assert not journal.exists()
    assert not (tmp_path / OURS).exists()


# --- what is refused ------------------------------------------------------------------------------------


def write(path, *payloads, meanwhile=lambda: None, **options):
    with croupier.writer(path, **options) as out:
        out.write_many(payloads)
        meanwhile()


def test_existing_output_is_refused(tmp_path):
    write(tmp_path / "t", b"old", b"set", shards=2)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"t-00000-of-00002\.tfrecord and 1 more: exists; ask for overwrite"):
        write(tmp_path / "t", b"new", shards=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    write(tmp_path / "t", b"new", shards=2, overwrite=True)
    assert list(croupier.read(tmp_path / "t-*")) == [b"new"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "stale", ["t-00000-of-00005.tfrecord", "t-00004-of-00005.tfrecord.gz", "t-00000-of-00002"]
)
def test_stale_shards_are_refused(tmp_path, stale, overwrite):
    """Readers of t-* would mix two sets."""
    (tmp_path / stale).write_bytes(b"")
    with pytest.raises(UsageError, match="a shard of another set"):
        write(tmp_path / "t", b"new", shards=2, overwrite=overwrite)
    assert os.listdir(tmp_path) == [stale]


@pytest.mark.parametrize(
    "other", ["u-00000-of-00005.tfrecord", "t-eval-00000-of-00005.tfrecord", "t.tfrecord"]
)
def test_other_sets_are_left_alone(tmp_path, other):
    (tmp_path / other).write_bytes(b"")
    write(tmp_path / "t", b"new", shards=2)
    assert (tmp_path / other).read_bytes() == b""


def test_failed_block_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "t", b"x" * 3_000_000, shards=2, meanwhile=lambda: 1 / 0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_failed_start_leaves_nothing(tmp_path, monkeypatch):
    """The files are there before the codec is; a codec that cannot start must not leave them."""

    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("croupier.codec.deflate.zlib_stream", fail)
    with pytest.raises(MemoryError):
        write(tmp_path / "t", b"x", shards=2, compression="zlib")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_forbidden_folder(tmp_path):
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:  # nothing is forbidden to root
        os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match=r"cannot .*: Permission denied"):
            write(tmp_path / "t.tfrecord", b"x")
    finally:
        os.seteuid(user)


# --- two writers ----------------------------------------------------------------------------------------


def test_another_process_is_publishing(tmp_path):
    """Its shards are locked and its journal is there: we keep our hands off."""
    living = AtomicFile(tmp_path / "t.tfrecord")
    name = os.path.basename(living.temporary)
    journal = lay(tmp_path, {"renames": [[name, "t.tfrecord"]], "receipt": {}})
    with pytest.raises(UsageError, match="another process is publishing"):
        write(tmp_path / "t.tfrecord", b"x")
    assert journal.exists()
    assert os.path.exists(living.temporary)
    living.discard()


def test_second_of_two_writers_is_refused(tmp_path):
    """Nothing is overwritten unasked, not even what appeared while we were writing."""
    first = functools.partial(write, tmp_path / "t", b"first", shards=2)
    with pytest.raises(UsageError, match="exists"):
        write(tmp_path / "t", b"second", shards=2, meanwhile=first)
    assert list(croupier.read(tmp_path / "t-*")) == [b"first"]
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_publications_do_not_mix(tmp_path):
    """One writer gets to publishing while another has renamed the first of its two shards."""
    first = croupier.writer(tmp_path / "t", shards=2)
    second = croupier.writer(tmp_path / "t", shards=2, overwrite=True)
    first.__enter__()
    second.__enter__()
    first.write_many([b"first", b"first"])
    second.write_many([b"second", b"second"])
    shard = first._output.shards[1].file
    rename = shard.publish

    def publish():
        with contextlib.suppress(UsageError):
            second.__exit__(None, None, None)
        rename()

    shard.publish = publish
    first.__exit__(None, None, None)
    assert len(set(croupier.read(tmp_path / "t-*"))) == 1, "a set of two halves"
    with contextlib.suppress(UsageError):
        write(tmp_path / "t", b"third", shards=2)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("*.publishing.json"))
