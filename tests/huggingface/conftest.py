# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of neighbouring folders."""

import json

import pytest

from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from tests.pretrained.conftest import server
from tests.support.builders import tiny_config
from tests.support.weights import GOLDEN, weights_of
from tests.tokenization.conftest import small_model, wordpiece
from tests.weights.conftest import grouped, hf_tiny, released_model

__all__ = ["grouped", "hf_tiny", "released_model", "server", "small_model", "wordpiece"]

HEADS = GOLDEN / "hf_heads"


@pytest.fixture
def run(tmp_path):
    """Writes a model with random weights, as a run has it; returns its folder, and another."""

    def write(task_class, spec):
        tokenizer = Tokenizer.from_file(str(HEADS / "choice"))
        config = tiny_config(tokenizer.vocab_size, max_position_embeddings=64)
        task = task_class(config, tokenizer, spec)
        write_tf2(str(tmp_path / "run"), config, tokenizer, weights_of(task.build_model()))
        task.save_files(str(tmp_path / "run"))
        (tmp_path / "run" / "eval_results.json").write_text(json.dumps({"accuracy": 0.75}))
        return str(tmp_path / "run"), str(tmp_path / "hf")

    return write
