# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Embeddings of another size with the same outputs, for optimizers whose steps do not follow it.

LAMB's steps are proportional to a weight's norm, and at high rates norms grow. AdamW's steps are as
large as its learning rate: on embeddings that are many times larger than new ones they hardly show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig

_WORDS = "bert/embeddings/word_embeddings"
#: Their sum is normalised, so that only their proportions matter.
_EMBEDDINGS = (
    _WORDS,
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
)
#: What the masked LM multiplies with the word embeddings.
_MASKED_LM = (
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/LayerNorm/beta",
)


def rescale_embeddings(
    weights: Mapping[str, np.ndarray], config: AlbertConfig
) -> dict[str, np.ndarray]:
    """Brings the word embeddings to about the standard deviation of new ones.

    Embeddings of pieces, positions and types are divided by a power of two, and gain and bias of
    the masked LM's normalisation multiplied by it: no mantissa changes, and no output but for the
    epsilon in the embeddings' normalisation.

    Args:
      weights: float32 arrays by the names of the TF1 release; the masked LM's need not be there.
      config: of the model; its `initializer_range` is aimed at.

    Returns:
      All of the weights, float32; those that do not change are the same arrays.
    """
    ratio = float(np.std(weights[_WORDS], dtype=np.float64)) / config.initializer_range
    factor = np.float32(2.0 ** round(math.log2(ratio))) if ratio > 0 else np.float32(1)
    factors = {**dict.fromkeys(_EMBEDDINGS, 1 / factor), **dict.fromkeys(_MASKED_LM, factor)}
    return {
        name: value * factors[name] if name in factors else value for name, value in weights.items()
    }
