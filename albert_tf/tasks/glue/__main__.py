# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Inspects GLUE's data and makes submissions to its server.

  python -m albert_tf.tasks.glue inspect --task_name=rte --data_dir=glue
  python -m albert_tf.tasks.glue make_submission --run_dirs=runs/glue --output=submission.zip

inspect prints rows, labels and lengths of each split as one JSON object. make_submission packs the
predictions of run_classifier.py for the test sets; if several runs have predicted the same set,
their probabilities are averaged.
"""

from __future__ import annotations

import json

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import check_run_dirs, define_path, define_paths
from albert_tf.io import files
from albert_tf.pretrained.locate import VOCABULARY, check_vocabulary
from albert_tf.tasks.classification.glue_tasks import find_task
from albert_tf.tasks.glue import submission
from albert_tf.tasks.glue.data import DATA_SOURCES, describe
from albert_tf.tokenization.tokenizer import Tokenizer

FLAGS = flags.FLAGS


def define_inspect_flags() -> None:
    """Defines the flags of `inspect`."""
    flags.DEFINE_string("task_name", None, "A GLUE task: cola, …, wnli or ax.", required=True)
    define_path(
        "data_dir", None, "Folder with GLUE's folders CoLA, SST-2, ….",
        check=files.check_folder, when=lambda: FLAGS.data_source == "files",
    )  # fmt: skip
    flags.DEFINE_enum(
        "data_source",
        "files",
        DATA_SOURCES,
        "Where the data comes from. files: --data_dir. tfds: TensorFlow Datasets.",
    )
    define_path(
        "spm_model_file", None, f"{VOCABULARY}, to "
        "count lengths in tokens, including special ones. Default: in words.",
        check=check_vocabulary,
    )  # fmt: skip


def define_submission_flags() -> None:
    """Defines the flags of `make_submission`."""
    define_paths(
        "run_dirs", None, "Output directories of run_classifier.py, folders of several, or globs, "
        "separated by commas.",
        required=True, check=check_run_dirs,
    )  # fmt: skip
    define_path(
        "output", "submission.zip", "The zip file to write.",
        check=lambda path: files.check_output(path, overwrite=FLAGS.overwrite),
    )  # fmt: skip
    flags.DEFINE_bool(
        "allow_missing", False, "Answer test sets without predictions with the most frequent label "
        "of the training set; the server accepts only complete submissions."
    )  # fmt: skip
    script.define_overwrite_flag()


def check_task() -> None:
    """Raises AlbertError if there is no such task."""
    find_task(FLAGS.task_name)


def inspect() -> None:
    """Prints rows, labels and lengths of a task's files."""
    task = find_task(FLAGS.task_name)
    tokenizer = Tokenizer.from_file(FLAGS.spm_model_file) if FLAGS.spm_model_file else None
    description = describe(task, FLAGS.data_dir, FLAGS.data_source, tokenizer)
    print(json.dumps(description, indent=2))


def make_submission() -> None:
    """Writes the zip file and prints its content."""
    run_dirs = files.expand_globs(FLAGS.run_dirs, "run directory")
    print(submission.make_submission(run_dirs, FLAGS.output, FLAGS.allow_missing, FLAGS.overwrite))
    print(f"{FLAGS.output} is ready for gluebenchmark.com.")


COMMANDS = {
    "inspect": (inspect, define_inspect_flags, (), check_task),
    "make_submission": (make_submission, define_submission_flags),
}


def main() -> None:
    """Entry point."""
    script.run_command(COMMANDS, __doc__)


if __name__ == "__main__":
    main()
