# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The folders of fine-tuned models. Free of TensorFlow, if they are local."""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown

#: What the model was fine-tuned for, and which of several seeds gave the best one.
TASK_FILE = "task.json"
SEEDS_FILE = "seeds.json"
#: The flags for a vocabulary, in errors.
VOCABULARY_FLAGS = "--spm_model_file or --vocab_file"


def model_folder(output_dir: str) -> str:
    """The folder of the model in an output directory: itself, or that of its best seed."""
    output_dir = files.path_of(output_dir, "model's output directory")
    path = os.path.join(output_dir, SEEDS_FILE)
    if not files.exists(path):
        return output_dir
    record = files.read_object(path, "record of the seeds")
    return files.join_named(output_dir, record.get("best"), path)


def check_seeds(num_seeds: int, evaluated: bool) -> None:
    """Raises AlbertError if several runs have nothing to choose the best one by."""
    if num_seeds > 1 and not evaluated:
        raise AlbertError("--num_seeds needs --do_eval: the best run is chosen by evaluation.")


def check_trained(folder: str) -> None:
    """Raises AlbertError unless a model was fine-tuned in a folder, as `model_folder` gives it."""
    if not files.exists(os.path.join(folder, TASK_FILE)):
        raise AlbertError(
            f"{folder} holds no fine-tuned model (it has no {TASK_FILE}); give the output "
            "directory of a training run, or train with --do_train."
        )


def read_task_file(folder: str, name: str) -> dict[str, object]:
    """Reads task.json from the output directory of a run.

    Args:
      folder: the output directory.
      name: of the task it should be a model of, `Task.name`.

    Raises:
      AlbertError: the folder is not that of a model fine-tuned for the task.
    """
    check_trained(folder)
    path = os.path.join(folder, TASK_FILE)
    value = files.read_object(path, "task description")
    found = value.pop("task", None)
    if found != name:
        raise AlbertError(f"{path} describes a model for the task {shown(found)}, not {name!r}.")
    return value
