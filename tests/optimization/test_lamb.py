# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Our LAMB computes the same bits as tensorflow-addons', eagerly, in graphs and under XLA."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optimization import lamb

needs_addons = pytest.mark.skipif(
    lamb.LAMB is lamb.OwnLamb, reason="tensorflow-addons does not work with this TensorFlow"
)
SHAPES = {"kernel": [5, 4], "bias": [4], "zeros": [3]}


def excluding(base):
    """Returns a subclass whose bias has neither decay nor layer adaptation."""

    class Excluding(base):
        def _do_use_weight_decay(self, variable):
            return "bias" not in variable.name

        def _do_layer_adaptation(self, variable):
            return "bias" not in variable.name

    return Excluding


def trained(base, compiled, steps=8, **hyperparameters):
    """Returns weights, slots and hyperparameters after some steps, one with a zero gradient."""
    rng = np.random.default_rng(0)
    weights = [
        tf.Variable(rng.normal(size=shape) * (name != "zeros"), dtype=tf.float32, name=name)
        for name, shape in SHAPES.items()
    ]
    used = base(learning_rate=0.01, weight_decay=0.01, **hyperparameters)
    used._create_all_weights(weights)

    def step(gradients):
        used.apply_gradients(zip(gradients, weights))

    if compiled is not None:
        step = tf.function(step, autograph=False, jit_compile=compiled)
    for number in range(steps):
        step([tf.constant(rng.normal(size=w.shape) * (number != 3), tf.float32) for w in weights])
    slots = [used.get_slot(weight, slot) for weight in weights for slot in ("m", "v")]
    return [value.numpy() for value in (*weights, *slots, *used.variables())]


@needs_addons
@pytest.mark.parametrize("base", [lambda base: base, excluding], ids=["plain", "excluding"])
@pytest.mark.parametrize("compiled", [None, False, True], ids=["eager", "graph", "xla"])
def test_results_equal_tensorflow_addons_in_every_bit(compiled, base):
    expected = trained(base(lamb.LAMB), compiled)
    for ours, theirs in zip(trained(base(lamb.OwnLamb), compiled), expected):
        np.testing.assert_array_equal(ours, theirs)


@needs_addons
def test_checkpoints_of_either_load_in_the_other(tmp_path):
    for saved, restored in [(lamb.LAMB, lamb.OwnLamb), (lamb.OwnLamb, lamb.LAMB)]:
        variables = []
        for base, rate in [(saved, 0.1), (restored, 0.5)]:
            weight = tf.Variable([1.0, 2.0])
            used = base(rate)
            used.apply_gradients([(tf.constant([rate, 1.0]), weight)])
            variables.append((tf.train.Checkpoint(optimizer=used, weight=weight), used, weight))
        (source, first, _), (target, second, _) = variables
        target.read(source.write(str(tmp_path / saved.__name__))).assert_consumed()
        for ours, theirs in zip(first.variables(), second.variables()):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
