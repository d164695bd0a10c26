"""What `make demo` shows: the main jobs, on data made for the occasion."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import croupier
from croupier import example

RECORDS = 3000


def pileup(rng: random.Random) -> bytes:
    """An image like a variant caller's, 100 x 221 x 7 bytes with long runs."""
    rows = (bytes([rng.choice(b"\x00\x00\x28\x50\xf0")]) * rng.randrange(40, 221) for _ in range(700))
    return b"".join(row.ljust(221, b"\x00") for row in rows)


def record(number: int, image: bytes) -> bytes:
    """A tf.train.Example; neighbours on the genome are neighbours in the file, and so are equal labels."""
    return example.encode(
        {
            "image/encoded": image,
            "image/shape": [100, 221, 7],
            "label": number * 3 // RECORDS,
            "locus": f"chr20:{10_000_000 + 131 * number}-{10_000_001 + 131 * number}",
        }
    )


def run(command: str) -> int:
    """Show a command and what it prints."""
    print(f"\n$ {command}", flush=True)
    words = shlex.split(command)
    return subprocess.run([sys.executable, "-m", *words], check=False).returncode


def main() -> None:
    rng = random.Random(7)
    images = [pileup(rng) for _ in range(60)]
    folder = Path(tempfile.mkdtemp(prefix="croupier-demo-"))

    os.chdir(folder)
    size = len(images[0])
    print(f"Writing {RECORDS:,} Examples of {size / 1e3:.0f} KB as seekable gzip, without TensorFlow ...")
    began = time.monotonic()
    for part in range(4):  # as they come from a genome: in order
        with croupier.writer(f"data/train-{part:05d}-of-00004.tfrecord.gz") as out:
            for number in range(part * RECORDS // 4, (part + 1) * RECORDS // 4):
                out.write(record(number, images[number % len(images)]))
    seconds = time.monotonic() - began
    packed = sum(path.stat().st_size for path in Path("data").glob("train-*"))
    rate = RECORDS * size / seconds / 1e6
    print(f"{RECORDS * size / 1e6:.0f} MB became {packed / 1e6:.0f} MB in {seconds:.1f} s ({rate:.0f} MB/s).")
    run("croupier show data/train-00000-of-00004.tfrecord.gz --head 3")
    run("croupier info data/ --stats")
    data = croupier.open("data/train@4.tfrecord.gz")
    numbers = random.Random(1).sample(range(len(data)), 500)
    began = time.monotonic()
    batch = data.read_many(numbers)
    seconds = time.monotonic() - began
    print(
        f"\n500 records at random, straight from the gzip files: {batch.buffer.nbytes / 1e6:.0f} MB in "
        f"{seconds * 1000:.0f} ms; each was checked against its two checksums."
    )

    print("\nThe records come in the order of the genome, and so do their labels:")
    run("croupier mixing data/")
    print("\nNow in a random order that seed 7 fixes for ever, in less memory than they take:")
    run("croupier shuffle data/ shuffled/train --seed 7 --shards 4 --memory 250MB --dry-run")
    run("croupier shuffle data/ shuffled/train --seed 7 --shards 4 --memory 250MB")
    run("croupier mixing shuffled/")
    print("\nThe receipt says what was written; is that still what is there?")
    run("croupier verify --receipt shuffled/train")

    print("\nA plain copy of a shard, and one flipped bit in the middle of it:")
    with croupier.writer("broken.tfrecord") as plain:
        plain.write_many(croupier.read("shuffled/train-00000-of-00004.tfrecord.gz"))
    content = bytearray(Path("broken.tfrecord").read_bytes())
    content[len(content) // 2 + 5000] ^= 0x10
    Path("broken.tfrecord").write_bytes(content)
    code = run("croupier verify broken.tfrecord shuffled/")
    saved = sum(
        1 for _ in croupier.read("broken.tfrecord", on_corrupt="salvage", on_damage=lambda damage: None)
    )
    print(f"(exit code {code})\n\non_corrupt='salvage' still reads {saved} of {plain.records} records.")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
