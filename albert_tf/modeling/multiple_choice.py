# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertMultipleChoice: the encoder reads each option, and a linear layer scores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import (
    INPUTS,
    AlbertEncoder,
    AlbertModel,
    check_inputs,
    first_position,
)
from albert_tf.modeling.heads import ClassificationHead
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.layers import Policy, dimension


@keras.utils.register_keras_serializable(package="albert_tf")
class AlbertMultipleChoice(AlbertModel):
    """Choice among options, with one encoder for all of them (official `race_utils.create_model`).

    Called with the encoder's dict, but with int32 [B, C, S] tensors: C options, each in its own
    sequence. C may vary from batch to batch; the weights do not depend on it. Returns a dict:
    `logits` float32 [B, C] and `pooled_output` float32 [B, C, H].

    Args:
      config: the architecture.
      dropout_rate: dropout on the pooled outputs.
    """

    def __init__(
        self,
        config: AlbertConfig,
        dropout_rate: float = 0.1,
        dtype: Policy = None,
        name: str | None = "albert_multiple_choice",
    ) -> None:
        super().__init__(config, dtype, name)
        self.dropout_rate = dropout_rate
        self.encoder = AlbertEncoder(config, dtype)
        self.head = ClassificationHead(1, config.hidden_size, dtype=dtype)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, ready for JSON."""
        return {**super().get_config(), "dropout_rate": self.dropout_rate}

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Scores the options of a batch; see the class."""
        check_inputs(inputs, "[batch, options, length]")
        choices, length = (dimension(inputs["input_word_ids"], axis) for axis in (1, 2))
        present = [name for name in INPUTS if inputs.get(name) is not None]
        rows = {name: tf.reshape(inputs[name], [-1, length]) for name in present}
        outputs = self.encoder(rows, training=training, select=first_position)
        pooled = outputs["pooled_output"]  # [B * C, H]
        scores = self.head(dropout(pooled, self.dropout_rate, training))  # [B * C, 1]
        return {
            "logits": tf.reshape(scores, [-1, choices]),
            "pooled_output": tf.reshape(pooled, [-1, choices, self.config.hidden_size]),
        }
