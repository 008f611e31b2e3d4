# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.data import Answer
from albert_tf.tasks.squad.task import SquadSpec, SquadTask
from tests.support.builders import tiny_config


@pytest.fixture
def build(tokenizer):
    """Encodes questions; returns all windows as a batch, and the data.

    By default, windows have four pieces and begin every two.
    """

    def build(questions, training=True, tokenizer=tokenizer, labelled=False, **settings):
        lengths = {"max_seq_length": 8, "doc_stride": 2, "max_query_length": 1}
        spec = SquadSpec(**{"version": "1.1", **lengths, **settings})
        config = tiny_config(tokenizer.vocab_size, max_position_embeddings=512)
        task = SquadTask(config, tokenizer, spec)
        data = task.encode(questions, labelled=labelled or training, training=training)
        batch = data.source.batch(range(data.source.num_examples), spec.max_seq_length)
        return {name: value.numpy() for name, value in batch.items()}, data

    return build


def labels(columns):
    names = "start_positions", "end_positions"
    return list(zip(*(columns[name].tolist() for name in names)))


def test_sequences_are_the_windows(build, tokenizer, ask):
    questions = [ask("a b c d e f", question="j"), ask("g", question="i")]
    columns, data = build(questions, training=False)
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
    assert data.summary == "2 questions, 3 windows"


@pytest.mark.parametrize(
    ("answer", "version", "expected"),
    [
        # The second window has a part of this answer only.
        ("a b c", "1.1", [(3, 5)]),
        ("a b c", "2.0", [(3, 5), (0, 0)]),
        # Both windows have this one.
        ("c d", "1.1", [(5, 6), (3, 4)]),
        # No window has the whole of this.
        ("b c d e", "2.0", [(0, 0), (0, 0)]),
    ],
)
def test_labels_of_windows_with_and_without_the_answer(build, ask, answer, version, expected):
    questions = [ask("a b c d e f", answer, question="j")]
    columns, data = build(questions, version=version)
    assert labels(columns) == expected
    assert ("1 more without the answer left out" in data.summary) == (len(expected) == 1)
    with pytest.raises(AlbertError, match="No window of the training data holds a whole answer"):
        build([ask("a b c d e f", "b c d e", question="j")], version="1.1")


def test_unanswerable_questions_point_at_cls(build, ask):
    questions = [ask("a b", is_impossible=True, question="j"), ask("a b", "b", question="j")]
    columns, _ = build(questions, version="2.0")
    assert labels(columns) == [(0, 0), (4, 4)]


def test_unusable_questions_are_left_out_and_named_up_to_a_tenth(build, ask):
    good = [ask("a cafe a b", "a b", question="j") for _ in range(54)]
    changes = [{"answers": ()}, {"problem": "has no text 'context'; it has id", "context": ""}]
    changes += [{"answers": (Answer("c", 1),)}, {"answers": (Answer("f", None),)}]
    changes += [{"context": "", "answers": (Answer("a", 0),)}, {"context": "\u200b"}]
    wrong = [dataclasses.replace(ask("a b", "a"), **change) for change in changes]
    (columns, data), (expected, _) = build([*wrong, *good]), build(good)
    assert all((columns[name] == expected[name]).all() for name in expected)
    (note,) = data.notes
    first, *shown = note.splitlines()
    assert first == "6 are left out (left_out_*.txt in the output directory has all), such as:"
    assert [line.strip() for line in shown] == data.left_out[:3]
    assert data.left_out[2] == (
        "data.json: question q57 has the answer 'c', which is not in the context as whole words."
    )
    placed = ask("a b a b", "a b", question="j")
    unplaced = dataclasses.replace(placed, answers=(Answer("a b", None),))
    (note,) = build([placed, unplaced])[1].notes
    assert note.startswith("1 answers without their right start occur several times; the nearest")
    with pytest.raises(AlbertError, match=r"^6 of 59 questions .* question q55 has no answer"):
        build([*wrong, *good[1:]])
    with pytest.raises(AlbertError, match="2 of 11 questions cannot be used"):
        build([*wrong[:3], *good[:8]], training=False, labelled=True)
