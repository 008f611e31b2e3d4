# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences of options: blanks, truncation, and what the batches hold."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceSpec, MultipleChoiceTask, option_text
from tests.support.builders import tiny_config, write_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAD, CLS, SEP = 0, 2, 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("vocabulary"), LETTERS)


def spaced(letters):
    return " ".join(letters)


def example(context, question, options, label=0, group="", name="0"):
    options = tuple(spaced(option) for option in options)
    return MultipleChoiceExample(
        name, spaced(context), spaced(question), options, label, group, f"{name}:1"
    )


def build(tokenizer, examples, **spec):
    """All examples as a batch, padded to the longest sequence, and what is said."""
    config = tiny_config(tokenizer.vocab_size, max_position_embeddings=512)
    task = MultipleChoiceTask(config, tokenizer, MultipleChoiceSpec(**spec))
    data = task.encode(examples, labelled=False)
    batch = data.source.batch(range(len(examples)), int(data.source.longest.max()))
    return {k: v.numpy() for k, v in batch.items()}, "; ".join([data.summary, *data.notes])


def letters_of(ids):
    """A row as text: "^" for [CLS], "|" for [SEP], "." for padding."""
    return "".join({PAD: ".", CLS: "^", SEP: "|"}.get(i) or LETTERS[i - 5] for i in ids.tolist())


@pytest.mark.parametrize(
    ("question", "option", "text"),
    [
        ("The kite is ____ .", "red", "The kite is red ."),
        ("_ and   _   are here.", "Tom", "Tom and   Tom   are here."),
        ("x_y", r"\1 \g<0> _", r"x\1 \g<0> _y"),
        ("Who is there?", "Tom", "Who is there? Tom"),
        ("", "she sat down.", "she sat down."),
    ],
)
def test_an_option_fills_blanks_or_follows_the_question(question, option, text):
    assert option_text(question, option) == text


def test_every_option_has_a_row_of_text_question_and_option(tokenizer):
    questions = [
        example("abc", "q", ["x", "yz", "w"], label=2, group="high"),
        example("de", "p_", ["u", "v", "w"], label=None),
    ]
    batch, summary = build(tokenizer, questions, max_seq_length=16, max_qa_length=8)
    rows = [[letters_of(row) for row in rows] for rows in batch["input_word_ids"]]
    assert rows == [
        ["^abc|qx|.", "^abc|qyz|", "^abc|qw|."],
        ["^de|pu|..", "^de|pv|..", "^de|pw|.."],
    ]
    np.testing.assert_array_equal(batch["input_mask"], batch["input_word_ids"] != PAD)
    assert batch["input_type_ids"][0, 1].tolist() == [0] * 5 + [1] * 4
    assert batch["input_type_ids"][1, 0].tolist() == [0] * 4 + [1] * 3 + [0] * 2
    assert batch["label_ids"].tolist() == [2, -1]
    assert summary == ("2 questions about 2 texts, 3 options each, 8 tokens on average")


def test_question_and_option_keep_their_end_and_the_text_its_beginning(tokenizer):
    question = example("abcdefgh", "klmno", ["vwxyz", "z"])
    batch, summary = build(tokenizer, [question], max_seq_length=14, max_qa_length=7)
    rows = [letters_of(row) for row in batch["input_word_ids"][0]]
    # 14 = [CLS] + text + [SEP] + at most 7 + [SEP].
    assert rows == ["^abcd|novwxyz|", "^abcde|klmnoz|"]
    assert summary.endswith("; 2 sequences are cut to fit into 14 tokens")


def test_128_tokens_of_question_and_option_are_kept_by_default(tokenizer):
    question = example("ab" * 400, "cd" * 80, ["e" * 30] * 4)
    batch, _ = build(tokenizer, [question])
    row = letters_of(batch["input_word_ids"][0, 0])
    assert row == "^" + "ab" * 190 + "a" + "|" + "cd" * 49 + "e" * 30 + "|"
    assert len(row) == 512


def test_a_text_is_tokenized_once_for_all_its_questions(tokenizer, monkeypatch):
    seen = []
    encode = type(tokenizer).encode_batch
    monkeypatch.setattr(
        type(tokenizer),
        "encode_batch",
        lambda self, texts: seen.extend(texts) or encode(self, texts),
    )
    questions = [example("abc", "q", ["x", "y"]), example("abc", "r", ["x", "y"])]
    build(tokenizer, questions, max_seq_length=16, max_qa_length=4)
    assert seen.count("a b c") == 1
    assert len(seen) == 5


def test_a_length_without_room_for_the_text_is_refused():
    with pytest.raises(AlbertError, match="=128 does not fit: with `max_seq_length`=131"):
        MultipleChoiceSpec(max_seq_length=131, max_qa_length=128)
