"""Past the page cache: whatever the pieces, all bytes are written, or read."""

import errno
import fcntl
import os
import random
import threading
from pathlib import Path

import pytest

import croupier
from croupier import direct, storage, streams
from croupier.errors import StorageError, TruncatedError
from croupier.rooms import Rooms
from croupier.storage import AtomicFile

MEMORY = Path("/dev/shm")  # a tmpfs may have no O_DIRECT
FOLDERS = [
    "disk",
    pytest.param("memory", marks=pytest.mark.skipif(not MEMORY.is_dir(), reason="no /dev/shm")),
]


@pytest.fixture
def small_room(monkeypatch):
    monkeypatch.setattr(direct, "_ROOM", 3 * 4096)
    monkeypatch.setattr(direct, "_rooms", Rooms(4))


def pieces(seed):
    rng = random.Random(seed)
    sizes = [
        rng.choice([0, 1, 100, 4095, 4096, 4097, 12_288, 12_289, 50_000]) for _ in range(rng.randrange(12))
    ]
    return [rng.randbytes(size) for size in sizes]


@pytest.mark.parametrize("where", FOLDERS)
def test_all_pieces(tmp_path, small_room, where):
    path = (tmp_path if where == "disk" else MEMORY) / f"croupier-{os.getpid()}.bin"
    try:
        for seed in range(60):
            file = AtomicFile(path)
            file.write_direct()
            file.write(*pieces(seed))
            file.seal()
            file.publish()
            whole = b"".join(pieces(seed))
            assert path.read_bytes() == whole
            assert file.written == len(whole)
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("most", [1, 100, 4096, 5000])
def test_short_writes(tmp_path, small_room, monkeypatch, most):
    """As signals and full devices make them; with O_DIRECT an odd rest could not be written."""
    write = os.write
    monkeypatch.setattr(direct.os, "write", lambda fd, piece: write(fd, bytes(piece[:most])))
    fd = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    out = direct.Direct(fd)
    direct._bypass(fd, yes=False)  # bytes() above is not aligned
    out.write(memoryview(bytes(range(256)) * 200))
    out.finish()
    os.close(fd)
    assert (tmp_path / "x").read_bytes() == bytes(range(256)) * 200


def test_devices_that_refuse_it(tmp_path, small_room, monkeypatch):
    """EINVAL at the first write, as some network file systems say it; other errors are errors."""
    write, refused = os.write, []

    def refuse_once(fd, piece):
        if not refused:
            refused.append(1)
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return write(fd, piece)

    monkeypatch.setattr(direct.os, "write", refuse_once)
    fd = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    out = direct.Direct(fd)
    out.write(memoryview(b"x" * 30_000))
    out.finish()
    assert (tmp_path / "x").read_bytes() == b"x" * 30_000

    def refuse(fd, piece):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(direct.os, "write", refuse)
    out = direct.Direct(fd)
    with pytest.raises(OSError, match="full"):
        out.write(memoryview(b"x" * 300_000))
    with pytest.raises(OSError, match="full"):
        out.finish()
    os.close(fd)


@pytest.fixture
def small_ahead(monkeypatch):
    monkeypatch.setattr(direct, "_AHEAD", 8192)
    monkeypatch.setattr(direct, "_rooms_ahead", Rooms(4))
    monkeypatch.setattr(storage, "PAST_CACHE_FROM", 0)


@pytest.mark.parametrize("size", [0, 1, 4095, 8192, 8193, 100_000])
@pytest.mark.parametrize("start", [0, 1, 4096, 5000])
def test_reading_ahead(tmp_path, small_ahead, size, start):
    content = random.Random(size).randbytes(size)
    (tmp_path / "x").write_bytes(content)
    with storage.FileSource(str(tmp_path / "x"), start, past_cache=True) as file:
        peeked, found, room = file.peek(100), bytearray(), memoryview(bytearray(5000))
        while count := file.readinto(room):
            found += room[:count]
    assert found == content[start:]
    assert peeked == content[start : start + 100]


def test_reading_ahead_stops_at_once(tmp_path, small_ahead):
    (tmp_path / "x").write_bytes(bytes(1_000_000))
    before = threading.active_count()
    for _ in range(50):
        with storage.FileSource(str(tmp_path / "x"), past_cache=True) as file:
            assert file.readinto(memoryview(bytearray(10))) == 10
    assert threading.active_count() == before


def test_devices_that_cannot_be_read_so(tmp_path, small_ahead, monkeypatch):
    """EINVAL at each read past the cache; other errors are errors, and say which file."""
    preadv = os.preadv

    def refuse(fd, rooms, offset):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0):
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return preadv(fd, rooms, offset)

    monkeypatch.setattr(direct.os, "preadv", refuse)
    (tmp_path / "x").write_bytes(b"x" * 100_000)
    with storage.FileSource(str(tmp_path / "x"), past_cache=True) as file:
        room = memoryview(bytearray(200_000))
        found = b"".join(bytes(room[:count]) for count in iter(lambda: file.readinto(room), 0))
    assert found == b"x" * 100_000

    def broken(fd, rooms, offset):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(direct.os, "preadv", broken)
    with (
        storage.FileSource(str(tmp_path / "x"), past_cache=True) as file,
        pytest.raises(StorageError, match=r"x: cannot read"),
    ):
        file.readinto(room)


def test_truncated_while_read_ahead(tmp_path, small_ahead):
    path = tmp_path / "x.tfrecord"
    with croupier.writer(path) as out:
        out.write_many([bytes(1000)] * 100)
    with streams.open_file(str(path), past_cache=True) as opened:
        blocks = iter(opened.frames)
        os.truncate(path, 50_000)
        with pytest.raises(TruncatedError):
            for _ in blocks:
                pass
