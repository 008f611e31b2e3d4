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

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path, define_settings, refuse_flags
from albert_tf.settings import Settings, setting
from albert_tf.tasks import flags as shared
from albert_tf.tasks.classification.spec import ClassificationSpec
from albert_tf.tasks.glue.tasks import TASKS
from albert_tf.tasks.texts import TextColumns, TextExample, read_texts

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Table(Settings):
    """What the columns of the files hold; all but the ids are saved with the model."""

    text_column: str = setting("text", "Name of the text column.", needs="do_train")
    text_pair_column: str | None = setting(None, "Column of the second text.", needs="do_train")
    label_column: str = setting("label", "Name of the label column.", needs="do_train")
    regression: bool = setting(False, "Labels are numbers, not classes.", needs="do_train")
    id_column: str | None = setting(None, "Name of the id column. Default: numbers from 0.")


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags(
        "A .tsv, .csv or .jsonl file (also .gz, .bz2 or .xz) with named columns, of examples"
    )
    flags.DEFINE_enum(
        "task_name", "custom", ["custom", *TASKS, "all"], "custom: your own labelled texts; or a "
        "GLUE task (mnli also predicts ax, the diagnostic set); all: all GLUE tasks in --data_dir.",
        case_sensitive=False
    )  # fmt: skip
    define_path("data_dir", None, "Folder with GLUE's folders CoLA, SST-2, ….")
    define_settings(Table)
    define_settings(ClassificationSpec)


def _main() -> None:
    shared.check_requested()
    if FLAGS.task_name == "custom":
        refuse_flags(["data_dir"], "it requires --task_name=<a GLUE task>.")
        return _run_tables()
    own = [*(f"{x}_file" for x in shared.ACTIONS), *(x.name for x in dataclasses.fields(Table))]
    refuse_flags(own, "for files of your own, leave --task_name out; GLUE's are in --data_dir.")
    # TensorFlow takes seconds to import; --help should not wait for it.
    from albert_tf.tasks.glue.run import run_glue

    run_glue(FLAGS.task_name, FLAGS.data_dir, FLAGS.output_dir)


def _run_tables() -> None:
    """Runs on --train_file, --eval_file and --predict_file."""
    from albert_tf.tasks.classification.task import (
        TextClassificationTask,
        label_settings,
        with_labels,
    )
    from albert_tf.tasks.prediction_tables import PREDICTIONS_FILE
    from albert_tf.tasks.runner import run

    def read(action: str) -> list[TextExample]:
        label = None if action == "predict" else columns.label
        own = dataclasses.replace(columns, label=label, id=FLAGS.id_column)
        examples = read_texts(shared.file_of(action), own)
        return with_labels(examples) if action == "train" else examples

    shared.check_outputs([PREDICTIONS_FILE])
    spec = {}
    if FLAGS.do_train:
        columns = TextColumns(FLAGS.text_column, FLAGS.text_pair_column, FLAGS.label_column)
        texts = shared.read_examples(read)
        spec = {"columns": columns, **label_settings(texts.train, FLAGS.regression)}
    classifier, config = shared.open_task(TextClassificationTask, "custom", spec)
    if not FLAGS.do_train:
        columns = classifier.spec.columns
        texts = shared.read_examples(read)
    run(classifier, texts, config)
    shared.suggest('classify {} "A text."' + ' "Another one."' * bool(columns.text_pair))


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags)
