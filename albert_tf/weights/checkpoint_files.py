# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the checkpoints of a run or of a release lie, and which of them is meant."""

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
from albert_tf.pretrained import no_model

#: Folders of an output directory, and the file that tells which weights are the best.
CHECKPOINTS = "checkpoints"
BEST = "best"
BEST_RECORD = "best.json"
#: TensorFlow's list of the checkpoints in a folder.
CHECKPOINT_LIST = "checkpoint"


def find_checkpoint(path: str) -> str:
    """Resolves a checkpoint prefix, a folder of checkpoints or an output directory.

    An output directory gives its best weights if there are any, else its newest checkpoint; the
    folder of a release its only one. Nothing of the checkpoint is read: it may be damaged.

    Raises:
      AlbertError: there is no checkpoint, or no telling which of several.
    """
    return next(candidates(path))


def has_checkpoint(path: str) -> bool:
    """Whether there is what `find_checkpoint` looks for, damaged or not."""
    try:
        find_checkpoint(path)
    except DamagedError:
        return True
    except AlbertError:
        return False
    return True


def candidates(path: str) -> Iterator[str]:
    """What `find_checkpoint` gives, and after it what may do in its place if it is damaged.

    Raises:
      AlbertError: as find_checkpoint.
    """
    if tf.io.gfile.exists(path + ".index"):
        yield path
        return
    found, faults = False, []
    for folder in (os.path.join(path, BEST), path):
        try:
            record = read_best(folder)
        except DamagedError as error:
            faults.append(str(error))
            continue
        if record:
            found = True
            yield os.path.join(folder, record.checkpoint)
    for folder in (os.path.join(path, CHECKPOINTS), path):
        prefixes, fault = newest_first(folder)
        prefixes = [prefix for prefix in prefixes if tf.io.gfile.exists(f"{prefix}.index")]
        if prefixes:
            for line in filter(None, [*faults, fault]):
                print(f"{line} Taking {prefixes[0]}.")
            found, faults = True, []
        yield from prefixes
    if faults:
        raise DamagedError(faults[0])
    if found:
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
    """The best evaluation of a run, and the name of the checkpoint beside the record."""

    step: int
    metric: str
    value: float
    checkpoint: str

    def save(self, folder: str) -> None:
        """Writes the record, with a checksum, as a wrong value would pass for a right one."""
        values = {**dataclasses.asdict(self), "crc32": self._crc32()}
        files.write_json(os.path.join(folder, BEST_RECORD), values)

    @classmethod
    def from_values(cls, values: dict[str, object], where: str) -> BestRecord:
        """From what `save` wrote to the file `where`; raises AlbertError if it is damaged."""
        stored = values.pop("crc32", None)
        record = from_json(cls, values, where)
        if stored not in (None, record._crc32()):
            raise AlbertError(f"{where} does not have its checksum.")
        files.join_named(os.path.dirname(where), record.checkpoint, where)
        return record

    def _crc32(self) -> int:
        return zlib.crc32(json.dumps(dataclasses.asdict(self), sort_keys=True).encode())


def read_best(folder: str) -> BestRecord | None:
    """The record of the best weights in a folder; None if there is none.

    Raises:
      DamagedError: it is damaged.
    """
    path = os.path.join(folder, BEST_RECORD)
    if not tf.io.gfile.exists(path):
        return None
    try:
        return BestRecord.from_values(files.read_object(path, "record of the best weights"), path)
    except AlbertError as error:
        raise DamagedError(f"The record of the best weights is damaged. {error}") from error


def newest_first(folder: str) -> tuple[list[str], str]:
    """The checkpoints in a folder, and what is wrong with the list of them.

    The list is TensorFlow's file `checkpoint`; of absolute names in it, which are of where the
    folder was when it was written, the last part counts. It rules: a checkpoint that it does not
    name was taken back, or never finished. If it is not there, damaged, or its newest is not there,
    the files `ckpt-<step>` tell.

    Returns:
      prefixes, the newest first, and "" or a sentence on the list.
    """
    path = os.path.join(folder, CHECKPOINT_LIST)
    names, fault = _listed(folder)
    # Older ones may be gone: when checkpoints are deleted, the list is written last.
    names = [*names[:1], *(name for name in names[1:] if _has_index(folder, name))]
    if names and _has_index(folder, names[0]):
        return [os.path.join(folder, name) for name in names], ""
    if names:
        fault = f"names {shown(names[0])}, which is not there"
    found = _complete(folder)
    if not found and names and step_of(names[0]) is None:
        names = []  # Of another program, whose names do not matter to us.
    there = f"The list of checkpoints {path} {fault}; there are {', '.join(found)}."
    return [os.path.join(folder, name) for name in found or names], there if found else ""


def _listed(folder: str) -> tuple[list[str], str]:
    """Names in the list of checkpoints, the newest first, and what is wrong with it."""
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
    """Names of our checkpoints in a folder, by their files, the newest first."""
    names = set(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else set()
    names = {name.rstrip("/") for name in names}
    prefixes = {name[: -len(".index")] for name in names if name.endswith(".index")}
    # TensorFlow writes into a folder "<name>_temp", which it deletes when the index is written.
    ours = [name for name in prefixes if step_of(name) is not None and f"{name}_temp" not in names]
    return sorted(ours, key=step_of, reverse=True)


def step_of(path: str) -> int | None:
    """The step of one of our checkpoints, or of one of its files; None for other names."""
    match = re.match(r"ckpt-(\d{1,18})(?!\d)", os.path.basename(path))
    return int(match.group(1)) if match else None
