# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: what is in it, whose it is, and which weights to read."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from albert_tf.config import CONFIG_FILE
from albert_tf.errors import AlbertError, DamagedError, StoppedError
from albert_tf.huggingface import CONFIG
from albert_tf.huggingface.config import read_task
from albert_tf.io import files, removal, storage
from albert_tf.io.folders import names_below
from albert_tf.io.json_values import from_json, joined, short_repr
from albert_tf.io.storage import exists, listdir
from albert_tf.pretrained.locate import no_model

RUN_CONFIG = "run_config.json"
#: The parts of run_config.json that two runs must have in common to be the same.
IDENTITY = ("run", "task", "train")
TASK_FILE = "task.json"
SEEDS_FILE = "seeds.json"
METRICS_FILE = "metrics.jsonl"
RESULTS_FILE = "eval_results.json"
CHECKPOINTS = "checkpoints"
BEST = "best"
BEST_RECORD = "best.json"
#: TensorFlow's list of the checkpoints in a folder.
CHECKPOINT_LIST = "checkpoint"
#: What a run leaves in its folder, beside run_config.json.
_OF_A_RUN = (CHECKPOINTS, BEST, TASK_FILE, SEEDS_FILE, METRICS_FILE)
#: The names of a run's checkpoints.
_OF_A_STEP = r"ckpt-(?P<step>\d{1,18})"


@dataclasses.dataclass(frozen=True)
class BestRecord:
    """The best evaluation of a run.

    `checkpoint` is the name of the weights beside the record, `data` identifies what was evaluated
    on, if that is known. `loss` decides between equal values, if it is known.
    """

    step: int
    metric: str
    value: float
    checkpoint: str
    data: str = ""
    loss: float | None = None

    def is_of(self, data: str) -> bool:
        """Returns whether the evaluation was on this data; True if either is unknown (empty)."""
        return not (self.data and data and self.data != data)

    def save(self, folder: str) -> None:
        """Writes the record with a checksum, because a damaged value may look valid."""
        values = {**dataclasses.asdict(self), "crc32": self._crc32()}
        files.write_json(os.path.join(folder, BEST_RECORD), values)

    @classmethod
    def load(cls, folder: str) -> BestRecord | None:
        """Returns the record in a folder, None without; DamagedError if cut off or altered."""
        path = os.path.join(folder, BEST_RECORD)
        if not exists(path):
            return None
        try:
            values = files.read_object(path, "record of the best weights")
            stored = values.pop("crc32", None)
            record = from_json(cls, values, path)
            files.join_named(folder, record.checkpoint, path)
            if stored != record._crc32():
                raise AlbertError(f"{path} does not match its checksum.")
        except StoppedError:
            raise
        except AlbertError as error:
            raise DamagedError(
                f"The record of the best weights is damaged. {error} Put it back, or move {folder} "
                "away."
            ) from error
        return record

    def _crc32(self) -> int:
        known = {k: v for k, v in dataclasses.asdict(self).items() if v is not None}
        return zlib.crc32(json.dumps(known, sort_keys=True).encode())


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The output directory of one run; docs/reliability.md has the rules for changing it.

    run_config.json                    whose run it is; written first, never replaced
    task.json, tokenizer.json, …       what the task needs to use the weights
    checkpoints/ckpt-<step>            all that resuming needs; `checkpoint` lists them
    best/ckpt-<step>, best/best.json   the weights of the best evaluation, and its record
    metrics.jsonl, events/             the log
    eval_results.json, predictions, …  results, written again by every evaluation
    seeds.json, seed-<seed>/           the runs with several seeds, and the name of the best
    .lock                              while a process trains
    """

    path: str

    def __str__(self) -> str:
        """Returns the path."""
        return self.path

    def file(self, *names: str) -> str:
        """Returns the path of something in the folder."""
        return os.path.join(self.path, *names)

    def has(self, *names: str) -> bool:
        """Returns whether something is in the folder."""
        return exists(self.file(*names))

    # Whose run it is.

    def recorded(self) -> dict[str, Any] | None:
        """Returns run_config.json, which has the parts IDENTITY; None if there is none."""
        if not self.has(RUN_CONFIG):
            return None
        path = self.file(RUN_CONFIG)
        recorded = files.read_object(path, "run configuration")
        for part in IDENTITY:
            if not isinstance(recorded.get(part), dict):
                raise AlbertError(
                    f"The run configuration {path} is damaged: it lacks {part!r}. Put it back, or "
                    "give another `output_dir`."
                )
        return recorded

    def check_no_remains(self) -> None:
        """Raises AlbertError if there is anything of a run that nobody knows."""
        if there := [name for name in _OF_A_RUN if self.has(name)]:
            raise AlbertError(
                f"{self} holds {joined(there, 80)} of a run, but no {RUN_CONFIG} that says of "
                "which; give another `output_dir`."
            )

    def claim(self, record: Mapping[str, object], save_files: Callable[[str], None]) -> None:
        """Makes this the folder of a run; AlbertError if there are other files of its names.

        `record` is for run_config.json; `save_files` writes the task's files to a folder.
        """
        temporary = removal.temporary_name(self.file("files"))
        try:
            storage.makedirs(temporary)
            save_files(temporary)
            names = names_below(temporary)
            for name in names:
                path, new = self.file(name), os.path.join(temporary, name)
                if exists(path) and files.read_bytes(path) != files.read_bytes(new):
                    raise AlbertError(
                        f"{path} is not of this run, which has another file of this name; give "
                        "another `output_dir`, or move the file away."
                    )
            files.write_json(self.file(RUN_CONFIG), record)
            for name in names:
                storage.makedirs(os.path.dirname(self.file(name)))
                storage.rename(os.path.join(temporary, name), self.file(name))
        finally:
            removal.remove_temporary(temporary)

    # What it holds: models and seeds.

    def check_model(self) -> None:
        """Raises AlbertError unless the folder holds a fine-tuned model, ours or another's."""
        if not find_task(self.path):
            lack = f"holds no fine-tuned model (it has no {TASK_FILE})"
            raise AlbertError(
                f"{self} {lack if exists(self.path) else 'does not exist'}; give the output "
                "directory of a training run, or train with `do_train`."
            )

    def task(self, name: str) -> dict[str, object]:
        """Reads task.json; AlbertError if there is no model fine-tuned for the task `name`.

        For a Hugging Face folder see `huggingface.config.read_task`.
        """
        self.check_model()
        values = find_task(self.path)
        task = values.pop("task", None)
        if task != name:
            path = self.file(TASK_FILE if self.has(TASK_FILE) else CONFIG)
            raise AlbertError(
                f"{path} describes a model for the task {short_repr(task)}, not {name!r}."
            )
        return values

    def best_seed(self) -> RunFolder:
        """Returns the folder of the best of several seeds; this one if it has one run."""
        if not self.has(SEEDS_FILE):
            return self
        path = self.file(SEEDS_FILE)
        best = files.read_object(path, "record of the seeds").get("best")
        return RunFolder(files.join_named(self.path, best, path))

    def check_same_seeds(self, seeds: Collection[str]) -> None:
        """Raises AlbertError if the folder holds other runs than those to be trained there.

        `seeds` are the names of the runs with several seeds; empty for a run with one seed.
        """
        if self.has(SEEDS_FILE):
            record = files.read_object(self.file(SEEDS_FILE), "record of the seeds")
            if not seeds or {*(record.get("values") or ())} - {*seeds}:
                raise AlbertError(
                    f"{self} holds runs with several seeds ({SEEDS_FILE}); give another output "
                    "directory, or the same `num_seeds`."
                )
        elif seeds and any(map(self.has, (RUN_CONFIG, TASK_FILE, CHECKPOINTS, BEST))):
            raise AlbertError(
                f"{self} holds a run with one seed; give another output directory for "
                f"`num_seeds`={len(seeds)}."
            )

    # Checkpoints and best weights.

    def checkpoints(self) -> dict[int, str]:
        """Returns the prefixes of the checkpoints by ascending step; some may be damaged."""
        return checkpoints_in(self.file(CHECKPOINTS))

    def has_saved(self) -> bool:
        """Returns whether there are checkpoints, or were: then TensorFlow's list names them."""
        return self.has(CHECKPOINTS, CHECKPOINT_LIST) or bool(self.checkpoints())

    def best(self) -> BestRecord | None:
        """Returns the record of the best weights; see `BestRecord.load`."""
        return BestRecord.load(self.file(BEST))


def find_checkpoint(path: str) -> str:
    """Returns the name of the checkpoint to read, which may be damaged: it is not opened.

    Args:
      path: an output directory, which means its best weights or else its newest checkpoint; a
        folder of checkpoints; the folder of a release with a single one; a checkpoint's name.

    Raises:
      DamagedError: the record of the best weights is damaged.
      AlbertError: there is no checkpoint, or there are several of unknown order.
    """
    if exists(path + ".index"):
        return path
    for folder in (os.path.join(path, BEST), path):
        if record := BestRecord.load(folder):
            return os.path.join(folder, record.checkpoint)
    for folder in (os.path.join(path, CHECKPOINTS), path):
        if steps := checkpoints_in(folder):
            return steps[max(steps)]
    names = [name.removesuffix(".index") for name in listdir(path) if name.endswith(".index")]
    if len(names) > 1:
        raise AlbertError(
            f"{path} holds several checkpoints; name one of them: {', '.join(names)}."
        )
    if not names:
        raise no_model(path)
    return os.path.join(path, names[0])


def has_checkpoint(path: str) -> bool:
    """Returns whether `find_checkpoint` finds a checkpoint, damaged or not."""
    try:
        find_checkpoint(path)
    except StoppedError:
        raise  # Nobody knows.
    except AlbertError as error:
        return isinstance(error, DamagedError)
    return True


def checkpoints_in(folder: str) -> dict[int, str]:
    """Returns the prefixes of a run's checkpoints in a folder by ascending step.

    A checkpoint has an index, which appears last; its data may be damaged all the same.
    """
    found = {int(m["step"]): m["name"] for m in _files(folder, _OF_A_STEP) if m["file"] == "index"}
    return {step: os.path.join(folder, found[step]) for step in sorted(found)}


def files_before(folder: str, step: int) -> list[str]:
    """Returns the names of the files of a run's checkpoints older than `step` in a folder.

    Of each the index is first. An index or its data may be alone.
    """
    return [match[0] for match in _files(folder, _OF_A_STEP) if int(match["step"]) < step]


def files_of(prefix: str) -> list[str]:
    """Returns the paths of a checkpoint's files, the index first."""
    folder, name = os.path.split(prefix)
    names = _files(folder or os.curdir, re.escape(name))
    return [os.path.join(folder, match[0]) for match in names]


def _files(folder: str, name: str) -> list[re.Match[str]]:
    """Matches the files in a folder whose checkpoints have names that match a pattern."""
    pattern = re.compile(rf"(?P<name>{name})\.(?P<file>index|data-\d{{5}}-of-\d{{5}})")
    names = reversed(listdir(folder))  # "index" comes before "data".
    return [match for other in names if (match := pattern.fullmatch(other))]


def find_beside(checkpoint: str, name: str) -> str | None:
    """Returns the path of a file in the folder of a checkpoint, or in the run's above it, if any.

    `checkpoint` is an output directory, a folder of checkpoints in it, or a checkpoint's name. Only
    the folders that a run makes for its checkpoints belong to what is above them.
    """
    folder = os.path.dirname(checkpoint) if exists(f"{checkpoint}.index") else checkpoint
    whole = os.path.abspath(folder) if storage.is_local(folder) else folder
    is_of_run = os.path.basename(whole) in (BEST, CHECKPOINTS)
    folders = [folder, os.path.dirname(whole)] if is_of_run else [folder]
    return next(filter(exists, (os.path.join(path, name) for path in folders)), None)


def find_task(path: str) -> dict[str, Any]:
    """Returns the content of task.json of the weights at a path; {} if they are of no task.

    `path` is that of `find_beside`, or a Hugging Face folder, see `huggingface.config.read_task`.
    """
    if found := find_beside(path, TASK_FILE):
        return files.read_object(found, "task description")
    is_theirs = exists(os.path.join(path, CONFIG)) and not find_beside(path, CONFIG_FILE)
    return read_task(path) if is_theirs else {}


def model_folder(output_dir: str) -> str:
    """Returns the folder of the model in an output directory: itself, or that of its best seed."""
    return RunFolder(output_dir).best_seed().path
