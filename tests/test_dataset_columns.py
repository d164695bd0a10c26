"""The features of a whole dataset as columns, part by part."""

import numpy as np
import pytest

import croupier
from croupier import example

RECORDS = 20_000


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Three files in three forms; `rare` stands in one record of the last."""
    folder = tmp_path_factory.mktemp("columns")
    names = ["a.tfrecord", "b.tfrecord.gz", "c.tfrecord.zlib"]
    for part, name in enumerate(names):
        with croupier.writer(folder / name) as out:
            for number in range(RECORDS):
                features = {"label": part * RECORDS + number, "text": "x" * (number % 300)}
                if part == 2 and number == 19_000:
                    features["rare"] = [1.5, 2.5]
                out.write(example.encode(features))
    return [folder / name for name in names]


@pytest.mark.filterwarnings("ignore::croupier.errors.SlowAccessWarning")
@pytest.mark.parametrize("workers", [1, 3])
def test_all_records_in_order(paths, workers):
    data = croupier.open(paths)
    told = []
    parts = list(data.columns(["label"], workers=workers, progress=told.append))
    assert len(parts) > 2
    assert np.concatenate([part["label"].array for part in parts]).tolist() == list(range(3 * RECORDS))
    assert (told[-1].done, told[-1].total) == (3 * RECORDS, 3 * RECORDS)
    chosen = data.subset(range(5, 3 * RECORDS, 7))
    values = [part["label"].array for part in chosen.columns(["label"], workers=workers)]
    assert np.concatenate(values).tolist() == list(range(5, 3 * RECORDS, 7))


def test_a_rare_feature(paths):
    data = croupier.open(paths)
    found = [part["rare"] for part in data.columns(["rare"]) if "rare" in part]
    assert len(found) == 1
    assert found[0].values.tolist() == [1.5, 2.5]
    assert [part.records for part in data.columns(["rare"])] == [
        part.records for part in data.columns(["label"])
    ]


def test_a_feature_that_is_nowhere(paths):
    with pytest.raises(croupier.UsageError, match=r"'lable'.*'label'"):
        list(croupier.open(paths).columns(["lable"]))
    assert list(croupier.open(paths).take(0).columns(["lable"])) == []


def test_errors_say_which_record_of_which_file(paths, tmp_path):
    bad = tmp_path / "z.tfrecord"
    with croupier.writer(bad) as out:
        out.write_many([example.encode({"label": 1})] * 30_000)
        out.write(b"\xff\xff")
        out.write_many([example.encode({"label": 1})] * 10)
    data = croupier.open([paths[0], bad])
    with pytest.raises(croupier.ExampleError) as caught:
        list(data.columns())
    assert (caught.value.path, caught.value.record) == (str(bad), 30_000)
    assert "z.tfrecord: record 30000" in str(caught.value)
    schema = croupier.Schema({"label": croupier.Feature("label", example.Kind.FLOAT)})
    with pytest.raises(croupier.ExampleError, match="record 0"):
        list(croupier.open(bad).columns(schema=schema))
