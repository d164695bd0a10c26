"""Shuffling against a plain oracle: one order, whatever the memory, the threads and the codecs."""

import collections
import hashlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import croupier
from croupier import output
from croupier.shuffling import STRATEGIES, merging, planning, reading, run, spill
from dataset_help import framed


def expected(files, seed):
    """The sort by (key, file, record), by numpy's Philox."""
    order = []
    for file, payloads in enumerate(files):
        keys = np.random.Philox(key=np.array([seed, file], np.uint64)).random_raw(len(payloads))
        order += [(int(key), file, record) for record, key in enumerate(keys)]
    return [files[file][record] for _, file, record in sorted(order)]


def write_inputs(folder, files, forms=("none", "gzip", "zlib")):
    folder.mkdir(parents=True)
    for number, payloads in enumerate(files):
        with croupier.writer(folder / f"in-{number:03d}.tfrecord", compression=None) as out:
            out.write_many(payloads)
        form = forms[number % len(forms)]
        if form != "none":
            suffix = {"gzip": ".gz", "zlib": ".zlib"}[form]
            with croupier.writer(folder / f"in-{number:03d}.tfrecord{suffix}") as out:
                out.write_many(payloads)
            (folder / f"in-{number:03d}.tfrecord").unlink()
    return sorted(map(str, folder.glob("in-*")))


def some_files(seed, files, records, sizes=(0, 1, 10, 100, 700, 3000)):
    rng = random.Random(seed)
    return [
        [
            b"%d:%d|" % (file, record) + rng.randbytes(rng.choice(sizes))
            for record in range(rng.randrange(records))
        ]
        for file in range(files)
    ]


def shards_of(prefix):
    folder, stem = os.path.split(prefix)
    return sorted(path for path in Path(folder).glob(f"{stem}-*") if path.is_file())


def digest(paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


@pytest.fixture
def little_memory(monkeypatch):
    """Runs as small as a test wants them, which no budget that the process itself fits in would give."""

    def limit(size):
        monkeypatch.setattr(planning, "run_bytes", lambda runtime: size)
        monkeypatch.setattr(output, "DIRECT_FROM", 100_000)

    return limit


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_one_order_for_every_memory_and_number_of_workers(tmp_path, little_memory, compression):
    files = some_files(3, 9, 900)
    paths = write_inputs(tmp_path / "data", files)
    whole = expected(files, 7)
    digests = set()
    for number, (size, workers) in enumerate(
        [(1 << 26, 1), (1 << 26, 3), (400_000, 2), (90_000, 4), (90_000, 1)]
    ):
        little_memory(size)
        prefix = tmp_path / str(number) / "train"
        receipt = croupier.shuffle(
            paths, prefix, seed=7, shards=5, compression=compression, workers=workers, tmp_dir=tmp_path
        )
        shards = shards_of(prefix)
        parts = [list(croupier.read(shard)) for shard in shards]
        assert [len(part) for part in parts] == [
            (i + 1) * len(whole) // 5 - i * len(whole) // 5 for i in range(5)
        ]
        assert [payload for part in parts for payload in part] == whole
        assert receipt["in"] == receipt["out"]
        assert receipt["in"]["records"] == len(whole)
        digests.add(digest(shards))
        assert (receipt["spilled_runs"] > 3) == (size < 1_000_000)
    assert len(digests) == 1
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2", "3", "4", "data"], "a temporary file was left"


def test_seeds_give_other_orders_and_inputs_may_be_named_in_any(tmp_path):
    files = some_files(4, 3, 300)
    paths = write_inputs(tmp_path / "data", files)
    for seed in (0, 1, 2**63, 2**64 - 1):
        croupier.shuffle(paths[::-1], tmp_path / str(seed) / "t", seed=seed, compression="none")
        assert list(croupier.read(tmp_path / str(seed))) == expected(files, seed)


def test_every_order_is_equally_likely(tmp_path):
    """All 120 orders of five records over 6,000 seeds: chi-square with 119 degrees of freedom."""
    seen = collections.Counter()
    files, firsts, counts = (np.array(column, np.uint64) for column in ([0, 1], [0, 0], [3, 2]))
    keys = np.empty(5, np.uint64)
    for seed in range(6000):
        croupier._kernel.record_keys(seed, files, firsts, counts, keys)
        seen[tuple(np.argsort(keys).tolist())] += 1
    assert set(seen) == set(itertools.permutations(range(5)))
    assert sum((count - 50) ** 2 / 50 for count in seen.values()) < 180  # p = 0.0003


def test_equal_keys_come_in_the_order_of_files_and_records(tmp_path, little_memory, monkeypatch):
    """With keys of two bits nearly all records collide, in runs and between them."""
    true_keys = croupier._kernel.record_keys

    def few_keys(seed, files, firsts, counts, keys):
        true_keys(seed, files, firsts, counts, keys)
        keys >>= np.uint64(62)

    kernel = type("Kernel", (), {**vars(croupier._kernel), "record_keys": staticmethod(few_keys)})
    monkeypatch.setattr(run, "_kernel", kernel)
    monkeypatch.setattr(spill, "_kernel", kernel)
    files = some_files(5, 6, 200)
    paths = write_inputs(tmp_path / "data", files)
    order = []
    for file, payloads in enumerate(files):
        keys = np.random.Philox(key=np.array([9, file], np.uint64)).random_raw(len(payloads))
        order += [(int(key) >> 62, file, record) for record, key in enumerate(keys)]
    whole = [files[file][record] for _, file, record in sorted(order)]
    for size in (1 << 26, 60_000):
        little_memory(size)
        prefix = tmp_path / str(size) / "t"
        croupier.shuffle(paths, prefix, seed=9, compression="none", workers=3)
        assert list(croupier.read(tmp_path / str(size))) == whole


def test_outputs_have_their_tables(tmp_path):
    paths = write_inputs(tmp_path / "data", some_files(6, 4, 500))
    for compression in ("none", "gzip", "zlib"):
        prefix = tmp_path / compression / "t"
        croupier.shuffle(paths, prefix, shards=3, compression=compression)
        kept = croupier.open(shards_of(prefix), index="require")
        made = croupier.open(shards_of(prefix), index="memory")
        croupier.index(shards_of(prefix), force=True)
        anew = croupier.open(shards_of(prefix), index="require")
        assert kept.shards == anew.shards == made.shards
        assert kept.lengths().tolist() == anew.lengths().tolist()
        assert kept[:].tolist() == list(croupier.read(shards_of(prefix)))


def test_no_records_at_all(tmp_path):
    (tmp_path / "a.tfrecord").touch()
    receipt = croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t", shards=3)
    assert receipt["out"]["records"] == 0
    assert [list(croupier.read(path)) for path in shards_of(tmp_path / "out" / "t")] == [[], [], []]


def test_shards_aim_at_a_size(tmp_path):
    rng = random.Random(8)
    (tmp_path / "a.tfrecord").write_bytes(framed(rng.randbytes(1000) for _ in range(5000)))
    croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t", shard_size=1_000_000)
    shards = shards_of(tmp_path / "out" / "t")
    assert len(shards) == 6
    assert max(path.stat().st_size for path in shards) < 1_000_000
    assert croupier.plan(tmp_path / "a.tfrecord", tmp_path / "t").shards == 1


def refused(tmp_path, match, *, inputs=None, prefix=None, **options):
    """Before anything is written."""
    before = sorted(map(str, tmp_path.rglob("*")))
    with pytest.raises(croupier.CroupierError, match=match):
        croupier.shuffle(inputs or tmp_path / "a.tfrecord", prefix or tmp_path / "out-t", **options)
    assert sorted(map(str, tmp_path.rglob("*"))) == before


def test_what_cannot_work_is_refused(tmp_path):
    whole = framed([b"x" * 50] * 10)
    (tmp_path / "a.tfrecord").write_bytes(whole)
    (tmp_path / "b.tfrecord").symlink_to("a.tfrecord")
    (tmp_path / "bad.tfrecord").write_bytes(b"\0" * 40 + whole)
    (tmp_path / "old-00000-of-00002.tfrecord").write_bytes(whole)
    refused(tmp_path, "same file", inputs=[tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"])
    refused(tmp_path, "same file", inputs=[tmp_path / "a.*", tmp_path / "*a.tfrecord"])
    refused(tmp_path, "no such file", inputs=tmp_path / "none")
    refused(tmp_path, "pipe", inputs="-")
    refused(tmp_path, "bad.tfrecord: record 0", inputs=tmp_path / "bad.tfrecord")
    refused(tmp_path, "another set", prefix=tmp_path / "old", shards=3)
    refused(tmp_path, "exists", prefix=tmp_path / "old", shards=2)
    refused(
        tmp_path,
        "read and replaced",
        inputs=tmp_path / "old-*",
        prefix=tmp_path / "old",
        shards=2,
        overwrite=True,
    )
    refused(tmp_path, "seed", seed=-1)
    refused(tmp_path, "seed", seed=1 << 64)
    refused(tmp_path, "shards", shards=0)
    refused(tmp_path, "not both", shards=1, shard_size=1)
    refused(tmp_path, "compression", compression="bzip2")
    refused(tmp_path, "level", level=10)
    refused(tmp_path, "memory", memory=1 << 20)
    refused(tmp_path, "on_corrupt", on_corrupt="maybe")
    refused(tmp_path, "temporary", tmp_dir=tmp_path / "nowhere")


def test_damage_ends_it_or_is_passed_over(tmp_path, little_memory):
    files = some_files(9, 3, 300, sizes=(100,))
    paths = write_inputs(tmp_path / "data", files, forms=["none"])
    content = bytearray(Path(paths[1]).read_bytes())
    content[len(content) // 2] ^= 1
    Path(paths[1]).write_bytes(content)
    for size in (1 << 26, 20_000):
        little_memory(size)
        with pytest.raises(croupier.DataError, match="in-001"):
            croupier.shuffle(paths, tmp_path / "out" / "t")
        assert not list((tmp_path / "out").rglob("*t-*"))
        damage = []
        receipt = croupier.shuffle(
            paths, tmp_path / str(size) / "t", on_corrupt="salvage", on_damage=damage.append
        )
        assert receipt["out"]["records"] == sum(map(len, files)) - 1
        assert len(damage) == 1
        left = set(croupier.read(tmp_path / str(size)))
        assert len(set(itertools.chain(*files)) - left) == 1


def test_records_that_no_memory_holds(tmp_path, little_memory):
    little_memory(50_000)
    (tmp_path / "a.tfrecord").write_bytes(framed([b"x" * 100, b"y" * 60_000, b"z"]))
    with pytest.raises(croupier.UsageError, match=r"record 1 has 60,016 bytes.*at least"):
        croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t")
    little_memory(200_000)
    croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t")


def test_a_file_that_grows_meanwhile_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed([b"x" * 100] * 100))
    block = reading._Reader.next

    def block_and_append(self):
        with path.open("ab") as file:
            file.write(framed([b"new"]))
        return block(self)

    monkeypatch.setattr(reading._Reader, "next", block_and_append)
    for strategy in ("memory", "spill"):
        with pytest.raises(croupier.StaleError, match=r"a\.tfrecord"):
            croupier.shuffle(path, tmp_path / "out" / "t", strategy=strategy)
    assert os.listdir(tmp_path / "out") == []


def test_spoilt_temporary_files_are_noticed(tmp_path, little_memory, monkeypatch):
    read = spill.Spill.read
    paths = write_inputs(tmp_path / "data", some_files(10, 3, 600))
    little_memory(100_000)

    def spoilt(self, line):
        os.pwrite(self._fd, b"\xff\0\xff", line.offset + line.stored // 2)
        return read(self, line)

    monkeypatch.setattr(spill.Spill, "read", spoilt)
    with pytest.raises(croupier.IntegrityError, match="temporary file"):
        croupier.shuffle(paths, tmp_path / "out" / "t")
    assert not list((tmp_path / "out").rglob("t-*"))


def test_ranges_stay_within_memory():
    line = collections.namedtuple("line", ["last", "size", "records"])
    rng = random.Random(12)
    lines = [line(rng.getrandbits(64), rng.randrange(1, 1000), rng.randrange(1, 5)) for _ in range(3000)]
    spills = [type("S", (), {"lines": lines[number::7]}) for number in range(7)]
    ends = list(merging.Merge(spills, 0, None)._ranges(0, 20_000))
    assert ends == sorted(ends)
    assert ends[-1] == 2**64 - 1
    for low, high in itertools.pairwise([-1, *ends]):
        cost = sum(one.size + merging.PER_RECORD * one.records for one in lines if low < one.last <= high)
        assert cost <= 20_000 + 1000 + 5 * merging.PER_RECORD


@pytest.mark.unsanitized
def test_memory_stays_within_the_budget(tmp_path):
    """Twelve times the memory that a run gets; anonymous and shared memory, by the system's own count."""
    rng = np.random.default_rng(1)
    pool = rng.bytes(1 << 20)
    for number in range(6):
        sizes = rng.integers(10, 3000, 20_000).tolist()
        with croupier.writer(tmp_path / f"in-{number}.tfrecord") as out:
            out.write_many(
                pool[at : at + size] for at, size in zip(itertools.cycle(range(9000)), sizes, strict=False)
            )
    code = """
import sys, threading, time
import croupier
peak, stop = 0, threading.Event()
def watch():
    global peak
    while not stop.wait(0.002):
        lines = open("/proc/self/status").read().splitlines()
        used = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon", "RssShmem")))
        peak = max(peak, used)
thread = threading.Thread(target=watch, daemon=True)
thread.start()
inputs, prefix, memory, compression, strategy = sys.argv[1:]
receipt = croupier.shuffle(
    inputs, prefix, memory=int(memory), workers=2, compression=compression, strategy=strategy
)
stop.set()
thread.join()
print(peak, receipt["spilled_runs"])
"""
    outputs = set()
    for budget, compression, strategy in (
        (110_000_000, "none", "spill"),
        (110_000_000, "gzip", "spill"),
        (140_000_000, "none", "spill"),
        (110_000_000, "none", "gather"),
    ):
        prefix = tmp_path / f"{budget}-{compression}-{strategy}" / "t"
        arguments = [str(tmp_path / "in-*"), str(prefix), str(budget), compression, strategy]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        peak, spilled = map(int, done.stdout.split())
        assert (spilled >= 3) == (strategy != "gather")
        assert peak <= budget + (64 << 20), f"{peak:,} bytes of {budget:,}"
        if compression == "none":
            outputs.add(digest(shards_of(prefix)))
    assert len(outputs) == 1


def test_the_command(tmp_path, command):
    files = some_files(11, 3, 200)
    write_inputs(tmp_path / "data", files)
    arguments = ["shuffle", tmp_path / "data" / "in-*", tmp_path / "out" / "t", "--seed", 3, "--shards", 2]
    ran = command(*arguments, "--dry-run")
    assert ran.code == 0
    assert "3 files" in ran.out
    assert "2 shards" in ran.out
    assert "shuffle   memory: each byte is read once" in ran.out
    assert "memory has room for all" in ran.out
    assert f"{sum(map(len, files))} records (estimated from a sample)" in ran.out
    assert re.search(r"^time +about [\d.]+ s, most of it \w+", ran.out, re.MULTILINE)
    assert "levels " not in command(*arguments, "--dry-run", "--compression", "none").out
    assert os.listdir(tmp_path) == ["data"], "nothing was written, and the probe left nothing"
    planned = json.loads(command(*arguments, "--dry-run", "--json").out)
    assert planned["shards"] == 2
    assert planned["strategy"] == "memory"
    assert planned["forecast"]["seconds"] >= planned["forecast"]["limit_seconds"] > 0
    assert [phase["name"] for phase in planned["forecast"]["phases"]] == ["read", "write"]
    levels = command(*arguments, "--dry-run", "--compression", "gzip", "--level", 4).out
    assert re.search(r"^levels .*(\n +\d .*){6}$", levels, re.MULTILINE)
    assert levels.count("as asked") == 1
    little = command(*arguments, "--dry-run", "--memory", "100MB", "--workers", 1)
    assert re.search(
        r"^memory +about [\d.]+ MB of 100 MB that may be used, with 1 thread$", little.out, re.MULTILINE
    )
    ran = command(*arguments, "--compression", "none", "--memory", "1GB", "--workers", 2)
    assert ran.code == 0, ran.err
    assert f"{sum(map(len, files)):,} records" in ran.out
    assert list(croupier.read(tmp_path / "out")) == expected(files, 3)
    again = command(*arguments, "--compression", "none")
    assert again.code == 2
    assert "exists" in again.err
    receipt = json.loads(command(*arguments, "--compression", "none", "--overwrite", "--json").out)
    assert receipt["seed"] == 3
    assert command("shuffle", tmp_path / "data" / "in-*", tmp_path / "t", "--memory", "much").code == 2
    assert command("shuffle", tmp_path / "only-one").code == 2


def mixed_inputs(folder, forms):
    """Small and large records; the large ones are fragments of their own."""
    files = some_files(13, 5, 500)
    rng = random.Random(14)
    files[1] = [b"%d|" % number + rng.randbytes(40_000) for number in range(20)]
    files[3] += [b"big" + bytes(50_000) for _ in range(5)]
    return files, write_inputs(folder, files, forms)


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("forms", [["none"], ["none", "gzip", "zlib"]], ids=["plain", "mixed"])
def test_one_output_for_every_strategy(tmp_path, little_memory, compression, forms):
    files, paths = mixed_inputs(tmp_path / "data", forms)
    whole, digests = expected(files, 11), set()
    for strategy in STRATEGIES:
        if (strategy == "gather" and forms != ["none"]) or (
            strategy == "fragments" and compression != "gzip"
        ):
            with pytest.raises(croupier.UsageError, match=f"strategy {strategy}"):
                croupier.shuffle(paths, tmp_path / "no" / "t", compression=compression, strategy=strategy)
            continue
        for size in [1 << 26] if strategy == "memory" else [1 << 26, 300_000]:
            little_memory(size)
            prefix = tmp_path / strategy / str(size) / "t"
            receipt = croupier.shuffle(
                paths, prefix, seed=11, shards=4, compression=compression, strategy=strategy, workers=2
            )
            assert receipt["strategy"] == strategy
            assert list(croupier.read(prefix.parent)) == whole
            assert (receipt["spilled_runs"] > 0) == (
                strategy in ("spill", "fragments") and (size < 1 << 26 or strategy == "spill")
            )
            digests.add(digest(shards_of(prefix)))
            assert sorted(os.listdir(prefix.parent / ".croupier")) == ["records.table", "t.receipt.json"]
    assert len(digests) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_resumed_after_any_step(tmp_path, little_memory, monkeypatch, strategy):
    """Stopped when any note of the journal is to be written, and who resumes is stopped again soon after."""
    from croupier import work

    compression = "gzip" if strategy == "fragments" else "none"
    _, paths = mixed_inputs(tmp_path / "data", ["none"] if strategy == "gather" else ["none", "gzip", "none"])
    options = {"seed": 5, "shards": 4, "compression": compression, "strategy": strategy, "workers": 2}
    little_memory(1 << 26 if strategy == "memory" else 250_000)

    def count(block):
        return {"records": len(block), "bytes": int(block.bounds[-1] - block.bounds[0])}

    if strategy != "gather":  # who counts reads everything anew there
        options["tally"] = count
    right = croupier.shuffle(paths, tmp_path / "right" / "t", **options)
    whole = digest(shards_of(tmp_path / "right" / "t"))
    assert right.get("tally", right["in"])["records"] == right["in"]["records"]
    note, left = work.WorkFolder.note, [0]

    def stop_there(self, name, content):
        if name != "job":
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
        note(self, name, content)

    monkeypatch.setattr(work.WorkFolder, "note", stop_there)
    for step in itertools.count():
        prefix = tmp_path / str(step) / "t"
        attempts = 0
        while True:
            left[0] = step if attempts == 0 else 1 + step % 3
            try:
                receipt = croupier.shuffle(paths, prefix, resume=True, **options)
                break
            except KeyboardInterrupt as error:
                attempts, notes = attempts + 1, getattr(error, "__notes__", ())
            kept = list(prefix.parent.glob(".croupier/t.work/*-0*.json"))
            assert bool(kept) == any("--resume" in text for text in notes)
            assert shards_of(prefix) == []
        assert digest(shards_of(prefix)) == whole
        assert receipt["out"] == right["out"]
        assert receipt.get("tally") == right.get("tally")
        assert sorted(os.listdir(prefix.parent / ".croupier")) == ["records.table", "t.receipt.json"]
        assert sorted(path.name for path in prefix.parent.iterdir()) == [
            ".croupier",
            *(f"t-{number:05d}-of-00004.tfrecord{'.gz' * (compression == 'gzip')}" for number in range(4)),
        ]
        kept = croupier.open(shards_of(prefix), index="require")
        assert kept[:].tolist() == list(croupier.read(shards_of(prefix)))
        assert croupier.shuffle(paths, prefix, resume=True, **options)["shards"] == receipt["shards"]
        if attempts == 0:
            break
    assert step >= 4


def test_resume_is_of_the_same_job(tmp_path, little_memory, monkeypatch):
    from croupier import work

    _, paths = mixed_inputs(tmp_path / "data", ["none"])
    note = work.WorkFolder.note

    def stop_there(self, name, content):
        if name.startswith("shard-00002"):
            raise KeyboardInterrupt
        note(self, name, content)

    monkeypatch.setattr(work.WorkFolder, "note", stop_there)
    prefix = tmp_path / "out" / "t"
    with pytest.raises(KeyboardInterrupt):
        croupier.shuffle(paths, prefix, shards=4, strategy="spill")
    monkeypatch.setattr(work.WorkFolder, "note", note)
    with pytest.raises(croupier.UsageError, match=r"another job.*seed"):
        croupier.shuffle(paths, prefix, shards=4, seed=1, resume=True)
    os.utime(paths[0], (1, 1))
    with pytest.raises(croupier.UsageError, match=r"another job.*inputs"):
        croupier.shuffle(paths, prefix, shards=4, resume=True)
    (tmp_path / "out" / ".croupier" / "t.work" / "job.json").write_text("{")
    with pytest.raises(croupier.UsageError, match=r"job\.json: is damaged"):
        croupier.shuffle(paths, prefix, shards=4, resume=True)
    croupier.shuffle(paths, prefix, shards=4)
    assert sorted(os.listdir(tmp_path / "out" / ".croupier")) == ["records.table", "t.receipt.json"]
    assert not list((tmp_path / "out").glob(".*.tmp"))


def test_one_job_at_a_time(tmp_path):
    from croupier.work import WorkFolder

    (tmp_path / "a.tfrecord").write_bytes(framed([b"x"] * 9))
    other = WorkFolder(str(tmp_path / "out"), "t")
    with pytest.raises(croupier.UsageError, match="another process is writing this output"):
        croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t")
    with (
        pytest.raises(croupier.UsageError, match="another process is writing this output"),
        croupier.writer(tmp_path / "out" / "t", shards=2),
    ):
        pass
    other.remove()
    other.close()
    croupier.shuffle(tmp_path / "a.tfrecord", tmp_path / "out" / "t")


@pytest.mark.parametrize("strategy", ["memory", "spill", "fragments"])
def test_equal_records_are_left_out(tmp_path, little_memory, strategy):
    files = some_files(15, 4, 300)
    rng = random.Random(16)
    large = [rng.randbytes(40_000) for _ in range(4)]
    files = [[*file, *rng.choices(files[0], k=50), *rng.choices(large, k=6)] for file in files]
    paths = write_inputs(tmp_path / "data", files)
    distinct = {payload for file in files for payload in file}
    outputs = set()
    for size in [1 << 26] if strategy == "memory" else [1 << 26, 200_000]:
        little_memory(size)
        prefix = tmp_path / str(size) / "t"
        receipt = croupier.shuffle(
            paths, prefix, shards=3, compression="gzip", strategy=strategy, dedup=True, workers=2
        )
        left = list(croupier.read(prefix.parent))
        assert len(left) == len(distinct)
        assert set(left) == distinct
        assert receipt["duplicates"] == sum(map(len, files)) - len(distinct)
        counts = [sum(1 for _ in croupier.read(path)) for path in shards_of(prefix)]
        assert max(counts) - min(counts) <= 1
        outputs.add(digest(shards_of(prefix)))
    croupier.shuffle(paths[::-1], tmp_path / "memory" / "t", shards=3, compression="gzip", dedup=True)
    assert outputs == {digest(shards_of(tmp_path / "memory" / "t"))}
    croupier.shuffle(paths, tmp_path / "other" / "t", shards=3, compression="gzip", dedup=True, seed=1)
    assert list(croupier.read(tmp_path / "other")) != left


def test_most_records_in_memory(tmp_path):
    _, paths = mixed_inputs(tmp_path / "data", ["gzip"])
    whole = croupier.shuffle(paths, tmp_path / "a" / "t", shards=2)
    some = croupier.shuffle(paths, tmp_path / "b" / "t", shards=2, max_records=100)
    assert whole["spilled_runs"] == 0
    assert some["spilled_runs"] == some["in"]["records"] // 100
    assert digest(shards_of(tmp_path / "a" / "t")) == digest(shards_of(tmp_path / "b" / "t"))


def test_the_receipt_of_who_watches_says_how_fast_it_could_have_been(tmp_path):
    (tmp_path / "in.tfrecord").write_bytes(framed([bytes(100)] * 1000))
    watched = croupier.shuffle(tmp_path / "in.tfrecord", tmp_path / "a" / "t", progress=lambda _: None)
    assert 0 <= watched["forecast"]["limit_seconds"] <= watched["forecast"]["seconds"] < 60
    assert "forecast" not in croupier.shuffle(tmp_path / "in.tfrecord", tmp_path / "b" / "t")
