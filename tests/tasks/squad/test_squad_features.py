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
from albert_tf.tasks.squad.features import SquadSpec, build_squad_records, squad_features
from albert_tf.tasks.squad.windows import make_windows

LETTERS = "abcdefghij"


@pytest.fixture
def build(tmp_path, tokenizer):
    """Builds records; returns their parsed columns, statistics and path.

    By default, windows have four pieces and begin every two.
    """

    def build(questions, labelled=True, shuffle_seed=None, tokenizer=tokenizer, **settings):
        lengths = {"max_seq_length": 8, "doc_stride": 2, "max_query_length": 1}
        spec = SquadSpec(**{"version": "1.1", **lengths, **settings})
        seed = {"labelled": labelled, "shuffle_seed": shuffle_seed}
        path, _ = build_squad_records(str(tmp_path), questions, tokenizer, spec, **seed)
        serialized = tf.constant(list(records.read_examples(path)))
        layout = squad_features(labelled)
        columns = records.parse_sequences(serialized, layout, spec.max_seq_length)
        columns = {name: value.numpy() for name, value in columns.items()}
        return columns, Manifest.load(os.path.dirname(path)).statistics, path

    return build


def labels(columns):
    names = "start_positions", "end_positions", "is_impossible"
    return list(zip(*(columns[name].tolist() for name in names)))


def test_records_are_the_windows(build, tokenizer, ask):
    questions = [ask("a b c d e f", question="j"), ask("g", question="i")]
    columns, statistics, _ = build(questions, labelled=False)
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
    ("answer", "version", "compat", "expected"),
    [
        # The second window has a part of this answer only.
        ("a b c", "1.1", False, [(3, 5, 0)]),
        ("a b c", "1.1", True, [(3, 5, 0), (0, 0, 1)]),
        ("a b c", "2.0", False, [(3, 5, 0), (0, 0, 1)]),
        ("a b c", "2.0", True, [(3, 5, 0), (0, 0, 1)]),
        # Both windows have this one.
        ("c d", "1.1", False, [(5, 6, 0), (3, 4, 0)]),
        # No window has the whole of this one.
        ("b c d e f", "1.1", False, [(3, 6, 0)]),
        ("b c d e f", "1.1", True, [(0, 0, 1)] * 2),
        ("b c d e f", "2.0", False, [(0, 0, 1), (3, 6, 0)]),
    ],
)
def test_labels_of_windows_with_and_without_the_answer(
    build, ask, answer, version, compat, expected
):
    questions = [ask("a b c d e f", answer, question="j")]
    columns, statistics, _ = build(questions, version=version, compat=compat)
    assert labels(columns) == expected
    assert statistics["windows_left_out"] == 2 - len(expected)
    assert statistics["answers_cut"] == (answer == "b c d e f" and not compat)


def test_unanswerable_questions_point_at_cls(build, ask):
    questions = [ask("a b", is_impossible=True, question="j"), ask("a b", "b", question="j")]
    columns, statistics, _ = build(questions, version="2.0")
    assert labels(columns) == [(0, 0, 1), (4, 4, 0)]
    assert (statistics["unanswerable"], statistics["answers_cut"]) == (1, 0)


def test_a_seed_shuffles_the_questions(build, tokenizer, ask):
    questions = [ask(letter, letter, question="j") for letter in LETTERS]
    plain, one, two = (
        build(questions, shuffle_seed=seed)[0]["input_word_ids"] for seed in (None, 1, 2)
    )
    assert plain[:, 3].tolist() == [tokenizer.piece_to_id(letter) for letter in LETTERS]
    assert not np.array_equal(one, two)
    assert sorted(one.tolist()) == sorted(two.tolist()) == sorted(plain.tolist())


def test_cached_records_are_used_again_unless_anything_about_them_changes(
    build, tokenizer, ask, monkeypatch
):
    def path_of(asked, **changes):
        return build(asked, **changes)[2]

    questions = [ask("a b c d e f", "a b", question="j")]
    moved = [dataclasses.replace(questions[0], answers=(Answer("c", 4),))]
    path = path_of(questions)
    changes = (
        {"version": "2.0"},
        {"compat": True},
        {"labelled": False},
        {"shuffle_seed": 1},
        {"max_seq_length": 9},
    )
    others = [path_of(questions, **change) for change in changes]
    assert len({path, path_of(moved), *others}) == 7
    # Unlabelled records do not depend on answers and version.
    unlabelled = path_of(questions, labelled=False)
    assert unlabelled == path_of(moved, labelled=False, version="2.0")
    monkeypatch.setattr(type(tokenizer), "encode_batch", None)
    assert path_of(questions) == path


def test_training_data_without_or_with_a_wrong_answer_leaves_nothing_behind(build, tmp_path, ask):
    wrong = dataclasses.replace(ask("a b", "a"), answers=(Answer("c", 1),))
    for question, message in ((ask("a b"), "q2 has no answer"), (wrong, "q1: the answer 'c' is")):
        with pytest.raises(AlbertError, match=message):
            build([question])
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]


@pytest.mark.realdata
def test_real_training_records_point_at_the_answers(build, squad_files, released):
    path = squad_files / "train_parts" / "train-v2.0.10articles.json"
    questions = read_squad(str(path), version="2.0")
    lengths = {"max_seq_length": 192, "doc_stride": 64, "max_query_length": 32}
    columns, statistics, _ = build(questions, tokenizer=released, version="2.0", **lengths)
    windows = make_windows(questions, released, SquadSpec("2.0", **lengths).windows)
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
