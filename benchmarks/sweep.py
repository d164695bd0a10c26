"""Which sizes of blocks, reads and fragments are best here: by changing the modules' constants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from common import (
    MIB,
    begin,
    click_pages,
    clicks,
    deepvariant,
    folder,
    framed,
    image_tiles,
    noise,
    race,
    say,
    shared_memory,
    spread,
    table,
    write,
)
from gzip_write import one_stream

import croupier
from croupier import frames, output
from croupier.codec import deflate, inflate

KIB = 1 << 10
Job = tuple[Callable[[], object], int]  # what to run, and how many bytes that is


@contextmanager
def having(module: ModuleType, **values: int) -> Iterator[None]:
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def under(module: ModuleType, values: dict[str, int], run: Callable[[], object]) -> Callable[[], None]:
    def changed() -> None:
        with having(module, **values):
            run()

    return changed


def read(path: Path) -> None:
    deque(croupier.read(path), maxlen=0)


def size(value: int) -> str:
    return f"{value // MIB} MiB" if value >= MIB and not value % MIB else f"{value / KIB:g} KiB"


def compare(
    title: str, module: ModuleType, options: list[dict[str, int]], jobs: dict[str, Job], turns: int
) -> None:
    """A table: a row for each option, a column for each job, MB/s."""
    say(title)
    columns = []
    for run, work in jobs.values():
        racers = {str(i): under(module, option, run) for i, option in enumerate(options)}
        columns.append([times.rates(work / 1e6) for times in race(racers, turns).values()])
    current = {name: getattr(module, name) for name in options[0]}
    rows = [
        [
            ", ".join(size(value) for value in option.values()) + (" (now)" if option == current else ""),
            *(spread(column[i]) for column in columns),
        ]
        for i, option in enumerate(options)
    ]
    table([title, *jobs], rows)


def main() -> None:
    quick = begin("Sizes").quick
    turns, scale = (1, 8 * MIB) if quick else (5, 96 * MIB)
    home, memory = folder(), folder(shared_memory())
    sources = {
        "200 B": lambda: noise(200, scale),
        "1 KB": lambda: noise(1000, scale),
        "20 KB": lambda: noise(20_000, scale),
        "155 KB": lambda: deepvariant(scale),
        "418 B gzip": lambda: clicks(scale // 2),
        "155 KB gzip": lambda: deepvariant(scale),
    }
    reads: dict[str, Job] = {}
    for name, make in sources.items():
        payloads = list(make())
        path = write(home / f"{name.replace(' ', '-')}.tfrecord{'.gz' if 'gzip' in name else ''}", payloads)
        reads[name] = (lambda path=path: read(path)), sum(map(len, payloads))
    blocks = [{"BLOCK": value * KIB} for value in (256, 512, 1024, 2048, 4096)]
    compare("frames.BLOCK", frames, blocks, reads, turns)
    zipped = {name: job for name, job in reads.items() if "gzip" in name}
    slices = [
        {"READ": r * KIB, "SLICE": s * KIB} for r in (64, 256, 1024) for s in (8, 16, 32, 64, 128) if s <= r
    ]
    compare("inflate.READ, SLICE", inflate, slices, zipped, turns)

    deep, click, tiles = list(deepvariant(scale)), list(clicks(scale // 4)), list(image_tiles(scale))

    def job(payloads: list[bytes], level: int, name: str = "out.tfrecord.gz") -> Job:
        def run() -> None:
            with croupier.writer(memory / name, level=level, overwrite=True) as out:
                out.write_many(payloads)

        return run, sum(map(len, payloads))

    jobs = {
        "155 KB, level 1": job(deep, 1),
        "155 KB, level 5": job(deep, 5),
        "418 B, level 1": job(click, 1),
        "418 B, level 5": job(click, 5),
        "20 KB, level 1": job(tiles, 1),
        "155 KB, plain": job(deep, 1, "out.tfrecord"),
    }
    blocks = [{"BLOCK": value * KIB} for value in (512, 1024, 1536, 2048, 3072, 4096, 8192)]
    compare("output.BLOCK", output, blocks, jobs, turns)

    say("fragments")
    rows = []
    kinds = {
        "418 B": click,
        "20 KB clicks": list(click_pages(scale // 4)),
        "20 KB tiles": tiles,
        "155 KB": deep,
    }
    for level in (1, 5):
        whole = {name: one_stream(memoryview(framed(payloads)), level) for name, payloads in kinds.items()}
        for large, group in ((16, 128), (16, 256), (16, 512), (32, 256), (64, 256), (128, 256), (128, 512)):
            cells = []
            for name, payloads in kinds.items():
                with having(deflate, LARGE_FRAME=large * KIB, GROUP=group * KIB):
                    job(payloads, level)[0]()
                ours = (memory / "out.tfrecord.gz").stat().st_size
                cells.append(f"{ours / whole[name] - 1:+.1%}")
            now = large * KIB == deflate.LARGE_FRAME and group * KIB == deflate.GROUP
            rows.append([f"level {level}: {large} KiB, {group} KiB{' (now)' if now else ''}", *cells])
    table(["size: LARGE_FRAME, GROUP", *kinds], rows)
    print("MB/s of payload, median (lowest–highest); size against one stream at the same level.")


if __name__ == "__main__":
    main()
