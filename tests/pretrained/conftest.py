# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model bundled under the default's name, made as the real one is."""

from __future__ import annotations

import json

import pytest

import albert_tf
from albert_tf import pretrained
from albert_tf.export.conversion import ConversionOptions, convert
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2

WORDS = ["sun", "rain", "river", "stone", "bread", "window", "fine", "awful"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = albert_tf.AlbertConfig(
    vocab_size=len(PIECES),
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)


def bundle(folder):
    """Puts a model with random weights into `folder`, under the default's name."""
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(PIECES) + "\n")
    tokenizer = Tokenizer.from_file(str(vocabulary))
    weights = {k: v.numpy() for k, v in AlbertPretrainer(CONFIG).named_weights().items()}
    write_tf2(str(folder / "run"), CONFIG, tokenizer, weights)
    target = folder / "pretrained" / pretrained.DEFAULT
    convert(str(folder / "run"), "hf", str(target), ConversionOptions(weights_dtype="float16"))
    (target / pretrained.MANIFEST_FILE).write_text(json.dumps({"name": pretrained.DEFAULT}))
    return target


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """The folder of a small model that goes by the default's name in this test."""
    target = bundle(tmp_path)
    monkeypatch.setattr(pretrained, "FOLDER", str(target.parent))
    return target
