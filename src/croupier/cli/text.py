"""How the command talks: sizes, counts, progress."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

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


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    shown: list[str] = []
    bar: ProgressBar[int] = click.progressbar(
        length=1, label=label, file=sys.stderr, show_percent=True, item_show_func=lambda _: "".join(shown)
    )

    def update(state: Progress) -> None:
        total = max(state.total or 0, 1)
        say = size if state.unit == "bytes" else "{:,.0f}".format
        shown[:] = [f"{say(state.done)} of {say(total)}, {count(state.records, 'record')}"]
        bar.length = total
        bar.update(min(state.done, total) - bar.pos)

    with bar:
        yield update


def clear_line() -> None:
    """Take the progress bar away; it comes back with the next update."""
    click.echo("\r\033[K", err=True, nl=False)
