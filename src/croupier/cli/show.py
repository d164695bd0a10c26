"""croupier show"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.frames import Damage, OnCorrupt
    from croupier.inspect.show import Shown

WIDTH = 160  # of a line that does not go to a terminal
COLUMNS = 34  # of it, before what is in a record
LEAST = 40
PATH = 4096  # characters of one, as Linux allows
POLICIES = ("fail", "tolerate-tail", "skip", "salvage")


@click.command()
@click.argument("path", metavar="PATH|-")
@click.option("--head", type=click.IntRange(0), help="Show the first N records.  [default: 10]", metavar="N")
@click.option("--record", type=click.IntRange(0), help="Show record N alone (the first is 0).", metavar="N")
@click.option("--sample", type=click.IntRange(0), help="Show K records at random.", metavar="K")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one, another sample.")
@click.option("--raw", is_flag=True, help="Write the payloads to standard output as they are.")
@click.option("--features", is_flag=True, help="All features of each record, with --json too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each record.")
@click.option(
    "--on-corrupt",
    type=click.Choice(POLICIES),
    default="fail",
    show_default=True,
    help="Deal with damage.",
)
def show(
    path: str,
    head: int | None,
    record: int | None,
    sample: int | None,
    seed: int,
    raw: bool,
    features: bool,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> None:
    """Print records of a file, glob or folder ("-": standard input): number, byte, size, what is in them.

    One line each; with --record, --sample and --features a line for each feature. Of what are neither
    tf.train.Examples nor SequenceExamples, the first bytes. Plain, gzip and zlib are told apart by content.
    With --raw, the first 10 records, the first --head N, the one --record N or the --sample K go to standard
    output as they are, one behind the other.

    \b
    Examples:
      croupier show train-00000-of-00064.tfrecord.gz
      croupier show train.tfrecord --record 41
      croupier show train.tfrecord --record 41 --raw | protoc --decode_raw
      croupier show data/ --sample 5
      croupier show train.tfrecord --head 1000 --json --features | jq .features.label[0]
      gsutil cat gs://bucket/x.tfrecord | croupier show - --head 3
    """
    from croupier.inspect.show import show as records

    if sum(option is not None for option in (head, record, sample)) > 1:
        raise click.UsageError("--head, --record and --sample exclude each other")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    if raw and features:
        raise click.UsageError("--raw and --features exclude each other")
    limit = 10 if head is None else head
    shown = records(
        path, head=limit, record=record, sample=sample, seed=seed, on_corrupt=on_corrupt, on_damage=_say
    )
    if raw:
        for item in shown:
            sys.stdout.buffer.write(item.payload)
    elif as_json:
        for item in shown:
            click.echo(json.dumps(_fields(item, features)))
    elif features or (head is None and (record is not None or sample is not None)):
        for item in shown:
            _print_features(item)
    else:
        _print_lines(shown, path)


def _fields(item: Shown, features: bool) -> dict[str, Any]:
    """For JSON: what there is of a record that is no Example is null."""
    from croupier.inspect.describe import as_dict, parse

    fields: dict[str, Any] = {
        "path": item.path,
        "record": item.record,
        "offset": item.offset,
        "bytes": len(item.payload),
        "first": item.payload[:32].hex(),
    }
    if features:
        found = parse(item.payload)
        fields |= {"features": None} if found is None else as_dict(found)
    return fields


def _print_lines(shown: Iterable[Shown], path: str) -> None:
    """A line for each record."""
    from croupier.example.content import printable
    from croupier.inspect.describe import line, parse

    room = max(shutil.get_terminal_size((WIDTH, 0)).columns - COLUMNS, LEAST)
    file = None
    for item in shown:
        if file is None:
            click.echo(f"{'record':>8} {'byte':>12} {'size':>10}  what is in it")
        if item.path not in (file, path):
            click.echo(printable(item.path, most=PATH))
        file = item.path
        found = parse(item.payload)
        what = text.preview(item.payload) if found is None else line(found, room)
        click.echo(f"{item.record:>8,} {item.offset:>12,} {len(item.payload):>10,}  {what}")


def _print_features(item: Shown) -> None:
    """A line for each feature."""
    from croupier.example.content import printable
    from croupier.inspect.describe import parse, rows

    path = printable(item.path, most=PATH)
    click.echo(f"record {item.record:,}: {path}, byte {item.offset:,}, {len(item.payload):,} bytes")
    found = parse(item.payload)
    if found is None:
        click.echo(f"  no Example: {text.preview(item.payload)}")
        return
    listed = list(rows(found))
    width = max((2 * row.depth + len(row.name) for row in listed), default=0)
    for row in listed:
        click.echo(f"  {'  ' * row.depth + row.name:{width}}  {row.kind:7}  {row.shown}".rstrip())


def _say(damage: Damage) -> None:
    click.echo(f"croupier: {damage}", err=True)
