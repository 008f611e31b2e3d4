# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertPretrainer: the encoder with the masked-language-model and sentence-order heads."""

from __future__ import annotations

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.modeling.classifier import ClassificationHead
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel, check_inputs, serializable
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.kernels.dense import ACTIVATIONS, affine_terms, layer_norm
from albert_tf.modeling.layers import Inputs, Outputs, Policy, WeightedLayer, dimension


class MaskedLanguageModelHead(WeightedLayer):
    """Dense H→E, activation, layer normalisation, product with the tied embedding table.

    Its methods take the encoder's output [B, P, H] at the positions to predict, and `table`, the
    word embeddings, float32 [V, E].
    """

    def __init__(self, config: AlbertConfig, dtype: Policy) -> None:
        super().__init__("cls/predictions", config.initializer_range, dtype)
        size = config.embedding_size
        self._activation = ACTIVATIONS[config.hidden_act]
        self._dense = self.dense("transform/dense", config.hidden_size, size)
        self._norm = self.norm("transform/LayerNorm", size)
        self._bias = self.vector("output_bias", config.vocab_size)

    def call(self, sequence_output: Tensor, table: Tensor) -> Tensor:
        """Returns float32 logits [B, P, V]."""
        count = dimension(sequence_output, 1)
        logits = tf.cast(self._products(sequence_output, table), tf.float32)
        logits = tf.nn.bias_add(logits, self._bias)
        return tf.reshape(logits, [-1, count, logits.shape[1]])

    def losses(self, sequence_output: Tensor, table: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Compares the predictions with the right tokens, without keeping float32 logits.

        `ids` are the right tokens, int32 [B, P]. Returns the cross entropies, float32 [B, P], and
        whether the right token is the most probable one, bool [B, P].
        """
        products = self._products(sequence_output, table)
        values = cross_entropy(products, self._bias, tf.reshape(ids, [-1]))
        return tuple(tf.reshape(value, tf.shape(ids)) for value in values)

    def _products(self, sequence_output: Tensor, table: Tensor) -> Tensor:
        """Returns the logits without bias, [B * P, V] in the compute type."""
        x = tf.reshape(sequence_output, [-1, sequence_output.shape[2]])  # [B * P, H]
        kernel, bias = (tf.cast(weight, x.dtype) for weight in self._dense)
        x = self._activation(affine_terms(x, kernel, bias))
        x = layer_norm([x], *self._norm)  # [B * P, E]
        return tf.matmul(x, tf.cast(table, x.dtype), transpose_b=True)


@serializable
class AlbertPretrainer(AlbertModel):
    """The model that pretraining trains (paper section 3.1; official `run_pretraining`).

    Called with the encoder's dict and optionally `masked_lm_positions` and `masked_lm_ids`, the
    right tokens, both int32 [B, P]. Returns a dict:

      sequence_output: [B, S, H] in the compute type; without `masked_lm_positions` only.
      pooled_output: float32 [B, H].
      mlm_logits: float32 [B, P, V], or [B, S, V] without `masked_lm_positions`; without
        `masked_lm_ids` only.
      mlm_losses: the cross entropies of `masked_lm_ids`, float32 [B, P]; with them only.
      mlm_correct: whether they are the most probable tokens, bool [B, P]; with them only.
      sop_logits: float32 [B, 2]; class 1 means that the segments are swapped.
    """

    def __init__(
        self, config: AlbertConfig, dtype: Policy = None, name: str | None = "albert_pretrainer"
    ) -> None:
        super().__init__(config, dtype, name)
        self.encoder = AlbertEncoder(config, dtype)
        self.mlm_head = MaskedLanguageModelHead(config, dtype)
        self.sop_head = ClassificationHead(
            2, config.hidden_size, "cls/seq_relationship", config.initializer_range
        )

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Predicts masked tokens and sentence order; see the class."""
        check_inputs(inputs)
        positions = inputs.get("masked_lm_positions")
        if positions is None:
            outputs = self.encoder(inputs, training=training)
            sequence = outputs["sequence_output"]
            kept = {"sequence_output": sequence}
        else:
            # The gradient computes with the positions; with int32 it would run on the CPU.
            positions = tf.cast(positions, tf.int64)
            cls = tf.zeros_like(positions[:, :1])
            positions = tf.concat([cls, positions], axis=1)  # [B, 1 + P]
            outputs = self.encoder(
                inputs, training, select=lambda x: tf.gather(x, positions, batch_dims=1)
            )
            sequence = outputs["sequence_output"][:, 1:]
            kept = {}
        table, ids = self.encoder.embeddings.word_embeddings, inputs.get("masked_lm_ids")
        if ids is None:
            kept["mlm_logits"] = self.mlm_head(sequence, table)
        else:
            losses, correct = self.mlm_head.losses(sequence, table, ids)
            kept.update(mlm_losses=losses, mlm_correct=correct)
        pooled = outputs["pooled_output"]
        return {**kept, "pooled_output": pooled, "sop_logits": self.sop_head(pooled)}
