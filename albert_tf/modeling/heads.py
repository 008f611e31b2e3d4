# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The pooler and the heads: masked language model, sentence order, classification."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.kernels.activations import get_activation
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.kernels.linear import affine_terms
from albert_tf.modeling.layers import Policy, WeightedLayer, apply_dense, dimension

#: Standard deviation with which the release's run_classifier, run_race and run_squad_v1 initialise
#: their heads, whatever the configuration says; run_pretraining and run_squad_v2 follow it.
HEAD_INITIALIZER_RANGE = 0.02


class Pooler(WeightedLayer):
    """Dense layer with tanh on the first position."""

    def __init__(self, config: AlbertConfig, dtype: Policy = None) -> None:
        super().__init__("bert/pooler", config.initializer_range, dtype)
        self._dense = self.dense("dense", config.hidden_size, config.hidden_size)

    def call(self, sequence_output: tf.Tensor) -> tf.Tensor:
        """Maps [B, S, H] to float32 [B, H]."""
        y = apply_dense(sequence_output[:, 0], self._dense)
        return tf.tanh(tf.cast(y, tf.float32))


class MaskedLanguageModelHead(WeightedLayer):
    """Dense H→E, activation, layer normalisation, product with the tied embedding table."""

    def __init__(self, config: AlbertConfig, dtype: Policy = None) -> None:
        super().__init__("cls/predictions", config.initializer_range, dtype)
        size = config.embedding_size
        self._activation = get_activation(config.hidden_act)
        self._dense = self.dense("transform/dense", config.hidden_size, size)
        self._norm = self.norm("transform/LayerNorm", size)
        self._bias = self.vector("output_bias", config.vocab_size)

    def call(
        self,
        sequence_output: tf.Tensor,
        table: tf.Tensor,
        positions: tf.Tensor | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Predicts the tokens at `positions`, or at all positions.

        Args:
          sequence_output: [B, S, H].
          table: float32 [V, E], the word embeddings.
          positions: int32 [B, P] or None.
          training: whether a backward pass follows.

        Returns:
          float32 logits [B, P, V], or [B, S, V] without positions.
        """
        if positions is not None:
            # The gradient computes with the positions; with int32 it would run on the CPU.
            positions = tf.cast(positions, tf.int64)
            sequence_output = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
        count = dimension(sequence_output, 1)
        logits = tf.cast(self._products(sequence_output, table, training), tf.float32)
        logits = tf.nn.bias_add(logits, self._bias)
        return tf.reshape(logits, [-1, count, logits.shape[1]])

    def losses(
        self, sequence_output: tf.Tensor, table: tf.Tensor, ids: tf.Tensor, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares the predictions with the right tokens, without keeping float32 logits.

        Args:
          sequence_output: [B, P, H], at the masked positions.
          table: float32 [V, E], the word embeddings.
          ids: the right tokens, int32 [B, P].
          training: whether a backward pass follows.

        Returns:
          The cross entropies, float32 [B, P], and whether the right token is the most probable one,
          bool [B, P].
        """
        products = self._products(sequence_output, table, training)
        values = cross_entropy(products, self._bias, tf.reshape(ids, [-1]), training)
        return tuple(tf.reshape(value, tf.shape(ids)) for value in values)

    def _products(self, sequence_output: tf.Tensor, table: tf.Tensor, training: bool) -> tf.Tensor:
        """Returns the logits without bias, [B * P, V] in the compute type, for [B, P, H]."""
        x = tf.reshape(sequence_output, [-1, sequence_output.shape[2]])  # [B * P, H]
        kernel, bias = (tf.cast(weight, x.dtype) for weight in self._dense)
        x = self._activation(affine_terms(x, kernel, bias, training), training)
        x = layer_norm([x], *self._norm, training=training)  # [B * P, E]
        return tf.matmul(x, tf.cast(table, x.dtype), transpose_b=True)


class ClassificationHead(WeightedLayer):
    """Linear layer on the pooled output, in float32.

    Args:
      num_labels: number of logits.
      hidden_size: H.
      prefix: scope of the variables `output_weights` [num_labels, H] and `output_bias`.
      initializer_range: standard deviation of the initial weights.
    """

    def __init__(
        self,
        num_labels: int,
        hidden_size: int,
        prefix: str = "",
        dtype: Policy = None,
        initializer_range: float = HEAD_INITIALIZER_RANGE,
    ) -> None:
        super().__init__(prefix, initializer_range, dtype)
        self._weights = self.matrix("output_weights", [num_labels, hidden_size])
        self._bias = self.vector("output_bias", num_labels)

    def call(self, pooled_output: tf.Tensor) -> tf.Tensor:
        """Maps float32 [B, H] to float32 logits [B, num_labels]."""
        logits = tf.matmul(pooled_output, self._weights, transpose_b=True)
        return tf.nn.bias_add(logits, self._bias)
