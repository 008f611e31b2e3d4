# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Id layout, sampling, determinism and errors of the vocabulary trainer."""

import dataclasses
import filecmp
import gzip
import importlib.metadata
import json
import random
import shutil

import numpy as np
import pytest

from albert_tf.data_prep.train_sentencepiece import (
    VocabularySettings,
    sample_stream,
    train_sentencepiece,
)
from albert_tf.errors import AlbertError
from albert_tf.tokenization.tokenizer import Tokenizer

LAYOUT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(", ")", '"', "-", ".", "–", "£", "€"]
SETTINGS = VocabularySettings(vocab_size=200)


def sentences(count, seed=0):
    rng = random.Random(seed)
    syllables = ["ba", "The", "ri", "ver", "ci", "ty", "in", "mo", "and", "pe", "ple", "né", "s"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 4))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=7)) + "." for _ in range(count)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(sentences(2000)) + '\n\n(a) "b" - c – d £ e €.\n', "utf-8")
    return str(path)


def test_the_first_ids_are_the_official_ones(tmp_path, corpus):
    train_sentencepiece([corpus], str(tmp_path / "en"), SETTINGS)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [tokenizer.id_to_piece(i) for i in range(13)] == LAYOUT
    assert tokenizer.vocab_size == 200
    np.testing.assert_array_equal(tokenizer.special_ids, range(5))
    assert tokenizer.encode('("-.–£€)')[-8:] == [5, 7, 8, 9, 10, 11, 12, 6]
    vocab = [line.split("\t") for line in (tmp_path / "en.vocab").read_text("utf-8").splitlines()]
    assert [piece for piece, _ in vocab] == [tokenizer.id_to_piece(i) for i in range(200)]
    assert [float(score) for _, score in vocab[:13]] == [0.0] * 13
    assert all(float(score) < 0 for _, score in vocab[13:])


def test_text_is_normalised_before_training_as_the_settings_say(tmp_path, corpus):
    cased = VocabularySettings(vocab_size=200, lower_case=False, strip_accents=False)
    for name, settings in (("lower", SETTINGS), ("cased", cased)):
        train_sentencepiece([corpus], str(tmp_path / name / "en"), settings)
        tokenizer = Tokenizer.from_file(str(tmp_path / name / "tokenizer.json"))
        pieces = "".join(tokenizer.id_to_piece(i) for i in range(5, 200))
        assert ("T" in pieces, "é" in pieces) == (name == "cased", name == "cased")
        assert tokenizer.spec.lower_case == tokenizer.spec.strip_accents == (name == "lower")


def test_equal_text_and_settings_give_equal_bytes(tmp_path, corpus):
    sampled = VocabularySettings(vocab_size=200, input_sentence_size=1000)
    packed = tmp_path / "packed.txt.gz"
    with open(corpus, "rb") as f:
        packed.write_bytes(gzip.compress(f.read()))
    other_sample = dataclasses.replace(sampled, input_sentence_size=999)
    models = []
    for i, (path, settings) in enumerate(
        [(corpus, sampled), (str(packed), sampled), (corpus, other_sample)]
    ):
        train_sentencepiece([path], str(tmp_path / str(i) / "en"), settings)
        models.append((tmp_path / str(i) / "en.model").read_bytes())
    assert models[0] == models[1] != models[2]


def test_sentences_read_sampled_and_left_out_are_counted(tmp_path):
    lines = [*sentences(1500), "", "   ", "x" * 4193, "é" * 4193, "word " * 838]
    (tmp_path / "text.txt").write_text("\n".join(lines), "utf-8")
    settings = VocabularySettings(vocab_size=150, input_sentence_size=1000)
    result = train_sentencepiece([str(tmp_path / "text.txt")], str(tmp_path / "en"), settings)
    # Stripped of its accents, the fourth line has 4193 bytes; without its last space, the last
    # has 4189.
    assert result["sentences_read"] == 1503
    assert result["sentences_too_long"] == 2
    assert result["sentences_sampled"] == 1000
    assert 1.0 < result["pieces_per_word"] < 6.0
    assert 1.0 < result["characters_per_piece"] < 6.0
    assert result["unknown_piece_share"] < 0.001
    assert result["sentencepiece"] == importlib.metadata.version("sentencepiece")
    assert json.loads((tmp_path / "en.training.json").read_text()) == result


def test_another_vocabulary_is_kept_without_overwrite(tmp_path, corpus):
    train_sentencepiece([corpus], str(tmp_path / "en"), SETTINGS)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(before) == 4
    other = VocabularySettings(vocab_size=180)
    for prefix in ("en", "second"):
        with pytest.raises(AlbertError, match="already exists; give another path"):
            train_sentencepiece([corpus], str(tmp_path / prefix), other)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    train_sentencepiece([corpus], str(tmp_path / "en"), other, overwrite=True)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).vocab_size == 180


def test_a_prefix_needs_no_folder(tmp_path, corpus, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_sentencepiece([corpus], "en", SETTINGS)
    assert Tokenizer.from_file("tokenizer.json").spec.model_file == "en.model"


def test_input_files_and_other_files_are_not_overwritten(tmp_path, corpus):
    shutil.copy(corpus, tmp_path / "text.vocab")
    with pytest.raises(AlbertError, match=r"text\.vocab is also an input"):
        train_sentencepiece(
            [str(tmp_path / "text.vocab")], str(tmp_path / "text"), SETTINGS, overwrite=True
        )
    with pytest.raises(AlbertError, match=r"text\.vocab already exists"):
        train_sentencepiece([corpus], str(tmp_path / "text"), SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["text.vocab"]
    assert filecmp.cmp(corpus, tmp_path / "text.vocab", shallow=False)


def test_a_folder_in_use_by_another_process_is_refused(tmp_path, corpus, hold):
    refused = pytest.raises(AlbertError, match=f"^{tmp_path}/en is in use by process ")
    with hold(tmp_path / "en"), refused:
        train_sentencepiece([corpus], str(tmp_path / "en/en"), SETTINGS)


@pytest.mark.parametrize(
    ("data", "vocab_size", "message"),
    [
        (b"\n\n \r\n", 100, "No sentence of at most 4192 bytes"),
        (b"x" * 5000, 100, "1 were too long"),
        (b"one two three\n" * 50, 5000, r"train: Vocabulary size too high \(5000\).* <= \d+"),
        (
            "".join(map(chr, range(0x4E00, 0x4F00))).encode(),
            100,
            r"train: Vocabulary size is smaller than .*\d+ vs \d+",
        ),
        (b"good\nbad \xff\n", 100, r"text\.txt:2: not UTF-8"),
    ],
)
def test_bad_input_is_reported_and_leaves_nothing(tmp_path, data, vocab_size, message):
    (tmp_path / "text.txt").write_bytes(data)
    with pytest.raises(AlbertError, match=message) as error:
        train_sentencepiece(
            [str(tmp_path / "text.txt")],
            str(tmp_path / "en"),
            VocabularySettings(vocab_size=vocab_size),
        )
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_the_largest_vocabulary_size_in_the_error_is_possible(tmp_path, corpus):
    with pytest.raises(AlbertError) as error:
        train_sentencepiece([corpus], str(tmp_path / "en"), VocabularySettings(vocab_size=5000))
    largest = int(str(error.value).rpartition("<= ")[2].rstrip("."))
    train_sentencepiece([corpus], str(tmp_path / "en"), VocabularySettings(vocab_size=largest))
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).vocab_size == largest


class TestSampleStream:
    @staticmethod
    def sample(size, count, seed):
        return [int(item) for item in sample_stream(map(str, range(count)), size, seed)]

    def test_a_short_stream_is_kept_whole(self):
        assert self.sample(10, 7, 0) == list(range(7))
        assert self.sample(7, 7, 0) == list(range(7))

    def test_the_sample_is_in_stream_order_and_a_function_of_the_seed(self):
        first = self.sample(50, 5000, 3)
        assert len(first) == 50
        assert first == sorted(set(first))
        assert self.sample(50, 5000, 3) == first
        assert self.sample(50, 5000, 4) != first

    @pytest.mark.parametrize("size", [1, 10])
    def test_all_items_are_equally_likely(self, size):
        runs, count = 6000, 40
        hits = np.zeros(count)
        for seed in range(runs):
            hits[self.sample(size, count, seed)] += 1
        expected = runs * size / count
        deviation = np.sqrt(expected * (1 - size / count))
        assert np.abs(hits - expected).max() < 4.5 * deviation
        assert ((hits - expected) ** 2).sum() / deviation**2 < 80  # mean 40, deviation 9
