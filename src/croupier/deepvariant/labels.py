"""How many records have which label, from the blocks in which they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np

from croupier import _kernel
from croupier.errors import ExampleError
from croupier.example import Kind, decode, decode_batch
from croupier.frames import FOOTER, HEADER, Block

LABEL = "label"
CLASSES = 1000
"""Labels from 0 up to this are classes of their own: data that is no DeepVariant's could have any number."""

_NAMES, _KINDS = [LABEL.encode()], bytes([Kind.INT64])

MISSING, OTHER, NO_EXAMPLE = "missing", "other", "no_example"


def tally(block: Block) -> dict[str, int]:
    """How many records of each class, with other labels, without one, and that are no Examples."""
    parsed = _kernel.ExampleColumns(block.buffer, block.bounds, _NAMES, _KINDS, False, False, 1, True)
    if parsed.flaw is None:
        _, _, count, _, missing, ragged, each = parsed.columns[0]
        if each == 1 and not ragged and not missing:  # as it should be
            values = np.empty(count, np.int64)
            parsed.fill(block.buffer, [(values, None, None, None)])
            return _sums(values, 0, 0)
    return _with_gaps(block)


def _with_gaps(block: Block) -> dict[str, int]:
    try:
        found = decode_batch(block, columns=[LABEL], lacking=True, threads=1).get(LABEL)
    except ExampleError:  # of one record, or the labels of two are of different kinds
        return _one_by_one(block)
    if found is None or found.kind is not Kind.INT64:
        return {MISSING: len(block)}
    firsts = found.values[found.rows[:-1][found.counts > 0]]  # of several the first, as both scripts do
    return _sums(firsts, len(block) - len(firsts), 0)


def _one_by_one(block: Block) -> dict[str, int]:
    firsts = []
    examples = 0
    for begin, end in zip(block.bounds[:-1].tolist(), block.bounds[1:].tolist(), strict=True):
        with contextlib.suppress(ExampleError):
            values = decode(block.buffer[begin + HEADER : end - FOOTER]).get(LABEL)
            examples += 1
            if isinstance(values, np.ndarray) and values.dtype == np.int64 and len(values):
                firsts.append(values[0])
    return _sums(np.array(firsts, np.int64), examples - len(firsts), len(block) - examples)


def _sums(labels: np.ndarray[tuple[int], np.dtype[np.int64]], missing: int, none: int) -> dict[str, int]:
    known = labels[labels.view(np.uint64) < CLASSES]
    sums = {f"class{label}": count for label, count in enumerate(np.bincount(known).tolist())}
    sums |= {OTHER: len(labels) - len(known), MISSING: missing, NO_EXAMPLE: none}
    return {name: count for name, count in sums.items() if count}


def in_order(sums: Mapping[str, int]) -> dict[str, int]:
    """class0, class1, ... class10, then the rest."""
    rest = (OTHER, MISSING, NO_EXAMPLE)

    def place(name: str) -> tuple[int, int]:
        return (1, rest.index(name)) if name in rest else (0, int(name.removeprefix("class")))

    return {name: sums[name] for name in sorted(sums, key=place)}
