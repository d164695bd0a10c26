"""How `croupier info --stats` shows statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from croupier.cli import text

if TYPE_CHECKING:
    from croupier.inspect.counting import Bin, Octets, Range, Top
    from croupier.inspect.stats import FeatureStatistics, Statistics

BAR = 40
FEW = 16  # different numbers that get a bar each
SHARE = 0.01  # of all values that a frequent one must have to be named


def print_statistics(found: Statistics) -> None:
    """Some lines for each feature."""
    from croupier.example.content import printable

    click.echo(f"\nStatistics of {text.count(found.records, 'record')}:")
    for name, feature in found.items():
        click.echo(f"\n{printable(name)}  {feature.kind}, {_presence(feature, found.records)}")
        for line in _lines(feature):
            click.echo(f"  {line}")


def _presence(feature: FeatureStatistics, records: int) -> str:
    share = f"{100 * feature.present / records:.3g} %"
    where = (
        "in all records"
        if not feature.missing
        else f"in {feature.present:,} of {records:,} records ({share})"
    )
    if feature.fewest == feature.most:
        return f"{where}, {text.count(feature.most, 'value')} each"
    return f"{where}, {feature.fewest:,} to {feature.most:,} values each, {feature.mean:.4g} on average"


def _lines(feature: FeatureStatistics) -> Iterator[str]:
    if feature.numbers is not None:
        yield from _numbers(feature.numbers)
    if feature.bytes is not None:
        yield from _bytes(feature.bytes)


def _numbers(found: Range) -> Iterator[str]:
    odd = {"NaN": found.nan, "infinite": found.infinite}
    notes = [f"{times:,} {what}" for what, times in odd.items() if times]
    if found.zeros and found.smallest != found.largest:
        notes.insert(0, f"{_percent(found.zeros, found.finite)} zeros")
    if not found.finite:
        yield ", ".join(notes) or "no values"
        return
    if found.smallest == found.largest:
        yield ", ".join([f"always {_number(found.smallest)}", *notes])
        return
    yield _range(found)
    yield ", ".join([_different(found.different, found.different_error), *notes])
    if found.different <= FEW and not found.top_error and len(found.top) == found.different:
        tops = sorted(found.top, key=lambda one: float(one.value))
        yield from _bars([(_number(one.value), one.times) for one in tops])
        return
    named = [one for one in found.top[:4] if one.times > max(SHARE * found.finite, 1)]
    if named:
        shown = ", ".join(f"{_number(one.value)} ({_percent(one.times, found.finite)})" for one in named)
        yield f"most frequent: {shown}"
    yield from _bars([(_bin(one, found), one.values) for one in found.bins])


def _range(found: Range, unit: str = "") -> str:
    median, mean = found.quantiles["0.5"], found.mean
    about = "about " if found.quantile_error else ""
    spread = "" if found.std is None else f", std {found.std:.5g}"
    return (
        f"{_number(found.smallest)} to {_number(found.largest)}{unit}, mean {mean:.5g}{spread}, "
        f"median {about}{_number(median)}, 5 % to 95 %: {_number(found.quantiles['0.05'])} to "
        f"{_number(found.quantiles['0.95'])}"
    )


def _bytes(found: Octets) -> Iterator[str]:
    sizes = found.sizes
    if not sizes.largest:
        yield "always empty" if sizes.finite else "no values"
        return
    looks = found.looks | ({"empty": sizes.zeros} if sizes.zeros else {})
    parts = [f"{name} ({_percent(times, sizes.finite)})" for name, times in looks.items()]
    yield ", ".join(
        [*(looks if len(looks) == 1 else parts), _different(found.different, found.different_error)]
    )
    yield f"{sizes.smallest:,} bytes" if sizes.smallest == sizes.largest else _range(sizes, " bytes")
    named = [one for one in found.top if one.times > max(SHARE * sizes.finite, 1)]
    if named:
        yield from _bars([(_value(one), one.times) for one in named])
    elif sizes.smallest != sizes.largest:
        yield from _bars([(_bin(one, sizes), one.values) for one in sizes.bins])


def _value(one: Top) -> str:
    from croupier.example.content import printable, text_of

    cut = one.size is not None and one.size > len(one.value)
    shown = text_of(one.value, cut=cut)
    if shown is None:
        return f"{one.value[:8].hex(' ')}{' ...' if cut or len(one.value) > 8 else ''}"
    return f"'{printable(shown)}{'...' if cut else ''}'"


def _bars(rows: list[tuple[str, int]]) -> Iterator[str]:
    most = max(times for _, times in rows)
    width = max(len(label) for label, _ in rows)
    for label, times in rows:
        yield f"  {label:>{width}}  {text.bar(times / most, BAR):{BAR}}  {times:,}"


def _bin(one: Bin, found: Range) -> str:
    if isinstance(found.smallest, int):
        last = int(one.below) - 1
        return _number(one.least) if last == one.least else f"{_number(one.least)} to {_number(last)}"
    return f"{_number(one.least)} to {_number(one.below)}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %"


def _different(count: int, error: float) -> str:
    return f"about {count:,} different (within {100 * error:.2g} %)" if error else f"{count:,} different"
