"""Shuffling a million files that hold one record each, against opening and reading them."""

from __future__ import annotations

import ctypes
import os
import time
from functools import partial

from common import CORES, MIB, bare, begin, folder, note, say, spread, table
from jobs import clear, cpus, quotients, race_jobs, shuffle, timed, walls
from tiny_files import FILES, FOLDERS, make


def main() -> None:
    options = begin("Shuffling a million one-record files")
    library, home = bare(), folder()
    folders, files = (2, 1000) if options.quick else (FOLDERS, FILES)
    count = folders * files
    say(f"making {count:,} files")
    (home / "in").mkdir()
    where = make(home / "in", folders, files)
    os.sync()
    time.sleep(3)
    names = (ctypes.c_char_p * folders)(*(os.fsencode(one) for one in where))
    out = home / "out"
    sides = {
        "read": lambda: timed(partial(library.read_folders, names, folders, CORES)),
        "us": shuffle(where, out / "t"),
    }
    jobs = race_jobs(sides, 1 if options.quick else 3, partial(clear, out))
    receipt = jobs["us"][-1].json()
    assert receipt["out"]["records"] == count
    share = [100 * part for part in quotients(jobs["read"], jobs["us"])]
    table(
        ["files", "list, open and read in C, s", "croupier, s", "share of the limit", "read, CPU s",
         "croupier, CPU s", "croupier, MiB", "strategy"],
        [
            [
                f"{count:,}",
                spread(walls(jobs["read"])),
                spread(walls(jobs["us"])),
                f"**{spread(share, 0)} %**",
                spread(cpus(jobs["read"])),
                spread(cpus(jobs["us"])),
                f"{max(job.memory for job in jobs['us']) / MIB:,.0f}",
                receipt.get("strategy", ""),
            ]
        ],
    )  # fmt: skip
    note(
        f"Records of 200 to 400 bytes in {folders} folders, warm. In C: {CORES} threads list folders, sort "
        "the names, then open, fstat, read and close each file. Ours is the whole command, output and proof "
        "included."
    )


if __name__ == "__main__":
    main()
