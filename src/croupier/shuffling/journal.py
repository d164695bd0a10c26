"""What a shuffle has done so far, noted so that another process can go on: spilled runs, complete shards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from croupier import storage
from croupier.errors import TableError, UsageError
from croupier.proof import Proof
from croupier.publish import receipt_path
from croupier.table import format as table_format
from croupier.table.model import Table
from croupier.work import WorkFolder

FORMAT = 1
_TABLE_COPIES = 5
"""Of all tables, in memory at once: as they were kept, loaded, joined, and as they are kept then."""
NO_KEY = (1 << 64) - 1
"""Behind all others."""


class Finished(NamedTuple):
    """A shard that is complete, under its temporary name."""

    temporary: str
    proof: Proof
    key: int
    """Of the first record behind it."""


class Journal:
    """Of one output. `identity` is all that decides what its bytes will be."""

    def __init__(
        self, work: WorkFolder, identity: Mapping[str, Any], *, tmp_dir: str | None, resume: bool
    ) -> None:
        self._work = work
        there = self._there(resume)
        self.resumed = resume and there is not None
        if resume and there is not None:
            _refuse_another(there.get("identity"), identity, work.path)
            self.spills = work.spill_to(there["spills"])
        else:
            if there is not None:
                work.spill_to(there["spills"], make=False)
            work.clear()
            spills = tmp_dir and os.path.abspath(tmp_dir)
            work.note("job", {"format": FORMAT, "identity": identity, "spills": spills})
            self.spills = work.spill_to(tmp_dir)
        self.runs = 0
        self.shards = 0
        self.key = 0
        """Nobody will need records before this one again."""
        self._waiting: dict[int, dict[str, Any]] = {}
        self._keys: dict[int, int] = {}

    def _there(self, resume: bool) -> dict[str, Any] | None:
        try:
            there = self._work.read("job")
        except UsageError:
            if resume:
                raise
            return None
        known = there is not None and there.get("format") == FORMAT
        return there if known and there is not None and isinstance(there.get("spills"), str | None) else None

    # Runs

    def spill_path(self, number: int) -> str:
        """Where a run goes."""
        return os.path.join(self.spills, f"run-{number:05d}.spill")

    def note_run(self, state: dict[str, Any]) -> None:
        """One more is on disk; `state` tells what has been read by now."""
        self._work.note(f"run-{self.runs:05d}", state)
        self.runs += 1

    def earlier_runs(self) -> dict[str, Any] | None:
        """What the last note of a run said, if there is one; afterwards `runs` counts them."""
        state = None
        while (note := self._read(f"run-{self.runs:05d}")) is not None:
            state, self.runs = note, self.runs + 1
        return state

    # Shards

    def note_key(self, shard: int, key: int) -> None:
        """The first record of a shard has this key: needed to go on there."""
        self._keys[shard] = key
        self._note_waiting()

    def note_shard(
        self, number: int, temporary: str, size: int, proof: Proof, table: Table, *, last: bool
    ) -> None:
        """A shard is complete."""
        if last:
            self._keys[number + 1] = NO_KEY
        self._work.keep(f"shard-{number:05d}.table", table_format.dump(table, 0))
        note = {"temporary": os.path.basename(temporary), "bytes": size, "proof": proof.as_dict()}
        self._waiting[number] = note
        self._note_waiting()

    def _note_waiting(self) -> None:
        while self.shards in self._waiting and self.shards + 1 in self._keys:
            note = self._waiting.pop(self.shards) | {"key": self._keys.pop(self.shards + 1)}
            self._work.note(f"shard-{self.shards:05d}", note)
            self.shards += 1
            self.key = note["key"]

    def earlier_shards(self, folder: str, most: int) -> list[Finished]:
        """Those that are complete and still there, without a gap from the first one on."""
        found: list[Finished] = []
        while len(found) < most and (note := self._read(f"shard-{len(found):05d}")) is not None:
            try:
                shard = Finished(str(note["temporary"]), Proof.from_dict(note["proof"]), int(note["key"]))
                path = os.path.join(folder, os.path.basename(shard.temporary))
                if os.stat(path, follow_symlinks=False).st_size != note["bytes"]:
                    break
            except (KeyError, TypeError, ValueError, OSError):
                break
            found.append(shard)
        self.shards = len(found)
        return found

    def tables(self, memory: int) -> list[Table]:
        """Of all shards, or none: they are hints, and the job is done. To keep them takes `memory`."""
        try:
            names = [f"shard-{number:05d}.table" for number in range(self.shards)]
            if sum(map(self._work.kept_bytes, names)) > memory // _TABLE_COPIES:
                return []
            kept = map(self._work.kept, names)
            return [table_format.load(np.frombuffer(one, np.uint64), "table")[0] for one in kept]
        except (OSError, TableError, ValueError):
            return []

    @property
    def worth_keeping(self) -> bool:
        """Whether anything was done that another process need not do again."""
        return self.runs > 0 or self.shards > 0

    def how_to_go_on(self) -> str:
        """For whoever sees the job end early."""
        folders = " ".join(self._work.folders)
        return f"What was done so far is kept: go on with --resume, or remove it (rm -r {folders})."

    def _read(self, name: str) -> dict[str, Any] | None:
        return self._work.read(name)


def digest(identity: Mapping[str, Any]) -> str:
    """Of what decides an output's bytes; for its receipt."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def finished(folder: str, name: str, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The receipt of this very output, if all of it is there."""
    try:
        with storage.reporting("read", folder), open(receipt_path(folder, name), "rb") as file:
            receipt = json.loads(file.read())
        if receipt["plan"] != digest(identity):
            return None
        for shard in receipt["shards"]:
            if os.stat(os.path.join(folder, shard["name"])).st_size != shard["file_bytes"]:
                return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(receipt)


def _refuse_another(before: object, now: Mapping[str, Any], path: str) -> None:
    if before == json.loads(json.dumps(now)):
        return
    other = sorted(key for key in now if not isinstance(before, dict) or before.get(key) != now[key])
    raise UsageError(
        f"{path}: the work kept there is of another job ({', '.join(other)} differ); call as before, or "
        "without --resume, which begins anew"
    )
