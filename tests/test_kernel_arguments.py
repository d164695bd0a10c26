"""What the kernel refuses to be given: wrong types, wrong sizes, numbers out of range."""

import os
from pathlib import Path

import numpy as np
import pytest

from croupier import _kernel as kernel
from kernel_help import (
    PARTS,
    frame,
    opened,
    packed,
    run,
    u64,
    zeros,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A file with one record."""
    path = tmp_path_factory.mktemp("plain") / "a.tfrecord"
    path.write_bytes(frame(b"0123456789"))
    return path


def calls(path):
    """A good call of everything that takes arrays, by name."""
    sequence = packed([3, 4, 5])
    return {
        "pack": {
            "values": u64([3, 4]),
            "least": zeros(1),
            "bits": bytearray(1),
            "words": zeros(64),
        },
        "index_packed": dict(zip(PARTS, sequence, strict=True))
        | {"bits": bytes(sequence[2]), "summed": True},
        "sums_before": {"packed": sequence, "places": u64([0, 3]), "sums": zeros(2)},
        "unpack": {"packed": sequence, "first": 1, "values": zeros(2)},
        "locate": {
            "lengths": sequence,
            "firsts": u64([0, 1, 3]),
            "bases": u64([0, 3]),
            "records": u64([2, 0]),
            "file": zeros(2),
            "offset": zeros(2),
            "length": zeros(2),
            "threads": 1,
        },
        "search_sums": {
            "packed": sequence,
            "firsts": u64([0, 1, 3]),
            "bases": u64([0, 3]),
            "groups": u64([1, 0]),
            "positions": u64([2, 0]),
            "found": zeros(2),
            "begin": zeros(2),
        },
        "slices": {"buffer": b"0123", "bounds": u64([0, 2, 4])},
        "fetch": {
            "files": [opened(path)],
            "file": u64([0]),
            "offsets": u64([0]),
            "lengths": u64([10]),
            "places": u64([0]),
            "out": bytearray(10),
            "verify": True,
            "threads": 1,
            "past_cache": False,
        },
        "take": {
            "source": path.read_bytes(),
            "offsets": u64([0]),
            "lengths": u64([10]),
            "places": u64([0]),
            "out": bytearray(10),
            "verify": True,
        },
        "walk": {"fd": 0, "size": 0, "begin": 0, "end": 0, "sync": False, "limit": 9},
        "digest": {"fd": 0, "size": 0},
        "survey": {"names": os.fsencode(path) + b"\0", "limit": 9},
        "read_small": {"names": os.fsencode(path) + b"\0", "limit": 9, "room": bytearray(1 << 16)},
        "stamps": {"names": os.fsencode(path) + b"\0"},
        "list_folders": {"folders": os.fsencode(path.parent) + b"\0", "part": b"x"},
    }


NAMES = list(calls(Path(os.devnull)))
WRITTEN = [
    ("read_small", "room"),
    ("pack", "least"),
    ("pack", "bits"),
    ("pack", "words"),
    ("index_packed", "sums"),
    ("index_packed", "at"),
    ("sums_before", "sums"),
    ("unpack", "values"),
    ("locate", "file"),
    ("locate", "offset"),
    ("locate", "length"),
    ("search_sums", "found"),
    ("search_sums", "begin"),
    ("fetch", "out"),
    ("take", "out"),
]
READ_ONLY_ARRAY = zeros(9)
READ_ONLY_ARRAY.setflags(write=False)
MISALIGNED = memoryview(bytearray(9 * 8 + 1))[1:].cast("Q")
WRONG_ARRAYS = [
    b"12345678",
    np.zeros(9, np.int64),
    np.zeros(9, np.uint32),
    np.zeros(9, np.float64),
    np.zeros((3, 3), np.uint64),
    np.zeros(18, np.uint64)[::2],
    np.zeros(9, ">u8"),
    [0, 1, 2],
    None,
]


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_the_wrong_kind(name, plain):
    function, arguments = getattr(kernel, name), calls(plain)[name]
    function(**arguments)
    for key, value in arguments.items():
        if isinstance(value, np.ndarray):
            wrong = WRONG_ARRAYS
            with pytest.raises(ValueError, match=f"{key} is not aligned"):
                function(**arguments | {key: MISALIGNED})
        elif isinstance(value, bytearray):
            wrong = [bytes(value), "text", None, 3, memoryview(bytearray(30))[::2]]
        elif isinstance(value, bytes):
            wrong = ["text", None, 3, memoryview(bytearray(30))[::2]]
        elif isinstance(value, bool):
            wrong = ["yes", 7.5, None]
        elif isinstance(value, int):
            wrong = [-1, 2**64, "1", None, 0.5] if key != "fd" else [2**31, "1", None, 0.5]
        elif isinstance(value, tuple):
            wrong = [list(value), None, 3, b"", *_wrong_tuples(value)]
        else:
            wrong = [None, 3, (1,)]
        for bad in wrong:
            with pytest.raises(TypeError):
                function(**arguments | {key: bad})


def _wrong_tuples(value):
    for i in range(1, 6):
        for bad in ["text", None, 3, *([] if i == 2 else WRONG_ARRAYS)]:
            yield (*value[:i], bad, *value[i + 1 :])


@pytest.mark.parametrize("count", [-1, 2**64, "1", None, 0.5, b""])
def test_counts_of_the_wrong_kind(count):
    with pytest.raises(TypeError):
        kernel.unpack((count, *packed([3])[1:]), 0, zeros(1))


@pytest.mark.parametrize("bad", ["None", "3", "'text'", "object()", "k.File.__new__(k.File)"])
def test_files_of_the_wrong_kind(bad, plain):
    """In a process of its own: None could be taken for a null pointer."""
    script = """
import os, sys
import numpy as np
from croupier import _kernel as k
u = lambda *numbers: np.array(numbers, np.uint64)
good, bad = k.File(os.open(sys.argv[1], os.O_RDONLY)), eval(sys.argv[2])
for files in ([bad], [good, bad], [bad, good]):
    for which in (u(0), u(1), u()):
        try:
            k.fetch(files, which, which, which, which, bytearray(9), True, 1, False)
        except TypeError:
            continue
        sys.exit("was taken for a file")
"""
    run(script, plain, bad)


@pytest.mark.parametrize("names", [3, None, "a\0", b"a", b"a\0b", bytearray(b"a\0"), [b"a\0"], object()])
def test_names_of_the_wrong_kind(names):
    for call in (
        lambda: kernel.survey(names, 9),
        lambda: kernel.stamps(names),
        lambda: kernel.read_small(names, 9, bytearray(1 << 16)),
        lambda: kernel.list_folders(names, b""),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


@pytest.mark.parametrize(("name", "key"), WRITTEN)
def test_what_is_written_must_be_writable(name, key, plain):
    with pytest.raises(TypeError, match=f"{key} must be a writable"):
        getattr(kernel, name)(**calls(plain)[name] | {key: READ_ONLY_ARRAY})


REFUSED = [
    ("pack", {"least": zeros(0)}, "least and bits"),
    ("sums_before", {"places": u64([4])}, "behind the end"),
    ("sums_before", {"places": u64([2**64 - 1])}, "behind the end"),
    ("sums_before", {"sums": zeros(1)}, "fewer places"),
    ("sums_before", {"packed": (3,) * 5}, "packed must be"),
    ("sums_before", {"packed": ()}, "packed must be"),
    ("unpack", {"first": 2}, "behind the end"),
    ("unpack", {"first": 4, "values": zeros(0)}, "behind the end"),
    ("unpack", {"first": 2**64 - 1}, "behind the end"),
    ("unpack", {"packed": (4, *packed([1] * 65)[1:])}, "do not fit"),
    ("unpack", {"packed": (2**64 - 1, *packed([1] * 64)[1:])}, "do not fit"),
    ("unpack", {"packed": (2**63, *packed([1] * 64)[1:])}, "do not fit"),
    ("locate", {"records": u64([3])}, "no file has"),
    ("locate", {"records": u64([2**64 - 1])}, "no file has"),
    ("locate", {"firsts": u64([1, 2, 3]), "records": u64([0])}, "no file has"),
    ("locate", {"firsts": u64([0]), "bases": zeros(0), "records": u64([0])}, "no file has"),
    ("locate", {"firsts": u64([0, 5, 9]), "records": u64([8])}, "behind the end"),
    ("locate", {"firsts": u64([0, 1])}, "firsts must have"),
    ("locate", {"firsts": zeros(0), "bases": zeros(0)}, "firsts must have"),
    ("locate", {"file": zeros(1)}, "fewer places"),
    ("locate", {"offset": zeros(1)}, "fewer places"),
    ("locate", {"length": zeros(1)}, "fewer places"),
    ("search_sums", {"groups": u64([0, 2])}, "does not exist"),
    ("search_sums", {"groups": u64([0, 2**64 - 1])}, "does not exist"),
    ("search_sums", {"firsts": u64([1, 1, 3])}, "is empty"),
    ("search_sums", {"firsts": u64([2, 1, 3])}, "is empty"),
    ("search_sums", {"firsts": u64([0, 1, 4])}, "is empty"),
    ("search_sums", {"firsts": u64([0, 1])}, "firsts must have"),
    ("search_sums", {"positions": u64([0])}, "differ in length"),
    ("search_sums", {"found": zeros(1)}, "differ in length"),
    ("search_sums", {"begin": zeros(1)}, "differ in length"),
    ("fetch", {"file": u64([1])}, "no file's"),
    ("fetch", {"file": u64([2**64 - 1])}, "no file's"),
    ("fetch", {"files": []}, "no file's"),
    ("fetch", {"offsets": zeros(2)}, "differ in length"),
    ("fetch", {"lengths": zeros(0)}, "differ in length"),
    ("fetch", {"places": zeros(2)}, "differ in length"),
    ("fetch", {"places": u64([1])}, "not within out"),
    ("fetch", {"places": u64([11]), "lengths": u64([0])}, "not within out"),
    ("fetch", {"places": u64([2**64 - 1])}, "not within out"),
    ("fetch", {"lengths": u64([11])}, "not within out"),
    ("fetch", {"lengths": u64([2**64 - 1])}, "not within out"),
    ("fetch", {"places": u64([5]), "lengths": u64([2**64 - 3])}, "not within out"),
    ("take", {"lengths": zeros(0)}, "differ in length"),
    ("take", {"places": zeros(2)}, "differ in length"),
    ("take", {"places": u64([1])}, "not within out"),
    ("take", {"lengths": u64([2**64 - 1])}, "not within out"),
    ("take", {"places": u64([5]), "lengths": u64([2**64 - 3])}, "not within out"),
    ("take", dict.fromkeys(("source", "out"), bytearray(26)), "overlap"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_values_out_of_range(name, change, message, plain):
    with pytest.raises(ValueError, match=message):
        getattr(kernel, name)(**calls(plain)[name] | change)
