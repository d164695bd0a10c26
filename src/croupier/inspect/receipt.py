"""What a receipt promises of the files that were published with it."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from croupier import storage
from croupier.errors import InputNotFoundError, UsageError
from croupier.publish import receipt_path

MOST_BYTES = 1 << 28
"""Bytes of a receipt: some million shards."""


class Promise(NamedTuple):
    """Of one file."""

    records: int
    payload_bytes: int
    fingerprint: str

    def differs(self, found: Promise) -> str:
        """In what words; empty if it does not."""
        for name in ("records", "payload_bytes"):
            promised, is_there = getattr(self, name), getattr(found, name)
            if promised != is_there:
                noun = name.replace("_", " ")
                return f"holds {is_there:,} {noun}, and its receipt says that {promised:,} were written"
        if self.fingerprint != found.fingerprint:
            return (
                f"holds other records than were written: their fingerprint is {found.fingerprint}, and its "
                f"receipt says {self.fingerprint}"
            )
        return ""


def read_receipt(path: storage.PathLike) -> dict[str, Promise]:
    """The files of a receipt, by its own path or by the prefix (or the name) of the output."""
    given = os.fspath(path)
    folder, name = os.path.split(given)
    if not name.endswith(".receipt.json"):
        given = receipt_path(folder, name)
    else:
        folder = os.path.dirname(folder) if os.path.basename(folder) == storage.SIDE_FOLDER else folder
    try:
        receipt = json.loads(storage.read_small(given, MOST_BYTES))
        promised = {}
        for shard in receipt["shards"]:
            leaf, promise = (
                shard["name"],
                Promise(shard["records"], shard["payload_bytes"], shard["fingerprint"]),
            )
            kinds = type(leaf), type(promise.records), type(promise.payload_bytes), type(promise.fingerprint)
            if kinds != (str, int, int, str) or os.path.basename(leaf) != leaf or leaf in ("", ".", ".."):
                raise ValueError(f"{leaf!r} cannot be one of its files")
            promised[os.path.join(folder, leaf)] = promise
    except InputNotFoundError:
        raise InputNotFoundError(f"{given}: there is no such receipt") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{given}: is not a receipt, or was changed ({error})") from None
    return promised
