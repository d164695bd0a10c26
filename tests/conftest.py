"""What all tests share: where the real data is, running the command, and the rule that CI skips nothing."""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from croupier import cli

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
NO_DATA = "no ../shared/data here"

settings.register_profile(
    "croupier", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("croupier")


def _may_skip(reason):
    """On a developer's machine anything may be skipped; in CI only what needs data that is not there."""
    if os.environ.get("CI", "").lower() not in ("true", "1"):
        return True
    return reason.removeprefix("Skipped: ") == NO_DATA and not SHARED_DATA.is_dir()


def _fail_if_skipped(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not _may_skip(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI, where nothing may be skipped: {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    return _fail_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    return _fail_if_skipped((yield))


@pytest.fixture(scope="session")
def shared_data():
    """The folder with real records of other projects; never part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(NO_DATA)
    return SHARED_DATA


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """Nobody's own cache: where tables go when they cannot stand beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str
    raw: bytes


@pytest.fixture
def command(monkeypatch):
    """Run `croupier ARGUMENTS...` in this process, through the same door as the installed command."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["croupier", *map(str, arguments)])
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            with pytest.raises(SystemExit) as ended:
                cli.main()
            out.flush()
            err.flush()
        raw = out.buffer.getvalue()
        return Ran(ended.value.code, raw.decode(errors="replace"), err.buffer.getvalue().decode(), raw)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
