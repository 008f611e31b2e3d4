# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT for classification of, or regression on, texts and pairs: GLUE's or your own.

  python run_classifier.py --task_name=rte --data_dir=glue --do_train --do_eval --do_predict \\
    --init_checkpoint=runs/base --output_dir=runs/rte
  python run_classifier.py --do_train --do_eval --train_file=train.tsv --eval_file=dev.tsv \\
    --text_column=sentence --label_column=label --init_checkpoint=runs/base --output_dir=runs/mine
  python run_classifier.py --do_predict --predict_file=new.tsv --output_dir=runs/mine

Evaluating writes eval_results.json to the output directory. Predicting writes predictions.tsv, or
for GLUE predictions/RTE.tsv, of which `albert_tf.tasks.glue.submission` makes a submission.
--task_name=all runs all tasks found in --data_dir, each in its own folder, and prints GLUE's table;
the same command resumes it. Labels, columns, vocabulary and configuration are saved with the model,
so predicting needs only the model and the texts. Recipes by model size provide default settings.
"""

from __future__ import annotations

import dataclasses

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path, refuse_flags
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined
from albert_tf.io.text_tables import TextColumns, TextExample, read_text_table
from albert_tf.tasks import flags as shared
from albert_tf.tasks.glue.tasks import GLUE_TASKS

FLAGS = flags.FLAGS
COLUMNS = {
    "text": "Name of the text column. Default: text.",
    "text_pair": "Name of the second text column, for text pairs.",
    "label": "Name of the label column. Default: label.",
    "id": "Name of the id column. Default: rows are numbered from 0.",
}


def define_flags() -> None:
    """Defines the flags of this script."""
    shared.define_finetuning_flags()
    names = ["custom", *(task.name for task in GLUE_TASKS), "all"]
    flags.DEFINE_enum(
        "task_name", "custom", names, "custom: your own labelled texts; a GLUE task (ax is the "
        "diagnostic set, for prediction with an mnli model); all: all GLUE tasks in --data_dir.",
        case_sensitive=False
    )  # fmt: skip
    define_path("data_dir", None, "Folder with GLUE's folders CoLA, SST-2, ….")
    shared.define_files(
        "A .tsv, .csv or .jsonl file (also .gz, .bz2 or .xz) with named columns, of examples"
    )
    for column, text in COLUMNS.items():
        flags.DEFINE_string(f"{column}_column", None, text)
    flags.DEFINE_bool("regression", False, "Labels are numbers, not classes.")


def _main() -> None:
    shared.check_requested("train", "eval", "predict")
    if FLAGS.task_name == "custom":
        shared.check_files()
        refuse_flags(["data_dir"], "it requires --task_name=<a GLUE task>.")
    else:
        own = [f"{action}_file" for action in shared.ACTIONS]
        own += [*(f"{column}_column" for column in COLUMNS), "regression"]
        reason = f"with --task_name={FLAGS.task_name} all data come from --data_dir."
        refuse_flags(own, f"{reason} For files of your own, leave --task_name out.")
    tasks = [task.name for task in GLUE_TASKS if not task.model_of]
    with shared.lock_for_training(*(tasks if FLAGS.task_name == "all" else [])):
        # TensorFlow takes seconds to import; --help should not wait for it.
        if FLAGS.task_name == "custom":
            _run_tables()
        else:
            from albert_tf.tasks.glue.run import run_glue

            run_glue(FLAGS.task_name, FLAGS.data_dir)


def _run_tables() -> None:
    """Runs on the texts of --train_file, --eval_file and --predict_file."""
    from albert_tf.tasks.classification import task
    from albert_tf.tasks.prediction_tables import PREDICTIONS_FILE
    from albert_tf.tasks.runner import run

    given = {c: name for c in COLUMNS if (name := FLAGS[f"{c}_column"].value)}
    columns = TextColumns(**{"text": "text", "label": "label", **given})

    def make_spec(length: int) -> task.ClassificationSpec:
        labels = () if FLAGS.regression else task.label_set(texts.train)
        return task.ClassificationSpec(labels, length, columns)

    def read(action: str) -> list[TextExample]:
        unlabelled = {"label": None} if action == "predict" else {}
        read_columns = dataclasses.replace(columns, **unlabelled)
        return read_text_table(shared.file_of(action), read_columns)

    shared.check_outputs([PREDICTIONS_FILE])
    opening = (task.TextClassificationTask, "custom", make_spec, {"columns": given})
    if not FLAGS.do_train:
        classifier, config = shared.open_task(*opening)
        columns = classifier.spec.columns
        if FLAGS.regression and classifier.spec.labels:
            raise AlbertError(
                f"--regression does not fit the model in {FLAGS.output_dir}, which was trained on "
                f"labels ({joined(classifier.spec.labels)}); leave the flag out."
            )
    texts = shared.read_examples(read)
    if FLAGS.do_train:
        classifier, config = shared.open_task(*opening)
    run(classifier, texts, config)


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
