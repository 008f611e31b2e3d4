# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes ALBERT to classify texts or pairs of texts, or to give them a number.

  python run_classifier.py --do_train --do_eval --train_file=train.tsv --eval_file=dev.tsv \\
    --text_column=sentence --label_column=label --init_checkpoint=runs/base --output_dir=runs/mine
  python run_classifier.py --do_predict --predict_file=new.tsv --output_dir=runs/mine

The first command writes eval_results.json, the second predictions.tsv into the output directory.
Labels, columns, vocabulary and configuration are kept there, so that predicting needs no more.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from absl import flags

from albert_tf import cli
from albert_tf.errors import AlbertError
from albert_tf.tasks.finetuning_flags import (
    Settings,
    cache_dir,
    define_finetuning_flags,
    pads_to_max,
    settings_from_flags,
)

if TYPE_CHECKING:
    from albert_tf.data.text_tables import TextExample
    from albert_tf.tasks.text_classification import TextClassificationTask

FLAGS = flags.FLAGS
#: The flag that names the data of each thing to do.
FILES = {"do_train": "train_file", "do_eval": "eval_file", "do_predict": "predict_file"}


def define_flags() -> None:
    """Defines the flags of this script."""
    define_finetuning_flags()
    flags.DEFINE_enum("task_name", "custom", ["custom"], "custom: your own labelled texts.")
    table = "a .tsv, .csv or .jsonl file (.gz, .bz2 and .xz too) with named columns."
    flags.DEFINE_string("train_file", None, f"Training examples: {table}")
    flags.DEFINE_string("eval_file", None, f"Examples to evaluate on: {table}")
    flags.DEFINE_string("predict_file", None, f"Examples to predict, labelled or not: {table}")
    flags.DEFINE_string("text_column", None, "Column of the text. Default: text.")
    flags.DEFINE_string("text_pair_column", None, "Column of the second text, for pairs.")
    flags.DEFINE_string("label_column", None, "Column of the label. Default: label.")
    flags.DEFINE_string("id_column", None, "Column naming a row. Default: its number, from 0.")
    flags.DEFINE_bool("regression", False, "Labels are numbers to predict, not classes.")


def _main() -> None:
    if not any(FLAGS[action].value for action in FILES):
        raise AlbertError("There is nothing to do: give --do_train, --do_eval or --do_predict.")
    for action, file in FILES.items():
        if FLAGS[action].value and not FLAGS[file].value:
            raise AlbertError(f"--{action} needs --{file}.")
    settings = settings_from_flags({})
    run_config = settings.run_config(0)
    # TensorFlow takes seconds to import; wrong flags and --help should not wait for it.
    from albert_tf.data.text_tables import read_text_table
    from albert_tf.tasks.fine_tune import fine_tune, model_folder, report
    from albert_tf.tasks.text_classification import write_predictions
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.specs import EvalSpec

    # All data is read before anything is trained, so that its errors show at once.
    task, examples = _open_task(settings)
    columns, options = task.spec.columns, {"pad_to_max": pads_to_max()}
    eval_specs = []
    if FLAGS.do_eval:
        held_out = read_text_table(FLAGS.eval_file, columns)
        held_out = task.open_examples(held_out, "eval", cache_dir(), **options)
        batches = held_out.num_batches(FLAGS.eval_batch_size)
        eval_specs = [EvalSpec(held_out.eval_input_fn, settings.eval_every_steps, batches)]
    if FLAGS.do_predict:
        unseen = read_text_table(FLAGS.predict_file, dataclasses.replace(columns, label=None))
        new = task.open_examples(unseen, "predict", cache_dir(), labelled=False, **options)
    if FLAGS.do_train:
        source = task.open_examples(
            examples, "train", cache_dir(), train_seed=FLAGS.random_seed, **options
        )
        steps = settings.steps(len(examples))
        run_config = settings.run_config(steps)
        print(
            f"Fine-tuning for {steps:,} steps of {run_config.train_batch_size}, "
            f"{run_config.num_warmup_steps:,} warm-up."
        )
        fine_tune(task, run_config, source, steps, eval_specs, FLAGS.num_seeds)
    if FLAGS.do_eval:
        report(task, run_config, eval_specs)
    if FLAGS.do_predict:
        path = os.path.join(FLAGS.output_dir, "predictions.tsv")
        run = dataclasses.replace(run_config, output_dir=model_folder(FLAGS.output_dir))
        outputs = Estimator(task, run).predict(new.eval_input_fn)
        write_predictions(path, unseen, outputs, task.spec.labels)
        print(f"Predictions for {len(unseen):,} examples are in {path}.")


def _open_task(settings: Settings) -> tuple[TextClassificationTask, list[TextExample]]:
    """The task of --train_file with its examples; without --do_train, that of --output_dir."""
    from albert_tf.data.text_tables import TextColumns, read_text_table
    from albert_tf.tasks import text_classification as classification
    from albert_tf.tasks.classification_features import label_set
    from albert_tf.tasks.fine_tune import model_folder
    from albert_tf.tasks.finetuning import load_model_files

    given = {c: FLAGS[f"{c}_column"].value for c in ("text", "text_pair", "label", "id")}
    given = {column: name for column, name in given.items() if name}
    if not FLAGS.do_train:
        return classification.load_task(model_folder(FLAGS.output_dir), given), []
    columns = TextColumns(**{"text": "text", "label": "label", **given})
    examples = read_text_table(FLAGS.train_file, columns)
    vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
    config, tokenizer = load_model_files(
        FLAGS.albert_config_file, vocabulary, FLAGS.do_lower_case, FLAGS.init_checkpoint
    )
    spec = classification.ClassificationSpec(
        labels=() if FLAGS.regression else label_set(examples),
        max_seq_length=settings.sequence_length(config),
        columns=columns,
    )
    config = settings.model_config(config)
    task = classification.TextClassificationTask(
        config, tokenizer, spec, settings.classifier_dropout
    )
    return task, examples


def main() -> None:
    """Runs the script."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
