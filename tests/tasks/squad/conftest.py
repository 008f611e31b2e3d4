# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers, questions, and the real files."""

import json

import pytest

from albert_tf.tasks.squad.data import Answer, Question, SquadSpec
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import tiny_config, write_tokenizer
from tests.support.real_data import real_data

WORDS = "a b c d e f g h i j the cafe ##s 1 2 50 , . ⁄ fine river rivers 漢 字 ##ab naive"
#: An answerable and an unanswerable question about "one two three".
TWO_KINDS = [
    {"id": "q1", "question": "Which?", "answers": [{"text": "two", "answer_start": 4}]},
    {"id": "q2", "question": "What?", "answers": [], "is_impossible": True},
]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A WordPiece vocabulary in which a letter is a piece."""
    return write_tokenizer(tmp_path_factory.mktemp("vocabulary"), WORDS.split())


@pytest.fixture(scope="session")
def config(tokenizer):
    return tiny_config(tokenizer.vocab_size)


@pytest.fixture(scope="session")
def released():
    """The released SentencePiece model."""
    return Tokenizer.from_file(str(real_data("spm/30k-clean.model")))


@pytest.fixture(scope="session")
def squad_files():
    """The folder with the real SQuAD files."""
    return real_data("squad")


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
    """Writes a SQuAD file of one paragraph after a change."""

    def write(change=lambda content: None, qas=None, context="one two three"):
        if qas is None:
            answer = {"text": "two", "answer_start": 4}
            qas = [
                {"id": "q1", "question": "Which?", "answers": [answer]},
                {"id": "q2", "question": "What?", "answers": [answer, answer]},
            ]
        paragraph = {"context": context, "qas": qas}
        content = {"version": "1.1", "data": [{"title": "T", "paragraphs": [paragraph]}]}
        change(content)
        path = tmp_path / "squad.json"
        path.write_text(json.dumps(content))
        return str(path)

    return write


def lengths(max_seq_length, doc_stride, max_query_length):
    """Settings of SQuAD 1.1 with these lengths."""
    values = {"doc_stride": doc_stride, "max_query_length": max_query_length}
    return SquadSpec("1.1", max_seq_length=max_seq_length, **values)
