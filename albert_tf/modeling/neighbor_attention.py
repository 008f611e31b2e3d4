# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights with which two attention heads look at the previous and the next token.

With random weights, every head attends to all tokens alike. A small model then spends most of a
short run on finding out which positions are close to each other. The weights here give it that at
the start: positions are sinusoids (Vaswani et al., 2017, section 3.5), for which a rotation is a
shift, and query and key of a head differ by the rotation for one offset. All weights are trained
like any others. Structured initial attention: Trockman & Kolter, 2023, "Mimetic initialization of
self-attention layers". Its effect: docs/results/tuning.md.
"""

from __future__ import annotations

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.modeling.encoder import AlbertEncoder

#: The tokens that the first heads look at, relative to their own. Others keep random weights.
_OFFSETS = (-1, 1)
#: Shortest and longest wavelength of the sinusoids, in tokens.
_WAVELENGTHS = (3.0, 64.0)
#: Standard deviation of the sinusoids, relative to that of the word embeddings.
_AMPLITUDE = 1.5
#: Attention score (before the softmax) of the token at the offset; a random one has 0.
_PEAK = 12.0


def attend_to_neighbors(encoder: AlbertEncoder) -> None:
    """Changes random weights so that two heads look at the previous and the next token.

    Assigns the position embeddings, the projection of the embeddings (if there is one), and query
    and key of every attention block. The result depends on the random weights alone. Raises
    AlbertError if heads or embeddings are too small for a sinusoid.
    """
    config, weights = encoder.config, encoder.named_weights()
    head_size = config.hidden_size // config.num_attention_heads
    # The other half of the embedding, at least, is left to the words.
    count = min(head_size, config.embedding_size // 2) // 2
    rates = 2 * np.pi / np.geomspace(*_WAVELENGTHS, count)  # Angles per token, [sinusoids].
    if not count:
        raise AlbertError(
            f"`neighbor_attention` needs heads of size 2 or more (hidden_size / "
            f"num_attention_heads, here {config.hidden_size} / {config.num_attention_heads}) and "
            f"embedding_size 4 or more (here {config.embedding_size}); give another model, or "
            "leave it out."
        )
    used = 2 * count  # A sine and a cosine each.
    angles = np.arange(config.max_position_embeddings)[:, None] * rates
    waves = np.zeros([len(angles), config.embedding_size])
    waves[:, :used:2], waves[:, 1:used:2] = np.sin(angles), np.cos(angles)
    positions = weights["bert/embeddings/position_embeddings"]
    positions.assign(_AMPLITUDE * config.initializer_range * np.sqrt(2) * waves)
    unproject = np.eye(config.hidden_size)
    projection = weights.get("bert/encoder/embedding_hidden_mapping_in/kernel")
    if projection is not None:
        # A projection that keeps lengths, so that its transpose finds the positions again.
        left, _, right = np.linalg.svd(projection.numpy(), full_matrices=False)
        scale = np.sqrt(config.hidden_size / config.embedding_size)
        projection.assign(scale * left @ right)
        unproject = (left @ right).T / scale
    # Variance of words, segments and positions before the normalization of the embeddings.
    share = _AMPLITUDE**2 / (2 + used * _AMPLITUDE**2 / config.embedding_size)
    gain = np.sqrt(_PEAK * np.sqrt(head_size) / (used * share))
    for name, kernel in weights.items():
        if name.endswith(("attention_1/self/query/kernel", "attention_1/self/key/kernel")):
            value = kernel.numpy()
            for head, offset in zip(range(config.num_attention_heads), _OFFSETS):
                # Moves sinusoids, as rows, by a number of tokens.
                turns = rates * (-offset if "/key/" in name else 0)
                rotation = np.kron(np.diag(np.cos(turns)), np.eye(2))
                rotation += np.kron(np.diag(np.sin(turns)), [[0, -1], [1, 0]])
                columns = slice(head * head_size, head * head_size + used)
                value[:, columns] += gain * unproject[:, :used] @ rotation
            kernel.assign(value)
