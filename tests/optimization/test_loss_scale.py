# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.optimization import loss_scale
from albert_tf.optimization.loss_scale import MAX_SCALE, LossScale


@pytest.fixture
def start(monkeypatch):
    """Makes a scale that starts at a value, and doubles after a number of good steps."""

    def start(value, growth_steps=2000):
        monkeypatch.setattr(loss_scale, "INITIAL_SCALE", value)
        monkeypatch.setattr(loss_scale, "GROWTH_STEPS", growth_steps)
        return LossScale()

    return start


def scales(scale, steps):
    """The scale after each step, given whether its gradients are finite."""
    after = []
    for finite in steps:
        scale.update(tf.constant(finite))
        after.append(float(scale.value))
    return after


def test_the_scale_halves_at_once_and_doubles_after_good_steps_in_a_row(start):
    scale = start(8.0, 3)
    good = [True] * 3
    assert scales(scale, [*good, *good]) == [8, 8, 16, 16, 16, 32]
    assert scales(scale, [True, True, False, *good]) == [32, 32, 16, 16, 16, 32]
    assert scales(scale, [False, False]) == [16, 8]


def test_the_scale_stays_between_1_and_its_limit(start):
    scale = start(4.0, 1)
    assert scales(scale, [False] * 4) == [2, 1, 1, 1]
    assert scales(scale, [True, True]) == [2, 4]
    assert max(scales(scale, [True] * 40)) == MAX_SCALE == float(scale.value)


def test_small_gradients_survive_float16_only_with_the_scale(start):
    """The gradient of the loss, 1e-9, is zero in float16."""

    def gradient(scale):
        weight = tf.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = tf.cast(tf.cast(weight, tf.float16), tf.float32) * 1e-9
            loss *= scale.value
        return float(tape.gradient(loss, weight) / scale.value)

    assert gradient(LossScale()) == pytest.approx(1e-9, rel=2e-3)
    assert gradient(start(1.0)) == 0


def test_the_replicas_keep_the_same_scale(start):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        scale = start(8.0, 2)

    @tf.function
    def run(finite):
        strategy.run(scale.update, args=(finite,))

    expected = [8, 16, 8, 8, 16]
    for finite, value in zip([True, True, False, True, True], expected):
        run(tf.constant(finite))
        assert [float(v) for v in strategy.experimental_local_results(scale.value)] == [value] * 2
