# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A model with new pieces: old ones stay as they are, new ones begin as the mean of their parts."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf import load_pretrained
from albert_tf.errors import AlbertError
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.conversion import convert
from albert_tf.weights.vocabulary import extend_vocabulary
from tests.support.builders import tiny_config
from tests.support.weights import weights_of

TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
MODEL = "albert_tiny_books"


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the\nangiogram\nwarfarin\nangiogram\nthrombus\n")
    return str(path)


def test_new_pieces_begin_as_the_mean_of_their_parts(words, tmp_path):
    before = load_pretrained(MODEL)
    assert extend_vocabulary(MODEL, words, str(tmp_path / "new"), 8002) == ["angiogram", "warfarin"]
    after = load_pretrained(str(tmp_path / "new"))
    assert after.config.vocab_size == after.tokenizer.vocab_size == 8002
    old, new = weights_of(before), weights_of(after)
    for name in {*old} - {TABLE, BIAS}:
        np.testing.assert_array_equal(new[name], old[name])
    for name in (TABLE, BIAS):
        np.testing.assert_array_equal(new[name][:8000], old[name])
        for i, word in enumerate(("angiogram", "warfarin"), 8000):
            assert after.tokenizer.encode(word) == [i]
            wanted = old[name][before.tokenizer.encode(word)].mean(axis=0)
            np.testing.assert_allclose(new[name][i], wanted, rtol=1e-6)
    text = "The party danced until the morning."
    assert after.tokenizer.encode(text) == before.tokenizer.encode(text)
    np.testing.assert_array_equal(after.embed([text]), before.embed([text]))
    # There and back.
    for fmt, source in (("hf", "new"), ("tf2", "hf")):
        convert(str(tmp_path / source), fmt, str(tmp_path / fmt))
    again = load_pretrained(str(tmp_path / "tf2"))
    assert again.tokenizer.encode("Warfarin,") == after.tokenizer.encode("Warfarin,")
    np.testing.assert_array_equal(weights_of(again)[TABLE], new[TABLE])


def test_rows_that_only_pad_the_table_are_dropped(words, wordpiece_model, tmp_path):
    folder, tokenizer = wordpiece_model
    assert extend_vocabulary(folder, words, str(tmp_path / "new"))[-1] == "thrombus"
    after = load_pretrained(str(tmp_path / "new"))
    assert after.config.vocab_size == tokenizer.vocab_size + 3
    assert after.tokenizer.encode("the warfarin")[1] == tokenizer.vocab_size + 1


@pytest.fixture
def wordpiece_model(tmp_path):
    """A model with more rows than pieces."""
    path = tmp_path / "vocab.txt"
    path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nwar\n##farin\n")
    tokenizer = Tokenizer.from_file(str(path))
    config = tiny_config(16)
    write_tf2(str(tmp_path / "padded"), config, tokenizer, weights_of(AlbertPretrainer(config)))
    return str(tmp_path / "padded"), tokenizer


def test_nothing_is_written_without_a_new_word(words, tmp_path):
    (old := tmp_path / "old.txt").write_text("the war\n")
    for text, size, fault in ((words, 8000, "above 8000,"), (str(old), None, "has all words of")):
        with pytest.raises(AlbertError, match=fault):
            extend_vocabulary(MODEL, text, str(tmp_path / "new"), size)
    assert not (tmp_path / "new").exists()
