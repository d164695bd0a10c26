"""croupier show"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.frames import Damage, OnCorrupt

POLICIES = ("fail", "tolerate-tail", "skip", "salvage")


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--head", type=click.IntRange(0), help="Show the first N records.  [default: 10]", metavar="N")
@click.option("--record", type=click.IntRange(0), help="Show record N alone (the first is 0).", metavar="N")
@click.option("--raw", is_flag=True, help="Write the payloads to standard output as they are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each record.")
@click.option(
    "--on-corrupt",
    type=click.Choice(POLICIES),
    default="fail",
    show_default=True,
    help="Deal with damage.",
)
def show(
    file: str, head: int | None, record: int | None, raw: bool, as_json: bool, on_corrupt: OnCorrupt
) -> None:
    """Print the records of a TFRecord file ("-": standard input): number, byte, size, first bytes.

    Plain, gzip and zlib are told apart by content. With --raw, the first 10 records, the first --head N or
    the one --record N go to standard output as they are, one behind the other.

    \b
    Examples:
      croupier show train-00000-of-00064.tfrecord.gz
      croupier show train.tfrecord --record 41 --raw | protoc --decode_raw
      croupier show train.tfrecord --head 1000 --json | jq .bytes
      gsutil cat gs://bucket/x.tfrecord | croupier show - --head 3
    """
    from croupier.inspect.show import show as records

    if head is not None and record is not None:
        raise click.UsageError("--head and --record exclude each other")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    limit = 10 if head is None else head
    heading = not raw and not as_json
    for item in records(file, head=limit, record=record, on_corrupt=on_corrupt, on_damage=_say):
        if heading:
            click.echo(f"{'record':>8} {'byte':>12} {'size':>10}  first bytes")
            heading = False
        if raw:
            sys.stdout.buffer.write(item.payload)
        elif as_json:
            fields = {
                "record": item.record,
                "offset": item.offset,
                "bytes": len(item.payload),
                "first": item.payload[:32].hex(),
            }
            click.echo(json.dumps(fields))
        else:
            click.echo(
                f"{item.record:>8,} {item.offset:>12,} {len(item.payload):>10,}  {text.preview(item.payload)}"
            )


def _say(damage: Damage) -> None:
    click.echo(f"croupier: {damage}", err=True)
