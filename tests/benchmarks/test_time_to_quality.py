# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Time to quality: scores by whole words, training for a given time, and the plot."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.weights.pretrained_model import load_pretrained
from benchmarks.time_to_quality import scoring
from benchmarks.time_to_quality.scoring import read_passages, score

pytestmark = pytest.mark.tooling


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "heldout.txt"
    rng = np.random.default_rng(0)
    words = ["the", "captain", "walked", "along", "shore,", "and", "1,000", "men", "followed."]
    lines = [" ".join(rng.choice(words, 12)) if i % 30 else "" for i in range(300)]
    path.write_text("\n".join(lines))
    return str(path)


def test_the_probability_of_a_word_is_that_of_all_its_pieces(text, monkeypatch):
    model = load_pretrained("albert_tiny_books")
    passages = read_passages(text, 3)
    pieces = [
        ids
        for passage in passages
        for i in passage.hidden
        for ids in [model.tokenizer.encode(passage.words[i])]
    ]

    class Knows:
        """Gives a piece of an even id half of the probability, at every position."""

        config, tokenizer = model.config, model.tokenizer

        def __call__(self, batch):
            positions = batch["masked_lm_positions"]
            masked = tf.gather(batch["input_word_ids"], positions, batch_dims=1)
            used = tf.cast(positions > 0, tf.int32)
            assert (masked.numpy() == model.tokenizer.mask_id)[used.numpy() > 0].all()
            size = self.config.vocab_size
            logits = tf.where(tf.range(size) % 2 == 0, 2.0, 0.0)
            return {"mlm_logits": tf.broadcast_to(logits, [*positions.shape, size])}

    monkeypatch.setattr(scoring, "load_pretrained", lambda path: Knows())
    monkeypatch.setattr(scoring.tf, "function", lambda function, **_: function)
    found = score("any", passages)
    half = model.config.vocab_size / 2
    total = half * (math.exp(2) + 1)
    bits = -sum(math.log2((math.exp(2) if i % 2 == 0 else 1) / total) for p in pieces for i in p)
    characters = sum(len(p.words[i]) for p in passages for i in p.hidden)
    assert found["bits_per_character"] == pytest.approx(bits / characters, rel=1e-4)
    assert found["words"] == len(pieces) and found["pieces"] == sum(map(len, pieces))
