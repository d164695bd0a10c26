"""croupier shuffle"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.shuffling.planning import Plan


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.argument("prefix", metavar="OUTPUT_PREFIX")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another order.")
@click.option("--shards", type=int, help="How many files.  [default: by --shard-size]")
@click.option(
    "--shard-size", callback=text.bytes_of, metavar="SIZE", help="About how large each is.  [default: 150MB]"
)
@click.option(
    "--memory",
    callback=text.bytes_of,
    metavar="SIZE",
    help="What the process may take.  [default: 80% of what is free]",
)
@click.option("--tmp-dir", metavar="DIR", help="Where to spill to.  [default: the output's folder]")
@click.option(
    "--compression",
    type=click.Choice(["same", "gzip", "zlib", "none"]),
    default="same",
    show_default=True,
    help="Of the output.",
)
@click.option("--level", type=int, help="1 (fast) to 9 (small).  [default: 5]")
@click.option("--workers", type=int, help="Threads.  [default: one for each core]")
@click.option(
    "--strategy",
    type=click.Choice(["auto", "memory", "gather", "spill", "fragments"]),
    default="auto",
    show_default=True,
    help="How: --dry-run says what each means here.",
)
@click.option(
    "--on-corrupt",
    type=click.Choice(["fail", "tolerate-tail", "skip", "salvage"]),
    default="fail",
    show_default=True,
    help="What to do about damage.",
)
@click.option("--dedup", is_flag=True, help="Of records with equal payloads, keep one.")
@click.option("--overwrite", is_flag=True, help="Replace files of the same names.")
@click.option("--resume", is_flag=True, help="Go on where the same call was interrupted.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and what it takes; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the receipt (or the plan) as one JSON object.")
def shuffle(inputs: tuple[str, ...], prefix: str, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Write all records to new shards in a random order, within a memory budget.

    The order depends on the inputs and the seed alone. Nothing is visible before all shards are complete and
    proven to hold exactly the records that came in.

    \b
    Examples:
      croupier shuffle 'examples-*.tfrecord.gz' shuffled/train --seed 7
      croupier shuffle data/ shuffled/train --shards 64 --memory 8GB --tmp-dir /scratch
      croupier shuffle data/ shuffled/train --dry-run
      croupier shuffle data/ shuffled/train --resume             after Ctrl-C, or a night without power
    """
    from croupier import shuffling, streams

    if dry_run:
        made = shuffling.plan(inputs, prefix, **options)
        click.echo(json.dumps(made.as_dict())) if as_json else print_plan(made)
        return
    with text.progress("shuffle") as progress:
        receipt = shuffling.shuffle(inputs, prefix, progress=progress, on_damage=streams.warn, **options)
    if as_json:
        click.echo(json.dumps(receipt))
        return
    out, seconds = receipt["out"], max(receipt["seconds"], 0.001)
    spilled = receipt["spilled_bytes"]
    click.echo(
        f"{text.count(out['records'], 'record')}, {text.size(out['payload_bytes'])} of payload, in "
        f"{text.count(len(receipt['shards']), 'shard')}: {seconds:.1f} s, "
        f"{text.size(out['payload_bytes'] / seconds)}/s"
        + (f", {text.size(spilled)} spilled" if spilled else "")
        + f"\nWhat went out is what came in: fingerprint {out['fingerprint']}"
    )


def print_plan(made: Plan) -> None:
    """For people."""
    kinds = sorted({one.compression.value for one in made.inputs})
    click.echo(
        f"read      {text.count(len(made.inputs), 'file')}, {text.size(made.input_bytes)} "
        f"({', '.join(kinds)})"
    )
    exact = kinds == ["none"]
    click.echo(f"          {'' if exact else 'about '}{text.size(made.stream_bytes)} of records")
    if made.strategy == "memory":
        click.echo(f"shuffle   in memory: {text.size(made.memory)} may be used")
    else:
        click.echo(
            f"shuffle   by way of {made.tmp_dir}: up to {text.size(made.temporary_bytes)} there, as "
            f"{text.size(made.memory)} of memory are too few for all"
        )
    from croupier.output import file_names

    kind = made.compression.value
    level = "" if kind == "none" else f", level {made.level}"
    click.echo(
        f"write     {text.count(made.shards, 'shard')} of about {text.size(made.output_bytes / made.shards)} "
        f"({kind}{level}): {file_names(made.prefix, made.shards, made.compression)[1][0]}..."
    )
