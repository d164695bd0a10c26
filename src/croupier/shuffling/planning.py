"""What a shuffle will do, before it does it; everything that can be refused is refused here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from croupier import storage
from croupier.codec import deflate
from croupier.codec.detect import Compression
from croupier.errors import UsageError
from croupier.frames import OnCorrupt, check_on_corrupt
from croupier.output import BLOCK, SHARD_BYTES, file_names
from croupier.publish import check_outputs
from croupier.runtime import MIB, Runtime
from croupier.shuffling.inputs import Input, check_beginnings, compressibility, expansion, find_inputs

AT_REST = 56 * MIB
"""What the process takes before it has read anything."""
PER_WORKER = 8 * MIB
"""What a thread takes: buffers to read and inflate, and a block that is being spilled."""
LEAST_RUN = 16 * MIB

Asked = Literal["same", "gzip", "zlib", "none"]


@dataclass(frozen=True)
class Plan:
    """See `plan`."""

    inputs: Sequence[Input]
    prefix: str
    seed: int
    shards: int
    compression: Compression
    level: int
    strategy: str
    """"memory": read once, written once. "spill": in between, written to disk and read again."""
    workers: int
    memory: int
    """The budget."""
    run_bytes: int
    """Of that, what a run may take."""
    tmp_dir: str
    input_bytes: int
    stream_bytes: int
    """Decompressed; exact for plain files, else from samples."""
    temporary_bytes: int
    output_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rest = {key: value for key, value in vars(self).items() if key != "inputs"}
        files = [
            {"path": one.path, "bytes": one.size, "compression": one.compression.value} for one in self.inputs
        ]
        return rest | {"compression": self.compression.value, "inputs": files}


def make_plan(
    inputs: storage.PathLike | Iterable[storage.PathLike],
    prefix: storage.PathLike,
    runtime: Runtime,
    *,
    seed: int,
    shards: int | None,
    shard_size: int | None,
    tmp_dir: storage.PathLike | None,
    compression: Asked,
    level: int | None,
    on_corrupt: OnCorrupt,
    overwrite: bool,
) -> Plan:
    """Look at everything, and refuse what cannot work."""
    _check_flags(seed, shards, shard_size, compression)
    check_on_corrupt(on_corrupt)
    files = find_inputs(inputs)
    check_beginnings(files, on_corrupt)
    kind = _output_kind(files, compression)
    stored = sum(one.size for one in files)
    packed = sum(one.size for one in files if one.compression is not Compression.NONE)
    ratio = expansion(files) if packed else 1.0
    stream = stored - packed + int(packed * ratio)
    written = _output_bytes(kind, files, stream, ratio)
    count = shards or max(1, -(-written // (shard_size or SHARD_BYTES)))
    target = os.fspath(prefix)
    name, paths = file_names(target, count, kind)
    _refuse_own_inputs(files, paths)
    check_outputs(name, paths, overwrite=overwrite)
    folder = os.fspath(tmp_dir) if tmp_dir is not None else os.path.dirname(os.path.abspath(target))
    run = _run_bytes(runtime)
    spills = stream * 5 // 4 > run
    temporary = min(stream, stored * 3 if packed else stream) if spills else 0
    _check_space(os.path.dirname(os.path.abspath(target)), written, folder, temporary)
    return Plan(
        files, target, seed, count, kind, deflate.check_level(level), "spill" if spills else "memory",
        runtime.workers, runtime.memory, run, folder, stored, stream, temporary, written,
    )  # fmt: skip


def _check_flags(seed: int, shards: int | None, shard_size: int | None, compression: str) -> None:
    if not 0 <= seed < 1 << 64:
        raise UsageError(f"seed must be from 0 to 2^64 - 1, not {seed}")
    if shards is not None and shard_size is not None:
        raise UsageError("give the number of shards or their size, not both")
    if shards is not None and not 1 <= shards <= 99_999:
        raise UsageError(f"shards must be from 1 to 99,999, not {shards}")
    if shard_size is not None and shard_size < 1:
        raise UsageError(f"a shard's size must be at least 1 byte, not {shard_size}")
    if compression not in get_args(Asked):
        raise UsageError(f"compression must be one of {', '.join(get_args(Asked))}, not {compression!r}")


def _output_kind(files: Sequence[Input], asked: Asked) -> Compression:
    """`same` is that of most input bytes."""
    if asked != "same":
        return Compression(asked)
    sizes = {kind: sum(one.size for one in files if one.compression is kind) for kind in Compression}
    return max(sizes, key=lambda kind: sizes[kind])


def _output_bytes(kind: Compression, files: Sequence[Input], stream: int, ratio: float) -> int:
    """What the output will take, near enough to choose a number of shards by: from the inputs alone."""
    if kind is Compression.NONE:
        return stream
    packed = any(one.compression is not Compression.NONE and one.size for one in files)
    return int(stream / (ratio if packed else compressibility(files)))


def _run_bytes(runtime: Runtime) -> int:
    fixed = AT_REST + runtime.workers * (PER_WORKER + 4 * BLOCK)
    run = runtime.memory - fixed
    if run < LEAST_RUN:
        least = (fixed + LEAST_RUN) // 1_000_000 + 1
        raise UsageError(
            f"{runtime.memory:,} bytes of memory are too few for {runtime.workers} workers: give {least} MB"
        )
    return run


def _refuse_own_inputs(files: Sequence[Input], paths: Sequence[str]) -> None:
    ours = {os.path.realpath(path) for path in paths}
    for one in files:
        if os.path.realpath(one.path) in ours:
            raise UsageError(f"{one.path}: would be read and replaced: choose another prefix")


def _check_space(output: str, written: int, temporary: str, spilled: int) -> None:
    """Both together where they are on one device. Estimates: refused only when clearly too little."""

    def existing(folder: str) -> str:
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        return folder

    if not os.path.isdir(temporary) and temporary != output:
        raise UsageError(f"{temporary}: the folder for temporary files is not there")
    needs: dict[int, tuple[str, int]] = {}
    for folder, need in ((existing(output), written), (existing(temporary), spilled)):
        with storage.reporting("read", folder):
            device = os.stat(folder).st_dev
        needs[device] = folder, needs.get(device, ("", 0))[1] + need
    for folder, need in needs.values():
        free = shutil.disk_usage(folder).free
        if need * 9 // 10 > free:
            raise UsageError(f"{folder}: has {free:,} bytes free, and about {need:,} are needed")
