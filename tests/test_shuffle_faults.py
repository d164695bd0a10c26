"""A shuffle that is killed, refused or interrupted tears nothing, and the next one makes the same bytes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

import croupier
import shuffle_faults
from croupier.errors import StorageError
from croupier.shuffling import planning
from dataset_help import framed
from faults import MODES
from shuffle_faults import SCENARIOS, SHARDS

pytestmark = [
    pytest.mark.unsanitized,  # the shim and the sanitizers both want to be loaded first
    pytest.mark.skipif(sys.platform != "linux", reason="the shim is Linux's"),
]
SAMPLE = 5
"""Calls of each scenario and mode that `make test` tries; `make campaign` tries all."""


@pytest.fixture(scope="module")
def ruin():
    ruin = shuffle_faults.Ruin()
    yield ruin
    ruin.close()


def run(ruin, name, mode, most):
    scenario, rng = SCENARIOS[name], random.Random(f"{name} {mode}")
    cases = ruin.cases(scenario, mode)
    assert cases
    complaints = []
    for at in rng.sample(cases, min(most, len(cases))):
        complaints += ruin.trial(scenario, at, mode, resume=rng.random() < 0.7).complaints
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_some_calls(ruin, name, mode):
    run(ruin, name, mode, SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_call(ruin, name, mode):
    run(ruin, name, mode, 1 << 20)


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_again_and_again(ruin, name):
    """Each process is killed somewhere, and the next goes on: in the end it is the same."""
    scenario, rng = SCENARIOS[name], random.Random(name)
    calls = len(ruin.clean(scenario)[0])
    for _ in range(3):
        again = [
            (rng.randrange(1, calls), rng.choice(["kill-before", "kill-amid", "kill-after"]))
            for _ in range(4)
        ]
        trial = ruin.trial(scenario, rng.randrange(1, calls), "kill-after", resume=True, again=again)
        assert not trial.complaints, "\n".join(trial.complaints)


def test_the_shim_sees_what_it_should(ruin):
    """If a shuffle called something else than we count, the above would pass and prove nothing."""
    trace, _ = ruin.clean(SCENARIOS["spill"])
    for call in (
        "open /in/0.tfrecord",
        "write /tmp/",
        "read /tmp/",
        "write /out/",
        "fsync /out/",
        "rename /out/",
    ):
        assert any(line.startswith(call) for line in trace), call


def test_every_strategy_is_tried():
    assert {scenario.strategy for scenario in SCENARIOS.values()} == set(planning.STRATEGIES)


# --- signals --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """30 MB: with the least memory, two runs."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = random.Random(8)
    pool = rng.randbytes(1 << 20)
    for number in range(4):
        payloads = [
            pool[at : at + rng.randrange(4000)] for at in (rng.randrange(1 << 19) for _ in range(4000))
        ]
        (folder / f"{number}.tfrecord").write_bytes(framed(payloads))
    return folder


def shuffle(inputs, folder, *arguments):
    command = [sys.executable, "-m", "croupier", "shuffle", str(inputs), str(folder / "out" / "t")]
    command += [
        "--memory",
        "110MB",
        "--workers",
        "2",
        "--shards",
        "3",
        "--compression",
        "gzip",
        "--level",
        "3",  # at 1, isal gives other bytes once in 20,000 fragments: see `codec.deflate`
    ]
    command += ["--strategy", "spill", "--tmp-dir", str(folder / "tmp"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(inputs, folder, *arguments):
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    with shuffle(inputs, folder, *arguments) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert not list((folder / "tmp").iterdir())
    return {path.name: path.read_bytes() for path in (folder / "out").glob("t-*")}, out


def interrupted_at(inputs, folder, number, moment, expected):
    """What is wrong when a signal comes at that moment."""
    (folder / "tmp").mkdir(parents=True)
    with shuffle(inputs, folder) as process:
        time.sleep(moment)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (0, -number, 128 + number), (process.returncode, err)
    assert "Traceback" not in err, err
    there = {path.name: path.read_bytes() for path in (folder / "out").glob("t-*")}
    journal = (folder / "out/.croupier/t.publishing.json").exists()
    assert all(content == expected[name] for name, content in there.items()), "torn"
    assert len(there) in (0, SHARDS) or journal, "half a set is visible"
    files, _ = finished(inputs, folder, "--resume")
    assert files == expected
    assert not [path for path in (folder / "out").rglob("*") if ".tmp" in path.name or ".work" in path.name]
    shutil.rmtree(folder)
    return process.returncode


@pytest.mark.parametrize(
    "moments", [6, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3000)])]
)
def test_signals_at_any_moment(tmp_path, inputs, moments):
    began = time.monotonic()
    expected, _ = finished(inputs, tmp_path / "clean")
    whole = time.monotonic() - began
    rng, codes = random.Random(9), []
    for turn in range(moments):
        number = (signal.SIGINT, signal.SIGTERM)[turn % 2]
        moment = rng.uniform(0.3, 1.05) * whole
        codes.append(interrupted_at(inputs, tmp_path / str(turn), number, moment, expected))
    assert any(codes), "no signal came in time"


# --- the temporary folder -------------------------------------------------------------------------------


@pytest.fixture
def small_runs(monkeypatch):
    monkeypatch.setattr(planning, "run_bytes", lambda runtime: shuffle_faults.RUN)


@pytest.mark.parametrize("phase", ["read", "write"])
def test_temporary_folder_is_removed_meanwhile(tmp_path, small_runs, phase):
    shuffle_faults.lay_out(tmp_path)
    options = {"shards": 3, "seed": 5, "strategy": "spill", "workers": 2, "tmp_dir": tmp_path / "tmp"}
    croupier.shuffle(tmp_path / "in", tmp_path / "clean" / "t", **options)
    seen = []

    def remove(progress):
        if progress.phase == phase and not seen:
            seen.append(progress)
            shutil.rmtree(tmp_path / "tmp")

    try:
        croupier.shuffle(tmp_path / "in", tmp_path / "out" / "t", progress=remove, **options)
    except StorageError as error:
        assert str(tmp_path / "tmp") in str(error)  # noqa: PT017 - with the files unlinked it may succeed
        assert not list((tmp_path / "out").glob("t-*"))
        (tmp_path / "tmp").mkdir(exist_ok=True)
        croupier.shuffle(tmp_path / "in", tmp_path / "out" / "t", **options)
    assert seen
    for path in (tmp_path / "clean").glob("t-*"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_temporary_folder_is_full(tmp_path, inputs):
    """A file system of 10 MB, which somebody else fills while we write to it."""
    (tmp_path / "tmp").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", tmp_path / "tmp"], check=True)
    try:
        (tmp_path / "tmp" / "other").write_bytes(bytes(1 << 20))
        with shuffle(inputs, tmp_path) as process:
            while process.poll() is None and not list((tmp_path / "tmp").rglob("*.spill")):
                time.sleep(0.005)
            with open(tmp_path / "tmp" / "other", "ab") as other:
                try:
                    for _ in range(60):
                        other.write(bytes(1 << 20))
                        other.flush()
                except OSError:
                    pass
            _, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        assert "No space left on device" in err
        assert str(tmp_path / "tmp") in err
        assert "Traceback" not in err
        assert not list((tmp_path / "out").glob("t-*"))
        (tmp_path / "tmp" / "other").unlink()
        clean, _ = finished(inputs, tmp_path / "clean")
        with shuffle(inputs, tmp_path, "--resume", "--json") as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert json.loads(out)["out"]["records"] == 16_000
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("t-*")} == clean
    finally:
        subprocess.run(["umount", tmp_path / "tmp"], check=True)
