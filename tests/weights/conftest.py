# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden models of other programs, and a small model with groups and inner groups."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.support.builders import tiny_config
from tests.support.releases import write_archive
from tests.support.weights import GOLDEN


@pytest.fixture
def tf1_tiny():
    """A checkpoint that the TF1 release's programs trained, with its outputs."""
    return GOLDEN / "tf1_tiny"


@pytest.fixture
def hf_tiny():
    """A folder that Hugging Face's library wrote, with its outputs."""
    return GOLDEN / "hf_tiny"


@pytest.fixture
def tf1_archive(tmp_path):
    """The TF1 checkpoint as a release."""
    return write_archive(tmp_path / "albert_tiny.tar.gz")


@pytest.fixture(scope="session")
def grouped():
    """Two groups of two blocks each, with weights that are all different; not to be changed."""
    config = tiny_config(
        23, embedding_size=4, hidden_size=8, num_hidden_layers=4, intermediate_size=12,
        num_hidden_groups=2, inner_group_num=2, max_position_embeddings=10,
    )  # fmt: skip
    model = AlbertPretrainer(config)
    rng = np.random.default_rng(5)
    for variable in model.named_weights().values():
        variable.assign(rng.normal(size=variable.shape).astype(np.float32))
    return model


@pytest.fixture
def inputs():
    """A batch for `grouped`."""
    rng = np.random.default_rng(6)
    return {
        "input_word_ids": tf.constant(rng.integers(0, 23, [2, 7]), tf.int32),
        "input_mask": tf.constant([[1] * 7, [1] * 5 + [0] * 2]),
        "input_type_ids": tf.constant([[0] * 3 + [1] * 4] * 2),
        "masked_lm_positions": tf.constant([[1, 4], [2, 3]]),
    }


@pytest.fixture
def released_model():
    """The SentencePiece model of the English releases."""
    shared = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("ALBERT_DATA_DIR", shared)) / "spm" / "30k-clean.model"
    if not path.exists():
        pytest.skip(f"{path} does not exist")
    return str(path)
