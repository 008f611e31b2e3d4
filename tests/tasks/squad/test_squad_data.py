# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.squad.data import (
    Answer,
    Question,
    answer_span,
    read_squad,
    row_questions,
)


def paragraph(content):
    return content["data"][0]["paragraphs"][0]


def first_qa(content):
    return paragraph(content)["qas"][0]


def test_a_file_is_read_in_order(write_squad):
    path = write_squad()
    first, second = read_squad(path)
    where = f"{path}: data[0].paragraphs[0].qas[0] (question q1)"
    assert first == Question("q1", "Which?", "one two three", (Answer("two", 4),), False, where)
    assert second.answers == (Answer("two", 4),) * 2
    assert first.context is second.context


def spoil(place, name, value=None):
    """Returns a change that sets an entry, or deletes it for None."""

    def change(content):
        place(content)[name] = value
        if value is None:
            del place(content)[name]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil(lambda c: c, "data"), "at or after the beginning (KeyError('data'))."),
        (
            spoil(lambda c: c["data"][0], "paragraphs"),
            "the beginning (KeyError('paragraphs')).",
        ),
        (spoil(paragraph, "qas", ["two"]), "at or after data[0].paragraphs[0].qas[0] (TypeError("),
        (spoil(first_qa, "id", "q2"), "(question q2): the id 'q2' was used at "),
        (spoil(paragraph, "qas", []), "squad.json holds no examples"),
    ],
)
def test_errors_name_the_place_in_the_file(write_squad, change, message):
    with pytest.raises(AlbertError) as error:
        read_squad(write_squad(change))
    assert message in str(error.value)
    assert "squad.json" in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil(paragraph, "context"), "has no text 'context'; it has id, question, answers"),
        (spoil(first_qa, "answers", [{"text": " ", "answer_start": 1}]), "no text may be empty"),
        (spoil(first_qa, "answers", [{"text": "two", "answer_start": "4"}]), "has malformed"),
    ],
)
def test_a_malformed_question_is_named_with_its_place(write_squad, change, message):
    path = write_squad(change)
    with pytest.raises(AlbertError) as error:
        read_squad(path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: data[0].paragraphs[0].qas[0] (question q1) has")


def test_what_is_impossible_has_no_answer(write_squad):
    first, _ = read_squad(write_squad(spoil(first_qa, "is_impossible", True)))
    assert first.is_impossible and not first.answers


@pytest.mark.parametrize(
    ("context", "text", "start", "expected"),
    [
        ("a party art", "art", 3, 3),  # The data says so.
        ("one two three", " two ", 3, 4),
        ("two one two three two", "two", 9, 8),  # The nearest one.
        ("a party in art, an art", "art", None, 11),
        ("born in 1843, the 43rd of 43", "43", None, 26),
        ("USSR and US", "US", None, 9),
        ("USSR", "US", 0, 0),
        ("住在東京都。", "京", None, 3),
        ("서울은 크다", "서울", None, 0),
        ("one two three", "four", 4, None),
    ],
)
def test_an_answer_is_where_the_data_says_or_at_the_bounds_of_words(context, text, start, expected):
    span = answer_span(context, Answer(text, start))
    if expected is None:
        assert span is None
    else:
        assert span[0] == expected and context[slice(*span)] == text.strip()


def test_rows_give_the_questions_of_files():
    context = "one two three"
    rows = [
        {"answers": "two"},
        {"answers": ["two", "three"], "id": "b"},
        {"answers": [{"text": "two", "answer_start": 4}]},
        {"answers": {"text": ["two"], "answer_start": [4]}, "id": 70},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": None},
        {},
        {"answers": "", "is_impossible": "True"},
        {"answers": {"text": ["two"]}},
    ]

    def questions_of(*rows):
        return row_questions(data_rows([{"question": "?", **row} for row in rows], "new"))

    found = questions_of(*({"context": context, **row} for row in rows))
    assert [question.id for question in found] == ["0", "b", "2", "70", "4", "5", "6", "7", "8"]
    texts = [[answer.text for answer in question.answers] for question in found]
    assert texts == [["two"], ["two", "three"], ["two"], ["two"], [], [], [], [], ["two"]]
    assert [q.is_impossible for q in found] == [False] * 4 + [True, False, False, True, False]
    assert found[0].answers == (Answer("two", None),) != found[2].answers == (Answer("two", 4),)
    assert found[1].where == "new row 1 (question b)"
    for answers in (
        [{"start": 3}],
        {"text": ["a", "b"], "answer_start": [3]},
        {"text": "two", "answer_start": [4]},
        {"answer_start": [4]},
        5,
    ):
        with pytest.raises(AlbertError, match="has malformed answers"):
            questions_of({"context": context, "answers": answers})
