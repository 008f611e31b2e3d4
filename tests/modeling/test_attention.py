# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The attention block against a NumPy version of the formula."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.attention import Attention, additive_mask
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode


def numpy_attention(x, mask, w, heads):
    """x [B, S, H], mask [B, S], w: weights by the last two parts of their names."""
    batch, length, size = x.shape
    depth = size // heads

    def project(name):
        y = x @ w[f"{name}/kernel"] + w[f"{name}/bias"]
        return y.reshape(batch, length, heads, depth)

    scores = np.einsum("bqnd,bknd->bnqk", project("query"), project("key")) / np.sqrt(depth)
    scores += (1 - mask[:, None, None, :]) * -10000.0
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    context = np.einsum("bnqk,bknd->bqnd", probs, project("value")).reshape(batch, length, size)
    y = x + context @ w["dense/kernel"] + w["dense/bias"]
    y -= y.mean(-1, keepdims=True)
    y /= np.sqrt((y**2).mean(-1, keepdims=True) + 1e-12)
    return y * w["LayerNorm/gamma"] + w["LayerNorm/beta"]


@pytest.mark.parametrize("kind", [GraphMode.PLAIN, GraphMode.CPU, GraphMode.SERVED])
def test_attention_block_computes_the_formula(kind, small_config):
    block = Attention(small_config, "scope")
    generator = np.random.default_rng(3)
    weights = {}
    for name, variable in block.named_weights().items():
        value = generator.normal(size=variable.shape)
        variable.assign(value)
        weights["/".join(name.split("/")[-2:])] = value
    x = generator.normal(size=[2, 5, 32])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0]])
    rows, mask_scores = tf.constant(x.reshape(10, 32), tf.float32), additive_mask(mask)
    with graph_mode(kind):
        (cast,) = block.weights_for_layers(1)
        output = block(rows, mask_scores, cast)
    expected = numpy_attention(x, mask, weights, small_config.num_attention_heads)
    np.testing.assert_allclose(output, expected.reshape(10, 32), rtol=0, atol=2e-4)


def test_additive_mask_is_zero_or_minus_ten_thousand():
    mask = additive_mask(tf.constant([[1, 0]]))
    assert (mask.shape, mask.dtype) == ([1, 1, 1, 2], tf.float32)
    np.testing.assert_array_equal(mask[0, 0, 0], [0, -10000])
