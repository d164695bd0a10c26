"""Files: reading them, and the one writer that everything on disk comes from."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from croupier.direct import Ahead, Direct
from croupier.errors import CroupierError, InputNotFoundError, StorageError, UsageError

SIDE_FOLDER = ".croupier"
"""What we keep beside data lives here, hidden, so that users' globs keep matching records alone."""

STDIN = "-"

PathLike = str | os.PathLike[str]
ReadableBuffer = bytes | bytearray | memoryview


PAST_CACHE_FROM = 16 << 20
"""Bytes of a file that a thread, and buffers to read ahead into, are worth."""


class Source(Protocol):
    """Bytes that come one after the other."""

    def readinto(self, view: memoryview, /) -> int:
        """Fill the front of `view`; 0 means the end."""


class FileSource:
    """A file, a pipe or standard input, read from front to back."""

    def __init__(self, path: str, start: int = 0, *, past_cache: bool = False) -> None:
        """`start` is where in a regular file to begin. With `past_cache`, large ones are read past it."""
        self.path = path
        with reporting("open", path):
            self._fd = 0 if path == STDIN else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self.status = status = os.fstat(self._fd)
        """Of the file that was opened, whatever has its name by now."""
        if stat.S_ISDIR(status.st_mode):
            self.close()
            raise InputNotFoundError(f"{path}: is a folder")
        self.size = status.st_size if stat.S_ISREG(status.st_mode) else None
        """Bytes in all; None for a pipe. What is appended later is not read."""
        self._left = self.size
        if start and self.size is not None:
            self._left = max(self.size - start, 0)
            os.lseek(self._fd, start, os.SEEK_SET)
        self._peeked = memoryview(b"")
        self._ahead: Ahead | None = None
        self._past_cache = past_cache and (self._left or 0) >= PAST_CACHE_FROM
        if self.size is not None and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    @property
    def fd(self) -> int:
        """For what does not move the place in the file."""
        return self._fd

    def peek(self, count: int) -> bytes:
        """The first `count` bytes, fewer only at the end; they will be read again."""
        room = memoryview(bytearray(count))
        have = 0
        while have < count and (more := self.readinto(room[have:])):
            have += more
        self._peeked = room[:have]
        return bytes(self._peeked)

    def readinto(self, view: memoryview, /) -> int:
        if count := min(len(self._peeked), len(view)):
            view[:count] = self._peeked[:count]
            self._peeked = self._peeked[count:]
            return count
        if self._left is not None:
            view = view[: self._left]
        with reporting("read", self.path):
            if self._past_cache and self._ahead is None and self.size is not None and self._left is not None:
                self._ahead = Ahead(self._fd, self.size - self._left)
            count = self._ahead.readinto(view) if self._ahead else os.readv(self._fd, [view])
        if self._left is not None:
            self._left -= count
        return count

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        if self._fd > 0:
            close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AtomicFile:
    """A file that appears under its name whole, or not at all.

    Written under a hidden temporary name in the same folder; `seal` flushes it to the device and `publish`
    renames it. A failed flush is final: the kernel may have dropped the pages, so a second fsync would lie.
    The temporary file is locked while its writer lives, so that `sweep` can tell a leftover from work.
    """

    def __init__(self, path: PathLike, adopted: str = "") -> None:
        """`adopted`: the temporary name of a file that another process sealed; only to be published."""
        self.path = os.fspath(path)
        self.folder, self.name = os.path.split(os.path.abspath(self.path))
        self.written = 0
        self._fd = -1
        self._direct: Direct | None = None
        self.sealed = bool(adopted)
        """Complete and on the device, under its temporary name."""
        self.temporary = adopted and os.path.join(self.folder, adopted)
        if adopted:
            with reporting("read", self.temporary):
                self.written = os.stat(self.temporary, follow_symlinks=False).st_size
            return
        try:
            self._create()
        except BaseException:
            self.discard()
            raise

    def _create(self) -> None:
        with reporting("create", self.path):
            while True:
                leaf = f"{temporary_stem(self.name)}.{secrets.token_hex(4)}.tmp"
                self.temporary = os.path.join(self.folder, leaf)
                self._fd = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                with contextlib.suppress(OSError):  # Lustre and some NFS mounts have no locks; no sweep there
                    fcntl.flock(self._fd, fcntl.LOCK_EX)
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(self.temporary).st_ino == os.fstat(self._fd).st_ino:
                        return
                os.close(self._fd)  # a sweep took it between creation and lock: again, with another name
                self._fd = -1

    def write(self, *pieces: ReadableBuffer) -> None:
        """Append; a short write is continued."""
        with reporting("write", self.path, self):
            for piece in pieces:
                rest = memoryview(piece).cast("B")
                if self._direct is not None:
                    self._direct.write(rest)
                    self.written += len(rest)
                    continue
                while rest:
                    count = os.write(self._fd, rest)
                    self.written += count
                    rest = rest[count:]

    def write_direct(self) -> None:
        """Write past the page cache from here on."""
        self._direct = Direct(self._fd)

    def end_direct(self) -> None:
        """Write what is left, and give the memory for it back."""
        if self._direct is not None:
            with reporting("write", self.path, self):
                self._direct.finish()
            self._direct = None

    def seal(self) -> None:
        """Flush to the device: the content is complete. The file stays open, for its lock."""
        if self.sealed:
            return
        self.end_direct()
        with reporting("flush", self.path, self):
            os.fsync(self._fd)
        self.sealed = True

    def rest(self) -> None:
        """Close the sealed file, and with it give up the lock; it keeps its temporary name."""
        fd, self._fd = self._fd, -1
        close(fd)

    def publish(self, *, replace: bool = True) -> None:
        """Give the sealed file its name (see `flush_folder` for when that is on the device)."""
        with reporting("rename", self.path, self):
            if replace:
                os.rename(self.temporary, self.path)
            else:
                self._link()
            self.temporary = ""
            if self._fd >= 0:
                self.rest()

    def _link(self) -> None:
        """A rename that fails where the name is taken; where there are no hard links, a plain rename."""
        try:
            os.link(self.temporary, self.path)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            os.rename(self.temporary, self.path)
        else:
            os.unlink(self.temporary)

    def discard(self) -> None:
        """Remove the temporary file; never raises, so that it can follow any failure."""
        if self._direct is not None:
            self._direct.stop()
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        if self.temporary:
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)
            self.temporary = ""

    def keep(self) -> None:
        """Let go of the sealed temporary file without removing it: someone else will rename it."""
        self.temporary = ""
        self.discard()


def temporary_stem(name: str) -> str:
    """What the temporary names of a file begin with: 200 bytes, as names may have 255 with what follows."""
    return "." + os.fsencode(name)[:200].decode(errors="ignore")


def close(fd: int) -> None:
    """Close what was flushed, or only read: a refusal loses nothing, and the descriptor is gone anyway."""
    try:  # noqa: SIM105 - the end of a file is six calls deep as it is
        os.close(fd)
    except OSError:
        pass


def write_file(path: PathLike, content: ReadableBuffer, *, replace: bool = True) -> None:
    """Write a small file atomically."""
    file = AtomicFile(path)
    try:
        file.write(content)
        file.seal()
        file.publish(replace=replace)
    finally:
        file.discard()
    flush_folder(file.folder)


def read_small(path: PathLike, most: int) -> bytes:
    """All of a file that should be small; UsageError where it is none, or has more than `most` bytes."""
    path = os.fspath(path)
    with reporting("open", path):
        fd = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # a pipe without a writer must not hang
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            raise UsageError(f"{path}: is not a file of at most {most:,} bytes")
        with reporting("read", path), open(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        close(fd)


def side_folders(folder: str) -> tuple[str, str]:
    """Where to keep what belongs to a folder's files: beside them, or else in the user's cache folder."""
    key = hashlib.sha256(os.fsencode(os.path.realpath(folder or "."))).hexdigest()[:32]
    return os.path.join(folder, SIDE_FOLDER), os.path.join(cache_folder(), "tables", key)


def cache_folder() -> str:
    """What we keep for a user, whatever the data; it may not be there yet."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "croupier")


def flush_folder(folder: PathLike) -> None:
    """Make the names in a folder outlive a power cut."""
    path = os.fspath(folder)
    with reporting("flush", path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
                raise
        finally:
            close(fd)


def make_folder(folder: PathLike) -> None:
    """Create a folder and its parents where missing."""
    with reporting("create", os.fspath(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)


def remove(path: PathLike) -> None:
    """Remove a file that may be gone already."""
    with reporting("remove", os.fspath(path)), contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def sweep(folder: str, names: Iterable[str], spare: Iterable[str] = ()) -> list[str]:
    """Remove the temporary files that killed writers of these names left, except those in `spare`."""
    stems = {temporary_stem(name) for name in names}
    try:
        there = sorted(os.listdir(folder))
    except OSError:
        return []
    ours = [leaf for leaf in there if leaf.endswith(".tmp") and leaf[: -len(".01234567.tmp")] in stems]
    found = [os.path.join(folder, leaf) for leaf in ours if leaf not in spare]
    return [path for path in found if _remove_unlocked(path)]


def _remove_unlocked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:  # its writer lives, or it is not ours to remove
        return False
    finally:
        close(fd)
    return True


class reporting:  # noqa: N801 - reads as a statement: with reporting("open", path)
    """Turn an OSError into one that says what was being done to which file."""

    __slots__ = ("action", "file", "path")

    def __init__(self, action: str, path: str, file: AtomicFile | None = None) -> None:
        self.action, self.path, self.file = action, path, file

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, CroupierError):
            return
        if isinstance(error, FileNotFoundError) and self.action == "open":
            raise InputNotFoundError(f"{self.path}: no such file") from error
        done = None if self.file is None else self.file.written
        raise StorageError(self.action, self.path, error, done) from error
