"""croupier info"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from croupier.cli import text
from croupier.cli.statistics import print_statistics

if TYPE_CHECKING:
    from croupier.inspect.glance import Glance
    from croupier.inspect.info import Info
    from croupier.inspect.stats import Statistics

SHARDS = 12  # that are listed unasked
FEATURES = 200
PATH = 4096  # characters of one, as Linux allows
BAR = 40


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--shards", is_flag=True, help=f"List all files, not only the first {SHARDS}.")
@click.option("--schema", "whole", is_flag=True, help="Read all records for the schema, and keep it.")
@click.option("--spec", is_flag=True, help="Print the schema alone, as a tf.io.parse_example spec.")
@click.option("--stats", is_flag=True, help="Read all records for statistics of each feature.")
@click.option(
    "--column", "columns", multiple=True, metavar="NAME", help="With --stats: of this feature alone."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(
    paths: tuple[str, ...],
    shards: bool,
    whole: bool,
    spec: bool,
    stats: bool,
    columns: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say how many records a dataset has, how large they are, what is in them, and what its files are.

    Needs the offset tables, and makes and keeps those that are missing. Of the records only a few are read,
    unless --schema, --spec or --stats ask for all; a schema of all is kept in .croupier/, and shown from then
    on until the files change.

    \b
    Examples:
      croupier info data/
      croupier info 'train-*.tfrecord.gz' --shards
      croupier info data/ --schema
      croupier info data/ --spec > spec.py
      croupier info data/ --stats --column label --column age
      croupier info train@64 --json | jq '.records, .quantiles, .schema.features[].name'
    """
    from croupier.dataset import open as open_dataset
    from croupier.inspect.glance import glance
    from croupier.inspect.info import info as of
    from croupier.inspect.schema import infer_schema
    from croupier.inspect.stats import statistics

    if columns and not stats:
        raise click.UsageError("--column goes with --stats")
    if spec and (as_json or stats):
        raise click.UsageError("--spec prints nothing else: leave --json and --stats away")
    with text.progress("index") as progress:
        data = open_dataset(paths, progress=progress)
        found = of(data)
    if whole or spec:
        with text.progress("schema") as progress:
            schema = infer_schema(data, progress=progress)
        seen = replace(glance(data), schema=schema, problem="", everything=True)
    else:
        seen = glance(data)
    if spec:
        click.echo("" if seen.schema is None else seen.schema.parse_spec())
        return
    counted = None
    if stats:
        with text.progress("statistics") as progress:
            counted = statistics(data, columns or None, progress=progress)
    if as_json:
        click.echo(json.dumps(_report(found, seen, counted)))
        return
    _print_head(found)
    if found.records:
        _print_sizes(found)
        _print_schema(seen)
    if counted is not None:
        print_statistics(counted)
    _print_shards(found, shards)


def _report(found: Info, seen: Glance, counted: Statistics | None) -> dict[str, Any]:
    """For JSON."""
    from croupier.inspect.schema import as_dict

    schema = None if seen.schema is None else as_dict(seen.schema)
    report = found.as_dict() | {"schema": schema, "schema_of": seen.of(found.records)}
    return report if counted is None else report | {"statistics": counted.as_dict()}


def _print_head(found: Info) -> None:
    kind = found.compression if found.compression == "none" else f"{found.compression}, {found.ratio:.1f}x"
    click.echo(
        f"{text.count(found.records, 'record')} in {text.count(len(found.shards), 'file')}: "
        f"{text.size(found.payload_bytes)} of payload, {text.size(found.file_bytes)} on disk "
        f"({'plain' if kind == 'none' else kind})"
    )


def _print_schema(seen: Glance) -> None:
    if seen.schema is None:
        click.echo(f"\nSchema: {seen.problem}" if seen.problem else "\nSchema: no record was looked at")
        return
    if seen.everything:
        click.echo("\nSchema of all records:")
    else:
        where = f"at the beginning of {text.count(seen.files, 'file')}"
        click.echo(f"\nSchema of {text.count(seen.records, 'record')} {where} (--schema reads all):")
    if seen.lists:
        click.echo("  SequenceExamples: this is their context, and not their lists")
    for line in str(seen.schema).splitlines()[: FEATURES + 1] if len(seen.schema) else ["no features"]:
        click.echo(f"  {line}")
    if len(seen.schema) > FEATURES:
        click.echo(f"  and {len(seen.schema) - FEATURES:,} more (--json has all)")


def _print_sizes(found: Info) -> None:
    middle = found.quantiles["0.5"]
    click.echo(
        f"\nPayload bytes: smallest {found.smallest:,}, median {middle:,}, mean {found.mean:,.1f}, "
        f"largest {found.largest:,}"
    )
    most = max(one.records for one in found.bins)
    labels = [
        f"{one.least:,} to {one.below - 1:,}" if one.below - one.least > 1 else f"{one.least:,}"
        for one in found.bins
    ]
    width = max(map(len, labels))
    for label, one in zip(labels, found.bins, strict=True):
        click.echo(f"  {label:>{width}}  {text.bar(one.records / most, BAR):{BAR}}  {one.records:,}")


def _print_shards(found: Info, everything: bool) -> None:
    from croupier.example.content import printable

    shown = found.shards if everything else found.shards[:SHARDS]
    click.echo(f"\n{'records':>12} {'payload':>10} {'on disk':>10}  {'kind':15} file")
    for shard in shown:
        kind = "plain" if shard.compression == "none" else shard.compression
        kind += " (seekable)" if shard.seekable and kind == "gzip" else ""
        sizes = f"{text.size(shard.payload_bytes):>10} {text.size(shard.file_bytes):>10}"
        click.echo(f"{shard.records:>12,} {sizes}  {kind:15} {printable(shard.path, most=PATH)}")
    if len(shown) < len(found.shards):
        click.echo(f"{'':12} and {len(found.shards) - len(shown):,} more (--shards lists them)")
