# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The feed-forward block, and the stack of layers with groups of shared weights."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.attention import Attention, Select
from albert_tf.modeling.kernels.activations import get_activation
from albert_tf.modeling.kernels.dropout import affine_terms_with_dropout
from albert_tf.modeling.kernels.graph_mode import current_mode
from albert_tf.modeling.kernels.layer_norm import layer_norm
from albert_tf.modeling.kernels.linear import affine_terms, shared
from albert_tf.modeling.kernels.recompute import recomputed
from albert_tf.modeling.layers import PackedWeights, Policy, WeightedLayer


class FeedForward(WeightedLayer):
    """Position-wise network H→F→H, with layer normalisation after the residual sum."""

    def __init__(self, config: AlbertConfig, prefix: str, dtype: Policy = None) -> None:
        super().__init__(prefix, config.initializer_range, dtype)
        size, inner = config.hidden_size, config.intermediate_size
        self._activation = get_activation(config.hidden_act)
        self._dropout_rate = config.hidden_dropout_prob
        self._intermediate = self.dense("ffn_1/intermediate/dense", size, inner)
        self._output = self.dense("ffn_1/intermediate/output/dense", inner, size)
        self._norm = self.norm("LayerNorm_1", size)

    def packed_weights(self, uses: int = 1) -> list[PackedWeights]:
        """Casts both kernels and biases once, and returns a copy for each of `uses` layers."""
        return shared((*self._intermediate, *self._output), self.compute_dtype, uses)

    def call(self, x: tf.Tensor, weights: PackedWeights, training: bool = False) -> tf.Tensor:
        """Applies the block to x, see `Attention`; `weights` is a copy from `packed_weights`."""
        inner_kernel, inner_bias, output_kernel, output_bias = weights
        inner = affine_terms(x, inner_kernel, inner_bias, training)  # [..., F]
        inner = self._activation(inner, training)
        output = affine_terms_with_dropout(
            inner, output_kernel, output_bias, self._dropout_rate, training
        )
        return layer_norm([*output, x], *self._norm, training=training)


#: The kind of a block, its group, and its place in the group.
_Block = tuple[type[WeightedLayer], int, int]


def _stack(config: AlbertConfig) -> Iterator[tuple[_Block, _Block]]:
    """Yields the two blocks of each step of the stack."""
    for layer in range(config.num_hidden_layers):
        for inner in range(config.inner_group_num):
            attention = Attention, config.attention_group(layer), inner
            yield attention, (FeedForward, config.ffn_group(layer), inner)


def _blocks(config: AlbertConfig) -> list[_Block]:
    """Returns all blocks in order of first use."""
    return list(dict.fromkeys(itertools.chain(*_stack(config))))


class Transformer(keras.layers.Layer):
    """L layers over groups of shared weights (paper section 3.1).

    Variables are named by group as in the TF1 release: `.../group_g/inner_group_i/attention_1/...`
    and `.../ffn_1/...`. A part that is not shared has one group per layer, so that, for example,
    with `parameter_sharing="attention"` layer l uses the attention of `group_0` and the
    feed-forward network of `group_l`.
    """

    def __init__(self, config: AlbertConfig, dtype: Policy = None) -> None:
        super().__init__(name="bert_encoder_transformer", dtype=dtype, autocast=False)
        self._config = config
        #: The blocks in order of first use.
        self.blocks: list[WeightedLayer] = []
        for kind, group, inner in _blocks(config):
            prefix = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
            self.blocks.append(kind(config, prefix, dtype))
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Returns the variables by official name, in the order of creation."""
        named: dict[str, tf.Variable] = {}
        for block in self.blocks:
            named.update(block.named_weights())
        return named

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool = False, select: Select = None
    ) -> list[tf.Tensor]:
        """Applies the stack to x, see `Attention`; returns the output of every step, like x.

        The last step computes only what `select` chooses. `GraphMode.layers` can shorten the stack.
        """
        config, blocks = self._config.with_layers(current_mode().layers), _blocks(self._config)
        steps = [tuple(map(blocks.index, step)) for step in _stack(config)]
        uses = collections.Counter(index for step in steps for index in step)
        # With recomputation a layer hands its weights to the next layer that shares them.
        chained = current_mode().recompute
        packed = [
            block.packed_weights(1 if chained else uses[index])
            for index, block in enumerate(self.blocks)
        ]
        outputs = []
        for i, step in enumerate(steps, 1):
            chosen = select if i == len(steps) else None
            layer = functools.partial(self._layer, step, mask, training, chosen)
            x, *weights = recomputed(layer, x, *(packed[block].pop() for block in step))
            if chained:
                for block, block_weights in zip(step, weights):
                    packed[block].append(block_weights)
            outputs.append(x)
        return outputs

    def _layer(
        self,
        step: tuple[int, int],
        mask: tf.Tensor,
        training: bool,
        select: Select,
        x: tf.Tensor,
        attention_weights: PackedWeights,
        ffn_weights: PackedWeights,
    ) -> tf.Tensor:
        attention, ffn = (self.blocks[block] for block in step)
        x = attention(x, mask, attention_weights, training=training, select=select)
        return ffn(x, ffn_weights, training=training)
