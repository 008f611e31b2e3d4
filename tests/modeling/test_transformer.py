# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which layer uses which weights, and under which names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.graph_mode import GraphMode, TrainingStep, graph_mode, training_step
from albert_tf.modeling.transformer import Transformer

SCOPE = "bert/encoder/transformer/"


def groups(config, part):
    names = Transformer(config).named_weights()
    return sorted(
        {int(name[len(SCOPE + "group_") :].split("/")[0]) for name in names if part in name}
    )


@pytest.mark.parametrize(
    ("sharing", "attention", "ffn"),
    [
        ("all", [0], [0]),
        ("attention", [0], [0, 1, 2]),
        ("ffn", [0, 1, 2], [0]),
        ("none", [0, 1, 2], [0, 1, 2]),
    ],
)
def test_parts_that_are_not_shared_have_a_group_per_layer(small_config, sharing, attention, ffn):
    config = dataclasses.replace(small_config, parameter_sharing=sharing)
    assert groups(config, "/attention_1/") == groups(config, "/LayerNorm/") == attention
    assert groups(config, "/ffn_1/") == groups(config, "/LayerNorm_1/") == ffn


def test_a_group_that_no_layer_uses_has_no_weights(small_config):
    # In floating point layer 15 of 22 falls into group 14, and nothing is left for group 15.
    config = dataclasses.replace(small_config, num_hidden_layers=22, num_hidden_groups=22)
    used = sorted({config.group(layer, "attention") for layer in range(22)})
    assert 15 not in used
    assert groups(config, "/attention_1/") == groups(config, "/ffn_1/") == used


def assign_equal(source, target):
    """Gives every block of `target` the weights of the first block of its kind in `source`."""
    values = source.named_weights()
    for name, variable in target.named_weights().items():
        tail = name[len(SCOPE) :].split("/", 1)[1]
        variable.assign(values[f"{SCOPE}group_0/{tail}"])


@pytest.mark.parametrize("sharing", ["attention", "ffn", "none"])
def test_unshared_layers_with_equal_weights_compute_the_same_as_shared_ones(small_config, sharing):
    shared = Transformer(small_config)
    unshared = Transformer(dataclasses.replace(small_config, parameter_sharing=sharing))
    assign_equal(shared, unshared)
    x, mask = tf.random.normal([6, 32]), tf.zeros([2, 1, 1, 3])
    for a, b in zip(shared(x, mask), unshared(x, mask)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_shared_weights_are_cast_once_however_many_layers_use_them(small_config):
    def casts_to_bfloat16_of_matrices(layers):
        config = dataclasses.replace(small_config, num_hidden_layers=layers)
        transformer = Transformer(config, dtype="mixed_bfloat16")
        x, mask = tf.zeros([6, 32], tf.bfloat16), tf.zeros([2, 1, 1, 3])
        with graph_mode(GraphMode.CPU):
            graph = tf.function(transformer, autograph=False).get_concrete_function(x, mask).graph
        pending, count = [graph], 0
        while pending:
            graph = pending.pop()
            count += sum(
                op.type == "Cast" and op.outputs[0].shape[0] in (32, 64)
                for op in graph.get_operations()
            )
        return count

    assert casts_to_bfloat16_of_matrices(2) == casts_to_bfloat16_of_matrices(5) > 0


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_stack_cut_to_fewer_layers_is_that_of_a_model_with_these(small_config, groups, recompute):
    deep_config = dataclasses.replace(small_config, num_hidden_layers=5, num_hidden_groups=groups)
    deep = Transformer(deep_config)
    shallow = Transformer(dataclasses.replace(deep_config, num_hidden_layers=2))
    for name, weight in shallow.named_weights().items():
        weight.assign(deep.named_weights()[name])
    assert shallow.named_weights().keys() == deep.named_weights().keys()
    x, mask = tf.random.normal([6, 32]), tf.zeros([2, 1, 1, 3])
    step = TrainingStep(tf.constant([1, 2]), layers=2, recompute=recompute)
    with graph_mode(GraphMode.CPU), training_step(step):
        outputs = deep(x, mask)
    assert (len(outputs), len(deep(x, mask))) == (2, 5)
    for a, b in zip(outputs, shallow(x, mask)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
