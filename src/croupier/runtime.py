"""Threads, byte budget, progress and cancellation: the one place that every verb gets them from."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from croupier.errors import CancelledError, UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")

MIB = 1 << 20


@dataclass(frozen=True)
class Progress:
    """How far a job is; handed to the `progress` callback about ten times a second."""

    phase: str
    done: int
    total: int | None
    unit: str = "bytes"
    records: int = 0
    rate: float | None = None
    """Units a second, over the last seconds."""
    limit: float | None = None
    """What devices and codecs would allow at best, where that is known."""
    left: float | None = None
    """Seconds to the end of the job, where that can be told."""
    memory: int | None = None
    """What the process takes, but for files in the page cache; where the system tells."""


class Expected(NamedTuple):
    """A phase that will come."""

    phase: str
    seconds: float
    limit: float | None = None
    """Units a second at best."""


class Runtime:
    """What a job may use, and how it is watched and stopped. Leaving its `with` block stops the threads."""

    def __init__(
        self,
        *,
        workers: int | None = None,
        memory: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, not {workers}")
        if memory is not None and memory < 1:
            raise UsageError(f"memory must be at least 1 byte, not {memory}")
        self.workers = workers or usable_cpus()
        self.memory = memory or available_memory() * 4 // 5
        self._report = progress
        self._stop = threading.Event()
        self._cancel = cancel or self._stop
        self._lock = threading.Lock()
        self._state = self._last = Progress("", 0, None)
        self._clock = Clock()
        self._told = 0.0
        self._started = False
        self._threads: list[threading.Thread] = []
        self._tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        with self._lock:
            if kind is None and self._state != self._last:
                self._tell(force=True)

    def close(self) -> None:
        """Stop the threads: work that has begun ends at its next `check`, the rest never begins."""
        self._stop.set()
        with contextlib.suppress(queue.Empty):
            while task := self._tasks.get_nowait():
                task.abandon()
        self._tasks.put(None)
        for thread in self._threads.copy():
            thread.join()

    def check(self) -> None:
        """Raise CancelledError when the job was told to stop; long loops call it once a block."""
        if self._stop.is_set() or self._cancel.is_set():
            raise CancelledError("cancelled")

    def expect(self, phases: Iterable[Expected]) -> None:
        """Say which phases will come, and how long they should take: then the time that is left is known."""
        with self._lock:
            self._clock = Clock(tuple(phases))

    def phase(self, name: str, total: int | None = None, unit: str = "bytes") -> None:
        """Begin a phase of `total` units."""
        with self._lock:
            self._state = Progress(name, 0, total, unit)
            self._clock.begin(name)
            self._tell(force=True)

    def advance(self, done: int, records: int = 0) -> None:
        """Report work; from any thread."""
        if self._report is None:
            return
        with self._lock:
            state = self._state
            self._state = replace(state, done=state.done + done, records=state.records + records)
            self._tell(force=self._state.done == state.total)

    def _tell(self, *, force: bool) -> None:
        now = time.monotonic()
        if self._report is not None and (force or now - self._told >= 0.1):
            self._told, self._last = now, self._state
            self._report(self._clock.look(self._state))

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Task[Result]:
        """Run `function` on a thread; first come, first served."""
        if not self._started:
            self._started = True
            for number in range(self.workers):
                threading.Thread(target=self._work, name=f"croupier_{number}", daemon=True).start()
        task = Task(function, arguments)
        self._tasks.put(task)
        return task

    def beside(self, waiting: int = 1) -> Runtime:
        """Threads of its own for what goes on at the same time, and some more for those that wait."""
        return Runtime(workers=self.workers + waiting, memory=self.memory, cancel=self._cancel)

    def ahead(self, items: Iterator[Item]) -> Iterator[Item]:
        """The next item is made on a thread while this one is used."""

        def following() -> list[Item]:
            return list(itertools.islice(items, 1))

        task = self.submit(following)
        while found := task.result():
            task = self.submit(following)
            yield found.pop()

    def _work(self) -> None:
        # Threads enter themselves, and hand on the word to stop: Ctrl-C inside Thread.start would leave one
        # that `submit` knows nothing of, and that would keep that word from another.
        self._threads.append(threading.current_thread())
        while task := self._tasks.get():
            task.run()
        self._tasks.put(None)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """`function` of each item, on the threads, results in order; a few items are taken ahead."""
        ordered: Ordered[Result] = Ordered(self, budget=2 * self.workers)
        for item in items:
            yield from ordered.put(1, function, item)
        yield from ordered.drain()


class Clock:
    """Rates, and the time that is left.

    All phases that were expected count by the seconds they should take, and what is left takes as much longer
    as what is done did. A twentieth of the whole is taken to have gone as expected, so that the first moments
    do not swing it. Where nothing was expected the phase is all there is.
    """

    def __init__(self, expected: Sequence[Expected] = ()) -> None:
        self._expected = {one.phase: one for one in expected}
        self._whole = sum(one.seconds for one in expected)
        self._past = 0.0  # what the phases before this one should have taken
        self._phase = ""
        self._began = self._phase_began = time.monotonic()
        self._marks: deque[tuple[float, int]] = deque(maxlen=30)  # when how much was done: some three seconds

    def begin(self, phase: str) -> None:
        """The one before it is over."""
        if before := self._expected.get(self._phase):
            self._past += before.seconds
        self._phase, self._phase_began = phase, time.monotonic()
        self._marks.clear()

    def look(self, state: Progress) -> Progress:
        """With all that the clock, and the system, can tell."""
        now = time.monotonic()
        self._marks.append((now, state.done))
        then, done = self._marks[0]
        rate = (state.done - done) / (now - then) if now > then else None
        expected = self._expected.get(state.phase)
        return replace(
            state,
            rate=rate,
            limit=expected and expected.limit,
            left=self._left(state, expected, now),
            memory=used_memory(),
        )

    def _left(self, state: Progress, expected: Expected | None, now: float) -> float | None:
        share = min(state.done / state.total, 1.0) if state.total else 0.0
        if expected is None or not self._whole:
            rest = (now - self._phase_began) * (1 - share) / share if share else None
            return rest if not self._expected else None
        behind = self._past + share * expected.seconds
        prior = self._whole / 20
        pace = (now - self._began + prior) / (behind + prior)
        return max(self._whole - behind, 0.0) * pace


class Task(Generic[Result]):
    """A call on a thread, and how it ended.

    Not concurrent.futures': Ctrl-C between two lines of its `with condition` leaves that condition locked,
    its worker waits for ever, and so does whoever joins the worker. Here all locking is in single C calls.
    """

    def __init__(self, function: Callable[..., Result], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments
        self._ended = threading.Lock()
        self._ended.acquire()
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """On a thread."""
        try:
            self._results.append(self._function(*self._arguments))
        except BaseException as error:
            self._error = error
        finally:
            del self._function, self._arguments
            self._ended.release()

    def abandon(self) -> None:
        """It will not be run."""
        self._error = CancelledError("cancelled")
        self._ended.release()

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return not self._ended.locked()

    def result(self) -> Result:
        """Wait for the end."""
        with self._ended:
            pass
        if self._error is not None:
            raise self._error
        return self._results[0]


class Ordered(Generic[Result]):
    """Work goes to the threads, results come back in order, and at most `budget` units are under way.

    The one who puts work in also takes results out, so a full budget waits for the oldest result
    instead of blocking for ever.
    """

    def __init__(self, runtime: Runtime, budget: int) -> None:
        self._runtime, self._budget, self._used = runtime, budget, 0
        self._pending: deque[tuple[int, Task[Result]]] = deque()

    def put(self, weight: int, function: Callable[..., Result], *arguments: Any) -> Iterator[Result]:
        """Hand work over, and yield the results that are ready or had to be waited for."""
        self._runtime.check()
        while self._pending and (self._used + weight > self._budget or self._pending[0][1].done()):
            yield self.take()
        self._used += weight
        self._pending.append((weight, self._runtime.submit(function, *arguments)))

    def drain(self) -> Iterator[Result]:
        """Yield all results that are still under way."""
        while self._pending:
            yield self.take()

    def take(self) -> Result:
        """Wait for the oldest result."""
        weight, future = self._pending.popleft()
        self._used -= weight
        return future.result()


def usable_cpus() -> int:
    """Cores that this process may use: affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _cgroup_value("cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, -(-int(quota) // int(period)))
    return max(1, count)


def used_memory() -> int | None:
    """Anonymous and shared memory of this process; None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # macOS
        return None
    kept = [line.split() for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return sum(int(words[1]) for words in kept) * 1024 if kept else None


def available_memory() -> int:
    """Bytes that this process may still take: the machine's, or its cgroup's where that is less."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
        free = values["MemAvailable"]
    except (OSError, KeyError):  # macOS
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        most, taken = _cgroup_value(limit), _cgroup_value(used)
        if most.isdigit() and taken.isdigit():
            free = min(free, max(int(most) - int(taken) + _cached_files(), 0))
    return max(free, 64 * MIB)


def _cached_files() -> int:
    """Bytes of the cgroup's page cache: they count as used, and give way."""
    words = [line.split() for line in _cgroup_value("memory.stat").splitlines()]
    return sum(int(value) for name, value in words if name in ("active_file", "inactive_file"))


def _cgroup_value(name: str) -> str:
    """A setting of this process's own cgroup, of version 2 or (memory alone) 1; or nothing."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        for _, controllers, group in lines:
            if controllers in ("", "memory"):
                with contextlib.suppress(OSError):
                    return (root / controllers / group.lstrip("/") / name).read_text().strip()
    return ""
