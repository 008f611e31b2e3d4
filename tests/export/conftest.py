# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A release to export; small vocabularies of both kinds; texts that are hard to tokenize."""

from __future__ import annotations

import random

import pytest

import export_tfhub
from albert_tf.keras2 import keras
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.train_sentencepiece import VocabularySettings, train_sentencepiece
from tests.support.releases import write_release
from tests.tokenization import conftest as tokenization
from tests.tokenization.conftest import SAMPLE_SPACES, SAMPLE_WORDS

WORDPIECES = [*tokenization.WORDPIECES, *["(", "x", ")", "-", "οδος", "2", "##1", "##3"]]
WORDS = [*SAMPLE_WORDS, *["river,", "stone", "and", "bread;", "resume"]]
SPACES = [*SAMPLE_SPACES, "\u2028", "\x85", "\x1c", "\0", "\n"]


@pytest.fixture(scope="session")
def odd_texts() -> list[str]:
    """Words separated by odd white space, and random characters of Unicode 12, as in TensorFlow."""
    rng = random.Random(0)
    blocks = [(0, 0x250), (0x370, 0x530), (0x600, 0x660), (0xE00, 0xE80), (0x1E00, 0x2000)]
    blocks += [(0x2000, 0x2070), (0x3040, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00)]
    texts = []
    for _ in range(1500):
        parts = [rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randrange(12))]
        texts.append("".join(parts))
        points = [rng.randrange(*rng.choice(blocks)) for _ in range(rng.randrange(12))]
        texts.append("".join(chr(point) for point in points))
    return texts


@pytest.fixture(scope="session")
def sentencepiece_tokenizer(tmp_path_factory) -> Tokenizer:
    """A small SentencePiece model in which pieces end in digit and comma."""
    folder = tmp_path_factory.mktemp("spm")
    rng = random.Random(1)
    numbers = ["2013,", "2013,ba", "ba2013,", "the2013,ba", "1,000", "½", "naïve", "92,"]
    lines = [
        " ".join([*rng.choices(WORDS, k=5), rng.choice(numbers), rng.choice(WORDS)]) + "."
        for _ in range(2000)
    ]
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    settings = VocabularySettings(vocab_size=140, character_coverage=1.0)
    train_sentencepiece([str(folder / "text.txt")], str(folder / "small"), settings)
    tokenizer = Tokenizer.from_file(str(folder / "small.model"))
    assert tokenizer.digit_comma_parts
    return tokenizer


@pytest.fixture(scope="session")
def wordpiece_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("wordpiece") / "vocab.txt"
    path.write_text("\n".join(WORDPIECES) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def wordpiece_tokenizer(wordpiece_file) -> Tokenizer:
    return Tokenizer.from_file(str(wordpiece_file))


@pytest.fixture(params=["sentencepiece", "wordpiece"])
def tokenizer(request) -> Tokenizer:
    return request.getfixturevalue(f"{request.param}_tokenizer")


@pytest.fixture
def release(tmp_path):
    return write_release(tmp_path / "release", "vocab_zh.txt")


@pytest.fixture
def export(run_script):
    """Runs export_tfhub.py on a folder, and returns the path of the export."""

    def run(folder, path, **flags):
        flags = {"albert_directory": folder, "export_path": path, **flags}
        run_script(export_tfhub, *(f"--{name}={value}" for name, value in flags.items())).ok()
        return str(path)

    return run


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(7)
