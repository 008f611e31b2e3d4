# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Small masked records with a manifest, and a model for them."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from tests.support.builders import tiny_config

LENGTH, PREDICTIONS, VOCAB, MASK = 24, 4, 60, 4


@pytest.fixture(scope="session")
def config():
    sizes = {"embedding_size": 32, "hidden_size": 64, "num_attention_heads": 4}
    return tiny_config(VOCAB, **sizes, intermediate_size=128, max_position_embeddings=LENGTH)


@pytest.fixture
def write_records(tmp_path):
    """Writes records of random tokens into tmp_path; returns the path of their shard."""

    def write(examples, vocab_size=VOCAB, **options):
        rng = np.random.default_rng(0)
        ids = rng.integers(5, VOCAB, (examples, LENGTH))
        places = np.tile(np.arange(1, LENGTH), (examples, 1))
        positions = np.sort(rng.permuted(places, axis=1)[:, :PREDICTIONS], axis=1)
        masked = ids.copy()
        np.put_along_axis(masked, positions, MASK, 1)
        ones = np.ones_like(ids)
        columns = {
            "input_ids": masked,
            "input_mask": ones,
            "segment_ids": ones * (np.arange(LENGTH) >= LENGTH // 2),
            "token_boundary": ones,
            "masked_lm_positions": positions,
            "masked_lm_ids": np.take_along_axis(ids, positions, 1),
            "masked_lm_weights": np.ones(positions.shape, np.float32),
            "next_sentence_labels": rng.integers(0, 2, examples),
        }
        features = records.pretraining_features(LENGTH, PREDICTIONS)
        path = str(tmp_path / "examples.tfrecord")
        shard = records.write_shard(path, records.encode_examples(columns, features))
        tokenizer = {"vocab_size": vocab_size}
        Manifest("pretraining", features, [shard], tokenizer, options, {}).save(str(tmp_path))
        return path

    return write
