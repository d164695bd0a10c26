"""Offset tables are never believed: what is damaged or lies is refused or harmless, and made again.

Table files are written by hand here (struct, `oracle.pack`, `oracle.crc32c`), so that a lie stands under a
right checksum and reaches the checks behind it. fuzz/table.py makes the dataset, and mutates such tables.
"""

import contextlib
import importlib.util
import os
import socket
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import croupier
import oracle
from croupier.table.format import load

ROOT = Path(__file__).resolve().parent.parent
CORPUS = sorted((ROOT / "tests" / "corpus" / "table").iterdir())
U64 = 1 << 64
PLAIN, SEEKABLE, GZIP, ZLIB = range(4)

_spec = importlib.util.spec_from_file_location("fuzz_table", ROOT / "fuzz" / "table.py")
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)

pytestmark = pytest.mark.filterwarnings("ignore::croupier.errors.SlowAccessWarning")


@pytest.fixture(autouse=True)
def _cache_folder(tmp_path_factory, monkeypatch):
    """Nobody's own cache: where tables go when they cannot stand beside the data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def scene(tmp_path):
    return fuzz.Scene(tmp_path)


# Writing tables by hand

COLUMNS = ("kind", "size", "modified", "changed", "inode", "digest", "records", "fragments")
SECTIONS = (*COLUMNS, "lengths", "raw", "stored")


class Section:
    """A packed sequence; `count`, `declared` (words), `least`, `bits` and `words` may be made to lie."""

    def __init__(self, values):
        self.count = len(values)
        self.least, self.bits, self.words = oracle.pack([value % U64 for value in values])
        self.declared = len(self.words)

    def encode(self):
        numbers = [self.count, self.declared, *self.least, *self.words]
        return struct.pack(f"<{len(numbers)}Q", *numbers) + padded(bytes(self.bits))


class Draft:
    """The right table of the scene's files, any part of which may be changed."""

    magic, version, made, spoilt, zero = b"\x89CRPTBL\n", 1, U64 // 4, 0, 0
    files = size_of_names = None  # as they are

    def __init__(self, scene):
        files, stamps = scene.files, [os.stat(path) for path in scene.paths]
        self.names = [os.fsencode(file.name) for file in files]
        self.ended = b"\0"
        self.numbers = {
            "kind": [int(file.kind) for file in files],
            "size": [len(file.content) for file in files],
            "modified": [stamp.st_mtime_ns for stamp in stamps],
            "changed": [stamp.st_ctime_ns for stamp in stamps],
            "inode": [stamp.st_ino for stamp in stamps],
            "digest": [oracle.digest(file.content) for file in files],
            "records": [len(file.payloads) for file in files],
            "fragments": [len(file.raw) for file in files],
            "lengths": [len(payload) for file in files for payload in file.payloads],
            "raw": [size for file in files for size in file.raw],
            "stored": [size for file in files for size in file.stored],
        }
        self.sections = {}  # those that lie about themselves

    def section(self, name):
        return self.sections.setdefault(name, Section(self.numbers[name]))

    def pieces(self):
        names = b"\0".join(self.names) + self.ended
        files = len(self.names) if self.files is None else self.files
        size = len(names) if self.size_of_names is None else self.size_of_names
        head = struct.pack("<8sQQQQ", self.magic, self.version, self.made, files, size)
        return [head, padded(names), *(self.section(name).encode() for name in SECTIONS)]

    def encode(self):
        return self.closed(b"".join(self.pieces()))

    def closed(self, content):
        return content + struct.pack("<II", oracle.crc32c(content) ^ self.spoilt, self.zero)


def padded(data):
    return data + bytes(-len(data) % 8)


def head(**fields):
    """A draft with other fields in its header, names or trailer."""

    def change(draft):
        vars(draft).update(fields)

    return change


def part(name, **fields):
    """A draft with a section that lies about itself; a function gets what would be right."""

    def change(draft):
        section = draft.section(name)
        for field, value in fields.items():
            setattr(section, field, value(getattr(section, field)) if callable(value) else value)

    return change


def numbers(**columns):
    """A draft with other numbers, well packed: {place: number, or a function of it}."""

    def change(draft):
        for name, changes in columns.items():
            values = draft.numbers[name]
            for place, value in changes.items():
                values[place] = value(values[place]) if callable(value) else value

    return change


def both(*changes):
    def change(draft):
        for one in changes:
            one(draft)

    return change


def named(change_names):
    def change(draft):
        draft.names = change_names(draft.names)

    return change


def content(change):
    """Other bytes than the draft's."""
    return lambda draft: change(draft.encode())


def cut_before(number, less=0):
    def change(draft):
        kept = b"".join(draft.pieces()[:number])
        return draft.closed(kept[: len(kept) - less])

    return change


def without(name, place):
    def change(draft):
        del draft.numbers[name][place]

    return change


def more(number):
    return lambda value: value + number


def gzip_called_plain(draft):
    """Its size covers one record, which is not there."""
    draft.numbers["kind"][2], draft.numbers["records"][2] = PLAIN, 1
    draft.numbers["lengths"][77:] = [draft.numbers["size"][2] - 16]


B, C = 70, 77
"""The first records of b.tfrecord.gz and c.tfrecord.gz."""
HUGE = (1 << 40, 1 << 63, U64 - 1)

REFUSED = {
    "nothing": content(lambda whole: b""),
    "1 byte": content(lambda whole: whole[:1]),
    "7 bytes": content(lambda whole: whole[:7]),
    "8 bytes": content(lambda whole: whole[:8]),
    "a header alone": content(lambda whole: whole[:40]),
    "zeros": content(lambda whole: bytes(len(whole))),
    "ones": content(lambda whole: b"\xff" * len(whole)),
    "one byte more": content(lambda whole: whole + b"\0"),
    "one byte less": content(lambda whole: whole[:-1]),
    "a word less": content(lambda whole: whole[:-8]),
    "twice": content(lambda whole: whole * 2),
    "a bit flipped": content(lambda whole: whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]),
    "big-endian": content(lambda whole: words_turned(whole)),
    "wrong checksum": head(spoilt=1),
    "something behind the checksum": head(zero=1),
    "words behind the last section": lambda draft: draft.closed(b"".join([*draft.pieces(), bytes(16)])),
    "other magic": head(magic=b"\x89CRPTBL\r"),
    "no version": head(version=0),
    "next version": head(version=2),
    "last version": head(version=U64 - 1),
    **{f"cut before piece {number}": cut_before(number) for number in range(1, 13)},
    **{f"cut within piece {number}": cut_before(number, 8) for number in (2, 3, 8, 11, 13)},
    "no files": head(files=0),
    "a file more than names": head(files=5),
    "a file less than names": head(files=3),
    "names end late": head(size_of_names=64),
    "names end early": head(size_of_names=40),
    "no bytes of names": head(size_of_names=0),
    **{f"{number:#x} files": head(files=number) for number in HUGE},
    **{f"{number:#x} bytes of names": head(size_of_names=number) for number in HUGE},
    "no zero behind the last name": head(ended=b"x"),
    "names descending": named(lambda names: names[::-1]),
    "a name twice": named(lambda names: [*names[:2], *names[1:3]]),
    "a name with a slash": named(lambda names: [*names[:3], b"d/../d.tfrecord"]),
    "an absolute name": named(lambda names: [b"/etc/passwd", *names[1:]]),
    "an empty name": named(lambda names: [b"", *names[1:]]),
    "name .": named(lambda names: [b".", *names[1:]]),
    "name ..": named(lambda names: [b"..", *names[1:]]),
    "a name with a zero": named(lambda names: [*names[:3], b"d\0e"]),
    **{f"{name}: {n:#x} numbers": part(name, count=n) for name in ("kind", "lengths", "raw") for n in HUGE},
    **{f"{name}: {n:#x} words": part(name, declared=n) for name in ("size", "lengths") for n in HUGE},
    "lengths: 2^61 words, which are 0 bytes": part("lengths", declared=1 << 61),
    "lengths: a number less": part("lengths", count=more(-1)),
    "lengths: a number more": part("lengths", count=more(1)),
    "lengths: a block more": part("lengths", count=more(64)),
    "lengths: none": part("lengths", count=0),
    "lengths: a word less": part("lengths", declared=more(-1)),
    "lengths: a word more": part("lengths", declared=more(1)),
    "lengths: words of nobody": part("lengths", declared=more(1), words=lambda words: [*words, 5]),
    "lengths: a word is missing": part("lengths", declared=more(-1), words=lambda words: words[:-1]),
    **{f"lengths: {n} bits": part("lengths", bits=[n, 7]) for n in (0, 6, 13, 15, 63, 64, 65, 128, 255)},
    "kind: 255 bits": part("kind", bits=[255]),
    "lengths: 2^63 each": part("lengths", least=[1 << 63, 1 << 63]),
    "lengths: smallest that wraps around": part("lengths", least=[U64 - 1, 0]),
    "lengths: two that wrap around to the right sum": numbers(lengths={3: more(1 << 63), 4: more(1 << 63)}),
    "lengths: 64 that wrap around to the right sum": numbers(lengths=dict.fromkeys(range(64), more(1 << 58))),
    "lengths: negative": numbers(lengths={3: -1, 4: more(10)}),
    "raw: wraps around to the right sum": numbers(raw={0: more(1 << 63), 1: more(1 << 63)}),
    "stored: wraps around to the right sum": numbers(stored={0: more(1 << 63), 1: more(1 << 63)}),
    "a column too short": without("inode", 0),
    "a column too long": lambda draft: draft.numbers["digest"].append(1),
    "fragments: one size less": without("stored", 0),
    "kind 4": numbers(kind={0: 4}),
    "kind 2^64-1": numbers(kind={3: -1}),
    "records: one less": numbers(records={0: more(-1)}),
    "records: one more": numbers(records={3: more(1)}),
    "records: wrap around to the right sum": numbers(records={0: more(1 << 63), 2: more(1 << 63)}),
    "records: negative": numbers(records={0: more(5), 3: -5}),
    "records: all of the first": numbers(records={0: 82, 1: 0, 2: 0}),
    "records: one to the neighbour": numbers(records={1: more(-1), 2: more(1)}),
    "fragments: of a plain file": numbers(fragments={0: 3, 1: 0}),
    "fragments: of other gzip": numbers(fragments={1: 2, 2: 1}),
    "fragments: none where there must be": both(
        numbers(fragments={1: 0}), lambda draft: draft.numbers.update(raw=[], stored=[])
    ),
    "fragments: wrap around to the right sum": numbers(fragments={1: more(1 << 63), 2: 1 << 63}),
    "plain: records do not reach the end": numbers(lengths={69: more(-1)}),
    "plain: records go behind the end": numbers(lengths={69: more(1)}),
    "plain: an empty file with a record": both(
        numbers(records={3: 1}), lambda draft: draft.numbers["lengths"].append(0)
    ),
    "seekable: fragments hold less than the records": numbers(raw={2: more(-1)}),
    "seekable: fragments hold more than the records": numbers(raw={2: more(16)}),
    "seekable: fragments do not reach the end": numbers(stored={2: more(-1)}),
    "seekable: fragments go behind the end": numbers(stored={2: more(1)}),
    "seekable: a plain one": numbers(kind={0: SEEKABLE}),
    "gzip: a fragment more": lambda draft: one_fragment(draft, 2),
    "plain: a fragment": lambda draft: one_fragment(draft, 3),
    "no fragments, and records that go back": lambda draft: draft.numbers.update(
        kind=[GZIP] * 4, records=[80, -3, 5, 0], fragments=[0] * 4, raw=[], stored=[]
    ),
    "gzip: records that are too large with their overhead": lambda draft: fill_up(draft, (1 << 63) - 1),
}

TOO_LARGE = {  # for their files: deflate packs at most 1,032 bytes into one
    "seekable: a record of 2^40": numbers(lengths={B: more(1 << 40)}, raw={0: more(1 << 40)}),
    "seekable: a record of 2^62": numbers(lengths={B: more(1 << 62)}, raw={0: more(1 << 62)}),
    "gzip: a record of 2^40": numbers(lengths={C: more(1 << 40)}),
    "gzip: a record of 2^62": numbers(lengths={C: more(1 << 62)}),
}

STALE = {
    "another size": numbers(size={0: more(1)}, lengths={69: more(1)}),
    "a negative size": numbers(size={2: -1}),
    "another time": numbers(modified={0: more(1)}),
    "a negative time": numbers(modified={0: -1}),
    "another inode and content": numbers(inode={1: more(1)}, digest={1: more(1)}),
    "another time of change and content": numbers(changed={1: -1}, digest={1: 0}),
    "a digest of more than 32 bits": numbers(inode={1: more(1)}, digest={1: more(1 << 32)}),
    "other files": named(lambda names: [b"x" + name for name in names]),
}


HOSTILE = REFUSED | TOO_LARGE | STALE


def one_fragment(draft, file):
    draft.numbers["fragments"][file] = 1
    draft.numbers["raw"].append(4)
    draft.numbers["stored"].append(4)


def fill_up(draft, total):
    lengths = draft.numbers["lengths"]
    lengths[C] += total - sum(lengths)


def words_turned(whole):
    return np.frombuffer(whole, np.uint64).byteswap().tobytes()


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def to_itself(path):
    path.symlink_to(path.name)


def unreachable(path):
    path.symlink_to("../a.tfrecord/records.table")  # root may read whatever there is


PLACED = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": a_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": to_itself,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link behind a file": unreachable,
    "the data": lambda path: path.symlink_to("../a.tfrecord"),
}


def spoilt(scene, change):
    draft = Draft(scene)
    changed = change(draft)
    return draft.encode() if changed is None else changed


def write(scene, change):
    scene.table.write_bytes(spoilt(scene, change))


def right(scene):
    return [payload for file in scene.files for payload in file.payloads]


def check_refused(scene):
    """By whoever requires a table; all others make their own, and `auto` keeps it."""
    with pytest.raises(croupier.TableError):
        len(croupier.open(scene.paths, index="require"))
    for index in ("memory", "auto", "require"):
        assert croupier.open(scene.paths, index=index)[:].tolist() == right(scene), index


def test_tables_made_by_hand_are_right(scene):
    """Bit by bit what is kept, but for the time of making."""
    croupier.index(scene.paths)
    draft, kept = Draft(scene), scene.table.read_bytes()
    draft.made = struct.unpack_from("<Q", kept, 16)[0]
    assert draft.encode() == kept


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tables_are_refused_and_made_again(scene, name):
    write(scene, HOSTILE[name])
    before = scene.table.read_bytes()
    assert croupier.open(scene.paths, index="memory")[:].tolist() == right(scene)
    assert scene.table.read_bytes() == before
    if name in REFUSED:  # not merely taken for a table of other files
        with pytest.raises(croupier.TableError, match="damaged"):
            len(croupier.open(scene.paths, index="require"))
    check_refused(scene)
    assert scene.table.read_bytes() != before


@pytest.mark.parametrize("name", PLACED)
def test_what_stands_in_place_of_a_table(scene, name, monkeypatch):
    monkeypatch.chdir(scene.table.parent)  # names of sockets are short
    PLACED[name](scene.table)
    check_refused(scene)


def test_they_are_many():
    assert len(HOSTILE) + len(PLACED) >= 120


def test_hostile_tables_take_little_memory(scene):
    tracemalloc.start()
    try:
        for name, change in HOSTILE.items():
            whole = spoilt(scene, change)
            if not whole or len(whole) % 8:
                continue
            words = np.frombuffer(whole, np.uint64)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(croupier.TableError):
                load(words, "t")
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= 20 * len(whole) + 30_000, (name, peak, len(whole))
    finally:
        tracemalloc.stop()


# Lies that nothing but the data tells from the truth

BELIEVED = {
    "plain: two lengths swapped": numbers(lengths={9: 8 * 8, 8: 9 * 9}),
    "plain: a byte from one record to the next": numbers(lengths={30: more(1), 31: more(-1)}),
    "plain: a frame's overhead from one to the next": numbers(lengths={30: more(-16), 31: more(16)}),
    "plain: the first byte of the second to the first": numbers(lengths={0: more(1), 1: more(-1)}),
    "plain: all shifted by one": lambda draft: draft.numbers["lengths"].__setitem__(
        slice(0, 70), [*draft.numbers["lengths"][1:70], draft.numbers["lengths"][0]]
    ),
    "plain: one record that is all of it": lambda draft: one_record(draft, 0, 70),
    "seekable: two lengths swapped": numbers(lengths={B + 1: 120, B + 2: 60}),
    "seekable: a byte over the edge of a fragment": numbers(lengths={B + 2: more(1), B + 3: more(-1)}),
    "seekable: a fragment's content to the next": numbers(raw={0: more(-136), 1: more(136)}),
    "seekable: a byte of a fragment's content to the next": numbers(raw={0: more(-1), 1: more(1)}),
    "seekable: a fragment's end to the next": numbers(stored={0: more(1), 1: more(-1)}),
    "seekable: a fragment's last bytes of content to the next": numbers(stored={0: more(-6), 1: more(6)}),
    "seekable: fragments' contents swapped": lambda draft: draft.numbers["raw"].reverse(),
    "seekable: fragments' sizes in the file swapped": lambda draft: draft.numbers["stored"].reverse(),
    "gzip: two lengths swapped": numbers(lengths={C: 8, C + 1: 0}),
    "gzip: a length of another record": numbers(lengths={C + 2: more(1)}),
    "gzip: a record more": both(
        numbers(records={2: more(1)}), lambda draft: draft.numbers["lengths"].append(4)
    ),
    "gzip called plain": gzip_called_plain,
}
HARMLESS = {
    "made before time": head(made=0),
    "made in the last moment of all": head(made=U64 - 1),
    "another inode": numbers(inode={0: more(1), 1: -1}),
    "another time of change": numbers(changed={0: 0, 1: -1}),
    "another digest": numbers(digest={0: 0, 1: -1}),
    "gzip called zlib": numbers(kind={2: ZLIB}),
    "plain called gzip": numbers(kind={0: GZIP}),
    "plain called zlib": numbers(kind={0: ZLIB}),
    "seekable called gzip": lambda draft: draft.numbers.update(
        kind=[0, 2, 2, 0], fragments=[0, 0, 0, 0], raw=[], stored=[]
    ),
    "seekable: a fragment of everything": lambda draft: draft.numbers.update(
        fragments=[0, 1, 0, 0], raw=[sum(draft.numbers["raw"])], stored=[sum(draft.numbers["stored"])]
    ),
    "seekable: a flush to the next fragment": numbers(stored={0: more(-5), 1: more(5)}),
    "files that are gone": lambda draft: add_row(draft, b"e.tfrecord"),
}


def one_record(draft, file, count):
    draft.numbers["records"][file] = 1
    draft.numbers["lengths"][:count] = [sum(draft.numbers["lengths"][:count]) + 16 * (count - 1)]


def add_row(draft, name):
    draft.names.append(name)
    for column in COLUMNS:
        draft.numbers[column].append(0)


@pytest.mark.parametrize("name", BELIEVED)
@pytest.mark.parametrize("index", ["require", "auto"])
def test_lies_never_give_a_wrong_record(scene, name, index):
    write(scene, BELIEVED[name])
    data = croupier.open(scene.paths, index=index)
    refused = 0
    for number in range(len(data)):
        place = data.where(number)
        payloads = scene.payloads[place.path]
        for numbers in ([number], [number, 0]):
            try:
                assert data.read_many(numbers)[0] == payloads[place.record]
            except (croupier.DataError, croupier.StaleError):
                refused += 1
    assert refused
    croupier.index(scene.paths, force=True)
    assert croupier.open(scene.paths, index="require")[:].tolist() == right(scene)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_lies(scene, name):
    write(scene, HARMLESS[name])
    data = croupier.open(scene.paths, index="require")
    assert data[:].tolist() == list(data) == right(scene)
    assert [data[number] for number in range(len(data))] == right(scene)


def test_a_table_with_fewer_records_is_noticed_by_who_reads_all(scene):
    """Their numbers are right as far as they go; nothing but a scan can tell that there are more."""
    write(scene, both(numbers(records={2: more(-1)}), without("lengths", -1)))
    data = croupier.open(scene.paths, index="require")
    assert data[:].tolist() == right(scene)[:-1]
    with pytest.raises(croupier.StaleError):
        list(data)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus(scene, path):
    scene.try_table(path.read_bytes())


def test_corpus_is_there():
    assert len(CORPUS) >= 10
