"""Looking for records in files, and telling files apart, against tests/oracle.py."""

import contextlib
import errno
import itertools
import os
import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from croupier import _kernel as kernel
from kernel_help import (
    NO_LIMIT,
    edges_of,
    few,
    frame,
    header,
    numbers,
    quick,
)

# --- walk


@pytest.fixture(scope="module")
def spare():
    """Puts bytes into a file without a name; gives its descriptor."""
    with tempfile.TemporaryFile() as file:

        def put(data):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), data, 0)
            return file.fileno()

        yield put


def walk(fd, size, begin=0, end=NO_LIMIT, sync=False, limit=NO_LIMIT):
    """As oracle.walk."""
    first, last, why, found = kernel.walk(fd, size, begin, end, sync, limit)
    return first, last, why, np.frombuffer(found, np.uint64).tolist()


inner = b"".join(map(oracle.frame, [b"", b"abc", b"x" * 20]))
payloads_with_frames = st.lists(
    st.binary(max_size=60) | st.sampled_from([inner, inner[:30], inner + b"!", oracle.header(3)]), max_size=6
)


@given(
    payloads_with_frames,
    st.lists(st.tuples(numbers, st.integers(0, 255)), max_size=3),
    st.binary(max_size=20),
    st.data(),
)
@quick
def test_walk(spare, payloads, damage, rest, data):
    content = bytearray(b"".join(map(oracle.frame, payloads)) + rest)
    for at, byte in damage:
        if content:
            content[at % len(content)] = byte
    fd, near = spare(content), st.integers(0, len(content) + 5)
    for sync in (False, True):
        size = data.draw(near | st.just(len(content)))
        begin, end, limit = (data.draw(near), data.draw(near | numbers), data.draw(near | st.just(NO_LIMIT)))
        arguments = size, begin, end, sync, limit
        assert walk(fd, *arguments) == oracle.walk(bytes(content), *arguments)


def test_walk_from_everywhere_to_everywhere(spare):
    """Records that are TFRecord files themselves: frames are found in them that are none of the file's."""
    payloads = [b"", b"a" * 9, inner, b"", oracle.frame(inner), b"xyz"]
    content = b"".join(map(oracle.frame, payloads))
    edges = edges_of(map(len, payloads))
    fd, size = spare(content), len(content)
    leads = [at for at in range(size) if oracle._leads_on(content, at, size, NO_LIMIT)]
    assert set(edges[:-1]) < set(leads)
    for begin in range(size + 2):
        for end in {*range(0, size + 2, 7), *edges, size - 1, NO_LIMIT}:
            expected = next((at for at in leads if begin <= at < min(end, size)), min(end, size))
            first, *rest = walk(fd, size, begin, end, sync=True)
            assert first == expected
            assert (first, *rest) == walk(fd, size, first, end)
    for begin, edge in enumerate(edges[:-1]):
        for end in range(size + 2):
            taken = [i for i in range(begin, len(payloads)) if edges[i] < end]
            lengths = [len(payloads[i]) for i in taken]
            last = edges[taken[-1] + 1] if taken else edge
            assert walk(fd, size, edge, end) == (edge, last, kernel.FULL, lengths)


def test_walk_of_every_cut(spare):
    payloads = [b"", b"a" * 9, b"", b"b" * 30]
    content, edges = b"".join(map(oracle.frame, payloads)), edges_of(map(len, payloads))
    for cut in range(len(content) + 1):
        fd = spare(content[:cut])
        whole = sum(edge <= cut for edge in edges) - 1
        why = kernel.FULL if cut == edges[whole] else kernel.PARTIAL
        lengths = [len(payload) for payload in payloads[:whole]]
        assert walk(fd, cut) == (0, edges[whole], why, lengths)
        # Cut after the caller asked how large it is: what is missing is missing, also where only a payload is
        found = walk(fd, len(content))
        assert found == oracle.walk(content[:cut], len(content), 0, NO_LIMIT, False, NO_LIMIT)


def test_walk_of_every_flipped_bit(spare):
    payloads = [b"", b"a" * 9, b"", b"b" * 30, b""]
    content = b"".join(map(oracle.frame, payloads))
    for bit in range(8 * len(content)):
        bad = bytearray(content)
        bad[bit // 8] ^= 1 << bit % 8
        fd = spare(bad)
        for sync in (False, True):
            arguments = len(bad), 0, NO_LIMIT, sync, NO_LIMIT
            assert walk(fd, *arguments) == oracle.walk(bytes(bad), *arguments)


BOMBS = sorted({2**k + d for k in range(24, 64) for d in (-1, 0, 1)} | {2**64 - n for n in range(1, 34)})


@pytest.mark.parametrize("rest", [0, 3, 4, 100])
def test_walk_meets_length_bombs(spare, rest):
    for length in BOMBS:
        content = oracle.frame(b"good") + header(length) + bytes(rest)
        fd, size = spare(content), len(content)
        assert walk(fd, size) == (0, 20, kernel.PARTIAL, [4])
        assert walk(fd, size, limit=length - 1) == (0, 20, kernel.TOO_LONG, [4])
        assert walk(fd, size, 1, sync=True) == (size, size, kernel.FULL, [])
        # a file that claims to be as large as that: the numbers wrap nowhere
        for claimed in (length, 2**63, NO_LIMIT):
            arguments = claimed, 0, NO_LIMIT, False, NO_LIMIT
            with contextlib.suppress(OSError):  # an offset of 2^63 or more
                assert walk(fd, *arguments) == oracle.walk(content, *arguments)


def sparse(sizes):
    """A file with these records, of which only the headers are written."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    for begin, size in zip(edges_of(sizes), sizes, strict=False):
        os.pwrite(file.fileno(), header(size), begin)
    os.ftruncate(file.fileno(), edges_of(sizes)[-1])
    return file


WINDOW = 256 << 10
LONG = [
    pytest.param([40_000] * 100, id="narrow"),
    pytest.param([32_768 - 16] * 50, id="at the edge of narrow"),
    pytest.param([300_000] * 30, id="longer than the window"),
    pytest.param([WINDOW - 16 - 5] * 40, id="headers across windows"),
    pytest.param([100] * 5000 + [2_000_000] + [0] * 20_000 + [50_000] * 9 + [7] * 9, id="wide narrow wide"),
    pytest.param([(1 << 40) + 5, 3, (1 << 31), 0], id="huge"),
    pytest.param([0] * 70_000, id="empty payloads"),
]


@pytest.mark.parametrize("sizes", LONG)
def test_walk_of_long_records(sizes):
    edges = edges_of(sizes)
    with sparse(sizes) as file:
        fd = file.fileno()
        assert walk(fd, edges[-1]) == (0, edges[-1], kernel.FULL, sizes)
        if longest := max(sizes):
            first = sizes.index(longest)
            cut = 0, edges[first], kernel.TOO_LONG, sizes[:first]
            assert walk(fd, edges[-1], limit=longest - 1) == cut
        rng = random.Random(1)
        for _ in range(20):
            i, j = sorted(rng.choices(range(len(edges)), k=2))
            begin = max(edges[i] - rng.randrange(3000 if i else 1), 0)
            first = next(k for k, edge in enumerate(edges) if edge >= begin)
            end = min(edges[j] + rng.randrange(2) * rng.randrange(1, 5), edges[-1])
            last = max(first, next(k for k, edge in enumerate(edges) if edge >= end))
            if edges[first] >= end:
                continue
            expected = edges[first], edges[last], kernel.FULL, sizes[first:last]
            assert walk(fd, edges[-1], begin, end, sync=True) == expected
            assert walk(fd, edges[-1], edges[first], end) == expected


def test_every_header_across_a_window():
    """The second header begins at each of the 40 bytes around the window's end."""
    for size in range(WINDOW - 16 - 30, WINDOW - 16 + 10):
        sizes = [size, 5, 0, 70_000, 3]
        with sparse(sizes) as file:
            end = edges_of(sizes)[-1]
            assert walk(file.fileno(), end) == (0, end, kernel.FULL, sizes)
            for begin in (1, size + 15):
                assert walk(file.fileno(), end, begin, sync=True) == (size + 16, end, kernel.FULL, sizes[1:])


def test_walk_in_many_threads():
    """Parts of one file, by one descriptor: together they are all of it."""
    rng = random.Random(5)
    sizes = [rng.choice((0, 10, 300, 5000, 60_000)) for _ in range(3000)]
    with sparse(sizes) as file, ThreadPoolExecutor(16) as pool:
        fd, end = file.fileno(), edges_of(sizes)[-1]
        step = end // 40 + 1
        jobs = [
            pool.submit(walk, fd, end, begin, begin + step, sync=begin > 0) for begin in range(0, end, step)
        ]
        parts = [job.result() for job in jobs]
    assert [length for part in parts for length in part[3]] == sizes
    assert [part[0] for part in parts[1:]] == [part[1] for part in parts[:-1]]
    assert {part[2] for part in parts} == {kernel.FULL}


def test_walk_of_a_file_that_shrinks_and_grows():
    """The result may be anything that the file was; the process lives."""
    content = b"".join(frame(bytes(size % 997)) for size in range(0, 60_000, 31))
    stop = threading.Event()
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()

        def disturb():
            while not stop.is_set():
                os.ftruncate(file.fileno(), len(content) // 3)
                os.pwrite(file.fileno(), content, 0)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            for _ in range(200):
                _, end, why, found = walk(file.fileno(), len(content))
                assert why in (kernel.FULL, kernel.PARTIAL, kernel.BAD_HEADER)
                assert end == sum(found) + 16 * len(found)
                kernel.digest(file.fileno(), len(content))
                walk(file.fileno(), len(content), 100_000, sync=True)
        finally:
            stop.set()
            thread.join()


def test_looking_for_a_frame_is_not_made_quadratic(spare):
    """A right header every 12 bytes, each of a frame that nothing follows."""
    content = header(500_001) * 100_000
    fd = spare(content)
    begin = time.perf_counter()
    assert walk(fd, len(content), 1, 600_000, sync=True)[3] == []
    assert time.perf_counter() - begin < 5


def test_what_cannot_be_walked(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    reading, writing = os.pipe()
    blind = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    os.write(blind, bytes(100))
    try:
        for fd, number in [
            (-1, errno.EBADF),
            (10**6, errno.EBADF),
            (folder, errno.EISDIR),
            (reading, errno.ESPIPE),
            (blind, errno.EBADF),
        ]:
            for call in (
                lambda fd=fd: kernel.walk(fd, 100, 0, 100, False, 9),
                lambda fd=fd: kernel.walk(fd, 10**6, 3, 100, True, 9),
                lambda fd=fd: kernel.digest(fd, 100),
                lambda fd=fd: kernel.digest(fd, 10**6),
            ):
                with pytest.raises(OSError, match=r".") as caught:
                    call()
                assert caught.value.errno == number
        for fd in (folder, -1):
            assert kernel.walk(fd, 0, 0, 100, True, 9) == (0, 0, kernel.FULL, b"")
    finally:
        for fd in (folder, reading, writing, blind):
            os.close(fd)


# --- digest and survey


SIZES = [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 69_631, 69_632, 200_001]


@pytest.mark.parametrize("size", SIZES)
def test_digest(spare, size):
    content = random.Random(size).randbytes(size)
    fd = spare(content)
    assert kernel.digest(fd, size) == oracle.digest(content)
    if size:
        for at in (0, size - 1, min(size - 1, 4095)):
            changed = bytearray(content)
            changed[at] ^= 1
            assert kernel.digest(spare(changed), size) != oracle.digest(content)
    # shorter than it was a moment ago
    assert kernel.digest(spare(content[: size // 2]), size) in range(2**32)


def test_digest_of_impossible_sizes(spare):
    for size in (2**62, 2**63, 2**64 - 1):
        with contextlib.suppress(OSError):  # offsets that are negative to the system
            assert kernel.digest(spare(b"abc"), size) in range(2**32)


def packed(paths):
    """Names as the kernel takes them."""
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


class Surveyed:
    """As kernel.survey gives it, by name."""

    def __init__(self, paths, limit=NO_LIMIT):
        columns, found = kernel.survey(packed(paths), limit)
        table = np.frombuffer(columns, np.uint64).reshape(9, len(paths)).tolist()
        self.size, self.modified, self.changed, self.inode, self.digest, self.records = table[:6]
        self.kind, self.walked, self.errno = table[6:]
        self.lengths = np.frombuffer(found, np.uint64).tolist()


contents = st.one_of(
    payloads_with_frames.map(lambda payloads: b"".join(map(oracle.frame, payloads))),
    st.binary(max_size=40),
    payloads_with_frames.map(lambda payloads: b"".join(map(oracle.frame, payloads))[:-3]),
    st.integers(0, 3).map(lambda more: oracle.frame(bytes(65_520 + more))),
    st.sampled_from(
        [b"", oracle.header(100), oracle.header(9)[:11], b"\x1f\x8b\x08" + bytes(40), frame(b"") * 4096]
    ),
)


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # 64 KiB are much to print
@given(st.lists(contents, max_size=6), st.sampled_from([NO_LIMIT, 30, 0]))
@few
def test_survey(tmp_path_factory, files, limit):
    folder = tmp_path_factory.getbasetemp() / "surveyed"
    folder.mkdir(exist_ok=True)
    paths = [folder / str(number) for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    found, lengths = Surveyed(paths, limit), []
    for row, (path, content) in enumerate(zip(paths, files, strict=True)):
        status = path.stat()
        assert (found.size[row], found.inode[row]) == (status.st_size, status.st_ino)
        assert (found.modified[row], found.changed[row]) == (status.st_mtime_ns, status.st_ctime_ns)
        assert (found.errno[row], found.digest[row]) == (0, oracle.digest(content))
        plain = not content or (len(content) >= 12 and oracle.header_is_right(content, 0))
        assert found.kind[row] == (kernel.SURVEY_PLAIN if plain else kernel.SURVEY_OTHER)
        *_, why, inside = oracle.walk(content, len(content), 0, len(content), False, limit)
        whole = len(content) <= kernel.SURVEY_SMALL and why == kernel.FULL
        assert found.walked[row] == whole
        assert found.records[row] == (len(inside) if whole else 0)
        lengths += inside if whole else []
    assert found.lengths == lengths


def small(paths, limit=NO_LIMIT, room=1 << 20):
    """(rows of columns, frames one by one) as kernel.read_small gives them."""
    out = bytearray(room)
    columns, edges = kernel.read_small(packed(paths), limit, out)
    rows = np.frombuffer(columns, np.uint64).reshape(5, -1).T.tolist()
    edges = np.frombuffer(edges, np.uint64).tolist()
    return rows, [bytes(out[begin:end]) for begin, end in itertools.pairwise(edges)]


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@given(st.lists(contents, max_size=6), st.sampled_from([NO_LIMIT, 30, 0]), st.integers(0, 10**6))
@few
def test_read_small(tmp_path_factory, files, limit, spoilt):
    """Of whole files all frames, one behind the other; of others, which may be damaged anywhere, nothing."""
    folder = tmp_path_factory.getbasetemp() / "small"
    folder.mkdir(exist_ok=True)
    paths = [folder / str(number) for number in range(len(files))]
    files = [bytearray(content) for content in files]
    if files and files[-1]:
        files[-1][spoilt % len(files[-1])] ^= 1 << spoilt % 8
    for path, content in zip(paths, files, strict=True):
        path.write_bytes(content)
    rows, frames = small(paths, limit)
    expected = []
    for row, path, content in zip(rows, paths, files, strict=True):
        status = path.stat()
        assert row[:4] == [status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev]
        bounds, why = oracle.scan(bytes(content), 0, 5000, True, limit)
        whole = len(content) <= kernel.SURVEY_SMALL and why == oracle.PARTIAL and bounds[-1] == len(content)
        assert row[4] == (len(bounds) - 1 if whole else 2**64 - 1)
        expected += [bytes(content[b:e]) for b, e in itertools.pairwise(bounds)] if whole else []
    assert frames == expected


def test_read_small_stops_where_there_is_no_room(tmp_path):
    paths = [tmp_path / str(number) for number in range(9)]
    for path in paths:
        path.write_bytes(frame(path.name.encode() * 10_000))
    for room in (65_536, 65_537, 75_551, 75_552, 100_000, 200_000):
        rows, frames = small(paths, room=room)
        taken = 1 + (room - 65_536) // 10_016
        assert len(rows) == len(frames) == min(taken, 9)
        assert frames == [path.read_bytes() for path in paths[: len(frames)]]
    with pytest.raises(ValueError, match="room"):
        small(paths, room=65_535)


def test_read_small_of_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "good").write_bytes(frame(b"abc"))
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "large").write_bytes(frame(bytes(70_000)))
    names = ["missing", "good", "pipe", ".", "good/x", "link", "large"]
    before = len(os.listdir("/dev/fd"))
    rows, frames = small([tmp_path / name for name in names])
    assert len(os.listdir("/dev/fd")) == before
    assert frames == [frame(b"abc")] * 2
    assert [row[4] for row in rows] == [2**64 - 1, 1, 2**64 - 1, 2**64 - 1, 2**64 - 1, 1, 2**64 - 1]
    assert [row[2] > 0 for row in rows] == [False, True, True, True, False, True, True]
    assert rows[1][2:4] == rows[5][2:4]
    assert kernel.read_small(b"", 9, bytearray(1 << 16)) == (b"", bytes(8))


def test_survey_of_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "good").write_bytes(frame(b"abc"))
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "large").write_bytes(frame(bytes(70_000)))
    names = ["missing", "good", "pipe", ".", "loop", "good/x", "n" * 300, "link", "large"]
    found = Surveyed([tmp_path / name for name in names])
    failed, plain = kernel.SURVEY_FAILED, kernel.SURVEY_PLAIN
    assert found.kind == [failed, plain, failed, failed, failed, failed, failed, plain, plain]
    numbers = [errno.ENOENT, 0, 0, 0, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG, 0, 0]
    assert found.errno == numbers
    assert found.walked == [0, 1, 0, 0, 0, 0, 0, 1, 0]
    assert found.lengths == [3, 3]
    assert kernel.survey(b"", 9) == (b"", b"")


def test_survey_of_several_folders(tmp_path, monkeypatch):
    """Each file is that of its own folder, however they alternate and however alike their names are."""
    monkeypatch.chdir(tmp_path)
    folders = ["", "a/", "a/a/", "ab/", "./", "a//", f"{tmp_path}/", f"{tmp_path}/a/"]
    sizes = {}
    for folder in ("", "a", "a/a", "ab"):
        os.makedirs(os.path.join(tmp_path, folder), exist_ok=True)
        for name in "xyz":
            sizes[os.path.realpath(os.path.join(folder, name))] = len(sizes)
            (tmp_path / folder / name).write_bytes(frame(bytes(len(sizes) - 1)))
    rng = random.Random(1)
    for _ in range(200):
        runs = [(rng.choice(folders), rng.randrange(1, 4)) for _ in range(rng.randrange(1, 6))]
        paths = [folder + rng.choice("xyz") for folder, count in runs for _ in range(count)]
        found = Surveyed(paths)
        assert found.lengths == [sizes[os.path.realpath(path)] for path in paths]
    os.remove("a/y")
    assert Surveyed(["a/x", "a/y", "a/z", "missing/x", "missing/y", "a/x"]).records == [1, 0, 1, 0, 0, 1]


def test_stamps(tmp_path):
    (tmp_path / "good").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("good")
    os.utime(tmp_path / "good", ns=(0, -1))
    names = ["good", "missing", "link", "."]
    columns = np.frombuffer(kernel.stamps(packed(tmp_path / name for name in names)), np.uint64).reshape(4, 4)
    status, folder = os.stat(tmp_path / "good"), os.stat(tmp_path)
    good = [3, 2**64 - 1, status.st_ctime_ns, status.st_ino]
    assert columns.T.tolist()[:3] == [good, [2**64 - 1] * 4, good]
    assert columns[1:, 3].tolist() == [folder.st_mtime_ns, folder.st_ctime_ns, folder.st_ino]
    assert kernel.stamps(b"") == b""


NAMES = [
    *("", ".", "A", "a", "aa", "ab", "b", "sample-0001", "sample-0010", "sample-00100", "sample-1", "\u00e9"),
    *("x" * 200, "x" * 200 + "y", "x" * 200 + "\udcff", "x" * 200 + "\U0001f600", "12345678", "123456789"),
]


@given(
    st.sets(
        st.sampled_from(NAMES)
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), max_size=9),
        max_size=30,
    )
)
@few
def test_list_folders(tmp_path_factory, names):
    """All files and links to files, sorted by bytes; nothing hidden, no folder, no dangling link, no pipe."""
    folder = tmp_path_factory.mktemp("listed")
    expected = []
    for number, name in enumerate(sorted(names, key=os.fsencode)):
        path = folder / f"{name}.rec"
        if number % 7 < 4:
            path.write_bytes(b"")
        elif number % 7 == 4:
            path.mkdir()
        elif number % 7 == 5:
            path.symlink_to(__file__ if number % 2 else "nowhere")
        else:
            os.mkfifo(path)
        if path.is_file() and not path.name.startswith("."):
            expected.append(os.fsencode(path.name))
    (folder / "other").write_bytes(b"")
    missing, file = folder / "missing", folder / "other"
    found = kernel.list_folders(packed([folder, missing, file, folder]), b".rec")
    listed = b"".join(name + b"\0" for name in expected)
    assert found == [listed, errno.ENOENT, errno.ENOTDIR, listed]
    every = kernel.list_folders(packed([folder]), b"")[0]
    assert sorted(every.split(b"\0")) == sorted([b"", b"other", *expected])
    assert kernel.list_folders(b"", b"x") == []


def test_list_folders_in_many_threads(tmp_path):
    folders = [tmp_path / str(number) for number in range(100)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        for name in range(number):
            (folder / f"{name * 7919 % 1000}").write_bytes(b"")
    found = kernel.list_folders(packed(folders), b"")
    assert found == [packed(sorted(os.listdir(folder))) for folder in folders]


def test_survey_opens_nothing_for_long(tmp_path):
    (tmp_path / "a").write_bytes(frame(b"abc"))
    before = len(os.listdir("/dev/fd"))
    for name in ("a", ".", "missing"):
        Surveyed([tmp_path / name] * 50)
    assert len(os.listdir("/dev/fd")) == before
