"""How fast devices are: measured once, remembered, never trusted."""

import json
import os
import time

import pytest

from croupier import storage
from croupier.shuffling import probe
from croupier.shuffling.probe import Device


@pytest.fixture
def kept(tmp_path):
    """Where the figures of the device that `tmp_path` is on are kept."""
    path, owner = probe._place(os.stat(tmp_path).st_dev)
    return path, owner


@pytest.fixture
def measurements(monkeypatch):
    """Folders that were measured; the figures are made up."""
    seen = []

    def measure(folder):
        seen.append(folder)
        return Device(100.0 + len(seen), 200.0, 300.0)

    monkeypatch.setattr(probe, "_measure", measure)
    return seen


def test_measuring_is_quick_plausible_and_leaves_nothing(tmp_path):
    began = time.monotonic()
    found = probe.device(str(tmp_path))
    assert time.monotonic() - began < 10  # a second, on a machine that does nothing else
    assert 1e6 < found.read < 1e12
    assert 1e6 < found.write < 1e12
    assert 10 < found.random < 1e8
    assert os.listdir(tmp_path) == []
    began = time.monotonic()
    assert probe.device(str(tmp_path)) == found
    assert time.monotonic() - began < 0.1


def test_without_measure_only_what_is_remembered_counts(tmp_path, measurements):
    assert probe.device(str(tmp_path), measure=False) is None
    assert measurements == []
    found = probe.device(str(tmp_path))
    assert probe.device(str(tmp_path), measure=False) == found


def test_another_folder_of_the_same_device_is_known(tmp_path, measurements):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert probe.device(str(tmp_path / "a")) == probe.device(str(tmp_path / "b"))
    assert len(measurements) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: content[:-5],
        lambda content: b"[" * 4000,
        lambda content: b"\xff\xfe",
        lambda content: content + b" " * 5000,
        lambda content: b"[1, 2]",
        lambda content: b"null",
        lambda content: edited(content, owner="another"),
        lambda content: edited(content, read=-1),
        lambda content: edited(content, write=float("inf")),
        lambda content: edited(content, random=float("nan")),
        lambda content: edited(content, read="fast"),
        lambda content: edited(content, read=[1]),
        lambda content: edited(content, read=10**400),
        lambda content: edited(content, measured=time.time() - 30 * 24 * 3600),
        lambda content: edited(content, measured=time.time() + 3600),
    ],
)
def test_what_is_damaged_foreign_or_old_is_measured_anew(tmp_path, kept, measurements, change):
    first = probe.device(str(tmp_path))
    path, _ = kept
    with open(path, "rb") as file:
        content = file.read()
    with open(path, "wb") as file:
        file.write(change(content))
    second = probe.device(str(tmp_path))
    assert len(measurements) == 2
    assert second != first
    assert probe.device(str(tmp_path)) == second, "remembered again"


def edited(content, **changes):
    return json.dumps(json.loads(content) | changes).encode()


def test_folders_that_are_not_there_or_cannot_be_written(tmp_path, monkeypatch):
    assert probe.device(str(tmp_path / "none")) is None

    def refuse(*arguments, **options):
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(probe.tempfile, "mkstemp", refuse)
    assert probe.device(str(tmp_path)) is None


def test_a_device_that_fails_is_unknown_and_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(5, "broken")

    for name in ("fsync", "preadv"):
        with monkeypatch.context() as patch:
            patch.setattr(probe.os, name, fail)
            assert probe.device(str(tmp_path)) is None
    assert os.listdir(tmp_path) == []


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, measurements):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert probe.device(str(tmp_path)) is not None
    assert probe.device(str(tmp_path)) is not None
    assert len(measurements) == 2


def test_a_file_system_without_direct_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "_O_DIRECT", 0)
    assert probe.device(str(tmp_path)).read > 1e6


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="only Linux tells what its cache holds")
def test_what_the_page_cache_holds(tmp_path):
    path = tmp_path / "file"
    storage.write_file(path, os.urandom(8 << 20))
    size = path.stat().st_size
    assert probe.cached([(str(path), size)]) == 1.0
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert probe.cached([(str(path), size)]) < 0.5
    assert probe.cached([(str(tmp_path / "none"), size)]) == 0.0
    assert probe.cached([(str(path), 0)]) == 0.0
    assert probe.cached([]) == 0.0
