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
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights import verify
from albert_tf.weights.checkpoint import write_tf1

SYLLABLES = ["ba", "de", "fi", "go", "lu", "ka", "ne", "pi"]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES[:3]]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CONFIG = albert_tf.AlbertConfig(
    vocab_size=len(PIECES),
    embedding_size=32,
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=32,
    initializer_range=0.1,
)


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
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(path))


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory):
    """A TF1 checkpoint of a model that has learnt to count."""
    keras.utils.set_random_seed(1)
    model = AlbertPretrainer(CONFIG)
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
    weights = {name: v.numpy() for name, v in model.named_weights().items()}
    write_tf1(str(folder), CONFIG, tokenizer, weights)
    return folder


def test_trained_weights_are_told_from_untrained_ones(trained, tokenizer, tmp_path):
    lines = text(30, seed=3)
    found = verify.verify(albert_tf.load_pretrained(str(trained)), tokenizer, lines, 28)
    assert found.verdict == verify.TRAINED
    assert found.mlm_loss < 0.6 * found.unigram_loss and found.mlm_accuracy > 0.4

    model = AlbertPretrainer(CONFIG)
    weights = {name: v.numpy() for name, v in model.named_weights().items()}
    write_tf1(str(tmp_path), CONFIG, tokenizer, weights)
    found = verify.verify(albert_tf.load_pretrained(str(tmp_path)), tokenizer, lines, 28)
    assert found.verdict == verify.UNTRAINED
    assert found.mlm_loss == pytest.approx(np.log(len(PIECES)), rel=0.1)
    assert found.uniform_loss == pytest.approx(np.log(len(PIECES)))


def test_a_vocabulary_in_another_order_is_a_wrong_configuration(trained, tokenizer, tmp_path):
    shuffled = [*PIECES[:5], *random.Random(1).sample(WORDS, len(WORDS))]
    (tmp_path / "vocab.txt").write_text("\n".join(shuffled))
    other = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    found = verify.verify(albert_tf.load_pretrained(str(trained)), other, text(30, seed=3), 28)
    assert found.verdict == verify.WRONG


def test_all_pieces_of_a_word_are_masked(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nit")
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    ids = np.array([2, *tokenizer.encode("unaffable it it it unaffable it"), 3])
    seen = set()
    for seed in range(40):
        masked_ids, masked = verify.mask_words(ids, tokenizer, np.random.default_rng(seed))
        np.testing.assert_array_equal(masked_ids, np.where(masked, 4, ids))
        seen.add(tuple(np.flatnonzero(masked)))
    assert seen == {(1, 2, 3), (4,), (5,), (6,), (7, 8, 9), (10,)}


def test_pairs_are_cut_at_sentences_and_documents(tokenizer):
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
