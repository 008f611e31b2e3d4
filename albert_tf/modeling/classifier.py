# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models with a linear layer: a classifier, a choice among options, and a tagger."""

from __future__ import annotations

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import (
    INPUTS,
    AlbertEncoder,
    AlbertModel,
    check_inputs,
    first_position,
    serializable,
)
from albert_tf.modeling.kernels.dropout import dropout
from albert_tf.modeling.layers import Inputs, Outputs, Policy, WeightedLayer, dimension

#: Standard deviation with which the release's run_classifier, run_race and run_squad_v1 initialise
#: their heads, whatever the configuration says; run_pretraining and run_squad_v2 follow it.
HEAD_INITIALIZER_RANGE = 0.02


class ClassificationHead(WeightedLayer):
    """Linear layer in float32, on the pooled output or on each position.

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
        initializer_range: float = HEAD_INITIALIZER_RANGE,
    ) -> None:
        super().__init__(prefix, initializer_range)
        self._weights = self.matrix("output_weights", [num_labels, hidden_size])
        self._bias = self.vector("output_bias", num_labels)

    def call(self, x: Tensor) -> Tensor:
        """Maps float32 [..., H] to float32 logits [..., num_labels]."""
        # As one matrix: the gradient of a batch of products takes a detour by the CPU.
        rows = tf.reshape(x, [-1, x.shape[-1]])
        logits = tf.nn.bias_add(tf.matmul(rows, self._weights, transpose_b=True), self._bias)
        inner = [dimension(x, axis) for axis in range(1, x.shape.rank - 1)]
        return tf.reshape(logits, [-1, *inner, logits.shape[-1]])


@serializable
class AlbertClassifier(AlbertModel):
    """Sequence classification or regression (official `run_classifier`).

    Called with the encoder's dict. Returns a dict: `logits` float32 [B, num_labels].

    Args:
      config: the architecture.
      num_labels: number of classes; 1 for regression.
      dropout_rate: dropout on the pooled output.
    """

    ARGUMENTS = ("num_labels", "dropout_rate")

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
        self.head = ClassificationHead(num_labels, config.hidden_size)

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Classifies a batch; see the class."""
        outputs = self.encoder(inputs, training=training, select=first_position)
        x = dropout(outputs["pooled_output"], self.dropout_rate, training)
        return {"logits": self.head(x)}


@serializable
class AlbertMultipleChoice(AlbertClassifier):
    """Choice among options, with one encoder for all of them (official `race_utils.create_model`).

    Called with the encoder's dict, but with int32 [B, C, S] tensors: C options, each in its own
    sequence. C may vary from batch to batch; the weights do not depend on it. Returns a dict:
    `logits` float32 [B, C].

    Args:
      config: the architecture.
      dropout_rate: dropout on the pooled outputs.
    """

    ARGUMENTS = ("dropout_rate",)

    def __init__(
        self,
        config: AlbertConfig,
        dropout_rate: float = 0.1,
        dtype: Policy = None,
        name: str | None = "albert_multiple_choice",
    ) -> None:
        super().__init__(config, 1, dropout_rate, dtype, name)

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Scores the options of a batch; see the class."""
        check_inputs(inputs, "[batch, options, length]")
        choices, length = (dimension(inputs["input_word_ids"], axis) for axis in (1, 2))
        present = [name for name in INPUTS if inputs.get(name) is not None]
        rows = {name: tf.reshape(inputs[name], [-1, length]) for name in present}
        logits = super().call(rows, training=training)["logits"]
        return {"logits": tf.reshape(logits, [-1, choices])}


@serializable
class AlbertTagger(AlbertClassifier):
    """Classification of each position, with a linear layer on the last layer's output.

    Called with the encoder's dict. Returns a dict: `logits` float32 [B, S, num_labels].

    Args:
      config: the architecture.
      num_labels: number of tags.
      dropout_rate: dropout on the last layer's output.
    """

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Classifies the positions of a batch; see the class."""
        sequence = self.encoder(inputs, training=training)["sequence_output"]
        x = tf.cast(sequence, tf.float32)
        return {"logits": self.head(dropout(x, self.dropout_rate, training))}
