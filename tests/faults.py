"""What the atomic writer leaves behind when a file call of its process fails, whichever call that is.

`Lab` starts one server process under faults.c; the server has croupier imported and forks a child for each
case, which is some 5 ms instead of a new interpreter's 300. A case is a scenario with one fault; `Lab.trial`
runs it, runs the same writer again without a fault, and says what was wrong (nothing, we hope).

Content is compared byte by byte with a clean run's files, which tests/test_faults.py checks with
`croupier.verify`, gzip and a reader of its own: the same records in the same order give the same bytes.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
_, KILL_BEFORE, KILL_AFTER, KILL_AMID, REFUSE, SHORT, INTERRUPT = range(7)

MODES = {  # name: (what happens, errno, at every later call too)
    "kill-before": (KILL_BEFORE, 0, False),
    "kill-after": (KILL_AFTER, 0, False),
    "kill-amid": (KILL_AMID, 0, False),
    "enospc-once": (REFUSE, errno.ENOSPC, False),
    "enospc-forever": (REFUSE, errno.ENOSPC, True),
    "eio-once": (REFUSE, errno.EIO, False),
    "eio-forever": (REFUSE, errno.EIO, True),
    "short": (SHORT, 0, False),
    "eintr": (REFUSE, errno.EINTR, False),
    "sigint": (INTERRUPT, 0, False),
}
WRITES = {"write"}
INTERRUPTIBLE = {
    "open",
    "read",
    "write",
    "fsync",
    "ftruncate",
    "flock",
    "close",
}  # the others never say EINTR
ESSENTIAL = {"write", "fsync", "rename", "link"}  # refused, these can never end in success


def applies(mode, kind):
    """Whether a mode makes sense for a kind of call."""
    if mode in ("kill-amid", "short"):
        return kind in WRITES
    return mode != "eintr" or kind in INTERRUPTIBLE


# --- what the child does ---------------------------------------------------------------------------------


def small(seed, count):
    """Records of all sizes, an empty one among them."""
    rng = random.Random(seed)
    return [b"", *(rng.randbytes(rng.randrange(900)) for _ in range(count - 1))]


def large(seed):
    """3 MB, half of which can be compressed."""
    rng = random.Random(seed)
    return [rng.randbytes(5000) + bytes(5000) for _ in range(300)]


OLD_TEXT, NEW_TEXT = b"the old content\n" * 500, b"the new content, which is longer\n" * 900


def _replace(folder, content):
    from croupier import storage

    storage.sweep(str(folder), ["settings.json"])
    storage.write_file(folder / "settings.json", content)


def _write(path, records, **options):
    import croupier

    with croupier.writer(path, workers=2, **options) as out:
        out.write_many(records)


class Scenario(NamedTuple):
    """A job that brings some files from old content, or from nothing, to new content."""

    name: str
    files: tuple[str, ...]
    act: object
    prepare: object = None
    receipt: str = ""
    """Its name; write_file has none."""

    @property
    def home(self):
        """Where the files appear, below the case's folder."""
        return os.path.dirname(self.files[0])


def _shards(prefix):
    return tuple(f"{prefix}-{number:05d}-of-00003.tfrecord.gz" for number in range(3))


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "replace",  # storage.write_file
            ("settings.json",),
            lambda folder: _replace(folder, NEW_TEXT),
            lambda folder: _replace(folder, OLD_TEXT),
        ),
        Scenario(
            "plain",  # one file, in a folder that is not there yet
            ("new/t.tfrecord",),
            lambda folder: _write(folder / "new/t.tfrecord", small(1, 200)),
            receipt="t.tfrecord",
        ),
        Scenario(
            "gzip",  # three shards
            _shards("t"),
            lambda folder: _write(folder / "t", large(2), shards=3, compression="gzip", level=1),
            receipt="t",
        ),
        Scenario(
            "overwrite",  # three shards over three with other content
            _shards("t"),
            lambda folder: _write(
                folder / "t", large(2), shards=3, compression="gzip", level=1, overwrite=True
            ),
            lambda folder: _write(folder / "t", small(3, 300), shards=3, compression="gzip", level=1),
            receipt="t",
        ),
    )
}


def _child(order, faults, out, scenarios):
    """Run one case, and say how it ended; killed, it says nothing."""
    from croupier.errors import CroupierError, UsageError

    signal.alarm(60)
    scenario, folder = scenarios[order["scenario"]], Path(order["folder"])
    act = scenario.prepare if order["prepare"] else scenario.act
    kind, text = "published", ""
    faults.faults_arm(os.fsencode(folder), order["at"], order["what"], order["errno"], order["forever"])
    try:
        act(folder)
    except KeyboardInterrupt:
        kind = "interrupted"
    except UsageError as error:
        kind, text = "usage", str(error)
    except CroupierError as error:
        kind, text = "refused", str(error)
    except BaseException as error:
        kind, text = "crashed", "".join(traceback.format_exception(error))
    faults.faults_disarm()
    answer = {"kind": kind, "text": text, "count": faults.faults_count()}
    trace = faults.faults_trace().decode().splitlines()
    answer["trace"] = [] if order["at"] else trace
    answer["struck"] = trace[order["at"] - 1] if 0 < order["at"] <= len(trace) else ""
    with open(out, "w") as file:
        json.dump(answer, file)


def serve(scenarios):
    """Read orders from standard input, fork a child for each, answer how it ended."""
    import concurrent.futures.thread  # noqa: F401  a child should import nothing
    import glob  # noqa: F401

    import croupier.cli
    import croupier.inspect.verify
    import croupier.writing  # noqa: F401

    faults = ctypes.CDLL(None)
    faults.faults_trace.restype = ctypes.c_char_p
    faults.faults_count.restype = ctypes.c_long
    faults.faults_arm.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_int)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(os.listdir("/proc/self/task")) != 1:
        sys.exit("threads were started before the fork")
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            code = 70
            try:
                _child(order, faults, write, scenarios)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        with open(read) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = {"kind": "killed", "text": "", "signal": os.WTERMSIG(status), "count": 0, "trace": []}
        print(json.dumps(json.loads(text) if text else killed | {"struck": ""}), flush=True)


# --- what the parent sees --------------------------------------------------------------------------------


def build(folder):
    """Compile the shim."""
    library = Path(folder) / "faults.so"
    command = [
        "gcc",
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        HERE / "faults.c",
    ]
    subprocess.run([*command, "-o", library, "-ldl"], check=True)
    return library


class Seen(NamedTuple):
    """What is in a folder after a case."""

    files: dict[str, str]
    """Each final name is "absent", "old", "new" or "torn"."""
    receipt: str
    """absent, old, new or torn"""
    temporary: list[str]
    journal: bool
    complaints: list[str]
    """What must never be, whatever happened."""

    @property
    def complete(self):
        """Whether all is new and nothing is left over."""
        return self.whole and not self.temporary

    @property
    def whole(self):
        """Whether all is new."""
        return set(self.files.values()) == {"new"} and not self.journal


class Trial(NamedTuple):
    """How a case went."""

    outcomes: list[str]
    """Of the run with the fault, and of those after it."""
    complaints: list[str]

    @property
    def torn(self):
        return any("torn: " in text for text in self.complaints)


class Lab:
    """A server, and a folder in memory for its cases: what is tested is order, not the device."""

    def __init__(self, script=__file__):
        """`script` is what the server runs: it calls `serve` with its scenarios."""
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="faults-", dir=memory)).resolve()
        shim = build(self.folder)
        preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(shim)]))  # a sanitizer goes first
        environment = os.environ | {
            "LD_PRELOAD": preload,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._server = subprocess.Popen(
            [sys.executable, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._models = {}

    def close(self):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        shutil.rmtree(self.folder)

    def run(self, scenario, folder, at=0, mode="kill-before", *, prepare=False):
        """Run a scenario, with a fault at call `at` (0: none); how it ended."""
        what, number, forever = MODES[mode]
        order = {"scenario": scenario.name, "folder": str(folder), "at": at, "what": what, "errno": number}
        order |= {"forever": forever, "prepare": prepare}
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def model(self, scenario):
        """What a clean run does and leaves."""
        if scenario.name not in self._models:
            self._models[scenario.name] = Model(self, scenario)
        return self._models[scenario.name]

    def trial(self, scenario, at, mode, again=()):
        """One case: a fault, then further runs with the faults of `again`, then a run without."""
        model = self.model(scenario)
        folder = self.folder / "case"
        shutil.copytree(model.before, folder, symlinks=True)
        try:
            end = self.run(scenario, folder, at, mode)
            outcomes = [end["kind"]]
            complaints = model.judge(folder, at, mode, end, model.look(folder))
            for then, how in again:
                end = self.run(scenario, folder, then, how)
                outcomes.append(end["kind"])
                more = model.check(end, model.look(folder), how)
                complaints += [f"then {how} at {then}: {text}" for text in more]
            if end["kind"] != "published" or again:
                end = self.run(scenario, folder)
                seen = model.look(folder)
                complaints += ["then a clean run: " + text for text in model.check(end, seen, None)]
                if not seen.complete:
                    complaints.append(f"then a clean run: {seen}")
            if any("torn: " in text for text in complaints):
                complaints.append(
                    f"torn files are kept in {shutil.copytree(folder, tempfile.mkdtemp() + '/torn')}"
                )
        finally:
            shutil.rmtree(folder)
        where = model.trace[at - 1] if at <= len(model.trace) else "?"
        return Trial(outcomes, [f"{text}  [{mode} at {at}: {where}]" for text in complaints])


class Model:
    """A scenario's folder before and after a clean run, and what follows for all other runs."""

    def __init__(self, lab, scenario):
        self.scenario = scenario
        self.before = lab.folder / f"{scenario.name}-before"
        self.before.mkdir()
        (self.before / ".croupier").mkdir()
        (self.before / "bystander.tfrecord").write_bytes(b"not ours")
        (self.before / ".croupier/bystander.receipt.json").write_bytes(b"{}")
        if scenario.prepare:
            assert lab.run(scenario, self.before, prepare=True)["kind"] == "published"
        self.after = lab.folder / f"{scenario.name}-after"
        shutil.copytree(self.before, self.after)
        end = lab.run(scenario, self.after)
        assert end["kind"] == "published", end
        self.trace = end["trace"]
        self.kinds = [line.split()[0] for line in self.trace]
        self.old = {name: _content(self.before / name) for name in scenario.files}
        self.new = {name: _content(self.after / name) for name in scenario.files}
        side = Path(scenario.home) / ".croupier"
        self.receipt, self.journal = (
            side / f"{scenario.receipt}.{kind}.json" for kind in ("receipt", "publishing")
        )
        named = [
            at
            for at, line in enumerate(self.trace, 1)
            if line.endswith(".publishing.json") and line.startswith(("rename", "link"))
        ]
        # From this call on, a fault may leave work for the next writer. write_file has no journal.
        self.turn = named[0] if scenario.receipt else self.kinds.index("rename") + 1

    def cases(self, mode):
        """The calls of a clean run at which a mode makes sense, from 1."""
        return [at for at, kind in enumerate(self.kinds, 1) if applies(mode, kind)]

    def look(self, folder):
        """What is there now."""
        complaints = []
        files = {}
        for name in self.scenario.files:
            content = _content(folder / name)
            files[name] = "torn"
            if content == self.old[name]:
                files[name] = "absent" if content is None else "old"
            elif content == self.new[name]:
                files[name] = "new"
            elif content is None:
                files[name] = "absent"
                complaints.append(f"torn: {name} is gone")
            else:
                complaints.append(f"torn: {name}, {len(content):,} bytes")
        temporary = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]
        temporary = [path for path in temporary if path.endswith(".tmp")]
        receipt, journal = self._receipt(folder), (folder / self.journal).exists()
        news = set(files.values())
        if receipt == "torn":
            complaints.append("torn: the receipt")
        if receipt == "new" and news != {"new"}:
            complaints.append(f"half a set: the new receipt stands beside {files}")
        if receipt == "old" and not journal and news != {"old"}:
            complaints.append(f"half a set: the old receipt stands beside {files}")
        if journal:
            complaints += self._journal_lies(folder, files)
        for name in ("bystander.tfrecord", ".croupier/bystander.receipt.json"):
            if _content(folder / name) != _content(self.before / name):
                complaints.append(f"torn: {name} was touched")
        return Seen(files, receipt, temporary, journal, complaints)

    def _receipt(self, folder):
        content = _content(folder / self.receipt) if self.scenario.receipt else None
        if content is None:
            return "absent"
        if content == _content(self.before / self.receipt):
            return "old"
        try:
            found, expected = json.loads(content), json.loads(_content(self.after / self.receipt))
        except ValueError:
            return "torn"
        found["seconds"] = expected["seconds"]
        return "new" if found == expected else "torn"

    def _journal_lies(self, folder, files):
        """A journal promises shards that are complete on disk, under their names or under temporary ones."""
        try:
            renames = json.loads(_content(folder / self.journal))["renames"]
        except (ValueError, KeyError):
            return ["torn: the journal"]
        lies = []
        for temporary, final in renames:
            name = os.path.join(self.scenario.home, final)
            waiting = _content(folder / self.scenario.home / temporary)
            if files[name] != "new" and waiting != self.new[name]:
                lies.append(
                    f"the journal promises {final}, which is {files[name]}, and {temporary} is not it"
                )
        return lies

    def check(self, end, seen, mode):
        """What holds after any run; `mode` is None for one without a fault."""
        complaints = list(seen.complaints)
        kind, text = end["kind"], end["text"]
        if kind == "published" and self.scenario.receipt and seen.receipt != "new":
            complaints.append(f"success was reported, but the receipt is {seen.receipt}")
        refused = mode is not None and MODES[mode][0] == REFUSE  # a sweep may have been
        if kind == "published" and not (seen.whole if refused else seen.complete):
            complaints.append(f"success was reported, but {seen}")
        if kind == "crashed" or (kind == "killed" and end["signal"] != signal.SIGKILL):
            complaints.append(f"{kind} {end.get('signal', '')}{text}")
        if kind == "usage" and not (
            " exists; " in text
            and (seen.whole if refused else seen.complete)
            and seen.receipt == "new"
            and not any(self.old.values())
        ):
            complaints.append(f"UsageError: {text}; {seen}")
        if mode is None and kind not in ("published", "usage"):
            complaints.append(f"without a fault: {kind} {text}")
        return complaints

    def judge(self, folder, at, mode, end, seen):
        """What is wrong after the first run of a case."""
        complaints = self.check(end, seen, mode)
        what, number, forever = MODES[mode]
        kind, text = end["kind"], end["text"]
        if what in (KILL_BEFORE, KILL_AFTER, KILL_AMID) and kind != "killed":
            complaints.append(f"not killed but {kind} {text}")
        if (what == SHORT or number == errno.EINTR) and kind != "published":
            complaints.append(f"should have been continued, but {kind} {text}")
        if what == INTERRUPT and kind not in ("interrupted", "published"):
            complaints.append(f"{kind} {text} instead of KeyboardInterrupt")
        if what == REFUSE and number != errno.EINTR:
            if kind == "published" and ESSENTIAL.intersection(self.kinds[at - 1 : None if forever else at]):
                complaints.append("success was reported after a call that mattered had failed")
            if kind == "usage":
                complaints.append(f"UsageError for a fault of the machine: {text}")
            if kind == "refused" and not (str(folder) in text and os.strerror(number) in text):
                complaints.append(f"the error does not say which file or why: {text}")
        early = at < self.turn or (at == self.turn and what == REFUSE)
        if early and kind in ("refused", "crashed", "interrupted") and not forever:
            if seen.temporary or seen.journal:
                complaints.append(f"left behind: {seen.temporary}, journal {seen.journal}")
            if set(seen.files.values()) & {"new"}:
                complaints.append(f"failed early, but visible: {seen.files}")
        if early and kind == "killed" and set(seen.files.values()) & {"new"}:
            complaints.append(f"killed early, but visible: {seen.files}")
        return complaints


def _content(path):
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    serve(SCENARIOS)
