# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.data import Answer, read_squad
from albert_tf.tasks.squad.features import build_squad_records, squad_features
from albert_tf.tasks.squad.windows import WindowOptions, make_windows

#: A window holds four pieces, the next one begins two further on.
OPTIONS = WindowOptions(8, 2, 1)


def build(tmp_path, questions, tokenizer, options=OPTIONS, **kwargs):
    """Builds records; returns their parsed columns, statistics and path."""
    path = build_squad_records(str(tmp_path), questions, tokenizer, options, **kwargs)
    features = squad_features(kwargs["labelled"])
    serialized = tf.constant(list(records.read_examples(path)))
    columns = records.parse_sequences(serialized, features, options.max_seq_length)
    columns = {name: value.numpy() for name, value in columns.items()}
    return columns, Manifest.load(os.path.dirname(path)).statistics, path


def labels(columns):
    names = "start_positions", "end_positions", "is_impossible"
    return list(zip(*(columns[name].tolist() for name in names)))


def test_records_are_the_windows(tmp_path, tokenizer, ask):
    questions = [ask("a b c d e f", question="j"), ask("g", question="i")]
    columns, statistics, _ = build(tmp_path, questions, tokenizer, version="1.1", labelled=False)
    pieces = [
        [tokenizer.id_to_piece(i) for i, m in zip(row, mask) if m]
        for row, mask in zip(columns["input_word_ids"], columns["input_mask"])
    ]
    assert pieces == [
        ["[CLS]", "j", "[SEP]", "a", "b", "c", "d", "[SEP]"],
        ["[CLS]", "j", "[SEP]", "c", "d", "e", "f", "[SEP]"],
        ["[CLS]", "i", "[SEP]", "g", "[SEP]"],
    ]
    assert columns["input_type_ids"].tolist() == [[0] * 3 + [1] * 5] * 2 + [
        [0, 0, 0, 1, 1, 0, 0, 0]
    ]
    assert set(columns) == {"input_word_ids", "input_mask", "input_type_ids"}
    assert statistics["questions"] == 2


@pytest.mark.parametrize(
    ("version", "compat", "expected"),
    [
        ("1.1", False, [(3, 4, 0)]),
        ("1.1", True, [(3, 4, 0), (0, 0, 1)]),
        ("2.0", False, [(3, 4, 0), (0, 0, 1)]),
        ("2.0", True, [(3, 4, 0), (0, 0, 1)]),
    ],
)
def test_windows_that_lack_a_part_of_the_answer(
    tmp_path, tokenizer, ask, version, compat, expected
):
    # "b" to "c" is in the first window; the second has "c" only.
    questions = [ask("a b c d e f", "a b", question="j")]
    columns, statistics, _ = build(
        tmp_path, questions, tokenizer, version=version, labelled=True, compat=compat
    )
    assert labels(columns) == expected
    assert statistics["windows_left_out"] == 2 - len(expected)


def test_an_answer_within_two_windows_is_in_both(tmp_path, tokenizer, ask):
    questions = [ask("a b c d e f", "c d", question="j")]
    columns, _, _ = build(tmp_path, questions, tokenizer, version="1.1", labelled=True)
    assert labels(columns) == [(5, 6, 0), (3, 4, 0)]


def test_an_answer_that_no_window_holds_is_cut_and_counted(tmp_path, tokenizer, ask):
    questions = [ask("a b c d e f", "b c d e f", question="j")]
    columns, statistics, _ = build(tmp_path, questions, tokenizer, version="1.1", labelled=True)
    assert labels(columns) == [(3, 6, 0)]
    assert statistics["answers_cut"] == 1
    columns, _, _ = build(tmp_path, questions, tokenizer, version="2.0", labelled=True)
    assert labels(columns) == [(0, 0, 1), (3, 6, 0)]
    columns, _, _ = build(tmp_path, questions, tokenizer, version="1.1", labelled=True, compat=True)
    assert labels(columns) == [(0, 0, 1)] * 2


def test_unanswerable_questions_point_at_cls(tmp_path, tokenizer, ask):
    questions = [ask("a b", is_impossible=True, question="j"), ask("a b", "b", question="j")]
    columns, statistics, _ = build(tmp_path, questions, tokenizer, version="2.0", labelled=True)
    assert labels(columns) == [(0, 0, 1), (4, 4, 0)]
    assert (statistics["unanswerable"], statistics["answers_cut"]) == (1, 0)


def test_shuffling_puts_the_same_questions_in_an_order_of_the_seed(tmp_path, tokenizer, ask):
    questions = [ask(letter, letter, question="j") for letter in "abcdefghij"]
    shuffle = {"version": "1.1", "labelled": True}
    plain, one, two = (
        build(tmp_path, questions, tokenizer, **shuffle, shuffle_seed=seed)[0]["input_word_ids"]
        for seed in (None, 1, 2)
    )
    assert plain[:, 3].tolist() == [tokenizer.piece_to_id(letter) for letter in "abcdefghij"]
    assert not np.array_equal(one, two)
    assert sorted(one.tolist()) == sorted(two.tolist()) == sorted(plain.tolist())


def test_the_cache_is_used_again_and_knows_what_made_it(tmp_path, tokenizer, ask, monkeypatch):
    questions = [ask("a b c d e f", "a b", question="j")]
    given = {"version": "1.1", "labelled": True}
    _, _, path = build(tmp_path, questions, tokenizer, **given)
    moved = [dataclasses.replace(questions[0], answers=(Answer("c", 4),))]
    others = [
        build(tmp_path, questions, tokenizer, **{**given, **change})[2]
        for change in (
            {"version": "2.0"},
            {"compat": True},
            {"labelled": False},
            {"shuffle_seed": 1},
            {"options": WindowOptions(9, 2, 1)},
        )
    ]
    others.append(build(tmp_path, moved, tokenizer, **given)[2])
    assert len({path, *others}) == 7
    # Of unlabelled records answers and version are no part.
    same = [
        build(tmp_path, asked, tokenizer, version=version, labelled=False)[2]
        for asked, version in ((questions, "1.1"), (moved, "2.0"))
    ]
    assert same[0] == same[1]
    monkeypatch.setattr(type(tokenizer), "encode_batch", None)
    assert build(tmp_path, questions, tokenizer, **given)[2] == path


def test_training_data_without_or_with_a_wrong_answer_leaves_nothing_behind(
    tmp_path, tokenizer, ask
):
    wrong = dataclasses.replace(ask("a b", "a"), answers=(Answer("c", 1),))
    for question, message in ((ask("a b"), "q2 has no answer"), (wrong, "q1: the answer 'c' is")):
        with pytest.raises(AlbertError, match=message):
            build(tmp_path, [question], tokenizer, version="1.1", labelled=True)
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]


@pytest.mark.realdata
def test_real_training_records_point_at_the_answers(tmp_path, squad_files, released):
    path = squad_files / "train_parts" / "train-v2.0.10articles.json"
    questions = read_squad(str(path), version="2.0")
    options = WindowOptions(192, 64, 32)
    columns, statistics, _ = build(
        tmp_path, questions, released, options, version="2.0", labelled=True
    )
    windows = make_windows(questions, released, options)
    assert len(columns["input_mask"]) == len(windows)
    assert statistics["questions"] == len(questions) == 4719
    assert statistics["unanswerable"] == 348
    with_answer = set()
    for row, (start, end, impossible) in enumerate(labels(columns)):
        question = questions[windows.question_index[row]]
        if impossible:
            assert (start, end) == (0, 0)
            continue
        with_answer.add(question.id)
        text, begin, stop = windows.text(row, start, end)
        gold = question.answers[0]
        assert gold.text.strip() in text
        assert begin <= gold.start + 1 and stop >= gold.start + len(gold.text) - 1
    assert len(with_answer) == sum(not question.is_impossible for question in questions)
    assert statistics["answers_cut"] == 0
