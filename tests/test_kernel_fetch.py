"""Many records of many files at once: right or refused, whatever happens to the files."""

import errno
import os
import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier import _kernel as kernel
from kernel_help import (
    cached,
    chill,
    edges_of,
    few,
    frame,
    opened,
    run,
    u64,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A file with one record."""
    path = tmp_path_factory.mktemp("plain") / "a.tfrecord"
    path.write_bytes(frame(b"0123456789"))
    return path


# --- File


def test_a_file_knows_its_stamp(plain):
    file, status = opened(plain), plain.stat()
    assert file.stamp == (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    assert (file.regular, file.broken, file.unchanged()) == (True, False, True)
    assert os.fstat(file.fd).st_ino == status.st_ino
    fd = file.fd
    del file
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)


def test_what_is_no_file(tmp_path):
    for fd in (-1, 10**6):
        with pytest.raises(OSError, match="descriptor"):
            kernel.File(fd)
    for bad in (None, "x", 2**31, 0.5):
        with pytest.raises(TypeError):
            kernel.File(bad)
    with pytest.raises(TypeError):
        kernel.File()
    folder = opened(tmp_path)
    assert not folder.regular
    reading, writing = os.pipe()
    pipe = kernel.File(reading)
    assert not pipe.regular
    out = bytearray(9)
    one = u64([0])
    assert kernel.fetch([pipe], one, one, one, one, out, True, 1, False)[1] == kernel.BEHIND_END
    os.close(writing)
    wrong = kernel.fetch([folder], one, one, one, one, out, True, 1, False)
    assert wrong[1:3] in [(kernel.BEHIND_END, 0), (kernel.REFUSED, errno.EISDIR)]


@pytest.mark.parametrize("how", ["append", "truncate", "overwrite", "touch", "remove", "replace"])
def test_a_file_notices_that_it_changed(tmp_path, how):
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    os.utime(path, ns=(10**18, 10**18))
    file = opened(path)
    assert file.unchanged()
    change(path, how)
    assert not file.unchanged()


def change(path, how):
    size = path.stat().st_size
    if how == "append":
        with path.open("ab") as file:
            file.write(b"x")
    elif how == "truncate":
        os.truncate(path, size // 2)
    elif how == "overwrite":
        with path.open("r+b") as file:
            file.write(b"other")
    elif how == "touch":
        os.utime(path)
    elif how == "remove":
        path.unlink()
    else:
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        os.utime(other, ns=(path.stat().st_mtime_ns,) * 2)
        other.replace(path)


# --- fetch


class Data:
    """A file of records, and what is in it."""

    def __init__(self, path, sizes, seed=0):
        rng = np.random.default_rng(seed)
        self.path = path
        self.payloads = [rng.integers(0, 256, size, dtype=np.uint8).tobytes() for size in sizes]
        self.edges = edges_of(sizes)
        path.write_bytes(b"".join(map(frame, self.payloads)))
        os.utime(path, ns=(10**18, 10**18))  # so that any write is seen, however coarse the clock

    def patch(self, at, data):
        """Change the content, unseen."""
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), data, at)
        os.utime(self.path, ns=(10**18, 10**18))


@pytest.mark.skipif(sys.platform != "linux", reason="where the system cannot say, all files count as warm")
def test_files_can_be_chilled(tmp_path):
    """Else the tests of the cold way would test the warm one."""
    data = Data(tmp_path / "a", [1000] * 3000)
    assert cached(data.path) == 1
    chill(data.path)
    assert cached(data.path) == 0


def fetch(datas, wanted, *, files=None, verify=True, threads=2, cold=False, lengths=None, offsets=None):
    """`wanted` are (file, record): ((request, why, errno), the payloads)."""
    if files is None:
        files = [opened(data.path) for data in datas]
    size = [len(datas[f].payloads[i]) for f, i in wanted] if lengths is None else lengths
    at = [datas[f].edges[i] for f, i in wanted] if offsets is None else offsets
    places = list(accumulate(size, initial=3))
    out = bytearray(b"\xee" * (places[-1] + 3))
    if cold:
        chill(*(data.path for data in datas))
    result = kernel.fetch(
        files,
        u64(f for f, _ in wanted),
        u64(at),
        u64(size),
        u64(places[:-1]),
        out,
        verify,
        threads,
        cold == "past",
    )[:3]
    assert out[:3] == out[-3:] == b"\xee" * 3
    return result, [bytes(out[a:b]) for a, b in pairwise(places)]


SMALL, LARGE, LUMPS, TINY = range(4)


@pytest.fixture(scope="module")
def datas(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("fetched"), random.Random(7)
    return [
        Data(folder / "small", [rng.choice((0, 1, 7, 100, 500, 3000)) for _ in range(500)], 1),  # read
        Data(folder / "large", [rng.choice((0, 5, 200, 900, 20_000)) for _ in range(700)], 2),  # mapped
        Data(folder / "lumps", [65_535, 65_536, 70_000, 0, 1_500_000, 3, 300_000], 3),  # mapped
        Data(folder / "tiny", [0], 4),
    ]


def test_the_files_are_what_they_should_be(datas):
    sizes = [data.path.stat().st_size for data in datas]
    assert sizes[SMALL] < 1 << 20 < sizes[LARGE]
    assert sizes[LUMPS] > 1 << 20
    assert sizes[TINY] == 16


ways = pytest.mark.parametrize("cold", [False, True, "past"], ids=["warm", "cold", "past the cache"])


@ways
@pytest.mark.parametrize("threads", [0, 1, 2, 7, 4_000_000_000])
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled", "repeated", "far apart"])
def test_fetch(datas, cold, threads, order):
    everything = [(f, i) for f, data in enumerate(datas) for i in range(len(data.payloads))]
    rng = random.Random(order)
    if order == "backward":
        everything.reverse()
    elif order == "shuffled":
        rng.shuffle(everything)
    elif order == "repeated":
        everything = rng.choices(everything, k=1500) + [(LUMPS, 2)] * 5 + [(LUMPS, 4)] * 2 + [(TINY, 0)] * 9
    elif order == "far apart":
        everything = rng.sample(everything, 60)
    result, found = fetch(datas, everything, threads=threads, cold=cold)
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in everything]


def cold_bytes(data, *, past, chilled=False):
    """What the page cache got, as the kernel says it, of all records."""
    if not chilled:
        chill(data.path)
    size, at = list(map(len, data.payloads)), data.edges[:-1]
    places, out = list(accumulate(size, initial=0)), bytearray(sum(size))
    columns = u64([0] * len(size)), u64(at), u64(size), u64(places[:-1])
    _, why, _, cold = kernel.fetch([opened(data.path)], *columns, out, True, 2, past)
    assert why == kernel.FETCHED
    assert bytes(out) == b"".join(data.payloads)
    return cold


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all is read through the page cache")
def test_edges_in_the_page_cache_do_not_make_a_record_warm(datas):
    """Who walked from header to header has brought them there."""
    data = datas[LUMPS]
    chill(data.path)
    with data.path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for at in data.edges[:-1]:
            os.pread(file.fileno(), 12, at)
    assert 0 < cached(data.path) < 0.5
    assert cold_bytes(data, past=False, chilled=True) == data.path.stat().st_size


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all is read through the page cache")
def test_the_page_cache_is_passed_by(datas):
    """For long reads; whoever asks for short ones gets them through it."""
    size = datas[LUMPS].path.stat().st_size
    assert cold_bytes(datas[LUMPS], past=False) == size
    assert cached(datas[LUMPS].path) == 1
    assert cold_bytes(datas[LUMPS], past=False) == size  # it was forgotten in between
    assert cold_bytes(datas[LUMPS], past=True) == 0
    assert cached(datas[LUMPS].path) < 0.5  # to ask whether it is cold may fetch some
    assert cold_bytes(datas[TINY], past=True) == 16


@given(st.data())
@few
def test_fetch_of_anything_that_is_there(datas, data):
    every = st.sampled_from([(f, i) for f, one in enumerate(datas) for i in range(len(one.payloads))])
    wanted = data.draw(st.lists(every, max_size=40))
    cold, verify = data.draw(st.sampled_from([False, True, "past"])), data.draw(st.booleans())
    result, found = fetch(datas, wanted, cold=cold, verify=verify, threads=data.draw(st.integers(0, 4)))
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in wanted]


def test_fetch_of_nothing(datas):
    assert fetch(datas, []) == ((0, kernel.FETCHED, 0), [])
    assert fetch([], []) == ((0, kernel.FETCHED, 0), [])


@ways
def test_fetch_from_many_files(tmp_path, cold):
    datas = [Data(tmp_path / str(n), [n % 50, 0, 3000], n) for n in range(300)]
    wanted = [(f, i) for i in range(3) for f in range(300)]
    random.Random(1).shuffle(wanted)
    result, found = fetch(datas, wanted, cold=cold)
    assert result == (0, kernel.FETCHED, 0)
    assert found == [datas[f].payloads[i] for f, i in wanted]


def test_fetch_by_many_threads_at_once(datas):
    """Of the same Files, so that they are mapped while others read."""
    files = [opened(data.path) for data in datas]
    everything = [(f, i) for f, data in enumerate(datas) for i in range(len(data.payloads))]

    def read(seed):
        rng = random.Random(seed)
        wanted = rng.choices(everything, k=300)
        result, found = fetch(datas, wanted, files=files, cold=[False, False, True, False, "past"][seed % 5])
        return result == (0, 0, 0) and found == [datas[f].payloads[i] for f, i in wanted]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(60)))


@pytest.fixture
def mapped(tmp_path):
    """A file that is mapped once it is read, and one that never is."""
    return [Data(tmp_path / "mapped", [1000] * 3000, 1), Data(tmp_path / "read", [1000] * 300, 2)]


files_of_both_kinds = pytest.mark.parametrize("which", [0, 1], ids=["mapped", "read"])


@ways
@files_of_both_kinds
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_wrong_is_found(mapped, which, cold, threads):
    data = mapped[which]
    every = [(which, i) for i in range(0, len(data.payloads), 2)]
    victim = len(every) // 2
    at = data.edges[every[victim][1]]
    for offset, why in [
        (0, kernel.WRONG_HEADER),
        (7, kernel.WRONG_HEADER),
        (11, kernel.WRONG_HEADER),
        (12, kernel.WRONG_PAYLOAD),
        (1011, kernel.WRONG_PAYLOAD),
        (1012, kernel.WRONG_PAYLOAD),
        (1015, kernel.WRONG_PAYLOAD),
    ]:
        good = data.path.read_bytes()[at + offset : at + offset + 1]
        data.patch(at + offset, bytes([good[0] ^ 64]))
        for verify in (True, False):
            result, _ = fetch(mapped, every, cold=cold, verify=verify, threads=threads)
            seen = verify or why == kernel.WRONG_HEADER
            assert result == ((victim, why, 0) if seen else (0, kernel.FETCHED, 0))
        data.patch(at + offset, good)
    assert fetch(mapped, every, cold=cold, threads=threads)[0] == (0, kernel.FETCHED, 0)


@ways
@files_of_both_kinds
@pytest.mark.parametrize("verify", [True, False])
def test_requests_for_other_lengths_and_places(mapped, which, cold, verify):
    size = mapped[which].edges[-1]
    for offset, length, why in [
        (0, 999, kernel.WRONG_LENGTH),
        (0, 1001, kernel.WRONG_LENGTH),
        (0, 0, kernel.WRONG_LENGTH),
        (1016, 1016 + 1000, kernel.WRONG_LENGTH),
        (1, 1000, kernel.WRONG_HEADER),
        (12, 0, kernel.WRONG_HEADER),
        (size - 16, 0, kernel.WRONG_HEADER),
        (size - 16, 1, kernel.BEHIND_END),
        (size - 15, 0, kernel.BEHIND_END),
        (size - 1015, 1000, kernel.BEHIND_END),
        (size, 0, kernel.BEHIND_END),
        (size + 1, 0, kernel.BEHIND_END),
        (2**63 - 13, 1000, kernel.BEHIND_END),
        (2**63, 0, kernel.BEHIND_END),
        (2**64 - 16, 0, kernel.BEHIND_END),
        (2**64 - 12, 9, kernel.BEHIND_END),
        (2**64 - 1, 0, kernel.BEHIND_END),
    ]:
        wanted = [(which, 0)]
        options = {"lengths": [length], "offsets": [offset], "verify": verify, "cold": cold}
        assert fetch(mapped, wanted, **options)[0] == (0, why, 0)
        # among others that are right
        lengths, offsets = [1000, length, 1000], [0, offset, 1016]
        options |= {"lengths": lengths, "offsets": offsets}
        assert fetch(mapped, wanted * 3, **options)[0] == (1, why, 0)


@ways
@given(st.data())
@few
def test_the_first_request_at_fault_is_told(mapped_for_ever, cold, data):
    """The first of the caller's, in whatever order and on however many threads they were read."""
    datas = mapped_for_ever
    wanted = data.draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 298)), min_size=1, max_size=60))
    offsets = [datas[f].edges[i] for f, i in wanted]
    for k in data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=4)):
        offsets[k] += 1
    bad = [k for k, (f, i) in enumerate(wanted) if offsets[k] != datas[f].edges[i]]
    result, _ = fetch(datas, wanted, offsets=offsets, cold=cold, threads=3)
    assert result == ((bad[0], kernel.WRONG_HEADER, 0) if bad else (0, kernel.FETCHED, 0))


@pytest.fixture(scope="module")
def mapped_for_ever(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mapped")
    return [Data(folder / "mapped", [1000] * 3000, 1), Data(folder / "read", [1000] * 300, 2)]


@ways
@files_of_both_kinds
@pytest.mark.parametrize("how", ["append", "overwrite", "touch", "remove", "replace"])
def test_fetch_from_a_file_that_changed(mapped, which, cold, how):
    """Whatever the records look like: bytes of two versions must not be mixed."""
    files = [opened(data.path) for data in mapped]
    wanted = [(f, i) for i in range(200) for f in (0, 1)]
    assert fetch(mapped, wanted, files=files)[0] == (0, kernel.FETCHED, 0)
    if how != "remove" and cold:
        chill(mapped[which].path)
    change(mapped[which].path, how)
    result = kernel.fetch(
        files,
        u64(f for f, _ in wanted),
        u64(mapped[f].edges[i] for f, i in wanted),
        u64([1000] * 400),
        u64(range(0, 400_000, 1000)),
        bytearray(400_000),
        True,
        2,
        cold == "past",
    )
    assert result[:3] == (wanted.index((which, 0)), kernel.CHANGED, 0)
    # Those who ask the other file alone need not care
    other = [(1 - which, i) for i in range(300)]
    if how != "remove":
        assert fetch(mapped, other, files=files)[0] == (0, kernel.FETCHED, 0)


@ways
def test_a_file_that_was_truncated_and_never_mapped(mapped, cold):
    files = [opened(data.path) for data in mapped]
    os.truncate(mapped[1].path, 1500)
    wanted = [(1, i) for i in range(300)]
    assert fetch(mapped, wanted, files=files, cold=cold)[0] == (0, kernel.CHANGED, 0)
    assert fetch(mapped, wanted, cold=cold)[0] == (1, kernel.BEHIND_END, 0)


@pytest.mark.parametrize("what", ["offsets", "order", "file", "lengths", "places"])
def test_requests_that_change_meanwhile(tmp_path, what):
    """In a process of its own: the result may be anything, but nothing is read or written out of range."""
    run(CHANGING, Data(tmp_path / "a", [1000] * 3000, 1).path, what)


CHANGING = """
import contextlib, os, sys, threading, time
import numpy as np
from croupier import _kernel as k
path, what, n = sys.argv[1], sys.argv[2], 3000
order = np.random.default_rng(1).permutation(n).astype(np.uint64)
good = {"file": np.zeros(n, np.uint64), "offsets": order * np.uint64(1016),
        "lengths": np.full(n, 1000, np.uint64), "places": np.arange(n, dtype=np.uint64) * np.uint64(1000)}
shared = {name: part.copy() for name, part in good.items()}
out, stop = bytearray(n * 1000), threading.Event()

def disturb():
    rng = np.random.default_rng(1)
    part, right = shared["offsets" if what == "order" else what], good["offsets" if what == "order" else what]
    while not stop.is_set():
        if what == "order":  # all behind the end, so that nothing is found in memory, and sorted
            part[:] = rng.integers(2**40, 2**50, n)
        else:
            at = rng.integers(0, n, 40)
            part[at] = rng.integers(0, 2**64, 40, dtype=np.uint64)
            part[at] = right[at]

thread = threading.Thread(target=disturb)
thread.start()
end = time.monotonic() + 1
file = k.File(os.open(path, os.O_RDWR))
try:
    while time.monotonic() < end:
        with contextlib.suppress(ValueError):
            k.fetch([file, file], *shared.values(), out, True, 2, time.time_ns() // 1000 % 2 == 0)
finally:
    stop.set()
    thread.join()
"""


# --- take: the same from memory


def take(source, offsets, lengths, *, verify=True):
    """(request, why), the payloads"""
    places = list(accumulate(lengths, initial=3))
    out = bytearray(b"\xee" * (places[-1] + 3))
    result = kernel.take(source, u64(offsets), u64(lengths), u64(places[:-1]), out, verify)
    assert out[:3] == out[-3:] == b"\xee" * 3
    return result, [bytes(out[a:b]) for a, b in pairwise(places)]


payloads = st.lists(st.binary(max_size=300), min_size=1, max_size=20)


@given(payloads, st.data(), st.booleans())
@few
def test_take(records, data, verify):
    source, edges = b"".join(map(frame, records)), edges_of(map(len, records))
    wanted = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=30))
    found = take(source, [edges[i] for i in wanted], [len(records[i]) for i in wanted], verify=verify)
    assert found == ((0, kernel.FETCHED), [records[i] for i in wanted])


@pytest.mark.parametrize("verify", [True, False])
def test_take_finds_every_flipped_bit(verify):
    """Of the header always, of the payload and its checksum if it is to be verified."""
    source = b"".join(map(frame, (b"before", b"0123456789", b"")))
    begin, end = 22, 48
    for at in range(begin, end):
        for bit in range(8):
            damaged = bytearray(source)
            damaged[at] ^= 1 << bit
            result, found = take(damaged, [0, begin, end], [6, 10, 0], verify=verify)
            if at < begin + 12:
                assert result == (1, kernel.WRONG_HEADER)
            elif verify:
                assert result == (1, kernel.WRONG_PAYLOAD)
            else:
                assert (result, found[0], found[2]) == ((0, kernel.FETCHED), b"before", b"")


def test_take_at_the_end_of_the_source():
    source = frame(b"a") + frame(b"0123456789")
    for offset, length, why in [
        (17, 10, kernel.FETCHED),
        (17, 9, kernel.WRONG_LENGTH),
        (17, 11, kernel.BEHIND_END),
        (18, 10, kernel.BEHIND_END),
        (43, 0, kernel.BEHIND_END),
        (28, 0, kernel.BEHIND_END),
        (27, 0, kernel.WRONG_HEADER),
        (2**63, 0, kernel.BEHIND_END),
        (2**64 - 16, 0, kernel.BEHIND_END),
        (2**64 - 1, 10, kernel.BEHIND_END),
    ]:
        assert take(source, [offset], [length])[0] == (0, why)
        assert take(source, [0, offset, 0], [1, length, 1])[0] == ((1, why) if why else (0, why))


# --- files that are truncated while they are mapped: the system's answer is a signal that ends processes

TRUNCATING = """
import faulthandler, os, sys, threading
import numpy as np
from croupier import _kernel as k
path, when, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
if when == "before":
    faulthandler.enable()
n = 3000
def ask(file, records, threads=2):
    records = np.asarray(records, np.uint64)
    places = np.arange(len(records), dtype=np.uint64) * np.uint64(1000)
    out = bytearray(1000 * len(records))
    return k.fetch([file], np.zeros(len(records), np.uint64), records * np.uint64(1016),
                   np.full(len(records), 1000, np.uint64), places, out, True, threads, False)[:3]
file = k.File(os.open(path, os.O_RDONLY))
assert ask(file, range(n)) == (0, k.FETCHED, 0)
if when == "after":
    faulthandler.enable()
if when == "again":
    faulthandler.enable(), faulthandler.disable(), faulthandler.enable()
"""

TRUNCATED = (
    TRUNCATING
    + """
os.truncate(path, left)
for records in (range(n), range(n - 1, -1, -1), [n - 1], [0], range(0, n, 50)):
    for threads in (1, 4):
        assert ask(file, records, threads)[1] == k.CHANGED
assert not file.unchanged()
anew = k.File(os.open(path, os.O_RDONLY))
assert ask(anew, range(n)) == (left // 1016, k.BEHIND_END, 0)
assert ask(anew, range(left // 1016)) == (0, k.FETCHED, 0)
print("lived")
"""
)


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after", "again"])
def test_a_mapped_file_that_was_truncated(tmp_path, when):
    """With faulthandler, which handles that signal as well, wherever it stands."""
    for left in (0, 1, 5000, 4096 * 300, 3_000_000):
        data = Data(tmp_path / "a", [1000] * 3000, 1)
        done = run(TRUNCATED, data.path, when, left)
        assert (done.stdout, done.stderr) == ("lived\n", "")


@pytest.mark.unsanitized
def test_a_file_that_is_truncated_while_it_is_read(tmp_path):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    content = data.path.read_bytes()
    (tmp_path / "copy").write_bytes(content)
    script = TRUNCATING + (
        """
content, seen = open(path + ".content", "rb").read(), set()
def disturb():
    os.truncate(path, 100_000)
for turn in range(60):
    with open(path, "r+b") as again:
        again.write(content)
    file = k.File(os.open(path, os.O_RDONLY))
    assert ask(file, range(0, n, 300))[1] == k.FETCHED
    thread = threading.Timer(0.0003 * (turn % 10), disturb)
    thread.start()
    order = np.random.default_rng(turn).permutation(n)
    for _ in range(9):
        seen.add(why := ask(file, order, 2)[1])
        if why != k.FETCHED:
            break
    thread.join()
    assert ask(file, order)[1] == k.CHANGED
assert seen <= {k.FETCHED, k.CHANGED}, seen
print("lived")
"""
    )
    (tmp_path / "a.content").write_bytes(content)
    assert run(script, data.path, "before", 0).stdout == "lived\n"


OTHERS_FAULT = (
    TRUNCATING
    + """
import mmap
with open(path, "r+b") as other:
    theirs = mmap.mmap(other.fileno(), 0)
    os.truncate(path, 0)
theirs[5000]
"""
)


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after", "again"])
def test_faults_of_others_end_the_process(tmp_path, when):
    """Nobody else's mapping is mended, and faulthandler has its say (once)."""
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    done = run(OTHERS_FAULT, data.path, when, 0, code=-signal.SIGBUS)
    assert done.stderr.count("Fatal Python error: Bus error") == (when != "never")


@pytest.mark.unsanitized
@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_the_signal_sent_by_somebody_ends_the_process(tmp_path, when):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    script = TRUNCATING + "import signal\nos.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    done = run(script, data.path, when, 0, code=-signal.SIGBUS)
    assert done.stderr.count("Fatal Python error: Bus error") == (when != "never")
    ignoring = TRUNCATING.replace("\n", "\nimport signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)\n", 1)
    script = ignoring + "os.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    if when == "never":
        assert run(script, data.path, when, 0).stdout == "lived\n"


@pytest.mark.unsanitized
def test_a_python_handler_of_that_signal_still_runs(tmp_path):
    data = Data(tmp_path / "a", [1000] * 3000, 1)
    handler = "\nimport signal; signal.signal(signal.SIGBUS, lambda *_: print('handled'))\n"
    script = TRUNCATING.replace("\n", handler, 1) + "os.kill(os.getpid(), signal.SIGBUS)\nprint('lived')\n"
    assert run(script, data.path, "never", 0).stdout == "handled\nlived\n"
