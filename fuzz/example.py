"""tf.train.Examples of every layout, and mutated ones, through us, protobuf's upb and a plain parser.

    python fuzz/example.py --seconds 20 --seed 1 [FILE...]     # FILEs are replayed first

All three accept the same payloads and read the same values: one by one, in batches, as SequenceExamples, and
what we write is what protobuf writes. A payload that makes them differ is kept as build/fuzz/example-crash-*
(a batch as records, *.tfrecord); it belongs into tests/corpus/example/, with a name.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import croupier

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
CORPUS = ROOT / "tests" / "corpus" / "example"

import example_check as check  # noqa: E402
import example_upb as upb  # noqa: E402
from example_wire import NAMES, Maker, alike, mutate  # noqa: E402


class Fuzzer:
    """What is tried, and what came of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.failures: set[str] = set()
        self.runs = self.accepted = 0

    def attempt(self, call: Callable[[], bool | None], payloads: list[bytes], name: str = "") -> None:
        """Keep what fails in a new way."""
        self.runs += 1
        try:
            self.accepted += bool(call())
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {where.name}:{where.lineno}: {str(error)[:300]}"
            if (kind := what.split(": ")[0]) not in self.failures:
                self.failures.add(kind)
                print(f"{name or keep(payloads)}: {what}")

    def one(self, payload: bytes, name: str = "") -> None:
        """Whatever it is, as both."""
        self.attempt(lambda: check.check_example(payload, upb), [payload], name)
        self.attempt(lambda: check.check_sequence(payload, upb), [payload], name)

    def batch(self, payloads: list[bytes], name: str = "") -> None:
        """Together, and some of their columns."""
        names = self.rng.sample(NAMES, self.rng.randrange(len(NAMES)))
        self.attempt(lambda: check.check_batch(payloads, names, upb=upb), payloads, name)

    def payload(self) -> bytes:
        """A new one."""
        rng = self.rng
        maker = Maker(rng, rng.choice((0, 0, 0.1, 0.5)), rng.choice((0, 0, 0, 0.1, 0.5)))
        return maker.example() if rng.random() < 0.7 else maker.sequence()


def keep(payloads: list[bytes]) -> Path:
    """One payload as it is, several as records."""
    digest = hashlib.sha256(b"".join(payloads)).hexdigest()[:16]
    path = ROOT / "build" / "fuzz" / f"example-crash-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(payloads) == 1:
        path.write_bytes(payloads[0])
        return path
    path = path.with_suffix(".tfrecord")
    with croupier.writer(path, overwrite=True) as out:
        out.write_many(payloads)
    return path


def replay(fuzzer: Fuzzer, path: Path) -> list[bytes]:
    """A file of the corpus: all checks on its payloads."""
    payloads = list(croupier.read(path)) if path.suffix == ".tfrecord" else [path.read_bytes()]
    for payload in payloads:
        fuzzer.one(payload, str(path))
    fuzzer.batch(payloads, str(path))
    return payloads


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    fuzzer = Fuzzer(arguments.seed)
    corpus = [b""]
    for path in [*arguments.files, *sorted(CORPUS.glob("*"))]:
        corpus += replay(fuzzer, path)
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        for _ in range(20):
            payload = fuzzer.payload()
            corpus.append(payload)
            fuzzer.one(payload)
            fuzzer.one(mutate(payload, fuzzer.rng, corpus))
        fuzzer.batch(alike(fuzzer.rng))
        fuzzer.batch(fuzzer.rng.sample(corpus, min(len(corpus), 3)))
        del corpus[200:]
        fuzzer.rng.shuffle(corpus)
    kinds = len(fuzzer.failures)
    print(f"example: {fuzzer.runs} executions, {fuzzer.accepted} accepted, {kinds} kinds of failure")
    return 1 if fuzzer.failures else 0


if __name__ == "__main__":
    sys.exit(main())
