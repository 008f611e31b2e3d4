# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT for classification of, or regression on, texts and pairs:
GLUE's or your own.

  albert classify --task_name=rte --data_dir=glue --do_train \\
    --do_eval --do_predict --init_checkpoint=runs/base --output_dir=runs/rte
  albert classify --do_train --do_eval --train_file=train.tsv \\
    --eval_file=dev.tsv --text_column=sentence --label_column=label \\
    --init_checkpoint=runs/base --output_dir=runs/mine
  albert classify --do_predict --predict_file=new.tsv \\
    --output_dir=runs/mine

Evaluating writes eval_results.json, predicting predictions.tsv, or for GLUE
predictions/RTE.tsv. --task_name=all runs all tasks in --data_dir, each in its
own folder, and prints GLUE's table.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path, define_settings, refuse_flags
from albert_tf.errors import AlbertError
from albert_tf.settings import Settings, field_names, setting, training_setting
from albert_tf.tasks import flags as shared
from albert_tf.tasks.classification.spec import ClassificationSpec
from albert_tf.tasks.glue.tasks import TASKS
from albert_tf.tasks.tables import TextColumns, TextExample, read_texts


@dataclasses.dataclass(frozen=True)
class Table(Settings):
    """What the columns of the files hold; all but the ids are saved with the model."""

    text_column: str = training_setting("text", "Name of the text column.")
    text_pair_column: str | None = training_setting(None, "Column of the second text.")
    label_column: str = training_setting("label", "Name of the label column.")
    label_separator: str | None = training_setting(
        None,
        'What is between several labels of a text in the label column, such as "|". A text may '
        "have any number of them. In .jsonl and .parquet files, they may also be lists.",
    )
    regression: bool = training_setting(False, "Labels are numbers, not classes.")
    id_column: str | None = setting(None, "Name of the id column. Default: numbers from 0.")


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "A .tsv, .csv or .jsonl file (also .gz, .bz2 or .xz) with named columns, of examples",
        ClassificationSpec,
    )
    flags.DEFINE_enum(
        "task_name", "custom", ["custom", *TASKS, "all"], "custom: your own labelled texts; or a "
        "GLUE task (mnli also predicts ax, the diagnostic set); all: all GLUE tasks in --data_dir.",
        case_sensitive=False
    )  # fmt: skip
    define_path("data_dir", None, "Folder with GLUE's folders CoLA, SST-2, ….")
    define_settings(Table)


@script.command(define_flags)
def main() -> None:
    """Runs the command."""
    shared.requested()
    if FLAGS.task_name == "custom":
        refuse_flags(["data_dir"], "it requires --task_name=<a GLUE task>.")
        return _run_tables()
    own = [*(f"{x}_file" for x in shared.ACTIONS), *field_names(Table)]
    refuse_flags(own, "for files of your own, leave --task_name out; GLUE's are in --data_dir.")
    for name in ("data_dir", "output_dir"):
        if not FLAGS[name].value:
            raise AlbertError(f"--{name} is needed for GLUE's tasks; see --help.")
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.glue.run import run_all, run_task

    if FLAGS.task_name == "all":
        run_all(FLAGS.data_dir, FLAGS.output_dir)
    else:
        run_task(TASKS[FLAGS.task_name], FLAGS.data_dir, FLAGS.output_dir)


def _run_tables() -> None:
    """Runs on --train_file, --eval_file and --predict_file."""
    from albert_tf.tasks.classification.labels import label_settings
    from albert_tf.tasks.classification.task import TextClassificationTask

    columns = FLAGS.text_column, FLAGS.text_pair_column, FLAGS.label_column
    given = TextColumns(*columns, label_separator=FLAGS.label_separator)

    def read(action, spec) -> list[TextExample]:
        columns = dataclasses.replace(spec.columns if spec else given, id=FLAGS.id_column)
        if action == "predict":
            columns = dataclasses.replace(columns, label=None)
        return read_texts(shared.file_of(action), columns, action)

    def learned(examples) -> dict[str, Any]:
        return {"columns": given, **label_settings(examples, FLAGS.regression)}

    use = 'classify {} "A text."' + ' "Another one."' * bool(FLAGS.text_pair_column)
    shared.fine_tune(TextClassificationTask, use, read, learned)
