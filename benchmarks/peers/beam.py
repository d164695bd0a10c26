"""The method of DeepVariant's shuffle_tfrecords_beam.py, in code of our own.

python beam.py OUTPUT_PREFIX WORKERS INPUT...

Read, key by SHA-1, group, write; records are packed by zlib while they are on their way. Counts and labels
are left out. Beam's local runner; prints the seconds after Beam was imported.
"""

import hashlib
import json
import logging
import sys
import time
import zlib

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io import ReadFromTFRecord, WriteToTFRecord
from apache_beam.options.pipeline_options import PipelineOptions


class Packed(Coder):
    """Records are packed when they are read, and unpacked when they are written."""

    def encode(self, value):
        return zlib.decompress(value)

    def decode(self, encoded):
        return zlib.compress(encoded)

    def is_deterministic(self):
        return True


def main():
    prefix, workers, *paths = sys.argv[1:]
    logging.disable(logging.WARNING)
    began = time.perf_counter()
    options = PipelineOptions(["--runner=FnApiRunner", f"--direct_num_workers={workers}"])
    with beam.Pipeline(options=options) as pipeline:
        parts = [
            pipeline | f"read {number}" >> ReadFromTFRecord(path, coder=Packed())
            for number, path in enumerate(paths)
        ]
        (
            parts
            | beam.Flatten()
            | beam.Map(lambda record: (hashlib.sha1(record).digest(), record))
            | beam.GroupByKey()
            | beam.FlatMap(lambda group: group[1])
            | WriteToTFRecord(prefix, file_name_suffix=".tfrecord.gz", coder=Packed())
        )
    print(json.dumps({"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
