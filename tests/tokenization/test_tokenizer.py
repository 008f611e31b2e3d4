# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Ids, offsets and word starts of both kinds of vocabulary; the specification on disk."""

import dataclasses
import json
import os
import random
import string
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tokenization.normalization import AlignedText, normalize
from albert_tf.tokenization.sentencepiece_model import starts_word
from albert_tf.tokenization.tokenizer import Tokenizer, TokenizerSpec
from data_prep.train_sentencepiece import Settings, train_sentencepiece

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", REPOSITORY.parent / "shared" / "data"))
RELEASED_MODEL = DATA / "spm" / "30k-clean.model"
CASES = json.loads((REPOSITORY / "tests" / "golden" / "tokenization_cases.json").read_text("utf-8"))

needs_release = [
    pytest.mark.realdata,
    pytest.mark.skipif(not RELEASED_MODEL.exists(), reason=f"{RELEASED_MODEL} is not there"),
]

WORDPIECE_LINE = (
    "[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] un ##aff ##able want ##want ##ed runn ##ing , ! the "
    "re ##sume ##m ##e 中 国 人 ##人 $ 5 ##0 straße i ##i"
)
WORDPIECES = WORDPIECE_LINE.split()
SAMPLE_LINE = (
    "the people naïve cafe\u0301 ÉCOLE ½ ﬁne ﬃ Ǆ İstanbul ΟΔΟΣ straße ẛ̣ 2013, 1,000, 92, 9,9 "
    "(x) unaffable WANTED! 中国人 한국 が \u1100\u1161 😀 👩\u200d👩\u200d👧 --- ... “q” ¨ ﷺ é̱ ⅷ Å "
    "x y 5, ' ="
)
SAMPLE_WORDS = SAMPLE_LINE.split()
SAMPLE_SPACES = ["", " ", " ", "  ", "\t", "\xa0", "\u3000", "\r\n", "\u200b", "\x01", "\ufffd"]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A small SentencePiece model in which pieces end in digit and comma."""
    folder = tmp_path_factory.mktemp("spm")
    rng = random.Random(1)
    syllables = ["ba", "the", "ri", "ver", "ci", "ty", "in", "mo", "and", "pe", "ple", "né", "s"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(300)]
    # A piece must occur in two words at least.
    numbers = ["2013,", "2013,ba", "ba2013,", "the2013,ba", "1,000", "½", "naïve"]
    lines = []
    for _ in range(3000):
        chosen = rng.choices(words, k=6)
        chosen.insert(rng.randrange(6), rng.choice(numbers))
        lines.append(" ".join(chosen) + ".")
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    settings = Settings(vocab_size=250, character_coverage=1.0)
    train_sentencepiece([str(folder / "text.txt")], str(folder / "small"), settings)
    return str(folder / "small.model")


@pytest.fixture(scope="module")
def released():
    return Tokenizer.from_file(str(RELEASED_MODEL))


@pytest.fixture
def wordpiece(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(WORDPIECES) + "\n", "utf-8")
    return Tokenizer.from_file(str(path))


@pytest.fixture(params=["small", pytest.param("released", marks=needs_release), "wordpiece"])
def tokenizer(request):
    if request.param == "small":
        return Tokenizer.from_file(request.getfixturevalue("small_model"))
    return request.getfixturevalue(request.param)


def random_texts(count, seed=0):
    """Words, numbers, accents, ligatures, CJK, emoji, odd white space and control characters."""
    rng = random.Random(seed)
    for _ in range(count):
        yield "".join(
            rng.choice(SAMPLE_WORDS) + rng.choice(SAMPLE_SPACES)
            for _ in range(rng.randrange(1, 12))
        )


def reference_normalize(text, lower_case, strip_accents):
    """The definition of A's preprocess_text, step by step and without short cuts."""
    text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    if strip_accents:
        text = "".join(c for c in text if not unicodedata.combining(c))
    return text.lower() if lower_case else text


class TestReleasedModel:
    pytestmark = needs_release

    @pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
    def test_ids_are_those_of_the_official_tokenizer(self, released, case):
        assert released.encode(case["text"]) == case["ids"]
        assert released.encode_with_offsets(case["text"])[0] == case["ids"]

    @pytest.mark.golden
    def test_a_batch_gives_the_official_ids(self, released):
        assert released.encode_batch([c["text"] for c in CASES]) == [c["ids"] for c in CASES]
        assert len(CASES) == 158

    def test_special_ids(self, released):
        assert released.vocab_size == 30000
        ids = [getattr(released, f"{n}_id") for n in ("pad", "unk", "cls", "sep", "mask")]
        assert ids == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(released.special_ids, [0, 1, 2, 3, 4])

    def test_accents_can_be_kept(self):
        kept = Tokenizer.from_file(str(RELEASED_MODEL), strip_accents=False)
        assert kept.encode("falsé") == [8256, 18, 1]

    def test_accents_are_stripped_from_cased_text_too(self):
        cased = Tokenizer.from_file(str(RELEASED_MODEL), lower_case=False)
        assert cased.encode("falsé") == [4997]
        assert cased.encode("False") != [4997]

    def test_control_symbols_cannot_be_typed(self, released):
        text = "a [MASK] b [SEP] c <pad> <unk>"
        assert not {0, 2, 3, 4} & set(released.encode(text))

    def test_pieces_read_as_expected(self, released):
        assert released.tokenize("In 2013, 1,000, values") == (
            ["▁in", "▁2013", ",", "▁1,000", ",", "▁values"]
        )
        assert released.decode([48, 25, 21, 1289]) == "this is a test"

    def test_offsets_survive_expansion_collapse_and_digit_commas(self, released):
        text = "I  was in 92,000, ½ cafe\u0301s ﬁne  漢"
        ids, starts, ends = released.encode_with_offsets(text)
        found = [(released.id_to_piece(i), text[s:e], s) for i, s, e in zip(ids, starts, ends)]
        assert found == [
            ("▁i", "I", 0), ("▁was", "was", 3), ("▁in", "in", 7), ("▁9", "9", 10),
            ("2,000", "2,000", 11), (",", ",", 16), ("▁1", "½", 18), ("<unk>", "½", 18),
            ("2", "½", 18), ("▁cafe", "cafe\u0301", 20), ("s", "s", 25), ("▁fine", "ﬁne", 27),
            ("▁", "", 32), ("<unk>", "漢", 32),
        ]  # fmt: skip


def test_no_piece_but_the_last_ends_in_digit_and_comma(small_model):
    split = Tokenizer.from_file(small_model)
    glued = Tokenizer.from_file(small_model, split_digit_comma=False)
    text = "in 2013, and ba2013, 1,000, 92,"
    assert {"▁2013,", "2013,"} <= set(glued.tokenize(text))
    pieces = split.tokenize(text)
    assert all(type(piece) is str for piece in pieces)
    assert not any(len(p) > 1 and p[-1] == "," and p[-2].isdigit() for p in pieces)
    # The rule keeps the text, and gives no word start to a piece that had none.
    assert "".join(pieces) == "".join(glued.tokenize(text))


def test_digit_comma_offsets_stay_right_where_the_model_drops_characters(small_model):
    tokenizer = Tokenizer.from_file(small_model)
    text = "in 20\x0113, a"
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    spans = [text[s:e] for s, e in zip(starts, ends)]
    comma = [tokenizer.id_to_piece(i) for i in ids].index(",")
    assert spans[comma] == ","
    assert "".join(spans[1:comma]) == "20\x0113"


class TestWordPiece:
    def test_greedy_pieces_and_spans(self, wordpiece):
        text = " UNaffable, wantedrunning 中国人"
        ids, starts, ends = wordpiece.encode_with_offsets(text)
        assert ids == wordpiece.encode(text)
        assert [(wordpiece.id_to_piece(i), text[s:e]) for i, s, e in zip(ids, starts, ends)] == [
            ("un", "UN"), ("##aff", "aff"), ("##able", "able"), (",", ","),
            ("[UNK]", "wantedrunning"), ("中", "中"), ("国", "国"), ("人", "人"),
        ]  # fmt: skip

    def test_cleaning_punctuation_and_accents(self, wordpiece):
        assert wordpiece.tokenize("want\x00ed\ufffd!$50") == (
            ["want", "##ed", "!", "$", "5", "##0"]
        )
        assert wordpiece.tokenize("re\u200bsum\u00e9") == ["re", "##sume"]
        assert wordpiece.tokenize("RÉ\u0301sume") == ["re", "##sume"]
        assert wordpiece.tokenize("straße") == ["straße"]
        assert wordpiece.tokenize("the\u2028the\u3000the\tthe") == ["the"] * 4
        assert wordpiece.tokenize("\u00a0\u0301 ") == []

    def test_accents_stay_when_case_does(self, tmp_path, wordpiece):
        kept = Tokenizer.from_file(str(tmp_path / "vocab.txt"), lower_case=False)
        assert kept.spec.strip_accents is False
        assert kept.tokenize("The the") == ["[UNK]", "the"]
        assert kept.tokenize("thé") == ["[UNK]"]

    def test_words_over_200_characters_are_unknown(self, wordpiece):
        assert wordpiece.tokenize("i" * 200) == ["i"] + ["##i"] * 199
        assert wordpiece.tokenize("i" * 201) == ["[UNK]"]

    def test_special_ids_and_word_starts(self, wordpiece):
        ids = [getattr(wordpiece, f"{n}_id") for n in ("pad", "unk", "cls", "sep", "mask")]
        assert ids == [0, 2, 3, 4, 5]
        np.testing.assert_array_equal(wordpiece.special_ids, range(6))
        expected = [not piece.startswith("##") for piece in WORDPIECES]
        np.testing.assert_array_equal(wordpiece.word_starts, expected)

    def test_decoding_joins_pieces(self, wordpiece):
        assert wordpiece.decode(wordpiece.encode("unaffable wanted")) == "unaffable wanted"

    def test_windows_line_ends_and_a_byte_order_mark(self, tmp_path, wordpiece):
        path = tmp_path / "windows.txt"
        path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(WORDPIECES).encode())
        text = "UNaffable, 中"
        assert Tokenizer.from_file(str(path)).encode(text) == wordpiece.encode(text)


@pytest.mark.smoke
def test_a_batch_equals_its_texts_one_by_one(tokenizer):
    texts = [*random_texts(200), "", "   "]
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == expected
    assert tokenizer.encode_batch(texts, num_threads=2) == expected


def test_offsets_are_monotone_in_range_and_cover_the_piece(tokenizer):
    lower, strip = tokenizer.spec.lower_case, tokenizer.spec.strip_accents
    exact = 0
    for text in random_texts(600, seed=1):
        ids, starts, ends = tokenizer.encode_with_offsets(text)
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


def test_all_text_is_covered(tokenizer):
    for text in random_texts(400, seed=2):
        _, starts, ends = tokenizer.encode_with_offsets(text)
        covered = set()
        for start, end in zip(starts, ends):
            covered.update(range(start, end))
        missed = {c for i, c in enumerate(text) if i not in covered}
        # Joiners and other invisible characters may be cleaned away.
        assert all(
            c.isspace() or unicodedata.category(c)[0] in "CM" or c == "\ufffd"
            for c in missed - {"¨"}
        )


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
def test_normalisation_is_the_definition_with_and_without_offsets(lower_case, strip_accents):
    for text in [*random_texts(500, seed=3), "", " \n ", "A", "a\u0301\u0323b", "\U0001e2ec𐨿x"]:
        expected = reference_normalize(text, lower_case, strip_accents)
        assert normalize(text, lower_case, strip_accents) == expected
        aligned = AlignedText.of(text).normalize(lower_case, strip_accents)
        assert aligned.text == expected
        assert len(aligned.starts) == len(aligned.ends) == len(expected)


def test_word_starts_follow_the_official_table():
    for piece in [
        "▁the",
        "▁",
        "<unk>",
        "'s",
        "n't",
        "a1",
        "é",
        "=",
        "'",
        ">",
        ".",
        "(",
        "2013",
        "漢",
    ]:
        assert starts_word(piece), piece
    for piece in ["ab", "x", "a-b", "...", "--", "(a", "B"]:
        assert not starts_word(piece), piece


@pytest.mark.parametrize("mark", string.punctuation)
def test_punctuation_starts_words_as_in_the_official_table(mark):
    # Of google-research/albert create_pretraining_data._is_start_piece_sp. A mark that is not in
    # the table makes any piece begin a word, as a foreign character does.
    outside = mark in "'<=>"
    assert starts_word(mark)
    assert starts_word(f"▁a{mark}")
    assert starts_word(f"a{mark}") == outside
    assert starts_word(f"{mark}a") == outside
    assert starts_word(f"{mark}{mark}") == outside
    assert starts_word(f"-{mark}") == outside


def test_letters_of_other_alphabets_that_lower_to_ascii_continue_words():
    assert not starts_word("a\N{KELVIN SIGN}")


def test_word_starts_are_indexed_by_id(small_model):
    tokenizer = Tokenizer.from_file(small_model)
    assert tokenizer.word_starts.shape == (tokenizer.vocab_size,)
    assert tokenizer.word_starts.dtype == np.bool_
    assert tokenizer.word_starts[tokenizer.special_ids].all()
    for i in range(5, tokenizer.vocab_size):
        assert tokenizer.word_starts[i] == starts_word(tokenizer.id_to_piece(i))


def test_pieces_and_ids_are_inverse(tokenizer):
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
    assert [tokenizer.piece_to_id(p) for p in pieces] == list(range(tokenizer.vocab_size))
    assert tokenizer.piece_to_id("no such piece") == tokenizer.unk_id


class TestSpecification:
    def test_a_saved_tokenizer_is_the_same_one(self, tmp_path, small_model):
        saved = Tokenizer.from_file(small_model, lower_case=False, strip_accents=False)
        path = saved.save(str(tmp_path / "new" / "folder"))
        loaded = Tokenizer.from_file(path)
        assert os.path.basename(path) == "tokenizer.json"
        assert loaded.spec == saved.spec
        assert loaded.spec.vocab_size == 250
        assert not loaded.spec.lower_case
        for text in random_texts(50):
            assert loaded.encode(text) == saved.encode(text)

    def test_wordpiece_is_saved_too(self, tmp_path, wordpiece):
        loaded = Tokenizer.from_file(wordpiece.save(str(tmp_path / "saved")))
        assert loaded.spec == wordpiece.spec
        assert loaded.spec.kind == "wordpiece"

    def test_contradicting_the_saved_specification_is_refused(self, tmp_path, small_model):
        path = Tokenizer.from_file(small_model).save(str(tmp_path))
        assert Tokenizer.from_file(path, lower_case=True).spec.lower_case
        with pytest.raises(AlbertError, match="says lower_case=True, but False was asked for"):
            Tokenizer.from_file(path, lower_case=False)

    def test_a_changed_vocabulary_file_is_refused(self, tmp_path, wordpiece):
        path = wordpiece.save(str(tmp_path / "saved"))
        with open(tmp_path / "saved" / "vocab.txt", "a") as f:
            f.write("more\n")
        with pytest.raises(AlbertError, match=r"vocab\.txt is not the file that .* written for"):
            Tokenizer.from_file(path)

    def test_dict_round_trip_is_strict(self, small_model):
        spec = Tokenizer.from_file(small_model).spec
        assert TokenizerSpec.from_dict(spec.to_dict()) == spec
        with pytest.raises(AlbertError, match="unknown key 'lowercase'"):
            TokenizerSpec.from_dict({**spec.to_dict(), "lowercase": True})
        for field in dataclasses.fields(spec):
            values = spec.to_dict()
            del values[field.name]
            with pytest.raises(AlbertError, match=f"'{field.name}' is missing"):
                TokenizerSpec.from_dict(values)
        with pytest.raises(AlbertError, match="'lower_case' must be of type bool"):
            TokenizerSpec.from_dict({**spec.to_dict(), "lower_case": 1})
        with pytest.raises(AlbertError, match="kind must be"):
            TokenizerSpec.from_dict({**spec.to_dict(), "kind": "bpe"})


class TestWrongVocabulary:
    @pytest.mark.parametrize("name", ["missing.model", "missing.txt", "missing.json"])
    def test_missing(self, tmp_path, name):
        with pytest.raises(AlbertError, match=f"{name} does not exist"):
            Tokenizer.from_file(str(tmp_path / name))

    def test_a_sentencepiece_vocab_is_not_wordpiece(self, small_model):
        with pytest.raises(AlbertError, match=r"is a SentencePiece \.vocab"):
            Tokenizer.from_file(small_model.replace(".model", ".vocab"))

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
    def test_bad_files(self, tmp_path, name, data, message):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(AlbertError, match=message):
            Tokenizer.from_file(str(tmp_path / name))

    def test_a_truncated_model(self, tmp_path, small_model):
        data = Path(small_model).read_bytes()
        (tmp_path / "cut.model").write_bytes(data[: len(data) // 2])
        with pytest.raises(AlbertError, match=r"cut\.model"):
            Tokenizer.from_file(str(tmp_path / "cut.model"))

    def test_a_model_with_a_piece_that_is_no_text(self, tmp_path, small_model):
        data = Path(small_model).read_bytes()
        (tmp_path / "bent.model").write_bytes(data.replace(b"<pad>", b"\xbcpad>"))
        with pytest.raises(AlbertError, match=r"bent\.model is damaged: .* not UTF-8"):
            Tokenizer.from_file(str(tmp_path / "bent.model"))

    def test_a_model_without_the_special_pieces(self, tmp_path):
        import sentencepiece as spm

        sentences = ["the people of the city lived in houses by the river"] * 50
        with open(tmp_path / "plain.model", "wb") as f:
            spm.SentencePieceTrainer.Train(
                sentence_iterator=iter(sentences), model_writer=f, vocab_size=22, minloglevel=2
            )
        with pytest.raises(AlbertError, match=r"lacks <pad>, \[CLS\], \[SEP\], \[MASK\]"):
            Tokenizer.from_file(str(tmp_path / "plain.model"))

    def test_the_digit_comma_rule_is_not_for_wordpiece(self, tmp_path, wordpiece):
        with pytest.raises(AlbertError, match="split_digit_comma is for SentencePiece only"):
            Tokenizer.from_file(str(tmp_path / "vocab.txt"), split_digit_comma=True)


@pytest.mark.parametrize("text", [None, 3, b"a text", ["a text"]])
@pytest.mark.parametrize("name", ["encode", "encode_with_offsets", "tokenize"])
def test_what_is_no_text_is_refused(name, text, small_model):
    with pytest.raises(AlbertError, match="The text must be a string, not"):
        getattr(Tokenizer.from_file(small_model), name)(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", "must be a list of strings, not 'a text'"),  # Each character would be a text.
        (None, "must be a list of strings, not None"),
        (["a", None], r"Number 1 \(counted from 0\) of the texts must be a string, not None"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts, message, small_model):
    with pytest.raises(AlbertError, match=message):
        Tokenizer.from_file(small_model).encode_batch(texts)


@pytest.mark.parametrize("number", [-1, 10**6, 1.5, "a", None])
def test_what_is_no_id_is_refused(number, small_model):
    tokenizer = Tokenizer.from_file(small_model)
    with pytest.raises(AlbertError, match="is no id: ids are integers from 0 to"):
        tokenizer.decode([5, number])
    with pytest.raises(AlbertError, match="is no id: ids are integers from 0 to"):
        tokenizer.id_to_piece(number)
    assert tokenizer.decode(np.array([5], np.int32)) == tokenizer.decode([5])


@pytest.mark.parametrize("path", [None, 3, b"vocab.txt", ""])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(AlbertError, match="path of the vocabulary must be a string, not"):
        Tokenizer.from_file(path)


def test_an_option_that_is_no_truth_value_is_refused(small_model):
    with pytest.raises(AlbertError, match="lower_case must be True, False or None, not 'no'"):
        Tokenizer.from_file(small_model, "no")


def test_a_vocabulary_that_has_changed_is_refused(wordpiece, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    path = wordpiece.save(str(folder))
    vocabulary = folder / wordpiece.spec.model_file
    vocabulary.write_text(vocabulary.read_text("utf-8") + "new\n", "utf-8")
    with pytest.raises(AlbertError, match=r"is not the file that .* was written for"):
        Tokenizer.from_file(path)
