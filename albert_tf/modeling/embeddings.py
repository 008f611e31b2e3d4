# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Token, segment and position embeddings of width E, and their projection to width H."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.layers import Policy, WeightedLayer, apply_dense, dimension


class Embeddings(WeightedLayer):
    """Sum of the three embeddings, layer normalisation, dropout (paper section 3.1)."""

    def __init__(self, config: AlbertConfig, dtype: Policy = None) -> None:
        super().__init__("bert/embeddings", config.initializer_range, dtype)
        size = config.embedding_size
        self._dropout_rate = config.hidden_dropout_prob
        self.word_embeddings = self.matrix("word_embeddings", [config.vocab_size, size])
        self.token_type_embeddings = self.matrix(
            "token_type_embeddings", [config.type_vocab_size, size]
        )
        self.position_embeddings = self.matrix(
            "position_embeddings", [config.max_position_embeddings, size]
        )
        self.layer_norm = self.norm("LayerNorm", size)

    def call(self, word_ids: tf.Tensor, type_ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Embeds int32 [B, S] word and segment ids; returns [B, S, E] in the compute type.

        Raises:
          AlbertError: the sequence is longer than the table of positions.
        """
        length = dimension(word_ids, 1)
        positions, size = self.position_embeddings.shape
        if isinstance(length, int) and length > positions:
            raise AlbertError(
                f"The sequence length {length} exceeds max_position_embeddings {positions}."
            )
        # Sparse gradients, as in the release; the training loop adds them up before it clips.
        words = tf.gather(self.word_embeddings, word_ids)
        x = words + tf.gather(self.token_type_embeddings, type_ids)
        x = tf.reshape(x + self.position_embeddings[:length], [-1, size])  # [B * S, E]
        x = layer_norm([x], *self.layer_norm, training=training)
        x = dropout(x, self._dropout_rate, training)
        return tf.reshape(tf.cast(x, self.compute_dtype), [-1, length, size])


class EmbeddingProjection(WeightedLayer):
    """Dense layer from width E to width H; models with E = H have none."""

    def __init__(self, config: AlbertConfig, dtype: Policy = None) -> None:
        super().__init__("bert/encoder", config.initializer_range, dtype)
        self._dense = self.dense(
            "embedding_hidden_mapping_in", config.embedding_size, config.hidden_size
        )

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Projects [rows, E] to [rows, H]."""
        return apply_dense(x, self._dense)
