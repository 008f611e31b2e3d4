# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the checkpoint to read in the folders of runs and releases."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zlib

from albert_tf.errors import AlbertError, DamagedError, StoppedError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.io.storage import exists, isdir, listdir
from albert_tf.pretrained.locate import no_model

#: Folders of an output directory, and the file that records the best weights.
CHECKPOINTS = "checkpoints"
BEST = "best"
BEST_RECORD = "best.json"
#: TensorFlow's list of the checkpoints in a folder.
CHECKPOINT_LIST = "checkpoint"


def find_checkpoint(path: str) -> str:
    """Returns the name of the checkpoint to read.

    The checkpoint is not opened, so it may be damaged.

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
        record = read_best(folder)
        if record:
            return os.path.join(folder, record.checkpoint)
    for folder in (os.path.join(path, CHECKPOINTS), path):
        steps = checkpoints_in(folder)
        if steps:
            return steps[max(steps)]
        name = _newest_listed(folder)
        if name and exists(os.path.join(folder, f"{name}.index")):
            return os.path.join(folder, name)
    names = [name[: -len(".index")] for name in listdir(path) if name.endswith(".index")]
    if len(names) == 1:
        return os.path.join(path, names[0])
    if names:
        listed = ", ".join(names)
        raise AlbertError(f"{path} holds several checkpoints; name one of them: {listed}.")
    raise no_model(path)


def has_checkpoint(path: str) -> bool:
    """Returns whether `find_checkpoint` finds a checkpoint, damaged or not."""
    try:
        find_checkpoint(path)
    except DamagedError:
        return True
    except StoppedError:
        raise  # Nobody knows.
    except AlbertError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class BestRecord:
    """The best evaluation of a run.

    Attributes:
      step: of the training.
      metric, value: what was compared.
      checkpoint: the name of the weights beside the record.
      data: identifies what was evaluated on; empty if that is unknown.
    """

    step: int
    metric: str
    value: float
    checkpoint: str
    data: str = ""

    def is_of(self, data: str) -> bool:
        """Returns whether the evaluation was on this data; True if either is unknown (empty)."""
        return not (self.data and data and self.data != data)

    def save(self, folder: str) -> None:
        """Writes the record with a checksum, because a damaged value may look valid."""
        values = {**self._values(), "crc32": self._crc32()}
        files.write_json(os.path.join(folder, BEST_RECORD), values)

    def _values(self) -> dict[str, object]:
        return {name: value for name, value in dataclasses.asdict(self).items() if value != ""}

    @classmethod
    def from_values(cls, values: dict[str, object], where: str) -> BestRecord:
        """Returns the record that `save` wrote to `where`; raises AlbertError if damaged."""
        stored = values.pop("crc32", None)
        record = from_json(cls, values, where)
        files.join_named(os.path.dirname(where), record.checkpoint, where)
        if stored != record._crc32():
            raise AlbertError(f"{where} does not match its checksum.")
        return record

    def _crc32(self) -> int:
        return zlib.crc32(json.dumps(self._values(), sort_keys=True).encode())


def has_best(output_dir: str) -> bool:
    """Returns whether an output directory has a record of best weights, damaged or not."""
    return exists(os.path.join(output_dir, BEST, BEST_RECORD))


def read_best(folder: str) -> BestRecord | None:
    """Returns the record of a folder's best weights, None if there is none.

    Raises:
      DamagedError: it is cut off, or does not match its checksum.
      StoppedError: it cannot be read for now, which says nothing about it.
    """
    path = os.path.join(folder, BEST_RECORD)
    if not exists(path):
        return None
    try:
        return BestRecord.from_values(files.read_object(path, "record of the best weights"), path)
    except StoppedError:
        raise
    except AlbertError as error:
        raise DamagedError(
            f"The record of the best weights is damaged. {error} Put it back, or move {folder} "
            "away."
        ) from error


def checkpoints_in(folder: str) -> dict[int, str]:
    """Returns the prefixes of a run's checkpoints in a folder by step, in ascending order.

    A checkpoint has an index, which appears last; its data may be damaged all the same.
    """
    found = {step_of(name): name for name in listdir(folder) if name.endswith(".index")}
    found.pop(None, None)
    return {step: os.path.join(folder, found[step][: -len(".index")]) for step in sorted(found)}


def files_of(prefix: str) -> list[str]:
    """Returns the names of a checkpoint's files in its folder, the index first."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(rf"{re.escape(name)}\.(index|data-\d{{5}}-of-\d{{5}})")
    names = [other for other in listdir(folder or os.curdir) if pattern.fullmatch(other)]
    return sorted(names, key=lambda other: (not other.endswith(".index"), other))


def step_of(name: str) -> int | None:
    """Returns the step of one of our checkpoints' files, None for other names."""
    match = re.fullmatch(r"ckpt-(\d{1,18})\.(index|data-\d{5}-of-\d{5})", name)
    return int(match.group(1)) if match else None


def _newest_listed(folder: str) -> str:
    """Returns the newest name in TensorFlow's list of the checkpoints in a folder; "" without it.

    Names in the list may be absolute, from where the folder was when it was written; only their
    last part is used.
    """
    path = os.path.join(folder, CHECKPOINT_LIST)
    if not exists(path) or isdir(path):
        return ""
    line = re.search(rb'^model_checkpoint_path: "([^"\n]+)"', files.read_bytes(path), re.M)
    return os.path.basename(line.group(1).decode("utf-8", "replace")) if line else ""
