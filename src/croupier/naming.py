"""Which files a user means: paths, globs, folders, sets of shards."""

from __future__ import annotations

import glob
import itertools
import operator
import os
import re
from collections.abc import Iterable, Sequence

from croupier import _kernel, storage
from croupier.errors import InputNotFoundError, UsageError


def expand(paths: storage.PathLike | Iterable[storage.PathLike]) -> list[str]:
    """The files that paths, globs, folders and `name@64` name: arguments in order, each sorted by bytes.

    Of a folder, the files whose names contain "tfrec" are taken; hidden ones never. Where all shards of a set
    are named (`prefix-?????-of-?????`, `prefix-?????-of-00064`, `prefix@64`), all must be there.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise UsageError("no input was given")
    listed: dict[str, bytes | int] = {}
    return [file for path in given for file in _expand_one(os.fspath(path), given, listed)]


def packed(names: Sequence[str]) -> bytes:
    """As the kernel wants them: each ended by a zero byte."""
    text = "\0".join([*names, ""])
    if text.count("\0") != len(names):
        raise ValueError("embedded null byte")  # as open() says it
    return os.fsencode(text)


def are_distinct(paths: Sequence[str]) -> bool:
    """Whether none comes twice; at once where they are in order."""
    return all(map(operator.lt, paths, itertools.islice(paths, 1, None))) or len(set(paths)) == len(paths)


_SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})(.*)", re.DOTALL)
_MARK = b"tfrec"
"""In the names of the files of a folder that are taken."""
_ALL = re.compile(r"-\?{5,}-of-(\?{5,}|\d{5,})")
_SHARDS = re.compile(r"(.+)@(\d{1,7})((?:\.[^/]*)?)", re.DOTALL)


def _expand_one(path: str, given: Sequence[storage.PathLike], listed: dict[str, bytes | int]) -> list[str]:
    if path == storage.STDIN:
        return [path]
    if "://" in path:
        raise UsageError(f"{path}: only local files and '-' (standard input) can be read")
    if os.path.isdir(path):
        if path not in listed:  # the first of them
            folders = [path, *(os.fspath(one) for one in given if os.path.isdir(one))]
            listed.update(zip(folders, _kernel.list_folders(packed(folders), _MARK), strict=True))
        return _in_folder(path, listed[path])
    if os.path.exists(path):  # a name with brackets in it, say, is itself
        return [path]
    if match := _SHARDS.fullmatch(path):
        return _shards(path, *match.groups())
    if glob.has_magic(path):
        found = [file for file in glob.glob(path, recursive=True) if not os.path.isdir(file)]
        if not found:
            raise InputNotFoundError(f"{path}: no file matches")
        if _ALL.search(path):
            _refuse_incomplete(path, found)
        return in_byte_order(found)
    raise InputNotFoundError(f"{path}: no such file or folder")


def in_byte_order(names: Iterable[str]) -> list[str]:
    """Sorted as their bytes are: for UTF-8 as strings are, in a quarter of the time."""
    found = sorted(names)
    return found if "".join(found).isascii() else sorted(found, key=os.fsencode)


def _in_folder(folder: str, names: bytes | int) -> list[str]:
    if isinstance(names, int):
        with storage.reporting("list", folder):
            raise OSError(names, os.strerror(names))
    if not names:
        raise InputNotFoundError(f"{folder}: no file in this folder has 'tfrec' in its name")
    front = os.path.join(folder, "")
    return (front + os.fsdecode(names[:-1]).replace("\0", "\0" + front)).split("\0")


def absolute(paths: Sequence[str]) -> list[str]:
    """As os.path.abspath gives them, which takes 3 s for a million, this 0.1."""
    found: list[str] = []
    fronts: dict[str, str] = {}
    for begin in range(0, len(paths), TOGETHER):
        some = paths[begin : begin + TOGETHER]
        folder = some[0][: some[0].rfind("/") + 1]
        whole = "\0".join(["", *some])
        bare = whole.replace("\0" + folder, "\0")
        alike = "/" not in bare and len(whole) - len(bare) == len(folder) * len(some)
        if not alike or "\0." in bare or "\0\0" in bare + "\0":
            found += map(os.path.abspath, some)
            continue
        if folder not in fronts:
            fronts[folder] = os.path.join(os.path.abspath(folder), "")
        front = fronts[folder]
        found += some if front == folder else bare.replace("\0", "\0" + front)[1:].split("\0")
    return found


def byte_order(paths: Sequence[str]) -> list[int] | None:
    """The places of paths in the order of their bytes; None where they are in it."""
    if all(map(operator.le, paths, itertools.islice(paths, 1, None))) and "".join(paths).isascii():
        return None
    return sorted(range(len(paths)), key=[os.fsencode(path) for path in paths].__getitem__)


TOGETHER = 512  # names that are taken out of their folder at once


def split_folders(paths: Sequence[str]) -> tuple[list[str], list[tuple[str, int]]]:
    """Names without their folders; and the folders, each with its slash and how many paths in a row it has.

    As os.path.split, which takes 1.5 s for a million, this 0.2: neighbours are nearly always of one folder.
    """
    names: list[str] = []
    runs: list[tuple[str, int]] = []
    for begin in range(0, len(paths), TOGETHER):
        some = paths[begin : begin + TOGETHER]
        folder = some[0][: some[0].rfind("/") + 1]
        whole = "\0" + "\0".join(some)
        bare = whole.replace("\0" + folder, "\0")
        if "/" not in bare and len(whole) - len(bare) == len(folder) * len(some):
            names += bare[1:].split("\0")
            runs.append((folder, len(some)))
        else:
            cuts = [path.rfind("/") + 1 for path in some]
            names += [path[cut:] for path, cut in zip(some, cuts, strict=True)]
            runs += [(path[:cut], 1) for path, cut in zip(some, cuts, strict=True)]
    return names, runs


def folders_of(paths: Sequence[str], names: Sequence[str]) -> list[tuple[str, int]]:
    """The same folders, where the names are known: in a third of the time."""
    runs: list[tuple[str, int]] = []
    for begin in range(0, len(paths), TOGETHER):
        some, last = paths[begin : begin + TOGETHER], names[begin : begin + TOGETHER]
        folder = some[0][: len(some[0]) - len(last[0])]
        if ("\0" + folder).join(["", *last]) == "\0".join(["", *some]):
            runs.append((folder, len(some)))
        else:
            runs += [(path[: len(path) - len(name)], 1) for path, name in zip(some, last, strict=True)]
    return runs


def _shards(path: str, stem: str, count: str, suffix: str) -> list[str]:
    """The files of `stem@count`, with the suffix that is given or the one that they have."""
    first = f"{stem}-00000-of-{int(count):05d}"
    if not suffix and not os.path.exists(first):
        suffixes = {file[len(first) :] for file in glob.glob(f"{glob.escape(first)}.*")}
        if len(suffixes) > 1:
            raise UsageError(f"{path}: there are sets of several suffixes: {', '.join(sorted(suffixes))}")
        suffix = suffixes.pop() if suffixes else ""
    found = [f"{stem}-{number:05d}-of-{int(count):05d}{suffix}" for number in range(int(count))]
    lacking = [file for file in found if not os.path.exists(file)]
    if lacking or not found:
        example = f": {lacking[0]} is missing" if lacking else ""
        raise InputNotFoundError(f"{path}: {len(lacking):,} of {int(count):,} shards are not there{example}")
    return found


def _refuse_incomplete(path: str, found: list[str]) -> None:
    """All shards of a set, or none: a dataset without one would go unnoticed."""
    sets: dict[tuple[str, int, str], set[int]] = {}
    for file in found:
        if match := _SHARD.fullmatch(file):
            stem, number, count, suffix = match.groups()
            sets.setdefault((stem, int(count), suffix), set()).add(int(number))
    for (stem, count, suffix), numbers in sets.items():
        lacking = set(range(min(count, 1 << 20))) - numbers
        if lacking:
            first = f"{stem}-{min(lacking):05d}-of-{count:05d}{suffix}"
            raise InputNotFoundError(
                f"{path}: {len(lacking):,} of {count:,} shards are not there: {first} is missing"
            )
