"""An output against its receipt, later."""

import json
import shutil

import pytest

import croupier


@pytest.fixture
def output(tmp_path):
    with croupier.writer(tmp_path / "out" / "train", shards=3, compression="gzip") as out:
        out.write_many(b"record %d" % number * (number % 50) for number in range(3000))
    return tmp_path / "out"


def names(output):
    return [output / f"train-{number:05d}-of-00003.tfrecord.gz" for number in range(3)]


def test_what_was_written(output, command, monkeypatch):
    for given in (output / "train", output / ".croupier" / "train.receipt.json"):
        ran = command("verify", "--receipt", given)
        assert ran.code == 0, ran.err
        assert "3 files: 3,000 whole records, all whole" in ran.out
    monkeypatch.chdir(output)
    assert all(report.ok for report in croupier.verify(receipt="train"))
    reports = [
        json.loads(line) for line in command("verify", "--receipt", "train", "--json").out.splitlines()
    ]
    receipt = json.loads((output / ".croupier" / "train.receipt.json").read_text())
    assert [one["fingerprint"] for one in reports] == [one["fingerprint"] for one in receipt["shards"]]


def test_what_was_not(output, command):
    """Whole files, all of them: other records, fewer records, two swapped, one that is not there."""
    first, second, third = names(output)
    kept = output / "kept"
    shutil.copy(first, kept)
    payloads = list(croupier.read(first))

    def rewrite(content):
        with croupier.writer(first, overwrite=True) as out:
            out.write_many(content)
        ran = command("verify", "--receipt", output / "train")
        assert ran.code == 1
        assert "MISMATCH" in ran.out
        assert "1 not what was written" in ran.out
        return ran.out

    assert "1,000 were written" in rewrite(payloads[1:])
    assert "payload bytes" in rewrite([*payloads[1:], payloads[0] + b"!"])
    assert "fingerprint" in rewrite([*payloads[:-1], bytes(len(payloads[-1]))])
    shutil.copy(kept, first)
    assert command("verify", "--receipt", output / "train").code == 0
    second.rename(kept)
    third.rename(second)
    kept.rename(third)
    assert [bool(report.mismatch) for report in croupier.verify(receipt=output / "train")] == [
        False,
        True,
        True,
    ]
    second.unlink()
    ran = command("verify", "--receipt", output / "train")
    assert ran.code == 2
    assert "UNREADABLE" in ran.out


def test_order_is_not_part_of_it(output):
    """A fingerprint is of the records, in whatever order."""
    first = names(output)[0]
    payloads = list(croupier.read(first))
    with croupier.writer(first, overwrite=True) as out:
        out.write_many(payloads[::-1])
    assert all(report.ok for report in croupier.verify(receipt=output / "train"))


@pytest.mark.parametrize(
    "content",
    [
        "", "{}", "[]", "null", '{"shards": 3}', '{"shards": [{"name": "a"}]}',
        '{"shards": [{"name": "../a", "records": 1, "payload_bytes": 1, "fingerprint": "0"}]}',
        '{"shards": [{"name": "a/b", "records": 1, "payload_bytes": 1, "fingerprint": "0"}]}',
        '{"shards": [{"name": "..", "records": 1, "payload_bytes": 1, "fingerprint": "0"}]}',
        '{"shards": [{"name": 5, "records": 1, "payload_bytes": 1, "fingerprint": "0"}]}',
        '{"shards": [{"name": "a", "records": "1", "payload_bytes": 1, "fingerprint": "0"}]}',
    ],
)  # fmt: skip
def test_what_is_no_receipt(tmp_path, command, content):
    path = tmp_path / "x.receipt.json"
    path.write_text(content)
    ran = command("verify", "--receipt", path)
    assert ran.code == 2
    assert "x.receipt.json" in ran.err


def test_calls_that_cannot_be_right(output, command):
    assert command("verify").code == 2
    assert command("verify", output, "--receipt", output / "train").code == 2
    assert "no such receipt" in command("verify", "--receipt", output / "other").err
    with pytest.raises(croupier.UsageError, match="not both"):
        croupier.verify(output, receipt=output / "train")
