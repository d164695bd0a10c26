"""croupier shuffle"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.codec.transcode import Level
    from croupier.shuffling.forecast import Forecast
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
@click.option(
    "--level",
    callback=text.level_of,
    metavar="1-9|same",
    help="1 (fast) to 9 (small), or with the matches that the inputs' compressor found.  [default: 5]",
)
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
    from croupier.output_names import file_names

    kinds = sorted({one.compression.value for one in made.inputs})
    say = ", ".join("plain" if kind == "none" else kind for kind in kinds)
    _row("read", f"{text.count(len(made.inputs), 'file')}, {text.size(made.input_bytes)} ({say})")
    stream = f"{'' if kinds == ['none'] else 'about '}{text.size(made.stream_bytes)}"
    seen = made.forecast
    if made.finished is not None:
        _row("", "everything is done: nothing would be")
        return
    if seen is None:
        _row("", f"{stream} of records")
    else:
        known = "by their tables" if seen.counted else "estimated from a sample"
        _row("", f"{stream} in {text.count(seen.records, 'record')} ({known})")
    _row("shuffle", f"{made.strategy}: {_HOW[made.strategy]}")
    _row("", made.why)
    if made.temporary_bytes:
        spilled = made.temporary_bytes if seen is None else seen.spilled_bytes
        _row("", f"about {text.size(spilled)} of temporary files in {made.tmp_dir or made.folder}")
    peak = "" if seen is None else f"about {text.size(seen.peak_bytes)} of "
    _row(
        "memory",
        f"{peak}{text.size(made.memory)} that may be used, with {text.count(made.workers, 'thread')}",
    )
    kind = made.compression.value
    codec = "plain" if kind == "none" else f"{kind}, level {made.level}"
    written = made.output_bytes if seen is None else seen.output_bytes
    _row(
        "write",
        f"{text.count(made.shards, 'shard')} of about {text.size(written / made.shards)} "
        f"({codec}): {file_names(made.prefix, made.shards, made.compression)[1][0]}...",
    )
    if seen is not None:
        _print_forecast(seen, made.level)


_HOW = {
    "memory": "each byte is read once and written once",
    "spill": "by way of temporary files, each byte is read twice and written twice",
    "gather": "records are read one by one in their new order, each byte once, and written once",
    "fragments": "each record is compressed once, and moved compressed",
}
_BOUND = {
    "reading": "reading",
    "writing": "writing",
    "inflating": "decompressing",
    "deflating": "compressing",
    "memory": "copying and sorting in memory",
}


def _print_forecast(seen: Forecast, level: Level) -> None:
    known = all(place.device for place in seen.places)
    least = "about " if known else "at least "
    share = f"{100 * seen.limit_seconds / max(seen.seconds, 1e-9):.0f}%"
    _row("time", f"{least}{text.duration(seen.seconds)}, most of it {_BOUND[seen.bound]}")
    for phase in seen.phases:
        parts = sorted(phase.limits.items(), key=lambda part: -part[1])
        busy = ", ".join(f"{_BOUND[what]} {text.duration(took)}" for what, took in parts if took >= 0.005)
        _row("", f"{phase.name}: {text.duration(phase.seconds)} ({busy or 'nothing much'})")
    _row("", f"devices and codecs alone would take {text.duration(seen.limit_seconds)} ({share})")
    if seen.cached:
        _row("", f"{100 * seen.cached:.0f}% of the inputs are in the page cache")
    for place in seen.places:
        speed = "of a speed that could not be measured, as nothing can be written to it"
        if place.device is not None:
            found = place.device
            speed = f"{text.size(found.read)}/s read, {text.size(found.write)}/s written, measured"
        _row("", f"{place.folder}: {speed}")
    for strategy, seconds, temporary in seen.others:
        disk = f", {text.size(temporary)} of temporary files" if temporary else ""
        _row("", f"--strategy {strategy} would take {text.duration(seconds)}{disk}")
    if seen.levels:
        _row("levels", f"{'':7}{'time':>10}{'output':>10}")
    for other, seconds, output in seen.levels:
        mark = "  as asked" if other == level else ""
        _row("", f"{other:>7}{text.duration(seconds):>10}{text.size(output):>10}{mark}")


def _row(name: str, value: str) -> None:
    click.echo(f"{name:<10}{value}")
