"""What a long job has done so far, kept so that the next one can go on: notes in `.croupier/NAME.work/`.

Each note is a small file of its own, written atomically once what it tells of is on disk. The folder is
locked while its job lives (the lock goes with the process, however that ends), so nobody else takes its
files for leftovers. What is large goes to another folder where the user wants that; its name is derived
from the output's, so that a note cannot make us delete anything else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from typing import Any

from croupier import storage
from croupier.errors import UsageError
from croupier.storage import SIDE_FOLDER

_OURS = re.compile(r"[a-z]+(-\d{5,})?\.(json|table|spill)|\..*\.[0-9a-f]{8}\.tmp")


class WorkFolder:
    """The notes of one job; no other process has it as long as it is open."""

    def __init__(self, folder: str, name: str) -> None:
        """`folder` is the output's, which exists; `name` is what the receipt goes by."""
        self._name = name
        self.path = _path(folder, name)
        self._fd = -1
        while self._fd < 0 or self._is_gone():  # its last job removed it meanwhile
            self.close()
            storage.make_folder(self.path)
            self._fd = _lock(self.path, folder, name)
        self._spills = self.path

    def _is_gone(self) -> bool:
        with storage.reporting("read", self.path):
            return os.fstat(self._fd).st_nlink == 0

    def note(self, name: str, content: dict[str, Any]) -> None:
        """Keep one, for good."""
        storage.write_file(self._file(f"{name}.json"), (json.dumps(content) + "\n").encode())

    def read(self, name: str) -> dict[str, Any] | None:
        """A note, if there is one; UsageError where it is damaged."""
        path = self._file(f"{name}.json")
        with (
            contextlib.suppress(FileNotFoundError),
            storage.reporting("open", path),
            open(path, "rb") as file,
        ):
            try:
                content = json.loads(file.read())
            except ValueError:
                content = None
            if not isinstance(content, dict):
                raise UsageError(f"{path}: is damaged: run without --resume, which begins anew")
            return content
        return None

    def keep(self, name: str, content: bytes) -> None:
        """Keep some bytes."""
        storage.write_file(self._file(name), content)

    def kept_bytes(self, name: str) -> int:
        """How many those are."""
        return os.stat(self._file(name)).st_size

    def kept(self, name: str) -> bytes:
        """Bytes that were kept."""
        with storage.reporting("read", self._file(name)), open(self._file(name), "rb") as file:
            return file.read()

    def spill_to(self, tmp_dir: str | None, *, make: bool = True) -> str:
        """Where large files go: a folder of our own in the user's, or else among the notes."""
        self._spills = self.path
        if tmp_dir is not None:
            key = hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:16]
            self._spills = os.path.join(tmp_dir, f".croupier-{key}")
            if make:
                with storage.reporting("create", self._spills), contextlib.suppress(FileExistsError):
                    os.mkdir(self._spills)
        return self._spills

    @property
    def folders(self) -> list[str]:
        """All that is kept is in these."""
        return [self.path] if self._spills == self.path else [self._spills, self.path]

    def clear(self) -> None:
        """Forget everything, and give its space back; last of all, what tells where it was."""
        if self._spills != self.path:
            _empty(self._spills)
            with contextlib.suppress(OSError):
                os.rmdir(self._spills)
        _empty(self.path)

    def remove(self) -> None:
        """The job is done, or nothing of it is worth keeping."""
        with contextlib.suppress(OSError):  # then it is swept by the next job of this name
            self.clear()
            os.rmdir(self.path)
            os.rmdir(os.path.dirname(self.path))  # if nothing else is in it

    def close(self) -> None:
        """Unlock; what is there stays."""
        if self._fd >= 0:
            storage.close(self._fd)
        self._fd = -1

    def _file(self, leaf: str) -> str:
        return os.path.join(self.path, leaf)


def _empty(folder: str) -> None:
    """Remove what is ours in a folder that may be gone; notes of the job last."""
    with contextlib.suppress(FileNotFoundError), storage.reporting("open", folder):
        ours = sorted(filter(_OURS.fullmatch, os.listdir(folder)), key=lambda leaf: leaf.startswith("job"))
        for leaf in ours:
            storage.remove(os.path.join(folder, leaf))


def is_left(folder: str, name: str) -> bool:
    """Whether a job of this output has left something."""
    return os.path.isdir(_path(folder, name))


def refuse_while_running(folder: str, name: str) -> None:
    """UsageError when a job of this output is under way in another process."""
    if os.path.isdir(path := _path(folder, name)):
        storage.close(_lock(path, folder, name))


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, SIDE_FOLDER, f"{name}.work")


def _lock(path: str, folder: str, name: str) -> int:
    with storage.reporting("open", path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        storage.close(fd)
        raise UsageError(
            f"{os.path.join(folder, name)}: another process is writing this output just now"
        ) from None
    except OSError:  # a file system without locks
        pass
    return fd
