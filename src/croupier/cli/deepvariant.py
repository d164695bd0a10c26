"""croupier deepvariant"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import click

from croupier.cli import text
from croupier.cli.shuffle import print_plan
from croupier.deepvariant import beam

NAMES = {
    "missing": "without a label",
    "other": "with another label",
    "no_example": "no tf.train.Example",
}


class _Command(click.Command):
    """Takes Beam's own flags as well; none of them is in --help, as none has an effect."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *self._beam]

    @cached_property
    def _beam(self) -> list[click.Parameter]:
        return [
            click.Option(
                [f"--{name}", f"beam_{name}"],
                is_flag=not option.takes_value,
                multiple=option.takes_value,
                hidden=True,
            )
            for name, option in beam.OPTIONS.items()
        ]


@click.command(cls=_Command)
@click.option(
    "--input_pattern_list", required=True, metavar="GLOBS", help="TFRecord files: globs, with commas between."
)
@click.option(
    "--output_pattern_prefix",
    "--output_pattern",
    "output_pattern_prefix",
    required=True,
    metavar="PREFIX",
    help="Shards are PREFIX-00000-of-00008.tfrecord.gz, and so on.",
)
@click.option(
    "--output_dataset_config_pbtxt",
    "--output_dataset_config",
    "output_dataset_config_pbtxt",
    metavar="FILE",
    help="Where to write the DeepVariantDatasetConfig.  [default: nowhere]",
)
@click.option("--output_dataset_name", metavar="NAME", help="The name in that; needed for it.")
@click.option(
    "--direct_num_workers",
    type=int,
    default=0,
    metavar="W",
    help="How many shards, as in both scripts.  [default: 0: as many as make them about 150 MB each; it is "
    "--workers that says how many cores]",
)
@click.option(
    "--step",
    type=int,
    default=-1,
    metavar="Y",
    help="At most Y records in memory at once, besides what --memory says.  [default: -1: any number]",
)
@click.option(
    "--runner", metavar="RUNNER", help="DirectRunner, which is what happens here; others are refused."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another order.")
@click.option(
    "--shard_size", "--shard-size", callback=text.bytes_of, metavar="SIZE", help="Instead of W: how large."
)
@click.option(
    "--memory",
    callback=text.bytes_of,
    metavar="SIZE",
    help="What the process may take.  [default: 80% of what is free]",
)
@click.option(
    "--tmp_dir", "--tmp-dir", metavar="DIR", help="Where to spill to.  [default: the output's folder]"
)
@click.option(
    "--level",
    callback=text.level_of,
    metavar="1-9|same",
    help="1 (fast) to 9 (small), or with the matches that the inputs' compressor found.  [default: 5]",
)
@click.option("--workers", type=int, help="Threads.  [default: one for each core]")
@click.option(
    "--on_corrupt",
    "--on-corrupt",
    type=click.Choice(["fail", "tolerate-tail", "skip", "salvage"]),
    default="fail",
    show_default=True,
    help="What to do about damage.",
)
@click.option("--overwrite", is_flag=True, help="Replace files of the same names.")
@click.option("--resume", is_flag=True, help="Go on where an interrupted run of the same command stopped.")
@click.option(
    "--dry_run", "--dry-run", is_flag=True, help="Say what would be done, and what it takes; write nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the receipt (or the plan) as one JSON object.")
def deepvariant(dry_run: bool, as_json: bool, runner: str | None, **options: Any) -> None:
    """Shuffle DeepVariant's training examples: in place of both of its shuffle scripts.

    Takes the flags of shuffle_tfrecords_beam.py and shuffle_tfrecords_lowmem.py as they are, and writes what
    they write: gzip shards, the dataset config with the counts of each class, and example_info.json. Beam's
    own flags are accepted, and each is answered by why it has no effect.

    \b
    Examples:
      croupier deepvariant \\
        --input_pattern_list='out/training_set.with_label.tfrecord-?????-of-00016.gz' \\
        --output_pattern_prefix=out/training_set.with_label.shuffled \\
        --output_dataset_config_pbtxt=out/training_set.dataset_config.pbtxt \\
        --output_dataset_name=HG001 --direct_num_workers=16
      python -m croupier.deepvariant --input_pattern_list='a-*.gz,b-*.gz' --output_pattern_prefix=ab/train \\
        --memory 8GB --tmp_dir /scratch --seed 7 --dry_run
    """
    from croupier.deepvariant.job import Flags, Job

    theirs = {name: options.pop(f"beam_{name}") for name in beam.OPTIONS}
    beam.check_runner(runner, _say)
    for line in beam.explain({name: value for name, value in theirs.items() if value}):
        _say(line)
    job = Job(Flags(**options), _say)
    if dry_run:
        made = job.plan()
        click.echo(json.dumps(made.as_dict())) if as_json else print_plan(made)
        return
    with text.progress("deepvariant") as progress:
        receipt = job.run(progress=progress, on_damage=lambda damage: _say(str(damage)))
    click.echo(json.dumps(receipt)) if as_json else _print(receipt)


def _say(line: str) -> None:
    click.echo(f"croupier: {line}", err=True)


def _print(receipt: dict[str, Any]) -> None:
    out, seconds = receipt["out"], max(receipt["seconds"], 0.001)
    click.echo(
        f"{text.count(out['records'], 'record')}, {text.size(out['payload_bytes'])} of payload, in "
        f"{text.count(len(receipt['shards']), 'shard')}: {seconds:.1f} s, "
        f"{text.size(out['payload_bytes'] / seconds)}/s"
    )
    if receipt["labels"]:
        counts = [f"{count:,} {NAMES.get(label, label)}" for label, count in receipt["labels"].items()]
        click.echo(", ".join(counts))
    for path in (receipt["example_info"], receipt["dataset_config"]):
        if path is not None:
            click.echo(path)
    click.echo(f"What went out is what came in: fingerprint {out['fingerprint']}")
