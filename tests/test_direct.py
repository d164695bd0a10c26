"""Writing past the page cache: whatever the pieces, the file holds them all."""

import errno
import os
import random
from pathlib import Path

import pytest

from croupier import direct
from croupier.storage import AtomicFile

MEMORY = Path("/dev/shm")  # a tmpfs may have no O_DIRECT
FOLDERS = [
    "disk",
    pytest.param("memory", marks=pytest.mark.skipif(not MEMORY.is_dir(), reason="no /dev/shm")),
]


@pytest.fixture
def small_room(monkeypatch):
    monkeypatch.setattr(direct, "_ROOM", 3 * 4096)


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
    out._bypass(False)  # bytes() above is not aligned
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
