# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import data_rows
from albert_tf.tasks.squad.data import Answer, Question, answer_spans, read_squad, row_questions


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
    path = write_squad(spoil(first_qa, "answers", []))
    assert [question.is_impossible for question in read_squad(path)] == [True, False]


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
        (spoil(lambda c: c["data"][0], "paragraphs"), "the beginning (KeyError('paragraphs'))."),
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
    ("change", "problem"),
    [
        (spoil(paragraph, "context"), "has no text 'context'; it has id, question, answers"),
        (spoil(first_qa, "answers", [{"text": " ", "answer_start": 1}]), "no text may be empty"),
        (spoil(first_qa, "answers", [{"text": "two", "answer_start": "4"}]), "has malformed"),
        (spoil(first_qa, "is_impossible", "yes"), "has an 'is_impossible' that is not true or"),
        (spoil(first_qa, "is_impossible", True), "has answers although it is marked is_imp"),
    ],
)
def test_a_malformed_question_is_read_with_its_problem_and_place(write_squad, change, problem):
    path = write_squad(change)
    first, second = read_squad(path)
    assert problem in first.problem and not (first.answers or first.is_impossible)
    assert first.where == f"{path}: data[0].paragraphs[0].qas[0] (question q1)"
    assert second.answers or not second.context


@pytest.mark.parametrize(
    ("context", "text", "start", "expected"),
    [
        ("a party", "art", 3, [3]),  # The data says so.
        ("one two three", " two ", 3, [4]),
        ("two one two three two", "two", 9, [8, 0, 18]),  # The nearest one first.
        ("one Two\n  Three", "two three", 0, [4]),
        ("a party in art, an art", "art", None, [11, 19]),
        ("a party of Art", "art", None, [11]),  # A word in another case is better than a part.
        ("born in 1843, the 43rd of 43", "43", None, [26]),
        ("USSR and US", "US", 0, [9]),  # 0 may stand for an unknown start.
        ("USSR", "US", 0, [0]),
        ("1.5 or 2,500 or 5", "5", None, [16]),
        ("cafe\u0301 or cafe", "cafe", None, [9]),
        ("住在東京都。", "京", None, [3]),
        ("서울은 크다", "서울", None, [0]),
        ("ขอบคุณครับ", "คุณ", None, [3]),
        ("生于1843年", "43", None, []),
        ("a party", "art", None, []),
        ("one two three", "four", 4, []),
    ],
)
def test_an_answer_is_at_the_bounds_of_words_or_where_the_data_says(context, text, start, expected):
    spans = answer_spans(context, Answer(text, start))
    assert [begin for begin, _ in spans] == expected
    assert all(context[b:e].lower().split() == text.lower().split() for b, e in spans)


def test_rows_give_the_questions_of_files(tmp_path):
    context = "one two three"
    rows = [
        {"answers": "two"},
        {"answers": ["two", "three"], "id": "b"},
        {"answers": [{"text": "two", "answer_start": 4}]},
        {"answers": {"text": ["two"], "answer_start": [4]}, "id": 70},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": None},
        {},
        {"answers": [], "is_impossible": False},
        {"answers": {"text": ["two"]}},
    ]

    def questions_of(*rows):
        return row_questions(data_rows([{"question": "?", **row} for row in rows], "new"))

    found = questions_of(*({"context": context, **row} for row in rows))
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"question": "?", "context": context, **row} for row in rows]))
    assert [(x.id, x.answers) for x in read_squad(path)] == [(x.id, x.answers) for x in found]
    assert [question.id for question in found] == ["0", "b", "2", "70", "4", "5", "6", "7", "8"]
    texts = [[answer.text for answer in question.answers] for question in found]
    assert texts == [["two"], ["two", "three"], ["two"], ["two"], [], [], [], [], ["two"]]
    assert [q.is_impossible for q in found] == [False] * 4 + [True] + [False] * 4
    assert found[0].answers == (Answer("two", None),) != found[2].answers == (Answer("two", 4),)
    assert found[1].where == "new row 1 (question b)"
    with pytest.raises(AlbertError, match="no column 'answers'; there are question, context, answ"):
        questions_of({"context": context, "answer": "two"})
    for answers in (
        [{"start": 3}],
        {"text": ["a", "b"], "answer_start": [3]},
        {"text": "two", "answer_start": [4]},
        {"answer_start": [4]},
        5,
    ):
        (question,) = questions_of({"context": context, "answers": answers})
        assert question.problem.startswith("has malformed answers") and not question.answers
