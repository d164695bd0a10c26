"""Every order is as likely as any other: counted over many seeds, against what chance would give.

Seeds are fixed, so each of these passes always or never. Each statistic is also shown an order that is almost
random, and must object to it.
"""

import collections
import itertools
import math
import os
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

import croupier
from croupier import _kernel
from dataset_help import framed

Z = 4.0
"""How many standard deviations chance is allowed: one in 30,000, for a seed that nobody picked."""


def chi_square(counts, expected):
    return float(((np.asarray(counts) - expected) ** 2 / expected).sum())


def limit(freedom):
    """What chi-square exceeds once in 30,000 times (Wilson and Hilferty)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + Z * math.sqrt(part)) ** 3


def orders(sizes, seeds):
    """The order of files with so many records, for each of many seeds: a row of record numbers a seed."""
    files, counts = np.arange(len(sizes), dtype=np.uint64), np.array(sizes, np.uint64)
    keys = np.empty((len(seeds), sum(sizes)), np.uint64)
    for row, seed in enumerate(seeds):
        _kernel.record_keys(seed, files, np.zeros(len(sizes), np.uint64), counts, keys[row])
    return np.argsort(keys, axis=1, kind="stable")


def position_misfit(rows):
    """Which record stands where; in standard deviations from what chance gives."""
    seeds, n = rows.shape
    counts = np.zeros((n, n))
    for place in range(n):
        counts[:, place] = np.bincount(rows[:, place], minlength=n)
    freedom = (n - 1) ** 2
    return (chi_square(counts, seeds / n) - freedom) / math.sqrt(2 * freedom)


def neighbour_misfit(rows):
    """Which record follows which."""
    seeds, n = rows.shape
    pairs = np.bincount((rows[:, :-1] * n + rows[:, 1:]).ravel(), minlength=n * n).reshape(n, n)
    counts = pairs[~np.eye(n, dtype=bool)]
    freedom = (n - 1) ** 2  # a pair comes with probability 1/n, so each cell varies by a little less
    return (chi_square(counts, seeds / n) - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "sizes", [(2,), (3,), (1, 3), (5,), (2, 0, 3), (6,), (3, 3), (1, 1, 1, 1, 1, 1)], ids=str
)
def test_all_orders_are_equally_likely(sizes):
    """All n! of them, 60 times each on average, by the keys that every strategy sorts by."""
    n = sum(sizes)
    rows = orders(sizes, range(60 * math.factorial(n)))
    codes = (rows * n ** np.arange(n)).sum(axis=1)
    seen = collections.Counter(codes.tolist())
    assert len(seen) == math.factorial(n)
    assert chi_square(list(seen.values()), 60) < limit(math.factorial(n) - 1)


@pytest.fixture
def quick_path(tmp_path):
    """In memory, where there is such a folder: hundreds of shuffles flush hundreds of files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def shuffled(paths, folder, seed, **options):
    """What the public interface makes of it."""
    croupier.shuffle(paths, folder / "t", seed=seed, overwrite=True, workers=1, **options)
    return list(croupier.read(folder / "t-*"))


@pytest.mark.parametrize(("n", "each"), [(3, 30), (4, 8), pytest.param(5, 20, marks=pytest.mark.slow),
                                         pytest.param(6, 10, marks=pytest.mark.slow)])  # fmt: skip
def test_all_orders_come_out_equally_often(quick_path, n, each):
    """The same through the front door, records of two files."""
    records = [b"%d" % number for number in range(n)]
    (quick_path / "a.tfrecord").write_bytes(framed(records[:2]))
    (quick_path / "b.tfrecord").write_bytes(framed(records[2:]))
    seen = collections.Counter(
        tuple(shuffled(quick_path / "?.tfrecord", quick_path / "out", seed))
        for seed in range(each * math.factorial(n))
    )
    assert set(seen) <= set(itertools.permutations(records))
    everything = [seen[order] for order in itertools.permutations(records)]
    assert chi_square(everything, each) < limit(math.factorial(n) - 1)


@pytest.mark.parametrize("sizes", [(40,), (13, 1, 26), (1,) * 30], ids=str)
def test_every_record_anywhere_and_after_any_other(sizes):
    rows = orders(sizes, range(20_000))
    assert abs(position_misfit(rows)) < Z
    assert abs(neighbour_misfit(rows)) < Z


def test_seeds_that_differ_in_one_bit_have_nothing_in_common():
    for bit in range(64):
        one, other = orders((5000,), [7, 7 ^ 1 << bit])
        places = np.empty(5000), np.empty(5000)
        for where, row in zip(places, (one, other), strict=True):
            where[row] = np.arange(5000)
        assert abs(np.corrcoef(*places)[0, 1]) < Z / math.sqrt(5000)
        assert (one == other).sum() < 8


def test_files_that_lie_side_by_side_mix():
    """Of records of two files of equal size, every second neighbour is of the other file."""
    for seed in range(50):
        (row,) = orders((2000, 2000), [seed])
        changes = int(np.diff((row >= 2000).astype(int)).astype(bool).sum())
        assert abs(changes - 2000) < Z * math.sqrt(1000) * 1.1


def almost_random(kind, n, seeds):
    """Orders as other tools make them."""
    rng = np.random.default_rng(5)
    rows = np.argsort(rng.random((seeds, n)), axis=1)
    if kind == "buffer":  # tf.data's shuffle(n // 2)
        rows = np.empty((seeds, n), np.int64)
        for row in rows:
            buffer, rest = list(range(n // 2)), iter(range(n // 2, n))
            for place in range(n):
                chosen = int(rng.integers(len(buffer)))
                row[place] = buffer[chosen]
                replacement = next(rest, None)
                if replacement is None:
                    buffer[chosen] = buffer[-1]
                    buffer.pop()
                else:
                    buffer[chosen] = replacement
    elif kind == "groups":  # pairs stay together
        pairs = np.argsort(rng.random((seeds, n // 2)), axis=1)
        rows = (2 * pairs[:, :, None] + np.arange(2)).reshape(seeds, n)
    elif kind == "rotated":
        rows = (np.arange(n) + rng.integers(n, size=(seeds, 1))) % n
    elif kind == "modulo":  # a random number modulo 7 picks more often what comes first
        weight = np.where(np.arange(n) % 7 < 3, 1.15, 1.0)
        rows = np.argsort(rng.exponential(size=(seeds, n)) / weight, axis=1)
    return rows


@pytest.mark.parametrize("kind", ["buffer", "groups", "rotated", "modulo", "random"])
def test_the_statistics_object_to_orders_that_are_almost_random(kind):
    rows = almost_random(kind, 40, 20_000)
    worst = max(abs(position_misfit(rows)), abs(neighbour_misfit(rows)))
    assert (worst < Z) == (kind == "random"), worst


def test_equal_records_do_not_clump(quick_path):
    """200 payloads, 5 times each, in two files. Were equal ones brought together (as by a hash of their
    content), 800 neighbours would be equal; by chance it is 4."""
    payloads = [b"payload %d" % (number % 200) for number in range(1000)]
    random.Random(3).shuffle(payloads)
    (quick_path / "a.tfrecord").write_bytes(framed(payloads[:300]))
    (quick_path / "b.tfrecord").write_bytes(framed(payloads[300:]))
    equal = 0
    for seed in range(50):
        out = shuffled([quick_path / "a.tfrecord", quick_path / "b.tfrecord"], quick_path / "out", seed)
        assert collections.Counter(out) == collections.Counter(payloads)
        equal += sum(map(bytes.__eq__, out, out[1:]))
    assert abs(equal - 200) < Z * math.sqrt(200)
