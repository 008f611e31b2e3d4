# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the SQuAD tests share: tokenizers, questions, and the real files."""

import json
import os
from pathlib import Path

import pytest

from albert_tf.tasks.squad.data import Answer, Question
from albert_tf.tokenization.tokenizer import Tokenizer

REPOSITORY = Path(__file__).parents[3]
DATA = Path(os.environ.get("ALBERT_DATA_DIR", REPOSITORY.parent / "shared" / "data"))
PIECES = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h i j the cafe ##s 1 2 50 , . ⁄ fine river "
    "rivers 漢 字 ##ab naive"
)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A WordPiece vocabulary in which a letter is a piece."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES.split()), "utf-8")
    return Tokenizer.from_file(str(path))


@pytest.fixture(scope="session")
def released():
    """The released SentencePiece model."""
    path = DATA / "spm" / "30k-clean.model"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return Tokenizer.from_file(str(path))


@pytest.fixture(scope="session")
def squad_files():
    """The folder with the real SQuAD files."""
    folder = DATA / "squad"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    return folder


@pytest.fixture
def ask():
    """Makes a question: ask(context, answer text, ..., question=, is_impossible=)."""
    count = 0

    def make(context, *answers, question="a b", is_impossible=False):
        nonlocal count
        count += 1
        gold = tuple(Answer(text, context.find(text)) for text in answers)
        return Question(
            f"q{count}", question, context, gold, is_impossible, f"data.json: question q{count}"
        )

    return make


@pytest.fixture
def write_squad(tmp_path):
    """Writes one paragraph as a SQuAD file; `change` may spoil it first."""

    def write(change=lambda content: None, qas=None):
        if qas is None:
            answer = {"text": "two", "answer_start": 4}
            qas = [
                {"id": "q1", "question": "Which?", "answers": [answer]},
                {"id": "q2", "question": "What?", "answers": [answer, answer]},
            ]
        paragraph = {"context": "one two three", "qas": qas}
        content = {"version": "1.1", "data": [{"title": "T", "paragraphs": [paragraph]}]}
        change(content)
        path = tmp_path / "squad.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write
