# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of a model, counted from its configuration. Free of TensorFlow."""

from __future__ import annotations

from albert_tf.config import AlbertConfig

#: Cost of a training step in forward passes: one forward pass, and a backward pass that costs two.
PASSES = 3


def forward_flops(
    config: AlbertConfig,
    seq_length: float,
    num_predictions: int = 0,
    num_read: float | None = None,
) -> float:
    """Returns the operations of the matrix products in the forward pass of one sequence.

    A product [m, k] x [k, n] counts 2 m k n. Sharing weights saves none of them. Element-wise
    operations, less than a hundredth of the total, are not counted, as usual for model FLOP/s.

    Args:
      config: the architecture.
      seq_length: S, padding included; the mean if it varies.
      num_predictions: P, positions that the masked-language-model head predicts; 0 for a model
        without the pretraining heads.
      num_read: positions whose outputs are read, the only ones that the last layer computes; see
        `AlbertEncoder.call`. None: all, but with predictions only these and that of [CLS].
    """
    e, h, f = config.embedding_size, config.hidden_size, config.intermediate_size
    s = seq_length
    if num_read is None:
        num_read = num_predictions + 1 if num_predictions else s

    def layer(read: float) -> float:
        return s * 2 * h * h + read * (2 * h * h + 2 * h * f) + 2 * read * s * h

    projection = 0 if e == h else s * e * h
    others = config.num_hidden_layers * config.inner_group_num - 1
    products = others * layer(s) + layer(num_read) + projection + h * h
    if num_predictions:
        products += num_predictions * (h * e + e * config.vocab_size) + 2 * h
    return 2 * products


def training_flops(config: AlbertConfig, *args: float, **kwargs: float) -> float:
    """Returns the operations of a training step for one sequence; see `forward_flops`."""
    return PASSES * forward_flops(config, *args, **kwargs)
