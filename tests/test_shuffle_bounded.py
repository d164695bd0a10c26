"""A shuffle stays within its budget, or says beforehand that it cannot."""

import subprocess
import sys
import tempfile

import pytest

import croupier
import shuffle_memory
from dataset_help import framed
from shuffle_memory import FULL, HALF, MIB, QUICK

pytestmark = pytest.mark.unsanitized


def named(case):
    return f"{case.name}-{case.budget // MIB}"


@pytest.mark.parametrize("case", QUICK, ids=named)
def test_memory(tmp_path, case):
    done, complaints = shuffle_memory.trial(tmp_path / "case", case)
    assert not complaints, "\n".join(complaints)
    assert done.receipt["spilled_runs"] >= 2
    assert done.peak > 40 * MIB, "the watch saw nothing"


@pytest.mark.parametrize("case", HALF, ids=named)
def test_memory_for_records_of_half_the_budget(tmp_path, case):
    done, complaints = shuffle_memory.trial(tmp_path / "case", case)
    assert not complaints, "\n".join(complaints)
    assert done.peak > 30 * MIB, "the watch saw nothing"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", FULL, ids=named)
def test_memory_for_twenty_times_as_much(tmp_path, case):
    _, complaints = shuffle_memory.trial(tmp_path / "case", case)
    assert not complaints, "\n".join(complaints)


def test_the_watch_sees_children_and_shared_memory():
    """What it measures is what it should: 64 MiB of each in a child's child."""
    code = """
import mmap, subprocess, sys, time
if len(sys.argv) == 1:
    sys.exit(subprocess.call([sys.executable, __file__, "child"]))
kept = bytearray(64 << 20), mmap.mmap(-1, 64 << 20)
kept[1].write(bytes(64 << 20))
print("there", flush=True)
sys.stdin.readline()
"""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        with subprocess.Popen(
            [sys.executable, script.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "there\n"
            seen = sum(map(shuffle_memory.used, shuffle_memory.tree(process.pid)))
            process.communicate("\n")
    assert 128 * MIB < seen < 200 * MIB


def test_what_no_budget_holds_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(framed([b"x" * 100] * 10))
    for memory in (1, 1 * MIB, 50 * MIB):
        with pytest.raises(croupier.UsageError, match=r"memory.*give \d+ MB"):
            croupier.plan(tmp_path / "a.tfrecord", tmp_path / "out" / "t", memory=memory, workers=2)
    giant = [b"small", bytes(150 * MIB), b"small"]
    (tmp_path / "b.tfrecord").write_bytes(framed(giant))
    with pytest.raises(croupier.UsageError, match=r"b\.tfrecord.*record 1.*give at least"):
        croupier.shuffle(
            tmp_path / "?.tfrecord", tmp_path / "out" / "t", memory=112 * MIB, workers=2, on_corrupt="skip"
        )
    assert not list(tmp_path.glob("out/**/*t-0*"))
