"""What a dataset's records seem to be, from a few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from croupier.dataset import Dataset
from croupier.errors import CroupierError, ExampleError
from croupier.example import decode_batch
from croupier.example.schema import Schema
from croupier.inspect import kept
from croupier.inspect.describe import parse
from croupier.inspect.schema import schema_of
from croupier.inspect.show import show

FILES, RECORDS, BYTES = 8, 16, 4 << 20
"""Files of which the first records are looked at; how many; and how many bytes in a file."""
LARGEST = 256 << 20
"""Bytes of a record that is looked at if there is no other."""


@dataclass
class Glance:
    """See `glance`."""

    schema: Schema | None = None
    """None where the records are no Examples, or cannot be read."""
    problem: str = ""
    """Why there is none."""
    records: int = 0
    """How many were looked at,"""
    files: int = 0
    """of so many files."""
    everything: bool = False
    """The schema is a kept one, of all records."""
    lists: bool = False
    """There are SequenceExamples: the schema is of their context alone."""

    def of(self, records: int) -> int:
        """From how many of all records the schema is."""
        return records if self.everything else self.records if self.schema is not None else 0


def glance(data: Dataset) -> Glance:
    """The kept schema of a whole dataset; else that of the first records of some files.

    Not of random ones: in some files these are slow to reach.
    """
    known = kept.load(data)
    try:
        payloads, files = _first_ones(data)
    except CroupierError as error:
        return Glance(known, str(error), everything=known is not None)
    parsed = [parse(payload) for payload in payloads]
    complete = known is not None or len(payloads) == len(data)
    found = Glance(known, records=len(payloads), files=files, everything=complete)
    found.lists = any(one is not None and one.feature_lists for one in parsed)
    if known is None and payloads:
        strange = sum(one is None for one in parsed)
        if strange:
            found.problem = f"{strange:,} of {len(payloads):,} records that were looked at are no Examples"
            return found
        try:
            found.schema = schema_of([decode_batch(payloads, threads=1)])
        except ExampleError as error:
            found.problem = error.problem
    return found


def _first_ones(data: Dataset) -> tuple[list[bytes], int]:
    """At most RECORDS of each of FILES files, and no more than BYTES of these; and of how many files."""
    shards = data.shards
    firsts = np.cumsum([0, *(shard.records for shard in shards)]).tolist()
    payloads: list[bytes] = []
    files = 0
    for place in sorted({len(shards) * number // FILES for number in range(FILES)}):
        shard, first = shards[place], firsts[place]
        sizes = np.cumsum(data.skip(first).take(min(RECORDS, shard.records)).lengths())
        count = int((sizes <= BYTES).sum())
        if not count and not payloads:
            count = int((sizes <= LARGEST)[:1].sum())
        payloads += [one.payload for one in show(shard.path, head=count)] if count else []
        files += count > 0
    return payloads, files
