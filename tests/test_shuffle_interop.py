"""TensorFlow and Beam read what a shuffle wrote: every record, in the order that the seed says."""

import random
import warnings

import numpy as np
import pytest

import croupier
from croupier.shuffling import STRATEGIES, planning

# One worker of pytest-xdist for all of it: TensorFlow takes seconds and 600 MB to import.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("tensorflow")]
COMPRESSIONS = ("none", "gzip", "zlib")


@pytest.fixture(scope="module")
def tf():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow

        tensorflow.get_logger().setLevel("ERROR")
        tensorflow.config.set_visible_devices([], "GPU")
        return tensorflow


@pytest.fixture(scope="module")
def beam():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import apache_beam.io.tfrecordio
    return apache_beam


def in_order(files, seed):
    """As numpy's Philox says."""
    order = []
    for file, payloads in enumerate(files):
        keys = np.random.Philox(key=np.array([seed, file], np.uint64)).random_raw(len(payloads))
        order += [(int(key), file, record) for record, key in enumerate(keys)]
    return [files[file][record] for _, file, record in sorted(order)]


def read_by_tensorflow(tf, paths, compression):
    kind = "" if compression == "none" else compression.upper()
    return [one.numpy() for one in tf.data.TFRecordDataset(list(map(str, paths)), compression_type=kind)]


def read_by_beam(beam, paths, compression):
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    kinds = {
        "none": CompressionTypes.UNCOMPRESSED,
        "gzip": CompressionTypes.GZIP,
        "zlib": CompressionTypes.DEFLATE,
    }
    found = []
    for path in paths:
        with FileSystems.open(str(path), compression_type=kinds[compression]) as file:
            while (payload := beam.io.tfrecordio._TFRecordUtil.read_record(file)) is not None:
                found.append(payload)
    return found


def shuffled(folder, inputs, compression, **options):
    croupier.shuffle(inputs, folder / "t", compression=compression, shards=3, **options)
    paths = sorted(folder.glob("t-*"))
    assert len(paths) == 3
    return paths


@pytest.mark.parametrize(
    ("strategy", "compression"),
    [
        (strategy, compression)
        for strategy in STRATEGIES
        for compression in COMPRESSIONS
        if strategy != "fragments" or compression == "gzip"
    ],
)
def test_others_read_every_strategy(tf, beam, tmp_path, monkeypatch, strategy, compression):
    """Small and large records: fragments of one and of many."""
    if strategy != "memory":
        monkeypatch.setattr(planning, "run_bytes", lambda runtime: 600_000)
    rng = random.Random(strategy)
    files = [
        [
            rng.randbytes(rng.choice((0, 1, 100, 5000, 40_000))) + bytes(rng.choice((0, 30_000)))
            for _ in range(90)
        ]
        for _ in range(3)
    ]
    for number, payloads in enumerate(files):
        with croupier.writer(tmp_path / f"in-{number}.tfrecord") as out:
            out.write_many(payloads)
    paths = shuffled(tmp_path / "out", tmp_path / "in-*", compression, seed=4, strategy=strategy, workers=2)
    assert read_by_tensorflow(tf, paths, compression) == in_order(files, 4)
    assert read_by_beam(beam, paths, compression) == in_order(files, 4)


@pytest.mark.real
@pytest.mark.parametrize(("compression", "level"), [*((one, None) for one in COMPRESSIONS), ("gzip", "same")])
def test_others_read_deepvariants_examples(tf, beam, tmp_path, shared_data, compression, level):
    """They come as gzip, 155 KB each, and their features are what they were."""
    inputs = sorted(shared_data.glob("golden.training_examples*"))
    files = [list(croupier.read(path)) for path in inputs]
    paths = shuffled(tmp_path / "out", inputs, compression, seed=11, level=level)
    found = read_by_tensorflow(tf, paths, compression)
    assert found == in_order(files, 11)
    assert read_by_beam(beam, paths, compression) == found
    spec = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/shape": tf.io.FixedLenFeature([3], tf.int64),
        "label": tf.io.FixedLenFeature([1], tf.int64),
        "locus": tf.io.FixedLenFeature((), tf.string),
    }
    parsed = tf.io.parse_example(found, spec)
    assert parsed["image/shape"].numpy().tolist() == [[100, 221, 7]] * len(found)
    assert {len(image) for image in parsed["image/encoded"].numpy()} == {100 * 221 * 7}
    before = tf.io.parse_example([payload for payloads in files for payload in payloads], spec)
    assert sorted(parsed["locus"].numpy()) == sorted(before["locus"].numpy())
