"""What output files are called, and what that says about them."""

from __future__ import annotations

import os
import re

from croupier.codec import deflate
from croupier.codec.detect import Compression
from croupier.errors import UsageError

_SUFFIX = re.compile(r"(\.(tfrecords?|tfrec))?(\.(gz|zlib|zz))?$")
_ANY = "-?????-of-?????"
_EXACT = re.compile(r"-\d{5,}-of-\d{5,}$")


def choose_compression(path: str, compression: str | None) -> Compression:
    """What was asked for, else what the name says; TensorFlow's spellings are understood."""
    suffix = os.path.splitext(path)[1].lower()
    by_name = deflate.SUFFIXES.get(suffix)
    if compression is None:
        return by_name or Compression.NONE
    try:
        chosen = Compression((compression or "none").lower())
    except ValueError:
        raise UsageError(f"compression must be none, gzip or zlib, not {compression!r}") from None
    if by_name not in (None, chosen):
        raise UsageError(f"{path}: the name says {by_name.value}, compression says {chosen.value}")
    return chosen


def file_names(path: str, shards: int, compression: Compression) -> tuple[str, list[str]]:
    """The name of the output as a whole, and of each file."""
    if shards < 1:
        raise UsageError(f"shards must be at least 1, not {shards}")
    folder, base = os.path.split(path)
    if not base or base.startswith(_ANY):
        raise UsageError(f"{path}: a name for the files is missing")
    if _ANY in base:  # as its readers will name it: numbers stand there, of a single shard, too
        stem, _, suffix = base.partition(_ANY)
        return stem, [os.path.join(folder, _shard(stem, number, shards, suffix)) for number in range(shards)]
    match = _SUFFIX.search(base)
    stem, suffix = (base[: match.start()], match.group()) if match else (base, "")
    if shards == 1 and (suffix or _EXACT.search(base)):
        return base, [path]
    if not suffix:
        suffix = ".tfrecord" + {Compression.GZIP: ".gz", Compression.ZLIB: ".zlib"}.get(compression, "")
    return stem, [os.path.join(folder, _shard(stem, number, shards, suffix)) for number in range(shards)]


def _shard(stem: str, number: int, shards: int, suffix: str) -> str:
    return f"{stem}-{number:05d}-of-{shards:05d}{suffix}"
