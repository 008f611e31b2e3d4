# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One run of a multiple-choice model: it trains, evaluates and writes what it predicts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from albert_tf import files
from albert_tf.data.pipeline import RecordSource
from albert_tf.tasks.fine_tune import fine_tune, model_folder, report
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, letter
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import EvalSpec, RunConfig

PREDICTIONS_FILE = "predictions.tsv"
PREDICT_RESULTS_FILE = "predict_results.json"


@dataclasses.dataclass(frozen=True)
class Questions:
    """What a run reads; what is empty is not done.

    Attributes:
      train: to train on.
      evaluate: to evaluate on, while training and after it.
      predict: to answer; the answers need not be known.
    """

    train: Sequence[MultipleChoiceExample] = ()
    evaluate: Sequence[MultipleChoiceExample] = ()
    predict: Sequence[MultipleChoiceExample] = ()


def run(
    task: MultipleChoiceTask,
    questions: Questions,
    config: RunConfig,
    cache_dir: str,
    *,
    max_steps: int,
    eval_every_steps: int | None = None,
    num_seeds: int = 1,
    pad_to_max: bool = False,
) -> None:
    """Trains, evaluates and predicts, as far as there are questions for it.

    Evaluating writes eval_results.json into the output directory; predicting writes predictions.tsv
    and, if all answers are known, predict_results.json.

    Args:
      task: the task.
      questions: what to read.
      config: how; the model is, or will be, in its output directory.
      cache_dir: where records are kept.
      max_steps: training steps.
      eval_every_steps: steps between evaluations while training; None: one at the end.
      num_seeds: see fine_tune.
      pad_to_max: pad all batches to the longest sequence allowed.
    """
    options = {"cache_dir": cache_dir, "pad_to_max": pad_to_max}
    # All is tokenized before anything is trained, so that errors show at once.
    eval_specs = []
    if questions.evaluate:
        held_out = task.open_examples(questions.evaluate, "eval", **options)
        batches = held_out.num_batches(config.eval_batch_size)
        eval_specs = [EvalSpec(held_out.eval_input_fn, eval_every_steps, batches)]
    if questions.predict:
        unseen = task.open_examples(questions.predict, "predict", **options)
    if questions.train:
        source = task.open_examples(questions.train, "train", train_seed=config.seed, **options)
        print(
            f"Fine-tuning for {max_steps:,} steps of {config.train_batch_size}, "
            f"{config.num_warmup_steps:,} warm-up, learning rate {config.learning_rate:g}."
        )
        fine_tune(task, config, source, max_steps, eval_specs, num_seeds)
    if eval_specs:
        report(task, config, eval_specs)
    if questions.predict:
        _predict(task, questions.predict, unseen, config)


def _predict(
    task: MultipleChoiceTask,
    examples: Sequence[MultipleChoiceExample],
    source: RecordSource,
    config: RunConfig,
) -> None:
    folder = config.output_dir
    model = dataclasses.replace(config, output_dir=model_folder(folder))
    outputs = Estimator(task, model).predict(
        source.eval_input_fn, max_steps=source.num_batches(config.eval_batch_size)
    )
    path = os.path.join(folder, PREDICTIONS_FILE)
    write_predictions(path, examples, outputs["probabilities"])
    print(f"Predictions for {len(examples):,} questions are in {path}.")
    if all(example.label is not None for example in examples):
        results = task.metrics(outputs)
        files.write_json(os.path.join(folder, PREDICT_RESULTS_FILE), results)
        print("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))


def write_predictions(
    path: str, examples: Sequence[MultipleChoiceExample], probabilities: np.ndarray
) -> None:
    """Writes a TSV file: id, the letter of the likeliest option, the probability of each.

    Args:
      path: of the file.
      examples: n questions.
      probabilities: float [n, options].
    """
    rows = [["id", "prediction", *(letter(i) for i in range(probabilities.shape[1]))]]
    for example, row in zip(examples, probabilities):
        rows.append([example.id, letter(int(row.argmax())), *(f"{p:.6f}" for p in row)])
    # A tab or line end inside an id would break the table.
    text = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    files.write_text(path, text)
