"""What some records are, all together: so that none is lost on the way."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from croupier import _kernel

Totals = np.ndarray[tuple[int], np.dtype[np.uint64]]


class Proof(NamedTuple):
    """Records, payload bytes and fingerprint: of what came in, and of what went out."""

    records: int = 0
    payload_bytes: int = 0
    fingerprint: int = 0

    @classmethod
    def of(cls, totals: Totals) -> Proof:
        """From what the kernel adds up."""
        records, payload, low, high = totals.tolist()
        return cls(records, payload, low + (high << 64))

    @classmethod
    def of_one(cls, length: int, crc: int) -> Proof:
        """Of a record by its payload's size, and checksum as its frame stores it."""
        totals = np.zeros(4, np.uint64)
        _kernel.fingerprint_of(np.array([length], np.uint64), np.array([crc], np.uint64), totals)
        return cls.of(totals)

    def plus(self, other: Proof) -> Proof:
        """Of both together."""
        fingerprint = (self.fingerprint + other.fingerprint) % (1 << 128)
        return Proof(self.records + other.records, self.payload_bytes + other.payload_bytes, fingerprint)

    def minus(self, other: Proof) -> Proof:
        """What is left without some of it."""
        fingerprint = (self.fingerprint - other.fingerprint) % (1 << 128)
        return Proof(self.records - other.records, self.payload_bytes - other.payload_bytes, fingerprint)

    def as_dict(self) -> dict[str, Any]:
        """For the receipt."""
        return self._asdict() | {"fingerprint": f"{self.fingerprint:032x}"}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Proof:
        """The same again."""
        records, size = int(content["records"]), int(content["payload_bytes"])
        return cls(records, size, int(content["fingerprint"], 16))
