"""Schemas that are kept beside the data, and when they still hold.

In the folder of a dataset's first file, named after the set of its files, with a fingerprint of their sizes,
counts and content in it: one that does not match is made again. A kept schema is a hint: whoever decodes by
it checks every record.
"""

from __future__ import annotations

import hashlib
import json
import os

from croupier import storage
from croupier.dataset import Dataset
from croupier.errors import InputNotFoundError, StorageError, UsageError
from croupier.example import schema_json
from croupier.example.schema import Schema


def load(data: Dataset) -> Schema | None:
    """The kept schema of a whole dataset, if there is one that still holds."""
    if (identity := data.identity()) is None:
        return None
    for place in _places(data):
        try:
            content = json.loads(storage.read_small(place, schema_json.MOST))
            if isinstance(content, dict) and content.get("files") == identity:
                return Schema.from_json(json.dumps(content.get("schema")))
        except (InputNotFoundError, StorageError, UsageError, ValueError, RecursionError):
            continue  # not there, not ours to read, or damaged
    return None


def save(data: Dataset, schema: Schema) -> str | None:
    """Keep the schema of a whole dataset; gives where, or nothing where that cannot be."""
    if (identity := data.identity()) is None or data.index != "auto":
        return None
    whole = {"files": identity, "schema": json.loads(schema.to_json())}
    content = json.dumps(whole, indent=1).encode()
    if len(content) > schema_json.MOST:
        return None
    for place in _places(data):
        try:
            folder, name = os.path.split(place)
            storage.make_folder(folder)
            storage.sweep(folder, [name])
            storage.write_file(place, content)
        except StorageError:
            continue
        return place
    return None


def _places(data: Dataset) -> list[str]:
    """Where it may be kept, in order: a copied dataset has the same names."""
    folder = os.path.dirname(data.paths[0])
    names = [os.path.relpath(path, folder or ".") for path in data.paths]
    key = hashlib.sha256(b"\0".join(map(os.fsencode, names))).hexdigest()[:16]
    return [os.path.join(place, f"schema-{key}.json") for place in storage.side_folders(folder)]
