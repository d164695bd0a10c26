"""How long a shuffle will take, and what bounds it: arithmetic on facts, nothing is looked at here.

A phase is made of steps. In a step devices and cores work at the same time, so it takes as long as the
slowest of them: a device reads or writes, one after the other, and cores share what there is to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from croupier.codec import transcode
from croupier.codec.detect import Compression
from croupier.output import DIRECT_FROM
from croupier.shuffling.probe import RANDOM, Device
from croupier.shuffling.run import PER_RECORD

# Seconds of a core, for each byte and each record. Measured on a virtual Zen 5 of two cores: processor time
# (os.times) at the edges of the phases of whole shuffles of 1.3 to 2.5 GB, of records of 200 bytes, 1 KB,
# 100 KB and 155 KB, in memory and by way of a disk.
TOUCH = 1.0e-9
"""A byte of memory that is written for the first time: 0.1 to 2.5 on that machine, which has to ask its host
for it or has it, so that no sample tells."""
READ = 0.45e-9, 80e-9
"""From the page cache or the codec: checksums, fingerprint, copy into a run."""
SORT = 0.0, 170e-9
"""Keys and their order, on one core."""
SPILL = 0.35e-9, 150e-9
"""Gathered in order, checksum, handed to the device; and much the same on the way back."""
WRITE = 0.3e-9, 120e-9
"""Gathered in order, checksums and fingerprint again, handed to the device."""
BUFFERED = 1.0e-9
"""A byte that is written by way of the page cache, by one thread."""
PAGE = 4096
_WINDOWS = 256 << 20
"""Bytes of memory for records that are read by number."""
PAYS = 1.25
"""What is spilled is compressed, at level 1, where it becomes so much smaller."""


@dataclass(frozen=True)
class Level:
    """What a compression level does with a sample."""

    level: transcode.Level
    ratio: float
    """Bytes to compressed bytes."""
    rate: float
    """Bytes a second and core."""


@dataclass(frozen=True)
class Place:
    """A folder, which device it is on, and how fast that is, if known."""

    folder: str
    number: int
    device: Device | None


@dataclass(frozen=True)
class Facts:
    """All that a forecast depends on."""

    strategy: str
    stays: bool
    """Whether fragments stay in memory until they are written."""
    memory: int
    """The budget."""
    fixed: int
    """Of that, what is not for records."""
    workers: int
    compression: Compression
    level: transcode.Level
    input_bytes: int
    inflated_bytes: int
    """Of the stream, what comes out of compressed inputs."""
    stream_bytes: int
    records: int
    counted: bool
    """By tables; else estimated from a sample."""
    cached: float
    """The share of the inputs that the page cache holds."""
    roomy: bool
    """Whether it has room for all of them."""
    inflate: float
    """Bytes a second and core."""
    levels: Sequence[Level]
    """Those that were tried: the one asked for, and level 1, which is that of what is spilled."""
    source: Place
    target: Place
    temporary: Place

    def at(self, level: transcode.Level) -> Level:
        """What was found of a level."""
        return next(one for one in self.levels if one.level == level)

    @property
    def output_bytes(self) -> int:
        """All shards."""
        packed = self.compression is not Compression.NONE
        return int(self.stream_bytes / self.at(self.level).ratio) if packed else self.stream_bytes

    @property
    def spilled_bytes(self) -> int:
        """Temporary files: records, compressed where that pays, or what will be the output's fragments."""
        if self.strategy == "fragments":
            return 0 if self.stays else self.output_bytes
        if self.strategy != "spill":
            return 0
        ratio = self.at(1).ratio
        return int(self.stream_bytes / ratio) if ratio > PAYS else self.stream_bytes

    @property
    def held_bytes(self) -> int:
        """What is in memory, as far as memory goes."""
        held = {
            "memory": self.stream_bytes,
            "fragments": (1 if self.stays else 2) * self.output_bytes,
            "spill": 2 * self.stream_bytes,
            "gather": min(_WINDOWS, self.stream_bytes),
        }
        return min(self.memory - self.fixed, held[self.strategy] + self.records * PER_RECORD)

    @property
    def touching(self) -> float:
        """Seconds of a core, for all that memory once."""
        return self.held_bytes * TOUCH

    def cost(self, price: tuple[float, float]) -> float:
        """Seconds of a core for all bytes and records."""
        return self.stream_bytes * price[0] + self.records * price[1]

    @property
    def inflating(self) -> float:
        """Seconds of a core."""
        return self.inflated_bytes / self.inflate

    @property
    def deflating(self) -> float:
        """Seconds of a core, for the output."""
        packed = self.compression is not Compression.NONE
        return self.stream_bytes / self.at(self.level).rate if packed else 0.0

    @property
    def packing(self) -> tuple[float, float]:
        """Seconds of a core to compress what is spilled, and to undo it."""
        if self.at(1).ratio <= PAYS:
            return 0.0, 0.0
        return self.stream_bytes / self.at(1).rate, self.stream_bytes / self.inflate


@dataclass(frozen=True)
class Phase:
    """What `Runtime.phase` begins under this name."""

    name: str
    bytes: int
    """What its progress counts up to."""
    seconds: float
    limit_seconds: float
    """What devices and codecs alone would take."""
    bound: str
    """What most of the time goes to."""
    limits: dict[str, float]
    """Seconds that each would take if all else were free."""


@dataclass(frozen=True)
class Forecast:
    """See `predict`."""

    seconds: float
    limit_seconds: float
    bound: str
    """"reading", "writing", "inflating", "deflating", or "memory": sorting, copying and checking."""
    phases: Sequence[Phase]
    records: int
    counted: bool
    cached: float
    peak_bytes: int
    output_bytes: int
    spilled_bytes: int
    levels: Sequence[tuple[transcode.Level, float, int]]
    """Compression levels: what the whole would take, and bytes of output."""
    others: Sequence[tuple[str, float, int]]
    """Other strategies: what the whole would take, and temporary bytes."""
    places: Sequence[Place]
    """Whose devices are read from or written to; one of unknown speed counts as nothing."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""

        def rows(names: str, values: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
            return [dict(zip(names.split(), row, strict=True)) for row in values]

        return asdict(self) | {
            "levels": rows("level seconds output_bytes", self.levels),
            "others": rows("strategy seconds temporary_bytes", self.others),
        }


class _Step:
    """What happens at the same time: seconds that each device, and the cores together, are busy."""

    def __init__(self) -> None:
        self.limits: dict[str, float] = {}
        self._devices: dict[int, float] = {}
        self._cores = self._codec = 0.0

    def read(self, place: Place, size: float) -> _Step:
        return self._move("reading", place, size / place.device.read if place.device else 0.0)

    def write(self, place: Place, size: float) -> _Step:
        return self._move("writing", place, size / place.device.write if place.device else 0.0)

    def fetch(self, place: Place, records: int, size: float) -> _Step:
        """Records at random places: whole pages; each costs a read, or what its bytes take."""
        if place.device is None:
            return self
        pages = (size + records * (PAGE - 1)) / place.device.read
        return self._move("reading", place, max(pages, records / place.device.random / _reads(size, records)))

    def _move(self, what: str, place: Place, seconds: float) -> _Step:
        self._devices[place.number] = self._devices.get(place.number, 0.0) + seconds
        return self._note(what, seconds)

    def compute(self, what: str, seconds: float, cores: int) -> _Step:
        self._cores += seconds / cores
        self._codec += seconds / cores if what != "memory" else 0.0
        return self._note(what, seconds / cores)

    def _note(self, what: str, seconds: float) -> _Step:
        self.limits[what] = self.limits.get(what, 0.0) + seconds
        return self

    @property
    def seconds(self) -> float:
        return max([self._cores, *self._devices.values()])

    @property
    def limit_seconds(self) -> float:
        return max([self._codec, *self._devices.values()])

    @property
    def bound(self) -> str:
        """The largest part of what is busy longest."""
        cores = self._cores >= max([*self._devices.values(), 0.0])
        return max(
            (name for name in self.limits if cores != (name in ("reading", "writing"))),
            key=lambda name: self.limits[name],
            default="memory",
        )


def _reads(size: float, records: int) -> float:
    """How many small reads a device does while it does one of the size that was measured: at most 4 to 1."""
    return min(max(RANDOM * records / max(size, 1), 1.0), 4.0)


def predict(facts: Facts, *, levels: Sequence[transcode.Level] = (), others: Sequence[str] = ()) -> Forecast:
    """What a shuffle takes; also at other compression levels, and by other strategies."""
    phases = _STRATEGIES[facts.strategy](facts)
    told = [_phase(*phase) for phase in phases]
    steps = [step for _, _, steps in phases for step in steps]
    return Forecast(
        seconds=sum(phase.seconds for phase in told),
        limit_seconds=sum(phase.limit_seconds for phase in told),
        bound=_bound(steps),
        phases=told,
        records=facts.records,
        counted=facts.counted,
        cached=facts.cached,
        peak_bytes=facts.fixed + facts.held_bytes,
        output_bytes=facts.output_bytes,
        spilled_bytes=facts.spilled_bytes,
        levels=[_with_level(facts, level) for level in levels],
        others=[_with_strategy(facts, strategy) for strategy in others],
        places=list({place.number: place for place in _used(facts)}.values()),
    )


def _used(facts: Facts) -> list[Place]:
    """One that is known stands for its device where another folder on it is not."""
    used = [facts.source, facts.target, *([facts.temporary] if facts.spilled_bytes else [])]
    return sorted(used, key=lambda place: place.device is not None)


def _with_level(facts: Facts, level: transcode.Level) -> tuple[transcode.Level, float, int]:
    other = replace(facts, level=level)
    return level, predict(other).seconds, other.output_bytes


def _with_strategy(facts: Facts, strategy: str) -> tuple[str, float, int]:
    other = replace(facts, strategy=strategy)
    return strategy, predict(other).seconds, other.spilled_bytes


def _bound(steps: Sequence[_Step]) -> str:
    """What bounds the steps that take most of the time."""
    seconds: dict[str, float] = {}
    for step in steps:
        seconds[step.bound] = seconds.get(step.bound, 0.0) + step.seconds
    return max(seconds, key=lambda name: seconds[name])


def _phase(name: str, size: int, steps: Sequence[_Step]) -> Phase:
    limits: dict[str, float] = {}
    for step in steps:
        for what, seconds in step.limits.items():
            limits[what] = limits.get(what, 0.0) + seconds
    return Phase(
        name,
        size,
        sum(step.seconds for step in steps),
        sum(step.limit_seconds for step in steps),
        _bound(steps),
        limits,
    )


# The strategies: phases, each with its name, what its progress counts, and its steps

_Phases = list[tuple[str, int, list[_Step]]]


def _come(facts: Facts) -> _Step:
    """All inputs, into memory."""
    step = _Step().read(facts.source, facts.input_bytes * (1 - facts.cached))
    step.compute("inflating", facts.inflating, facts.workers)
    return step.compute("memory", facts.cost(READ) + facts.touching, facts.workers)


def _order(facts: Facts) -> _Step:
    return _Step().compute("memory", facts.cost(SORT), 1)


def _go(facts: Facts, step: _Step) -> _Step:
    """All shards, from memory.

    One thread proves plain blocks and hands them to the device; a zlib file is one stream, and files come one
    after the other.
    """
    cores = facts.workers if facts.compression is Compression.GZIP else 1
    step.write(facts.target, facts.output_bytes)
    step.compute("deflating", facts.deflating, cores)
    step.compute("memory", facts.cost(WRITE), 1 if facts.compression is Compression.NONE else facts.workers)
    if facts.compression is not Compression.NONE or facts.output_bytes < DIRECT_FROM:
        step.compute("memory", facts.output_bytes * BUFFERED, 1)
    return step


def _in_memory(facts: Facts) -> _Phases:
    return [
        ("read", facts.input_bytes, [_come(facts), _order(facts)]),
        ("write", facts.stream_bytes, [_go(facts, _Step())]),
    ]


def _by_spilling(facts: Facts) -> _Phases:
    pack, unpack = facts.packing
    out = _Step().write(facts.temporary, facts.spilled_bytes)
    out.compute("deflating", pack, facts.workers).compute("memory", facts.cost(SPILL), facts.workers)
    back = _Step().read(facts.temporary, facts.spilled_bytes)
    back.compute("inflating", unpack, facts.workers).compute("memory", facts.cost(SPILL), facts.workers)
    return [
        ("read", facts.input_bytes, [_come(facts), _order(facts), out]),
        ("write", facts.stream_bytes, [_go(facts, back)]),
    ]


def _by_fragments(facts: Facts) -> _Phases:
    """Each record is deflated once, as it comes; afterwards compressed bytes are moved alone."""
    come = _come(facts).write(facts.temporary, facts.spilled_bytes)
    come.compute("deflating", facts.deflating, facts.workers)
    move = _Step().read(facts.temporary, facts.spilled_bytes).write(facts.target, facts.output_bytes)
    moving = facts.output_bytes * (SPILL[0] + WRITE[0]) + facts.records * WRITE[1]
    move.compute("memory", moving, facts.workers)
    return [
        ("read", facts.input_bytes, [come, _order(facts)]),
        ("write", facts.stream_bytes, [move]),
    ]


def _by_gathering(facts: Facts) -> _Phases:
    """The places of records are found, by their headers; then each is fetched when its turn comes.

    Where records are small, all is read to find them, and stays in the page cache if that has room.
    """
    cold = 1 - facts.cached
    walk = _Step().fetch(facts.source, int(facts.records * cold), 0)
    scan = _Step().read(facts.source, facts.input_bytes * cold)
    find = _Step() if facts.counted else min(walk, scan, key=lambda way: way.seconds)
    if find is scan and facts.roomy:
        cold = 0.0
    find.compute("memory", facts.cost(SORT) + facts.touching, 1)
    fetches = facts.records
    if facts.roomy:  # a page is read once for all that is in it
        fetches = min(fetches, facts.stream_bytes // PAGE)
    fetch = _Step().fetch(facts.source, int(fetches * cold), facts.stream_bytes * cold)
    fetch.compute("memory", facts.cost(READ), facts.workers)
    return [
        ("index", facts.input_bytes, [find]),
        ("gather", facts.stream_bytes, [_go(facts, fetch)]),
    ]


_STRATEGIES: dict[str, Callable[[Facts], _Phases]] = {
    "memory": _in_memory,
    "spill": _by_spilling,
    "fragments": _by_fragments,
    "gather": _by_gathering,
}
