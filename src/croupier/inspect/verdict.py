"""What is said of mixing: the numbers, against those of a random order, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from croupier.example.columns import Int64s
from croupier.inspect import chance
from croupier.inspect.chance import Chance
from croupier.inspect.origin import Placed

NEAR = 0.01
"""Records that are no further apart than this share of all are near."""
FEW = 10
"""Records of which nothing can be said."""
BADLY, WELL, SURE = 0.5, 0.99, 4.0
"""Scores below which mixing is bad, and from which it is good; and standard deviations that are no chance."""


class Gap(NamedTuple):
    """Pairs of neighbours in the source that are now `least` to `most` records apart."""

    least: int
    most: int
    pairs: int
    expected: float
    """In a random order."""


@dataclass
class Order:
    """Against the order of the source. All that is "expected" is so in a random order."""

    source: str
    """What tells it: a feature, or a receipt."""
    records: int
    """Of which it is known: all, or a sample."""
    pairs: int
    """Of records that were neighbours in the source."""
    adjacent: int
    """Of these, how many still are."""
    adjacent_expected: float
    adjacent_z: float
    """Standard deviations from that, here and in all that follows."""
    near_distance: int
    near: int
    """How many are at most that far apart."""
    near_expected: float
    near_z: float
    displacement: float
    """Mean distance of a record's place from that in the source, as a share of all records."""
    displacement_expected: float
    displacement_z: float
    gaps: list[Gap]
    checked: int = 0
    """Records that were compared with the inputs that a receipt names."""


@dataclass
class Labels:
    """Runs of equal labels."""

    feature: str
    classes: int
    runs: int
    runs_expected: float
    runs_z: float
    longest_run: int
    longest_run_expected: float
    longest_run_p: float
    """The probability of one that long."""
    longest_run_label: str
    top: list[tuple[str, int]]
    """The most frequent labels, and how many records have each."""
    chi_square: float | None = None
    """Of files and labels; None where there is only one file, or label."""
    freedom: int = 0
    chi_square_expected: float = 0.0
    chi_square_z: float = 0.0
    cramers_v: float = 0.0
    """0: all files have the same share of each label; 1: no two files have a label in common."""


@dataclass
class Mixing:
    """See `mixing`."""

    records: int
    files: int
    verdict: str = "unknown"
    """"well", "partly", "badly", or "unknown"."""
    reason: str = ""
    """The number that decides."""
    order: Order | None = None
    labels: Labels | None = None
    identical: int = 0
    """Records that equal the one before them, byte for byte."""
    identical_expected: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and why."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        order = self.order and vars(self.order) | {"gaps": [gap._asdict() for gap in self.order.gaps]}
        return vars(self) | {"order": order, "labels": self.labels and vars(self.labels)}


def against(source: str, records: int, placed: Placed, *, checked: int = 0) -> Order:
    """Where neighbours of the source stand now, and how far all are from where they were."""
    positions, linked, even = placed
    gaps = np.abs(np.diff(positions))[linked]
    pairs, near_distance = len(gaps), max(int(records * NEAR), 1)
    adjacent, near = int((gaps == 1).sum()), int((gaps <= near_distance).sum())
    chained = int((linked[1:] & linked[:-1]).sum())
    by_chance = chance.still_adjacent(records, pairs, chained)
    near_chance = chance.within(records, pairs, near_distance)
    known = len(even)
    ranks = np.arange(known) if known == records else (np.arange(known) + 0.5) * (records / known) - 0.5
    displaced, away = float(np.abs(even - ranks).mean()) / records, chance.displacement(records, known)
    return Order(
        source, known, pairs, adjacent, by_chance.mean, by_chance.z(adjacent),
        near_distance, near, near_chance.mean, near_chance.z(near),
        displaced, away.mean, away.z(displaced), _gaps(records, gaps), checked,
    )  # fmt: skip


def _gaps(records: int, gaps: Int64s) -> list[Gap]:
    """By powers of ten."""
    edges = [1]
    while edges[-1] < records - 1:
        edges.append(min(edges[-1] * 10, records - 1))
    below = [0, *np.searchsorted(np.sort(gaps), edges, "right").tolist()]
    shares = [0.0, *chance.share_within(records, np.array(edges, np.float64)).tolist()]
    pairs, expected = np.diff(below).tolist(), (np.diff(shares) * len(gaps)).tolist()
    begins = [1, *(edge + 1 for edge in edges[:-1])]
    return [Gap(*row) for row in zip(begins, edges, pairs, expected, strict=True)]


# The verdict


class _Measure(NamedTuple):
    score: float
    """1: as in a random order, or better; 0: as if nothing had been mixed."""
    certain: bool
    """It is no chance."""
    reason: str


def judge(found: Mixing) -> None:
    measures = list(_measures(found))
    if found.records < FEW:
        found.verdict, found.reason = "unknown", f"{found.records} records are too few to tell"
        return
    bad = [one for one in measures if one.certain and one.score < WELL]
    if bad:
        found.verdict = "badly" if min(one.score for one in bad) < BADLY else "partly"
        found.reason = min(bad, key=lambda one: round(one.score, 1)).reason  # or the first one
    elif found.order is not None or (found.labels is not None and found.labels.classes > 1):
        found.verdict, found.reason = "well", measures[0].reason
        if found.order is None:
            found.reason += "; labels alone tell this"
    else:
        found.reason = "neither the order of the source nor a label is known"


def _measures(found: Mixing) -> Iterator[_Measure]:
    """The first one speaks where all is well."""
    order, labels, records = found.order, found.labels, found.records
    if order is not None and order.pairs:
        yield _Measure(
            _toward(order.adjacent, order.pairs, order.adjacent_expected),
            order.adjacent_z > SURE,
            f"{percent(order.adjacent, order.pairs)} of neighbours were neighbours in the source "
            f"({percent(order.adjacent_expected, order.pairs)} in a random order)",
        )
        yield _Measure(
            _toward(order.displacement, 0.0, order.displacement_expected),
            order.displacement_z < -SURE,
            f"records are {percent(order.displacement, 1)} of the dataset away from where they stood in the "
            f"source ({percent(order.displacement_expected, 1)} in a random order)",
        )
        yield _Measure(
            _toward(order.near, order.pairs, order.near_expected),
            order.near_z > SURE,
            f"{percent(order.near, order.pairs)} of neighbours in the source are within "
            f"{order.near_distance:,} records of each other ({percent(order.near_expected, order.pairs)} in "
            "a random order)",
        )
    if labels is not None and labels.classes > 1:
        yield _Measure(
            _toward(labels.runs, labels.classes, labels.runs_expected),
            labels.runs_z < -SURE,
            f"{labels.runs:,} runs of equal {labels.feature!r} ({labels.runs_expected:,.0f} in a random "
            "order)",
        )
        yield _Measure(
            max(min(labels.longest_run_expected / labels.longest_run, 1.0), BADLY),
            labels.longest_run_p < 1e-6,
            f"{labels.longest_run:,} records in a row have {labels.feature!r} {labels.longest_run_label} "
            f"({labels.longest_run_expected:,.0f} in a random order)",
        )
        yield _Measure(
            1 - labels.cramers_v,
            labels.chi_square_z > SURE,
            f"files do not have the same share of each {labels.feature!r} (Cramer's V "
            f"{labels.cramers_v:.2g}, and 0 in a random order)",
        )
    if records > 1:
        expected = Chance(found.identical_expected, max(found.identical_expected, 1.0) ** 0.5)
        yield _Measure(
            _toward(found.identical, records - 1, found.identical_expected),
            expected.z(found.identical) > SURE,
            f"{found.identical:,} records equal the one before them ({found.identical_expected:,.0f} in a "
            "random order)",
        )


def _toward(found: float, worst: float, random: float) -> float:
    """How far on the way from the worst to a random order."""
    return 1.0 if worst == random else min(max((found - worst) / (random - worst), 0.0), 1.0)


def percent(part: float, whole: float) -> str:
    """Two or three digits of a share."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 10 <= share < 100 else f"{share:.3g} %" if share == 100 else f"{share:.2g} %"
