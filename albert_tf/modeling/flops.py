# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of a model, counted from its configuration. Free of TensorFlow."""

from __future__ import annotations

from albert_tf.config import AlbertConfig

#: Training costs as much as so many forward passes: one forward, and one backward that costs two.
PASSES = 3


def forward_flops(config: AlbertConfig, seq_length: float, num_predictions: int = 0) -> float:
    """Operations of the matrix products in one sequence's forward pass.

    A product [m, k] x [k, n] counts 2 m k n. Sharing weights saves none of them. Element-wise
    work, less than a hundredth of the whole, is left out, as is customary for model FLOP/s.

    Args:
      config: the architecture.
      seq_length: S, padding included; a mean if it varies.
      num_predictions: P, positions the masked-language-model head predicts; 0: no pretraining
        heads at all.
    """
    e, h, f, s = (
        config.embedding_size,
        config.hidden_size,
        config.intermediate_size,
        seq_length,
    )
    layer = s * (4 * h * h + 2 * h * f) + 2 * s * s * h
    projection = 0 if e == h else s * e * h
    products = config.num_hidden_layers * config.inner_group_num * layer + projection + h * h
    if num_predictions:
        products += num_predictions * (h * e + e * config.vocab_size) + 2 * h
    return 2 * products


def training_flops(config: AlbertConfig, seq_length: float, num_predictions: int = 0) -> float:
    """Operations of one sequence's training step; see PASSES."""
    return PASSES * forward_flops(config, seq_length, num_predictions)
