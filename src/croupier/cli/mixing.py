"""croupier mixing"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.inspect.verdict import Labels, Mixing, Order

BAR = 30
TOP = 5
"""Labels that are named."""


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--feature", metavar="F", help="A label, of which runs are counted.  [default: label]")
@click.option(
    "--order",
    metavar="F",
    help="A feature that says where records stood in the source.  [default: locus, or the receipt]",
)
@click.option("--workers", type=click.IntRange(1), help="Threads; by default one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mixing(
    paths: tuple[str, ...], feature: str | None, order: str | None, workers: int | None, as_json: bool
) -> None:
    """Say how far the order of records is from a random one.

    Measures how many neighbours of the source still are, how far records are from where they stood there,
    runs of equal labels, each file's share of labels, and equal records side by side, each against what a
    random order would give. The last line is the verdict: WELL, PARTLY or BADLY MIXED.

    The source's order is told by a feature (--order: a number, or a text with one in it, such as
    chr20:10000524-10000525), else by the receipt of the shuffle, which is compared with its inputs.

    \b
    Exit code: 0 whatever the verdict is (scripts: --json, .verdict), 1 damaged data, 2 a wrong call.

    \b
    Examples:
      croupier mixing shuffled/
      croupier mixing 'train-*.tfrecord.gz' --feature class --order frame_number
      croupier mixing data/ --json | jq -r .verdict
    """
    from croupier import dataset
    from croupier.inspect.mixing import mixing as measure

    with text.progress("index") as progress:
        data = dataset.open(paths, progress=progress)
        len(data)
    with text.progress("mixing") as progress:
        found = measure(data, feature, order=order, workers=workers, progress=progress)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    for line in _report(found):
        click.echo(line)


def _report(found: Mixing) -> Iterator[str]:
    from croupier.example.content import printable

    files = text.count(found.files, "file")
    yield f"{text.count(found.records, 'record')} in {files}; in brackets: what a random order would give"
    if found.order is not None:
        yield from _order(found.order, found.records)
    if found.labels is not None:
        yield from _labels(found.labels)
    yield "\nEqual records"
    yield f"  side by side      {found.identical:,} ({_about(found.identical_expected)})"
    for note in found.notes:
        yield f"\nNote: {printable(note, most=1000)}"
    head = {"unknown": "NOT KNOWN"}.get(found.verdict, f"{found.verdict.upper()} MIXED")
    yield f"\n{head}: {printable(found.reason, most=1000)}"


def _order(found: Order, records: int) -> Iterator[str]:
    from croupier.example.content import printable
    from croupier.inspect.verdict import percent

    known = "" if found.records == records else f", {found.records:,} records of it"
    yield f"\nAgainst the order of the source ({printable(found.source)}{known})"
    if found.checked:
        checked = text.count(found.checked, "record")
        yield f"  checked           {checked} against the inputs: all are where they should be"
    yield (
        f"  still neighbours  {percent(found.adjacent, found.pairs)} of {text.count(found.pairs, 'pair')} "
        f"({percent(found.adjacent_expected, found.pairs)})"
    )
    near = text.count(found.near_distance, "record")
    yield (
        f"  still near        {percent(found.near, found.pairs)} within {near} of each other "
        f"({percent(found.near_expected, found.pairs)})"
    )
    yield (
        f"  moved             by {percent(found.displacement, 1)} of the dataset on average "
        f"({percent(found.displacement_expected, 1)})"
    )
    yield "  So far apart are two that were neighbours:"
    ends = [(f"{gap.least:,}", f"{gap.most:,}") for gap in found.gaps]
    labels = [least if least == most else f"{least} to {most}" for least, most in ends]
    width = max(map(len, labels), default=0)
    for label, gap in zip(labels, found.gaps, strict=True):
        bar = text.bar(gap.pairs / max(found.pairs, 1), BAR)
        shares = f"{percent(gap.pairs, found.pairs)} ({percent(gap.expected, found.pairs)})"
        yield f"    {label:>{width}}  {bar:{BAR}}  {shares}"


def _labels(found: Labels) -> Iterator[str]:
    from croupier.example.content import printable

    yield f"\nLabels (feature {printable(repr(found.feature))})"
    named = ", ".join(f"{printable(label, most=40)} ({times:,})" for label, times in found.top[:TOP])
    yield f"  {found.classes:,} different{', the most frequent' if found.classes > TOP else ''}: {named}"
    if found.classes < 2:
        return
    yield f"  runs              {found.runs:,} ({_about(found.runs_expected)}), z = {found.runs_z:.1f}"
    longest = printable(found.longest_run_label, most=40)
    yield f"  longest run       {found.longest_run:,} of {longest} ({_about(found.longest_run_expected)})"
    if found.chi_square is not None:
        yield (
            f"  in all files      Cramer's V {found.cramers_v:.3f} (0), chi-square {found.chi_square:,.0f} "
            f"({_about(found.chi_square_expected)}), z = {found.chi_square_z:.1f}"
        )


def _about(expected: float) -> str:
    return f"{expected:,.0f}" if expected >= 9.95 or expected == 0 else f"{expected:.2g}"
