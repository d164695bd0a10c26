"""croupier convert"""

from __future__ import annotations

import json

import click

from croupier.cli import text
from croupier.cli.export import FORMATS


@click.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.argument("prefix", metavar="PREFIX")
@click.option("--shards", type=click.IntRange(1), help="How many files.")
@click.option(
    "--shard-size", callback=text.bytes_of, metavar="SIZE", help="That each file aims at.  [default: 150MB]"
)
@click.option(
    "--compression", type=click.Choice(("none", "gzip", "zlib")), help="By default the name decides."
)
@click.option("--level", type=click.IntRange(1, 9), help="1 is fast, 9 is small.  [default: 5]")
@click.option(
    "--from", "kind", type=click.Choice(FORMATS), help="What the tables are.  [default: what they show]"
)
@click.option("--columns", callback=text.names, metavar="A,B,...", help="Only these columns.")
@click.option(
    "--types", callback=text.names, metavar="A=T,...", help="What columns become: int64, float32 or string."
)
@click.option("--strict", is_flag=True, help="Refuse fractions that float32 would round.")
@click.option("--delimiter", metavar="C", help="Between a CSV file's values.  [default: , or of .tsv a tab]")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--workers", type=click.IntRange(1), help="Threads; by default one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def convert(
    tables: tuple[str, ...],
    prefix: str,
    shards: int | None,
    shard_size: int | None,
    compression: str | None,
    level: int | None,
    kind: str | None,
    columns: list[str] | None,
    types: list[str] | None,
    strict: bool,
    delimiter: str | None,
    overwrite: bool,
    workers: int | None,
    as_json: bool,
) -> None:
    """Make records (tf.train.Example) of the rows of tables: Parquet, Arrow, CSV, JSON lines.

    Integers become int64, floating point float32, text and binary bytes; lists of these several values; null
    is a missing feature. No whole number changes unasked: where float32 would change one, the row is named.

    \b
    Examples:
      croupier convert 'clicks-*.parquet' out/clicks --compression gzip
      croupier convert people.csv out/people --types zip=string,age=int64
      croupier convert rows.jsonl.gz rows.tfrecord --columns id,text
    """
    from croupier.tables.convert import convert_table

    if shards and shard_size:
        raise click.UsageError("--shards and --shard-size exclude each other")
    with text.progress("convert") as progress:
        done = convert_table(
            tables,
            prefix,
            shards=shards,
            shard_size=shard_size,
            compression=compression,
            level=level,
            format=kind,
            columns=columns,
            types=_pairs(types or []),
            strict=strict,
            delimiter=delimiter,
            overwrite=overwrite,
            workers=workers,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps({"records": done.records, "features": done.kinds, "files": done.paths}))
        return
    files = done.receipt["shards"]
    size = text.size(sum(shard["file_bytes"] for shard in files))
    click.echo(
        f"{text.count(done.records, 'record')} in {text.count(len(files), 'file')}: {size}, {done.paths[0]}"
    )
    width = max(map(len, done.kinds), default=0)
    for name, label in done.kinds.items():
        click.echo(f"  {name:{width}}  {label}")


def _pairs(types: list[str]) -> dict[str, str]:
    """name=type; names may have an = in them."""
    for pair in types:
        if "=" not in pair:
            raise click.UsageError(f"--types wants name=type, not {pair!r}")
    return {name: kind for name, _, kind in (pair.rpartition("=") for pair in types)}
