"""Many tf.train.Examples as columns: what is read, what is refused, and which record it was."""

import random
from pathlib import Path

import numpy as np
import pytest

import croupier
import example_check as check
from croupier import ExampleError, Feature, Schema, UsageError, _kernel
from croupier.batch import Batch
from croupier.example import BytesList, Kind, decode, decode_batch, encode
from example_wire import NAMES, Maker, alike, field, mutate

CORPUS = sorted((Path(__file__).parent / "corpus" / "example").iterdir())
I, F, B = Kind.INT64, Kind.FLOAT, Kind.BYTES  # noqa: E741


def batches(seed, count):
    """Lists of payloads that are alike, or are not."""
    rng = random.Random(seed)
    pool = [path.read_bytes() for path in CORPUS]
    for _ in range(count):
        yield alike(rng), rng.sample(NAMES, rng.randrange(len(NAMES)))
        maker = Maker(rng, 0.3, rng.choice((0, 0.2)))
        pool.append(maker.example())
        pool.append(mutate(pool[-1], rng, pool))
        yield rng.sample(pool, 3), rng.sample(NAMES, rng.randrange(len(NAMES)))


def test_as_the_oracle():
    for payloads, names in batches(1, 300):
        check.check_batch(payloads, names)


@pytest.mark.interop
def test_as_protobuf_reads_and_writes():
    import example_upb

    for payloads, names in batches(2, 150):
        check.check_batch(payloads, names, upb=example_upb)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_corpus(path):
    payload = path.read_bytes()
    usual = encode({"a": [1], "label": [0.5], "x": [b"y"]})
    for payloads in ([payload], [payload, payload], [usual, payload], [payload, usual, b""]):
        check.check_batch(payloads, ["a", "label", "x"])


def test_threads_make_no_difference():
    """Parts with other features each, with lists here and none there, long values and short ones."""
    rng = np.random.default_rng(4)
    payloads = []
    for number in range(40_000):
        record = {
            "n": number,
            "text": "x" * int(rng.integers(0, 40)),
            "long": rng.bytes(rng.integers(200, 400)),
        }
        record |= {"list": rng.integers(-9, 1 << 50, rng.integers(0, 9))} if number > 15_000 else {"list": 3}
        record |= {f"part {number // 9_000}": [0.5] * (number % 3)}
        payloads.append(encode(record))
    one = decode_batch(payloads, threads=1)
    assert one["list"].rows[-1] == sum(len(decode(payload)["list"]) for payload in payloads)
    for threads in (2, 3, 8):
        many = decode_batch(payloads, threads=threads)
        assert list(many) == list(one)
        for name in one:
            for part in ("values", "rows", "items", "present"):
                first, second = getattr(one[name], part), getattr(many[name], part)
                assert (first is None) == (second is None), (name, part)
                assert first is None or (first.dtype == second.dtype and (first == second).all()), (
                    name,
                    part,
                )
    bad = [*payloads[:31_000], encode({"n": "text"}), *payloads[31_000:], b"\xff"]
    for threads in (1, 2, 8):
        with pytest.raises(ExampleError, match="'n' holds string, and not int64") as caught:
            decode_batch(bad, threads=threads)
        assert caught.value.record == 31_000


def test_long_lists_of_numbers_of_every_length():
    rng = np.random.default_rng(11)
    lists = []
    for bits in (1, 7, 8, 14, 17, 21, 28, 30, 35, 42, 50, 56, 57, 63, 64):
        for count in (90, 256, 1000, 5000):
            widest = (
                rng.integers(0, 2, count, np.uint64)
                if bits == 1
                else rng.integers(0, 1 << 64, count, np.uint64, False)
            )
            lists.append((widest >> np.uint64(64 - bits if bits > 1 else 0)).view(np.int64))
    for count in (300, 3000):
        widths = rng.integers(1, 65, count).astype(np.uint64)
        lists.append(
            (rng.integers(0, 1 << 64, count, np.uint64, False) >> (np.uint64(64) - widths)).view(np.int64)
        )
        lists.append(np.where(rng.random(count) < 0.02, -1, rng.integers(0, 50_000, count)))
    payloads = [encode({"pad": "x" * (number % 70), "ids": values}) for number, values in enumerate(lists)]
    for batch in (payloads, payloads[::-1]):
        column = decode_batch(batch)["ids"]
        for number, values in enumerate(lists if batch is payloads else lists[::-1]):
            assert (column[number] == values).all(), number
    number = bytes([0x80] * 10 + [1])
    for at in (0, 1, 63, 64, 100, 498, 499):
        packed = b"\5" * at + number + b"\5" * (500 - at)
        for wrong in (packed, packed[:at] + b"\5" * (499 - at) + b"\x80"):
            payload = field(1, field(1, field(1, b"ids") + field(2, field(3, field(1, wrong)))))
            with pytest.raises(ExampleError):
                decode_batch([payloads[0], payload])


@pytest.mark.parametrize("size", range(1, 12))
def test_numbers_of_each_length_on_every_byte_of_a_vector(size):
    """Two of them, with the payload's end close behind, and nothing behind that or another record."""
    number = bytes(128 | 37 * (at + 1) & 127 for at in range(size - 1)) + b"\x55"
    for before in range(65):
        for after in (0, 1, 70):
            packed = bytes(range(before)) + number * 2 + bytes(after)
            small = field(1, field(1, field(1, b"ids") + field(2, field(3, field(1, packed)))))
            padded = field(3, field(1, bytes(256) + packed))
            large = field(1, field(1, field(1, b"ids") + field(2, padded)))
            for payloads in ([small], [large], [large, small]):
                check.check_batch(payloads, ["ids"])


RECORDS = [
    {"one": 1, "two": [0.5, 1.5], "text": "a", "list": [1, 2], "rare": 7},
    {"one": 2, "two": [2.5, 3.5], "text": "bc", "list": np.zeros(0, np.int64)},
    {"one": -3, "two": [4.5, 5.5], "text": b"\xff", "list": [3]},
]


def test_columns_for_people():
    columns = decode_batch([encode(record) for record in RECORDS])
    assert list(columns) == ["list", "one", "rare", "text", "two"]
    assert columns["one"].array.tolist() == [1, 2, -3]
    assert columns["two"].array.tolist() == [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]
    assert columns["text"].array.tolist() == [b"a", b"bc", b"\xff"]
    assert (columns["list"].values.tolist(), columns["list"].rows.tolist()) == ([1, 2, 3], [0, 2, 2, 3])
    assert columns["list"].padded().tolist() == [[1, 2], [0, 0], [3, 0]]
    assert columns["list"].padded(-1, 3).tolist() == [[1, 2, -1], [-1, -1, -1], [3, -1, -1]]
    assert columns["list"].padded(-1, 1).tolist() == [[1], [-1], [3]]
    assert columns["text"].padded(length=2).tolist() == [[b"a", b""], [b"bc", b""], [b"\xff", b""]]
    assert (columns["list"].length, columns["two"].length) == (None, 2)
    assert columns["rare"].present.tolist() == [True, False, False]
    assert columns["rare"].padded(-1).tolist() == [[7], [-1], [-1]]
    assert (columns["rare"][0].tolist(), columns["rare"][1]) == ([7], None)
    assert columns["text"][-1] == [b"\xff"]
    assert np.asarray(columns["one"], np.float64).tolist() == [1, 2, -3]
    assert repr(columns) == "<croupier.Columns of 3 records: list, one, rare, text, two>"
    for name, problem in (("list", "differs in length"), ("rare", "is missing from some records")):
        with pytest.raises(UsageError, match=f"{name}' {problem}: use .values and .rows"):
            columns[name].array  # noqa: B018
    with pytest.raises(KeyError):
        columns["other"]


def test_arrays_may_be_written_to_and_keep_nothing_else_alive():
    payloads = bytearray(encode({"a": [1, 2], "b": b"x" * 1000}))
    columns = decode_batch([payloads])
    columns["a"].values[0] = 9
    payloads.clear()
    assert columns["a"].array.tolist() == [[9, 2]]
    assert columns["b"].array[0] == b"x" * 1000


def test_columns_in_the_order_that_is_asked_for():
    payloads = [encode(record) for record in RECORDS]
    assert list(decode_batch(payloads, columns=["two", "one", "two"])) == ["two", "one"]
    assert decode_batch(payloads, columns=[]).records == 3
    with pytest.raises(UsageError, match=r"no record has a feature 'txt': do you mean 'text'\?"):
        decode_batch(payloads, columns=["txt", "one"])
    assert list(decode_batch(payloads, columns=["txt", "one"], lacking=True)) == ["one"]
    assert list(decode_batch([], columns=["one"])) == []


def test_what_is_not_asked_for_is_not_looked_at():
    good = field(1, field(1, b"a") + field(2, field(3, field(1, b"\x05"))))
    for bad in (
        field(1, field(1, b"\xff") + field(2, b"")),
        field(1, field(1, b"b") + field(2, b"\xff\xff")),
        field(1, field(1, b"b") + field(2, field(3, field(1, b"\x80")))),
    ):
        for payload in (field(1, good + bad), field(1, bad + good)):
            assert decode_batch([payload], columns=["a"])["a"].array.tolist() == [5]
            for options in ({}, {"columns": ["a", "b"]}):
                if options and b"\xff" in bad and bad.count(b"\xff") == 1:
                    continue  # a name that nobody can ask for
                with pytest.raises(ExampleError):
                    decode_batch([payload], **options)


@pytest.mark.parametrize(
    "form", [list, tuple, lambda some: Batch(*joined(some)), lambda some: [*map(memoryview, some)]]
)
def test_batches_of_any_form(form):
    payloads = [encode({"a": number}) for number in (300, 1, 2)]
    assert decode_batch(form(payloads))["a"].array.tolist() == [300, 1, 2]


def joined(payloads):
    edges = np.cumsum([0, *map(len, payloads)])
    return np.frombuffer(b"".join(payloads), np.uint8), edges.astype(np.int64)


def test_a_part_of_a_batch():
    """Its buffer begins before its first record, and goes on behind its last."""
    buffer, edges = joined([encode({"a": number}) for number in range(10)])
    assert decode_batch(Batch(buffer, edges[3:7]))["a"].array.tolist() == [3, 4, 5]


def test_errors_name_the_record_and_the_byte():
    good = encode({"a": 1})
    with pytest.raises(ExampleError, match="cut short") as caught:
        decode_batch([good, good, good[:-1], b"\xff"])
    assert (caught.value.record, caught.value.offset) == (2, 1)
    assert str(caught.value).startswith("record 2, byte 1 of the payload: no tf.train.Example")
    with pytest.raises(ExampleError, match="'a' holds float32, and not int64") as caught:
        decode_batch([good, encode({"a": 1.5})])
    assert caught.value.record == 1


def schema(**features):
    return Schema({name: Feature(name, *values, **more) for name, (values, more) in features.items()})


@pytest.mark.parametrize(
    ("feature", "record", "problem"),
    [
        (((I,), {}), {"a": 1.5}, "feature 'a' holds float32, and not int64"),
        (((I, True), {}), {}, "feature 'a' is missing"),
        (((I, True, 2, 2), {}), {"a": 1}, "feature 'a' has 1 values, and not 2"),
        (((I, False, 2, 3), {}), {"a": [1] * 4}, "feature 'a' has 4 values, and not 2 to 3"),
        (((I, False, 2), {}), {"a": 1}, "feature 'a' has 1 values, and not 2 or more"),
        (((F, False), {"shape": (2, 2)}), {"a": [0.5] * 3}, "feature 'a' has 3 values, and not 4"),
        (
            ((B, True, 1, 1), {"dtype": "int16", "shape": (2,)}),
            {"a": b"123"},
            "'a' has 3 bytes, which are no int16",
        ),
        (((B, True, 1, 1), {"dtype": "int16"}), {"a": b"123"}, "'a' has 3 bytes, which are no int16s"),
        (((I,), {}), {"a": 1, "b": 2}, "feature 'b' is not in the schema"),
    ],
)
def test_departures_from_a_schema(feature, record, problem):
    right = {"int64": 1, "float32": 0.5, "string": b"1234"}[feature[0][0].label]
    count = 4 if feature[1].get("shape") == (2, 2) else max(1, feature[0][2] if len(feature[0]) > 2 else 1)
    payloads = [encode({"a": [right] * count})] * 5 + [encode(record)] * 2
    assert len(decode_batch(payloads[:5], schema(a=feature))["a"]) == 5
    with pytest.raises(ExampleError, match=problem) as caught:
        decode_batch(payloads, schema(a=feature))
    assert caught.value.record == 5


@pytest.mark.parametrize(
    ("feature", "record", "wanted"),
    [
        (((I,), {"default": -1}), {"a": 5}, [[5], [-1], [5]]),
        (((I, False, 2, 2), {"default": -1}), {"a": [5, 6]}, [[5, 6], [-1, -1], [5, 6]]),
        (((I,), {"default": [7, 8]}), {"a": 5}, [[5], [7, 8], [5]]),
        (((F,), {"default": 3}), {"a": 0.5}, [[0.5], [3], [0.5]]),
        (((F,), {"default": []}), {"a": 0.5}, [[0.5], [], [0.5]]),
        (((B,), {"default": "none"}), {"a": ["x", b"\xff"]}, [[b"x", b"\xff"], [b"none"], [b"x", b"\xff"]]),
        (((B,), {"default": [b"", b"y"]}), {"a": "x"}, [[b"x"], [b"", b"y"], [b"x"]]),
    ],
)
def test_defaults(feature, record, wanted):
    payloads = [encode(one) for one in (record, {}, record)]
    column = decode_batch(payloads, schema(a=feature))["a"]
    assert column.present is None
    assert [list(column[number]) for number in range(3)] == wanted
    nowhere = decode_batch([encode({})] * 2, schema(a=feature), lacking=True)
    assert "a" not in nowhere or list(nowhere["a"][1]) == wanted[1]


def test_a_schemas_column_that_no_record_has():
    """The schema tells what it would hold."""
    for default, wanted in ((None, None), (9, [9])):
        column = decode_batch([encode({})] * 2, schema(a=((I,), {"default": default})))["a"]
        assert column.kind is I
        assert (column[1] if column[1] is None else column[1].tolist()) == wanted


def test_raw_tensors_are_not_copied():
    tensors = np.arange(24, dtype=">f4").reshape(2, 3, 4)
    payloads = [encode({"a": tensor.tobytes(), "b": tensor.astype("u1").tobytes()}) for tensor in tensors]
    known = schema(
        a=((B, True, 1, 1), {"dtype": ">f4", "shape": (3, 4)}), b=((B, True, 1, 1), {"dtype": "uint8"})
    )
    columns = decode_batch(payloads, known)
    assert (columns["a"].array == tensors).all()
    assert np.shares_memory(columns["a"].array, columns["a"].values)
    assert columns["b"].array.shape == (2, 12)


def test_names_without_end_take_no_memory_without_end():
    """Each record has names of its own: columns times records would be 10^10 rows."""
    payloads = [encode({f"{number}-{name}": 1 for name in range(20)}) for number in range(20_000)]
    with pytest.raises(ExampleError, match="too many different names"):
        decode_batch(payloads)
    assert decode_batch(payloads, columns=["7-3"])["7-3"].values.tolist() == [1]


def test_a_kind_that_is_not_set_is_missing():
    nothing, empty = encode({"a": []}), encode({"a": BytesList()})
    column = decode_batch([nothing, empty, encode({"a": "x"})])["a"]
    assert column.present.tolist() == [False, True, True]
    assert list(decode_batch([nothing])) == []


def test_the_kernel_believes_nothing():
    payload = encode({"a": 1})
    whole = (0, len(payload))

    def columns(buffer=payload, bounds=whole, names=(b"a",), kinds=b"\0", threads=1):
        return _kernel.ExampleColumns(
            buffer, np.array(bounds, np.uint64), list(names), kinds, False, False, threads
        )

    for bounds in ((0, len(payload) + 1), (5, 3), (1 << 63, 1 << 62), (0, 1 << 63, 3), (3, 2, len(payload))):
        for threads in (1, 4):
            with pytest.raises((ValueError, RuntimeError), match=r"bounds|flaw"):
                raise RuntimeError(f"a flaw: {columns(bounds=bounds, threads=threads).flaw[0]}")
    for wrong, problem in (
        ({"kinds": b""}, "differ in length"),
        ({"kinds": b"\4"}, "0 to 3"),
        ({"names": (b"a", b"a"), "kinds": b"\0\0"}, "twice"),
        ({"threads": 0}, "at least 1"),
        ({"bounds": ()}, "at least 1 elements"),
    ):
        with pytest.raises(ValueError, match=problem):
            columns(**wrong)
    with pytest.raises(TypeError):
        columns(names=("a",))
    parsed = columns()
    good = [(np.zeros(1, np.int64), None, None, None)]
    parsed.fill(payload, good)
    assert good[0][0].tolist() == [1]
    values = good[0][0]
    for arrays, problem in (
        ([], "one tuple for each column"),
        ([(np.zeros(2, np.int64), None, None, None)], "not the right size"),
        ([(None, None, None, None)], "must be there"),
        ([(np.zeros(9, np.uint8)[1:], None, None, None)], "not the right size"),
        ([(values, None, None, np.zeros(9, np.bool_))], "not the right size"),
        ([(values, np.zeros(1, np.int64), None, None)], "not the right size"),
        ([(values, None, np.zeros(2, np.int64), None)], "must be there"),
    ):
        with pytest.raises(ValueError, match=problem):
            parsed.fill(payload, arrays)
    with pytest.raises(TypeError):
        parsed.fill(payload, [None])


def test_payloads_that_change_between_parse_and_fill():
    """Long values are read twice: what is found then is what counts, and never beyond the arrays."""
    payload = bytearray(encode({"a": np.full(1000, 3), "b": b"x" * 1000}))
    bounds = np.array([0, len(payload)], np.uint64)
    parsed = _kernel.ExampleColumns(payload, bounds, [b"a"], b"\3", False, False, 1)
    ((*_, count, _, _, _, _),) = parsed.columns
    assert count == 1000
    at = payload.index(b"\3" * 1000)
    payload[at : at + 1000] = b"\x80" * 999 + b"\1"
    array = np.zeros(count, np.int64)
    with pytest.raises(ValueError, match="changed"):
        parsed.fill(payload, [(array, None, None, None)])
    with pytest.raises(ValueError, match="other payloads"):
        parsed.fill(b"", [(array, None, None, None)])


def test_a_dataset_of_several_kinds_of_records(tmp_path):
    with croupier.writer(tmp_path / "x.tfrecord") as out:
        out.write_many(encode(record) for record in RECORDS)
    data = croupier.open(tmp_path / "x.tfrecord")
    assert decode_batch(data[:])["one"].array.tolist() == [1, 2, -3]
    assert decode_batch(data[[2, 0]], columns=["one"])["one"].array.tolist() == [-3, 1]
