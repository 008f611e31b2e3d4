# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights with which heads look at the neighboring tokens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.neighbor_attention import attend_to_neighbors

LENGTH = 24
CONFIG = AlbertConfig(
    vocab_size=500,
    embedding_size=64,
    hidden_size=96,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=64,
    max_position_embeddings=2 * LENGTH,
)


def encoder_of(config, seed=1):
    keras.utils.set_random_seed(seed)
    return AlbertEncoder(config)


def attention(encoder, x, block=0):
    """Returns the probabilities of the heads of a block for x [S, H], [heads, S, S]."""
    config, weights = encoder.config, encoder.named_weights()
    kernels = {}
    for part in ("query", "key"):
        names = [name for name in weights if name.endswith(f"attention_1/self/{part}/kernel")]
        kernels[part] = weights[names[block]].numpy()
    size = config.hidden_size // config.num_attention_heads
    query, key = ((x @ kernels[part]).reshape(len(x), -1, size) for part in ("query", "key"))
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(size)
    return tf.nn.softmax(scores, -1).numpy()


def embedded(encoder):
    """Returns the input of the first layer for random words, [S, H]."""
    ids = np.random.default_rng(0).integers(5, encoder.config.vocab_size, [1, LENGTH])
    return encoder.embed({"input_word_ids": tf.constant(ids, tf.int32)}).numpy()[0]


def mean_probability(probabilities, offset):
    """Returns the mean probability of the token at an offset, far from both ends."""
    return np.mean([probabilities[i, i + offset] for i in range(3, LENGTH - 3)])


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"embedding_size": 96},  # No projection.
        {"embedding_size": 128},
        {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4},
    ],
    ids=["projected", "equal", "wide", "small preset"],
)
def test_the_first_heads_look_at_the_previous_and_the_next_token(sizes):
    encoder = encoder_of(dataclasses.replace(CONFIG, **sizes))
    before = attention(encoder, embedded(encoder))
    attend_to_neighbors(encoder)
    after = attention(encoder, embedded(encoder))
    for head, offset in enumerate((-1, 1)):
        assert mean_probability(before[head], offset) < 0.06
        assert mean_probability(after[head], offset) > 0.4
        assert mean_probability(after[head], -offset) < 0.05
    # The other heads still look at all tokens alike.
    assert after[2:].max() < 0.15


def test_only_positions_projection_queries_and_keys_change_and_no_random_numbers_are_drawn():
    encoder, same = encoder_of(CONFIG), encoder_of(CONFIG)
    before = {name: weight.numpy() for name, weight in encoder.named_weights().items()}
    attend_to_neighbors(encoder)
    attend_to_neighbors(same)
    changed = set()
    for name, weight in encoder.named_weights().items():
        np.testing.assert_array_equal(weight, same.named_weights()[name])
        if (weight.numpy() != before[name]).any():
            changed.add(name)
    layer = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self"
    assert changed == {
        "bert/embeddings/position_embeddings",
        "bert/encoder/embedding_hidden_mapping_in/kernel",
        f"{layer}/query/kernel",
        f"{layer}/key/kernel",
    }


@pytest.mark.parametrize("small", [{"embedding_size": 3}, {"num_attention_heads": 96}], ids=str)
def test_models_too_small_for_sinusoids_are_refused(small):
    with pytest.raises(AlbertError, match=r"needs heads of size 2 or more .* leave it out"):
        attend_to_neighbors(encoder_of(dataclasses.replace(CONFIG, **small)))
