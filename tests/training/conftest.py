# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Small pretraining records that tiny models can learn from."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from albert_tf.data import records
from tests.support import builders

LENGTH, PREDICTIONS, VOCAB, MASK = 16, 3, 40, 4
#: Settings for tests that do not depend on what is trained; saves a third of the tracing.
HEADS_ALONE = {"freeze": "encoder"}
NO_DROPOUT = builders.tiny_config(VOCAB, max_position_embeddings=LENGTH)
TINY_CONFIG = dataclasses.replace(
    NO_DROPOUT, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
)


@pytest.fixture(scope="session")
def tiny_config():
    return TINY_CONFIG


def pretraining_columns(examples: int, seed: int) -> dict[str, np.ndarray]:
    """Random records with a varying number of predictions and of real tokens."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB, (examples, LENGTH))
    used = rng.integers(8, LENGTH + 1, examples)
    mask = (np.arange(LENGTH) < used[:, None]).astype(np.int64)
    predictions = rng.integers(1, PREDICTIONS + 1, examples)
    weights = (np.arange(PREDICTIONS) < predictions[:, None]).astype(np.float32)
    positions = np.sort(rng.permuted(np.tile(np.arange(1, 8), (examples, 1)), axis=1), axis=1)
    positions = positions[:, :PREDICTIONS] * weights.astype(np.int64)
    return {
        "input_ids": ids * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(LENGTH) >= 6) * mask,
        "token_boundary": mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": np.take_along_axis(ids, positions, 1) * weights.astype(np.int64),
        "masked_lm_weights": weights,
        "next_sentence_labels": rng.integers(0, 2, examples),
    }


def write_records(path, columns: dict[str, np.ndarray]) -> str:
    features = records.pretraining_features(LENGTH, PREDICTIONS)
    records.write_shard(str(path), records.encode_examples(columns, features))
    return str(path)


@pytest.fixture(scope="session")
def chance_records(tmp_path_factory):
    """40,000 records that teach nothing but the frequencies of the pieces."""
    columns = pretraining_columns(40_000, seed=9)
    masked = columns["masked_lm_weights"] > 0
    rows = np.nonzero(masked)[0]
    columns["input_ids"][rows, columns["masked_lm_positions"][masked]] = MASK
    return write_records(tmp_path_factory.mktemp("chance") / "records.tfrecord", columns)


@pytest.fixture(scope="session")
def record_paths(tmp_path_factory):
    """Three shards of unequal size, 101 records in all."""
    folder = tmp_path_factory.mktemp("records")
    return [
        write_records(folder / f"shard-{i}.tfrecord", pretraining_columns(examples, seed=i))
        for i, examples in enumerate((40, 7, 54))
    ]


@pytest.fixture(scope="session")
def make(record_paths):
    """Makes a pretraining run on these records; see `runs.make_run`."""
    from tests.training.runs import make_run  # Imports the Estimator.

    return functools.partial(make_run, record_paths)
