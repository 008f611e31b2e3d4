# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Rescales embeddings without changing the model's outputs, for fine-tuning with AdamW.

LAMB's steps are proportional to a weight's norm, and at high learning rates norms grow. AdamW's
steps do not depend on the norm: they hardly change embeddings many times larger than new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig

_WORDS = "bert/embeddings/word_embeddings"
#: Their sum is normalised, so only their proportions matter.
_EMBEDDINGS = (
    _WORDS,
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
)
#: Scale the masked LM's hidden states, which are multiplied with the word embeddings.
_MASKED_LM = (
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/LayerNorm/beta",
)


def rescale_embeddings(
    weights: Mapping[str, np.ndarray], config: AlbertConfig
) -> dict[str, np.ndarray]:
    """Scales the word embeddings to about the standard deviation of new ones.

    Embeddings of pieces, positions and types are divided by a power of two; gain and bias of the
    masked LM's normalisation are multiplied by it. No mantissa changes, and outputs change only by
    the epsilon in the embeddings' normalisation.

    Args:
      weights: float32 arrays by official name; the masked LM's may be missing.
      config: of the model; `initializer_range` is the target.

    Returns:
      All weights, float32; unchanged ones are the same arrays.
    """
    ratio = float(np.std(weights[_WORDS], dtype=np.float64)) / config.initializer_range
    factor = np.float32(2.0 ** round(math.log2(ratio))) if ratio > 0 else np.float32(1)
    factors = {**dict.fromkeys(_EMBEDDINGS, 1 / factor), **dict.fromkeys(_MASKED_LM, factor)}
    return {
        name: value * factors[name] if name in factors else value for name, value in weights.items()
    }
