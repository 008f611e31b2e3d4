# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens and runs classifiers as the flags of run_classifier.py say."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from absl import flags

from albert_tf.io.text_tables import TextColumns, read_text_table
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tasks.flags import (
    Settings,
    cache_dir,
    open_model_files,
    pads_to_max,
    settings_from_flags,
)
from albert_tf.tasks.recipes import load_recipe
from albert_tf.tasks.runner import Examples, run

FLAGS = flags.FLAGS


def read_files(
    columns: TextColumns,
    train_file: str | None = None,
    eval_file: str | None = None,
    predict_file: str | None = None,
) -> Examples:
    """Examples from tables; the data sets to evaluate and to predict are called eval and predict.

    Raises:
      AlbertError: see read_text_table.
    """
    unlabelled = dataclasses.replace(columns, label=None)
    return Examples(
        train=read_text_table(train_file, columns) if train_file else (),
        evaluate={"eval": read_text_table(eval_file, columns)} if eval_file else {},
        predict={"predict": read_text_table(predict_file, unlabelled)} if predict_file else {},
    )


def new_task(
    labels: Sequence[str], recipe: str, **spec: object
) -> tuple[TextClassificationTask, Settings]:
    """A task for a model to be trained, and the settings to train it with.

    Args:
      labels: the classes; empty for regression.
      recipe: whose settings hold where no flag is given.
      **spec: further fields of its ClassificationSpec.
    """
    config, tokenizer = open_model_files()
    settings = settings_from_flags(load_recipe(recipe, config))
    spec = ClassificationSpec(tuple(labels), settings.sequence_length(config), **spec)
    config = settings.model_config(config)
    task = TextClassificationTask(config, tokenizer, spec, settings.classifier_dropout)
    return task, settings


def run_task(
    task: TextClassificationTask, texts: Examples, settings: Settings, output_dir: str
) -> tuple[dict[str, float], dict[str, dict[str, np.ndarray]]]:
    """Does with the task what there are texts for, as the flags say; see fine_tune.run."""
    steps = settings.steps(len(texts.train))
    return run(
        task,
        texts,
        dataclasses.replace(settings.run_config(steps), output_dir=output_dir),
        cache_dir(),
        max_steps=steps,
        eval_every_steps=settings.eval_every_steps,
        num_seeds=FLAGS.num_seeds,
        pad_to_max=pads_to_max(),
    )
