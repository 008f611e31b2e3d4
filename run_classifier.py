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
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flag_modes import refuse_flags
from albert_tf.cli.path_flags import define_path
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.io.text_tables import TextColumns, check_table, read_text_table
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
from albert_tf.tasks.glue.tasks import GLUE_TASKS, GlueTask, find_glue_task
from albert_tf.tasks.training_flags import lock_for_training

if TYPE_CHECKING:
    from albert_tf.tasks.classification.task import TextClassificationTask
    from albert_tf.tasks.fine_tune_config import FineTuneConfig
    from albert_tf.tasks.glue.run import Actions
    from albert_tf.tasks.runner import Examples

FLAGS = flags.FLAGS
#: Flags for the user's own data, and those for GLUE.
CUSTOM_ONLY = (*FILES.values(), "text_column", "text_pair_column", "label_column", "id_column",
               "regression")  # fmt: skip
GLUE_ONLY = ("data_dir",)


def define_flags() -> None:
    """Defines the flags of this script."""
    define_finetuning_flags()
    names = ["custom", *(task.name for task in GLUE_TASKS), "all"]
    flags.DEFINE_enum(
        "task_name", "custom", names, "custom: your own labelled texts; a GLUE task (ax is the "
        "diagnostic set, for prediction with an mnli model); all: all GLUE tasks in --data_dir.",
        case_sensitive=False
    )  # fmt: skip
    define_path(
        "data_dir", None, "Folder with GLUE's folders CoLA, SST-2, ….",
        check=files.check_folder, when=_reads_glue_files,
    )  # fmt: skip
    table = "a .tsv, .csv or .jsonl file (also .gz, .bz2 or .xz) with named columns."
    for action, purpose in (
        ("do_train", "Training examples"),
        ("do_eval", "Examples to evaluate on"),
        ("do_predict", "Examples to predict, labelled or not"),
    ):
        define_path(
            FILES[action], None, f"{purpose}: {table}",
            check=check_table, when=functools.partial(_reads_table, action),
        )  # fmt: skip
    flags.DEFINE_string("text_column", None, "Name of the text column. Default: text.")
    flags.DEFINE_string("text_pair_column", None, "Name of the second text column, for text pairs.")
    flags.DEFINE_string("label_column", None, "Name of the label column. Default: label.")
    flags.DEFINE_string(
        "id_column", None, "Name of the id column. Default: rows are numbered from 0."
    )
    flags.DEFINE_bool("regression", False, "Labels are numbers, not classes.")


def _reads_table(action: str) -> bool:
    return FLAGS.task_name == "custom" and is_requested(action)


def _reads_glue_files() -> bool:
    return FLAGS.task_name != "custom"


def _check_flags() -> None:
    check_requested()
    if FLAGS.task_name == "custom":
        check_files()
        refuse_flags(GLUE_ONLY, "they require --task_name=<a GLUE task>.")
    else:
        reason = f"with --task_name={FLAGS.task_name} all data come from --data_dir."
        refuse_flags(CUSTOM_ONLY, f"{reason} For files of your own, leave --task_name out.")
    check_finetuning_modes()


def _main() -> None:
    name = FLAGS.task_name
    if name not in ("custom", "all") and (FLAGS.do_train or FLAGS.do_eval):
        find_glue_task(name).check_trains()
    config = check_settings(None if name == "all" else name)
    tasks = [task.name for task in GLUE_TASKS if not task.model_of]
    with lock_for_training(*(tasks if name == "all" else [])):
        _run_custom(config) if name == "custom" else _run_glue(config)


def _run_custom(config: FineTuneConfig | None) -> None:
    """Runs on the texts of --train_file, --eval_file and --predict_file."""
    from albert_tf.tasks.classification.task import TextClassificationTask, label_set
    from albert_tf.tasks.prediction_tables import PREDICTIONS_FILE
    from albert_tf.tasks.runner import run
    from albert_tf.weights.run_folder import model_folder

    given = {c: FLAGS[f"{c}_column"].value for c in ("text", "text_pair", "label", "id")}
    given = {column: name for column, name in given.items() if name}
    columns = TextColumns(**{"text": "text", "label": "label", **given})
    if not FLAGS.do_train:
        folder = model_folder(FLAGS.output_dir)
        task = TextClassificationTask.load(folder, columns=given, **_spec_changes())
        if FLAGS.regression and task.spec.labels:
            raise AlbertError(
                f"--regression does not fit the model in {FLAGS.output_dir}, which was trained on "
                f"labels ({joined(task.spec.labels)}); leave the flag out."
            )
        columns = task.spec.columns
    read = [FLAGS[file].value for action, file in FILES.items() if is_requested(action)]
    files.check_output(os.path.join(FLAGS.output_dir, PREDICTIONS_FILE), read, overwrite=True)
    texts = _read_tables(columns)
    if FLAGS.do_train:
        labels = () if FLAGS.regression else label_set(texts.train)
        task, config = _new_task("custom", config, labels, FLAGS.output_dir, columns=columns)
    run(task, texts, config)


def _read_tables(columns: TextColumns) -> Examples:
    """Reads the user's own tables; the data sets have the names eval and predict."""
    from albert_tf.tasks.runner import Examples

    unlabelled = dataclasses.replace(columns, label=None)
    return Examples.of(
        read_text_table(FLAGS.train_file, columns) if FLAGS.do_train else (),
        read_text_table(FLAGS.eval_file, columns) if FLAGS.do_eval else (),
        read_text_table(FLAGS.predict_file, unlabelled) if FLAGS.do_predict else (),
    )


def _spec_changes() -> dict[str, int]:
    """Returns the fields of a trained model's specification that flags override."""
    return {"max_seq_length": FLAGS.max_seq_length} if FLAGS.max_seq_length else {}


def _run_glue(config: FineTuneConfig | None) -> None:
    """Runs one GLUE task, or all."""
    from albert_tf.tasks.glue import run as glue

    actions = glue.Actions(*map(is_requested, FILES))
    if FLAGS.task_name == "all":
        glue.run_all(_run_glue_task, actions, FLAGS.data_dir, FLAGS.output_dir)
    else:
        task = find_glue_task(FLAGS.task_name)
        texts = glue.read_texts(task, actions, FLAGS.data_dir)
        _run_glue_task(task, actions, texts, FLAGS.output_dir, config)


def _run_glue_task(
    task: GlueTask,
    actions: Actions,
    texts: Examples,
    output_dir: str,
    config: FineTuneConfig | None = None,
) -> dict[str, float]:
    """Runs one GLUE task; returns the metrics of its development sets."""
    from albert_tf.tasks.glue import run as glue
    from albert_tf.tasks.runner import run

    if actions.train:
        spec = {"task_name": task.name, "best_metric": task.best_metric}
        spec["columns"] = task.splits[0].columns
        classifier, config = _new_task(task.name, config, task.labels, output_dir, **spec)
    else:
        classifier = glue.open_model(task, output_dir, **_spec_changes())
        config = config or fine_tune_config(None, output_dir=output_dir)
    return run(classifier, texts, config, functools.partial(glue.write_outputs, task))


def _new_task(
    recipe: str,
    config: FineTuneConfig | None,
    labels: Sequence[str],
    output_dir: str,
    **spec: object,
) -> tuple[TextClassificationTask, FineTuneConfig]:
    """Makes the task of a model to be trained, and its settings.

    Args:
      recipe: the recipe, for settings without a flag.
      config: the settings, if they are complete already.
      labels: the classes; empty for regression.
      output_dir: the folder of the model.
      **spec: further fields of ClassificationSpec.
    """
    from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask

    model, tokenizer = open_model_files()
    config = config or fine_tune_config(recipe, model, output_dir)
    specification = ClassificationSpec(tuple(labels), config.max_seq_length, **spec)
    model, dropout = config.model_config(model), config.classifier_dropout
    return TextClassificationTask(model, tokenizer, specification, dropout), config


def main() -> None:
    """Runs the script."""
    script.run(_main, define_flags, check_flags=_check_flags)


if __name__ == "__main__":
    main()
