"""Tables of any size go through a bounded part of memory."""

import os
import subprocess
import sys

import pytest

SCRIPT = r"""
import gc, sys, threading
import pyarrow, pyarrow.compute, pyarrow.csv, pyarrow.json, pyarrow.parquet
import croupier
from croupier import dataset
from croupier.example import encode
from croupier.tables import convert, export, sinks, sources, text_csv, text_json
from isal import igzip

folder, kind, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
# What is held is some multiple of these: with a quarter of them, a quarter of the data will do.
dataset.READ = export.READ = sources.PART = convert.PART = text_json.PART = 1 << 20
sinks.ROW_GROUP, text_csv.MIB = 8 << 20, 1 << 18


def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def growth(function):
    gc.collect()
    before, peak, stop = anonymous(), [0], threading.Event()

    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function()
    finally:
        stop.set()
        watcher.join()
    return peak[0] - before


def out():
    croupier.export(data, table, kind, workers=1)


def back():
    croupier.convert_table(path, folder + "/back.tfrecord.gz", level=1, workers=1, overwrite=True)


for count in (records // 20, records):  # the first time around brings code and the allocator's own
    name = f"{folder}/{count}"
    record = encode({"label": 3, "text": "some words " * 900})
    with croupier.writer(name + ".tfrecord.gz", level=1) as written:
        for _ in range(count // 500):
            written.write_many([record] * 500)
    data = croupier.open(name + ".tfrecord.gz")
    croupier.infer_schema(data, workers=1)
    path = f"{name}.{kind}" + (".gz" if kind in ("csv", "jsonl") else "")
    table = igzip.open(path, "wb", 1) if path.endswith("gz") else open(path, "wb")
    with table:
        grown = growth(out), growth(table.close)
    print(count * len(record), grown[0], growth(back))
"""


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    ("kind", "records"),
    [
        ("parquet", 50_000),
        ("jsonl", 70_000),
        pytest.param("arrow", 50_000, marks=pytest.mark.slow),
        pytest.param("csv", 50_000, marks=pytest.mark.slow),
    ],
)
def test_memory_does_not_grow_with_the_table(kind, records, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path, kind, str(records)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
    )
    size, there, back = map(int, done.stdout.splitlines()[-1].split())
    assert there < size / 20, done.stdout
    assert back < size / 20, done.stdout
