"""A set of shards appears together, or not at all, and a receipt says that it is whole.

    1  every shard is written under a temporary name and flushed
    2  a journal says which temporary name becomes which shard, and what the receipt will be
    3  the shards are renamed, and the folder is flushed
    4  the receipt is written, and the journal removed

Killed before 2, nothing has happened; killed after, the next writer of the same name finishes the rest.
Receipt and journal live in the hidden side folder.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import re
import zlib
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from isal import isal_zlib

from croupier import storage
from croupier.errors import InputNotFoundError, StorageError, UsageError
from croupier.storage import SIDE_FOLDER, AtomicFile
from croupier.work import refuse_while_running


class ShardSet:
    """The files of one output while they are written."""

    def __init__(
        self, name: str, paths: Sequence[str], *, overwrite: bool = False, spare: Sequence[str] | None = None
    ) -> None:
        """`name` is the prefix (or the whole name of a single file) that the receipt will go by.

        Who has the output's work folder says with `spare` which temporary files are no leftovers.
        """
        self.name = name
        self.folder = os.path.dirname(os.path.abspath(paths[0]))
        storage.make_folder(self.folder)
        if spare is None:
            refuse_while_running(self.folder, name)
        finish_publication(self.folder, name)
        storage.sweep(self.folder, map(os.path.basename, paths), spare or ())
        notes = _journal_path(self.folder, name), receipt_path(self.folder, name)
        storage.sweep(os.path.join(self.folder, SIDE_FOLDER), map(os.path.basename, notes))
        _refuse_existing(self.folder, name, paths, overwrite)
        self._overwrite, self._paths = overwrite, list(paths)
        self._files: dict[int, AtomicFile] = {}

    def begin(self, number: int, adopted: str = "") -> AtomicFile:
        """Open a file; or take one over that an earlier process has sealed under this temporary name."""
        file = self._files[number] = AtomicFile(self._paths[number], adopted)
        return file

    def publish(self, receipt: dict[str, Any]) -> None:
        """Flush all shards, rename all, then write the receipt."""
        files = [self._files[number] for number in range(len(self._paths))]
        for file in files:
            file.seal()
        renames = [[os.path.basename(file.temporary), file.name] for file in files]
        side = os.path.join(self.folder, SIDE_FOLDER)
        storage.make_folder(side)
        storage.flush_folder(self.folder)  # the temporary names, which the journal promises
        _refuse_existing(self.folder, self.name, self._paths, self._overwrite)  # hours may have passed
        path, journal = _journal_path(self.folder, self.name), _dump({"renames": renames, "receipt": receipt})
        try:
            storage.write_file(path, journal, replace=False)
            for file in files:
                file.publish()
            _conclude(self.folder, self.name, receipt)
        except BaseException as error:
            if not _stands(path, journal):  # then nothing was renamed, or everything is done
                if isinstance(error, StorageError) and error.errno == errno.EEXIST:
                    raise UsageError(f"{path}: another process is publishing this output just now") from None
                raise
            for file in files:
                file.keep()
            error.add_note(
                "Every shard is complete on disk, but not all have their names yet: "
                f"the next writer of {self.name!r} in {self.folder} finishes that first."
            )
            raise

    def keep_sealed(self) -> None:
        """What is sealed stays on disk for a later process to adopt; the rest can be discarded."""
        for file in self._files.values():
            if file.sealed:
                file.keep()

    def discard(self) -> None:
        """Remove whatever was not published."""
        for file in self._files.values():
            file.discard()


def check_outputs(name: str, paths: Sequence[str], *, overwrite: bool) -> None:
    """Refuse what `ShardSet` would refuse, before anything is done."""
    folder = os.path.dirname(os.path.abspath(paths[0]))
    if os.path.isdir(folder):
        _refuse_existing(folder, name, paths, overwrite)


def receipt_path(folder: str, name: str) -> str:
    """Where the receipt of an output is kept."""
    return os.path.join(folder, SIDE_FOLDER, f"{name}.receipt.json")


_Integers = np.ndarray[tuple[int], np.dtype[np.uint64]]
_MOST_LISTED = 1 << 24  # bytes that one list unpacks to


def files_packed(names: bytes, sizes: _Integers) -> list[dict[str, Any]]:
    """For a receipt that lists very many inputs, by their folders: a million take 10 MB like this, not 100.

    Packed are names, each ended by a zero byte, and behind them their sizes, 8 bytes each.
    """
    folder = names[: names.rindex(b"/", 0, names.index(b"\0")) + 1]
    bare = (b"\0" + names).replace(b"\0" + folder, b"\0")[1:]
    if b"/" not in bare and len(bare) + len(sizes) * len(folder) == len(names):  # nearly always
        return [_packed(folder, bare, sizes)]
    told, end = [], 0
    for home, some in groupby(map(os.path.split, names.split(b"\0")[:-1]), key=itemgetter(0)):
        listed = [name for _, name in some]
        begin, end = end, end + len(listed)
        told.append(_packed(os.path.join(home, b""), b"\0".join([*listed, b""]), sizes[begin:end]))
    return told


def _packed(folder: bytes, names: bytes, sizes: _Integers) -> dict[str, Any]:
    packed = isal_zlib.compress(names + sizes.astype("<u8").tobytes(), 1)
    told = {"folder": os.fsdecode(folder), "files": len(sizes), "bytes": int(sizes.sum())}
    return told | {"packed": base64.b64encode(packed).decode()}


def files_told(receipt: dict[str, Any]) -> list[dict[str, Any]]:
    """The inputs that a receipt lists, a dict each."""
    found: list[dict[str, Any]] = []
    for one in receipt["inputs"]:
        if "packed" not in one:
            found.append(one)
            continue
        try:
            content = zlib.decompressobj().decompress(base64.b64decode(one["packed"]), _MOST_LISTED)
        except zlib.error as error:
            raise ValueError("a list of inputs is damaged") from error
        names, end = len(content) - 8 * int(one["files"]), b"\0"
        listed = os.fsdecode(content[:names]).split("\0")
        if names < 0 or content[names - 1 : names] != end or len(listed) != one["files"] + 1:
            raise ValueError("a list of inputs is damaged")
        sizes = np.frombuffer(content, "<u8", offset=names).tolist()
        found += [
            {"path": one["folder"] + name, "bytes": size} for name, size in zip(listed, sizes, strict=False)
        ]
    return found


def finish_publication(folder: str, name: str) -> bool:
    """Finish what a killed writer of this output had begun to publish; False when there was nothing."""
    path = _journal_path(folder, name)
    try:
        with storage.reporting("open", path), open(path, "rb") as file:
            content = file.read()
    except InputNotFoundError:
        return False
    try:
        journal = json.loads(content)
        renames = [(str(temporary), str(final)) for temporary, final in journal["renames"]]
        receipt = journal["receipt"]
        sizes = {shard["name"]: shard["file_bytes"] for shard in receipt.get("shards", ())}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: this journal is damaged; look at it, then delete it") from error
    for temporary, final in renames:
        ours = final == name or re.fullmatch(re.escape(name) + r"-\d{5,}-of-\d{5,}(\.[^/]*)?", final)
        stem = re.escape(storage.temporary_stem(final))
        if not ours or not re.fullmatch(stem + r"\.[0-9a-f]{8}\.tmp", temporary):
            raise UsageError(f"{path}: this journal names {temporary!r} and {final!r}, which cannot be ours")
    waiting = [pair for pair in renames if _is_free(os.path.join(folder, pair[0]))]
    for _, final in set(renames) - set(waiting):  # renamed already, or so it should be
        target = os.path.join(folder, final)
        try:
            size = os.stat(target).st_size
        except FileNotFoundError:
            size = -1
        except OSError as error:
            raise StorageError("read", target, error) from error
        if size != sizes.get(final, max(size, 0)):
            raise UsageError(f"{path}: {final} is not what this journal promises; look at it, then delete it")
    for temporary, final in waiting:
        source, target = os.path.join(folder, temporary), os.path.join(folder, final)
        with storage.reporting("rename", target):
            os.rename(source, target)
    _conclude(folder, name, receipt)
    return True


def _is_free(temporary: str) -> bool:
    """Whether a temporary file is there and its writer is gone."""
    try:
        with storage.reporting("open", temporary):
            fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except InputNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{temporary}: another process is publishing this output just now") from None
    except OSError:  # a file system without locks
        pass
    finally:
        storage.close(fd)
    return True


def _stands(path: str, journal: bytes) -> bool:
    """Whether our journal is in force; when in doubt, it is."""
    try:
        with open(path, "rb") as file:
            return file.read() == journal
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _conclude(folder: str, name: str, receipt: dict[str, Any]) -> None:
    storage.flush_folder(folder)
    storage.write_file(receipt_path(folder, name), _dump(receipt))
    storage.remove(_journal_path(folder, name))


def _refuse_existing(folder: str, name: str, paths: Sequence[str], overwrite: bool) -> None:
    """Nothing is overwritten unasked, and no other set of shards may share the name: globs would mix them."""
    ours = {os.path.basename(path) for path in paths}
    with storage.reporting("list", folder):
        there = set(os.listdir(folder))
    existing = sorted(ours & there)
    if existing and not overwrite:
        more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
        first = os.path.join(folder, existing[0])
        raise UsageError(f"{first}{more}: exists; ask for overwrite (--overwrite) to replace it")
    shard = re.compile(re.escape(name) + r"-\d{5,}-of-\d{5,}(\.[^/]*)?")
    if ours != {name} and (stale := sorted(file for file in there - ours if shard.fullmatch(file))):
        raise UsageError(
            f"{os.path.join(folder, stale[0])}: a shard of another set with the same prefix; "
            f"readers of {name}-* would mix them: remove those {len(stale)} files or choose another prefix"
        )


def _journal_path(folder: str, name: str) -> str:
    return os.path.join(folder, SIDE_FOLDER, f"{name}.publishing.json")


def _dump(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
