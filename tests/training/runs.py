# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretraining runs of a tiny model, with batches that interrupt or spoil them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import tensorflow as tf

from albert_tf import Estimator, RunConfig, TrainSpec
from albert_tf.optimization.optimizer import AlbertOptimizer
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.loop import TrainLoop
from tests.training.conftest import TINY_CONFIG

STEPS = 12


class InterruptedRunError(Exception):
    """Stands for whatever ends a process."""


def make_run(paths, folder, config=TINY_CONFIG, task=PretrainingTask, steps=STEPS, **values):
    """Returns an Estimator, a TrainSpec and the RecordSource; `values` are of RunConfig."""
    source = open_records(",".join(paths), config)
    settings = {
        "output_dir": str(folder),
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "learning_rate": 0.01,
        "num_warmup_steps": 2,
        "save_checkpoints_steps": 5,
        "log_every_steps": 3,
        **values,
    }
    estimator = Estimator(task(config, source), RunConfig(**settings))
    return estimator, TrainSpec.of(source, steps), source


def train_loop(estimator):
    """Returns a TrainLoop of the Estimator's model outside of a run."""
    config, weights = estimator.config, estimator.model.named_weights()
    with estimator.strategy.scope():
        optimizer = AlbertOptimizer(config.optimizer, 0.01, weights)
    return TrainLoop(estimator.strategy, estimator.task, estimator.model, optimizer, config)


def interrupted(spec):
    """Returns a TrainSpec that raises InterruptedRunError before the first batch."""

    def input_fn(context):
        raise InterruptedRunError

    return dataclasses.replace(spec, input_fn=input_fn)


def interrupted_at(spec, step, action):
    """Returns a TrainSpec that calls `action()` before it yields the batch of a step."""
    return with_action(spec, lambda n: action() if n == step else None)


def fail():
    raise InterruptedRunError


def weights_of(estimator):
    return {name: value.numpy() for name, value in estimator.model.named_weights().items()}


def assert_same(weights, expected, tolerance=0.0):
    assert weights.keys() == expected.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=tolerance, err_msg=name)


def with_batches(spec, function):
    """Returns a TrainSpec or EvalSpec whose batches are `function(step, batch)`."""

    def input_fn(context):
        return spec.input_fn(context).enumerate(context.start_step).map(function)

    return dataclasses.replace(spec, input_fn=input_fn)


def with_action(spec, action):
    """Returns a TrainSpec or EvalSpec that calls `action(step)` before it yields each batch."""

    def act(step, batch):
        with tf.control_dependencies([tf.py_function(action, [step], [])]):
            return {name: tf.identity(value) for name, value in batch.items()}

    return with_batches(spec, act)


def with_bad_steps(spec, is_bad, factor=np.inf):
    """Returns a TrainSpec whose loss is not finite in the steps for which `is_bad(step)` holds."""

    def spoil(step, batch):
        weights = batch["masked_lm_weights"] * tf.where(is_bad(step), factor, 1.0)
        return {**batch, "masked_lm_weights": weights}

    return with_batches(spec, spoil)


def logged(folder, split="train"):
    """Returns the entries of metrics.jsonl for a split."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [entry for entry in entries if entry["split"] == split]


def saved_steps(folder):
    """Returns the steps of a run's checkpoints."""
    return sorted(int(path.stem[5:]) for path in folder.glob("checkpoints/*.index"))
