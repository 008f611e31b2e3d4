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
    first, second = read_squad(path, version="1.1")
    where = f"{path}: data[0].paragraphs[0].qas[0] (question q1)"
    assert first == Question("q1", "Which?", "one two three", (Answer("two", 4),), False, where)
    assert second.answers == (Answer("two", 4),) * 2
    assert first.context is second.context


def test_unlabelled_and_unanswerable_questions_have_no_answers(write_squad):
    path = write_squad(
        qas=[
            {"id": "q1", "question": "?"},
            {"id": "q2", "question": "?", "answers": [], "is_impossible": True},
        ]
    )
    unlabelled, unanswerable = read_squad(path, version="2.0")
    assert (unlabelled.answers, unlabelled.is_impossible) == ((), False)
    assert (unanswerable.answers, unanswerable.is_impossible) == ((), True)


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
        (spoil(lambda c: c, "data"), "squad.json: data must be a list of objects"),
        (spoil(lambda c: c["data"][0], "paragraphs"), "data[0].paragraphs must be a list"),
        (
            spoil(paragraph, "context"),
            "qas[0] (question q1) has no text 'context'",
        ),
        (spoil(paragraph, "qas", ["two"]), "data[0].paragraphs[0].qas must be a list of objects"),
        (spoil(first_qa, "question"), "(question q1) has no text 'question'"),
        (spoil(first_qa, "answers", 5), "(question q1): the answers must be texts, objects"),
        (spoil(first_qa, "answers", [{"text": "two"}]), "(question q1): the answers must be"),
        (spoil(first_qa, "answers", [{"text": " ", "answer_start": 1}]), "no text may be empty"),
        (spoil(first_qa, "id", "q2"), "(question q2): the id occurs twice"),
        (spoil(first_qa, "is_impossible", "yes"), "'is_impossible' must be true or false"),
        (spoil(first_qa, "is_impossible", True), "(question q1) has answers although"),
        (spoil(paragraph, "qas", []), "squad.json contains no questions"),
    ],
)
def test_errors_name_the_place_in_the_file(write_squad, change, message):
    with pytest.raises(AlbertError) as error:
        read_squad(write_squad(change), version="1.1")
    assert message in str(error.value)
    assert "squad.json" in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is not JSON"), ("{", "is not JSON"), ("[]", "is not a JSON object")],
)
def test_files_without_a_json_object_are_refused(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(AlbertError, match=message):
        read_squad(str(path), version="1.1")


def test_an_unanswerable_question_needs_version_2(write_squad):
    path = write_squad(qas=[{"id": "q", "question": "?", "answers": [], "is_impossible": True}])
    with pytest.raises(AlbertError, match=r"question q\) is unanswerable.*`version`=2.0"):
        read_squad(path, version="1.1")
    assert len(read_squad(path, version="2.0")) == 1


@pytest.mark.parametrize(
    ("context", "answer", "expected"),
    [
        ("one two three", Answer("two", 4), "two"),
        ("one two three", Answer(" two ", 3), "two"),
        ("two one two three two", Answer("two", 9), "two"),
        ("one Two\n  Three", Answer("two three", 0), "Two\n  Three"),
    ],
)
def test_an_answer_is_found_where_the_file_says_or_nearby(context, answer, expected):
    question = Question("q", "?", context, (answer,), False, "data.json: question q")
    start, end = answer_span(question, answer)
    assert context[start:end] == expected
    assert abs(start - answer.start) <= 4


def test_an_answer_that_is_not_in_the_context_is_an_error():
    answer = Answer("four", 4)
    question = Question("q", "?", "one two three", (answer,), False, "data.json: question q")
    with pytest.raises(AlbertError, match=r"data\.json: question q: the answer 'four' is not in"):
        answer_span(question, answer)


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
        {"answers": [], "is_impossible": False},
        {"answers": {"text": ["two"]}},
    ]

    def questions_of(*rows):
        return row_questions(data_rows([{"question": "?", **row} for row in rows], "new"), "2.0")

    found = questions_of(*({"context": context, **row} for row in rows))
    assert [question.id for question in found] == ["0", "b", "2", "70", "4", "5", "6", "7", "8"]
    texts = [[answer.text for answer in question.answers] for question in found]
    assert texts == [["two"], ["two", "three"], ["two"], ["two"], [], [], [], [], ["two"]]
    assert [q.is_impossible for q in found] == [False] * 4 + [True] + [False] * 4
    assert answer_span(found[0], found[0].answers[0]) == (4, 7)
    assert found[1].where == "new row 1 (question b)"
    for answers in (
        [{"start": 3}],
        {"text": ["a", "b"], "answer_start": [3]},
        {"text": "two", "answer_start": [4]},
        {"answer_start": [4]},
        5,
    ):
        with pytest.raises(AlbertError, match=r"^new row 0 \(question 0\): the answers must be"):
            questions_of({"context": context, "answers": answers})
