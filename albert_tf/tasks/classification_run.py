# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One run of a classifier: it trains, evaluates and predicts, whatever the texts are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.data.text_tables import TextColumns, TextExample, read_text_table
from albert_tf.tasks.fine_tune import fine_tune, model_folder, report
from albert_tf.tasks.text_classification import TextClassificationTask
from albert_tf.training.estimator import Estimator
from albert_tf.training.specs import EvalSpec, RunConfig


@dataclasses.dataclass(frozen=True)
class Texts:
    """What a run reads; what is empty is not done.

    Attributes:
      train: to train on.
      evaluate: labelled examples by the name of the data set; the first one picks the best weights.
      predict: examples by the name of the data set; their labels are not looked at.
    """

    train: Sequence[TextExample] = ()
    evaluate: Mapping[str, Sequence[TextExample]] = dataclasses.field(default_factory=dict)
    predict: Mapping[str, Sequence[TextExample]] = dataclasses.field(default_factory=dict)


def read_files(
    columns: TextColumns,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
) -> Texts:
    """Texts from tables; the data sets to evaluate and to predict are called eval and predict.

    Raises:
      AlbertError: see read_text_table.
    """
    unlabelled = dataclasses.replace(columns, label=None)
    return Texts(
        train=read_text_table(train_file, columns) if train_file else (),
        evaluate={"eval": read_text_table(eval_file, columns)} if eval_file else {},
        predict={"predict": read_text_table(predict_file, unlabelled)} if predict_file else {},
    )


def run(
    task: TextClassificationTask,
    texts: Texts,
    config: RunConfig,
    cache_dir: str,
    *,
    max_steps: int,
    eval_every_steps: int | None = None,
    num_seeds: int = 1,
    pad_to_max: bool = False,
) -> tuple[dict[str, float], dict[str, dict[str, np.ndarray]]]:
    """Trains, evaluates and predicts, as far as there are texts for it.

    Args:
      task: the task.
      texts: what to read.
      config: how; the model is, or will be, in its output directory.
      cache_dir: where records are kept.
      max_steps: training steps.
      eval_every_steps: steps between evaluations while training; None: one at the end.
      num_seeds: see fine_tune.
      pad_to_max: pad all batches to the longest sequence allowed.

    Returns:
      The metrics that `fine_tune.report` gives, empty without evaluation; and for each data set
      to predict the outputs of `TextClassificationTask.predict`.
    """
    # All is tokenized before anything is trained, so that errors show at once.
    eval_specs = []
    for name, examples in texts.evaluate.items():
        held_out = task.open_examples(examples, name, cache_dir, pad_to_max=pad_to_max)
        batches = held_out.num_batches(config.eval_batch_size)
        spec = EvalSpec(held_out.eval_input_fn, eval_every_steps, batches, name)
        eval_specs.append(spec)
    unseen = {
        name: task.open_examples(examples, name, cache_dir, labelled=False, pad_to_max=pad_to_max)
        for name, examples in texts.predict.items()
    }
    if texts.train:
        source = task.open_examples(
            texts.train, "train", cache_dir, train_seed=config.seed, pad_to_max=pad_to_max
        )
        print(
            f"Fine-tuning for {max_steps:,} steps of {config.train_batch_size}, "
            f"{config.num_warmup_steps:,} warm-up, learning rate {config.learning_rate:g}."
        )
        fine_tune(task, config, source, max_steps, eval_specs, num_seeds)
    results = report(task, config, eval_specs) if eval_specs else {}
    outputs = {}
    if unseen:
        folder = model_folder(config.output_dir)
        estimator = Estimator(task, dataclasses.replace(config, output_dir=folder))
        outputs = {
            name: estimator.predict(
                new.eval_input_fn, max_steps=new.num_batches(config.eval_batch_size)
            )
            for name, new in unseen.items()
        }
    return results, outputs
