"""Croupier shuffles record datasets and deals them to training jobs.

for payload in croupier.read("train-*.tfrecord.gz"): ...
data = croupier.open("train-*.tfrecord.gz"); len(data), data[41]
with croupier.writer("out/train", shards=8, compression="gzip") as out: out.write(payload)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from croupier.batch import Batch
    from croupier.dataset import Dataset, Place, Shard, concat, index, open  # noqa: A004
    from croupier.errors import (
        CancelledError,
        CompressionError,
        CorruptionWarning,
        CroupierError,
        DataError,
        ExampleError,
        HeaderError,
        InputNotFoundError,
        IntegrityError,
        PayloadError,
        RecordTooLargeError,
        RowError,
        SlowAccessWarning,
        StaleError,
        StorageError,
        TableError,
        TruncatedError,
        UsageError,
    )
    from croupier.example.schema import Feature, Schema
    from croupier.frames import Damage
    from croupier.inspect.info import Info, info
    from croupier.inspect.mixing import mixing
    from croupier.inspect.schema import infer_schema
    from croupier.inspect.stats import Statistics, statistics
    from croupier.inspect.verdict import Mixing
    from croupier.inspect.verify import FileReport, verify
    from croupier.runtime import Progress
    from croupier.shuffling import plan, shuffle
    from croupier.shuffling.planning import Plan
    from croupier.streams import read
    from croupier.tables.convert import Converted, convert_table
    from croupier.tables.export import Exported, export
    from croupier.writing import Writer, writer

__version__ = "0.1.0"

# Imported at first use: numpy alone takes longer than `croupier --help` may.
_HOMES = {
    "croupier.dataset": ("Dataset", "Place", "Shard", "concat", "index", "open"),
    "croupier.batch": ("Batch",),
    "croupier.errors": (
        "CancelledError",
        "CompressionError",
        "CorruptionWarning",
        "CroupierError",
        "DataError",
        "ExampleError",
        "HeaderError",
        "InputNotFoundError",
        "IntegrityError",
        "PayloadError",
        "RecordTooLargeError",
        "RowError",
        "SlowAccessWarning",
        "StaleError",
        "StorageError",
        "TableError",
        "TruncatedError",
        "UsageError",
    ),
    "croupier.example.schema": ("Feature", "Schema"),
    "croupier.frames": ("Damage",),
    "croupier.inspect.info": ("Info", "info"),
    "croupier.inspect.mixing": ("mixing",),
    "croupier.inspect.schema": ("infer_schema",),
    "croupier.inspect.stats": ("Statistics", "statistics"),
    "croupier.inspect.verdict": ("Mixing",),
    "croupier.inspect.verify": ("FileReport", "verify"),
    "croupier.runtime": ("Progress",),
    "croupier.shuffling": ("plan", "shuffle"),
    "croupier.shuffling.planning": ("Plan",),
    "croupier.streams": ("read",),
    "croupier.tables.convert": ("Converted", "convert_table"),
    "croupier.tables.export": ("Exported", "export"),
    "croupier.writing": ("Writer", "writer"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Batch",
    "CancelledError",
    "CompressionError",
    "Converted",
    "CorruptionWarning",
    "CroupierError",
    "Damage",
    "DataError",
    "Dataset",
    "ExampleError",
    "Exported",
    "Feature",
    "FileReport",
    "HeaderError",
    "Info",
    "InputNotFoundError",
    "IntegrityError",
    "Mixing",
    "PayloadError",
    "Place",
    "Plan",
    "Progress",
    "RecordTooLargeError",
    "RowError",
    "Schema",
    "Shard",
    "SlowAccessWarning",
    "StaleError",
    "Statistics",
    "StorageError",
    "TableError",
    "TruncatedError",
    "UsageError",
    "Writer",
    "__version__",
    "concat",
    "convert_table",
    "export",
    "index",
    "infer_schema",
    "info",
    "mixing",
    "open",
    "plan",
    "read",
    "shuffle",
    "statistics",
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
