"""The job: flags are checked, records shuffled, and what training reads besides is written."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from croupier import naming, shuffling, streams
from croupier.codec.transcode import Level
from croupier.deepvariant import example_info, labels
from croupier.deepvariant.config import SHARDS, Config
from croupier.errors import CroupierError, InputNotFoundError, UsageError
from croupier.frames import Damage, OnCorrupt
from croupier.runtime import Progress
from croupier.shuffling.planning import Plan

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the scripts take, under their names, and below it what they do not."""

    input_pattern_list: str
    """Globs with commas between them."""
    output_pattern_prefix: str
    output_dataset_config_pbtxt: str | None = None
    output_dataset_name: str | None = None
    direct_num_workers: int = 0
    """How many shards; 0: by their size."""
    step: int = -1
    """How many records may be in memory at once; -1: any number."""

    seed: int = 0
    shard_size: int | None = None
    memory: int | None = None
    tmp_dir: str | None = None
    level: Level | None = None
    workers: int | None = None
    on_corrupt: OnCorrupt = "fail"
    overwrite: bool = False
    resume: bool = False


class Job:
    """Made: all is checked that can be known before records are read. `plan` or `run` follows."""

    def __init__(self, flags: Flags, say: Say) -> None:
        """`say` is told what a person should know and what is no error."""
        _check(flags)
        prefix, config = flags.output_pattern_prefix, flags.output_dataset_config_pbtxt
        self.config: Config | None = None
        if config:
            shown = ("input_pattern_list", "output_pattern_prefix", "direct_num_workers", "step", "seed")
            comments = {name: getattr(flags, name) for name in shown}
            self.config = Config(config, flags.output_dataset_name, prefix, comments)
            self.config.check_existing(overwrite=flags.overwrite, resume=flags.resume)
        elif flags.output_dataset_name:
            say("--output_dataset_name: no effect without --output_dataset_config_pbtxt")
        patterns = [part.strip() for part in flags.input_pattern_list.split(",") if part.strip()]
        self.inputs = _find_inputs(patterns, say)
        self._target = os.path.abspath(prefix) + SHARDS
        folder = os.path.dirname(self._target)
        self.info = example_info.find(patterns, self.inputs, folder, say, overwrite=flags.overwrite)
        _look_for_label(self.inputs, say)
        self._flags, self._say = flags, say

    def plan(self) -> Plan:
        """What `run` would do."""
        return shuffling.plan(self.inputs, self._target, **self._arguments())

    def run(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Shards, then example_info.json, then the config; gives the receipt, with what is DeepVariant's."""
        receipt = shuffling.shuffle(
            self.inputs,
            self._target,
            tally=labels.tally,
            progress=progress,
            on_damage=on_damage,
            cancel=cancel,
            **self._arguments(),
        )
        counts = labels.in_order(self._counts(receipt))
        try:
            if self.info is not None:
                self.info.write()
            if self.config is not None:
                self.config.write(receipt["out"]["records"], counts)
        except CroupierError as error:
            error.add_note("All shards are there; the same command with --resume does the rest.")
            raise
        self._tell(receipt["out"]["records"], counts)
        return receipt | {
            "labels": counts,
            "dataset_config": None if self.config is None else self.config.path,
            "example_info": None if self.info is None else self.info.target,
        }

    def _counts(self, receipt: dict[str, Any]) -> Mapping[str, int]:
        """Of each label; where `resume` found shards that were made without counting, they are read."""
        if "tally" in receipt:
            return cast(Mapping[str, int], receipt["tally"])
        counts: Counter[str] = Counter()
        for shard in receipt["shards"]:
            with streams.open_file(os.path.join(os.path.dirname(self._target), shard["name"])) as opened:
                for block in opened.frames:
                    counts.update(labels.tally(block))
        return counts

    def _arguments(self) -> dict[str, Any]:
        flags = self._flags
        return {
            "shards": flags.direct_num_workers or None,
            "max_records": None if flags.step == -1 else flags.step,
            "compression": "gzip",
            "seed": flags.seed,
            "shard_size": flags.shard_size,
            "memory": flags.memory,
            "tmp_dir": flags.tmp_dir,
            "level": flags.level,
            "workers": flags.workers,
            "on_corrupt": flags.on_corrupt,
            "overwrite": flags.overwrite,
            "resume": flags.resume,
        }

    def _tell(self, records: int, counts: dict[str, int]) -> None:
        unusable = counts.get(labels.MISSING, 0) + counts.get(labels.NO_EXAMPLE, 0)
        if unusable:
            self._say(f"{unusable:,} of {records:,} records have no label: training will fail on them")
        if not records and self.config is not None:
            self._say(f"{self.config.path}: there are no records, and training refuses a config that says so")


def _check(flags: Flags) -> None:
    for flag in ("input_pattern_list", "output_pattern_prefix"):
        if not getattr(flags, flag).strip(","):
            raise UsageError(f"--{flag} is missing")
    for flag in ("input_pattern_list", "output_pattern_prefix", "output_dataset_config_pbtxt", "tmp_dir"):
        if "://" in (getattr(flags, flag) or ""):
            raise UsageError(
                f"--{flag}={getattr(flags, flag)}: only local files for now; `gsutil -m cp` gets them from a "
                "bucket and puts them there"
            )
    if not os.path.basename(flags.output_pattern_prefix):
        raise UsageError(
            f"--output_pattern_prefix={flags.output_pattern_prefix}: a name for the files is missing after "
            "the folder's"
        )
    if flags.direct_num_workers < 0:
        raise UsageError(
            f"--direct_num_workers is how many shards (0: by their size), not {flags.direct_num_workers}"
        )
    if flags.step == 0 or flags.step < -1:
        raise UsageError(
            f"--step is how many records may be in memory at once (-1: no limit), and cannot be {flags.step}"
        )


def _find_inputs(patterns: list[str], say: Say) -> list[str]:
    """Each file once, whatever patterns and links name it."""
    if not patterns:
        raise UsageError("--input_pattern_list is missing")
    found = naming.expand(patterns)
    once: dict[str, str] = {}
    for path in naming.in_byte_order(map(os.path.abspath, found)):
        if not path.endswith(example_info.NAME):  # `training_set*` means the records alone
            once.setdefault(os.path.realpath(path), path)
    if not once:
        raise InputNotFoundError(f"{', '.join(patterns)}: no files of records among what matches")
    records = sum(not path.endswith(example_info.NAME) for path in found)
    if len(once) < records:
        say(f"{records - len(once):,} files are named more than once: each is read once")
    return list(once.values())


def _look_for_label(files: list[str], say: Say) -> None:
    """Whether the first records have one: who took the wrong files should know hours before the counts do."""
    for path in files:
        # what else may be wrong is for the plan to say
        with contextlib.suppress(CroupierError), streams.open_file(path) as opened:
            for block in opened.frames:
                if labels.tally(block).get(labels.MISSING) == len(block):
                    say(
                        f"{path}: its first records have no label: examples to train on are made by "
                        "`make_examples --mode training`"
                    )
                return
