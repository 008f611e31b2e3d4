# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SentencePiece: the ids of the official tokenizer, the digit-comma rule, and word starts."""

import dataclasses
import io
import json
import string
from pathlib import Path

import numpy as np
import pytest
import sentencepiece as spm

from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.sentencepiece_model import model_fault, starts_word
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.tokenization.conftest import RELEASED_MODEL, needs_release, spans_of

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "tokenization_cases.json").read_text("utf-8"))


class TestReleasedModel:
    pytestmark = needs_release

    @pytest.mark.golden
    def test_ids_are_those_of_the_official_tokenizer(self, released):
        assert len(CASES) == 158
        for case in CASES:
            assert released.encode(case["text"]) == case["ids"]
        texts, ids = ([case[key] for case in CASES] for key in ("text", "ids"))
        assert released.encode_batch(texts) == ids
        assert [columns[0].tolist() for columns in released.encode_with_offsets(texts)] == ids

    def test_special_ids(self, released):
        assert released.vocab_size == 30000
        ids = [getattr(released, f"{n}_id") for n in ("pad", "unk", "cls", "sep", "mask")]
        assert ids == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(released.special_ids, [0, 1, 2, 3, 4])

    def test_accents_are_stripped_from_cased_text_too_but_can_be_kept(self):
        cased = Tokenizer.from_file(str(RELEASED_MODEL), lower_case=False)
        assert cased.encode("falsé") == [4997]
        assert cased.encode("False") != [4997]
        spec = dataclasses.replace(cased.spec, lower_case=True, strip_accents=False)
        kept = Tokenizer(spec, cased.data, cased.source)
        assert kept.encode("falsé") == [8256, 18, 1]

    def test_control_symbols_cannot_be_typed(self, released):
        assert not {0, 2, 3, 4} & set(released.encode("a [MASK] b [SEP] c <pad> <unk>"))

    def test_pieces_read_as_expected(self, released):
        pieces = ["▁in", "▁2013", ",", "▁1,000", ",", "▁values"]
        assert released.tokenize("In 2013, 1,000, values") == pieces
        assert released.decode([48, 25, 21, 1289]) == "this is a test"

    def test_offsets_survive_expansion_collapse_and_digit_commas(self, released):
        text = "I  was in 92,000, ½ cafe\u0301s ﬁne  漢"
        ids, starts, ends = spans_of(released, text)
        pieces = [(released.id_to_piece(i), text[s:e], s) for i, s, e in zip(ids, starts, ends)]
        assert pieces == [
            ("▁i", "I", 0), ("▁was", "was", 3), ("▁in", "in", 7), ("▁9", "9", 10),
            ("2,000", "2,000", 11), (",", ",", 16), ("▁1", "½", 18), ("<unk>", "½", 18),
            ("2", "½", 18), ("▁cafe", "cafe\u0301", 20), ("s", "s", 25), ("▁fine", "ﬁne", 27),
            ("▁", "", 32), ("<unk>", "漢", 32),
        ]  # fmt: skip


def test_no_piece_but_the_last_ends_in_digit_and_comma(small_model):
    text = "in 2013, and ba2013, 1,000, 92,"
    glued = spm.SentencePieceProcessor(model_file=small_model).encode(text, out_type=str)
    assert {"▁2013,", "2013,"} <= {*glued}
    pieces = Tokenizer.from_file(small_model).tokenize(text)
    assert all(type(piece) is str for piece in pieces)
    assert not any(len(p) > 1 and p[-1] == "," and p[-2].isdigit() for p in pieces)
    # The rule keeps the text, and gives no word start to a piece that had none.
    assert "".join(pieces).replace("<unk>", "9") == "".join(glued)


def test_digit_comma_offsets_stay_right_where_the_model_drops_characters(small_model):
    tokenizer = Tokenizer.from_file(small_model)
    text = "in 20\x0113, a"
    ids, starts, ends = spans_of(tokenizer, text)
    spans = [text[s:e] for s, e in zip(starts, ends)]
    comma = [tokenizer.id_to_piece(i) for i in ids].index(",")
    assert spans[comma] == ","
    assert "".join(spans[1:comma]) == "20\x0113"


def test_word_starts_follow_the_official_table():
    starting = "▁the ▁ <unk> 's n't a1 é = ' > . ( 2013 漢"
    continuing = "ab x a-b ... -- (a B a\N{KELVIN SIGN}"  # Its lower case is an ASCII k.
    for piece in starting.split():
        assert starts_word(piece), piece
    for piece in continuing.split():
        assert not starts_word(piece), piece


@pytest.mark.parametrize("mark", string.punctuation)
def test_punctuation_starts_words_as_in_the_official_table(mark):
    # google-research/albert create_pretraining_data._is_start_piece_sp. A mark outside the table
    # makes any piece start a word, like a character of another alphabet.
    outside = mark in "'<=>"
    assert starts_word(mark) and starts_word(f"▁a{mark}")
    for piece in (f"a{mark}", f"{mark}a", f"{mark}{mark}", f"-{mark}"):
        assert starts_word(piece) == outside


def test_word_starts_are_indexed_by_id(small_model):
    tokenizer = Tokenizer.from_file(small_model)
    assert tokenizer.word_starts.shape == (tokenizer.vocab_size,)
    assert tokenizer.word_starts.dtype == np.bool_
    assert tokenizer.word_starts[tokenizer.special_ids].all()
    expected = [starts_word(tokenizer.id_to_piece(i)) for i in range(5, tokenizer.vocab_size)]
    assert tokenizer.word_starts[5:].tolist() == expected


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc_cf", "identity", "own"])
def test_every_normalization_rule_is_accepted(rule, tmp_path):
    lines = (f"{' '.join(f'{c:X}' for c in b'a' * n)}\t62" for n in range(1, 25))
    (tmp_path / "rules.tsv").write_text("\n".join(lines))
    rules = {"normalization_rule_name": rule}
    if rule == "own":
        rules = {"normalization_rule_tsv": str(tmp_path / "rules.tsv")}
    model = io.BytesIO()
    spm.SentencePieceTrainer.Train(
        sentence_iterator=iter(["bcd efg hij"] * 20),
        model_writer=model,
        vocab_size=15,
        hard_vocab_limit=False,
        user_defined_symbols=["<x>", "<xy>"],
        minloglevel=2,
        **rules,
    )
    assert model_fault(ModelProto.FromString(model.getvalue())) == ""
