"""Records by number while others write, truncate, replace, fork and read: right, or an error; never a signal.

What could crash or hang runs in a process of its own, so that it is seen as that process's end.
"""

import contextlib
import gzip
import hashlib
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

import croupier
from dataset_help import FORMS, SLOW_IS_FINE, bgzip, framed, make

HERE = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_dataset_races as t"


def alone(function, *arguments, timeout=60):
    """What a function of this module gives (as JSON) in a process of its own, which must end well."""
    code = f"{HERE}; import json; print(json.dumps(t.{function.__name__}(*{arguments!r})))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-5000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def numbered(number, size):
    """A payload that tells its number, and is checked by making it again."""
    word = b"%09d " % number
    return (word * (size // len(word) + 1))[:size]


def in_threads(count, job):
    """job(0), ..., job(count - 1) at once; raises what one of them raised."""
    failures, start = [], threading.Barrier(count)

    def run(number):
        try:
            start.wait()
            job(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# Truncated while it is mapped and read

RECORD, RECORDS = 2_000, 2_500  # 5 MB: files from 1 MiB on are mapped


def truncate_and_restore(path, seconds):
    """In place, with the old times each time that it is whole."""
    content, rng = Path(path).read_bytes(), random.Random(1)
    stamp, end = os.stat(path), time.monotonic() + seconds
    with open(path, "r+b", buffering=0) as file:
        while time.monotonic() < end:
            keep = rng.choice([0, 1, rng.randrange(len(content)), len(content) - 1])
            os.truncate(path, keep)
            time.sleep(rng.random() * 0.004)
            os.pwrite(file.fileno(), content[keep:], keep)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            time.sleep(rng.random() * 0.02)


def read_while_truncated(path, handler):
    import faulthandler

    if handler == "before":
        faulthandler.enable()
    data = croupier.open(path)
    assert len(data[:]) == RECORDS
    if handler == "after":
        faulthandler.enable()
    writer = subprocess.Popen([sys.executable, "-c", f"{HERE}; t.truncate_and_restore({path!r}, 2)"])
    counts = {"right": 0, "refused": 0}

    def read(number):
        rng, mine = random.Random(number), {"right": 0, "refused": 0}
        while writer.poll() is None:
            numbers = [rng.randrange(RECORDS) for _ in range(rng.choice([1, 1, 30, 300]))]
            try:
                got = data[numbers].tolist()
            except croupier.CroupierError:
                mine["refused"] += 1
                time.sleep(0.001)
                continue
            assert got == [numbered(one, RECORD) for one in numbers]
            mine["right"] += 1
        for name, count in mine.items():
            counts[name] += count

    in_threads(4, read)
    assert writer.returncode == 0
    assert data[:].tolist() == [numbered(one, RECORD) for one in range(RECORDS)]  # whole again: goes on
    return counts


@pytest.mark.unsanitized
@pytest.mark.parametrize("handler", ["none", "before", "after"])
def test_truncated_while_mapped(tmp_path, handler):
    """No SIGBUS, whether faulthandler has put its own handler under ours, over it, or is not there."""
    path = make(tmp_path / "x.tfrecord", [numbered(number, RECORD) for number in range(RECORDS)])
    counts = alone(read_while_truncated, str(path), handler)
    assert counts["right"] > 20
    assert counts["refused"] > 20


def die_of_another_mapping(path):
    """A fault that is not in our mapping is not ours to hide."""
    import mmap

    data = croupier.open(path)
    assert len(data[:]) == RECORDS
    (Path(path).parent / "other").write_bytes(bytes(1 << 20))
    with open(Path(path).parent / "other", "r+b") as file:
        theirs = mmap.mmap(file.fileno(), 0)
        file.truncate(0)
        print("reading", flush=True)
        return theirs[70_000]


@pytest.mark.unsanitized
def test_the_faults_of_others_are_theirs(tmp_path):
    path = make(tmp_path / "x.tfrecord", [numbered(number, RECORD) for number in range(RECORDS)])
    with pytest.raises(AssertionError, match=rf"^ended with {-signal.SIGBUS}\s+reading"):
        alone(die_of_another_mapping, str(path))


# Forks


def three_kinds(folder):
    """A mapped plain file, one in fragments, one that can only be streamed."""
    sizes = [RECORD] * 800 + [10] * 800
    payloads = [numbered(number, size) for number, size in enumerate(sizes)]
    make(folder / "a.tfrecord", payloads)
    make(folder / "b.tfrecord.gz", payloads, "seekable 1")
    make(folder / "c.tfrecord.gz", payloads[-900:], "one member")
    return payloads + payloads + payloads[-900:]


def check_random(data, expected, rng, rounds):
    for _ in range(rounds):
        numbers = [rng.randrange(len(expected)) for _ in range(rng.choice([1, 5, 100]))]
        assert data[numbers].tolist() == [expected[number] for number in numbers]


def fork_often(folder, forks):
    expected = three_kinds(Path(folder))
    data = croupier.open(folder)
    assert len(data) == len(expected)
    over, failures = threading.Event(), []

    def hold_on(number):
        rng = random.Random(number)
        try:
            while not over.is_set():
                check_random(data, expected, rng, 1)
        except BaseException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=hold_on, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    ends, children = [], []
    for number in range(forks):
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                signal.alarm(20)  # a deadlock ends as a signal
                check_random(data, expected, random.Random(1_000 + number), 4)
                if number % 10 == 0:
                    assert list(data.skip(900).take(200)) == expected[900:1_100]
                    assert pickle.loads(pickle.dumps(data))[5] == expected[5]
                code = 0
            os._exit(code)
        children.append(child)
        if len(children) >= 4:
            ends.append(os.waitpid(children.pop(0), 0)[1])
    ends += [os.waitpid(child, 0)[1] for child in children]
    over.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return [os.waitstatus_to_exitcode(end) for end in ends]


@pytest.mark.unsanitized
def test_forks_while_others_read(tmp_path):
    """A hundred, each while the parent's threads hold locks and stand in the middle of files."""
    assert alone(fork_often, str(tmp_path), 100) == [0] * 100


def fork_while_indexing(folder):
    expected = three_kinds(Path(folder))
    parent, under_way, go_on = os.getpid(), threading.Event(), threading.Event()

    def wait(progress):
        if os.getpid() == parent:
            under_way.set()
            assert go_on.wait(30)

    data = croupier.open(folder, progress=wait)
    thread = threading.Thread(target=len, args=(data,))
    thread.start()
    assert under_way.wait(30)
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            signal.alarm(20)
            check_random(data, expected, random.Random(1), 5)
            code = 0
        os._exit(code)
    end = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    go_on.set()
    thread.join()
    assert data[7] == expected[7]
    return end


@pytest.mark.unsanitized
def test_fork_while_the_table_is_made(tmp_path):
    """The thread that makes it is not in the child, and neither is whoever would unlock."""
    assert alone(fork_while_indexing, str(tmp_path)) == 0


# Other processes


def digest(data):
    return hashlib.sha256(b"".join(b"%d," % len(one) + one for one in data)).hexdigest()


def digest_of_pickled(path):
    try:
        return digest(pickle.loads(Path(path).read_bytes()))
    except croupier.StaleError:
        return "stale"


@SLOW_IS_FINE
@pytest.mark.unsanitized
def test_pickled_for_another_process(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(10):
        payloads = [numbered(record, 20 * record) for record in range(number * 3)]
        make(folder / f"{number}.tfrecord.gz", payloads, FORMS[number % len(FORMS)])
    data = croupier.open(folder)
    assert len(data) == 135
    pickled = tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(data))
    assert pickled.stat().st_size < 4_096
    assert alone(digest_of_pickled, str(pickled)) == digest(data)
    parts = data.split([0.3, 0.3, 0.4])
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(digest, [data, *parts]) == [digest(one) for one in (data, *parts)]
    make(folder / "4.tfrecord.gz", [b"another"] * 12, FORMS[4])
    assert alone(digest_of_pickled, str(pickled)) == "stale"


# Files that are replaced while many read


def of_generation(generation, file):
    """Payloads that tell where they are from; other sizes in each generation, but for some of the files."""
    rng = random.Random(generation * 10 + file if file % 2 else file)
    sizes = [rng.choice([0, 10, 500, 3_000]) for _ in range(60)]
    return [
        (b"generation %d file %d record %d|" % (generation, file, number)) + b"x" * size
        for number, size in enumerate(sizes)
    ]


def generation_of(payload, file, number):
    """Of a record that is whole and where it should be."""
    told, _, filler = payload.partition(b"|")
    words = told.split()
    assert (int(words[3]), int(words[5])) == (file, number), told
    assert filler.count(b"x") == len(filler)
    return int(words[1])


COMPRESS = [bytes, gzip.compress, bgzip, zlib.compress]
MIXED = 6


def replace_files(folder, seconds, marker):
    """Generation by generation; `marker` says how far it is, so that no reader can see what is to come."""
    end, generation = time.monotonic() + seconds, 0
    while time.monotonic() < end or generation == 0:
        generation += 1
        for file in range(MIXED):
            content = framed(of_generation(generation, file))
            path = folder / f"{file}.tfrecord"
            marker.write_text(str(generation))
            if file < len(COMPRESS):
                (folder / "temporary").write_bytes(COMPRESS[file](content))
                os.replace(folder / "temporary", path)
            else:  # atomically by itself
                make(folder / f"{file}.tfrecord.gz", of_generation(generation, file), "seekable 1")
        time.sleep(0.03)
    return generation


def read_generations(folder, end, seed):
    """One of many readers: (reads, times that something was stale, the latest generation that it saw)."""
    paths = sorted([*folder.glob("*.tfrecord"), *folder.glob("*.tfrecord.gz")])
    files = {str(path): int(path.name.split(".")[0]) for path in paths}
    counts = [0, 0, 0]

    def opened():
        while time.monotonic() < end:
            data = croupier.open(paths, index="memory" if seed % 2 else "auto")
            try:
                assert len(data) == 60 * MIXED
                return data
            except croupier.StaleError:
                counts[1] += 1
        return None

    def read(number):
        rng, data = random.Random(seed * 100 + number), opened()
        while data is not None and time.monotonic() < end:
            which = rng.randrange(MIXED)
            numbers = [rng.randrange(60) for _ in range(rng.randrange(1, 12))]
            try:
                got = data[[60 * which + one for one in numbers]].tolist()
            except croupier.StaleError:
                counts[1] += 1
                data = opened()
                continue
            file = files[str(paths[which])]
            seen = {generation_of(payload, file, one) for one, payload in zip(numbers, got, strict=True)}
            assert len(seen) == 1, seen
            counts[0] += 1
            counts[2] = max(counts[2], *seen)

    in_threads(4, read)
    return counts


def read_while_replaced(folder, processes, seconds):
    folder = Path(folder)
    replace_files(folder, 0, folder / "generation")
    end, pipes = time.monotonic() + seconds, []
    for seed in range(processes):
        receive, send = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                signal.alarm(40 + seconds)
                os.write(send, json.dumps(read_generations(folder, end, seed)).encode())
                code = 0
            finally:
                if code:
                    import traceback

                    traceback.print_exc()
                os._exit(code)
        os.close(send)
        pipes.append(receive)
    generations = replace_files(folder, seconds, folder / "generation")
    ends = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in pipes]
    assert ends == [0] * processes, ends
    told = [json.loads(os.read(pipe, 1_000)) for pipe in pipes]
    reads, stale, latest = zip(*told, strict=True)
    return [sum(reads), sum(stale), max(latest), generations]


@pytest.mark.unsanitized
@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_replaced_while_many_read(tmp_path, seconds):
    """Sixteen processes of four threads: records are whole, and those of a batch are of one generation."""
    answer = alone(read_while_replaced, str(tmp_path), 16, seconds, timeout=60 + seconds)
    print("reads, times stale, latest generation, generations:", answer)
    reads, stale, latest, generations = answer
    assert generations > 2
    assert latest > 2
    assert stale > 20
    assert reads > 500


# Many files, many threads


def descriptors():
    return len(os.listdir("/dev/fd"))


@pytest.mark.unsanitized
def test_descriptors_of_a_thousand_shards(tmp_path, monkeypatch):
    sizes = [10, 300, 0, 2_000]
    expected = []
    for shard in range(1_000):
        payloads = [numbered(4 * shard + number, size) for number, size in enumerate(sizes)]
        (tmp_path / f"x-{shard:05d}-of-01000").write_bytes(framed(payloads))
        expected += payloads
    before, limits = descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_024, limits[1]))
    data = croupier.open(tmp_path / "x@1000")
    order = np.random.Generator(np.random.Philox(1)).permutation(len(expected))
    assert data[order].tolist() == [expected[number] for number in order.tolist()]
    assert 200 < descriptors() - before <= 300
    rng = random.Random(1)
    for _ in range(300):
        check_random(data, expected, rng, 1)
    assert list(data) == expected
    assert descriptors() - before <= 300
    copies = [pickle.loads(pickle.dumps(data)) for _ in range(3)]
    for copy in copies:
        assert copy[order[:2_000]].tolist() == [expected[number] for number in order[:2_000].tolist()]
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, limits[1]))
    fewer = croupier.open(tmp_path / "x@1000")
    assert fewer[order].tolist() == [expected[number] for number in order.tolist()]
    assert len(fewer._files._open) == 16
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))
    more = croupier.open(tmp_path / "x@1000")
    assert more[order].tolist() == [expected[number] for number in order.tolist()]
    assert len(more._files._open) == 1_000
    del copy, copies, data, fewer, more
    assert descriptors() - before <= 2


@pytest.mark.slow
@pytest.mark.unsanitized
def test_a_million_files(tmp_path):
    """Of one record each: a table for each folder, and every record where it should be; some, then all."""
    folders, each = 20, 50_000
    for folder in range(folders):
        (tmp_path / f"{folder:02d}").mkdir()
        home = os.open(tmp_path / f"{folder:02d}", os.O_RDONLY)
        for file in range(each):
            flags = os.O_WRONLY | os.O_CREAT
            fd = os.open(f"{file:05d}.tfrecord", flags, 0o644, dir_fd=home)
            os.write(fd, framed([numbered(folder * each + file, 20 + file % 300)]))
            os.close(fd)
        os.close(home)
    where = [tmp_path / f"{folder:02d}" for folder in range(folders)]
    before = descriptors()
    made, tables = croupier.index(where)
    assert (len(made), len(tables)) == (folders * each, folders)
    data = croupier.open(where, index="require")
    assert len(data) == folders * each
    order = np.random.default_rng(1).permutation(len(data))
    for number in order[:30].tolist():
        assert data[number] == numbered(number, 20 + number % each % 300)
    for begin in range(0, len(order), 100_000):
        wanted = order[begin : begin + 100_000]
        batch = data[wanted]
        for number, payload in zip(wanted.tolist(), batch, strict=True):
            assert payload == numbered(number, 20 + number % each % 300)
    assert descriptors() - before <= 4_200
    changed = where[7] / "00123.tfrecord"
    changed.write_bytes(framed([b"another"]))
    with pytest.raises(croupier.StaleError):
        data[7 * each + 123]
    assert croupier.index(where)[0] == [str(changed)]
    assert croupier.open(where, index="require")[7 * each + 123] == b"another"


@SLOW_IS_FINE
@pytest.mark.parametrize("form", FORMS)
def test_eight_threads_on_one_dataset(tmp_path, form):
    """From the first moment on: they also want the table at the same time."""
    sizes = [RECORD] * 600 + [10] * 600
    payloads = [numbered(number, size) for number, size in enumerate(sizes)]
    make(tmp_path / "a.tfrecord.gz", payloads, form)
    make(tmp_path / "b.tfrecord.gz", payloads[::-1], form)
    data = croupier.open(tmp_path)
    expected = payloads + payloads[::-1]
    rounds = 60 if form == "plain" or form.startswith("seekable") else 8

    def read(number):
        rng = random.Random(number)
        assert len(data) == len(expected)
        for _ in range(rounds):
            check_random(data, expected, rng, 1)
            one = rng.randrange(len(expected))
            assert data[one] == expected[one]
            begin = rng.randrange(len(expected))
            assert data[begin : begin + 50].tolist() == expected[begin : begin + 50]
        if number < 2:
            assert list(data.skip(number * 100)) == expected[number * 100 :]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        in_threads(8, read)
    assert [path.name for path in (tmp_path / ".croupier").glob("*.table")] == ["records.table"]
