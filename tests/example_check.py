"""Holds croupier.example against protobuf's own and against the oracle: for tests and for fuzz/example.py."""

import numpy as np

import example_oracle as oracle
from croupier.errors import ExampleError, UsageError
from croupier.example import (
    BytesList,
    decode,
    decode_batch,
    decode_sequence,
    encode,
    encode_batch,
    encode_sequence,
)
from example_oracle import BYTES, FLOAT, INT64


def refusal(read, payload):
    """(what it reads, whether it refuses)"""
    try:
        return read(payload), False
    except (ValueError, ExampleError):
        return None, True


def as_value(values):
    """(kind, values) of what `decode` gives."""
    if isinstance(values, np.ndarray):
        assert values.dtype in (np.int64, np.float32), values.dtype
        assert values.flags.writeable
        return (
            (INT64, values.tolist()) if values.dtype == np.int64 else (FLOAT, values.view(np.uint32).tolist())
        )
    return (BYTES if values or isinstance(values, BytesList) else 0), list(values)


def as_values(features):
    return {name: as_value(values) for name, values in features.items()}


def quiet(value):
    """Python's floats, which upb gives, have no signalling NaNs."""
    kind, values = value
    if kind != FLOAT:
        return value
    return kind, [
        bits | 1 << 22 if bits & 0x7F800000 == 0x7F800000 and bits & 0x7FFFFF else bits for bits in values
    ]


def quieted(features):
    return {name: quiet(value) for name, value in features.items()}


def as_floats(value):
    kind, values = value
    return (kind, np.array(values, np.uint32).view(np.float32).tolist()) if kind == FLOAT else value


def check_example(payload, upb=None):
    """Whether we, the oracle and, if it is given, protobuf accept it; AssertionError where they differ."""
    plain, refused = refusal(oracle.example, payload)
    found, not_ours = refusal(decode, payload)
    wanted, not_theirs = refusal(upb.parse, payload) if upb else (plain, refused)
    assert not_theirs == refused, ("upb and the oracle differ", not_theirs, refused)
    assert not_ours == refused, ("we and the oracle differ", not_ours, refused)
    if refused:
        return False
    assert list(found) == sorted(found, key=str.encode)
    ours = as_values(found)
    assert ours == plain
    assert quieted(ours) == quieted(wanted)
    again = encode(found)
    assert as_values(decode(again)) == ours
    if upb and quieted(ours) == ours:
        assert again == upb.build({name: as_floats(value) for name, value in ours.items()})
    return True


def check_sequence(payload, upb=None):
    """As check_example, of a SequenceExample."""
    plain, refused = refusal(oracle.sequence, payload)
    found, not_ours = refusal(decode_sequence, payload)
    wanted, not_theirs = refusal(upb.parse_sequence, payload) if upb else (plain, refused)
    assert (not_theirs, not_ours) == (refused, refused), (
        "upb, we, the oracle",
        not_theirs,
        not_ours,
        refused,
    )
    if refused:
        return False
    context = as_values(found.context)
    lists = {name: [as_value(step) for step in steps] for name, steps in found.feature_lists.items()}
    assert (context, lists) == plain
    quiet_lists = {name: [quiet(step) for step in steps] for name, steps in lists.items()}
    quiet_wanted = {name: [quiet(step) for step in steps] for name, steps in wanted[1].items()}
    assert (quieted(context), quiet_lists) == (quieted(wanted[0]), quiet_wanted)
    again = encode_sequence(found)
    if upb and (quieted(context), quiet_lists) == (context, lists):
        floats = {name: [as_floats(step) for step in steps] for name, steps in lists.items()}
        assert again == upb.build_sequence(
            {name: as_floats(value) for name, value in context.items()}, floats
        )
    return True


def first_fault(records):
    """The first record that no batch can have: refused, or of another kind than one before."""
    kinds = {}
    for number, features in enumerate(records):
        if features is None:
            return number
        for name, (kind, _) in features.items():
            if kind and kinds.setdefault(name, kind) != kind:
                return number
    return None


def column_values(column, number):
    """(kind, values) of a record; (0, []) where it has none."""
    values = column[number]
    if values is None:
        return 0, []
    if column.kind == FLOAT:
        return FLOAT, values.view(np.uint32).tolist()
    return int(column.kind), values if column.kind == BYTES else values.tolist()


def check_columns(columns, records, names):
    """The same values as the oracle's."""
    assert columns.records == len(records)
    assert list(columns) == names
    for name in names:
        column = columns[name]
        assert len(column) == len(records)
        assert column.rows[0] == 0
        for number, features in enumerate(records):
            value = features.get(name, (0, []))
            assert column_values(column, number) == value, (name, number)


def decoded(payloads, names, threads):
    """(the columns, None), or (None, the record at fault)."""
    try:
        return decode_batch(payloads, columns=names, threads=threads), None
    except ExampleError as error:
        return None, error.record


def check_batch(payloads, names, threads=1, upb=None):
    """All columns of these payloads, and some; and back."""
    records = [refusal(oracle.example, payload)[0] for payload in payloads]
    fault = first_fault(records)
    columns, found = decoded(payloads, None, threads)
    assert found == fault
    if columns is not None:
        there = {name for features in records for name, (kind, _) in features.items() if kind}
        check_columns(columns, records, sorted(there, key=str.encode))
        check_encode(columns, records, upb)
    check_some(payloads, names, threads)


def check_some(payloads, names, threads):
    """What is not asked for may be wrong: records that protobuf refuses may pass."""
    records = [refusal(lambda payload: oracle.example(payload, names), payload)[0] for payload in payloads]
    fault = first_fault(records)
    there = {name for features in records if features for name, (kind, _) in features.items() if kind}
    try:
        columns, found = decoded(payloads, names, threads)
    except UsageError:
        assert fault is None
        assert not payloads or there != set(names)
        return
    assert found == fault
    if columns is not None:
        check_columns(columns, records, names if payloads else [])


def check_encode(columns, records, upb=None):
    """The columns as payloads: what `encode` writes, and protobuf would."""
    batch = encode_batch(columns)
    assert len(batch) == len(records)
    for payload, features in zip(batch.tolist(), records, strict=True):
        there = {name: value for name, value in features.items() if value[0]}
        assert oracle.example(payload) == there
        assert payload == encode(decode(payload))
        if upb and quieted(there) == there:
            assert payload == upb.build({name: as_floats(value) for name, value in there.items()})
