# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model bundled under the default's name, in the same way as the real one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from albert_tf import pretrained
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights.checkpoint import write_tf2
from tests.support.builders import tiny_config, vocabulary, write_tokenizer
from tests.support.releases import write_archive
from tests.support.web_server import serving

WORDS = ["sun", "rain", "river", "stone", "bread", "window", "fine", "awful"]
PIECES = vocabulary(WORDS)
CONFIG = tiny_config(len(PIECES), max_position_embeddings=64)


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """The folder of a model with random weights that has the default's name in this test."""
    tokenizer = write_tokenizer(tmp_path, WORDS)
    weights = {k: v.numpy() for k, v in AlbertPretrainer(CONFIG).named_weights().items()}
    write_tf2(str(tmp_path / "run"), CONFIG, tokenizer, weights)
    target = tmp_path / "pretrained" / pretrained.DEFAULT
    halves = {k: v.astype(np.float16) for k, v in weights.items()}
    write_hugging_face(str(target), CONFIG, tokenizer, halves)
    (target / pretrained.MANIFEST_FILE).write_text(json.dumps({"name": pretrained.DEFAULT}))
    monkeypatch.setattr(pretrained, "FOLDER", str(target.parent))
    return target


@pytest.fixture
def tf1_archive(tmp_path):
    """The TF1 checkpoint as a release."""
    return write_archive(tmp_path / "albert_tiny.tar.gz")


@pytest.fixture
def server():
    """A web server on loopback; see tests.support.web_server."""
    with serving() as running:
        yield running
