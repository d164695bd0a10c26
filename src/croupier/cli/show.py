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
@click.argument("path", metavar="PATH|-")
@click.option("--head", type=click.IntRange(0), help="Show the first N records.  [default: 10]", metavar="N")
@click.option("--record", type=click.IntRange(0), help="Show record N alone (the first is 0).", metavar="N")
@click.option("--sample", type=click.IntRange(0), help="Show K records at random.", metavar="K")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one, another sample.")
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
    path: str,
    head: int | None,
    record: int | None,
    sample: int | None,
    seed: int,
    raw: bool,
    as_json: bool,
    on_corrupt: OnCorrupt,
) -> None:
    """Print records of a file, glob or folder ("-": standard input): number, byte, size, first bytes.

    Plain, gzip and zlib are told apart by content. With --raw, the first 10 records, the first --head N, the
    one --record N or the --sample K go to standard output as they are, one behind the other.

    \b
    Examples:
      croupier show train-00000-of-00064.tfrecord.gz
      croupier show train.tfrecord --record 41 --raw | protoc --decode_raw
      croupier show data/ --sample 5
      croupier show train.tfrecord --head 1000 --json | jq .bytes
      gsutil cat gs://bucket/x.tfrecord | croupier show - --head 3
    """
    from croupier.inspect.show import show as records

    if sum(option is not None for option in (head, record, sample)) > 1:
        raise click.UsageError("--head, --record and --sample exclude each other")
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    limit = 10 if head is None else head
    shown = records(
        path, head=limit, record=record, sample=sample, seed=seed, on_corrupt=on_corrupt, on_damage=_say
    )
    file = None
    for item in shown:
        if raw:
            sys.stdout.buffer.write(item.payload)
        elif as_json:
            fields = {
                "path": item.path,
                "record": item.record,
                "offset": item.offset,
                "bytes": len(item.payload),
                "first": item.payload[:32].hex(),
            }
            click.echo(json.dumps(fields))
        else:
            if file is None:
                click.echo(f"{'record':>8} {'byte':>12} {'size':>10}  first bytes")
            if item.path not in (file, path):
                click.echo(item.path)
            file = item.path
            click.echo(
                f"{item.record:>8,} {item.offset:>12,} {len(item.payload):>10,}  {text.preview(item.payload)}"
            )


def _say(damage: Damage) -> None:
    click.echo(f"croupier: {damage}", err=True)
