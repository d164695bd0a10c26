"""The keys that order a shuffle: numpy's Philox is the reference, and these answers hold for ever."""

import numpy as np
import pytest

from croupier import _kernel

KNOWN = {  # (seed, file): the keys of records 0, 1, 2 and 8
    (0, 0): (0x02F4BA6408E4D89B, 0x3DD62B0B9CA8C5B2, 0x1C8667A55D902E79, 0x40FA86F0F781945D),
    (0, 1): (0xD037F8C3F9A1D176, 0xC057419B4C210765, 0xABF13115117B0065, 0x90CAE1E1AECC68A9),
    (7, 0): (0xDF4034B829E9FBA4, 0x4B9D10CDF8E64087, 0x6B8B857E506AAC98, 0x039C8FDE5B2701DC),
    (7, 2**32): (0xC3BB0C0FB2F40DB4, 0xAC7A15549999B060, 0xF6F315CADDF36B15, 0x7DC7F77E1C6C54B9),
    (2**63, 0): (0xF0F36415F37C24E2, 0x853BAB3AB4FDEC44, 0xB4FD285A70DBC7B5, 0x453C18C2EA2AB7F3),
    (2**64 - 1, 1): (0xA7A2E8236BFB4443, 0xC71A2EA098BCF226, 0x2D2DA51DB1F0283D, 0x2835B240A0DA8C09),
}


def keys(seed, runs):
    files, firsts, counts = (np.array(column, np.uint64) for column in zip(*runs, strict=True))
    out = np.empty(int(counts.sum()), np.uint64)
    _kernel.record_keys(seed, files, firsts, counts, out)
    return out


def reference(seed, file, first, count):
    stream = np.random.Philox(key=np.array([seed, file], np.uint64))
    return stream.random_raw(first + count)[first:]


@pytest.mark.parametrize(("seed", "file"), KNOWN)
def test_known_answers(seed, file):
    assert keys(seed, [(file, 0, 9)])[[0, 1, 2, 8]].tolist() == list(KNOWN[seed, file])


def test_any_runs_are_numpys():
    rng = np.random.default_rng(1)
    for _ in range(200):
        seed = int(rng.integers(0, 2**64, dtype=np.uint64))
        runs = [
            (int(rng.integers(0, 2**64, dtype=np.uint64)), int(rng.integers(0, 50)), int(rng.integers(0, 40)))
            for _ in range(rng.integers(1, 6))
        ]
        expected = np.concatenate([reference(seed, *run) for run in runs])
        assert keys(seed, runs).tolist() == expected.tolist()


def test_far_records():
    stream = np.random.Philox(key=np.array([5, 6], np.uint64)).advance(1 << 40)
    assert keys(5, [(6, 1 << 42, 8)]).tolist() == stream.random_raw(8).tolist()


@pytest.mark.parametrize(
    ("columns", "room", "why"),
    [
        (([1], [0], [4]), 3, "room"),
        (([1], [0], [4]), 5, "room"),
        (([1, 2], [0], [4]), 4, "length"),
        (([1], [2**63], [4]), 4, "large"),
        (([1], [1], [2**64 - 1]), 4, "room"),
    ],
)
def test_impossible_runs_are_refused(columns, room, why):
    with pytest.raises(ValueError, match=why):
        _kernel.record_keys(
            0, *(np.array(column, np.uint64) for column in columns), np.empty(room, np.uint64)
        )
