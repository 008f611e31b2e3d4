# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertClassifier: the encoder with a linear layer on the pooled output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel, first_position
from albert_tf.modeling.heads import ClassificationHead
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.layers import Policy


@keras.utils.register_keras_serializable(package="albert_tf")
class AlbertClassifier(AlbertModel):
    """Sequence classification or regression (official `run_classifier`).

    Called with the encoder's dict. Returns a dict: `logits` float32 [B, num_labels] and
    `pooled_output` float32 [B, H].

    Args:
      config: the architecture.
      num_labels: number of classes; 1 for regression.
      dropout_rate: dropout on the pooled output.
    """

    def __init__(
        self,
        config: AlbertConfig,
        num_labels: int,
        dropout_rate: float = 0.1,
        dtype: Policy = None,
        name: str | None = "albert_classifier",
    ) -> None:
        super().__init__(config, dtype, name)
        self.num_labels = num_labels
        self.dropout_rate = dropout_rate
        self.encoder = AlbertEncoder(config, dtype)
        self.head = ClassificationHead(num_labels, config.hidden_size, dtype=dtype)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, ready for JSON."""
        own = {"num_labels": self.num_labels, "dropout_rate": self.dropout_rate}
        return {**super().get_config(), **own}

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Classifies a batch; see the class."""
        outputs = self.encoder(inputs, training=training, select=first_position)
        pooled = outputs["pooled_output"]
        return {
            "logits": self.head(dropout(pooled, self.dropout_rate, training)),
            "pooled_output": pooled,
        }
