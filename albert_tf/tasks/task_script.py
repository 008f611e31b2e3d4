# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_task_script: a script that trains, evaluates, predicts and exports any task.

examples/run_token_classifier.py uses it. The scripts of the built-in tasks have further flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.export.model_folder import ModelFolder
from albert_tf.io import folders
from albert_tf.io.text_files import check_text_file
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.export import export_task
from albert_tf.tasks.flags import (
    FILES,
    check_files,
    check_finetuning_modes,
    check_requested,
    check_settings,
    define_finetuning_flags,
    fine_tune_config,
    is_requested,
    open_model_files,
)
from albert_tf.tasks.runner import Examples, run
from albert_tf.tasks.training_flags import lock_for_training
from albert_tf.weights.run_folder import model_folder

FLAGS = flags.FLAGS
_RECIPE = "custom"


def run_task_script(
    task_class: type[FineTuningTask],
    read: Callable[[str], Sequence[Any]],
    make_spec: Callable[[Sequence[Any], int], Any],
) -> None:
    """Runs the script, with the recipe for texts of one's own, and exits.

    Args:
      task_class: the task.
      read: reads the examples of a file.
      make_spec: makes the task's specification from the training examples and `max_seq_length`.
    """

    def main() -> None:
        config = check_settings(_RECIPE)
        with lock_for_training():
            train, held_out, unseen = (
                read(FLAGS[name].value) if is_requested(action) else []
                for action, name in FILES.items()
            )
            if FLAGS.do_train:
                model, tokenizer = open_model_files()
                config = config or fine_tune_config(_RECIPE, model)
                spec, dropout = make_spec(train, config.max_seq_length), config.classifier_dropout
                task = task_class(config.model_config(model), tokenizer, spec, dropout)
            else:
                task = task_class.load(model_folder(FLAGS.output_dir))
            run(task, Examples.of(train, held_out, unseen), config)
        if FLAGS.export_path:
            source = ModelFolder(FLAGS.output_dir)
            export_task(task_class, source, FLAGS.export_path, FLAGS.overwrite)

    script.run(main, _define_flags, check_flags=_check_flags)


def _define_flags() -> None:
    define_finetuning_flags()
    for action, name in FILES.items():
        define_path(name, None, f"Examples for --{action}.", check=check_text_file)
    define_path(
        "export_path", None, "A new folder for a SavedModel of the model in --output_dir.",
        check=lambda path: folders.check_new_folder(path, FLAGS.overwrite),
    )  # fmt: skip
    script.define_overwrite_flag()


def _check_flags() -> None:
    check_requested("export_path")
    if FLAGS.export_path and FLAGS.strategy == "multi_worker":
        raise AlbertError(
            "--export_path is not for --strategy=multi_worker, as every machine would write it; "
            "export afterwards, on one machine."
        )
    check_files()
    check_finetuning_modes()
