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
import math
import os
from typing import TYPE_CHECKING

from absl import flags

from albert_tf import cli, files
from albert_tf.errors import AlbertError
from albert_tf.training.flags import define_training_flags, run_config_from_flags

if TYPE_CHECKING:
    from albert_tf.data.text_tables import TextExample
    from albert_tf.tasks.text_classification import TextClassificationTask

FLAGS = flags.FLAGS
#: The flag that names the data of each thing to do.
FILES = {"do_train": "train_file", "do_eval": "eval_file", "do_predict": "predict_file"}


def define_flags() -> None:
    """Defines the flags of this script."""
    define_training_flags(
        train_batch_size=32, eval_batch_size=8, optimizer="adamw", save_checkpoints_steps=1000
    )
    FLAGS.set_default("do_train", False)  # As in the release.
    flags.DEFINE_bool("do_predict", False, "Write predictions.tsv for --predict_file.")
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
    beside = "Default: that of --init_checkpoint."
    flags.DEFINE_string("albert_config_file", None, f"JSON file or preset's name. {beside}")
    flags.DEFINE_string("spm_model_file", None, f"SentencePiece model. {beside}")
    flags.DEFINE_string("vocab_file", None, f"WordPiece vocabulary, or tokenizer.json. {beside}")
    flags.DEFINE_bool("do_lower_case", None, "Lower-case. Default: as tokenizer.json says, or yes.")
    flags.DEFINE_integer(
        "max_seq_length", None, "Tokens of a text or pair, padding included; longer ones are cut. "
        "Default: 512, or what the model can read.", 1
    )  # fmt: skip
    flags.DEFINE_string("cached_dir", None, "Tokenized data. Default: cache in --output_dir.")
    flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.", 0.0)
    flags.DEFINE_integer("train_step", None, "Steps to train. Default: 1000.", 1)
    flags.DEFINE_float("num_train_epochs", None, "Passes over the training examples, instead.", 0.0)
    flags.DEFINE_integer(
        "warmup_step", None, "Steps of linear warm-up. Default: a tenth of all steps; the release "
        "has 0, from which larger models often do not learn.", 0
    )  # fmt: skip
    flags.DEFINE_integer("eval_every_steps", None, "Evaluate every so many steps, too.", 1)


def _main() -> None:
    if not any(FLAGS[action].value for action in FILES):
        raise AlbertError("There is nothing to do: give --do_train, --do_eval or --do_predict.")
    for action, file in FILES.items():
        if FLAGS[action].value and not FLAGS[file].value:
            raise AlbertError(f"--{action} needs --{file}.")
    if FLAGS.train_step and FLAGS.num_train_epochs:
        raise AlbertError("Give --train_step or --num_train_epochs, not both.")
    run_config = run_config_from_flags()
    # TensorFlow takes seconds to import; wrong flags and --help should not wait for it.
    from albert_tf.data.text_tables import read_text_table
    from albert_tf.tasks.text_classification import write_predictions
    from albert_tf.training.estimator import Estimator
    from albert_tf.training.specs import EvalSpec, TrainSpec

    # All data is read before anything is trained, so that its errors show at once.
    task, examples = _open_task()
    columns = task.spec.columns
    cache = FLAGS.cached_dir or os.path.join(FLAGS.output_dir, "cache")
    eval_spec = None
    if FLAGS.do_eval:
        held_out = task.open_examples(read_text_table(FLAGS.eval_file, columns), "eval", cache)
        batches = held_out.num_batches(FLAGS.eval_batch_size)
        eval_spec = EvalSpec(held_out.eval_input_fn, FLAGS.eval_every_steps, batches)
    if FLAGS.do_predict:
        unseen = read_text_table(FLAGS.predict_file, dataclasses.replace(columns, label=None))
        new = task.open_examples(unseen, "predict", cache, labelled=False)
    if FLAGS.do_train:
        source = task.open_examples(examples, "train", cache, train_seed=FLAGS.random_seed)
        steps = FLAGS.train_step or 1000
        if FLAGS.num_train_epochs:
            steps = math.ceil(FLAGS.num_train_epochs * len(examples) / FLAGS.train_batch_size)
        warmup = steps // 10 if FLAGS.warmup_step is None else FLAGS.warmup_step
        run_config = dataclasses.replace(run_config, num_warmup_steps=warmup)
        print(f"Fine-tuning for {steps:,} steps of {FLAGS.train_batch_size}, {warmup:,} warm-up.")
    estimator = Estimator(task, run_config)
    if FLAGS.do_train:
        train_spec = TrainSpec(source.train_input_fn, steps, source.fingerprint)
        estimator.train_and_evaluate(train_spec, eval_spec)
    if FLAGS.do_eval:
        results = estimator.evaluate(eval_spec)
        path = os.path.join(FLAGS.output_dir, "eval_results.json")
        files.write_json(path, results)
        shown = "\n".join(f"  {name:18} {value:.4f}" for name, value in results.items())
        print(f"{shown}\nWritten to {path}.")
    if FLAGS.do_predict:
        path = os.path.join(FLAGS.output_dir, "predictions.tsv")
        write_predictions(path, unseen, estimator.predict(new.eval_input_fn), task.spec.labels)
        print(f"Predictions for {len(unseen):,} examples are in {path}.")


def _open_task() -> tuple[TextClassificationTask, list[TextExample]]:
    """The task of --train_file with its examples; without --do_train, that of --output_dir."""
    from albert_tf.data.text_tables import TextColumns, read_text_table
    from albert_tf.tasks import text_classification as classification

    given = {c: FLAGS[f"{c}_column"].value for c in ("text", "text_pair", "label", "id")}
    given = {column: name for column, name in given.items() if name}
    if not FLAGS.do_train:
        return classification.load_task(FLAGS.output_dir, given), []
    columns = TextColumns(**{"text": "text", "label": "label", **given})
    examples = read_text_table(FLAGS.train_file, columns)
    vocabulary = FLAGS.spm_model_file or FLAGS.vocab_file
    model = classification.load_model_files(
        FLAGS.albert_config_file, vocabulary, FLAGS.do_lower_case, FLAGS.init_checkpoint
    )
    length = FLAGS.max_seq_length
    return classification.new_task(examples, columns, *model, FLAGS.regression, length), examples


def main() -> None:
    """Runs the script."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
