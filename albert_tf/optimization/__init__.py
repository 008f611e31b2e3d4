# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""LAMB and AdamW with the release's numerics, and the learning rate schedule.

This file has only what flags need, as they are checked before TensorFlow is imported.
"""

import math

#: Learning rates of pretraining and their batch sizes: those of ALBERT (Lan et al., 2020) and of
#: BERT (Devlin et al., 2019).
_RATES = {"lamb": (0.00176, 4096), "adamw": (1e-4, 256)}
#: Names of optimizers, for `AlbertOptimizer`.
OPTIMIZERS = tuple(_RATES)


def scaled_learning_rate(batch_size: int, optimizer: str = "lamb") -> float:
    """Scales the rate of pretraining by √batch.

    Source: You et al., 2020, for LAMB; Malladi et al., 2022, On the SDEs and Scaling Rules for
    Adaptive Gradient Algorithms. RoBERTa's 6e-4 for 8,192 examples is on this line, too.
    """
    rate, size = _RATES[optimizer]
    return rate * math.sqrt(batch_size / size)
