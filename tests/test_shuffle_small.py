"""Many small files are read together: nothing of what a shuffle does may be otherwise for it."""

import gzip
import os
import random
import shutil

import pytest

import croupier
from croupier import publish
from croupier.shuffling import inputs, reading, small
from dataset_help import framed
from test_shuffle import expected, little_memory, shards_of  # noqa: F401 - a fixture

FILES = 150


def contents(seed, files=FILES):
    """One record nearly always; sometimes none, or several."""
    rng = random.Random(seed)
    counts = [rng.choice((1, 1, 1, 1, 1, 0, 2, 40)) for _ in range(files)]
    return [
        [b"%d:%d|" % (file, n) + rng.randbytes(rng.randrange(300)) for n in range(counts[file])]
        for file in range(files)
    ]


def lay(folder, files, odd=()):
    """One behind the other, in three folders; the `odd` ones as gzip."""
    paths = []
    for number, payloads in enumerate(files):
        home = folder / f"{3 * number // len(files)}"
        home.mkdir(parents=True, exist_ok=True)
        content = framed(payloads)
        paths.append(home / f"{number:05d}.tfrecord")
        paths[-1].write_bytes(gzip.compress(content) if number in odd else content)
    return paths


def folders(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(params=["together", "kept apart", "one by one"])
def way(request, monkeypatch):
    """As it is; with everything read anew after the plan; and as few files are."""
    if request.param == "kept apart":
        monkeypatch.setattr(inputs, "_kept_run", lambda *_: None)
    elif request.param == "one by one":
        monkeypatch.setattr(inputs, "FEW", 10**9)
    return request.param


@pytest.mark.parametrize("strategy", ["auto", "memory", "spill", "gather"])
@pytest.mark.parametrize("workers", [1, 3])
def test_one_order(tmp_path, way, strategy, workers):
    files = contents(1)
    lay(tmp_path / "in", files)
    receipt = croupier.shuffle(
        folders(tmp_path / "in"), tmp_path / "t", seed=3, shards=4, strategy=strategy, workers=workers
    )
    assert list(croupier.read(shards_of(tmp_path / "t"))) == expected(files, 3)
    assert receipt["in"] == receipt["out"]
    assert [one["bytes"] for one in receipt["inputs"]] == [len(framed(payloads)) for payloads in files]


def test_large_and_compressed_ones_among_them(tmp_path, way, little_memory):  # noqa: F811
    files = contents(2)
    for number in (0, 70, FILES - 1):
        files[number] = [bytes([number]) * 70_000, b"x", bytes(65_520 - number)]
    files[71] = [bytes(65_520)]  # the largest of the small ones
    lay(tmp_path / "in", files, odd={1, 75, 76, 149})
    for size in (1 << 26, 600_000, 250_000):
        little_memory(size)
        out = tmp_path / str(size) / "t"
        receipt = croupier.shuffle(folders(tmp_path / "in"), out, seed=5, compression="none")
        assert list(croupier.read(shards_of(out))) == expected(files, 5)
        assert (receipt["spilled_runs"] > 1) == (size < 1 << 26)


@pytest.mark.parametrize("most", [7, 30, 200])
def test_few_records_in_memory(tmp_path, way, most):
    """Also fewer than one of the files has."""
    files = contents(3)
    lay(tmp_path / "in", files)
    croupier.shuffle(folders(tmp_path / "in"), tmp_path / "t", max_records=most)
    assert list(croupier.read(shards_of(tmp_path / "t"))) == expected(files, 0)


def test_tally_dedup_and_longest_records(tmp_path, way):
    files = contents(4)
    files[9] = files[100] = [b"same"]
    lay(tmp_path / "in", files)
    where = folders(tmp_path / "in")
    count = sum(map(len, files))
    receipt = croupier.shuffle(where, tmp_path / "t", tally=lambda block: {"records": len(block)})
    assert receipt["tally"] == {"records": count}
    receipt = croupier.shuffle(where, tmp_path / "d", dedup=True)
    assert (receipt["duplicates"], receipt["out"]["records"]) == (1, count - 1)
    with pytest.raises(croupier.DataError, match="record 0"):
        croupier.shuffle(where, tmp_path / "m", max_record_bytes=100)


@pytest.mark.parametrize("policy", ["fail", "tolerate-tail", "skip", "salvage"])
@pytest.mark.parametrize("damage", ["payload", "header", "tail", "behind", "no record"])
def test_damage(tmp_path, monkeypatch, policy, damage):
    """What is raised, said and written is what it is for few files."""
    paths = lay(tmp_path / "in", contents(5))
    for number in (20, 21, 130):
        content = bytearray(framed([b"a" * 50, b"b" * 60, b"c" * 70]))
        if damage == "payload":
            content[100] ^= 1
        elif damage == "header":
            content[66] ^= 1
        elif damage == "tail":
            del content[-5:]
        elif damage == "behind":
            content += b"abc"
        else:
            content[:12] = b"no TFRecord!"
        paths[number].write_bytes(content)
    seen = []
    for few in (small.FEW, 10**9):
        monkeypatch.setattr(inputs, "FEW", few)
        found, problem, out = [], None, tmp_path / str(few) / "t"
        try:
            croupier.shuffle(
                folders(tmp_path / "in"), out, on_corrupt=policy, workers=1, on_damage=found.append
            )
        except croupier.DataError as error:
            problem = type(error), str(error), getattr(error, "__notes__", [])
        records = [path.read_bytes() for path in shards_of(out)] if out.parent.exists() else []
        seen.append((problem, records, sorted(map(str, found))))
    assert seen[0] == seen[1]
    assert (seen[0][0] is None) == (seen[0][1] != [])
    assert seen[0][0] is not None or seen[0][2]


def test_the_same_file_twice(tmp_path, way):
    paths = lay(tmp_path / "in", contents(6))
    where = folders(tmp_path / "in")
    os.link(paths[3], tmp_path / "in" / "0" / "linked.tfrecord")  # another name: as good as a copy
    croupier.shuffle(where, tmp_path / "t")
    with pytest.raises(croupier.UsageError, match=r"00004\.tfrecord: is the same file as .*00004\.tfrecord"):
        croupier.shuffle([*where, paths[4]], tmp_path / "u")
    (tmp_path / "in" / "0" / "zz.tfrecord").symlink_to(paths[140])
    with pytest.raises(croupier.UsageError, match=r"00140\.tfrecord: is the same file as .*zz\.tfrecord"):
        croupier.shuffle(where, tmp_path / "u")


def test_the_output_may_not_replace_an_input(tmp_path, way):
    paths = lay(tmp_path / "in", contents(7))
    target = tmp_path / "t-00000-of-00001.tfrecord"
    shutil.copy(paths[0], target)
    with pytest.raises(croupier.UsageError, match="would be read and replaced"):
        croupier.shuffle([*folders(tmp_path / "in"), target], tmp_path / "t", shards=1, overwrite=True)


def test_what_cannot_be_read(tmp_path, way):
    paths = lay(tmp_path / "in", contents(8))
    os.mkfifo(tmp_path / "pipe.tfrecord")
    with pytest.raises(croupier.UsageError, match="not a regular file"):
        croupier.shuffle([*paths, tmp_path / "pipe.tfrecord"], tmp_path / "t")
    (tmp_path / "x.tfrecord").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(croupier.DataError, match="Parquet"):
        croupier.shuffle([*paths, tmp_path / "x.tfrecord"], tmp_path / "t")


@pytest.mark.parametrize("change", ["grown", "touched", "gone", "other"])
def test_what_changes_behind_the_plan(tmp_path, monkeypatch, change):
    """Where it is read once more."""
    paths = lay(tmp_path / "in", contents(9))
    fill = reading.Reading.fill

    def disturbed(self, run):
        if change == "grown":
            paths[99].write_bytes(paths[99].read_bytes() + framed([b"more"]))
        elif change == "touched":
            os.utime(paths[99], ns=(1, 1))
        elif change == "gone":
            paths[99].unlink(missing_ok=True)
        else:
            paths[99].write_bytes(gzip.compress(framed([b"another"])))
        return fill(self, run)

    monkeypatch.setattr(reading.Reading, "fill", disturbed)
    kind = croupier.InputNotFoundError if change == "gone" else croupier.CroupierError
    with pytest.raises(kind, match=r"00099\.tfrecord"):
        croupier.shuffle(folders(tmp_path / "in"), tmp_path / "t", strategy="spill")
    assert not shards_of(tmp_path / "t")


def test_going_on(tmp_path, way, monkeypatch, little_memory):  # noqa: F811
    """After Ctrl-C between two runs, and not with other inputs."""
    files = contents(10, 600)
    paths = lay(tmp_path / "in", files)
    where = folders(tmp_path / "in")
    little_memory(150_000)
    state, calls = reading.Reading.state, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return state(self)

    with monkeypatch.context() as patch:
        patch.setattr(reading.Reading, "state", interrupted)
        with pytest.raises(KeyboardInterrupt):
            croupier.shuffle(where, tmp_path / "t", seed=1)
    status = os.stat(paths[5])
    os.utime(paths[5], ns=(1, 1))
    with pytest.raises(croupier.UsageError, match="inputs differ"):
        croupier.shuffle(where, tmp_path / "t", seed=1, resume=True)
    os.utime(paths[5], ns=(status.st_atime_ns, status.st_mtime_ns))
    receipt = croupier.shuffle(where, tmp_path / "t", seed=1, resume=True)
    assert receipt["resumed"]
    assert list(croupier.read(shards_of(tmp_path / "t"))) == expected(files, 1)
    assert croupier.shuffle(where, tmp_path / "t", seed=1, resume=True) == receipt


@pytest.mark.parametrize("relative", [False, True])
def test_receipts_of_many_files(tmp_path, monkeypatch, relative):
    """They list the same files, packed, and mixing finds its way back by them."""
    monkeypatch.chdir(tmp_path)
    files = contents(11, 2500)
    paths = lay(tmp_path / "in", files)
    where = ["in/0", "./in/1", "in/../in/2"] if relative else folders(tmp_path / "in")
    plain = croupier.shuffle(where, tmp_path / "a" / "t")
    monkeypatch.setattr(inputs, "MANY", 100)
    packed = croupier.shuffle(where, tmp_path / "b" / "t")
    told = [{"path": str(path), "bytes": path.stat().st_size} for path in paths]
    assert plain["inputs"] == told == publish.files_told(packed)
    assert plain["plan"] != packed["plan"]  # another prefix
    assert len(packed["inputs"]) < 10
    assert croupier.mixing(tmp_path / "b").order.checked == croupier.mixing(tmp_path / "a").order.checked > 0
    for spoilt in ("", "AAAA", packed["inputs"][0]["packed"][:-20]):
        with pytest.raises(ValueError, match=r"."):
            publish.files_told({"inputs": [packed["inputs"][0] | {"packed": spoilt}]})


def test_plans(tmp_path, way):
    """Of many files as of few; and a plan keeps nothing that was read."""
    files = contents(12)
    lay(tmp_path / "in", files, odd={3})
    made = croupier.plan(folders(tmp_path / "in"), tmp_path / "t")
    assert made.inputs.kept is None
    assert len(made.inputs) == FILES
    assert made.inputs[3].compression.value == "gzip"
    assert [one.path for one in made.inputs] == made.inputs.paths
    assert made.inputs[-1].path == made.inputs.paths[-1]
    assert made.input_bytes == sum(one.size for one in made.inputs)
    assert made.inputs.counted is None
