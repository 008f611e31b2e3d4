# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertPretrainer: the encoder with the masked-language-model and sentence-order heads."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel, check_inputs
from albert_tf.modeling.heads import ClassificationHead, MaskedLanguageModelHead
from albert_tf.modeling.layers import Policy


@keras.utils.register_keras_serializable(package="albert_tf")
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
            2, config.hidden_size, "cls/seq_relationship", dtype, config.initializer_range
        )
        self.built = True

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
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
            of_cls = tf.zeros_like(positions[:, :1])
            positions = tf.concat([of_cls, positions], axis=1)  # [B, 1 + P]
            outputs = self.encoder(
                inputs, training, select=lambda x: tf.gather(x, positions, batch_dims=1)
            )
            sequence = outputs["sequence_output"][:, 1:]
            kept = {}
        table, ids = self.encoder.embeddings.word_embeddings, inputs.get("masked_lm_ids")
        if ids is None:
            kept["mlm_logits"] = self.mlm_head(sequence, table, training=training)
        else:
            losses, correct = self.mlm_head.losses(sequence, table, ids, training)
            kept.update(mlm_losses=losses, mlm_correct=correct)
        pooled = outputs["pooled_output"]
        return {**kept, "pooled_output": pooled, "sop_logits": self.sop_head(pooled)}
