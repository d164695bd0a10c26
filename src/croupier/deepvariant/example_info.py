"""example_info.json: what make_examples says about its images, which training wants beside the shards."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from croupier import naming, storage
from croupier.errors import UsageError

NAME = "example_info.json"
_LARGEST = 1 << 20


class ExampleInfo:
    """The one that belongs to the inputs, and where it goes."""

    def __init__(self, source: str, content: bytes, target: str, *, writes: bool) -> None:
        self.source, self.target = source, target
        self._content, self._writes = content, writes

    def write(self) -> None:
        """Unless it is there already."""
        if self._writes:
            storage.write_file(self.target, self._content)


def find(
    patterns: Iterable[str],
    files: Sequence[str],
    folder: str,
    say: Callable[[str], None],
    *,
    overwrite: bool,
) -> ExampleInfo | None:
    """Carry over the one of the inputs; None where they have none. Refused where two of them disagree."""
    target = os.path.join(folder, NAME)
    sources = _sources(patterns, files)
    if not sources:
        if not os.path.exists(target):
            say(
                f"no {NAME} belongs to the input: DeepVariant from 1.4 on wants one in {folder} "
                "(make_examples writes it beside its output)"
            )
        return None
    first = sources[0]
    content = storage.read_small(first, _LARGEST)
    told = _parsed(first, content)
    for other in sources[1:]:
        _compare(first, told, other, _parsed(other, storage.read_small(other, _LARGEST)), say)
    return ExampleInfo(first, content, target, writes=_is_wanted(first, told, target, overwrite, say))


def _sources(patterns: Iterable[str], files: Sequence[str]) -> list[str]:
    """Those of the input's own names; failing that, those in their folders."""
    found = {f"{file}.{NAME}" for file in files}
    for pattern in patterns:
        if not os.path.isdir(pattern):
            found.update(glob.glob(f"{pattern}*{NAME}", recursive=True))
    found = {path for path in found if os.path.isfile(path)}
    if not found:
        folders = {os.path.dirname(file) for file in files}
        found = {path for path in (os.path.join(folder, NAME) for folder in folders) if os.path.isfile(path)}
    return naming.in_byte_order(found)


def _parsed(path: str, content: bytes) -> dict[str, Any]:
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise UsageError(f"{path}: is no JSON object: make_examples writes it, and training reads it")
    return told


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what differs. The version alone tells nothing about the images."""
    names = sorted(one.keys() | other.keys())
    return [name for name in names if name != "version" and one.get(name) != other.get(name)]


def _compare(
    first: str, told: dict[str, Any], other: str, more: dict[str, Any], say: Callable[[str], None]
) -> None:
    if different := _differences(told, more):
        shown = ", ".join(f"{name} {told.get(name)} and {more.get(name)}" for name in different)
        raise UsageError(
            f"{first} and {other} disagree ({shown}): these examples cannot be trained on together; shuffle "
            "them apart"
        )
    if told.get("version") != more.get("version"):
        say(
            f"{other} is of DeepVariant {more.get('version')}, {first} of {told.get('version')}; they are "
            "alike otherwise, and the latter is carried over"
        )


def _is_wanted(
    source: str, told: dict[str, Any], target: str, overwrite: bool, say: Callable[[str], None]
) -> bool:
    """Whether to write it. One that is there already stays, unless it says something else and may go."""
    if not os.path.lexists(target):
        return True
    try:
        there = _parsed(target, storage.read_small(target, _LARGEST))
    except UsageError:
        different = ["everything"]
    else:
        different = _differences(told, there)
    if not different:
        return False
    if not overwrite:
        raise UsageError(
            f"{target}: is there and disagrees with {source} ({', '.join(different)}): other examples in "
            "that folder need it; choose another folder for the output, or replace it by --overwrite"
        )
    say(f"{target}: will be replaced by {source}, which says something else about {', '.join(different)}")
    return True
