"""Files that were changed after their table was made: the right record or an error, never a wrong one.

Changes at the very moment of reading, forks and threads are in test_dataset_races.py.
"""

import os
import pickle
import random
import struct
import zlib

import pytest

import croupier
from dataset_help import (
    FOREIGN,
    FORMS,
    SEEKABLE,
    SLOW_IS_FINE,
    flip,
    frame,
    framed,
    make,
    noise,
    offsets_of,
    payloads_of,
)

# Damage that comes after the table


def unsampled(path, position):
    """Whether a byte is in no piece of the content that stands for the whole."""
    size = path.stat().st_size
    step = (size - 4096) // 15
    pieces = [step * number for number in range(15)] + [size - 4096]
    return size > 1 << 16 and not any(begin <= position < begin + 4096 for begin in pieces)


LATE = [300] * 40 + [9_000] * 30 + [40_000] * 10


def stored_at(path, payload):
    """Where a payload stands in a file: also in a compressed one, as noise is stored there."""
    piece = payload[len(payload) // 2 :][:24]
    return path.read_bytes().find(piece) - len(payload) // 2


@pytest.mark.parametrize("form", ["plain", *SEEKABLE])
@pytest.mark.parametrize("used", [False, True])
def test_payload_damaged_later(tmp_path, form, used):
    """Told with path, number and offset; the neighbours can still be read, in their fragment too."""
    told = 0
    for seed in range(30):
        rng = random.Random(seed)
        payloads = noise(rng, *rng.sample(LATE, len(LATE)))
        path = make(tmp_path / f"{seed}.tfrecord.gz", payloads, form)
        before = make(tmp_path / f"{seed}.first.gz", [b"x"] * 3)
        row = rng.randrange(len(payloads))
        begin = stored_at(path, payloads[row])
        position = begin + len(payloads[row]) // 2
        if begin < 0 or not unsampled(path, position):
            continue
        told += 1
        data = croupier.open([before, path])
        assert len(data) == 3 + len(payloads)
        if used:
            data[[0, 3 + (row + 40) % len(payloads)]]
        flip(path, position)
        for one in (data, croupier.open([before, path]), pickle.loads(pickle.dumps(data))):
            for numbers in ([3 + row], [3, 3 + row, 4]):
                with pytest.raises(croupier.PayloadError) as raised:
                    one[numbers]
                error = raised.value
                assert (error.path, error.record) == (str(path), row)
                assert error.offset == offsets_of(payloads)[row]
                assert error.inflated == (form != "plain")
                assert f"record {row}, " in str(error)
            others = [number for number in range(len(payloads)) if number != row]
            assert one[[3 + number for number in others]].tolist() == [payloads[number] for number in others]
            with pytest.raises(croupier.PayloadError):
                list(one)
        assert croupier.open([before, path], verify=False)[3 + row] != payloads[row]
    assert told > 5


@pytest.mark.parametrize("form", ["plain", *SEEKABLE])
def test_header_damaged_later(tmp_path, form):
    told = 0
    for seed in range(40):
        rng = random.Random(seed)
        payloads = noise(rng, *rng.sample(LATE, len(LATE)))
        path = make(tmp_path / f"{seed}.tfrecord.gz", payloads, form)
        row = rng.randrange(1, len(payloads))
        begin = stored_at(path, payloads[row]) - 12
        data = croupier.open(path)
        if begin < 0 or not unsampled(path, begin) or not len(data):
            continue
        if not path.read_bytes()[begin:].startswith(frame(payloads[row])[:12]):
            continue
        told += 1
        flip(path, begin + rng.randrange(12))
        for one in (data, croupier.open(path), croupier.open(path, verify=False)):
            with pytest.raises(croupier.HeaderError) as raised:
                one[row]
            assert (raised.value.path, raised.value.record) == (str(path), row)
            assert raised.value.offset == offsets_of(payloads)[row]
            assert one[row - 1] == payloads[row - 1]
    assert told > 5


@pytest.mark.parametrize("form", SEEKABLE)
def test_compression_damaged_later(tmp_path, form):
    """A fragment that no longer inflates: its place in the file is told, other fragments can be read."""
    rng = random.Random(form)
    payloads = [rng.randbytes(rng.choice([300, 8_000])).hex().encode() for _ in range(60)]
    path = make(tmp_path / "x.tfrecord.gz", payloads, form)
    clean = path.read_bytes()
    croupier.index(path)
    seen = set()
    for _ in range(150):
        data = croupier.open(path)
        assert len(data) == len(payloads)
        position = rng.randrange(10, len(clean) - 30)
        flip(path, position, 1 << rng.randrange(8))
        wrong = []
        for number in range(len(payloads)):
            try:
                assert data[number] == payloads[number]
            except croupier.StaleError:
                assert not unsampled(path, position)
                wrong.append(number)
            except croupier.DataError as error:
                seen.add((type(error), error.path))
                wrong.append(number)
        if len(wrong) != len(payloads):  # those of a fragment at most
            assert sum(map(len, payloads[min(wrong, default=0) : max(wrong, default=0)])) < 400_000
        with open(path, "r+b") as file:
            stamp = path.stat()
            file.write(clean)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert (croupier.CompressionError, str(path)) in seen
    assert {where for _, where in seen} == {str(path)}
    assert payloads_of(croupier.open(path)) == payloads


# Files that are no longer what they were

UNIT = 16
"""Sizes are multiples of a frame's overhead: frames of other records then often stand at the same place, with
the same length, and only their number is another."""


def composed(rng, total):
    """Payload sizes whose frames fill `total` bytes."""
    sizes = []
    while total:
        size = min(rng.choice([0, 1, 1, 2, 3, 6]) * UNIT, total - 16)
        sizes.append(size)
        total -= size + 16
    return sizes


def fragmented(payloads):
    """Seekable gzip as the writer makes it, but stored: sizes depend on the records' sizes alone."""
    out, crc, size = b"\x1f\x8b\x08" + bytes(6) + b"\xff", 0, 0
    for at in range(0, len(payloads), 6):
        data = framed(payloads[at : at + 6])
        stream = zlib.compressobj(0, zlib.DEFLATED, -15)
        out += stream.compress(data) + stream.flush(zlib.Z_FULL_FLUSH)
        crc, size = zlib.crc32(data, crc), size + len(data)
    return out + b"\x03\x00" + struct.pack("<II", crc, size)


class Scene:
    """A file and its neighbour, which shares its size, and what a right answer is for each."""

    def __init__(self, folder, rng, form):
        self.folder, self.rng, self.form = folder, rng, form
        self.paths = [folder / "a.tfrecord.gz", folder / "b.tfrecord.gz"]
        self.old = {}
        total = rng.randrange(20, 120) * UNIT
        for path in self.paths:
            payloads = self.payloads(composed(rng, total))
            self.put(path, payloads, replace=True)
            self.old[str(path)] = payloads
        self.new = dict(self.old)

    def payloads(self, sizes):
        return noise(self.rng, *sizes)

    def content(self, payloads):
        return fragmented(payloads) if self.form == "seekable" else FOREIGN[self.form](framed(payloads))

    def put(self, path, payloads, *, replace, same_size=False, stamp=None):
        """Write a file, as another one under its name or in place; False where the size cannot be had."""
        content = self.content(payloads)
        size = os.path.getsize(path) if path.exists() else 0
        if same_size and self.form not in ("plain", "seekable"):
            content += bytes(max(size - len(content), 0))  # zeros behind a stream are padding
        if same_size and len(content) != size:
            return False
        if replace:
            (self.folder / "temporary").write_bytes(content)
            os.replace(self.folder / "temporary", path)
        else:
            with open(path, "r+b") as file:
                file.write(content)
                file.truncate()
        if stamp is not None:
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        return True

    def mutate(self, kind):
        """Change a.tfrecord.gz, and say in `new` what it then holds; False where that cannot be done."""
        path = self.paths[0]
        old, stamp = self.old[str(path)], path.stat()
        sizes = list(map(len, old))
        fresh = self.payloads(sizes)
        other_sizes = composed(self.rng, sum(sizes) + 16 * len(sizes))
        while self.form == "seekable" and -(-len(other_sizes) // 6) != -(-len(sizes) // 6):
            other_sizes = composed(self.rng, sum(sizes) + 16 * len(sizes))  # as many fragments: the same size
        others = self.payloads(other_sizes)
        done, now = True, fresh
        match kind:
            case "append":
                with open(path, "ab") as file:
                    file.write(self.content(fresh))
                now = old + fresh
            case "truncate":
                os.truncate(path, self.rng.randrange(stamp.st_size))
                now = old  # of which some are gone
            case "truncate between":
                keep = self.rng.randrange(len(old))
                os.truncate(path, sum(sizes[:keep]) + 16 * keep if self.form == "plain" else 0)
                now = old[:keep]
            case "another":
                now = others[: self.rng.randrange(len(others))] + fresh
                self.put(path, now, replace=True)
            case "swap":
                os.rename(path, self.folder / "aside")
                os.rename(self.paths[1], path)
                os.rename(self.folder / "aside", self.paths[1])
                now = self.old[str(self.paths[1])]
                self.new[str(self.paths[1])] = old
            case "rename over":
                os.rename(self.paths[1], path)
                now = self.old[str(self.paths[1])]
            case "gone":
                path.unlink()
                now = []
            case "touch":
                os.utime(path)
                now = old
            case "in place":
                self.put(path, others, replace=False)
                now = others
            case _:
                where, lengths, times = kind.split(", ")
                now = fresh if lengths == "equal lengths" else others
                done = self.put(
                    path,
                    now,
                    replace=where == "replaced",
                    same_size=True,
                    stamp=stamp if times == "same times" else None,
                )
        self.new[str(path)] = now
        return done


MUTATIONS = [
    "append",
    "truncate",
    "truncate between",
    "another",
    "swap",
    "rename over",
    "gone",
    "touch",
    "in place",
    *(
        f"{where}, {lengths}, {times}"
        for where in ("replaced", "rewritten")
        for lengths in ("equal lengths", "other lengths")
        for times in ("same times", "new times")
    ),
]
READS = 10_000


def one_read(data, rng):
    """[(number, payload)] of a read that went well."""
    size = len(data)
    match rng.randrange(4):
        case 0 | 1:
            number = rng.randrange(size)
            return [(number, data[number])]
        case 2:
            numbers = [rng.randrange(size) for _ in range(rng.randrange(1, 9))]
            return list(zip(numbers, data[numbers].tolist(), strict=True))
        case 3:
            begin = rng.randrange(size)
            return list(enumerate(data[begin : begin + 5].tolist(), begin))


@SLOW_IS_FINE
@pytest.mark.parametrize("form", ["plain", "seekable", "one member", "zlib"])
def test_mutated_reads(tmp_path, form):
    """Whatever is done to a file: its old record of that number, its new one, or an error that says so."""
    rng = random.Random(form)
    reads = refused = rounds = 0
    seen = set()
    while reads < READS // 4 or rounds < 3 * len(MUTATIONS):
        rounds += 1
        kind, used = MUTATIONS[rounds % len(MUTATIONS)], rounds % 3
        folder = tmp_path / str(rounds)
        folder.mkdir()
        scene = Scene(folder, rng, form)
        before = [croupier.open(scene.paths) for _ in range(8)]  # an error is often the last of a dataset
        for data in before:
            assert len(data) == sum(map(len, scene.old.values()))
            if used == 1:
                data[:]
            elif used == 2:
                data[[0, -1]]
        if not scene.mutate(kind):
            continue
        seen.add((kind, used))
        after = croupier.open([path for path in scene.paths if path.exists()])
        for data in (*before, after):
            states = [scene.new] if data is after else [scene.old, scene.new]
            for _ in range(6):
                reads += 1
                try:
                    got = one_read(data, rng)
                except croupier.CroupierError:
                    refused += 1
                    continue
                for number, payload in got:
                    place = data.where(number)
                    held = [state.get(place.path, [])[place.record : place.record + 1] for state in states]
                    assert [payload] in held, (kind, used, place, data is after)
    assert reads >= READS // 4
    assert len(seen) >= 3 * len(MUTATIONS) - 12  # sizes of compressed files cannot always be had
    assert 0.1 < refused / reads < 0.9


@SLOW_IS_FINE
@pytest.mark.parametrize("form", FOREIGN)
def test_another_file_of_the_same_shape(tmp_path, form):
    """As many records of the same lengths: nothing that is read tells, so the file's identity must."""
    sizes = [100, 3_000, 0, 50_000] * 20
    rng = random.Random(form)
    path = make(tmp_path / "x.tfrecord.gz", noise(rng, *sizes), form)
    used, known = croupier.open(path), croupier.open(path)
    assert len(used[:]) == len(known) == len(sizes)
    make(tmp_path / "other", noise(rng, *sizes), form)
    os.replace(tmp_path / "other", path)
    for data in (used, known):
        with pytest.raises(croupier.StaleError):
            data[0]
        with pytest.raises(croupier.StaleError):
            data[[5, 70]]
        with pytest.raises(croupier.StaleError):
            list(data)


def test_what_was_only_touched_is_read_on(tmp_path):
    """Times that change and content that does not: `touch`, then the old time again; a link more; a copy."""
    payloads = noise(random.Random(1), *[3_000] * 50)
    for form in ("plain", *SEEKABLE):
        path = make(tmp_path / "x.tfrecord.gz", payloads, form)
        data, cold = croupier.open(path, index="memory"), croupier.open(path, index="memory")
        assert data[3] == payloads[3]
        assert len(cold) == len(payloads)
        stamp = path.stat()
        os.utime(path)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        os.chmod(path, 0o600)
        os.link(path, tmp_path / "link")
        assert data[4] == cold[4] == payloads[4]
        (tmp_path / "copy").write_bytes(path.read_bytes())
        os.utime(tmp_path / "copy", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        (tmp_path / "link").unlink()
        os.replace(tmp_path / "copy", path)
        assert data[49] == cold[49] == payloads[49]
        os.utime(path)
        with pytest.raises(croupier.StaleError):
            croupier.open(path, index="memory").concat(data)


def test_pickles_are_small_and_notice_changes(tmp_path):
    states = []
    for number in range(10):
        form = FORMS[number % len(FORMS)]
        payloads = [b"%d %d" % (number, record) for record in range(number * 5)]
        states.append((make(tmp_path / f"{number}.tfrecord.gz", payloads, form), payloads))
    data = croupier.open(tmp_path)
    expected = [payload for _, payloads in states for payload in payloads]
    for one in (data, data.take(100), data.subset(range(3, 90, 4))):
        assert len(pickle.dumps(one)) < 4_096
    assert len(data) == len(expected)
    dumped = pickle.dumps(data)
    assert len(dumped) < 4_096
    assert payloads_of(pickle.loads(dumped)) == payloads_of(pickle.loads(pickle.dumps(data))) == expected
    part = data.subset([5, 200, 5])
    assert payloads_of(pickle.loads(pickle.dumps(part))) == [expected[5], expected[200], expected[5]]
    both = data.take(2).concat(croupier.open(states[9][0]).skip(40))
    assert payloads_of(pickle.loads(pickle.dumps(both))) == expected[:2] + states[9][1][40:]
    path, payloads = states[5]
    for changed in (payloads[:-1], [*payloads[:-1], payloads[-1][::-1]], payloads[::-1]):
        make(path, changed, FORMS[5])
        for pickled in (dumped, pickle.dumps(part)):
            with pytest.raises(croupier.StaleError):
                pickle.loads(pickled)[0]
    make(path, payloads, FORMS[5])  # the same again: only its times are others
    assert payloads_of(pickle.loads(dumped)) == expected
