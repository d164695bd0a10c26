"""How the command talks: sizes, counts, progress."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from croupier.runtime import Progress


def size(count: float) -> str:
    """Bytes for people: 155 B, 12.3 KB, 4.1 GB (powers of 1000, as disks are sold)."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"


def bytes_of(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """An option's size: 1000, 150MB, 8GB (powers of 1000), 64MiB (powers of 1024)."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+|\d*\.\d+)\s*(?:([KMGT])(i?))?B?", value.strip(), re.IGNORECASE)
    if found is None:
        raise click.BadParameter(f"{value!r} is no size: 150MB, 8GB, 64MiB")
    number, unit, binary = found.groups()
    scale = (1024 if binary else 1000) ** (" KMGT".index(unit.upper()) if unit else 0)
    return int(float(number) * scale)


def level_of(_context: click.Context, _option: click.Parameter, value: str | None) -> int | str | None:
    """A compression level: a number, or "same"."""
    if value is None or value == "same":
        return value
    if not re.fullmatch(r"-?\d{1,9}", value):
        raise click.BadParameter(f"{value!r} is neither a number nor 'same'")
    return int(value)


def names(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str] | None:
    """An option's names, with commas between them."""
    return None if value is None else [name for name in value.split(",") if name]


def count(number: int, noun: str) -> str:
    """1 record, 2,000 records."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def preview(payload: bytes, room: int = 32) -> str:
    """The first bytes, as text where they are text."""
    head = payload[:room]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in head)
    return f"{head[:8].hex(' '):23}  |{text}|{'...' if len(payload) > room else ''}"


def bar(share: float, room: int) -> str:
    """A bar that fills this share of the room, to an eighth of a character; something is never nothing."""
    eighths = max(round(share * room * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def duration(seconds: float) -> str:
    """0.4 s, 12 s, 3:05 min, 2:10 h."""
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[Progress], None] | None]:
    """A line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    states: list[Progress] = []
    drawn = 0.0

    def update(state: Progress) -> None:
        nonlocal drawn
        states[:] = [state]
        if time.monotonic() - drawn >= 0.1:
            drawn = time.monotonic()
            _draw(label, state)

    try:
        yield update
    finally:
        if states:
            _draw(label, states[0])
            click.echo(err=True)


def _draw(label: str, state: Progress) -> None:
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        width = 80
    click.echo(f"\r{progress_line(label, state, width - 1)}\033[K", err=True, nl=False)


def progress_line(label: str, state: Progress, width: int) -> str:
    """As much as there is room for, what matters most first."""
    say = size if state.unit == "bytes" else "{:,.0f}".format
    head = label if state.phase in ("", label) else f"{label}: {state.phase}"
    if state.total is None:
        parts = [(0, head), (1, say(state.done))]
    else:
        share = min(state.done / state.total, 1.0) if state.total else 1.0
        filled = bar(share, 12)
        parts = [(0, head), (1, f"{int(100 * share):3d}%"), (7, f"[{filled}{' ' * (12 - len(filled))}]")]
        parts.append((5, f"{say(state.done)} of {say(state.total)}"))
    if state.records:
        parts.append((6, count(state.records, "record")))
    if state.rate is not None:
        best = f" ({100 * state.rate / state.limit:.0f}% of limit)" if state.limit else ""
        parts.append((3, f"{say(state.rate)}/s{best}"))
    if state.memory is not None:
        parts.append((4, f"{size(state.memory)} memory"))
    if state.left is not None and (state.left >= 0.05 or state.done != state.total):
        parts.append((2, f"{duration(state.left)} left"))
    while len(parts) > 1 and sum(len(part) + 2 for _, part in parts) - 2 > width:
        parts.remove(max(parts))
    return "  ".join(part for _, part in parts)[:width]


def clear_line() -> None:
    """Take the line away; it comes back with the next update."""
    click.echo("\r\033[K", err=True, nl=False)
