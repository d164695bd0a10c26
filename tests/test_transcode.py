"""Level "same": tokens travel with blocks, and shuffles write what they make of them."""

import gzip
import itertools
import json
import random
import zlib
from itertools import pairwise

import numpy as np
import pytest
from isal import isal_zlib

import croupier
from croupier import work
from croupier.codec import deflate, inflate, transcode
from croupier.shuffling import planning
from croupier.streams import open_file
from dataset_help import COMPRESSION, FORMS, framed, make
from deflate_help import END
from test_shuffle import digest, expected, little_memory, shards_of, write_inputs  # noqa: F401 - a fixture


def images(seed, count, *, least=33_000, most=160_000):
    """Rows that are like the ones before, and some noise: what deflate makes 10 to 20 times smaller."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        row = bytearray(draw.choices(range(8), k=1_500))
        image = bytearray()
        while len(image) < draw.randint(least, most):
            for _ in range(20):
                row[draw.randrange(len(row))] = draw.randrange(256)
            image += row
        made.append(bytes(image))
    return made


def packed(path):
    """(frame, fragment, checksum) of each record of a file, by the tokens of its blocks."""
    with open_file(str(path), noting=True) as opened:
        for block in opened.blocks():
            pack = transcode.packer(block, "same")
            for number, (begin, end) in enumerate(pairwise(block.bounds.tolist())):
                frame = block.buffer[begin:end]
                yield bytes(frame), *pack(number, frame)


@pytest.mark.parametrize("form", [form for form in FORMS if COMPRESSION.get(form) != "none"])
@pytest.mark.parametrize("read", [300, inflate.READ])
def test_every_form_brings_its_tokens(tmp_path, monkeypatch, form, read):
    monkeypatch.setattr(inflate, "READ", read)
    payloads = images(1, 12) + [b"", b"x", b"small" * 30] * 40 + images(2, 3, least=1_200_000, most=2_500_000)
    path = tmp_path / "a.tfrecord.gz"
    make(path, payloads, form)
    found = list(packed(path))
    assert b"".join(frame for frame, *_ in found) == framed(payloads)
    for frame, fragment, crc in found:
        assert zlib.decompress(fragment + END, -15) == frame
        assert crc == zlib.crc32(frame)


def test_plain_files_have_no_tokens(tmp_path):
    payloads = images(3, 3)
    make(tmp_path / "a", payloads, "plain")
    for frame, fragment, crc in packed(tmp_path / "a"):
        assert (fragment, crc) == deflate.fragment(memoryview(frame), deflate.DEFAULT_LEVEL)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_tokens_are_forgotten(tmp_path, policy):
    payloads = images(4, 200)
    data = framed(payloads)
    if policy == "skip":  # a header that is damaged: all behind it is dropped
        data = data[:40_000_000][: len(framed(payloads[:3]))] + b"\xff" * 12 + data
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(data, 6))
    with open_file(str(path), policy, on_damage=lambda damage: None, noting=True) as opened:
        for block in opened.blocks():
            covered = block.tokens.start - block.origin - int(block.bounds[0])
            assert -(2 << 20) < covered <= 0
        assert opened.inflater.produced == len(data)
        assert opened.inflater.tokens(0, len(data)).start > len(data) - (4 << 20)


# Shuffles


def inputs(folder):
    """Large and small records, plain, gzip and zlib; and files that are one stream of zlib's."""
    files = [images(5, 12), [b"%d small" % number for number in range(500)], images(6, 9) + [b"tiny"] * 50]
    paths = write_inputs(folder, files, ["none", "gzip", "zlib"])
    for number in range(3, 6):
        files.append(images(number, 10) + [b"%d" % number] * 20)
        (folder / f"in-{number:03d}.tfrecord.gz").write_bytes(gzip.compress(framed(files[-1]), 6))
    return files, sorted(map(str, folder.glob("in-*"))) if paths else []


def test_one_output_for_every_memory_and_number_of_workers(tmp_path, little_memory):  # noqa: F811
    files, paths = inputs(tmp_path / "data")
    whole, digests = expected(files, 7), set()
    for size, workers in itertools.product([1 << 26, 60_000], [1, 2, 5]):
        little_memory(size)
        prefix = tmp_path / f"{size}-{workers}" / "t"
        receipt = croupier.shuffle(
            paths, prefix, seed=7, shards=3, compression="gzip", level="same", workers=workers
        )
        assert list(croupier.read(prefix.parent)) == whole
        assert receipt["strategy"] == "fragments"
        assert receipt["compression"] == {
            "kind": "gzip",
            "level": "same",
            "codec": transcode.codec_name(planning.Compression.GZIP, "same"),
        }
        assert (receipt["spilled_runs"] > 0) == (size < 1 << 26)
        digests.add(digest(shards_of(prefix)))
        for path in shards_of(prefix):
            assert gzip.decompress(path.read_bytes()) == isal_zlib.decompress(path.read_bytes(), 31)
    assert len(digests) == 1


def test_as_small_as_it_was(tmp_path):
    payloads = images(8, 60)
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(framed(payloads), 6))
    croupier.shuffle(path, tmp_path / "same" / "t", level="same")
    (shard,) = shards_of(tmp_path / "same" / "t")
    assert sorted(croupier.read(shard)) == sorted(payloads)
    assert shard.stat().st_size < 1.01 * path.stat().st_size


def test_what_has_no_matches_is_compressed_as_usual(tmp_path):
    files = [images(9, 6), [b"%d small" % number for number in range(900)]]
    write_inputs(tmp_path / "plain", files[:1], ["none"])
    write_inputs(tmp_path / "small", files[1:], ["gzip"])
    for folder in ("plain", "small"):
        digests = set()
        for level in ("same", deflate.DEFAULT_LEVEL):
            prefix = tmp_path / f"{folder}-{level}" / "t"
            croupier.shuffle(tmp_path / folder, prefix, compression="gzip", level=level)
            digests.add(digest(shards_of(prefix)))
        assert len(digests) == 1


def test_dedup_and_damage(tmp_path):
    payloads = images(10, 10)
    data = bytearray(framed(payloads + payloads[:5]))
    data[20_000] ^= 1  # in the first record's payload
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(data, 6))
    options = {"level": "same", "on_corrupt": "skip", "dedup": True, "on_damage": lambda damage: None}
    receipt = croupier.shuffle(path, tmp_path / "out" / "t", **options)
    assert sorted(croupier.read(tmp_path / "out")) == sorted(payloads)
    assert receipt["duplicates"] == 4


def test_resumed(tmp_path, little_memory, monkeypatch):  # noqa: F811
    _, paths = inputs(tmp_path / "data")
    little_memory(60_000)
    options = {"seed": 3, "shards": 3, "compression": "gzip", "level": "same", "workers": 2}
    croupier.shuffle(paths, tmp_path / "right" / "t", **options)
    note, left = work.WorkFolder.note, [0]

    def stop_there(self, name, content):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        note(self, name, content)

    monkeypatch.setattr(work.WorkFolder, "note", stop_there)
    for step in range(2, 6):
        left[0] = step
        prefix = tmp_path / str(step) / "t"
        with pytest.raises(KeyboardInterrupt):
            croupier.shuffle(paths, prefix, **options)
        left[0] = 0
        croupier.shuffle(paths, prefix, resume=True, **options)
        assert digest(shards_of(prefix)) == digest(shards_of(tmp_path / "right" / "t"))


@pytest.mark.parametrize(
    "options",
    [
        {"level": "same", "compression": "zlib"},
        {"level": "same", "compression": "gzip", "strategy": "memory"},
        {"level": "same", "compression": "gzip", "strategy": "spill"},
        {"level": "fast"},
        {"level": 0},
    ],
)
def test_what_cannot_be_is_refused(tmp_path, options):
    make(tmp_path / "a.tfrecord.gz", [b"x"], "one member")
    with pytest.raises(croupier.UsageError, match="level"):
        croupier.shuffle(tmp_path / "a.tfrecord.gz", tmp_path / "t", **options)


def test_plain_outputs_have_no_level(tmp_path):
    files, paths = inputs(tmp_path / "data")
    receipt = croupier.shuffle(paths, tmp_path / "t", compression="none", level="same", seed=2)
    assert receipt["compression"] == {"kind": "none"}
    assert list(croupier.read(tmp_path / "t-*")) == expected(files, 2)


def test_writers_have_nothing_to_go_by(tmp_path):
    with pytest.raises(croupier.UsageError, match="level must be"):
        croupier.writer(tmp_path / "t.tfrecord.gz", level="same")


def test_the_command(tmp_path, command):
    payloads = images(11, 40)
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(framed(payloads), 6))
    done = command("shuffle", path, tmp_path / "t", "--level", "same", "--json")
    assert json.loads(done.out)["compression"]["level"] == "same"
    plan = json.loads(command("shuffle", path, tmp_path / "u", "--level", "same", "--dry-run", "--json").out)
    rows = {row["level"]: row for row in plan["forecast"]["levels"]}
    assert set(rows) == {"same", 1, 3, 5, 6, 9}
    assert rows["same"]["output_bytes"] == pytest.approx(path.stat().st_size, rel=0.1)
    assert "same" in command("shuffle", path, tmp_path / "u", "--dry-run").out
    bad = command("shuffle", path, tmp_path / "u", "--level", "fast")
    assert (bad.code, "neither a number nor 'same'" in bad.err) == (2, True)


def test_tokens_that_are_missing_are_noticed(tmp_path):
    make(tmp_path / "a", images(12, 3), "one member")
    with open_file(str(tmp_path / "a"), noting=True) as opened:
        block = next(opened.blocks())
    words, start = block.tokens
    with pytest.raises(croupier.IntegrityError, match="tokens"):
        transcode.packer(block.with_tokens(transcode.Tokens(words[:-9], start)), "same")
    wrong = words.copy()
    wrong[len(words) // 2] ^= np.uint32(1)
    pack = transcode.packer(block.with_tokens(transcode.Tokens(wrong, start)), "same")
    frames = [block.buffer[begin:end] for begin, end in pairwise(block.bounds.tolist())]
    with pytest.raises(ValueError, match="token"):
        list(map(pack, range(len(block)), frames))
