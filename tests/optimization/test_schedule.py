# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The learning rate: published values, warm-up, decay and scaling."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optimization import scaled_learning_rate
from albert_tf.optimization.schedule import WarmupPolynomialDecay, learning_rate_at

RELEASE = {"learning_rate": 0.00176, "num_train_steps": 125000, "num_warmup_steps": 3125}
RELEASE_RATES = {
    0: 0.0,
    1562: 0.00087972,
    3124: 0.00175944,
    3125: 0.00171600,
    62500: 0.00088,
    125000: 0.0,
}


def test_the_schedule_of_the_release_has_its_published_rates():
    for step, rate in RELEASE_RATES.items():
        assert learning_rate_at(step, **RELEASE) == pytest.approx(rate, abs=5e-9)
        tensor = learning_rate_at(tf.constant(step, tf.int64), **RELEASE)
        assert tensor.dtype == tf.float32
        assert tensor.numpy() == pytest.approx(rate, abs=5e-9)


def test_numbers_arrays_and_tensors_agree_and_are_never_negative():
    arguments = dict(RELEASE, start_warmup_step=100, poly_power=2.0)
    steps = np.concatenate([np.arange(-5, 300), np.arange(3000, 3400), np.arange(124900, 126000)])
    array = learning_rate_at(steps, **arguments)
    tensor = learning_rate_at(tf.constant(steps), **arguments).numpy()
    singles = [learning_rate_at(int(step), **arguments) for step in steps]
    assert all(type(rate) is float for rate in singles)
    np.testing.assert_array_equal(array, singles)
    np.testing.assert_allclose(tensor, array, rtol=1e-5, atol=1e-9)
    assert array.min() == 0.0
    assert tensor.min() == 0.0


def test_warm_up_can_start_later_and_the_decay_has_a_power():
    arguments = dict(RELEASE, start_warmup_step=1000, poly_power=2.0)
    assert learning_rate_at(1000, **arguments) == 0.0
    assert learning_rate_at(1625, **arguments) == pytest.approx(0.00176 * 625 / 3125)
    assert learning_rate_at(4125, **arguments) == pytest.approx(0.00176 * (1 - 4125 / 125000) ** 2)


def test_without_warmup_the_first_update_has_the_full_rate():
    assert learning_rate_at(0, learning_rate=0.5, num_train_steps=10) == 0.5


def test_the_keras_schedule_gives_the_same_rates_in_a_graph():
    schedule = WarmupPolynomialDecay(**RELEASE)
    traced = tf.function(schedule)
    for step, rate in RELEASE_RATES.items():
        assert traced(tf.constant(step, tf.float32)).numpy() == pytest.approx(rate, abs=5e-9)
    assert WarmupPolynomialDecay.from_config(schedule.get_config())(1562) == schedule(1562)


def test_the_rate_scales_with_the_square_root_of_the_batch():
    assert scaled_learning_rate(4096) == 0.00176
    assert scaled_learning_rate(1024) == pytest.approx(0.00088)
    assert scaled_learning_rate(64) == pytest.approx(0.00022)
