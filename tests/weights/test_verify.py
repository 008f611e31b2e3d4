# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.keras2 import keras
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights import verify
from albert_tf.weights.checkpoint import write_tf1
from tests.support.builders import tiny_config, vocabulary, write_tokenizer
from tests.support.weights import write_model

SYLLABLES = ["ba", "de", "fi", "go", "lu", "ka", "ne", "pi"]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES[:3]]
VOCAB_SIZE = len(vocabulary(WORDS))


def new_model():
    sizes = {"embedding_size": 32, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_attention_heads": 4, "initializer_range": 0.1}
    return AlbertPretrainer(tiny_config(VOCAB_SIZE, **sizes, **heads))


def text(count, seed):
    """Sentences that count up word by word, each going on where the last one ended."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        at = rng.randrange(len(WORDS))
        for _ in range(4):
            size = rng.randint(3, 6)
            lines.append(" ".join(WORDS[(at + i) % len(WORDS)] for i in range(size)))
            at += size
        lines.append("")
    return lines


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("vocabulary"), WORDS)


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory):
    """A TF1 checkpoint of a model that has learnt to count."""
    keras.utils.set_random_seed(1)
    model = new_model()
    optimizer = keras.optimizers.Adam(3e-3)
    variables = list(model.named_weights().values())
    optimizer.build(variables)
    rng = np.random.default_rng(0)
    pairs = list(verify.read_pairs(text(2000, seed=0), tokenizer, 28))

    @tf.function(autograph=False)
    def step(inputs, labels, masked):
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)["mlm_logits"]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(tf.boolean_mask(losses, masked))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients((g, v) for g, v in zip(gradients, variables) if g is not None)
        return loss

    for _ in range(220):
        chosen = [pairs[i] for i in rng.integers(0, len(pairs), 32)]
        batch = verify.make_batch(chosen, tokenizer, rng)
        pad = [(0, 0), (0, 28 - batch.labels.shape[1])]
        inputs = {k: tf.constant(np.pad(v, pad)) for k, v in batch.inputs.items()}
        loss = step(inputs, np.pad(batch.labels, pad), np.pad(batch.masked, pad))
    assert loss < 1.5
    folder = tmp_path_factory.mktemp("trained")
    write_model(folder, model, write_tf1)
    tokenizer.save(str(folder))
    return folder


def verify_weights(folder, tokenizer):
    model = albert_tf.load_pretrained(str(folder))
    return verify.verify(model, tokenizer, text(30, seed=3), 28)


def test_trained_and_untrained_weights_are_distinguished(trained, tokenizer, tmp_path):
    found = verify_weights(trained, tokenizer)
    assert found.verdict == verify.TRAINED
    assert found.mlm_loss < 0.6 * found.unigram_loss and found.mlm_accuracy > 0.4

    found = verify_weights(write_model(tmp_path, new_model(), write_tf1), tokenizer)
    assert found.verdict == verify.UNTRAINED
    assert found.mlm_loss == pytest.approx(np.log(VOCAB_SIZE), rel=0.1)
    assert found.uniform_loss == pytest.approx(np.log(VOCAB_SIZE))


def test_a_vocabulary_in_another_order_is_a_wrong_configuration(trained, tmp_path):
    shuffled = random.Random(1).sample(WORDS, len(WORDS))
    found = verify_weights(trained, write_tokenizer(tmp_path, shuffled))
    assert found.verdict == verify.WRONG


def test_all_pieces_of_a_word_are_masked(tmp_path):
    tokenizer = write_tokenizer(tmp_path, ["un", "##aff", "##able", "it"])
    ids = np.array([2, *tokenizer.encode("unaffable it it it unaffable it"), 3])
    seen = set()
    for seed in range(40):
        masked_ids, masked = verify.mask_words(ids, tokenizer, np.random.default_rng(seed))
        np.testing.assert_array_equal(masked_ids, np.where(masked, 4, ids))
        seen.add(tuple(np.flatnonzero(masked)))
    assert seen == {(1, 2, 3), (4,), (5,), (6,), (7, 8, 9), (10,)}


def test_pairs_are_split_between_sentences_and_documents(tokenizer):
    lines = ["bade fiba goba", "luba kaba", "", "neba", "", "piba bade", "fide gode"]
    pairs = list(verify.read_pairs(lines, tokenizer, 40))
    assert len(pairs) == 2
    assert [len(pair.first + pair.second) for pair in pairs] == [
        len(tokenizer.encode(" ".join(lines[:2]))), len(tokenizer.encode(" ".join(lines[-2:])))
    ]  # fmt: skip


class TestScript:
    @pytest.fixture
    def book(self, tmp_path):
        path = tmp_path / "book.txt"
        path.write_text("\n".join(text(10, seed=4)))
        return path

    def test_prints_the_verdict(self, run_script, trained, book):
        done = run_script(verify, trained, f"--text={book}")
        assert done.returncode == 0, done.stderr
        assert "Verdict: trained (" in done.stdout and "sentence order" in done.stdout

    def test_bad_input_is_one_sentence(self, run_script, trained, hf_tiny, book, tmp_path):
        (tmp_path / "one.txt").write_text("bade\n\nfiba\n")
        (tmp_path / "strange.txt").write_text("xx yy\nzz xx\n")
        for source, file, sentence in (
            (hf_tiny, book, "There is no vocabulary with"),
            (trained, tmp_path / "one.txt", "no two sentences in a row"),
            (trained, tmp_path / "none.txt", "does not exist"),
            (trained, tmp_path / "strange.txt", "No word of the text is in the vocabulary"),
            (tmp_path / "none", book, "There is no checkpoint"),
        ):
            done = run_script(verify, source, f"--text={file}")
            assert done.returncode == 1 and sentence in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1
