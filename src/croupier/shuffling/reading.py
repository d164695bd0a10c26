"""Reading all input files into runs, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from croupier import _kernel
from croupier.errors import UsageError
from croupier.frames import OVERHEAD, Block, Damage, OnCorrupt
from croupier.output import Proof
from croupier.runtime import Runtime
from croupier.shuffling.inputs import Input
from croupier.shuffling.run import PER_RECORD, Run
from croupier.streams import open_file


class _Reader:
    """One file, as far as it was read."""

    def __init__(self, number: int, path: str, blocks: Iterator[Block]) -> None:
        self.number, self.path, self._blocks = number, path, blocks
        self._block: Block | None = None
        self._taken = 0  # frames of the block that are in a run

    def pour(self, run: Run, note: Callable[[Block], None]) -> bool:
        """Fill the run; False at the end of the file."""
        while True:
            if self._block is None:
                self._block, self._taken = next(self._blocks, None), 0
                if self._block is None:
                    return False
                note(self._block)
            self._taken = run.add(self.number, self._block, self._taken)
            if self._taken < len(self._block):
                self._refuse_giants(run, self._block)
                return True
            self._block = None

    def _refuse_giants(self, run: Run, block: Block) -> None:
        """A record that not even an empty run has room for."""
        if run.records == 0:
            size = int(np.diff(block.bounds[self._taken : self._taken + 2])[0])
            raise UsageError(
                f"{self.path}: record {block.record + self._taken} has {size:,} bytes: too many for this "
                f"memory; give at least {3 * (size + PER_RECORD) // 1000 // 1000 + 100} MB"
            )


class Reading:
    """All files; what was read is added up, to be compared with what goes out."""

    def __init__(
        self,
        inputs: Sequence[Input],
        runtime: Runtime,
        on_corrupt: OnCorrupt,
        limit: int,
        on_damage: Callable[[Damage], None],
    ) -> None:
        self._runtime, self._policy, self._limit, self._on_damage = runtime, on_corrupt, limit, on_damage
        self._waiting = list(enumerate(inputs))[::-1]
        self._begun: list[_Reader] = []
        self._lock = threading.Lock()
        self.came = Proof()

    @property
    def stream_bytes(self) -> int:
        """Of all frames that were read."""
        return self.came.payload_bytes + OVERHEAD * self.came.records

    @property
    def done(self) -> bool:
        """Whether everything was read."""
        return not self._waiting and not self._begun

    def fill(self, run: Run) -> None:
        """Until the run is full or there is nothing more."""
        for _ in self._runtime.map(lambda _: self._fill(run), range(self._runtime.workers)):
            pass

    def _fill(self, run: Run) -> None:
        """On a thread: files that were begun first."""
        while not run.full and (reader := self._next()) is not None:
            if reader.pour(run, self._note):
                self._begun.append(reader)

    def _next(self) -> _Reader | None:
        with self._lock:
            if self._begun:
                return self._begun.pop(0)
            if not self._waiting:
                return None
            number, source = self._waiting.pop()
        return _Reader(number, source.path, self._blocks(source))

    def _blocks(self, source: Input) -> Iterator[Block]:
        with open_file(source.path, self._policy, self._limit, self._on_damage) as opened:
            told = 0
            for block in opened.frames:
                self._runtime.check()
                yield block
                told, before = opened.consumed, told
                self._runtime.advance(told - before, len(block))
            self._runtime.advance(max(source.size - told, 0))
        source.check_unchanged()

    def _note(self, block: Block) -> None:
        totals = np.zeros(4, np.uint64)
        _kernel.fingerprint(block.buffer, block.bounds, totals)
        with self._lock:
            self.came = self.came.plus(Proof.of(totals))
