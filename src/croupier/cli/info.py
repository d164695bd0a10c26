"""croupier info"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.inspect.info import Info

SHARDS = 12  # that are listed unasked
BAR = 40


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--shards", is_flag=True, help=f"List all files, not only the first {SHARDS}.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(paths: tuple[str, ...], shards: bool, as_json: bool) -> None:
    """Say how many records a dataset has, how large they are, and what its files are.

    Needs the offset tables, and makes and keeps those that are missing; no record is read.

    \b
    Examples:
      croupier info data/
      croupier info 'train-*.tfrecord.gz' --shards
      croupier info train@64 --json | jq '.records, .quantiles'
    """
    from croupier.dataset import open as open_dataset
    from croupier.inspect.info import info as of

    with text.progress("index") as progress:
        data = open_dataset(paths, progress=progress)
        found = of(data)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    kind = found.compression if found.compression == "none" else f"{found.compression}, {found.ratio:.1f}x"
    click.echo(
        f"{text.count(found.records, 'record')} in {text.count(len(found.shards), 'file')}: "
        f"{text.size(found.payload_bytes)} of payload, {text.size(found.file_bytes)} on disk "
        f"({'plain' if kind == 'none' else kind})"
    )
    if found.records:
        _print_sizes(found)
    _print_shards(found, shards)


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
    shown = found.shards if everything else found.shards[:SHARDS]
    click.echo(f"\n{'records':>12} {'payload':>10} {'on disk':>10}  {'kind':15} file")
    for shard in shown:
        kind = "plain" if shard.compression == "none" else shard.compression
        kind += " (seekable)" if shard.seekable and kind == "gzip" else ""
        sizes = f"{text.size(shard.payload_bytes):>10} {text.size(shard.file_bytes):>10}"
        click.echo(f"{shard.records:>12,} {sizes}  {kind:15} {shard.path}")
    if len(shown) < len(found.shards):
        click.echo(f"{'':12} and {len(found.shards) - len(shown):,} more (--shards lists them)")
