"""The command: one thin module a verb, which parses, calls and prints.

Exit codes: 0 all is well; 1 the data is damaged; 2 the call or the machine is at fault; 128 + n on signal n.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

import click

from croupier import __version__
from croupier.cli.convert import convert
from croupier.cli.deepvariant import deepvariant
from croupier.cli.export import export
from croupier.cli.index import index
from croupier.cli.info import info
from croupier.cli.mixing import mixing
from croupier.cli.show import show
from croupier.cli.shuffle import shuffle
from croupier.cli.verify import verify
from croupier.errors import CancelledError, CroupierError, DataError, IntegrityError


class _ClosedPipe(Exception):  # noqa: N818
    """A BrokenPipeError on its way past click, which would make "exit 1" of it: for us, damaged data."""


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise _ClosedPipe from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="croupier")
def croupier() -> None:
    """Shuffles TFRecord datasets and deals them to training jobs.

    \b
    Examples:
      croupier verify data/                     is every record whole?
      croupier info data/                       how many records, how large, in which files?
      croupier show train-00000.tfrecord.gz     what is in the first ones?
      croupier mixing data/                     is that a random order?
      croupier shuffle data/ shuffled/train     all records in a new order, in new shards
      cat part* | croupier show -               the same, through a pipe
    """


croupier.add_command(convert)
croupier.add_command(deepvariant)
croupier.add_command(export)
croupier.add_command(index)
croupier.add_command(info)
croupier.add_command(mixing)
croupier.add_command(show)
croupier.add_command(shuffle)
croupier.add_command(verify)


def main() -> NoReturn:
    """Run the command: no traceback reaches a user, and exit codes mean something."""
    # numpy's linear algebra, which no verb uses, would start a thread a core, each busy for 50 ms at first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        result = croupier.main(prog_name="croupier", standalone_mode=False)
        sys.stdout.flush()
        code = result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort, CancelledError) as error:
        click.echo("croupier: interrupted", err=True)
        _say_notes(error)
        code = 128 + signal.SIGINT
    except SystemExit as error:  # SIGTERM, SIGHUP
        _say_notes(error)
        raise
    except (BrokenPipeError, _ClosedPipe):  # `| head` has seen enough
        _close_stdout()
        code = 128 + signal.SIGPIPE
    except CroupierError as error:
        click.echo(f"croupier: {error}", err=True)
        _say_notes(error)
        code = 1 if isinstance(error, DataError | IntegrityError) else 2
    except OSError as error:  # all other files are reported by path
        click.echo(f"croupier: cannot write to standard output: {error.strerror}", err=True)
        _close_stdout()
        code = 2
    sys.exit(code)


def _say_notes(error: BaseException) -> None:
    """What is kept, and how to go on."""
    for cause in (error, error.__cause__, error.__context__):
        for note in getattr(cause, "__notes__", ()):
            click.echo(note, err=True)


def _close_stdout() -> None:
    """Or Python would try once more, and complain, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(number: int, _frame: object) -> NoReturn:
    """End by way of the `finally` blocks, so that nothing half-written stays."""
    sys.exit(128 + number)
