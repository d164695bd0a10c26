"""Reading all input files into runs, several at a time; and how far that is, for another process to go on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from croupier.errors import UsageError
from croupier.frames import EVERYTHING, OVERHEAD, Block, Damage, OnCorrupt
from croupier.proof import Proof
from croupier.runtime import Runtime
from croupier.shuffling.giants import Giants
from croupier.shuffling.inputs import Inputs
from croupier.shuffling.load import Load, Preparing, copied, part, plain_load
from croupier.shuffling.run import PER_RECORD, Run
from croupier.shuffling.small import TOGETHER, Kept, Small, SmallFiles
from croupier.streams import open_file

Tally = Callable[[Block], Mapping[str, int]]
"""Counts something about some records, on a thread."""


class Covered:
    """Which records of a file are in runs: pieces in order, (first, behind last, byte behind last)."""

    def __init__(self, pieces: Sequence[Sequence[int]] = ()) -> None:
        self.pieces = [(int(first), int(end), int(edge)) for first, end, edge in pieces]
        self.total: int | None = None
        """How many records the file has, once that is known."""

    def add(self, first: int, end: int, edge: int) -> None:
        """More of them."""
        pieces = sorted([*self.pieces, (first, end, edge)])
        self.pieces = pieces[:1]
        for piece in pieces[1:]:
            if piece[0] == self.pieces[-1][1]:
                self.pieces[-1] = self.pieces[-1][0], *piece[1:]
            else:
                self.pieces.append(piece)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self.total == 0 or [piece[:2] for piece in self.pieces] == [(0, self.total)]

    @property
    def front(self) -> tuple[int, int]:
        """(records, bytes) from the beginning on, without a gap."""
        return self.pieces[0][1:] if self.pieces and self.pieces[0][0] == 0 else (0, 0)

    def missing(self, record: int, count: int) -> tuple[int, int]:
        """The first of these records that are not covered: (how many before them, how many)."""
        begin = record
        for first, end, _ in self.pieces:
            if first <= begin < end:
                begin = end
        ends = [first for first, _, _ in self.pieces if first > begin]
        return begin - record, max(min([record + count, *ends]) - begin, 0)


class _Reader:
    """One file, as far as it was read."""

    def __init__(self, number: int, blocks: Iterator[Block], covered: Covered) -> None:
        self.number, self._blocks, self._covered = number, blocks, covered
        self._known = Covered(covered.pieces)  # what an earlier process has read
        self._block: Block | None = None
        self.records = covered.front[0]
        self.rest: Load | None = None
        """What is in no run yet of the block at hand."""

    def next(self) -> Block | None:
        """The next records that are in no run; None at the end of the file."""
        while True:
            if self._block is None:
                self._block = next(self._blocks, None)
                if self._block is None:
                    self._covered.total = self.records
                    return None
                self.records = self._block.record + len(self._block)
            block, self._block = self._block, None
            if not self._known.pieces:
                return block
            skip, count = self._known.missing(block.record, len(block))
            if skip + count < len(block):
                rest = skip + max(count, 1)
                self._block = part(block, rest, len(block)) if rest < len(block) else None
            if count:
                return part(block, skip, skip + count)


class Reading:
    """All files; what was read is added up, to be compared with what goes out."""

    def __init__(
        self,
        inputs: Inputs,
        runtime: Runtime,
        on_corrupt: OnCorrupt,
        limit: int,
        on_damage: Callable[[Damage], None],
        *,
        preparing: Preparing | None = None,
        tally: Tally | None = None,
        past_cache: bool = False,
        giants: Giants | None = None,
    ) -> None:
        self._giants = giants
        self._inputs, self._runtime, self._preparing, self._tally = inputs, runtime, preparing, tally
        self._policy, self._limit, self._on_damage = on_corrupt, limit, on_damage
        self._past_cache = past_cache
        self._whole = bytearray(len(inputs))  # 1 where all of a file is in runs
        self._covered: dict[int, Covered] = {}  # of files that are begun
        self._next_file = 0
        self._small_files = SmallFiles(limit)
        self._odd: list[int] = []  # of these, those that turned out not to be as simple
        self._rest: list[range] = []  # small files that the last run had no room for
        self._begun: list[_Reader] = []
        self._left: list[Load] = []  # prepared, and in no run yet
        self._reading = self._waiting = 0  # threads
        self._change = threading.Condition()
        self.came = Proof()
        self.counts: Counter[str] = Counter()

    @property
    def stream_bytes(self) -> int:
        """Of all frames that were read."""
        return self.came.payload_bytes + OVERHEAD * self.came.records

    @property
    def done(self) -> bool:
        """Whether everything is in runs."""
        begun = self._begun or self._left or self._rest or self._odd
        return not (begun or self._skip_whole() < len(self._inputs))

    # How far it is

    def state(self) -> dict[str, Any]:
        """All that is in runs, for JSON; asked for between two runs."""
        flags = np.frombuffer(bytes(self._whole), np.uint8)
        edges = np.flatnonzero(np.diff(flags, prepend=0, append=0)).reshape(-1, 2)
        parts = {str(number): one.pieces for number, one in self._covered.items() if one.pieces}
        came, counts = self.came.as_dict(), dict(self.counts)
        return {"whole": edges.tolist(), "parts": parts, "came": came, "counts": counts}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """From there."""
        for begin, end in state["whole"]:
            self._whole[begin:end] = b"\1" * (min(end, len(self._whole)) - begin)
            self._runtime.advance(int(self._inputs.sizes[begin:end].sum()))
        self._covered = {int(number): Covered(pieces) for number, pieces in state["parts"].items()}
        self.came, self.counts = Proof.from_dict(state["came"]), Counter(state["counts"])

    def adopt(self, kept: Kept | None) -> Run | None:
        """Take over the run with all that was read before, where there is one."""
        if kept is None or self._tally is not None:
            return None
        self._whole = bytearray(b"\1") * len(self._inputs)
        self.came = kept.came
        self._runtime.advance(self._inputs.total, kept.came.records)
        return kept.run

    # Reading

    def fill(self, run: Run) -> None:
        """Until the run is full or there is nothing more."""
        for _ in self._runtime.map(lambda _: self._fill(run), range(self._runtime.workers)):
            pass

    def _fill(self, run: Run) -> None:
        """On a thread."""
        try:
            self._fill_until_full(run)
        except BaseException:
            run.full = True  # the others need not go on
            raise

    def _fill_until_full(self, run: Run) -> None:
        """Files that were begun first."""
        while not run.full:
            if self._preparing is not None:
                with self._change:
                    load = self._left.pop() if self._left else None
                if load is not None:
                    self._add(run, load, keep=True)
                    continue
            if self._preparing is None and (small := self._take_small()):
                self._pour_small(run, small)
                continue
            reader = self._take()
            if reader is None:
                return
            if self._preparing is None:
                self._pour(run, reader)
            else:
                self._prepare(run, reader, self._preparing)

    def _pour(self, run: Run, reader: _Reader) -> None:
        """All of a file."""
        while True:
            load, reader.rest = reader.rest, None
            if load is None:
                block = reader.next()
                if block is None:
                    return self._end(reader)
                load = plain_load(reader.number, block)
            rest = self._add(run, load, keep=False)
            if rest is not None:
                reader.rest = rest
                return self._give_back(reader)

    def _take_small(self) -> range:
        """Small files that nobody has read."""
        with self._change:
            if self._rest:
                return self._rest.pop()
            begin = self._skip_whole()
            end = min(begin + TOGETHER - begin % TOGETHER, len(self._inputs))
            free = self._inputs.small[begin:end] & (np.frombuffer(self._whole[begin:end], np.uint8) == 0)
            some = range(begin, begin + int(np.append(free, False).argmin()))
            some = range(
                begin, min([number for number in self._covered if number in some], default=some.stop)
            )
            self._next_file = max(self._next_file, some.stop)
            return some

    def _pour_small(self, run: Run, files: range) -> None:
        """All of some files."""
        for block in self._small_files.read(self._inputs.names(files.start, files.stop)):
            self._runtime.check()
            count = len(block.size)
            planned = slice(files.start, files.start + count)
            same = block.taken & (block.size == self._inputs.sizes[planned])
            same &= block.modified.view(np.int64) == self._inputs.modified[planned]
            count = count if same.all() else int(same.argmin())
            added = run.add_files(files.start, block.records[:count], block.buffer, block.bounds)
            self._note_small(files.start, added, block)
            files = files[added:]
            if added < len(same):
                self._put_back(files, odd=added == count or not run.records)
                return

    def _note_small(self, first: int, files: int, block: Small) -> None:
        """All of these are in the run."""
        records, stored = (int(column[:files].sum()) for column in (block.records, block.size))
        proof = block.proof(0, records)
        part = Block(block.buffer, block.bounds[: records + 1], 0, 0)
        counts = self._tally(part) if self._tally and records else {}
        with self._change:
            self.came = self.came.plus(proof)
            self.counts.update(counts)
            self._whole[first : first + files] = b"\1" * files
        self._runtime.advance(stored, records)

    def _put_back(self, files: range, *, odd: bool) -> None:
        """For later; an odd one (changed, say, or too large for an empty run) is read like any other file."""
        with self._change:
            if odd:
                self._odd.append(files[0])
                files = files[1:]
            if files:
                self._rest.append(files)

    def _prepare(self, run: Run, reader: _Reader, preparing: Preparing) -> None:
        """A block. While threads wait for a file to read, they read on while this one works on a copy."""
        given = False
        try:
            block = reader.next()
            if block is not None and self._waiting:
                block, given = copied(block), True
                self._give_back(reader)
            if block is not None:
                self._add(run, preparing.load(reader.number, block), keep=True)
        except BaseException:
            if not given:
                self._end(reader)  # or others would wait for it
            raise
        if block is None:
            self._end(reader)
        elif not given:
            self._give_back(reader)

    def _add(self, run: Run, load: Load, *, keep: bool) -> Load | None:
        """What there is room for; the rest is kept for the next run, or given back."""
        count = run.add(load)
        proof = load.proof(count) if count else None
        counts = self._tally(load.records(count)) if self._tally and count else {}
        rest = load.after(count) if count < len(load) else None
        with self._change:
            if proof is not None:
                self.came = self.came.plus(proof)
                self.counts.update(counts)
                covered = self._covered[load.file]
                covered.add(load.record, load.record + count, int(load.edges[count]))
                self._note_whole(load.file, covered)
            if rest is not None and keep:
                self._left.append(rest.kept())
        return rest

    def too_large(self) -> UsageError:
        """What to raise when not even an empty run has room for a record."""
        waiting = [*self._left, *(one.rest for one in self._begun if one.rest is not None)]
        load = max(waiting, key=lambda one: int(one.bounds[1] - one.bounds[0]))
        size = int(load.bounds[1] - load.bounds[0])
        return UsageError(
            f"{self._inputs[load.file].path}: record {load.record} has {size:,} bytes: too many for this "
            f"memory; give at least {3 * (size + PER_RECORD) // 1000 // 1000 + 100} MB"
        )

    def _take(self) -> _Reader | None:
        """A file that nobody reads just now; waits where all that is left is being read by others."""
        with self._change:
            while True:
                if self._begun:
                    self._reading += 1
                    return self._begun.pop(0)
                number = self._odd.pop() if self._odd else self._skip_whole()
                if number < len(self._inputs):
                    self._next_file = max(self._next_file, number + 1)
                    self._reading += 1
                    covered = self._covered.setdefault(number, Covered())
                    break
                if self._preparing is None or not self._reading:
                    return None
                self._waiting += 1
                self._change.wait()
                self._waiting -= 1
        return _Reader(number, self._blocks(number, covered), covered)

    def _give_back(self, reader: _Reader) -> None:
        with self._change:
            self._begun.append(reader)
            self._reading -= 1
            self._change.notify()

    def _end(self, reader: _Reader) -> None:
        with self._change:
            self._reading -= 1
            self._note_whole(reader.number, self._covered[reader.number])
            self._change.notify_all()

    def _note_whole(self, number: int, covered: Covered) -> None:
        if covered.whole:
            self._whole[number] = 1
            self._covered.pop(number, None)

    def _skip_whole(self) -> int:
        """The next file that is not in runs."""
        number = self._whole.find(b"\0", self._next_file)
        return number if number >= 0 else len(self._inputs)

    def _blocks(self, number: int, covered: Covered) -> Iterator[Block]:
        source = self._inputs[number]
        start, record, known = 0, 0, Covered(covered.pieces)
        if source.is_plain:
            record, start = covered.front
        with open_file(
            source.path, self._policy, self._limit, self._on_damage, start=start, record=record,
            past_cache=self._past_cache and source.is_plain,
            noting=self._preparing is not None and self._preparing.noting,
            giants_from=self._giants.least if self._giants else EVERYTHING,
        ) as opened:  # fmt: skip
            told = start
            self._runtime.advance(start)
            for block in opened.blocks():
                self._runtime.check()
                if block.giant is None or self._giants is None:
                    yield block
                elif stub := self._giants.keep(number, block, known.missing(block.record, 1)[1] > 0):
                    yield stub
                told, before = opened.consumed, told
                self._runtime.advance(told - before, len(block))
            self._runtime.advance(max(source.size - told, 0))
        source.check_unchanged()
