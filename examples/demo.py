"""What `make demo` shows: writing, looking, checking and saving records, on data made for the occasion."""

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

RECORDS = 3000


def pileup(number: int, rng: random.Random) -> bytes:
    """A record like a variant caller's: a name, then an image of 100 x 221 x 7 with long runs."""
    rows = (bytes([rng.choice(b"\x00\x00\x28\x50\xf0")]) * rng.randrange(40, 221) for _ in range(700))
    image = b"".join(row.ljust(221, b"\x00") for row in rows)
    return f"chr20:{10_000_000 + 131 * number}".encode().ljust(24) + image


def run(command: str) -> int:
    """Show a command and what it prints."""
    print(f"\n$ {command}", flush=True)
    words = shlex.split(command)
    return subprocess.run([sys.executable, "-m", *words], check=False).returncode


def main() -> None:
    rng = random.Random(7)
    samples = [pileup(number, rng) for number in range(60)]
    folder = Path(tempfile.mkdtemp(prefix="croupier-demo-"))

    os.chdir(folder)
    print(f"Writing {RECORDS:,} records of {len(samples[0]) / 1e3:.0f} KB as 4 shards of seekable gzip ...")
    began = time.monotonic()
    with croupier.writer("data/train", shards=4, compression="gzip") as out:
        for number in range(RECORDS):
            image = samples[number % len(samples)][24:]
            out.write(f"chr20:{10_000_000 + 131 * number}".encode().ljust(24) + image)
    seconds = time.monotonic() - began
    raw = sum(shard["payload_bytes"] for shard in out.receipt["shards"])
    packed = sum(shard["file_bytes"] for shard in out.receipt["shards"])
    print(
        f"{raw / 1e6:.0f} MB became {packed / 1e6:.0f} MB in {seconds:.1f} s "
        f"({raw / seconds / 1e6:.0f} MB/s); nothing was visible before all four were complete.\n"
        f"Receipt: {out.receipt['out']['records']:,} records, "
        f"fingerprint {out.receipt['out']['fingerprint']}"
    )
    run("croupier show data/train-00000-of-00004.tfrecord.gz --head 4")
    run("croupier verify data/")

    run("croupier info data/")
    data = croupier.open("data/train@4.tfrecord.gz")
    numbers = random.Random(1).sample(range(len(data)), 500)
    began = time.monotonic()
    batch = data.read_many(numbers)
    seconds = time.monotonic() - began
    print(
        f"\n500 records at random, straight from the gzip files: {batch.buffer.nbytes / 1e6:.0f} MB in "
        f"{seconds * 1000:.0f} ms; each was checked against its two checksums."
    )

    print("\nNow a plain copy, and one flipped bit in the middle of it:")
    with croupier.writer("broken.tfrecord") as plain:
        plain.write_many(croupier.read("data/train-00000-of-00004.tfrecord.gz"))
    content = bytearray(Path("broken.tfrecord").read_bytes())
    content[len(content) // 2 + 5000] ^= 0x10
    Path("broken.tfrecord").write_bytes(content)
    code = run("croupier verify broken.tfrecord")
    saved = sum(
        1 for _ in croupier.read("broken.tfrecord", on_corrupt="salvage", on_damage=lambda damage: None)
    )
    print(f"(exit code {code})\n\non_corrupt='salvage' still reads {saved} of {plain.records} records.")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
