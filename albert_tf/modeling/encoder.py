# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertEncoder: embeddings, transformer and pooler as one Keras model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.attention import additive_mask
from albert_tf.modeling.embeddings import EmbeddingProjection, Embeddings
from albert_tf.modeling.heads import Pooler
from albert_tf.modeling.layers import Policy
from albert_tf.modeling.transformer import Transformer


class AlbertModel(tf.keras.Model):
    """What the encoder and the models around it have in common: their configuration.

    Args:
      config: the architecture.
      dtype: Keras precision policy, such as "mixed_bfloat16"; None means the global one.
      name: name of the Keras model.
    """

    def __init__(self, config: AlbertConfig, dtype: Policy = None, name: str | None = None) -> None:
        super().__init__(dtype=dtype, name=name, autocast=False)
        self.config = config

    def named_weights(self) -> dict[str, tf.Variable]:
        """Variables by their name in the TF1 release, in its order of creation."""
        named: dict[str, tf.Variable] = {}
        for layer in self.layers:
            named.update(layer.named_weights())
        return named

    def get_config(self) -> dict[str, Any]:
        """Returns what `from_config` needs to make this model again, ready for JSON."""
        policy = tf.keras.mixed_precision.Policy
        return {
            "config": self.config.to_dict(),
            "dtype": self.dtype_policy.name if isinstance(self.dtype_policy, policy) else None,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> AlbertModel:
        """Makes a model from what `get_config` returned."""
        del custom_objects
        return cls(**{**config, "config": AlbertConfig.from_dict(config["config"])})


class AlbertEncoder(AlbertModel):
    """The ALBERT encoder (paper section 3; official `modeling.AlbertModel`).

    Called with a dict of int32 [B, S] tensors: `input_word_ids`, and optionally `input_mask`
    (default: ones) and `input_type_ids` (default: zeros). Returns a dict:

      sequence_output: [B, S, H] of the last layer, in the compute type.
      pooled_output: float32 [B, H].
      encoder_outputs: list of the [B, S, H] outputs of all layers, in the compute type. (What the
        first layer gets is given by `embed`.)

    Example:
      encoder = AlbertEncoder(AlbertConfig.from_preset("albert_base_v2"))
      encoder({"input_word_ids": tf.constant([[2, 13, 1, 3]])})["pooled_output"]
    """

    def __init__(
        self, config: AlbertConfig, dtype: Policy = None, name: str | None = "albert_encoder"
    ) -> None:
        super().__init__(config, dtype, name)
        self.embeddings = Embeddings(config, dtype)
        self.projection = None
        if config.embedding_size != config.hidden_size:
            self.projection = EmbeddingProjection(config, dtype)
        self.transformer = Transformer(config, dtype)
        self.pooler = Pooler(config, dtype)
        self.built = True

    def embed(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """The input of the first layer, [B, S, H] in the compute type; `inputs` as in `call`."""
        word_ids, type_ids = inputs["input_word_ids"], inputs.get("input_type_ids")
        type_ids = tf.zeros_like(word_ids) if type_ids is None else type_ids
        x = self.embeddings(word_ids, type_ids, training=training)  # [B, S, E]
        if self.projection is None:
            return x
        length = x.shape[1] or tf.shape(x)[1]
        x = self.projection(tf.reshape(x, [-1, self.config.embedding_size]))  # [B * S, H]
        return tf.reshape(x, [-1, length, self.config.hidden_size])

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, Any]:
        """Encodes a batch; see the class."""
        mask = inputs.get("input_mask")
        mask = tf.ones_like(inputs["input_word_ids"]) if mask is None else mask
        x = self.embed(inputs, training)
        length = x.shape[1] or tf.shape(x)[1]
        # Two dimensions from here on: every product is one plain matrix product.
        x = tf.reshape(x, [-1, self.config.hidden_size])  # [B * S, H]
        outputs = self.transformer(x, additive_mask(mask), training=training)
        outputs = [tf.reshape(y, [-1, length, self.config.hidden_size]) for y in outputs]
        return {
            "sequence_output": outputs[-1],
            "pooled_output": self.pooler(outputs[-1]),
            "encoder_outputs": outputs,
        }
