"""Which records go into which part."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from croupier.errors import UsageError

if TYPE_CHECKING:
    from croupier.dataset import Dataset

Rows = np.ndarray[tuple[int], np.dtype[np.intp]]

# Philox's second key word, where a shuffle has the file's number: so splits are unlike any shuffle.
_STREAM = (1 << 64) - 1


def split_by_number(
    data: Dataset, fractions: Sequence[float], seed: int, key: Callable[[bytes], Hashable] | None
) -> list[Rows]:
    """Positions in `data` for each part, ascending; the sizes are exact without a key.

    By raw numbers of Philox and not by numpy's permutations: those may change between numpy's versions, and
    a record of the test set would be in the training set.
    """
    edges = _edges(fractions)
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed must be from 0 to 2^64 - 1, not {seed}")
    if key is not None:
        draws = np.array([_draw(key(payload), seed) for payload in data], np.float64)
        part = np.searchsorted(edges[1:-1], draws, side="right")
        return [np.flatnonzero(part == number) for number in range(len(fractions))]
    draws_ = np.random.Philox(key=np.array([seed, _STREAM], np.uint64)).random_raw(len(data))
    order = np.argsort(draws_, kind="stable")
    cuts = np.rint(np.array(edges) * len(data)).astype(np.intp)
    return [np.sort(order[begin:end]) for begin, end in pairwise(cuts.tolist())]


def split_by_key(data: Dataset, key: Callable[[bytes], Hashable]) -> dict[Hashable, Rows]:
    """Positions in `data` for each key, in the order in which the keys come."""
    groups: dict[Hashable, list[int]] = {}
    for number, payload in enumerate(data):
        groups.setdefault(key(payload), []).append(number)
    return {name: np.array(rows, np.intp) for name, rows in groups.items()}


def _edges(fractions: Sequence[float]) -> list[float]:
    total = sum(fractions)
    if not fractions or min(fractions) < 0 or not abs(total - 1) <= 1e-6:  # not > 1e-6: nan is neither
        raise UsageError(f"fractions must be positive and sum up to 1, not {list(fractions)} (sum {total:g})")
    edges = [0.0]
    for fraction in fractions:
        edges.append(edges[-1] + fraction)
    edges[-1] = 1.0
    return edges


def _draw(key: Hashable, seed: int) -> float:
    """From 0 to 1, by the key alone: the same in every process, unlike hash()."""
    digest = hashlib.blake2b(repr((int(seed), _plain(key))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 64)


def _plain(key: Any) -> Any:
    """Of Python's own types, and alike for equal keys: 1, 1.0, True and numpy's 1 are written differently."""
    if isinstance(key, tuple):
        return tuple(_plain(one) for one in key)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, numbers.Integral | np.bool_):
        return int(key)
    if isinstance(key, numbers.Real):
        number = float(key)
        return int(number) if number.is_integer() else number
    kind = type(key).__name__
    raise UsageError(f"a key must be a text, bytes, a number or a tuple of these, not {kind}")
