# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Both kinds of tokenizers: batches, offsets, specifications on disk, and errors."""

import os
import unicodedata
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer, TokenizerSpec
from tests.tokenization.conftest import random_texts, spans_of


@pytest.mark.smoke
def test_a_batch_equals_its_texts_one_by_one(tokenizer):
    texts = [*random_texts(200), "", "   "]
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == expected


def test_worker_processes_get_a_tokenizer_that_has_found_offsets(wordpiece):
    spans = spans_of(wordpiece, "un\u0301affable")
    sent = ForkingPickler.loads(ForkingPickler.dumps(wordpiece))
    assert sent.spec == wordpiece.spec and sent.source == wordpiece.source
    assert spans_of(sent, "un\u0301affable") == spans


def test_offsets_ascend_and_cover_the_piece(tokenizer):
    lower, strip = tokenizer.spec.lower_case, tokenizer.spec.strip_accents
    exact = 0
    for text in random_texts(600, seed=1):
        ids, starts, ends = spans_of(tokenizer, text)
        assert ids == tokenizer.encode(text), repr(text)
        assert all(0 <= s <= e <= len(text) for s, e in zip(starts, ends)), repr(text)
        assert starts == sorted(starts), repr(text)
        assert ends == sorted(ends), repr(text)
        for i, start, end in zip(ids, starts, ends):
            if i == tokenizer.unk_id:
                assert start < end
                continue
            piece = tokenizer.id_to_piece(i)
            surface = piece.replace("▁", "") if "▁" in piece else piece.removeprefix("##")
            covered = "".join(c for c in text[start:end] if unicodedata.category(c) != "Cc")
            covered = normalize(covered.replace("\u200b", ""), lower, strip)
            # A piece of "½" or "ﬁ" covers the whole character, and so more than itself.
            assert surface in covered, (text, piece, text[start:end])
            exact += surface == covered
    assert exact > 1000


def test_offsets_cover_all_text(tokenizer):
    for text in random_texts(400, seed=2):
        _, starts, ends = spans_of(tokenizer, text)
        missed = list(text)
        for start, end in zip(starts, ends):
            missed[start:end] = [" "] * (end - start)
        # Joiners and other invisible characters may be cleaned away.
        assert all(
            c.isspace() or unicodedata.category(c)[0] in "CM" or c == "\ufffd"
            for c in set(missed) - {"¨"}
        )


def test_pieces_and_ids_are_inverse(tokenizer):
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
    assert [tokenizer.piece_to_id(p) for p in pieces] == list(range(tokenizer.vocab_size))
    assert tokenizer.piece_to_id("no such piece") == tokenizer.unk_id


def test_a_saved_tokenizer_is_the_same(tmp_path, small_model, wordpiece):
    cased = Tokenizer.from_file(small_model, lower_case=False)
    texts = list(random_texts(50))
    for saved, size in ((cased, 265), (wordpiece, 39)):
        path = saved.save(str(tmp_path / "new" / saved.spec.kind))
        loaded = Tokenizer.from_file(path)
        assert os.path.basename(path) == "tokenizer.json"
        assert loaded.spec == saved.spec and loaded.spec.vocab_size == size
        assert loaded.encode_batch(texts) == saved.encode_batch(texts)


def test_an_option_must_not_contradict_the_saved_specification(tmp_path, small_model):
    path = Tokenizer.from_file(small_model).save(str(tmp_path))
    assert Tokenizer.from_file(path, lower_case=True).spec.lower_case
    with pytest.raises(AlbertError, match="says `lower_case`=True, but False was given"):
        Tokenizer.from_file(path, lower_case=False)
    with pytest.raises(AlbertError, match="`lower_case`='no' must be True, False or None"):
        Tokenizer.from_file(path, "no")


def test_a_changed_vocabulary_file_is_refused(tmp_path, wordpiece):
    path = wordpiece.save(str(tmp_path / "saved"))
    with open(tmp_path / "saved" / "vocab.txt", "a") as f:
        f.write("more\n")
    with pytest.raises(AlbertError, match=r"vocab\.txt is not the file that .* written for"):
        Tokenizer.from_file(path)


def test_a_specification_is_read_strictly(small_model):
    spec = Tokenizer.from_file(small_model).spec
    values = spec.to_dict()
    assert TokenizerSpec.from_dict(values) == spec
    cases = [
        ({**values, "lowercase": True}, "unknown key 'lowercase'"),
        ({**values, "lower_case": 1}, "'lower_case' must be of type bool"),
        ({**values, "kind": "bpe"}, "kind must be"),
    ]
    for name in values:
        others = {key: value for key, value in values.items() if key != name}
        cases.append((others, f"'{name}' is missing"))
    for wrong, message in cases:
        with pytest.raises(AlbertError, match=message):
            TokenizerSpec.from_dict(wrong)


@pytest.mark.parametrize("name", ["missing.model", "missing.txt", "missing.json"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(AlbertError, match=f"{name} does not exist"):
        Tokenizer.from_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.model", b"not a model", "is not a SentencePiece model"),
        ("a.model", b"", "is not a SentencePiece model"),
        ("a.txt", b"\x0a\x00\x01\x02binary", "is not a SentencePiece model"),
        ("a.txt", b"\xff\xfe", "is not UTF-8 at byte 0"),
        ("a.txt", b"", ":1: the line is empty"),
        ("a.txt", b"[PAD]\n[UNK]\n\nthe\n", ":3: the line is empty"),
        ("a.txt", b"[PAD]\n[UNK]\nthe\nthe\n", ":4: 'the' is already on line 3"),
        ("a.txt", b"[PAD]\n[UNK]\n[CLS]\nthe\n", r"lacks \[SEP\], \[MASK\]"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"[]", "a JSON object"),
    ],
)
def test_an_invalid_vocabulary_is_refused(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AlbertError, match=message):
        Tokenizer.from_file(str(tmp_path / name))


def test_damaged_models_are_refused(tmp_path, small_model):
    data, path = Path(small_model).read_bytes(), tmp_path / "bent.model"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(AlbertError, match=r"bent\.model"):
        Tokenizer.from_file(str(path))
    path.write_bytes(data.replace(b"<pad>", b"\xbcpad>"))
    with pytest.raises(AlbertError, match=r"bent\.model is damaged: piece 0 is not UTF-8"):
        Tokenizer.from_file(str(path))


def test_a_model_without_the_special_pieces_is_refused(tmp_path):
    import sentencepiece as spm

    sentences = ["the people of the city lived in houses by the river"] * 50
    with open(tmp_path / "plain.model", "wb") as f:
        spm.SentencePieceTrainer.Train(
            sentence_iterator=iter(sentences), model_writer=f, vocab_size=22, minloglevel=2
        )
    with pytest.raises(
        AlbertError, match=r"lacks <pad>, \[CLS\], \[SEP\], \[MASK\]; train .* albert tr"
    ):
        Tokenizer.from_file(str(tmp_path / "plain.model"))


@pytest.mark.parametrize("text", [None, 3, b"a text", ["a text"]])
@pytest.mark.parametrize("name", ["encode", "tokenize"])
def test_a_text_must_be_a_string(name, text, wordpiece):
    with pytest.raises(AlbertError, match="The text must be a string, not"):
        getattr(wordpiece, name)(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", "must be a list of strings, not 'a text'"),  # Each character would be a text.
        (None, "must be a list of strings, not None"),
        (["a", None], r"Number 1 \(counted from 0\) of the texts must be a string, not None"),
    ],
)
def test_texts_must_be_a_list_of_strings(texts, message, wordpiece):
    with pytest.raises(AlbertError, match=message):
        wordpiece.encode_batch(texts)


@pytest.mark.parametrize("number", [-1, 10**6, 1.5, "a", None])
def test_an_id_must_be_one_of_the_vocabulary(number, tokenizer):
    with pytest.raises(AlbertError, match=r"id=.* must be an integer from 0 to"):
        tokenizer.decode([5, number])
    with pytest.raises(AlbertError, match=r"id=.* must be an integer from 0 to"):
        tokenizer.id_to_piece(number)
    assert tokenizer.decode(np.array([5], np.int32)) == tokenizer.decode([5])


@pytest.mark.parametrize("path", [None, 3, b"vocab.txt", ""])
def test_a_path_must_be_a_string(path):
    with pytest.raises(AlbertError, match="path of the vocabulary must be a string, not"):
        Tokenizer.from_file(path)


def test_halves_of_surrogate_pairs_have_the_ids_of_the_replacement_character(wordpiece):
    text, replaced = "the \ud83d people", "the \ufffd people"
    assert wordpiece.encode(text) == wordpiece.encode(replaced)
    assert wordpiece.encode_batch([text]) == [wordpiece.encode(replaced)]
    assert spans_of(wordpiece, text) == spans_of(wordpiece, replaced)


def test_a_data_frame_is_not_taken_for_the_names_of_its_columns(wordpiece):
    class Frame(list):
        def itertuples(self):
            return iter(())

    with pytest.raises(AlbertError, match="are a data frame; give one of its columns"):
        wordpiece.encode_batch(Frame(["text", "label"]))
