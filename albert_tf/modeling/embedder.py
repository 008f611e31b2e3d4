# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A model that gives each text one vector."""

from __future__ import annotations

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import AlbertEncoder, AlbertModel, pooled, serializable
from albert_tf.modeling.layers import Inputs, Outputs, Policy


@serializable
class AlbertEmbedder(AlbertModel):
    """One vector for each text, see `pooled`.

    Called with the encoder's dict, int32 [B, S]. Returns a dict: `embedding` float32 [B, H].

    Args:
      config: the architecture.
      pooling: one of albert_tf.config.POOLINGS.
      normalize: divide each vector by its length, so that dot products are cosines.
    """

    ARGUMENTS = ("pooling", "normalize")

    def __init__(
        self,
        config: AlbertConfig,
        pooling: str = "mean",
        normalize: bool = True,
        dtype: Policy = None,
        name: str | None = "albert_embedder",
    ) -> None:
        super().__init__(config, dtype, name)
        self.pooling, self.normalize = pooling, normalize
        self.encoder = AlbertEncoder(config, dtype)

    def call(self, inputs: Inputs, training: bool = False) -> Outputs:
        """Embeds a batch; see the class."""
        vectors = pooled(self.encoder, inputs, self.pooling, training)
        return {"embedding": tf.math.l2_normalize(vectors, -1) if self.normalize else vectors}
