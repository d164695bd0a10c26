"""The arithmetic of forecasts, on facts that are made up; and the facts that are looked up."""

import gzip
import json
import os
from dataclasses import replace

import numpy as np
import pytest

import croupier
from croupier.codec.detect import Compression
from croupier.frames import Block
from croupier.runtime import Runtime
from croupier.shuffling import facts as looked_up
from croupier.shuffling.forecast import (
    BUFFERED,
    READ,
    SORT,
    SPILL,
    TOUCH,
    WRITE,
    Facts,
    Level,
    Place,
    predict,
)
from croupier.shuffling.probe import Device
from croupier.shuffling.run import PER_RECORD

GB = 1_000_000_000
DISK = Place("/data", 1, Device(read=2e9, write=1e9, random=20_000))
OTHER = Place("/scratch", 2, Device(read=4e9, write=4e9, random=60_000))
PLAIN = Facts(
    strategy="memory",
    stays=False,
    memory=32 * GB,
    fixed=GB,
    workers=4,
    compression=Compression.NONE,
    level=5,
    input_bytes=10 * GB,
    inflated_bytes=0,
    stream_bytes=10 * GB,
    records=10_000_000,
    counted=True,
    cached=0.0,
    roomy=False,
    inflate=1e9,
    levels=[Level(1, 1.0, 1e9)],
    source=DISK,
    target=DISK,
    temporary=DISK,
)
GZIP = replace(
    PLAIN,
    compression=Compression.GZIP,
    input_bytes=GB,
    inflated_bytes=20 * GB,
    stream_bytes=20 * GB,
    records=130_000,
    levels=[Level(1, 16.0, 2e9), Level(5, 20.0, 4e8), Level(9, 25.0, 5e7)],
)


def seconds(price, facts):
    return facts.stream_bytes * price[0] + facts.records * price[1]


def test_in_memory_a_device_reads_all_and_then_writes_all():
    found = predict(PLAIN)
    read, write = found.phases
    sort = seconds(SORT, PLAIN)
    assert read.name == "read"
    assert read.bytes == 10 * GB
    assert read.seconds == pytest.approx(10 / 2 + sort)
    assert write.seconds == pytest.approx(10 / 1)
    assert found.seconds == pytest.approx(15 + sort)
    assert found.limit_seconds == pytest.approx(15)
    assert found.bound == write.bound == "writing"
    assert read.bound == "reading"
    assert read.limits["memory"] == pytest.approx((seconds(READ, PLAIN) + PLAIN.touching) / 4 + sort)
    assert write.limits == pytest.approx({"writing": 10, "deflating": 0, "memory": seconds(WRITE, PLAIN)}), (
        "one thread hands plain blocks over"
    )
    assert found.spilled_bytes == 0


def test_what_the_page_cache_holds_is_not_read():
    found = predict(replace(PLAIN, cached=1.0))
    assert found.phases[0].seconds == pytest.approx(
        (seconds(READ, PLAIN) + PLAIN.touching) / 4 + seconds(SORT, PLAIN)
    )
    assert found.phases[0].bound == "memory"
    assert predict(replace(PLAIN, cached=0.5)).phases[0].limits["reading"] == pytest.approx(2.5)


def test_spilling_reads_and_writes_twice_and_another_device_takes_its_share():
    spill = replace(PLAIN, strategy="spill")
    found = predict(spill)
    assert found.spilled_bytes == 10 * GB
    assert found.limit_seconds == pytest.approx(10 / 2 + 10 / 1 + 10 / 2 + 10 / 1)
    assert found.phases[1].seconds == pytest.approx(15)
    assert found.phases[1].bound == "writing"
    assert found.phases[0].limits["memory"] == pytest.approx(
        (seconds(READ, spill) + seconds(SPILL, spill) + spill.touching) / 4 + seconds(SORT, spill)
    )
    apart = predict(replace(spill, temporary=OTHER))
    assert apart.limit_seconds == pytest.approx(10 / 2 + 10 / 4 + 10 / 1)
    assert apart.phases[1].seconds == pytest.approx(10), "one device reads while the other writes"


def test_what_compresses_is_spilled_compressed():
    found = predict(replace(PLAIN, strategy="spill", levels=[Level(1, 4.0, 1e9)]))
    assert found.spilled_bytes == 10 * GB // 4
    assert found.phases[0].limits["deflating"] == pytest.approx(10 / 4)
    assert found.phases[1].limits["inflating"] == pytest.approx(10 / 4)
    assert predict(replace(PLAIN, strategy="spill", levels=[Level(1, 1.1, 1e9)])).spilled_bytes == 10 * GB


def test_compressing_bounds_and_cores_share_it():
    found = predict(GZIP, levels=[1, 5, 9])
    assert found.bound == "deflating"
    assert found.output_bytes == GB
    buffered = GB * BUFFERED
    assert found.phases[1].seconds == pytest.approx((20 / 0.4 + seconds(WRITE, GZIP)) / 4 + buffered)
    assert found.phases[1].limit_seconds == pytest.approx(20 / 0.4 / 4)
    assert predict(replace(GZIP, inflate=5e8)).phases[0].bound == "inflating"
    alone = predict(replace(GZIP, workers=1))
    assert alone.seconds == pytest.approx(4 * found.seconds, rel=0.1)
    levels = [level for level, _, _ in found.levels]
    times = [taken for _, taken, _ in found.levels]
    sizes = [size for _, _, size in found.levels]
    assert levels == [1, 5, 9]
    assert times == sorted(times)
    assert times[1] == pytest.approx(found.seconds)
    assert sizes == [20 * GB // 16, GB, 20 * GB // 25]


def test_a_zlib_file_is_one_stream_that_one_core_compresses():
    found = predict(replace(GZIP, compression=Compression.ZLIB))
    assert found.phases[1].limits["deflating"] == pytest.approx(20 / 0.4)


def test_fragments_are_compressed_once_and_moved():
    found = predict(replace(GZIP, strategy="fragments"), others=["spill", "memory"])
    assert found.spilled_bytes == found.output_bytes == GB
    assert found.phases[0].limits["deflating"] == pytest.approx(20 / 0.4 / 4)
    assert "deflating" not in found.phases[1].limits
    assert found.phases[1].seconds == pytest.approx(1 / 2 + 1 / 1)
    spill, memory = found.others
    assert spill[0] == "spill"
    assert spill[1] > found.seconds, "compresses twice"
    assert spill[2] == 20 * GB // 16
    assert memory[2] == 0
    held = predict(replace(GZIP, strategy="fragments", stays=True))
    assert held.spilled_bytes == held.phases[0].limits["writing"] == 0
    assert held.phases[1].limits["reading"] == 0


def test_gathering_pays_for_pages_and_requests():
    large = replace(PLAIN, strategy="gather", records=100_000)
    found = predict(large)
    assert found.spilled_bytes == 0
    assert [phase.name for phase in found.phases] == ["index", "gather"]
    assert found.phases[1].limits["reading"] == pytest.approx((10 * GB + 100_000 * 4095) / 2e9)
    small = predict(replace(large, records=50_000_000))
    assert small.phases[1].limits["reading"] >= 50_000_000 / 80_000, "requests, not bytes"
    assert small.seconds > predict(replace(large, strategy="spill", records=50_000_000)).seconds
    assert found.seconds < predict(replace(large, strategy="spill")).seconds
    unknown = predict(replace(large, counted=False))
    assert unknown.phases[0].limits["reading"] == pytest.approx(
        min(10 * GB / 2e9, max(100_000 * 4095 / 2e9, 100_000 / 80_000))
    ), "records are found by their headers"


def test_gathering_from_the_page_cache_reads_devices_once():
    small = replace(PLAIN, strategy="gather", roomy=True, counted=False, records=50_000_000)
    found = predict(small)
    assert found.phases[0].limits["reading"] == pytest.approx(10 / 2)
    assert found.phases[1].limits["reading"] == 0
    counted = predict(replace(small, counted=True))
    assert "reading" not in counted.phases[0].limits
    assert counted.phases[1].limits["reading"] == pytest.approx(10 * GB / 4096 / 80_000), "each page once"


def test_unknown_devices_count_as_nothing_and_are_named():
    nowhere = Place("/mnt", 3, None)
    found = predict(replace(PLAIN, source=nowhere))
    assert found.phases[0].limits["reading"] == 0
    assert [place.folder for place in found.places if place.device is None] == ["/mnt"]
    assert predict(replace(PLAIN, source=nowhere, target=nowhere, strategy="gather")).seconds > 0
    same = predict(replace(PLAIN, source=Place("/data/read-only", 1, None)))
    assert [place.folder for place in same.places] == ["/data"]


def test_memory_is_the_budget_or_what_everything_takes():
    assert predict(PLAIN).peak_bytes == 11 * GB + 10_000_000 * PER_RECORD
    assert predict(replace(PLAIN, memory=5 * GB)).peak_bytes == 5 * GB
    assert predict(replace(PLAIN, strategy="spill", memory=20 * GB)).peak_bytes == 20 * GB
    assert predict(replace(GZIP, strategy="fragments", memory=3 * GB)).peak_bytes == 3 * GB
    assert predict(replace(PLAIN, strategy="gather")).peak_bytes < 2 * GB
    held = predict(replace(GZIP, strategy="fragments", stays=True)).peak_bytes
    assert held == 2 * GB + 130_000 * PER_RECORD


def test_fresh_memory_is_paid_for_once():
    assert PLAIN.touching == pytest.approx((10 * GB + 10_000_000 * PER_RECORD) * TOUCH)
    little = replace(PLAIN, strategy="spill", memory=3 * GB)
    assert little.touching == pytest.approx(2 * GB * TOUCH), "all that is not taken by other things"


def test_nothing_at_all():
    empty = replace(PLAIN, input_bytes=0, stream_bytes=0, records=0)
    for strategy in ("memory", "spill", "gather", "fragments"):
        found = predict(replace(empty, strategy=strategy, compression=Compression.GZIP, level=1), levels=[1])
        assert found.seconds == found.limit_seconds == found.output_bytes == 0


def test_a_forecast_is_json():
    found = predict(GZIP, levels=[1], others=["spill"])
    told = json.loads(json.dumps(found.as_dict()))
    assert told["seconds"] == found.seconds
    assert told["levels"] == [
        {"level": 1, "seconds": predict(replace(GZIP, level=1)).seconds, "output_bytes": 20 * GB // 16}
    ]
    assert told["others"][0]["temporary_bytes"] == 20 * GB // 16
    assert told["phases"][0]["name"] == "read"
    assert told["places"][0]["device"]["write"] == 1e9


# Facts


def examples(count):
    return [b"label %d " % (number % 7) * 25 for number in range(count)]


def test_records_are_counted_by_tables_or_estimated(tmp_path):
    plain = tmp_path / "a.tfrecord"
    with croupier.writer(plain) as out:
        out.write_many(examples(20_000))
    assert not (tmp_path / ".croupier" / "records.table").exists()
    seen = croupier.plan(plain, tmp_path / "t").forecast
    assert not seen.counted
    assert seen.records == pytest.approx(20_000, rel=0.01)
    croupier.index(plain)
    seen = croupier.plan(plain, tmp_path / "t").forecast
    assert seen.counted
    assert seen.records == 20_000


def test_levels_are_tried_on_the_inputs_themselves(tmp_path):
    with croupier.writer(tmp_path / "a.tfrecord.gz", level=6) as out:
        out.write_many(examples(50_000))
    made = croupier.plan(tmp_path / "a.tfrecord.gz", tmp_path / "t", level=4)
    levels = {level: size for level, _, size in made.forecast.levels}
    assert set(levels) == {1, 3, 4, 5, 6, 9}
    assert levels[9] <= levels[1]
    croupier.shuffle(tmp_path / "a.tfrecord.gz", tmp_path / "t", level=4)
    size = sum(path.stat().st_size for path in tmp_path.glob("t-*"))
    assert made.forecast.output_bytes == pytest.approx(size, rel=0.3)


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_codec_costs(compression):
    with Runtime(workers=2) as runtime:
        text = memoryview(b"all work and no play makes a dull boy " * 20_000)
        block = Block(text, np.array([0, len(text)], np.uint64), 0, 0)
        costs = looked_up.codec_costs([block], compression, [9, 1], runtime)
        assert [cost.level for cost in costs] == [1, 9]
        assert all(cost.ratio > 20 and cost.rate > 1e6 for cost in costs)
        assert looked_up.codec_costs([], compression, [1], runtime) == []


def test_damaged_and_empty_inputs_have_a_forecast_too(tmp_path):
    with croupier.writer(tmp_path / "whole.tfrecord") as out:
        out.write_many([os.urandom(1000)] * 2000)
    content = gzip.compress((tmp_path / "whole.tfrecord").read_bytes())
    (tmp_path / "broken.tfrecord.gz").write_bytes(content[: len(content) * 9 // 10])
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    assert croupier.plan(tmp_path / "empty.tfrecord", tmp_path / "t").forecast.records == 0
    made = croupier.plan(tmp_path / "broken.tfrecord.gz", tmp_path / "t", on_corrupt="salvage")
    assert made.forecast.seconds > 0
