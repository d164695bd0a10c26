"""croupier deepvariant in place of DeepVariant's two scripts: their flags and files, and not their bugs."""

import collections
import glob
import gzip
import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import croupier
from croupier import storage
from croupier.deepvariant import beam, labels
from croupier.deepvariant.config import quoted
from croupier.deepvariant.job import Flags, Job
from croupier.example import decode, encode
from croupier.frames import Block
from dataset_help import framed

INFO = {"version": "1.10.0", "shape": [100, 221, 7], "channels": [1, 2, 3, 4, 5, 6, 19]}


def example(number, label=None):
    image = bytes([number % 251]) * (200 + number % 7)
    features = {"locus": [b"chr20:%d-%d" % (number, number + 1)], "image/encoded": [image]}
    return encode(features if label is None else features | {"label": np.array([label])})


def examples(count, first=0):
    return [example(first + number, (first + number) ** 2 % 3) for number in range(count)]


def write_examples(folder, payloads, files=4, stem="training_set.with_label.tfrecord", info=INFO):
    """As make_examples leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = folder / f"{stem}-{number:05d}-of-{files:05d}.gz"
        path.write_bytes(gzip.compress(framed(payloads[number::files]), 1))
        if info:
            (folder / f"{path.name}.example_info.json").write_text(json.dumps(info))
    return str(folder / f"{stem}-?????-of-{files:05d}.gz")


def shards_at(prefix):
    return sorted(glob.glob(f"{glob.escape(str(prefix))}-?????-of-?????.tfrecord.gz"))


def records_at(prefix):
    return [list(croupier.read(shard)) for shard in shards_at(prefix)]


@pytest.fixture
def shuffle(command, tmp_path):
    """The command with the flags that all runs need; others as keywords, or as they are."""

    def run(pattern, *more, prefix=tmp_path / "out" / "s", config=tmp_path / "out" / "c.pbtxt", name="HG002"):
        flags = [f"--input_pattern_list={pattern}", f"--output_pattern_prefix={prefix}"]
        if config is not None:
            flags.append(f"--output_dataset_config={config}")
        if name is not None:
            flags.append(f"--output_dataset_name={name}")
        return command("deepvariant", *flags, *more)

    return run


# DeepVariant's own rules


def parse_config(text):
    """protobuf's own parser, for the message as DeepVariant declares it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    file = descriptor_pb2.FileDescriptorProto(
        name="deepvariant.proto", package="learning.genomics.deepvariant"
    )
    message = file.message_type.add(name="DeepVariantDatasetConfig")
    field = descriptor_pb2.FieldDescriptorProto
    kinds = {"name": field.TYPE_STRING, "tfrecord_path": field.TYPE_STRING, "num_examples": field.TYPE_UINT32}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("learning.genomics.deepvariant.DeepVariantDatasetConfig")
    )
    return text_format.Parse(text, found())


def training_reads(path):
    """What DeepVariant's data_providers.py does with a config: (config, example_info, records)."""
    with open(path, encoding="utf-8") as file:
        config = parse_config(file.read())
    assert config.name
    assert config.tfrecord_path
    assert config.num_examples
    with open(os.path.join(os.path.dirname(config.tfrecord_path), "example_info.json")) as file:
        info = json.load(file)
    assert len(info["shape"]) == 3
    records = []
    for pattern in config.tfrecord_path.split(","):
        assert not re.search(r"@\d+(\.|$)", pattern)
        files = sorted(glob.glob(pattern))
        assert files
        for file in files:
            with gzip.open(file) as stream:  # GZIP is hard-coded there
                raw = stream.read()
            at = 0
            while at < len(raw):
                length = int.from_bytes(raw[at : at + 8], "little")
                records.append(raw[at + 12 : at + 12 + length])
                at += 16 + length
    assert len(records) == config.num_examples
    return config, info, records


def counts_in(path):
    lines = Path(path).read_text().splitlines()
    return [line for line in lines if re.match(r"# (class|records)", line)]


# What both scripts are for


def test_as_the_training_guide_calls_it(shuffle, tmp_path):
    payloads = examples(2000)
    pattern = write_examples(tmp_path / "in", payloads)
    ran = shuffle(pattern, "--direct_num_workers=8", "--step=-1")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    out = tmp_path / "out"
    assert sorted(os.listdir(out)) == [
        ".croupier", "c.pbtxt", "example_info.json", *(f"s-{i:05d}-of-00008.tfrecord.gz" for i in range(8)),
    ]  # fmt: skip
    config, info, records = training_reads(out / "c.pbtxt")
    assert (config.name, config.num_examples) == ("HG002", 2000)
    assert config.tfrecord_path == f"{out}/s-?????-of-?????.tfrecord.gz"
    assert info == INFO
    assert sorted(records) == sorted(payloads)
    sums = collections.Counter(number**2 % 3 for number in range(2000))
    assert counts_in(out / "c.pbtxt") == [f"# class{label}: {sums[label]}" for label in sorted(sums)]
    text = (out / "c.pbtxt").read_text()
    assert text.startswith("# Generated by croupier deepvariant\n#\n# --input_pattern_list=" + pattern + "\n")
    assert f"# --output_pattern_prefix={out}/s\n" in text
    assert "2,000 records" in ran.out
    assert f"{sums[0]:,} class0, {sums[1]:,} class1" in ran.out


def test_it_does_shuffle(shuffle, tmp_path):
    """Beam's local runner leaves 99.9 % of neighbours neighbours; sha1 puts equal records side by side."""
    pattern = write_examples(tmp_path / "in", examples(2000), files=1)
    shuffle(pattern, "--direct_num_workers=1")
    (records,) = records_at(tmp_path / "out" / "s")
    loci = [int(decode(record)["locus"][0][6:].split(b"-")[0]) for record in records]
    assert sum(after - before == 1 for before, after in itertools.pairwise(loci)) < 10  # 1 is to be expected
    assert abs(np.corrcoef(np.arange(2000), loci)[0, 1]) < 0.1


def test_equal_records_are_not_neighbours(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", [example(number // 2, 0) for number in range(2000)], files=1)
    shuffle(pattern, "--direct_num_workers=1")
    (records,) = records_at(tmp_path / "out" / "s")
    assert sum(one == other for one, other in itertools.pairwise(records)) < 10


def test_seeds_give_other_orders_and_one_seed_the_same(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(300))
    orders = []
    for number, seed in enumerate((0, 1, 0)):
        prefix = tmp_path / f"o{number}" / "s"
        assert shuffle(pattern, "--seed", seed, prefix=prefix, config=None, name=None).code == 0
        orders.append(records_at(prefix))
    assert orders[0] == orders[2] != orders[1]


def test_memory_and_step_do_not_change_the_records(shuffle, tmp_path):
    """--step of the low-memory script left its temporary files behind, and could open too many."""
    payloads = examples(3000)
    pattern = write_examples(tmp_path / "in", payloads)
    outputs = []
    for number, step in enumerate(("--step=-1", "--step=7", "--step=1000", "--step=99999")):
        prefix = tmp_path / str(number) / "s"
        ran = shuffle(pattern, step, "--direct_num_workers=3", "--memory=200MB", prefix=prefix, config=None)
        assert ran.code == 0, ran.err
        outputs.append([Path(shard).read_bytes() for shard in shards_at(prefix)])
        assert sorted(itertools.chain(*records_at(prefix))) == sorted(payloads)
        left = os.listdir(tmp_path / str(number))
        assert not [name for name in left if "tmp" in name or "spill" in name]
    assert outputs[0] == outputs[1] == outputs[2] == outputs[3]


# The low-memory script's bugs


@pytest.mark.parametrize("count", [1, 2, 19, 20])
def test_few_records(shuffle, tmp_path, count):
    pattern = write_examples(tmp_path / "in", examples(count), files=1)
    assert shuffle(pattern, "--direct_num_workers=1").code == 0
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == count


@pytest.mark.parametrize(("count", "shards"), [(100, 24), (5, 8), (1, 3), (48, 24)])
def test_all_shards_are_there_and_alike(shuffle, tmp_path, count, shards):
    pattern = write_examples(tmp_path / "in", examples(count), files=2)
    assert shuffle(pattern, f"--direct_num_workers={shards}").code == 0
    parts = records_at(tmp_path / "out" / "s")
    assert len(parts) == shards
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1
    names = [os.path.basename(path) for path in shards_at(tmp_path / "out" / "s")]
    assert names == [f"s-{number:05d}-of-{shards:05d}.tfrecord.gz" for number in range(shards)]
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == count


@pytest.mark.parametrize("prefix", ["./out/s", "../o/t", "s", "a/./b/../s"])
def test_relative_prefixes_become_absolute(shuffle, tmp_path, monkeypatch, prefix):
    pattern = write_examples(tmp_path / "in", examples(30))
    home = tmp_path / "odd (lab)"
    home.mkdir()
    monkeypatch.chdir(home)
    assert shuffle(pattern, prefix=prefix, config="c.pbtxt").code == 0
    config, _, records = training_reads(home / "c.pbtxt")
    assert config.tfrecord_path == os.path.abspath(prefix) + "-?????-of-?????.tfrecord.gz"
    assert len(records) == 30


def test_patterns_stay_as_they_were_given(shuffle, tmp_path, monkeypatch):
    write_examples(tmp_path / "in", examples(30), stem="small")
    monkeypatch.chdir(tmp_path)
    assert shuffle("in/small*-of-*.gz").code == 0
    assert "# --input_pattern_list=in/small*-of-*.gz\n" in (tmp_path / "out" / "c.pbtxt").read_text()


def test_records_without_a_label_are_counted(shuffle, tmp_path):
    payloads = [*examples(30), example(30), example(31, 11), example(32, -1), example(33, 10**12)]
    payloads += [encode({"label": []}), encode({"label": [1.5]}), encode({"label": [b"1"]}), b"\xffno", b""]
    pattern = write_examples(tmp_path / "in", payloads, files=1)
    ran = shuffle(pattern)
    assert ran.code == 0
    assert counts_in(tmp_path / "out" / "c.pbtxt") == [
        "# class0: 10", "# class1: 20", "# class11: 1", "# records with another label: 2",
        "# records without a label: 5", "# records that are no tf.train.Example: 1",
    ]  # fmt: skip
    assert "6 of 39 records have no label" in ran.err
    assert "5 without a label" in ran.out
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 39


def test_who_takes_examples_to_call_is_told_at_once(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", [example(number) for number in range(10)], files=2)
    ran = shuffle(pattern, "--dry_run")
    assert ran.code == 0
    assert re.search(
        r"tfrecord-00000-of-00002\.gz: its first records have no label.*--mode training", ran.err
    )


def test_plain_and_mixed_input(shuffle, tmp_path):
    payloads = examples(60)
    write_examples(tmp_path / "in", payloads[:30], files=1)
    (tmp_path / "in" / "plain.tfrecord.gz").write_bytes(framed(payloads[30:]))  # whatever its name says
    ran = shuffle(f"{tmp_path}/in/*.gz")
    assert ran.code == 0, ran.err
    assert sorted(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == sorted(payloads)


def test_names_that_do_not_end_in_gz(shuffle, tmp_path):
    """Beam told gzip by the name, and read DeepVariant's own golden files as plain ones."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "g.tfrecord.gz-00000-of-00001").write_bytes(gzip.compress(framed(examples(25))))
    assert shuffle(f"{tmp_path}/in/g.tfrecord.gz-?????-of-?????").code == 0
    assert sum(map(len, records_at(tmp_path / "out" / "s"))) == 25


def test_the_config_is_optional(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    ran = shuffle(pattern, config=None, name=None)
    assert ran.code == 0
    assert len(shards_at(tmp_path / "out" / "s")) == 1
    ran = shuffle(pattern, "--overwrite", config=None)
    assert ran.code == 0
    assert "--output_dataset_name: no effect without --output_dataset_config_pbtxt" in ran.err


def test_overlapping_patterns_give_each_record_once(shuffle, tmp_path):
    payloads = examples(100)
    pattern = write_examples(tmp_path / "in", payloads)
    (tmp_path / "in" / "link.gz").symlink_to("training_set.with_label.tfrecord-00002-of-00004.gz")
    ran = shuffle(f"{pattern},{tmp_path}/in/*-00001-of-*.gz,,{tmp_path}/in/link.gz")
    assert ran.code == 0, ran.err
    assert "2 files are named more than once: each is read once" in ran.err
    assert sorted(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == sorted(payloads)


def test_the_default_number_of_shards_follows_the_size(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(2000))
    for number, (more, shards) in enumerate(
        [((), 1), (("--direct_num_workers=0",), 1), (("--shard_size=8KB",), 5)]
    ):
        prefix = tmp_path / str(number) / "s"
        assert shuffle(pattern, *more, prefix=prefix, config=None, name=None).code == 0
        found = len(shards_at(prefix))
        assert found == 1 if shards == 1 else found > 1


# What is wrong is wrong at once


@pytest.mark.parametrize(
    ("more", "keywords", "message"),
    [
        ([], {"name": None}, "needs --output_dataset_name"),
        ([], {"name": ""}, "needs --output_dataset_name"),
        (["--step=0"], {}, "--step is how many records"),
        (["--step=-2"], {}, "cannot be -2"),
        (["--direct_num_workers=-1"], {}, "--direct_num_workers is how many shards"),
        (["--direct_num_workers=100000"], {}, "from 1 to 99,999"),
        (["--direct_num_workers=two"], {}, "not a valid integer"),
        (["--direct_num_workers=2", "--shard_size=1MB"], {}, "not both"),
        (["--seed=-1"], {}, "seed must be"),
        (["--level=17"], {}, "level"),
        (["--tmp_dir=/nowhere"], {}, "/nowhere"),
        (["--runner=DataflowRunner"], {}, "not run on Beam's runners yet"),
        (["--runner=SparkRunner"], {}, "not run on Beam's runners yet"),
        (["--ouput_dataset_name=x"], {}, "Did you mean"),
        ([], {"prefix": "gs://bucket/s"}, "only local files for now"),
        ([], {"config": "gs://bucket/c.pbtxt"}, "only local files for now"),
        ([], {"prefix": "OUT/HG00?/s"}, "would not find these files"),
        ([], {"prefix": "OUT/a,b"}, "would not find these files"),
        ([], {"prefix": "OUT/run@3.1/s"}, "would not find these files"),
        ([], {"prefix": "OUT/folder/"}, "a name for the files is missing"),
        ([], {"prefix": ""}, "--output_pattern_prefix is missing"),
        ([], {"config": "OUT"}, "is a folder"),
        ([], {"config": "OUT/s-00000-of-00001.tfrecord.gz"}, "both the config and a shard"),
        ([], {"config": "OUT/file/c.pbtxt"}, "cannot be written"),
    ],
)
def test_flags_are_checked_before_any_work(shuffle, tmp_path, more, keywords, message):
    pattern = write_examples(tmp_path / "in", examples(30))
    out = tmp_path / "out"
    out.mkdir()
    (out / "file").write_text("not a folder")
    keywords = {key: value and value.replace("OUT", str(out)) for key, value in keywords.items()}
    ran = shuffle(pattern, *more, **keywords)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert os.listdir(out) == ["file"]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("IN/none*.gz", "no file matches"),
        ("IN/*.gz,IN/none*.gz", "no file matches"),
        ("", "--input_pattern_list is missing"),
        (",", "--input_pattern_list is missing"),
        ("gs://bucket/a*.gz", "only local files for now; `gsutil"),
        ("IN/*example_info.json", "no files of records"),
        ("IN/*.txt", "not a TFRecord"),
    ],
)
def test_wrong_inputs_are_refused_at_once(shuffle, tmp_path, pattern, message):
    write_examples(tmp_path / "in", examples(30))
    (tmp_path / "in" / "a.txt").write_text("this is no TFRecord file at all, nor compressed")
    ran = shuffle(pattern.replace("IN", str(tmp_path / "in")))
    assert ran.code in (1, 2)
    assert message in ran.err or "length does not match" in ran.err
    assert not (tmp_path / "out").exists()


def test_flags_that_are_missing(command):
    assert "--input_pattern_list" in command("deepvariant", "--output_pattern_prefix=x").err
    assert "--output_pattern_prefix" in command("deepvariant", "--input_pattern_list=x").err


def test_a_shard_that_make_examples_did_not_write(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    (tmp_path / "in" / "training_set.with_label.tfrecord-00002-of-00004.gz").unlink()
    ran = shuffle(pattern)
    assert ran.code == 2
    assert "training_set.with_label.tfrecord-00002-of-00004.gz is missing" in ran.err


def test_inputs_as_make_examples_names_them(shuffle, tmp_path):
    write_examples(tmp_path / "in", examples(30))
    assert shuffle(f"{tmp_path}/in/training_set.with_label.tfrecord@4.gz").code == 0
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 30


# Outputs that are there already


def test_nothing_is_overwritten_unasked(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    out = tmp_path / "out"
    assert shuffle(pattern, "--direct_num_workers=2").code == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    ran = shuffle(pattern, "--direct_num_workers=2", "--seed=1")
    assert ran.code == 2
    assert "exists" in ran.err
    assert "--overwrite" in ran.err
    (out / "c.pbtxt").unlink()
    ran = shuffle(pattern, "--direct_num_workers=2", "--seed=1")
    assert ran.code == 2
    assert "s-00000-of-00002.tfrecord.gz and 1 more: exists" in ran.err
    assert "--overwrite" in ran.err
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} | {
        "c.pbtxt": before["c.pbtxt"]
    } == before
    assert shuffle(pattern, "--direct_num_workers=2", "--seed=1", "--overwrite").code == 0
    assert len(training_reads(out / "c.pbtxt")[2]) == 30
    assert (out / "s-00000-of-00002.tfrecord.gz").read_bytes() != before["s-00000-of-00002.tfrecord.gz"]


@pytest.mark.parametrize(("earlier", "now"), [(4, 2), (2, 4), (2, 1), (1, 2)])
@pytest.mark.parametrize("stem", ["s", "s.tfrecord", "s.gz"])
def test_stale_shards_that_training_would_read_are_refused(shuffle, tmp_path, stem, earlier, now):
    """-?????-of-????? matches the shards of an earlier run as well."""
    pattern = write_examples(tmp_path / "in", examples(30))
    prefix = tmp_path / "out" / stem
    assert shuffle(pattern, f"--direct_num_workers={earlier}", prefix=prefix).code == 0
    for more in ((), ("--overwrite",)):
        ran = shuffle(pattern, f"--direct_num_workers={now}", *more, prefix=prefix, config=tmp_path / "new")
        assert ran.code == 2
        assert "a shard of another set with the same prefix" in ran.err
    assert len(shards_at(prefix)) == earlier


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("stem", ["s", "s.tfrecord", "s.tfrecord.gz", "s-00000-of-00001", "x.y z"])
def test_the_prefix_is_taken_as_it_is(shuffle, tmp_path, stem, shards):
    pattern = write_examples(tmp_path / "in", examples(30))
    prefix = tmp_path / "out" / stem
    assert shuffle(pattern, f"--direct_num_workers={shards}", prefix=prefix).code == 0
    names = [f"{stem}-{number:05d}-of-{shards:05d}.tfrecord.gz" for number in range(shards)]
    assert [os.path.basename(path) for path in shards_at(prefix)] == names
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 30


def test_inputs_cannot_be_outputs(shuffle, tmp_path):
    payloads = examples(30)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "s-00000-of-00001.tfrecord.gz").write_bytes(gzip.compress(framed(payloads)))
    ran = shuffle(f"{tmp_path}/out/s-*", "--direct_num_workers=1", "--overwrite")
    assert ran.code == 2
    assert list(croupier.read(tmp_path / "out" / "s-00000-of-00001.tfrecord.gz")) == payloads


def test_nothing_else_is_left(shuffle, tmp_path):
    """Beam left its temporary folder in the output's when it failed."""
    noise = np.random.default_rng(0).bytes(20_000)
    pattern = write_examples(tmp_path / "in", [encode({"label": [1], "x": [noise]})] * 400)
    broken = tmp_path / "in" / "training_set.with_label.tfrecord-00003-of-00004.gz"
    broken.write_bytes(broken.read_bytes()[:-20])
    ran = shuffle(pattern, "--direct_num_workers=2")
    assert ran.code == 1
    assert str(broken) in ran.err
    left = [name for name in os.listdir(tmp_path / "out") if name != ".croupier"]
    assert left == []
    ran = shuffle(pattern, "--direct_num_workers=2", "--on_corrupt=tolerate-tail")
    assert ran.code == 0
    assert f"{broken}: bytes [" in ran.err


def test_folders_are_made(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    config = tmp_path / "new" / "configs" / "c.pbtxt"
    assert shuffle(pattern, prefix=tmp_path / "new" / "deep" / "s", config=config).code == 0
    assert len(training_reads(config)[2]) == 30


# example_info.json


def test_example_info_of_any_pattern(shuffle, tmp_path):
    """Beam's script looked at the first pattern alone, the low-memory one at none."""
    first = write_examples(tmp_path / "a", examples(10), info=None)
    second = write_examples(tmp_path / "b", examples(10, 10))
    assert shuffle(f"{first},{second}").code == 0
    assert training_reads(tmp_path / "out" / "c.pbtxt")[1] == INFO


def test_example_info_beside_the_inputs(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(10), info=None)
    (tmp_path / "in" / "example_info.json").write_text(json.dumps(INFO))
    assert shuffle(pattern).code == 0
    content = (tmp_path / "out" / "example_info.json").read_bytes()
    assert content == (tmp_path / "in" / "example_info.json").read_bytes()


def test_without_example_info_training_would_fail_and_we_say_so(shuffle, tmp_path):
    ran = shuffle(write_examples(tmp_path / "in", examples(10), info=None))
    assert ran.code == 0
    assert f"DeepVariant from 1.4 on wants one in {tmp_path}/out" in ran.err
    assert not (tmp_path / "out" / "example_info.json").exists()


def test_a_pattern_that_matches_example_info_means_the_records(shuffle, tmp_path):
    write_examples(tmp_path / "in", examples(10))
    assert shuffle(f"{tmp_path}/in/training_set*").code == 0
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 10


def test_inputs_that_disagree_are_refused(shuffle, tmp_path):
    first = write_examples(tmp_path / "a", examples(10))
    second = write_examples(tmp_path / "b", examples(10, 10), info=INFO | {"shape": [140, 221, 7]})
    ran = shuffle(f"{first},{second}")
    assert ran.code == 2
    assert "disagree (shape [100, 221, 7] and [140, 221, 7])" in ran.err
    assert not (tmp_path / "out").exists()


def test_inputs_of_two_versions_go_together(shuffle, tmp_path):
    first = write_examples(tmp_path / "a", examples(10))
    second = write_examples(tmp_path / "b", examples(10, 10), info=INFO | {"version": "1.9.0"})
    ran = shuffle(f"{first},{second}")
    assert ran.code == 0
    assert "is of DeepVariant 1.9.0" in ran.err
    assert training_reads(tmp_path / "out" / "c.pbtxt")[1] == INFO


def test_an_example_info_that_is_there_stays(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(10))
    out = tmp_path / "out"
    out.mkdir()
    same = json.dumps(INFO, indent=4)
    (out / "example_info.json").write_text(same)
    assert shuffle(pattern).code == 0
    assert (out / "example_info.json").read_text() == same
    assert shuffle(pattern, prefix=out / "validation", config=out / "v.pbtxt").code == 0, (
        "a second set in a folder"
    )
    other = json.dumps(INFO | {"channels": [1, 2, 3]})
    (out / "example_info.json").write_text(other)
    ran = shuffle(pattern, prefix=out / "t", config=None, name=None)
    assert ran.code == 2
    assert "disagrees with" in ran.err
    assert "(channels)" in ran.err
    assert (out / "example_info.json").read_text() == other
    ran = shuffle(pattern, "--overwrite", prefix=out / "t", config=None, name=None)
    assert ran.code == 0
    assert "will be replaced" in ran.err
    assert json.loads((out / "example_info.json").read_text()) == INFO


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000, "\xff"])
def test_an_example_info_that_is_none(shuffle, tmp_path, content):
    pattern = write_examples(tmp_path / "in", examples(10), info=None)
    (tmp_path / "in" / "example_info.json").write_text(content, encoding="latin-1")
    ran = shuffle(pattern)
    assert ran.code == 2
    assert "is no JSON object" in ran.err


# The config


@pytest.mark.parametrize(
    "name", ['a "b"', "back\\slash", "tab\tline\nnew", "Größe 基因", "'", "\x7f\x01" + "7"]
)
def test_names_are_quoted(shuffle, tmp_path, name):
    folder = tmp_path / 'out "of" bounds é'
    pattern = write_examples(tmp_path / "in", examples(10))
    assert shuffle(pattern, prefix=folder / "s", config=folder / "c", name=name).code == 0
    config, _, records = training_reads(folder / "c")
    assert config.name == name
    assert len(records) == 10
    assert (parse_config(f"name: {quoted(name)}")).name == name


def test_flags_cannot_break_out_of_their_comments(shuffle, tmp_path):
    folder = tmp_path / 'in\nname: "evil"\nx'
    pattern = write_examples(folder, examples(10))
    assert shuffle(pattern).code == 0
    assert training_reads(tmp_path / "out" / "c.pbtxt")[0].name == "HG002"


def test_a_path_that_is_no_utf8_is_refused(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(10))
    ran = shuffle(pattern, prefix=os.fsdecode(os.fsencode(tmp_path) + b"/\xff/s"))
    assert ran.code == 2
    assert "is no UTF-8" in ran.err


def test_no_records_at_all(shuffle, tmp_path):
    ran = shuffle(write_examples(tmp_path / "in", [], files=3))
    assert ran.code == 0
    assert "there are no records" in ran.err
    assert "num_examples: 0\n" in (tmp_path / "out" / "c.pbtxt").read_text()


def test_the_config_is_last_and_can_be_had_later(shuffle, tmp_path, monkeypatch):
    pattern = write_examples(tmp_path / "in", examples(40))
    written = []
    real = storage.write_file

    def write_file(path, content, **more):
        written.append(os.path.basename(path))
        if str(path).endswith(".pbtxt"):
            raise croupier.StorageError("write", str(path), OSError(28, "No space left on device"))
        real(path, content, **more)

    monkeypatch.setattr(storage, "write_file", write_file)
    ran = shuffle(pattern, "--direct_num_workers=2")
    assert ran.code == 2
    assert "No space left" in ran.err
    assert "All shards are there; the same command with --resume does the rest" in ran.err
    assert written[-2:] == ["example_info.json", "c.pbtxt"]
    monkeypatch.setattr(storage, "write_file", real)
    shards = [Path(path).read_bytes() for path in shards_at(tmp_path / "out" / "s")]
    for _ in range(2):  # with everything done, it is well too
        ran = shuffle(pattern, "--direct_num_workers=2", "--resume")
        assert ran.code == 0, ran.err
        assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 40
        assert counts_in(tmp_path / "out" / "c.pbtxt") == ["# class0: 14", "# class1: 26"]
        assert [Path(path).read_bytes() for path in shards_at(tmp_path / "out" / "s")] == shards
    (tmp_path / "out" / "c.pbtxt").write_text('name: "another"')
    ran = shuffle(pattern, "--direct_num_workers=2", "--resume")
    assert ran.code == 2
    assert "--overwrite replaces it" in ran.err


def test_an_interrupted_run_counts_each_record_once(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).bytes(30_000)
    payloads = [encode({"label": [number % 3], "x": [b"%d" % number, noise]}) for number in range(1000)]
    flags = Flags(
        input_pattern_list=write_examples(tmp_path / "in", payloads),
        output_pattern_prefix=str(tmp_path / "out" / "s"),
        output_dataset_config_pbtxt=str(tmp_path / "out" / "c.pbtxt"),
        output_dataset_name="n",
        direct_num_workers=50,
        step=100,
    )
    sealed = itertools.count()
    real = storage.AtomicFile.seal

    def seal(self):
        if next(sealed) == 20:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(storage.AtomicFile, "seal", seal)
    with pytest.raises(KeyboardInterrupt):
        Job(flags, print).run()
    monkeypatch.setattr(storage.AtomicFile, "seal", real)
    assert not (tmp_path / "out" / "c.pbtxt").exists()
    receipt = Job(replace(flags, resume=True), print).run()
    assert receipt["resumed"]
    assert receipt["labels"] == {"class0": 334, "class1": 333, "class2": 333}
    assert sorted(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == sorted(payloads)


def test_shards_of_a_plain_shuffle_get_their_config(shuffle, command, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(40))
    prefix = tmp_path / "out" / "s"
    target = f"{prefix}-?????-of-?????.tfrecord.gz"
    ran = command("shuffle", pattern, target, "--compression", "gzip", "--shards", 2)
    assert ran.code == 0, ran.err
    before = [Path(path).read_bytes() for path in shards_at(prefix)]
    ran = shuffle(pattern, "--direct_num_workers=2", "--resume")
    assert ran.code == 0, ran.err
    assert [Path(path).read_bytes() for path in shards_at(prefix)] == before
    assert counts_in(tmp_path / "out" / "c.pbtxt") == ["# class0: 14", "# class1: 26"]
    assert len(training_reads(tmp_path / "out" / "c.pbtxt")[2]) == 40


# Flags


def test_beams_flags_are_answered(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    ran = shuffle(
        pattern, "--project=mine", "--job_name", "shuffle", "--runner=DirectRunner", "--region", "us",
        "--staging_location=gs://b/s", "--temp_location=gs://b/t", "--save_main_session", "--experiments=a",
        "--experiments=b", "--direct_running_mode=multi_processing", "--s3_secret_access_key=hidden",
    )  # fmt: skip
    assert ran.code == 0
    lines = ran.err.splitlines()
    assert len(lines) == 11
    assert all("; no effect: " in line for line in lines)
    for flag in ("--project=mine", "--save_main_session", "--experiments=b", "--temp_location=gs://b/t"):
        assert sum(line.startswith(f"croupier: {flag}: ") for line in lines) == 1
    assert "hidden" not in ran.err


@pytest.mark.parametrize(
    "runner", ["DirectRunner", "directrunner", "apache_beam.runners.direct.DirectRunner"]
)
def test_local_runners(runner):
    said = []
    beam.check_runner(runner, said.append)
    assert len(said) == 1


@pytest.mark.interop
def test_every_flag_that_beam_has(monkeypatch):
    """Names and whether they take a value, as Beam's own parser has them."""
    from apache_beam.options import pipeline_options as theirs

    def below(kind):
        return itertools.chain.from_iterable([one, *below(one)] for one in kind.__subclasses__())

    flags = {}
    for kind in set(below(theirs.PipelineOptions)):
        if kind.__module__ == theirs.__name__ and "_add_argparse_args" in vars(kind):
            parser = theirs._BeamArgumentParser(add_help=False)
            kind._add_argparse_args(parser)
            for action in parser._actions:
                flags |= {
                    name[2:]: action.nargs != 0 for name in action.option_strings if "-" not in name[2:]
                }
    assert flags.pop("dry_run")  # ours
    assert flags.pop("direct_num_workers")
    assert flags.pop("runner")
    assert len(flags) > 100
    assert {name: option.takes_value for name, option in beam.OPTIONS.items() if name in flags} == flags


def test_both_spellings_and_both_forms(command, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    for number, config in enumerate(("--output_dataset_config", "--output_dataset_config_pbtxt")):
        out = tmp_path / str(number)
        ran = command(
            "deepvariant", "--input_pattern_list", pattern, "--output_pattern_prefix", out / "s", config,
            out / "c", "--output_dataset_name", "n", "--direct_num_workers", 2, "--step", -1,
        )  # fmt: skip
        assert ran.code == 0, ran.err
        assert len(training_reads(out / "c")[2]) == 30


def test_as_a_module(tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    call = [
        sys.executable, "-m", "croupier.deepvariant", f"--input_pattern_list={pattern}",
        f"--output_pattern_prefix={tmp_path}/out/s", f"--output_dataset_config={tmp_path}/out/c",
        "--output_dataset_name=n", "--direct_num_workers=2", "--step=-1",
    ]  # fmt: skip
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert "30 records" in done.stdout
    assert done.stderr == ""
    assert len(training_reads(tmp_path / "out" / "c")[2]) == 30
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--overwrite" in done.stderr


def test_json_and_dry_run(shuffle, tmp_path):
    pattern = write_examples(tmp_path / "in", examples(30))
    ran = shuffle(pattern, "--dry_run", "--json", "--direct_num_workers=4")
    assert json.loads(ran.out)["shards"] == 4
    ran = shuffle(pattern, "--dry-run")
    assert ran.code == 0
    assert ran.out
    assert not (tmp_path / "out").exists()
    receipt = json.loads(shuffle(pattern, "--json", "--direct_num_workers=4").out)
    assert receipt["in"] == receipt["out"]
    assert receipt["labels"] == {"class0": 10, "class1": 20}
    assert receipt["dataset_config"] == f"{tmp_path}/out/c.pbtxt"
    assert receipt["example_info"] == f"{tmp_path}/out/example_info.json"
    assert len(receipt["shards"]) == 4


# Counting labels


@pytest.mark.parametrize("strange", [None, 3, 40])
def test_labels_of_a_block_as_one_by_one(strange):
    rng = np.random.default_rng(0)
    payloads = [example(number, int(rng.integers(0, 12))) for number in range(50)]
    payloads[10:15] = [example(number) for number in range(5)]
    payloads[20] = encode({"label": [7, 1, 2]})
    if strange is not None:
        payloads[strange] = encode({"label": [b"bytes"]})
        payloads[strange + 1] = b"\xff"
    expected = collections.Counter()
    for payload in payloads:
        try:
            values = decode(payload).get("label", [])
        except croupier.ExampleError:
            expected["no_example"] += 1
        else:
            number = isinstance(values, np.ndarray) and len(values)
            expected[f"class{values[0]}" if number else "missing"] += 1
    data = b"junk" + framed(payloads)
    edges = np.cumsum([4, *(len(payload) + 16 for payload in payloads)]).astype(np.uint64)
    found = labels.tally(Block(memoryview(data), edges, 0, 0))
    assert found == expected
    ordered = list(labels.in_order(found))
    assert [name for name in ordered if name.startswith("class")] == sorted(
        (name for name in found if name.startswith("class")), key=lambda name: int(name[5:])
    )


# Real records


@pytest.mark.real
def test_golden_examples(shuffle, shared_data, tmp_path):
    ran = shuffle(
        f"{shared_data}/golden.training_examples.tfrecord.gz-?????-of-00003", "--direct_num_workers=4"
    )
    assert ran.code == 0, ran.err
    config, info, records = training_reads(tmp_path / "out" / "c.pbtxt")
    assert config.num_examples == 49
    assert info == json.loads((shared_data / "example_info.json").read_text())
    assert sorted(records) == sorted(croupier.read(f"{shared_data}/golden*"))
    assert all(decode(record)["image/shape"].tolist() == info["shape"] for record in records)
    sums = collections.Counter(int(decode(record)["label"][0]) for record in records)
    assert counts_in(tmp_path / "out" / "c.pbtxt") == [
        f"# class{label}: {sums[label]}" for label in sorted(sums)
    ]


@pytest.mark.real
@pytest.mark.interop
@pytest.mark.xdist_group("tensorflow")
def test_tensorflow_reads_them_as_training_does(shuffle, shared_data, tmp_path):
    import tensorflow as tf

    pattern = f"{shared_data}/golden.training_examples.tfrecord.gz-?????-of-00003"
    assert shuffle(pattern, "--direct_num_workers=60").code == 0  # so that some are empty
    config = parse_config((tmp_path / "out" / "c.pbtxt").read_text())
    files = tf.data.Dataset.list_files(config.tfrecord_path, shuffle=True)
    data = files.interleave(
        lambda name: tf.data.TFRecordDataset(name, compression_type="GZIP", buffer_size=16_000_000),
        cycle_length=8,
        num_parallel_calls=8,
        deterministic=False,
    )
    wanted = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
        "variant_type": tf.io.FixedLenFeature((), tf.int64),
    }
    found = [tf.io.parse_single_example(record, wanted) for record in data]
    assert len(found) == config.num_examples == 49
    shape = json.loads((tmp_path / "out" / "example_info.json").read_text())["shape"]
    assert all(len(one["image/encoded"].numpy()) == np.prod(shape) for one in found)
    expected = [decode(record)["label"][0] for record in croupier.read(pattern)]
    assert sorted(int(one["label"]) for one in found) == sorted(map(int, expected))
