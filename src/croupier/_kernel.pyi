"""The loops that run once per record, in C++ (see kernel/).

Buffers are anything that has the buffer protocol and is C-contiguous; integer arrays are uint64 buffers.
`bounds` are the edges of frames that stand next to each other: frame i is buffer[bounds[i]:bounds[i + 1]],
so n frames have n + 1 bounds. Every call checks what it is given and raises ValueError for what would read
or write out of range; none keeps a reference. All release the GIL but `append` and `payloads`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
Data = Buffer | NDArray[Any]  # numpy arrays are Buffers to type checkers from Python 3.12 on

CRC32C_IMPLEMENTATION: Final[str]
"""What this CPU was given: "avx512", "sse4.2", "arm64" or "table"."""

FRAME_OVERHEAD: Final[int]
"""16: length (8), its checksum (4), the payload's checksum (4)."""

# Why `scan` stopped at bounds[count].
PARTIAL: Final[int]
"""The buffer ended: an incomplete frame stands there, or nothing at all."""
FULL: Final[int]
"""`bounds` has no room for another frame."""
BAD_HEADER: Final[int]
"""The length does not match its checksum."""
BAD_PAYLOAD: Final[int]
"""The payload does not match its checksum; the header is right."""
TOO_LONG: Final[int]
"""The header is right and declares a payload of more than `limit` bytes."""

def crc32c(data: Buffer, crc: int = 0) -> int:
    """CRC-32C (Castagnoli) of `data`, continuing from `crc`."""

def masked_crc32c(data: Buffer) -> int:
    """The form that TFRecord stores: rotated by 15 bits, plus a constant."""

def implementations() -> list[str]:
    """The CRC-32C implementations that this CPU can run, fastest first; for tests."""

def crc32c_with(implementation: str, data: Buffer, crc: int = 0) -> int:
    """`crc32c` by a named implementation; for tests."""

def scan(buffer: Data, start: int, bounds: U64, payloads: bool, limit: int) -> tuple[int, int]:
    """Find frames from `start` on: fills `bounds`, gives (number of frames, why it stopped).

    bounds[0] becomes `start`, and bounds[count] is where it stopped. Length checksums are always
    checked, payload checksums when `payloads` is true. Nothing is allocated.
    """

def check_frames(buffer: Buffer, bounds: U64, totals: U64, threads: int) -> int:
    """The first frame whose length or a checksum is wrong, or the number of frames when all are right.

    Only then all are added to `totals` (see `fingerprint`).
    """

def resync(buffer: Buffer, start: int, limit: int, final: bool = False) -> tuple[int, bool]:
    """The first place at or after `start` where a frame begins: (position, True).

    A frame counts when its length (at most `limit`) and its payload both match their checksums. With
    (position, False) there is none before `position`: what stands there could still become a frame if
    more bytes followed (its header is right, or fewer than 12 bytes are left). `final` says that no bytes
    follow: then a frame that the buffer's end cuts off is passed over like any other that is wrong.
    """

def gather(source: Data, bounds: U64, index: U64, out: Data, out_bounds: U64, threads: int) -> int:
    """Copy frames index[0], index[1], ... of `source` to `out`, one after the other, as long as they fit.

    Gives how many it copied; out_bounds[0..that] are their edges in `out`.
    """

def scatter(
    source: Buffer, bounds: U64, bucket: U64, first: int, out: Buffer, cursors: U64, limits: U64
) -> int:
    """Append frame i, for i = first, first + 1, ..., to the region of `out` that bucket[i] names.

    Bucket b may use out[cursors[b]:limits[b]]; its cursor moves on. Stops at the first frame that does not
    fit and gives its number, or the number of frames when all were placed.
    """

def fingerprint(buffer: Buffer, bounds: U64, totals: U64) -> None:
    """Add the frames to totals = [frames, payload bytes, low, high]: an order-independent fingerprint.

    low + (high << 64) is the sum modulo 2**128 of a mix of each frame's length and payload checksum, as
    the frame stores it: `scan` or `check_frames` must have found the checksums right.
    """

def fingerprint_of(lengths: U64, crcs: U64, totals: U64) -> None:
    """As `fingerprint`, for frames that are elsewhere: payload sizes, and checksums as they store them."""

def fragments(bounds: U64, large: int, group: int, ends: U64) -> int:
    """Cut frames into compression fragments: ends[0..count) get the frame number after each one; gives count.

    A frame of `large` bytes or more is a fragment by itself; smaller neighbours share one that ends as
    soon as it has `group` bytes. The frames after the last end are a group that is still open.
    """

def append(out: Buffer, position: int, payload: Buffer, totals: U64) -> int:
    """Frame `payload` into `out` at `position` and add it to `totals` (see `fingerprint`).

    Gives the position after it, or -1, with nothing changed, when it does not fit.
    """

def append_many(
    out: Buffer, position: int, payloads: Sequence[Buffer], first: int, totals: U64
) -> tuple[int, int]:
    """`append` payloads[first], payloads[first + 1], ... as long as they fit: (next to append, position)."""

def payloads(buffer: Buffer, bounds: U64) -> list[bytes]:
    """Each frame's payload as bytes of its own."""

def slices(buffer: Data, bounds: U64) -> list[bytes]:
    """buffer[bounds[i]:bounds[i + 1]] as bytes, for each i."""

# Long sequences of lengths in few bits: see kernel/packed.h.

PackedArrays = tuple[int, U64, NDArray[np.uint8], U64, U64, U64]
"""(count, least, bits, words, sums, at): of each block of 64 numbers the smallest, the width in bits of the
others less that, all blocks' words, the sum of all numbers before the block, and where its words begin."""

def pack(values: U64, least: U64, bits: Data, words: U64) -> int:
    """Fill `least`, `bits` and `words` from `values`; gives how many words were filled."""

def index_packed(count: int, least: U64, bits: Data, words: U64, sums: U64, at: U64, summed: bool) -> None:
    """Fill `sums` and `at`. ValueError for arrays that cannot be what `pack` made.

    If `summed`, also for a sum of 2**63 or more; else sums wrap around.
    """

def sums_before(packed: PackedArrays, places: U64, sums: U64) -> None:
    """sums[k] = the sum of all numbers before places[k]."""

def unpack(packed: PackedArrays, first: int, values: U64) -> None:
    """values[k] = number first + k."""

def locate(
    lengths: PackedArrays,
    firsts: U64,
    bases: U64,
    records: U64,
    file: U64,
    offset: U64,
    length: U64,
    threads: int,
) -> None:
    """Where records stand: file[k], its offset there and its payload's length, for each of `records`.

    File f has the records firsts[f]..firsts[f + 1], and the lengths before those sum up to bases[f].
    """

def search_sums(
    packed: PackedArrays, firsts: U64, bases: U64, groups: U64, positions: U64, found: U64, begin: U64
) -> None:
    """In group g, of the numbers firsts[g]..firsts[g + 1]: the one in whose part of the sum a position lies.

    found[k] is that number's place in the whole sequence, begin[k] the sum of those of its group before it.
    """

# Files: see kernel/files.h.

FETCHED: Final[int]
"""Everything was read."""
WRONG_HEADER: Final[int]
"""The length does not match its checksum."""
WRONG_PAYLOAD: Final[int]
"""The payload does not match its checksum."""
WRONG_LENGTH: Final[int]
"""The header is right, and says another length than was asked for."""
BEHIND_END: Final[int]
"""The file was too short for that when it was opened."""
CHANGED: Final[int]
"""The file was truncated, written to or replaced after it was opened."""
REFUSED: Final[int]
"""The system refused; the third number is errno."""

SURVEY_PLAIN: Final[int]
SURVEY_OTHER: Final[int]
SURVEY_FAILED: Final[int]
SURVEY_SMALL: Final[int]
"""Bytes of a file up to which `survey` reads all of it."""

class File:
    """Owns a descriptor, and a mapping of it once that pays."""

    def __init__(self, fd: int) -> None: ...
    @property
    def fd(self) -> int: ...
    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """(size, time of modification, time of change, inode) when it was opened; times in nanoseconds."""
    @property
    def regular(self) -> bool: ...
    @property
    def broken(self) -> bool:
        """Its mapping met a truncation: open it anew."""
    def unchanged(self) -> bool:
        """Whether it still has its size and times, and its name was not given to another.

        The time of change moves for a new link or mode as well: then compare contents.
        """

def fetch(
    files: list[File],
    file: U64,
    offsets: U64,
    lengths: U64,
    places: U64,
    out: Data,
    verify: bool,
    threads: int,
    past_cache: bool = False,
    framed: bool = False,
) -> tuple[int, int, int, int]:
    """Read the payload of the frame at offsets[k] of files[file[k]], of lengths[k] bytes, to out[places[k]:].

    `framed`: and the rest of its frame to where it belongs around that.

    Gives (request, why, errno, cold): FETCHED, or what was wrong with the first request at fault; and how
    many bytes the page cache did not have and has now. `past_cache`: long ones that it does not have leave it
    as it is.
    """

def take(source: Data, offsets: U64, lengths: U64, places: U64, out: Data, verify: bool) -> tuple[int, int]:
    """As `fetch`, from frames that stand in `source`: (request, why)."""

def walk(fd: int, size: int, begin: int, end: int, sync: bool, limit: int) -> tuple[int, int, int, bytes]:
    """Lengths of the records that begin in [begin, end): (begin of the first, end of the last, why, uint64s).

    `why` is FULL when `end` was reached. With `sync` the first record is looked for, else it is at `begin`.
    """

def digest(fd: int, size: int) -> int:
    """CRC-32C of all of a small file, or of sixteen pieces of a large one."""

def punch(fd: int, offset: int, size: int) -> bool:
    """Give the space of a range of a file back; False where that cannot be done."""

def survey(names: bytes, limit: int) -> tuple[bytes, bytes]:
    """Open files one after the other: (nine columns of uint64, lengths of the records of those it walked).

    Columns: size, modified, changed, inode, digest, records, SURVEY_*, whether it was walked, errno. Each
    name is ended by a zero byte. It helps when files of one folder stand together.
    """

def read_small(names: bytes, limit: int, room: Data) -> tuple[bytes, bytes]:
    """Read files one after the other: (five columns of uint64, the edges in `room` of the frames of all).

    Columns: size, modified, inode, device, records. A file's frames are there if it has SURVEY_SMALL bytes
    at most, is plain and whole, and all its checksums are right; else its records are all ones, and inode and
    device are zero where it could not even be opened. Ends before a file that might not fit into the room.
    """

def stamps(names: bytes) -> bytes:
    """What the system says of files: columns of uint64 as `File.stamp`; all ones where it says nothing."""

def list_folders(folders: bytes, part: bytes) -> list[bytes | int]:
    """The files in each folder whose names contain `part`, never hidden ones, in the order of their bytes
    and each ended by a zero byte; an errno where a folder cannot be listed. Several at the same time.
    """

# Values of bytes features: see kernel/values.h.

def inspect_values(values: Data, edges: U64, hashes: U64, looks: Data) -> None:
    """hashes[i] and looks[i] of values[edges[i]:edges[i + 1]]: see croupier.example.content."""

# Deflate: see kernel/inflate.h and transcode.h.

# Why `Inflater.inflate` stopped.
NEEDS_INPUT: Final[int]
"""All input is consumed."""
NEEDS_ROOM: Final[int]
"""There is none for more bytes, or for more tokens."""
ENDED: Final[int]
"""Behind the stream; what was not consumed is something else."""
BAD_STREAM: Final[int]
"""`problem` says why, in zlib's words."""

class Inflater:
    """A raw deflate stream under way, for one thread at a time."""

    def __init__(self) -> None: ...
    def inflate(self, data: Data, out: Data, tokens: U32) -> tuple[int, int, int, int]:
        """Go on: gives how many bytes were consumed and produced, how many tokens noted, and why it stopped.

        A token is some literals and the match that follows: literals << 25 | length << 16 | distance - 1; or,
        from 127 << 25 on, so many literals alone. Tokens may run ahead of the bytes by a match.
        """

    @property
    def problem(self) -> str: ...
    @property
    def ahead(self) -> int:
        """Bytes that the tokens cover and that were not produced yet."""

def find_tokens(tokens: U32, edges: U64, index: U64, into: U64) -> bool:
    """Where each frame begins: into[i] bytes behind where tokens[index[i]] does. False when some are missing.

    `edges` are counted from where the tokens begin, and do not fall.
    """

def transcode(frame: Data, tokens: U32, lead: int) -> bytes:
    """A frame as a fragment of seekable gzip, by the matches that its first compressor found.

    tokens[0] begins `lead` bytes before the frame; what comes behind the frame does not matter.
    """

# tf.train.Example: see kernel/example.h and example_batch.h. Kinds: 0 none, 1 bytes, 2 float32, 3 int64.

Values = bytearray | list[bytes]
"""int64s or float32s in memory, or strings; an empty list where no kind is set."""

# Why a payload is no Example, or not what was asked for.
FLAW_CUT: Final[int]
"""It ends too early, or a length goes beyond the message that it is in."""
FLAW_VARINT: Final[int]
"""A number of more than ten bytes."""
FLAW_TAG: Final[int]
"""A field that cannot be: its number is 0 or too large, or its wire type is 6 or 7."""
FLAW_GROUP: Final[int]
"""A group that is not ended, or that was not begun."""
FLAW_DEEP: Final[int]
"""Groups in groups, 100 and more."""
FLAW_PACKED: Final[int]
"""Packed floats that are not of four bytes each."""
FLAW_NAME: Final[int]
"""A name that is not UTF-8."""
FLAW_HOLDS: Final[int]
"""A feature of another kind."""
FLAW_UNASKED: Final[int]
"""A feature that nobody knows."""
FLAW_MANY: Final[int]
"""Too many different names for so few bytes."""

def parse_example(payload: Data) -> list[tuple[str, int, Values]] | tuple[int, int]:
    """(name, kind, values) in the order of names' bytes; or (FLAW_*, offset)."""

def parse_sequence(
    payload: Data,
) -> tuple[list[tuple[str, int, Values]], list[tuple[str, list[tuple[int, Values]]]]] | tuple[int, int]:
    """(context, feature lists) of a SequenceExample; or (FLAW_*, offset)."""

class ExampleColumns:
    """Columns of many Examples, parsed and not yet in arrays."""

    def __init__(
        self,
        buffer: Data,
        bounds: U64,
        names: list[bytes],
        kinds: bytes,
        others: bool,
        strict: bool,
        threads: int,
        framed: bool = False,
    ) -> None:
        """Of the payloads buffer[bounds[i]:bounds[i + 1]], or of those in such frames.

        The features `names`, of which `kinds` (0: any) are expected; with `others` all that occur, with
        `strict` others are a flaw. What is not asked for is passed over.
        """
    @property
    def flaw(self) -> tuple[int, int, int, bytes, int, int] | None:
        """(FLAW_*, record, offset, name, kind expected, kind found) of the first record at fault."""
    @property
    def columns(self) -> list[tuple[str, int, int, int, int, bool, int]]:
        """(name, kind, values, bytes of them, records that lack it, whether lengths differ, else the length).

        As they were asked for; with `others` in the order of names' bytes.
        """
    def fill(self, buffer: Data, arrays: list[tuple[Data, Data | None, Data | None, Data | None]]) -> None:
        """Fill each column's arrays (values, rows, items, present) from the same buffer as before.

        They must have the right sizes; `items` are for bytes alone, `rows` and `present` for who wants them.
        """

Plain = Callable[[str, Any], tuple[int, Any]]
"""Makes (kind, int64s or float32s in a buffer, or a list of bytes) of a feature's name and a value that is
none of Python's int, bool, float, bytes, str, or a list of these."""

def build_example(features: Mapping[str, Any], plain: Plain) -> bytes:
    """The payload of an Example, as protobuf's deterministic serialisation has it."""

def build_sequence(context: Mapping[str, Any], lists: Mapping[str, Iterable[Any]], plain: Plain) -> bytes:
    """The payload of a SequenceExample."""

BuildColumn = tuple[bytes, int, Data, U64, U64 | None, Data | None]
"""(name, kind, values, rows, items, present) as croupier.example.Column has them."""

def batch_sizes(columns: list[BuildColumn], offsets: U64, threads: int) -> None:
    """offsets[i] becomes where the Example of record i begins; columns are in the order of names' bytes."""

def write_batch(columns: list[BuildColumn], offsets: U64, out: Data, threads: int) -> None:
    """Write these Examples to out[offsets[i]:offsets[i + 1]]."""

# The order of a shuffle: see kernel/order.h.

def record_keys(seed: int, files: U64, firsts: U64, counts: U64, keys: U64) -> None:
    """keys = those of the records firsts[r], firsts[r] + 1, ... (counts[r]) of files[r], run after run.

    A record's key is the record-th number of numpy's Philox(key=[seed, file]).random_raw.
    """
