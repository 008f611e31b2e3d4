# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Words become pieces: on the host, in the graph, and in other libraries' files."""

from __future__ import annotations

import dataclasses
import json

import pytest

from albert_tf.errors import AlbertError
from albert_tf.huggingface.tokenizer import tokenizer_files, tokenizer_json
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.new_words import split_words, with_words
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.tokenization.conftest import random_texts
from tests.tokenization.test_graph import graph_ids

#: The third begins with the first, and ends in a character that is no piece.
WORDS = ["cardioz", "unaffables", "cardiozlogyж", "eclair"]
LINES = ["the Cardioz unaffables, (x) x-cardioz don't", "cardioz! unaffables cardiozlogyж Éclair"]


@pytest.fixture
def extended(tokenizer):
    return with_words(tokenizer, split_words(tokenizer, LINES))


def test_words_that_are_not_pieces_are_found_the_most_frequent_first(tokenizer):
    assert split_words(tokenizer, LINES) == WORDS


def test_each_word_is_the_next_id_and_other_texts_keep_theirs(tokenizer, extended):
    size = tokenizer.vocab_size
    pieces = [extended.id_to_piece(i) for i in range(size, extended.vocab_size)]
    assert [piece.lstrip("▁") for piece in pieces] == WORDS
    ids = extended.encode("Cardioz, cardiozlogyЖ: unaffables! ÉCLAIR?")
    assert ids[::2] == [size, size + 2, size + 1, size + 3]
    texts = [*random_texts(300), "party carding diologist eclai xcardioz"]
    assert extended.encode_batch(texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("word", ["resto", "river", "riversto", "stonean"])
def test_a_longer_word_begins_with_a_new_piece_only_if_the_old_ones_were_cut_there(
    word, sentencepiece_tokenizer
):
    extended = with_words(sentencepiece_tokenizer, [word])
    for text in ("restone", "riverstone", "riverstoneand", "stoneand", "stoneandriver"):
        old, new = sentencepiece_tokenizer.tokenize(text), extended.tokenize(text)
        beginnings = {"".join(old[:i]) for i in range(len(old))}
        assert (f"▁{word}" in new) == (f"▁{word}" in beginnings)
        assert "".join(new) == "".join(old)


def test_graphs_and_other_libraries_have_the_same_ids(extended, tmp_path, odd_texts):
    texts = [*LINES, *odd_texts[:200], "cardioz 9, cardioz" * 50]
    expected = extended.encode_batch(texts)
    assert graph_ids(extended, texts) == expected
    for name, data in tokenizer_files(extended, 64).items():
        (tmp_path / name).write_bytes(data)
    assert Tokenizer.from_file(str(tmp_path)).encode_batch(texts) == expected
    (tmp_path / ("vocab.txt" if extended.spec.kind == "wordpiece" else "spiece.model")).unlink()
    assert Tokenizer.from_file(str(tmp_path)).encode_batch(texts) == expected
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(extended)))
    for text in (text for text in [*LINES, *random_texts(200)] if "Σ" not in text):
        assert theirs.encode(text, add_special_tokens=False).ids == extended.encode(text), text


def test_accents_and_case_that_are_kept_are_in_the_piece(sentencepiece_tokenizer):
    spec = dataclasses.replace(sentencepiece_tokenizer.spec, lower_case=False, strip_accents=False)
    cased = Tokenizer(spec, sentencepiece_tokenizer.data, "cased.model")
    found = with_words(cased, split_words(cased, ["Éclair E\u0301clair"]))
    assert found.vocab_size == cased.vocab_size + 1 and found.encode("Éclair") == [cased.vocab_size]


def test_a_vocabulary_that_cannot_have_a_word_is_one_sentence(sentencepiece_tokenizer, wordpiece):
    with pytest.raises(AlbertError, match=r"splits some of the words even as pieces, .*: 中国\."):
        with_words(wordpiece, split_words(wordpiece, ["中国 the"]))
    model = ModelProto.FromString(sentencepiece_tokenizer.data)
    model.trainer_spec.model_type = model.trainer_spec.BPE
    bpe = Tokenizer(sentencepiece_tokenizer.spec, model.SerializeToString(), "bpe.model")
    with pytest.raises(AlbertError, match=r"bpe\.model splits .* a model of BPE"):
        with_words(bpe, ["cardioz"])
