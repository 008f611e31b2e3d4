# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds and checks the folders of fine-tuned models; for local ones, without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.weights.checkpoint_files import BEST, CHECKPOINTS

#: Identifies a run by its settings.
RUN_CONFIG = "run_config.json"
#: Describes the task of a fine-tuned model.
TASK_FILE = "task.json"
#: Lists the runs with several seeds, and names the best one.
SEEDS_FILE = "seeds.json"
_OF_ONE_RUN = (RUN_CONFIG, TASK_FILE, CHECKPOINTS, BEST)
#: The settings for a vocabulary, in errors.
VOCABULARY_SETTINGS = "`spm_model_file` or `vocab_file`"


def model_folder(output_dir: str) -> str:
    """Returns the folder of the model in an output directory: itself, or that of its best seed."""
    output_dir = files.path_of(output_dir, "model's output directory")
    path = os.path.join(output_dir, SEEDS_FILE)
    if not files.exists(path):
        return output_dir
    record = files.read_object(path, "record of the seeds")
    return files.join_named(output_dir, record.get("best"), path)


def find_beside(checkpoint: str, name: str) -> str | None:
    """Returns the path of a file beside a checkpoint or up to two folders above, if there is one.

    Args:
      checkpoint: an output directory, a folder of checkpoints in it, or a checkpoint's name.
      name: of the file.
    """
    folder = checkpoint
    for _ in range(3):
        path = os.path.join(folder, name)
        if files.exists(path):
            return path
        if files.is_local(folder):  # Above "runs" is ".", and above that "..".
            folder = os.path.normpath(os.path.join(folder, os.pardir))
        else:
            folder = os.path.dirname(folder)
            if "://" not in folder:  # Above a bucket there is nothing.
                return None
    return None


def check_seeds(num_seeds: int, evaluated: bool) -> None:
    """Raises AlbertError for several runs without an evaluation."""
    if num_seeds > 1 and not evaluated:
        raise AlbertError("`num_seeds` needs `do_eval`: the best run is chosen by evaluation.")


def check_same_seeds(output_dir: str, seeds: Sequence[str]) -> None:
    """Checks that a folder holds no other runs than those that are to be trained there.

    Args:
      output_dir: the folder.
      seeds: names of the runs with several seeds; empty for a run with one seed.

    Raises:
      AlbertError: the folder holds a run with one seed and not several, vice versa, or runs with
        other seeds.
    """
    path = os.path.join(output_dir, SEEDS_FILE)
    if files.exists(path):
        values = files.read_object(path, "record of the seeds").get("values")
        others = {*(values if isinstance(values, dict) else ())} - {*seeds}
        if others or not seeds:
            raise AlbertError(
                f"{output_dir} holds runs with several seeds ({SEEDS_FILE}), such as "
                f"{shown(min(others, default=BEST))}; give another output directory, or the same "
                "`num_seeds`."
            )
    elif seeds and any(files.exists(os.path.join(output_dir, name)) for name in _OF_ONE_RUN):
        raise AlbertError(
            f"{output_dir} holds a run with one seed; give another output directory for "
            f"`num_seeds`={len(seeds)}."
        )


def check_trained(folder: str) -> None:
    """Raises AlbertError unless a folder, from `model_folder`, holds a fine-tuned model."""
    if not files.exists(os.path.join(folder, TASK_FILE)):
        raise AlbertError(
            f"{folder} holds no fine-tuned model (it has no {TASK_FILE}); give the output "
            "directory of a training run, or train with `do_train`."
        )


def read_task_file(folder: str, name: str) -> dict[str, object]:
    """Reads task.json from the output directory of a run.

    Args:
      folder: the output directory.
      name: the expected task, `Task.name`.

    Raises:
      AlbertError: the folder holds no model fine-tuned for the task.
    """
    check_trained(folder)
    path = os.path.join(folder, TASK_FILE)
    values = files.read_object(path, "task description")
    task = values.pop("task", None)
    if task != name:
        raise AlbertError(f"{path} describes a model for the task {shown(task)}, not {name!r}.")
    return values
