# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A tokenizer of letters, and the configuration of a tiny model for it."""

import pytest

from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from tests.support.builders import tiny_config, vocabulary, write_tokenizer

LETTERS = "abcdefghij"
CONFIG = tiny_config(len(vocabulary(LETTERS)), max_position_embeddings=64)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("letters"), LETTERS)


@pytest.fixture
def task(tokenizer):
    """A classification with two labels and without dropout."""
    return TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 64), 0.0)
