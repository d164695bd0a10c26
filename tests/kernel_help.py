"""Arrays, frames and open files, as the tests of the kernel need them."""

import ctypes
import mmap
import os
import struct
import subprocess
import sys
from itertools import accumulate

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from croupier import _kernel as kernel

NO_LIMIT = 2**64 - 1
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
few = settings(quick, max_examples=40)

numbers = st.integers(0, 2**64 - 1)
any_size = st.integers(0, 64).flatmap(lambda bits: st.integers(0, 2**bits - 1))
lengths = st.integers(0, 40).flatmap(lambda bits: st.integers(0, 2**bits - 1))
sequences = st.integers(0, 40).flatmap(
    lambda bits: st.lists(st.integers(0, 2**bits - 1), max_size=300)
) | st.lists(lengths, max_size=200)


def u64(values):
    return np.array(list(values), dtype=np.uint64)


def zeros(count):
    return np.zeros(count, np.uint64)


def packed(values, *, summed=True):
    """(count, least, bits, words, sums, at)"""
    blocks = -(-len(values) // 64)
    least, bits, words = zeros(blocks), np.zeros(blocks, np.uint8), zeros(blocks * 64)
    words = words[: kernel.pack(u64(values), least, bits, words)].copy()
    sums, at = zeros(blocks + 1), zeros(blocks + 1)
    kernel.index_packed(len(values), least, bits, words, sums, at, summed)
    return len(values), least, bits, words, sums, at


def frame(payload):
    """As oracle.frame, at the kernel's speed: test_kernel.py proves its checksums."""
    raw = struct.pack("<Q", len(payload))
    return b"".join(
        (
            raw,
            struct.pack("<I", kernel.masked_crc32c(raw)),
            payload,
            struct.pack("<I", kernel.masked_crc32c(payload)),
        )
    )


def header(length):
    raw = struct.pack("<Q", length)
    return raw + struct.pack("<I", kernel.masked_crc32c(raw))


def edges_of(sizes):
    return list(accumulate((size + 16 for size in sizes), initial=0))


PARTS = ("count", "least", "bits", "words", "sums", "at")


def opened(path):
    return kernel.File(os.open(path, os.O_RDONLY))


def run(script, *arguments, code=0):
    """Python in a process of its own, which a signal may end."""
    options = ["-S"] if sys.flags.no_site else []  # as this process, which may have the sanitized build
    command = [sys.executable, *options, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def cached(path):
    """How much of a file the page cache has, from 0 to 1. (To ask by RWF_NOWAIT makes some systems read.)"""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole:
        content = np.frombuffer(whole, np.uint8)
        found = (ctypes.c_ubyte * -(-len(content) // mmap.PAGESIZE))()
        size = ctypes.c_size_t(len(content))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(content.ctypes.data), size, found) == 0
        del content
        return sum(one & 1 for one in found) / len(found)


def chill(*paths):
    """Have the page cache forget a file."""
    for path in paths:
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
