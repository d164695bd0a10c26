"""croupier index"""

from __future__ import annotations

import json

import click

from croupier.cli import text


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--force", is_flag=True, help="Make tables even where fresh ones are kept.")
@click.option("--workers", type=click.IntRange(1), help="Threads; by default one for each core.")
@click.option("--max-record-bytes", type=click.IntRange(1), help="Refuse longer records.  [default: 2 GiB]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def index(
    paths: tuple[str, ...], force: bool, workers: int | None, max_record_bytes: int | None, as_json: bool
) -> None:
    """Make the offset tables that give records numbers, and keep them in .croupier/ beside the data.

    `croupier info`, `croupier show --sample` and croupier.open make them as well, at the first need. A table
    is a hint: it is checked whenever it is used, and can be deleted at any time.

    \b
    Examples:
      croupier index data/
      croupier index 'train-?????-of-00064.tfrecord.gz' --force
      croupier index train@64 --json | jq .records
    """
    from croupier.dataset import index as make
    from croupier.dataset import open as open_dataset
    from croupier.frames import MAX_RECORD
    from croupier.naming import expand

    limit = max_record_bytes or MAX_RECORD
    with text.progress("index") as progress:
        made, tables = make(paths, force=force, workers=workers, max_record_bytes=limit, progress=progress)
    if made and not tables:
        raise click.ClickException("the table can be kept neither beside the data nor in the cache folder")
    data = open_dataset(dict.fromkeys(expand(paths)), max_record_bytes=limit)
    if as_json:
        report = {"files": len(data.paths), "indexed": len(made), "records": len(data), "tables": tables}
        click.echo(json.dumps(report))
        return
    fresh = len(data.paths) - len(made)
    click.echo(
        f"{text.count(len(data), 'record')} in {text.count(len(data.paths), 'file')}: "
        f"{len(made):,} indexed, {fresh:,} known already"
    )
    for table in tables:
        click.echo(table)
