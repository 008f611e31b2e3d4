# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which weights a training step changes, however the step is computed."""

from __future__ import annotations

import pytest

from albert_tf import RunConfig, TrainSpec
from albert_tf.tasks.pretraining import PretrainingTask, open_records
from albert_tf.training.estimator import Estimator
from albert_tf.training.training_run import TrainingRun

WAYS = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "recomputed": {"recompute": True},
    "recomputed and accumulated": {"recompute": True, "gradient_accumulation_steps": 2},
    "compiled": {"jit_compile": True},
    "compiled and accumulated": {"jit_compile": True, "gradient_accumulation_steps": 2},
    "two replicas": {"strategy": "mirrored"},
    "two replicas, accumulated": {"strategy": "mirrored", "gradient_accumulation_steps": 2},
}
OF_SENTENCES = ("bert/pooler/", "cls/seq_relationship/")


def make_run(folder, config, paths, sop_weight=1.0, **values):
    """A run of two steps, before its first one."""
    source = open_records(",".join(paths), config)
    task = PretrainingTask(config, source, sop_weight)
    settings = {"train_batch_size": 8, "learning_rate": 0.01, "num_warmup_steps": 0}
    estimator = Estimator(task, RunConfig(str(folder), **settings, **values))
    return TrainingRun(estimator, TrainSpec(source.train_input_fn, 2), None)


def train(run):
    """Trains; gives the names of the weights and of the slots that are not what they were."""
    weights, slots = run.estimator.model.named_weights(), run.optimizer.named_slots()
    before = {name: value.numpy() for name, value in {**weights, **slots}.items()}
    run.run()
    return tuple(
        {name for name, value in values.items() if (value.numpy() != before[name]).any()}
        for values in (weights, slots)
    )


@pytest.mark.parametrize("way", WAYS)
def test_weights_without_a_gradient_keep_every_bit(way, tmp_path, tiny_config, record_paths):
    run = make_run(tmp_path, tiny_config, record_paths, sop_weight=0.0, **WAYS[way])
    weights, slots = train(run)
    names = run.estimator.model.named_weights()
    assert weights == {name for name in names if not name.startswith(OF_SENTENCES)}
    assert slots == {f"{name}/adam_{slot}" for name in weights for slot in "mv"}
