"""Which files are meant: folders, globs, sets by their count."""

import os
import pickle
import random

import pytest

import croupier
from croupier.naming import TOGETHER, absolute, are_distinct, byte_order, expand, folders_of, split_folders
from dataset_help import (
    framed,
    payloads_of,
)

# Which files are meant


def touch(folder, *names):
    for name in names:
        (folder / name).write_bytes(framed([name.encode(errors="surrogateescape")]))


def names_of(paths):
    return [os.path.basename(path) for path in expand(paths)]


def shards_named(stem, count, suffix=""):
    return [f"{stem}-{number:05d}-of-{count:05d}{suffix}" for number in range(count)]


def test_sets_by_their_count(tmp_path):
    touch(tmp_path, *shards_named("a", 3), *shards_named("b", 3, ".tfrecord.gz"), *shards_named("c", 2))
    touch(tmp_path, *shards_named("c", 3), *shards_named("d", 2, ".x"), *shards_named("d", 2, ".y"))
    touch(tmp_path, "a-00000-of-00003.tmp")
    assert names_of(tmp_path / "a@3") == shards_named("a", 3)
    assert names_of(tmp_path / "b@3.tfrecord.gz") == shards_named("b", 3, ".tfrecord.gz")
    assert names_of(tmp_path / "b@3") == shards_named("b", 3, ".tfrecord.gz")
    assert names_of(tmp_path / "c@2") == shards_named("c", 2)
    assert names_of([tmp_path / "c@3", tmp_path / "c@2"]) == shards_named("c", 3) + shards_named("c", 2)
    assert names_of(tmp_path / "d@2.y") == shards_named("d", 2, ".y")
    with pytest.raises(croupier.UsageError, match=r"\.x, \.y"):
        expand(tmp_path / "d@2")
    touch(tmp_path, *shards_named("long", 64))
    assert names_of(tmp_path / "long@64") == shards_named("long", 64)
    data = croupier.open(tmp_path / "long@64")
    assert [one.decode() for one in data] == shards_named("long", 64)
    (tmp_path / "long-00041-of-00064").unlink()
    with pytest.raises(croupier.InputNotFoundError, match=r"1 of 64 .*long-00041-of-00064 is missing"):
        expand(tmp_path / "long@64")
    with pytest.raises(croupier.InputNotFoundError, match=r"b-00000-of-00003.gz is missing"):
        expand(tmp_path / "b@3.gz")
    for none in ("a@0", "a@4", "none@1"):
        with pytest.raises(croupier.InputNotFoundError):
            expand(tmp_path / none)
    touch(tmp_path, "a@9")
    assert names_of(tmp_path / "a@9") == ["a@9"]  # a file of this name is itself


def test_sets_by_question_marks(tmp_path):
    touch(tmp_path, *shards_named("a", 3, ".tfrecord"), *shards_named("a", 12, ".gz"))
    pattern = tmp_path / "a-?????-of-?????"
    assert names_of(f"{pattern}.gz") == shards_named("a", 12, ".gz")
    assert names_of(f"{pattern}*") == sorted(shards_named("a", 3, ".tfrecord") + shards_named("a", 12, ".gz"))
    (tmp_path / "a-00007-of-00012.gz").unlink()
    assert names_of(f"{pattern}.tfrecord") == shards_named("a", 3, ".tfrecord")
    for one in (f"{pattern}.gz", f"{pattern}*", [f"{pattern}.tfrecord", f"{pattern}.gz"]):
        with pytest.raises(croupier.InputNotFoundError, match=r"1 of 12 .*a-00007-of-00012.gz is missing"):
            expand(one)
        with pytest.raises(croupier.InputNotFoundError):
            croupier.open(one)
    with pytest.raises(croupier.InputNotFoundError, match=r"1 of 12 .*a-00007-of-00012.gz is missing"):
        expand(tmp_path / "a-?????-of-00012.gz")
    assert len(names_of(tmp_path / "a-*.gz")) == 11  # what is not named as a set need not be whole
    (tmp_path / "a-00002-of-00003.tfrecord").unlink()
    with pytest.raises(croupier.InputNotFoundError, match=r"a-00002-of-00003.tfrecord is missing"):
        expand(f"{pattern}.tfrecord")
    with pytest.raises(croupier.InputNotFoundError, match="no file matches"):
        expand(f"{pattern}.none")


def test_odd_names(tmp_path):
    odd = [
        "a[1].tfrecord",
        "b*.tfrecord",
        "c?.tfrecord",
        "d e\n.tfrecord",
        "f\udcff\udc80.tfrecord",
        "ü.tfrecord",
    ]
    touch(tmp_path, *odd, "a1.tfrecord", ".hidden.tfrecord", "g.txt", *shards_named("s[2]", 2))
    (tmp_path / "folder.tfrecord").mkdir()
    for name in odd:
        assert names_of(tmp_path / name) == [name]
        data = croupier.open(tmp_path / name)
        assert data[0] == os.fsencode(name)
        assert data.paths == [str(tmp_path / name)]
        assert name in data.where(0).path
    assert names_of(tmp_path / "a[1]*") == ["a1.tfrecord"]
    assert names_of(tmp_path / "s[2]@2") == shards_named("s[2]", 2)
    (tmp_path / shards_named("s[2]", 2)[0]).rename(tmp_path / "s[2]-00000-of-00002.gz")
    (tmp_path / shards_named("s[2]", 2)[1]).rename(tmp_path / "s[2]-00001-of-00002.gz")
    assert names_of(tmp_path / "s[2]@2") == shards_named("s[2]", 2, ".gz")
    whole = sorted([*odd, "a1.tfrecord"], key=os.fsencode)
    assert names_of(tmp_path) == names_of(tmp_path / "*.tfrecord") == whole
    data = croupier.open(tmp_path)
    assert payloads_of(data) == list(map(os.fsencode, whole))
    again = croupier.open(tmp_path, index="require")
    assert payloads_of(again) == list(map(os.fsencode, whole))
    pickle.loads(pickle.dumps(again))
    with pytest.raises(croupier.InputNotFoundError, match="tfrec"):
        expand(tmp_path / "folder.tfrecord")
    with pytest.raises(croupier.UsageError, match="://"):
        croupier.open("gs://bucket/x.tfrecord")


# Which folders they are in


@pytest.mark.parametrize("folders", [["a/"], [""], ["a/", "a/b/", "", "/", "a//", "ab/"], ["/\u00e9\udcff/"]])
@pytest.mark.parametrize("run", [1, 3, TOGETHER - 1, TOGETHER, 2 * TOGETHER + 5])
def test_names_and_their_folders(folders, run):
    """As os.path.split gives them, one by one; also where a folder's name stands in the name of a file."""
    names = ["x", "a", "\u00e9\U0001f600", "y\udc80", "-00000-of-00001.tfrecord"]
    paths = [folder + names[number % 5] for folder in folders for number in range(run)]
    paths += paths[:7]
    found, runs = split_folders(paths)
    assert found == [os.path.basename(path) for path in paths]
    assert folders_of(paths, found) == runs
    each = [folder for folder, count in runs for _ in range(count)]
    assert each == [path[: len(path) - len(os.path.basename(path))] for path in paths]


@pytest.mark.parametrize("run", [1, 3, TOGETHER, TOGETHER + 5])
@pytest.mark.parametrize(
    "folders",
    [["/a/"], [""], ["a/"], ["../a/", "./", "/a/../b/", "//a/", "a//b/"], ["/\u00e9\udcff/", "/a/./", "/"]],
)
@pytest.mark.parametrize("names", [["x", "y z"], ["x", "", ".", "..", "...", ".x", "\u00e9\U0001f600\udc80"]])
def test_absolute_paths(folders, run, names):
    paths = [folder + names[number % len(names)] for folder in folders for number in range(run)]
    paths += paths[:7]
    assert absolute(paths) == list(map(os.path.abspath, paths))


def test_the_order_of_bytes():
    names = ["a", "b", "\u00e9", "\ufffd", "\U0001f600", "\udc80", "a\udcff", ""]
    for draw in range(200):
        some = random.Random(draw).choices(names, k=draw % 7)
        some = sorted(some) if draw % 3 == 0 else some
        order = byte_order(some)
        found = some if order is None else [some[place] for place in order]
        assert found == sorted(some, key=os.fsencode)
        assert order is None or len(set(order)) == len(some)
        assert are_distinct(some) == (len(set(some)) == len(some))
    assert byte_order(["a", "a", "b"]) is None


def test_no_names():
    assert absolute([]) == []
    assert split_folders([]) == ([], [])
    assert folders_of([], []) == []
