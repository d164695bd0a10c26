"""The method of TFrecordShuffler's shuffle_tfrecords_lowmem.py, in code of our own.

python holley.py OUTPUT_PREFIX SHARDS STEP INPUT...

One thread. Every record is hashed by SHA-1 and parsed for its label; the order is that of the hashes. With
STEP -1 records wait in memory, pickled and packed by zlib; else all input is read a second time, packed
records go to files of STEP places each, and those are sorted one after the other. TensorFlow reads and writes
gzip at its default level. Prints the seconds after TensorFlow was imported.
"""

import hashlib
import json
import os
import pickle
import sys
import time
import zlib

import tensorflow.compat.v1 as tf


def read(paths):
    for path in paths:
        options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
        yield from tf.io.tf_record_iterator(path, options)


def pack(record):
    return zlib.compress(pickle.dumps(record))


def unpack(packed):
    return pickle.loads(zlib.decompress(packed))


def label(record):
    return tf.train.Example.FromString(record).features.feature["label"].int64_list.value[0]


def write(prefix, shards, count, ordered):
    """Shards of equal size, one after the other."""
    room, writer = count // shards + 1, None
    for place, packed in enumerate(ordered):
        if place % room == 0:
            if writer:
                writer.close()
            options = tf.python_io.TFRecordOptions(tf.python_io.TFRecordCompressionType.GZIP)
            name = f"{prefix}-{place // room:05d}-of-{shards:05d}.tfrecord.gz"
            writer = tf.python_io.TFRecordWriter(name, options=options)
        writer.write(unpack(packed))
    if writer:
        writer.close()


def by_way_of_files(prefix, paths, hashes, step):
    """Packed records in the order of the hashes, at most some `step` of them in memory."""
    places = {number: place for place, (_, number, _) in enumerate(hashes)}
    hashes.clear()
    names = [f"{prefix}_tmp_{number}" for number in range(len(places) // step + 1)]
    files = [open(name, "w+b") for name in names]  # noqa: SIM115 - all of them at once, as there
    kept = [[] for _ in names]  # (place, size) of what stands in each file

    def flush(waiting):
        for place, packed in sorted(waiting):
            files[place // step].write(packed)
            kept[place // step].append((place, len(packed)))
        waiting.clear()

    waiting = []
    for number, record in enumerate(read(paths)):
        waiting.append((places[number], pack(record)))
        if len(waiting) == step:
            flush(waiting)
    flush(waiting)
    for file, lines in zip(files, kept, strict=True):
        file.seek(0)
        yield from (packed for _, packed in sorted((place, file.read(size)) for place, size in lines))
        file.close()
    for name in names:
        os.remove(name)


def main():
    prefix, shards, step, *paths = sys.argv[1:]
    began = time.perf_counter()
    hashes, packed = [], []
    for number, record in enumerate(read(sorted(paths))):
        hashes.append((hashlib.sha1(record).digest(), number, label(record)))
        if step == "-1":
            packed.append(pack(record))
    count = len(hashes)
    hashes.sort(key=lambda line: line[0])
    if step == "-1":
        ordered = (packed[number] for _, number, _ in hashes)
    else:
        ordered = by_way_of_files(prefix, paths, hashes, int(step))
    write(prefix, int(shards), count, ordered)
    print(json.dumps({"seconds": time.perf_counter() - began, "records": count}))


if __name__ == "__main__":
    main()
