"""croupier verify"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.inspect.verify import FileReport


@click.command()
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--receipt", metavar="PREFIX", help="Check an output against its receipt, too.")
@click.option("--workers", type=click.IntRange(1), help="Threads; by default one for each core.")
@click.option("--max-record-bytes", type=click.IntRange(1), help="Refuse longer records.  [default: 2 GiB]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each file.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of files that are whole.")
@click.pass_context
def verify(
    context: click.Context,
    paths: tuple[str, ...],
    receipt: str | None,
    workers: int | None,
    max_record_bytes: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check every record of files, globs and folders ("-": standard input).

    Both checksums of each record and the trailers of gzip and zlib are verified; damaged ranges are listed
    with the byte where they begin. Also says when TensorFlow would silently stop before the end of a file.

    \b
    Exit code: 0 all whole, 1 some damaged, 2 some could not be read.

    \b
    Examples:
      croupier verify train-*.tfrecord.gz
      croupier verify --receipt shuffled/train
      croupier verify data/ --json | jq 'select(.ok | not)'
      zcat broken.tfrecord.gz | croupier verify -
    """
    from croupier.frames import MAX_RECORD
    from croupier.inspect.verify import verify as check

    if bool(paths) == (receipt is not None):
        raise click.UsageError("name files, or an output by --receipt")
    reports = []
    limit = max_record_bytes or MAX_RECORD
    with text.progress("verify") as progress:
        for report in check(
            paths, receipt=receipt, workers=workers, max_record_bytes=limit, progress=progress
        ):
            reports.append(report)
            if progress is not None:
                text.clear_line()
            _print(report, as_json, quiet)
    if not as_json:
        _print_sum(reports)
    unreadable = any(report.unreadable for report in reports)
    context.exit(2 if unreadable else 0 if all(report.ok for report in reports) else 1)


def _print(report: FileReport, as_json: bool, quiet: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_dict()))
        return
    if report.ok and not report.warnings and quiet:
        return
    if report.mismatch:
        click.echo(f"MISMATCH  {report.path}: {report.mismatch}")
        return
    if report.unreadable:
        click.echo(f"UNREADABLE  {report.unreadable}")
        return
    kind = "plain" if report.compression == "none" else report.compression
    if report.members > 1:
        kind += f", {report.members:,} members"
    word = "ok     " if report.ok else "DAMAGED"
    click.echo(
        f"{word}  {report.path}: {text.count(report.records, 'record')}, "
        f"{text.size(report.payload_bytes)} of payload ({kind})"
    )
    for damage in report.damage:
        end = "end of file" if damage.end is None else f"{damage.end}"
        unit = "decompressed bytes" if damage.inflated else "bytes"
        after = f"after record {damage.record - 1}" if damage.record else "before any record"
        click.echo(f"         {unit} {damage.begin} to {end}, {after}: {damage.reason}")
    if report.damaged_ranges > len(report.damage):
        click.echo(f"         and {report.damaged_ranges - len(report.damage):,} more damaged ranges")
    for warning in report.warnings:
        click.echo(f"         warning: {warning}")


def _print_sum(reports: list[FileReport]) -> None:
    records = sum(report.records for report in reports)
    bad = sum(not report.ok for report in reports)
    wrong = "not what was written" if any(report.mismatch for report in reports) else "damaged or unreadable"
    state = "all whole" if not bad else f"{bad:,} {wrong}"
    where = text.count(len(reports), "file") if len(reports) != 1 else os.path.basename(reports[0].path)
    click.echo(f"{where}: {text.count(records, 'whole record')}, {state}")
