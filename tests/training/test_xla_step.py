# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The train step of every task meets a TPU's demands: one XLA program, fixed shapes, no host."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.modeling.kernels.graph_mode import GraphMode
from albert_tf.training import loop as loop_module
from albert_tf.training.estimator import Estimator
from albert_tf.training.loop import distribute
from tests.support.small_tasks import open_small_task
from tests.training.runs import train_loop

#: Operations that run on the host, or hand values to it.
HOST = re.compile("PyFunc|HostCompute|Outfeed|Infeed|Send|Recv|Print|Assert|Iterator|Timestamp")


def operations(graph):
    """Names of all kinds of operations in a graph and in the functions it calls."""
    definition = graph.as_graph_def()
    kinds = {node.op for node in definition.node}
    return kinds | {node.op for f in definition.library.function for node in f.node_def}


def program_of(step, batch):
    """XLA's text of a step."""
    return step.experimental_get_compiler_ir(batch)(stage="hlo")


def assert_fixed_and_without_the_host(kinds, program):
    assert not [kind for kind in kinds if HOST.search(kind)]
    # XLA writes a size that only running tells as <=N, and calls of other code as custom-call.
    assert "ENTRY" in program and "<=" not in program and "custom-call" not in program


MORE_STEPS = [
    ("classification", 1, "mixed_bfloat16"),
    ("squad_2", 2, "mixed_bfloat16"),
    ("masked", 1, "float32"),
    ("compact", 1, "mixed_bfloat16"),
    ("compact", 2, "float32"),
    ("regression", 1, "float32"),
    ("squad_1", 1, "mixed_bfloat16"),
    ("multiple_choice", 1, "mixed_bfloat16"),
    ("masked", 2, "mixed_float16"),
]


@pytest.mark.parametrize(
    ("name", "micro_batches", "precision"),
    [
        ("masked", 2, "mixed_bfloat16"),
        *(pytest.param(*step, marks=pytest.mark.slow) for step in MORE_STEPS),
    ],
)
def test_the_whole_train_step_is_one_xla_program_of_fixed_shapes_without_the_host(
    name, micro_batches, precision, tiny_config, tmp_path, monkeypatch
):
    # As with TPUStrategy, where whoever runs the step compiles it.
    monkeypatch.setattr(loop_module, "mode_chooser", lambda *_: lambda batch: GraphMode.TPU)
    model = dataclasses.replace(tiny_config, num_hidden_layers=1)
    task, source, _ = open_small_task(name, model, tmp_path, pad_to_max=True)
    config = RunConfig(
        str(tmp_path / "run"),
        train_batch_size=8,
        gradient_accumulation_steps=micro_batches,
        precision=precision,
    )
    estimator = Estimator(task, config)
    weights = estimator.model.named_weights()
    loop = train_loop(estimator)
    batch = next(iter(distribute(estimator.strategy, source.train_input_fn, 8)))
    assert all(value.shape.is_fully_defined() for value in batch.values())
    step = tf.function(lambda batch: loop.replica_step(batch), jit_compile=True, autograph=False)
    compiled = estimator.strategy.run(
        lambda batch: (
            operations(step.get_concrete_function(batch).graph),
            program_of(step, batch),
        ),
        args=(batch,),
    )
    assert_fixed_and_without_the_host(*compiled)
    before = {name: value.numpy() for name, value in weights.items()}
    metrics = estimator.strategy.run(step, args=(batch,))
    assert np.isfinite(list(metrics.values())).all()
    assert any((weights[name].numpy() != value).any() for name, value in before.items())
