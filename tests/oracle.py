"""What the kernel must give, in plain Python, from the definitions: slow, and meant to be read."""

from itertools import pairwise

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


def check_frames(data, bounds):
    """The first frame that is not the one of some payload, or how many there are."""
    frames = [bytes(data[begin:end]) for begin, end in pairwise(bounds)]
    wrong = [i for i, found in enumerate(frames) if len(found) < 16 or found != frame(found[12:-4])]
    return wrong[0] if wrong else len(frames)


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


# --- packed sequences: of 64 numbers at a time, each less the least, in as many bits as the largest needs


def pack(values):
    """(least, bits, words)"""
    least, bits, words = [], [], []
    for begin in range(0, len(values), 64):
        block = values[begin : begin + 64]
        width = (max(block) - min(block)).bit_length()
        stream = sum((value - min(block)) << (width * i) for i, value in enumerate(block))
        least.append(min(block))
        bits.append(width)
        words += [(stream >> (64 * i)) % U64 for i in range(width)]
    return least, bits, words


def unpack(count, least, bits, words):
    values, at = [], 0
    for i in range(count):
        block, j = divmod(i, 64)
        if j == 0 and block:
            at += bits[block - 1]
        stream = sum(word << (64 * k) for k, word in enumerate(words[at : at + bits[block]]))
        values.append((least[block] + (stream >> (bits[block] * j)) % (1 << bits[block])) % U64)
    return values


def sums_before(values, place):
    return sum(values[:place]) % U64


def locate(values, firsts, record):
    """(file, offset, length), where file f has the values firsts[f] to firsts[f + 1]."""
    file = max(f for f in range(len(firsts) - 1) if firsts[f] <= record < firsts[f + 1])
    before = values[firsts[file] : record]
    return file, sum(before) + 16 * len(before), values[record]


def search_sums(values, first, last, position):
    """(the last number of values[first:last] that does not begin behind `position`, where it begins)"""
    begins = [sum(values[first:k]) for k in range(first, last)]
    k = max(k for k, begin in enumerate(begins) if begin <= position)
    return first + k, begins[k]


# --- files


def _leads_on(data, at, size, limit):
    """Whether the header at `at` is right, and another one or the end follows its frame."""
    if size - at < 16 or not _is_header(data, at):
        return False
    end = at + 16 + _number(data, at, 8)
    return end - at - 16 <= limit and (end == size or (end < size and _is_header(data, end)))


def _is_header(data, at):
    return len(data) - at >= 12 and header_is_right(data, at)


def walk(data, size, begin, end, sync, limit):
    """(begin of the first, end of the last, why it stopped, lengths) of what begins in [begin, end)."""
    data, end = data[:size], min(end, size)
    if sync:
        begin = next((at for at in range(begin, end) if _leads_on(data, at, size, limit)), end)
    at, lengths = begin, []
    while at < end:
        if len(data) - at < 12:
            return begin, at, PARTIAL, lengths
        if not header_is_right(data, at):
            return begin, at, BAD_HEADER, lengths
        length = _number(data, at, 8)
        if length > limit:
            return begin, at, TOO_LONG, lengths
        if at + 16 + length > size:
            return begin, at, PARTIAL, lengths
        lengths.append(length)
        at += 16 + length
    return begin, at, FULL, lengths


def digest(data):
    """Of all of a small file, else of sixteen pieces of 4 KiB: fifteen at equal distances, and the last."""
    if len(data) <= 1 << 16:
        return crc32c(data)
    last = len(data) - 4096
    places = [last // 15 * i for i in range(15)] + [last]
    return crc32c(b"".join(data[at : at + 4096] for at in places))
