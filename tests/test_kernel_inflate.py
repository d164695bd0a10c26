"""The kernel's inflater against zlib: what it accepts, what it refuses, and the tokens that it notes."""

import itertools
import random
import threading
import zlib

import numpy as np
import pytest

from croupier import _kernel as kernel
from deflate_help import by_zlib, contents, inflated, packed, replay, spans, streams

CONTENTS = contents()


def sizes(draw, most):
    while True:
        yield draw.randint(1, draw.choice([1, 3, 20, most]))


@pytest.mark.parametrize("name", CONTENTS)
def test_all_compressors(name):
    raw = CONTENTS[name]
    for about, data in streams(raw):
        why, found, tokens, rest = inflated(data + b"behind")
        assert (why, found == raw, rest) == (kernel.ENDED, True, b"behind"), about
        assert spans(tokens).sum() == len(raw), about


@pytest.mark.parametrize("name", CONTENTS)
def test_any_split_gives_the_same(name):
    draw = random.Random(name)
    raw = CONTENTS[name][:60_000]
    for about, data in streams(raw):
        _, _, whole, _ = inflated(data)
        most = draw.choice([300, 3_000, 30_000])
        why, found, tokens, rest = inflated(
            data + b"xyz", sizes(draw, most), sizes(draw, most), draw.choice([3, 4, 50])
        )
        assert (why, found == raw, rest) == (kernel.ENDED, True, b"xyz"), about
        assert matches(tokens) == matches(whole), about


def matches(tokens):
    """(where, length, distance) of each."""
    ends = np.cumsum(spans(tokens))
    kept = tokens >> 25 != 127
    lengths, distances = tokens >> 16 & 511, (tokens & 0xFFFF) + 1
    return [tuple(one) for one in np.column_stack([ends, lengths, distances])[kept].tolist()]


@pytest.mark.parametrize("name", CONTENTS)
def test_tokens_make_the_bytes(name):
    raw = CONTENTS[name][:80_000]
    for level in (0, 1, 6):
        assert replay(inflated(packed(raw, level))[2], raw) == raw


def test_all_short_streams():
    draw = random.Random(2)
    short = itertools.chain.from_iterable(itertools.product(range(256), repeat=size) for size in range(3))
    longer = (draw.randbytes(draw.randint(3, 12)) for _ in range(30_000))
    # Dynamic codes from the first bits on: random bytes seldom begin a block that is more than its sizes.
    heads = (4 | draw.randrange(256) & 0xF8 for _ in range(60_000))
    coded = (bytes([head, *draw.randbytes(draw.randint(3, 60))]) for head in heads)
    for data in itertools.chain(map(bytes, short), longer, coded):
        ours, theirs = inflated(data), by_zlib(data)
        assert (ours[0], ours[1]) == theirs[:2], data.hex()
        if ours[0] == kernel.ENDED:
            assert ours[3] == theirs[3], data.hex()


@pytest.mark.parametrize("name", ["text", "rows", "few", "random", "far"])
def test_mutations(name):
    draw = random.Random(name)
    raw = CONTENTS[name]
    verdicts = set()
    for _ in range(400):
        begin, size = draw.randrange(len(raw) - 3_000), draw.randint(10, 3_000)
        strategy = draw.choice([zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY, zlib.Z_FIXED])
        data = bytearray(packed(raw[begin : begin + size], draw.randint(0, 9), strategy=strategy))
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(min(len(data), draw.choice([8, 100, 5_000])))
            data[at] ^= 1 << draw.randrange(8)
        data = bytes(data[: draw.choice([len(data), draw.randrange(len(data) + 1)])])
        theirs, ours = by_zlib(data), inflated(data)
        verdicts.add(ours[0])
        assert (ours[0], ours[1]) == theirs[:2], data.hex()
        again = inflated(data, sizes(draw, 99), sizes(draw, 99), draw.choice([3, 9]))
        assert again[:2] == ours[:2], data.hex()
    assert len(verdicts) == 3 or name == "random"


def test_words_are_those_of_zlib():
    draw, found = random.Random(3), set()
    whole = packed(CONTENTS["text"][:2_000])
    for _ in range(40_000):
        data = bytearray(whole[: draw.randint(1, 300)])
        for _ in range(3):
            data[draw.randrange(min(len(data), draw.choice([3, 70, 300])))] = draw.randrange(256)
        inflater, words = kernel.Inflater(), ""
        why = inflater.inflate(data, bytearray(5_000), np.zeros(3_000, np.uint32))[3]
        try:
            zlib.decompressobj(-15).decompress(data)
        except zlib.error as error:
            words = str(error).partition(": ")[2]
        assert inflater.problem == words, data.hex()
        assert (why == kernel.BAD_STREAM) == bool(words)
        found.add(words)
    assert len(found - {""}) == 11, found  # all that zlib has for raw deflate


def test_nothing_is_written_behind_the_room():
    raw = CONTENTS["rows"][:3_000]
    data = packed(raw)
    for room in [*range(0, 400, 7), 2_999, 3_000]:
        out = bytearray(b"\xa5" * 3_600)
        tokens = np.full(5_000, 7, np.uint32)
        _, produced, count, _ = kernel.Inflater().inflate(data, memoryview(out)[:room], tokens[:60])
        assert produced <= room
        assert out[:produced] == raw[:produced]
        assert out[room:] == b"\xa5" * (3_600 - room)
        assert count <= 60
        assert (tokens[60:] == 7).all()


def test_one_thread_at_a_time():
    data, inflater = packed(bytes(50_000_000), 1), kernel.Inflater()
    refused = []

    def work():
        try:
            inflater.inflate(data, bytearray(1 << 25), np.empty(1 << 20, np.uint32))
        except ValueError:
            refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) < 4
