"""croupier export"""

from __future__ import annotations

import json
import sys

import click

from croupier.cli import text

FORMATS = ("parquet", "arrow", "csv", "jsonl")


@click.command()
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option("-o", "--output", required=True, metavar="FILE|-", help="The table; -: standard output.")
@click.option("--to", type=click.Choice(FORMATS), help="What it shall be.  [default: what its name says]")
@click.option("--columns", callback=text.names, metavar="A,B,...", help="Only these features, in this order.")
@click.option("--schema", metavar="FILE", help="A schema that was saved, in place of the inferred one.")
@click.option("--overwrite", is_flag=True, help="Replace a file that exists.")
@click.option("--workers", type=click.IntRange(1), help="Threads; by default one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export(
    data: tuple[str, ...],
    output: str,
    to: str | None,
    columns: list[str] | None,
    schema: str | None,
    overwrite: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Write the Examples of a dataset as a table: Parquet, Arrow, CSV or JSON lines.

    Each record is a row, each feature a column; what a record lacks is null. The types come from the
    schema, which is inferred in one pass and kept beside the data.

    \b
    Examples:
      croupier export data/ -o train.parquet
      croupier export 'train-*.tfrecord.gz' -o labels.csv --columns id,label
      croupier export data/ --to jsonl -o - | jq .label
    """
    from croupier.example.schema import Schema
    from croupier.tables.export import export as write

    piped = output == "-"
    if piped and to not in ("csv", "jsonl"):
        raise click.UsageError("standard output takes --to csv or --to jsonl")
    if piped and as_json:
        raise click.UsageError("--json and -o - exclude each other")
    with text.progress("export") as progress:
        done = write(
            data,
            sys.stdout.buffer if piped else output,
            to,
            columns=columns,
            schema=None if schema is None else Schema.load(schema),
            overwrite=overwrite,
            workers=workers,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(done._asdict()))
    elif not piped:
        shown = f"{text.count(done.records, 'record')}, {text.count(len(done.columns), 'column')}"
        click.echo(f"{shown}: {text.size(done.bytes)} of {done.format} in {done.path}")
