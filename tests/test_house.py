"""Promises of the house as a whole: the public surface, start-up time, calls per record, documentation."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import croupier
from croupier import cli, errors

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "croupier"
COMMAND = [sys.executable, "-m", "croupier"]


def test_surface_is_what_all_says():
    assert sorted(croupier.__all__) == dir(croupier)
    for name in croupier.__all__:
        assert getattr(croupier, name) is not None
    public = {name for name in vars(errors) if isinstance(getattr(errors, name), type)}
    raised = {name for name in public if issubclass(getattr(errors, name), (errors.CroupierError, Warning))}
    assert raised <= set(croupier.__all__)


def test_tests_use_the_kernel_that_was_asked_for():
    """`make sanitize` must not test the ordinary build by accident."""
    expected = os.environ.get("CROUPIER_EXPECT")
    from croupier import _kernel

    if expected:
        assert str(Path(expected).resolve()) in str(Path(_kernel.__file__).resolve())


def test_help_is_quick_and_has_examples():
    for arguments in ([], *([verb] for verb in cli.croupier.commands)):
        times = []
        while len(times) < 7 and not any(seconds < 0.150 for seconds in times):
            began = os.times()
            done = subprocess.run(
                [*COMMAND, *arguments, "--help"], capture_output=True, text=True, check=True
            )
            ended = os.times()  # processor time: other tests run at the same time
            times.append(ended[2] + ended[3] - began[2] - began[3])
        assert "Examples:" in done.stdout
        if not os.environ.get("CROUPIER_EXPECT"):  # sanitizers are slow to start
            assert min(times) < 0.150, times


def test_import_brings_no_heavy_package():
    code = (
        "import croupier, sys; croupier.read; croupier.writer; croupier.verify;"
        "heavy = {'tensorflow', 'apache_beam', 'torch', 'jax', 'pyarrow', 'google.protobuf'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_few_calls_to_the_first_record_and_none_after(tmp_path):
    path = str(tmp_path / "x.tfrecord")
    with croupier.writer(path) as out:
        out.write_many([b"%d" % number for number in range(1000)])
    next(croupier.read(path))  # imports are not counted
    calls, depth, deepest = 0, 0, 0

    def profile(frame, event, argument):
        nonlocal calls, depth, deepest
        if event == "call":
            calls += 1
            depth += 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(profile)
    stream = croupier.read(path)
    next(stream)
    first = calls
    rest = list(stream)
    sys.setprofile(None)
    assert len(rest) == 999
    assert first <= 35, first
    assert deepest <= 6, deepest
    assert calls - first <= len(rest) + 40, "one resume of the generator a record, and no more"


def test_rooms_import_downwards_only():
    """Each room may use those on lower floors (ARCHITECTURE.md)."""
    floors = [
        {"errors", "_kernel", "rooms"},
        {"direct"},
        {"storage", "runtime", "batch"},
        {"frames", "naming"},
        {"codec", "example", "work", "framing", "proof"},
        {"publish", "streams", "output_names"},
        {"table"},
        {"output"},
        {"writing"},
        {"dataset"},
        {"inspect", "shuffling"},
        {"tables", "deepvariant"},
        {"cli"},
    ]
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room.startswith("__") or path.name == "__main__.py":  # those are doors, not rooms
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):  # names that annotations alone need are not calls
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body.clear()
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("croupier"):
                names = [alias.name for alias in node.names]
                modules = (
                    [f"croupier.{name}" for name in names] if node.module == "croupier" else [node.module]
                )
            for module in modules:
                target = module.split(".")[1]
                if target in floor and target != room:
                    assert floor[target] < floor[room], f"{path.name} imports {module}"


SKIPS = {
    "here": "import pytest\n@pytest.mark.skip(reason='no TensorFlow')\ndef test(): pass\n",
    "inside": "import pytest\ndef test(): pytest.skip('later')\n",
    "module": "import pytest\npytest.importorskip('a_framework_that_is_missing')\n",
    "empty": "import pytest\n@pytest.mark.parametrize('file', [])\ndef test(file): pass\n",
    "data": "def test(shared_data): pass\n",
}


def test_ci_skips_nothing_but_data_that_is_not_there(tmp_path):
    """In a checkout without real records beside it, and then in one with them."""
    checkout = tmp_path / "croupier" / "tests"
    checkout.mkdir(parents=True)
    (checkout / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    for name, text in SKIPS.items():
        (checkout / f"test_{name}.py").write_text(text)

    def outcomes(**environment):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", "--continue-on-collection-errors", checkout],
            cwd=checkout,
            env={**os.environ, "CI": "", **environment},
            capture_output=True,
            text=True,
        )
        found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED).*test_(\w+)\.py", done.stdout, re.MULTILINE)
        return {name: word for word, name in found}

    assert set(outcomes().values()) == {"SKIPPED"}
    failed = {"here": "ERROR", "inside": "FAILED", "module": "ERROR", "empty": "ERROR"}
    assert outcomes(CI="true") == failed | {"data": "SKIPPED"}
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert outcomes(CI="true") == failed | {"data": "PASSED"}


def test_no_long_file_and_no_private_word():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in tracked.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".cc", ".h", ".c") and name.startswith(("src/", "kernel/")):
            assert len(path.read_text().splitlines()) <= 450, name


def test_changelog_and_docs_name_every_verb():
    verbs = re.findall(r"add_command\((\w+)\)", (SOURCE / "cli" / "__init__.py").read_text())
    assert verbs
    for verb in verbs:
        assert f"croupier {verb}" in (ROOT / "CHANGELOG.md").read_text()
        assert f"croupier {verb}" in (ROOT / "docs" / "command.md").read_text()
