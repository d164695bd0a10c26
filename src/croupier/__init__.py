"""Croupier shuffles record datasets and deals them to training jobs.

for payload in croupier.read("train-*.tfrecord.gz"): ...
with croupier.writer("out/train", shards=8, compression="gzip") as out: out.write(payload)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.errors import (
        CancelledError,
        CompressionError,
        CorruptionWarning,
        CroupierError,
        DataError,
        HeaderError,
        InputNotFoundError,
        IntegrityError,
        PayloadError,
        RecordTooLargeError,
        StorageError,
        TruncatedError,
        UsageError,
    )
    from croupier.frames import Damage
    from croupier.inspect.verify import FileReport, verify
    from croupier.runtime import Progress
    from croupier.streams import read
    from croupier.writing import Writer, writer

__version__ = "0.1.0"

# Imported at first use: numpy alone takes longer than `croupier --help` may.
_HOMES = {
    "croupier.errors": (
        "CancelledError",
        "CompressionError",
        "CorruptionWarning",
        "CroupierError",
        "DataError",
        "HeaderError",
        "InputNotFoundError",
        "IntegrityError",
        "PayloadError",
        "RecordTooLargeError",
        "StorageError",
        "TruncatedError",
        "UsageError",
    ),
    "croupier.frames": ("Damage",),
    "croupier.inspect.verify": ("FileReport", "verify"),
    "croupier.runtime": ("Progress",),
    "croupier.streams": ("read",),
    "croupier.writing": ("Writer", "writer"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CancelledError",
    "CompressionError",
    "CorruptionWarning",
    "CroupierError",
    "Damage",
    "DataError",
    "FileReport",
    "HeaderError",
    "InputNotFoundError",
    "IntegrityError",
    "PayloadError",
    "Progress",
    "RecordTooLargeError",
    "StorageError",
    "TruncatedError",
    "UsageError",
    "Writer",
    "__version__",
    "read",
    "verify",
    "writer",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'croupier' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
