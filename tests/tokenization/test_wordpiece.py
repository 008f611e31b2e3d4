# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.tokenization.conftest import WORDPIECES, spans_of


def test_pieces_are_the_longest_matches_with_their_spans(wordpiece):
    text = " UNaffable, wantedrunning 中国人"
    ids, starts, ends = spans_of(wordpiece, text)
    assert ids == wordpiece.encode(text)
    assert [(wordpiece.id_to_piece(i), text[s:e]) for i, s, e in zip(ids, starts, ends)] == [
        ("un", "UN"), ("##aff", "aff"), ("##able", "able"), (",", ","),
        ("[UNK]", "wantedrunning"), ("中", "中"), ("国", "国"), ("人", "人"),
    ]  # fmt: skip


def test_text_is_cleaned_split_at_punctuation_and_stripped_of_accents(wordpiece):
    assert wordpiece.tokenize("want\x00ed\ufffd!$50") == (["want", "##ed", "!", "$", "5", "##0"])
    assert wordpiece.tokenize("re\u200bsum\u00e9") == ["re", "##sume"]
    assert wordpiece.tokenize("RÉ\u0301sume") == ["re", "##sume"]
    assert wordpiece.tokenize("straße") == ["straße"]
    assert wordpiece.tokenize("the\u2028the\u3000the\tthe") == ["the"] * 4
    assert wordpiece.tokenize("\u00a0\u0301 ") == []


def test_accents_are_kept_if_case_is(tmp_path, wordpiece):
    kept = Tokenizer.from_file(str(tmp_path / "vocab.txt"), lower_case=False)
    assert kept.spec.strip_accents is False
    assert kept.tokenize("The the") == ["[UNK]", "the"]
    assert kept.tokenize("thé") == ["[UNK]"]


def test_words_over_200_characters_are_unknown(wordpiece):
    assert wordpiece.tokenize("i" * 200) == ["i"] + ["##i"] * 199
    assert wordpiece.tokenize("i" * 201) == ["[UNK]"]


def test_special_ids_and_word_starts(wordpiece):
    ids = [getattr(wordpiece, f"{n}_id") for n in ("pad", "unk", "cls", "sep", "mask")]
    assert ids == [0, 2, 3, 4, 5]
    np.testing.assert_array_equal(wordpiece.special_ids, range(6))
    expected = [not piece.startswith("##") for piece in WORDPIECES]
    np.testing.assert_array_equal(wordpiece.word_starts, expected)


def test_decoding_joins_pieces(wordpiece):
    assert wordpiece.decode(wordpiece.encode("unaffable wanted")) == "unaffable wanted"


def test_a_vocabulary_may_have_windows_line_ends_and_a_byte_order_mark(tmp_path, wordpiece):
    path = tmp_path / "windows.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(WORDPIECES).encode())
    text = "UNaffable, 中"
    assert Tokenizer.from_file(str(path)).encode(text) == wordpiece.encode(text)


def test_a_piece_may_be_a_line_separator_as_in_the_chinese_vocabulary_of_bert(tmp_path):
    path = tmp_path / "chinese.txt"
    path.write_bytes("\n".join([*WORDPIECES, "\u2028", "哦"]).encode())
    tokenizer = Tokenizer.from_file(str(path))
    assert tokenizer.id_to_piece(len(WORDPIECES)) == "\u2028"
    assert tokenizer.encode("哦") == [len(WORDPIECES) + 1]
    ids = tokenizer.graph()(tf.constant(["哦 中"]))
    assert ids.merge_dims(1, 2).to_list() == [tokenizer.encode("哦 中")]
    path.write_bytes("\n".join([*WORDPIECES, " ", "哦"]).encode())
    with pytest.raises(AlbertError, match="the line is empty"):
        Tokenizer.from_file(str(path))
