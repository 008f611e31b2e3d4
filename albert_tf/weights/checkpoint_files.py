# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the checkpoint to read in the folders of runs and releases."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zlib
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError
from albert_tf.io import files
from albert_tf.io.json_values import from_json, shown
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
      AlbertError: there is no checkpoint, or there are several of unknown order.
    """
    return next(candidates(path))


def has_checkpoint(path: str) -> bool:
    """Returns whether `find_checkpoint` finds a checkpoint, damaged or not."""
    try:
        find_checkpoint(path)
    except DamagedError:
        return True
    except AlbertError:
        return False
    return True


def candidates(path: str) -> Iterator[str]:
    """Yields the checkpoint of `find_checkpoint`, then those to read instead if it is damaged."""
    if tf.io.gfile.exists(path + ".index"):
        yield path
        return
    yielded, faults = False, []
    for folder in (os.path.join(path, BEST), path):
        try:
            record = read_best(folder)
        except DamagedError as error:
            faults.append(str(error))
            continue
        if record:
            yielded = True
            yield os.path.join(folder, record.checkpoint)
    for folder in (os.path.join(path, CHECKPOINTS), path):
        prefixes, fault = newest_first(folder)
        prefixes = [prefix for prefix in prefixes if tf.io.gfile.exists(f"{prefix}.index")]
        if prefixes:
            for line in filter(None, [*faults, fault]):
                print(f"{line} Taking {prefixes[0]}.")
            yielded, faults = True, []
        yield from prefixes
    if faults:
        raise DamagedError(faults[0])
    if yielded:
        return
    names = sorted(tf.io.gfile.glob(os.path.join(path, "*.index")))
    if len(names) == 1:
        yield names[0][: -len(".index")]
    elif names:
        listed = ", ".join(os.path.basename(name)[: -len(".index")] for name in names)
        raise AlbertError(f"{path} holds several checkpoints; name one of them: {listed}.")
    else:
        raise no_model(path)


@dataclasses.dataclass(frozen=True)
class BestRecord:
    """The best evaluation of a run.

    Attributes:
      step: of the training.
      metric, value: what was compared.
      checkpoint: the name of the weights beside the record.
      data: identifies what was evaluated on; empty if that is unknown, as in older versions.
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
        if stored not in (None, record._crc32()):
            raise AlbertError(f"{where} does not match its checksum.")
        files.join_named(os.path.dirname(where), record.checkpoint, where)
        return record

    def _crc32(self) -> int:
        return zlib.crc32(json.dumps(self._values(), sort_keys=True).encode())


def has_best(output_dir: str) -> bool:
    """Returns whether an output directory has a record of best weights, damaged or not."""
    return tf.io.gfile.exists(os.path.join(output_dir, BEST, BEST_RECORD))


def read_best(folder: str) -> BestRecord | None:
    """Returns the record of a folder's best weights, if any; raises DamagedError if damaged."""
    path = os.path.join(folder, BEST_RECORD)
    if not tf.io.gfile.exists(path):
        return None
    try:
        return BestRecord.from_values(files.read_object(path, "record of the best weights"), path)
    except AlbertError as error:
        raise DamagedError(f"The record of the best weights is damaged. {error}") from error


def newest_first(folder: str) -> tuple[list[str], str]:
    """Returns the checkpoints in a folder, and a sentence on a faulty list of them.

    TensorFlow's file `checkpoint` is the list. A checkpoint that it does not name was taken back,
    or never finished. If the list is missing or damaged, or its newest checkpoint is missing, the
    files `ckpt-<step>` count instead. Names in the list may be absolute, from where the folder was
    when it was written; only their last part is used.

    Returns:
      Checkpoint names, the newest first, and "" or the sentence.
    """
    names, fault = _listed(folder)
    # Older ones may be gone: when checkpoints are deleted, the list is written last.
    names = [*names[:1], *(name for name in names[1:] if _has_index(folder, name))]
    if names and _has_index(folder, names[0]):
        return [os.path.join(folder, name) for name in names], ""
    if names:
        fault = f"names {shown(names[0])}, which does not exist"
    complete = _complete(folder)
    if complete:
        path = os.path.join(folder, CHECKPOINT_LIST)
        fault = f"The list of checkpoints {path} {fault}; there are {', '.join(complete)}."
        return [os.path.join(folder, name) for name in complete], fault
    if names and step_of(names[0]) is None:
        return [], ""  # Another program wrote the list.
    return [os.path.join(folder, name) for name in names], ""


def _listed(folder: str) -> tuple[list[str], str]:
    """Returns the names in the list of checkpoints, the newest first, and its fault or ""."""
    if not tf.io.gfile.exists(os.path.join(folder, CHECKPOINT_LIST)):
        return [], "is missing"
    try:
        # Not tf.train.latest_checkpoint, which logs what it does not find.
        state = tf.train.get_checkpoint_state(folder)
    except ValueError:  # Not UTF-8, or it names none.
        state = None
    if state is None:
        return [], "is damaged"
    older, newest = list(state.all_model_checkpoint_paths), state.model_checkpoint_path
    if newest in older:
        older = older[: older.index(newest)]
    names = [os.path.basename(name) for name in (newest, *reversed(older))]
    if not all(name and name.isprintable() for name in names):
        return [], "is damaged"
    return names, ""


def _has_index(folder: str, name: str) -> bool:
    return tf.io.gfile.exists(os.path.join(folder, f"{name}.index"))


def _complete(folder: str) -> list[str]:
    """Returns the names of our finished checkpoints in a folder, the newest first."""
    names = set(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else set()
    names = {name.rstrip("/") for name in names}
    prefixes = {name[: -len(".index")] for name in names if name.endswith(".index")}
    # TensorFlow writes to a folder "<name>_temp", which it deletes once the index is written.
    ours = [name for name in prefixes if step_of(name) is not None and f"{name}_temp" not in names]
    return sorted(ours, key=step_of, reverse=True)


def step_of(path: str) -> int | None:
    """Returns the step of one of our checkpoints or of its files, None for other names."""
    match = re.match(r"ckpt-(\d{1,18})(?!\d)", os.path.basename(path))
    return int(match.group(1)) if match else None
