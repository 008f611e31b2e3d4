# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""run_task_script: a script that trains, evaluates, predicts and exports any task.

examples/run_token_classifier.py uses it. The scripts of the built-in tasks have further flags.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_overwrite_flag, define_path
from albert_tf.errors import AlbertError
from albert_tf.tasks import flags as shared
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.export import export_model
from albert_tf.tasks.runner import run

FLAGS = flags.FLAGS


def run_task_script(
    task_class: type[FineTuningTask],
    read: Callable[[str], Sequence[Any]],
    make_spec: Callable[[Sequence[Any]], Mapping[str, Any]],
) -> None:
    """Runs the script, with the recipe for texts of one's own, and exits.

    Args:
      task_class: the task.
      read: reads the examples of a file.
      make_spec: returns the task's own settings for the training examples, without
        `max_seq_length`.
    """

    def main() -> None:
        shared.check_requested("export_path")
        if FLAGS.export_path and FLAGS.strategy == "multi_worker":
            raise AlbertError(
                "--export_path is not for --strategy=multi_worker, as every machine would write "
                "it; export afterwards, on one machine."
            )
        examples = shared.read_examples(lambda action: read(shared.file_of(action)))
        spec = make_spec(examples.train) if FLAGS.do_train else {}
        task, config = shared.open_task(task_class, "custom", spec)
        run(task, examples, config)
        if FLAGS.export_path:
            export_model(FLAGS.output_dir, FLAGS.export_path, FLAGS.overwrite)

    script.run(main, _define_flags)


def _define_flags() -> None:
    shared.define_finetuning_flags("Examples")
    define_path("export_path", None, "A new folder for a SavedModel of the model in --output_dir.")
    define_overwrite_flag()
