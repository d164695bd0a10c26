"""tf.train.Example's wire format in plain Python, from the definitions: slow, and meant to be read.

A value is (kind, values), kind being 0 (not set), 1 (bytes), 2 (float32, as their bits) or 3 (int64).
"""

BYTES, FLOAT, INT64 = 1, 2, 3
VARINT, FIXED64, DELIMITED, START, END, FIXED32 = range(6)
DEPTH = 100


class WrongError(ValueError):
    """No such message."""


def varint(data, at, most=10):
    """(number, the place behind it)"""
    number = 0
    for index in range(most):
        if at + index >= len(data):
            raise WrongError("cut short")
        number |= (data[at + index] & 127) << 7 * index
        if data[at + index] < 128:
            return number % (1 << 64), at + index + 1
    raise WrongError("too long a number")


def _taken(data, at, size):
    if at + size > len(data):
        raise WrongError("cut short")
    return data[at : at + size], at + size


def _field(data, at, depth):
    """(number, wire type, content, the place behind it); a group's content is None."""
    tag, at = varint(data, at, 5)
    number, wire = tag >> 3, tag & 7
    if tag >= 1 << 32 or number == 0:
        raise WrongError("no such field")
    if wire == VARINT:
        content, at = varint(data, at)
    elif wire in (FIXED64, FIXED32):
        content, at = _taken(data, at, 8 if wire == FIXED64 else 4)
    elif wire == DELIMITED:
        size, at = varint(data, at)
        content, at = _taken(data, at, size)
    elif wire == START:
        if depth == 0:
            raise WrongError("too deep")
        content, inner = None, None
        while inner != (number, END):
            *inner, _, at = _field(data, at, depth - 1)
            inner = tuple(inner)
            if inner[1] == END and inner[0] != number:
                raise WrongError("another group's end")
    elif wire == END:
        content = None
    else:
        raise WrongError("no such wire type")
    return number, wire, content, at


def fields(data, depth):
    """(number, wire type, content) of each of a message's fields."""
    at = 0
    while at < len(data):
        number, wire, content, at = _field(data, at, depth)
        if wire == END:
            raise WrongError("a group's end that was not begun")
        yield number, wire, content


def _numbers(data, kind):
    """Packed."""
    if kind == FLOAT:
        if len(data) % 4:
            raise WrongError("packed floats of a wrong size")
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def _list(data, kind, depth):
    values = []
    single = {BYTES: DELIMITED, FLOAT: FIXED32, INT64: VARINT}[kind]
    for number, wire, content in fields(data, depth):
        if number != 1:
            continue
        if wire == single:
            values.append(int.from_bytes(content, "little") if kind == FLOAT else content)
        elif wire == DELIMITED:
            values += _numbers(content, kind)
    if kind == INT64:
        values = [value - (value >> 63 << 64) for value in values]
    return values


def feature(data, depth, before=(0, [])):
    """A Feature's value, merged into the one before."""
    kind, values = before
    for number, wire, content in fields(data, depth):
        if wire == DELIMITED and number in (BYTES, FLOAT, INT64):
            values = (values if number == kind else []) + _list(content, number, depth - 1)
            kind = number
    return kind, values


def _map(data, depth, read, empty, wanted=None):
    """{name: value} of a message that has a map and nothing else; what is not wanted is not looked at."""
    found = {}
    for number, wire, content in fields(data, depth):
        if (number, wire) != (1, DELIMITED):
            continue
        names, parts, strange = [b""], [], False
        for place, how, part in fields(content, depth - 1):
            if (place, how) == (1, DELIMITED):
                names.append(part)
            elif (place, how) == (2, DELIMITED):
                parts.append(part)
            else:
                strange = True
        if wanted is not None and names[-1] not in wanted:
            continue
        name, value = [name.decode() for name in names][-1], empty
        for part in parts:
            value = read(part, depth - 2, value)
        if not strange:  # upb keeps such an entry among the unknown fields
            found[name] = value
    return found


def _feature_list(data, depth, before):
    steps = [content for number, wire, content in fields(data, depth) if (number, wire) == (1, DELIMITED)]
    return before + [feature(step, depth - 1) for step in steps]


def example(data, names=None):
    """{name: value}; WrongError or UnicodeDecodeError (both are ValueErrors) where it is none.

    With `names`, of these alone.
    """
    found, wanted = {}, None if names is None else {name.encode() for name in names}
    for number, wire, content in fields(data, DEPTH):
        if (number, wire) == (1, DELIMITED):
            found |= _map(content, DEPTH - 1, feature, (0, []), wanted)
    return found


def sequence(data):
    """(context, {name: [value, ...]}) of a SequenceExample."""
    context, lists = {}, {}
    for number, wire, content in fields(data, DEPTH):
        if (number, wire) == (1, DELIMITED):
            context |= _map(content, DEPTH - 1, feature, (0, []))
        elif (number, wire) == (2, DELIMITED):
            lists |= _map(content, DEPTH - 1, _feature_list, [])
    return context, lists
