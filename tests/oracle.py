"""What the kernel must give, in plain Python, from the definitions: slow, and meant to be read."""

MASK_DELTA = 0xA282EAD8
U64 = 1 << 64
PARTIAL, FULL, BAD_HEADER, BAD_PAYLOAD, TOO_LONG = range(5)


def _remainder(register):
    for _ in range(8):
        register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register


_TABLE = [_remainder(byte) for byte in range(256)]


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF


def header(length):
    raw = length.to_bytes(8, "little")
    return raw + masked(raw).to_bytes(4, "little")


def frame(payload):
    payload = bytes(payload)
    return header(len(payload)) + payload + masked(payload).to_bytes(4, "little")


def _number(data, at, size):
    return int.from_bytes(data[at : at + size], "little")


def payload_is_right(data, begin, end):
    """Whether the frame data[begin:end] has the checksum of its payload."""
    return _number(data, end - 4, 4) == masked(data[begin + 12 : end - 4])


def header_is_right(data, at):
    return _number(data, at + 8, 4) == masked(data[at : at + 8])


def scan(data, start, room, payloads, limit):
    """(bounds, why it stopped); `room` is how many bounds there may be."""
    bounds = [start]
    while True:
        at = bounds[-1]
        if len(data) - at < 12:
            return bounds, PARTIAL
        if len(bounds) == room:
            return bounds, FULL
        if not header_is_right(data, at):
            return bounds, BAD_HEADER
        length = _number(data, at, 8)
        if length > limit:
            return bounds, TOO_LONG
        end = at + 16 + length
        if end > len(data):
            return bounds, PARTIAL
        if payloads and not payload_is_right(data, at, end):
            return bounds, BAD_PAYLOAD
        bounds.append(end)


def check_payloads(data, bounds):
    wrong = [i for i in range(len(bounds) - 1) if not payload_is_right(data, bounds[i], bounds[i + 1])]
    return wrong[0] if wrong else len(bounds) - 1


def resync(data, start, limit, final=False):
    at = start
    while at + 12 <= len(data):
        length = _number(data, at, 8)
        if header_is_right(data, at) and length <= limit:
            end = at + 16 + length
            if end > len(data) and not final:
                return at, False
            if end <= len(data) and payload_is_right(data, at, end):
                return at, True
        at += 1
    return at, False


def gather(source, bounds, index, room):
    """(the frames in this order, their edges) as far as `room` bytes hold them."""
    out, edges = b"", [0]
    for i in index:
        one = source[bounds[i] : bounds[i + 1]]
        if len(out) + len(one) > room:
            break
        out += one
        edges.append(len(out))
    return out, edges


def scatter(source, bounds, bucket, first, out, cursors, limits):
    """(out, cursors, the first frame that was not placed)."""
    out, cursors = bytearray(out), list(cursors)
    for i in range(first, len(bounds) - 1):
        one, b = source[bounds[i] : bounds[i + 1]], bucket[i]
        if cursors[b] + len(one) > limits[b]:
            return bytes(out), cursors, i
        out[cursors[b] : cursors[b] + len(one)] = one
        cursors[b] += len(one)
    return bytes(out), cursors, len(bounds) - 1


def mix(x):
    x %= U64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % U64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % U64
    return x ^ x >> 31


def fingerprint(payloads, totals=(0, 0, 0, 0)):
    frames, size, low, high = totals
    total = low + (high << 64)
    for payload in payloads:
        crc = crc32c(payload)
        h = mix(len(payload) + 0x9E3779B97F4A7C15)
        total += mix(h + crc) + (mix(h ^ crc * 0xD6E8FEB86659FD93 % U64 ^ 0xA0761D6478BD642F) << 64)
        frames, size = frames + 1, size + len(payload)
    return [frames, size, total % U64, (total >> 64) % U64]


def fragments(bounds, large, group):
    ends, opened = [], 0  # `opened`: bytes in the group that is still open
    for i in range(len(bounds) - 1):
        size = bounds[i + 1] - bounds[i]
        if size >= large:
            if i > (ends[-1] if ends else 0):
                ends.append(i)
            ends.append(i + 1)
            opened = 0
        else:
            opened += size
            if opened >= group:
                ends.append(i + 1)
                opened = 0
    return ends


def append(payloads, room):
    """The frames of payloads[0], payloads[1], ... as far as `room` bytes hold them: (bytes, how many)."""
    out = b""
    for count, payload in enumerate(payloads):
        one = frame(payload)
        if len(out) + len(one) > room:
            return out, count
        out += one
    return out, len(payloads)
