# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences of options: blanks, truncation, and what the records hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import find_manifest
from albert_tf.errors import AlbertError
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample, read_race
from albert_tf.tasks.multiple_choice.features import (
    GROUPS,
    MultipleChoiceSpec,
    build_records,
    option_text,
    record_features,
)
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import write_tokenizer
from tests.support.real_data import real_data

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


def build(folder, tokenizer, examples, shuffle_seed=None, **spec):
    """The parsed records, padded to the longest row, and their statistics."""
    spec = MultipleChoiceSpec(**spec)
    path = build_records(str(folder), examples, tokenizer, spec, shuffle_seed)
    serialized = list(records.read_examples(path))
    columns = records.parse_columns(serialized, record_features(spec.num_choices))
    longest = int(columns["row_lengths"].numpy().max())
    batch = records.parse_sequences(serialized, record_features(spec.num_choices), longest)
    return {k: v.numpy() for k, v in batch.items()}, find_manifest([path]).statistics


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


def test_every_option_has_a_row_of_text_question_and_option(tokenizer, tmp_path):
    questions = [
        example("abc", "q", ["x", "yz", "w"], label=2, group="high"),
        example("de", "p_", ["u", "v", "w"], label=None),
    ]
    batch, statistics = build(
        tmp_path, tokenizer, questions, num_choices=3, max_seq_length=16, max_qa_length=8
    )
    rows = [[letters_of(row) for row in rows] for rows in batch["input_word_ids"]]
    assert rows == [
        ["^abc|qx|.", "^abc|qyz|", "^abc|qw|."],
        ["^de|pu|..", "^de|pv|..", "^de|pw|.."],
    ]
    np.testing.assert_array_equal(batch["input_mask"], batch["input_word_ids"] != PAD)
    assert batch["input_type_ids"][0, 1].tolist() == [0] * 5 + [1] * 4
    assert batch["input_type_ids"][1, 0].tolist() == [0] * 4 + [1] * 3 + [0] * 2
    assert batch["label_ids"].tolist() == [2, -1]
    assert batch["group_ids"].tolist() == [GROUPS.index("high"), 0]
    assert statistics["examples"] == 2
    assert statistics["groups"] == {"": 1, "high": 1}
    assert statistics["longest"] == 9
    assert statistics["mean_length"] == pytest.approx((8 + 9 + 8 + 7 * 3) / 6)
    assert statistics["truncated"] == statistics["truncated_options"] == 0


def test_question_and_option_keep_their_end_and_the_text_its_beginning(tokenizer, tmp_path):
    question = example("abcdefgh", "klmno", ["vwxyz", "z"])
    batch, statistics = build(
        tmp_path, tokenizer, [question], num_choices=2, max_seq_length=14, max_qa_length=7
    )
    rows = [letters_of(row) for row in batch["input_word_ids"][0]]
    # 14 = [CLS] + text + [SEP] + at most 7 + [SEP].
    assert rows == ["^abcd|novwxyz|", "^abcde|klmnoz|"]
    assert statistics["truncated"] == 1
    assert statistics["truncated_options"] == 1
    assert statistics["longest"] == 8 + 10 + 3


def test_128_tokens_of_question_and_option_are_kept_by_default(tokenizer, tmp_path):
    question = example("ab" * 400, "cd" * 80, ["e" * 30] * 4)
    batch, _ = build(tmp_path, tokenizer, [question])
    row = letters_of(batch["input_word_ids"][0, 0])
    assert row == "^" + "ab" * 190 + "a" + "|" + "cd" * 49 + "e" * 30 + "|"
    assert len(row) == 512


def test_a_text_is_tokenized_once_for_all_its_questions(tokenizer, tmp_path, monkeypatch):
    seen = []
    encode = type(tokenizer).encode_batch
    monkeypatch.setattr(
        type(tokenizer),
        "encode_batch",
        lambda self, texts: seen.extend(texts) or encode(self, texts),
    )
    questions = [example("abc", "q", ["x", "y"]), example("abc", "r", ["x", "y"])]
    build(tmp_path, tokenizer, questions, num_choices=2, max_seq_length=16, max_qa_length=4)
    assert seen.count("a b c") == 1
    assert len(seen) == 5


def test_training_records_are_shuffled_evaluation_records_are_not(tokenizer, tmp_path):
    questions = [example("a", letter, ["x", "y"], label=i % 2) for i, letter in enumerate(LETTERS)]
    spec = {"num_choices": 2, "max_seq_length": 8, "max_qa_length": 4}

    def order(seed):
        batch, _ = build(tmp_path, tokenizer, questions, seed, **spec)
        asked = [letters_of(rows[0])[3] for rows in batch["input_word_ids"]]
        assert [LETTERS.index(q) % 2 for q in asked] == batch["label_ids"].tolist()
        return "".join(asked)

    assert order(None) == LETTERS
    assert order(1) != LETTERS
    assert sorted(order(1)) == list(LETTERS)
    assert order(1) != order(2)


def test_records_are_made_again_when_anything_that_made_them_changes(tokenizer, tmp_path):
    spec = MultipleChoiceSpec(num_choices=2, max_seq_length=16, max_qa_length=4)
    question = example("abc", "q", ["x", "y"])
    path = build_records(str(tmp_path), [question], tokenizer, spec)
    assert build_records(str(tmp_path), [question], tokenizer, spec) == path
    changed = [
        ([dataclasses.replace(question, context="a b")], spec),
        ([dataclasses.replace(question, question="r")], spec),
        ([dataclasses.replace(question, options=("x", "z"))], spec),
        ([dataclasses.replace(question, label=1)], spec),
        ([dataclasses.replace(question, group="high")], spec),
        ([question], dataclasses.replace(spec, max_seq_length=12)),
        ([question], dataclasses.replace(spec, max_qa_length=3)),
    ]
    paths = {build_records(str(tmp_path), *c[:1], tokenizer, c[1]) for c in changed}
    assert len(paths | {path}) == len(changed) + 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_choices": 1}, "num_choices=1 must be 2 to 26"),
        ({"max_seq_length": 131}, "max_qa_length=128 does not fit: with max_seq_length=131"),
        ({"max_qa_length": 0}, "max_qa_length=0 must be an integer from 1"),
    ],
)
def test_impossible_lengths_are_refused(values, message):
    with pytest.raises(AlbertError, match=message):
        MultipleChoiceSpec(**values)


@pytest.mark.realdata
def test_real_questions_keep_all_of_their_options(real_race, tmp_path):
    tokenizer = Tokenizer.from_file(str(real_data("spm/30k-clean.model")))
    questions = read_race(real_race, "dev", ("middle",))[:300]
    batch, statistics = build(tmp_path, tokenizer, questions)
    assert statistics["truncated_options"] == 0
    assert batch["input_word_ids"].shape[:2] == (300, 4)
    for example, rows, types in zip(questions, batch["input_word_ids"], batch["input_type_ids"]):
        for option, row, kinds in zip(example.options, rows, types):
            answer = tokenizer.decode(row[kinds == 1][:-1])
            expected = tokenizer.decode(tokenizer.encode(option_text(example.question, option)))
            assert answer == expected
