"""What features a dataset's Examples have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from croupier.example.columns import Kind


@dataclass(frozen=True)
class Feature:
    """One feature of all records."""

    name: str
    kind: Kind
    required: bool = False
    """Every record has it."""
    shortest: int = 0
    """The fewest values that a record has which has the feature."""
    longest: int | None = None
    """The most; None: any number."""
    default: Any = None
    """Stands for it in records that lack it (with `length` values, or one)."""
    dtype: str | None = None
    """Of raw tensors in bytes: each value is one."""
    shape: tuple[int, ...] | None = None
    """Of one record's values, or of its one raw tensor."""
    content: str | None = None
    """What all bytes look like: "jpeg", "png", "gif", "webp", "utf-8", "proto", "raw"."""

    @property
    def length(self) -> int | None:
        """How many values each record has that has the feature, where all have as many."""
        return self.longest if self.longest == self.shortest else None


class Schema(Mapping[str, Feature]):
    """Features by name."""

    def __init__(self, features: Mapping[str, Feature], records: int = 0) -> None:
        self._features = dict(features)
        self.records = records
        """How many records it was inferred from; 0: it was made by hand."""

    def __getitem__(self, name: str) -> Feature:
        return self._features[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def __len__(self) -> int:
        return len(self._features)
