"""Payloads for tests of tf.train.Example: in the usual layout, in any other that is allowed, and wrong."""

import struct

NAMES = ["a", "label", "image/encoded", "ä", "", "x" * 20, "y" * 40, "z" * 200, "b" * 30, "c" * 29, "名前"]
DEPTHS = (1, 2, 3, 10, 94, 95, 96, 97, 98, 99, 100, 101, 120)


def varint(number, pad=0):
    """With `pad` bytes more than it needs."""
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number | (128 if pad else 0))
    out += bytes([128] * (pad - 1) + [0]) if pad else b""
    return bytes(out)


def field(number, content, pad=0):
    """A delimited one."""
    return varint(number << 3 | 2) + varint(len(content), pad) + content


class Maker:
    """`odd`: how often, from 0 to 1, something is done in an unusual way; `wrong`: in a wrong one."""

    def __init__(self, rng, odd=0.0, wrong=0.0):
        self.rng, self.odd, self.wrong = rng, odd, wrong

    def _is(self, chance):
        return self.rng.random() < chance

    def varint(self, number):
        pad = self.rng.choice((1, 2, 4)) if self._is(self.odd / 8) else 0
        size = len(varint(number))
        if self._is(self.wrong / 8):
            return bytes([255]) * self.rng.choice((9, 10, 11)) + b"\1"
        return varint(number, min(pad, 10 - size))

    def tag(self, number, wire):
        tag = varint(number << 3 | wire)
        pad = self.rng.randrange(1, 5) if self._is(self.odd / 8) else 0
        if self._is(self.wrong / 8):
            return self.rng.choice(
                (b"\0", b"\2", varint(number << 3 | 6), varint(number << 3 | 7), b"\xff" * 5 + b"\1")
            )
        return varint(number << 3 | wire, min(pad, 5 - len(tag)))

    def field(self, number, content):
        size = len(content)
        if self._is(self.wrong / 8):
            size += self.rng.choice((-1, 1, 5, 1 << 31, (1 << 64) - 10))
        return self.tag(number, 2) + self.varint(max(0, size)) + content

    def unknown(self, numbers=(3, 4, 5, 15, 16, 1000, (1 << 29) - 1)):
        """A field that the message has not; also one that it has, of another wire type."""
        number, wire = self.rng.choice(numbers), self.rng.choice((0, 1, 2, 3, 5))
        if wire == 0:
            return self.tag(number, 0) + self.varint(self.number())
        if wire == 1:
            return self.tag(number, 1) + self.rng.randbytes(8)
        if wire == 2:
            return self.field(number, self.rng.randbytes(self.rng.randrange(9)))
        if wire == 5:
            return self.tag(number, 5) + self.rng.randbytes(4)
        depth = self.rng.choice(DEPTHS) if self._is(0.3) else self.rng.randrange(3) + 1
        inside = self.unknown() if self._is(0.3) else b""
        end = (
            self.rng.choice((b"", varint(8 << 3 | 4)))
            if self._is(self.wrong / 4)
            else varint(number << 3 | 4)
        )
        return varint(number << 3 | 3) * depth + inside + end * depth

    def fields(self, parts, known):
        """Of a message: with unknown ones, and in any order where that changes nothing."""
        while self._is(self.odd / 3):
            wrong_wire = [
                number << 3 | wire for number, right in known for wire in (0, 1, 5) if wire not in right
            ]
            strange = self.unknown()
            if self._is(0.3) and wrong_wire:
                tag = self.rng.choice(wrong_wire)
                strange = varint(tag) + {0: self.varint(7), 1: bytes(8), 5: bytes(4)}[tag & 7]
            parts.insert(self.rng.randrange(len(parts) + 1), strange)
        return b"".join(parts)

    def number(self):
        bits = self.rng.choice((1, 6, 7, 8, 14, 20, 32, 62, 63, 64))
        return self.rng.getrandbits(bits) if self._is(0.9) else (1 << bits) - 1

    def count(self):
        return self.rng.choice((0, 1, 1, 1, 1, 2, 3, 10, 70, 300))

    def ints(self):
        values = [self.number() for _ in range(self.count())]
        if self._is(0.5):  # so that they are short
            values = [value & 127 for value in values]
        return self._packed([self.varint(value) for value in values], 0)

    def floats(self):
        packed = self._packed([self.rng.randbytes(4) for _ in range(self.count())], 5)
        return packed + field(1, bytes(3)) if self._is(self.wrong / 4) else packed

    def _packed(self, values, wire):
        """Packed, or each by itself, or both."""
        if not self._is(self.odd):
            return field(1, b"".join(values)) if values else b""
        parts = []
        while values:
            take = self.rng.randrange(1, len(values) + 1)
            some, values = values[:take], values[take:]
            parts += (
                [self.field(1, b"".join(some))]
                if self._is(0.5)
                else [self.tag(1, wire) + one for one in some]
            )
        return self.fields(parts, [(1, (2, wire))])

    def strings(self):
        sizes = [self.rng.choice((0, 1, 8, 16, 17, 100, 127, 128, 300)) for _ in range(self.count())]
        parts = [self.field(1, self.rng.randbytes(size)) for size in sizes]
        return self.fields(parts, [(1, (2,))])

    def feature(self, kind=None):
        if kind is None:
            kind = self.rng.choice((1, 2, 3))
        parts = [] if self._is(0.02) else [self._kind(kind)]
        while self._is(self.odd / 3):
            parts.append(self._kind(self.rng.choice((kind, 1, 2, 3))))
        return self.fields(parts, [(1, (2,)), (2, (2,)), (3, (2,))])

    def _kind(self, kind):
        return self.field(kind, {1: self.strings, 2: self.floats, 3: self.ints}[kind]())

    def entry(self, name, value):
        key = self.field(1, name)
        if not self._is(self.odd):
            return key + self.field(2, value())
        parts = [key, self.field(2, value())]
        if self._is(0.3):
            parts.append(
                self.rng.choice((key, self.field(2, value()), field(1, b"other"), field(1, b"\xff")))
            )
        if self._is(0.2):
            parts.pop(self.rng.randrange(len(parts)))
        self.rng.shuffle(parts)
        return b"".join(parts) if self._is(0.7) else self.fields(parts, [(1, (2,)), (2, (2,))])

    def name(self):
        if self._is(self.wrong / 4):
            return self.rng.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\xf4\x90\x80\x80", b"\xe4\xb8"))
        return self.rng.choice(NAMES).encode()

    def features(self, names=None):
        """With `names`, those in this order."""
        names = [self.name() for _ in range(self.rng.randrange(6))] if names is None else names
        kinds = {name: index % 3 + 1 for index, name in enumerate(map(str.encode, NAMES))}
        parts = []
        for name in names:
            kind = None if self._is(self.odd / 4) else kinds.get(name, 1)
            parts.append(self.field(1, self.entry(name, lambda kind=kind: self.feature(kind))))
        return self.fields(parts, [(1, (2,))])

    def example(self, names=None):
        names = None if names is None else [name.encode() for name in names]
        parts = [self.field(1, self.features(names))]
        while self._is(self.odd / 3):
            parts.append(self.field(1, self.features()))
        return self.fields(parts, [(1, (2,))])

    def steps(self):
        return self.fields([self.field(1, self.feature()) for _ in range(self.rng.randrange(4))], [(1, (2,))])

    def lists(self):
        parts = [self.field(1, self.entry(self.name(), self.steps)) for _ in range(self.rng.randrange(4))]
        return self.fields(parts, [(1, (2,))])

    def sequence(self):
        parts = [self.field(1, self.features()), self.field(2, self.lists())]
        while self._is(self.odd / 3):
            parts.append(self.rng.choice((self.field(1, self.features()), self.field(2, self.lists()))))
        return self.fields(parts, [(1, (2,)), (2, (2,))])


def alike(rng):
    """Payloads that mostly have the same features in the same order, as those of a dataset have."""
    names = rng.sample(NAMES, rng.randrange(1, len(NAMES)))
    payloads = []
    for _ in range(rng.randrange(40)):
        maker = Maker(rng, rng.choice((0, 0, 0, 0.2)), rng.choice((0, 0, 0, 0, 0, 0, 0.1)))
        some = names if rng.random() < 0.8 else [name for name in names if rng.random() < 0.7]
        payloads.append(maker.example(some))
        if rng.random() < 0.01:
            payloads[-1] = mutate(payloads[-1], rng, payloads)
    return payloads


def mutate(payload, rng, others):
    """A few random changes."""
    data = bytearray(payload)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 2, 8, 10, 11, 12, 18, 26, 127, 128, 255))
        elif kind == 2:
            del data[at : at + rng.choice((1, 1, 2, 8))]
        elif kind == 3:
            data[at:at] = rng.choice(
                (b"\x80", b"\xff" * 9, b"\x0b", b"\x0c", b"\0", struct.pack("<I", rng.getrandbits(32)))
            )
        elif kind == 4:
            other = rng.choice(others)
            begin = rng.randrange(len(other) + 1)
            data[at:at] = other[begin : begin + rng.choice((4, 16, 64))]
        else:
            del data[at:]
    return bytes(data)
