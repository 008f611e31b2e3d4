# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests custom gradients; test_kernels.py tests the kernels made with them."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.kernels.linear import affine


@pytest.fixture
def inputs():
    return tf.constant([[1.0, 2.0]]), tf.constant([[3.0], [4.0]]), tf.constant([5.0])


def gradient(*inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = affine(*inputs)
    return tape.gradient(y, inputs)


@pytest.mark.parametrize("function", [affine, gradient])
def test_a_graph_with_custom_gradients_is_freed(function, inputs):
    traced = tf.function(function, autograph=False)
    graph = weakref.ref(traced.get_concrete_function(*inputs).graph)
    del traced
    gc.collect()
    assert graph() is None


def test_gradients_flow_through_a_function_that_is_already_traced(inputs):
    inner = tf.function(affine, autograph=False)
    inner(*inputs)

    @tf.function(autograph=False)
    def outer(*values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = inner(*values)
        return tape.gradient(y, values)

    for found, expected in zip(outer(*inputs), gradient(*inputs)):
        np.testing.assert_array_equal(found, expected)
