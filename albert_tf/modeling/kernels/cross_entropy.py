# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cross entropy over a vocabulary."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.modeling.kernels.fusion import custom_gradient, fused
from albert_tf.modeling.kernels.graph_mode import current_mode


@fused
def _log_sum_exp(logits: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(logits, axis=-1, keepdims=True)


@fused
def _gradient(logits: tf.Tensor, log_sum: tf.Tensor, labels: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    is_label = tf.range(tf.shape(logits)[1]) == labels[:, None]
    return (tf.exp(logits - log_sum) - tf.cast(is_label, tf.float32)) * dy[:, None]


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Returns the negative log probability of each label.

    Compiled by XLA it keeps only the logits for the backward pass. Elsewhere, as on a GPU, it uses
    TensorFlow's kernel, which computes the gradient together with the losses (on CPUs in one
    thread).

    Args:
      logits: float32 [..., classes].
      labels: int32 [...].
      training: whether a backward pass follows.

    Returns:
      float32 [...].
    """
    if not current_mode().compiles(training):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    flat_labels = tf.reshape(labels, [-1])

    @custom_gradient
    def function(logits: tf.Tensor) -> tf.Tensor:
        log_sum = _log_sum_exp(logits, training=training)
        if current_mode().for_tpu():
            # To gather from the logits the compiler would store them in float32.
            is_label = tf.range(logits.shape[1]) == flat_labels[:, None]
            of_labels = tf.reduce_sum(tf.where(is_label, logits, 0.0), axis=-1)
        else:
            of_labels = tf.gather(logits, flat_labels, batch_dims=1)

        def grad(dy: tf.Tensor) -> tf.Tensor:
            return _gradient(logits, log_sum, flat_labels, dy, training=training)

        return log_sum[:, 0] - of_labels, grad

    return tf.reshape(function(tf.reshape(logits, [-1, logits.shape[-1]])), tf.shape(labels))
