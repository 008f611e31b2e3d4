# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW with the release's numerics, and the learning rate schedule.

This file has only what flags need, as they are checked before TensorFlow is imported.
"""

import math

#: Names of optimizers, for `AlbertOptimizer`.
OPTIMIZERS = ("lamb", "adamw")
BASE_LEARNING_RATE = 0.00176
BASE_BATCH_SIZE = 4096


def scaled_learning_rate(batch_size: int) -> float:
    """Scales BASE_LEARNING_RATE, for BASE_BATCH_SIZE examples, by √batch (You et al., 2020)."""
    return BASE_LEARNING_RATE * math.sqrt(batch_size / BASE_BATCH_SIZE)
