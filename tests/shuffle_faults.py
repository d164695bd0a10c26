"""Shuffles whose file calls fail: what they leave, and whether the next one makes the same bytes.

`Ruin` runs a shuffle with one fault in a process of its own (see faults.py), looks at what is left, and runs
it again, with --resume or without. Inputs, output and temporary folder all lie below the folder that is
watched, so reading fails as well as writing.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import croupier
import faults
from croupier.shuffling import planning
from dataset_help import framed

RUN = 48 << 10
"""Bytes of memory for records: the data are six times as much."""
SHARDS = 3
ESSENTIAL = {"write", "fsync", "rename", "link"}


class Scenario(NamedTuple):
    """A shuffle."""

    name: str
    strategy: str
    compression: str
    run: int = RUN
    inputs: str = "in"

    def act(self, folder):
        """In the child."""
        planning.run_bytes = lambda runtime: self.run
        croupier.shuffle(
            folder / self.inputs / "*",
            folder / "out" / "t",
            seed=5,
            shards=SHARDS,
            strategy=self.strategy,
            compression=self.compression,
            level=3,  # at 1, isal gives other bytes once in 20,000 fragments: see `codec.deflate`
            workers=1,
            tmp_dir=folder / "tmp",
            resume=_marker(folder).exists(),
        )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("memory", "memory", "none", 1 << 20),
        Scenario("gather", "gather", "none"),
        Scenario("spill", "spill", "none"),
        Scenario("spill-gzip", "spill", "gzip"),
        Scenario("fragments", "fragments", "gzip"),
        Scenario("giants", "spill", "none", inputs="giants"),
    )
}


def _marker(folder):
    """Beside what is watched; it says that the next run resumes."""
    return folder.with_name(f"{folder.name}-resumes")


def lay_out(folder):
    """Inputs, an empty temporary folder, and what must not be touched."""
    rng = random.Random(6)
    for name in ("in", "giants", "tmp", "out/.croupier"):
        (folder / name).mkdir(parents=True)
    for number in range(3):
        records = [
            b"%d:%d " % (number, place) + rng.randbytes(rng.choice((0, 50, 400, 3000))) for place in range(90)
        ]
        records[40] += rng.randbytes(20_000) + bytes(20_000)
        (folder / "in" / f"{number}.tfrecord").write_bytes(framed(records))
        records[60] += bytes(
            2 << 20
        )  # too large for memory: kept in a temporary file, as this one is compressed
        packed = gzip.compress(framed(records), 1, mtime=0)
        (folder / "giants" / f"{number}.tfrecord.gz").write_bytes(packed)
    (folder / "out" / "bystander.tfrecord").write_bytes(b"not ours")
    (folder / "out" / ".croupier" / "bystander.receipt.json").write_bytes(b"{}")


class Trial(NamedTuple):
    """How a case went."""

    outcomes: list[str]
    complaints: list[str]

    @property
    def torn(self):
        return any(text.startswith(("torn", "half")) for text in self.complaints)


class Ruin:
    """A server process and its folders."""

    def __init__(self):
        self.lab = faults.Lab(__file__)
        self.before = self.lab.folder / "before"
        lay_out(self.before)
        self._clean = {}

    def close(self):
        self.lab.close()

    def clean(self, scenario):
        """(trace, bytes of each output file) of a run without a fault."""
        if scenario.name not in self._clean:
            folder = self._fresh()
            end = self.lab.run(scenario, folder)
            assert end["kind"] == "published", end
            files = {path.name: path.read_bytes() for path in (folder / "out").glob("t-*")}
            assert len(files) == SHARDS
            assert not list((folder / "tmp").iterdir()), "temporary files were left"
            shutil.rmtree(folder)
            self._clean[scenario.name] = end["trace"], files
        return self._clean[scenario.name]

    def cases(self, scenario, mode):
        """The calls at which a mode makes sense, from 1."""
        trace, _ = self.clean(scenario)
        return [at for at, line in enumerate(trace, 1) if faults.applies(mode, line.split()[0])]

    def trial(self, scenario, at, mode, *, resume, again=()):
        """A fault at call `at`; perhaps more of them in the runs after it; then a run without."""
        self.clean(scenario)
        folder = self._fresh()
        outcomes, complaints = [], []
        try:
            for number, (then, how) in enumerate([(at, mode), *again]):
                end = self.lab.run(scenario, folder, then, how)
                outcomes.append(end["kind"])
                complaints += self._judge(scenario, folder, end, how, at if number == 0 else 0)
                if resume:
                    _marker(folder).touch()
            if outcomes[-1] != "published" or resume:
                end = self.lab.run(scenario, folder)
                outcomes.append(end["kind"])
                complaints += [f"afterwards: {text}" for text in self._judge(scenario, folder, end, None)]
                complete = set(self._files(folder)) == set(self.clean(scenario)[1])
                if end["kind"] != "published" and not (" exists; " in end["text"] and complete):
                    complaints.append(f"afterwards: {end['kind']} {end['text']}")
            left = [path for path in folder.rglob("*") if ".tmp" in path.name or path.suffix == ".spill"]
            # Of the table, a hint, which is saved when all is done: whoever saves the next one removes that.
            left = [path for path in left if not path.name.startswith(".records.table.")]
            left += list((folder / "tmp").iterdir()) + list(folder.glob("out/.croupier/*.work"))
            if left and not (len(outcomes) == 1 and faults.MODES[mode][0] == faults.REFUSE):
                complaints.append(f"left behind: {sorted(map(str, left))}")
        finally:
            shutil.rmtree(folder)
            _marker(folder).unlink(missing_ok=True)
        return Trial(
            outcomes, [f"{text}  [{scenario.name}: {mode} at {at}, {resume=}]" for text in complaints]
        )

    def _fresh(self):
        folder = self.lab.folder / "case"
        shutil.copytree(self.before, folder)
        return folder

    def _files(self, folder):
        return {path.name: path.read_bytes() for path in (folder / "out").glob("t-*")}

    def _judge(self, scenario, folder, end, mode, at=0):
        """What must not be, however a run ended; more is known where the fault at call `at` was the first."""
        complaints = []
        kind, text, struck = end["kind"], end["text"], end["struck"]
        expected, files = self.clean(scenario)[1], self._files(folder)
        for name, content in files.items():
            if content != expected.get(name):
                complaints.append(f"torn: {name}, {len(content):,} bytes")
        side = folder / "out" / ".croupier"
        journal = (side / "t.publishing.json").exists()
        if 0 < len(files) < SHARDS and not journal:
            complaints.append(f"half a set is visible: {sorted(files)}")
        if (side / "t.receipt.json").exists():
            try:
                receipt = json.loads((side / "t.receipt.json").read_text())
                if receipt["in"] != receipt["out"] or len(files) < SHARDS:
                    complaints.append(f"half: a receipt beside {sorted(files)}")
            except ValueError:
                complaints.append("torn: the receipt")
        elif kind == "published":
            complaints.append("success, and no receipt")
        if (side.parent / "bystander.tfrecord").read_bytes() != b"not ours":
            complaints.append("torn: a bystander")
        if kind == "crashed" or (kind == "killed" and end["signal"] != signal.SIGKILL):
            complaints.append(f"{kind}: {text}, at {struck}")
        if kind == "published" and len(files) < SHARDS:
            complaints.append(f"success, and only {sorted(files)}")
        if not at:
            return complaints
        what, number, _ = faults.MODES[mode]
        happened = bool(struck) or kind == "killed"
        if (
            happened
            and what in (faults.KILL_BEFORE, faults.KILL_AFTER, faults.KILL_AMID)
            and kind != "killed"
        ):
            complaints.append(f"not killed but {kind} {text}")
        if what == faults.SHORT or number == faults.errno.EINTR:
            interruptible = struck.split()[:1] and struck.split()[0] in faults.INTERRUPTIBLE
            if kind != "published" and (what == faults.SHORT or interruptible):
                complaints.append(f"should have gone on, but {kind} {text}, at {struck}")
        elif what == faults.REFUSE:
            table = next(i for i, line in enumerate(self.clean(scenario)[0]) if "records.table" in line)
            # The table is a hint, made when all is published. Python's glob and isdir hide refusals.
            silent = struck.startswith(("stat", "opendir"))
            matters = struck.split()[:1] and struck.split()[0] in ESSENTIAL and at < table - 10
            if kind == "published" and matters:
                complaints.append(f"success after a call that matters had failed: {struck}")
            if kind == "usage" and not silent:
                complaints.append(f"UsageError for a fault of the machine: {text}, at {struck}")
            if kind == "refused" and not silent and not (str(folder) in text and os.strerror(number) in text):
                complaints.append(f"the error does not say which file or why: {text}, at {struck}")
        if kind in ("refused", "crashed", "interrupted") and files and not journal and len(files) < SHARDS:
            complaints.append(f"visible after a failure: {sorted(files)}")
        return complaints


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    faults.serve(SCENARIOS)
