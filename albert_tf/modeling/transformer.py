# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The feed-forward block, and the stack of layers with groups of shared weights."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator

import tensorflow as tf
from tensorflow import Tensor

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.attention import Attention, Select
from albert_tf.modeling.kernels.dense import ACTIVATIONS, affine_terms, cast_for_layers, layer_norm
from albert_tf.modeling.kernels.dropout import affine_terms_with_dropout
from albert_tf.modeling.kernels.graph_mode import current_step
from albert_tf.modeling.kernels.recompute import recomputed, recomputes
from albert_tf.modeling.layers import Dense, Policy, WeightedLayer


class FeedForward(WeightedLayer):
    """Position-wise network H→F→H, with layer normalisation after the residual sum."""

    def __init__(self, config: AlbertConfig, prefix: str, dtype: Policy) -> None:
        super().__init__(prefix, config.initializer_range, dtype)
        size, inner = config.hidden_size, config.intermediate_size
        self._activation = ACTIVATIONS[config.hidden_act]
        self._dropout_rate = config.hidden_dropout_prob
        self._intermediate = self.dense("ffn_1/intermediate/dense", size, inner)
        self._output = self.dense("ffn_1/intermediate/output/dense", inner, size)
        self._norm = self.norm("LayerNorm_1", size)

    def weights_for_layers(self, uses: int) -> list[tuple[Dense, Dense]]:
        """Casts both dense layers' weights, and returns a copy for each of `uses` layers."""
        return cast_for_layers((self._intermediate, self._output), self.compute_dtype, uses)

    def call(self, x: Tensor, weights: tuple[Dense, Dense], training: bool = False) -> Tensor:
        """Applies the block to x, as `Attention` does; `weights` are from `weights_for_layers`."""
        intermediate, output = weights
        inner = self._activation(affine_terms(x, *intermediate))  # [..., F]
        terms = affine_terms_with_dropout(inner, *output, self._dropout_rate, training)
        return layer_norm([*terms, x], *self._norm)


#: The kind of a block, its group, and its place in the group.
_Block = tuple[type[WeightedLayer], int, int]


def _stack(config: AlbertConfig) -> Iterator[tuple[_Block, _Block]]:
    """Yields the two blocks of each step of the stack."""
    for layer in range(config.num_hidden_layers):
        for inner in range(config.inner_group_num):
            attention = Attention, config.group(layer, "attention"), inner
            yield attention, (FeedForward, config.group(layer, "ffn"), inner)


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
        self.blocks = [
            kind(config, f"bert/encoder/transformer/group_{group}/inner_group_{inner}", dtype)
            for kind, group, inner in _blocks(config)
        ]
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Returns the variables by official name, in the order of creation."""
        return {k: v for block in self.blocks for k, v in block.named_weights().items()}

    def call(
        self, x: Tensor, mask: Tensor, training: bool = False, select: Select = None
    ) -> list[Tensor]:
        """Applies the stack to x, see `Attention`; returns the output of every step, like x.

        The last step computes only what `select` chooses. A training step can shorten the stack,
        see TrainingStep.
        """
        step = current_step()
        config = self._config.with_layers(step.layers if step else None)
        pairs, blocks = [*_stack(config)], dict(zip(_blocks(self._config), self.blocks))
        uses = collections.Counter(itertools.chain(*pairs))
        # With recomputation a layer hands its weights to the next layer that shares them.
        weights = {
            place: block.weights_for_layers(1 if recomputes() else uses[place])
            for place, block in blocks.items()
        }
        outputs = []
        for i, pair in enumerate(pairs, 1):
            attention, ffn = (blocks[place] for place in pair)
            chosen = select if i == len(pairs) else None

            # Also called after this loop, by the backward pass: hence the defaults.
            def layer(x, weights, more, attention=attention, ffn=ffn, chosen=chosen) -> Tensor:
                x = attention(x, mask, weights, training=training, select=chosen)
                return ffn(x, more, training=training)

            x, *used = recomputed(layer, x, *(weights[place].pop() for place in pair))
            if recomputes():
                for place, block_weights in zip(pair, used):
                    weights[place].append(block_weights)
            outputs.append(x)
        return outputs
