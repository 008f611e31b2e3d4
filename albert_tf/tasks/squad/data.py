# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a SQuAD task, and its questions: from JSON files or rows, with their answers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.data_rows import Rows
from albert_tf.io.json_values import joined, short_repr
from albert_tf.settings import Settings, setting

VERSIONS = ("1.1", "2.0")
_TYPE_NAMES = {str: "a string", int: "an integer", list: "a list", dict: "an object"}


@dataclasses.dataclass(frozen=True)
class SquadSpec(Settings):
    """Settings of a SQuAD task, kept in task.json beside the model.

    Larger numbers than the bounds find no better answers. They are sizes of tensors, and each start
    of the beam has its own search for ends.

    Raises:
      AlbertError: unknown version or head, a number out of bounds, or lengths that leave no room
        for the context.
    """

    version: str = setting(
        help="Version of SQuAD. 2.0 has unanswerable questions.", choices=VERSIONS
    )
    head: str | None = setting(
        None,
        "span: predicts start and end independently. beam: predicts the end given the start, and "
        "whether there is an answer. Default: beam for 2.0, span for 1.1, as in the release.",
        choices=("span", "beam"),
    )
    n_best_size: int = setting(
        20, "Answers per question in nbest_predictions.json.", minimum=1, maximum=1000
    )
    max_answer_length: int = setting(
        30, "Maximum answer length in tokens.", minimum=1, maximum=1 << 16
    )
    start_n_top: int = setting(5, "Number of starts in the beam.", minimum=1, maximum=32)
    end_n_top: int = setting(
        5, "Number of ends in the beam for each start.", minimum=1, maximum=1000
    )
    compat: bool = setting(
        False,
        "Reproduce bugs of the TF1 release: the span head can select the question and padding, and "
        "1.1 windows without the answer are trained to predict [CLS].",
    )
    max_seq_length: int = setting(
        384, "Maximum length of question and window, in tokens.", minimum=1
    )
    doc_stride: int = setting(
        128, "Tokens between the starts of consecutive windows of a long text.", minimum=1
    )
    max_query_length: int = setting(
        64, "Maximum question length in tokens; longer ones are truncated.", minimum=1
    )

    def __post_init__(self) -> None:
        """Fills in the head and checks the values."""
        if self.head is None:
            head = "beam" if self.version == "2.0" else "span"
            object.__setattr__(self, "head", head)
        super().__post_init__()
        if self.max_seq_length <= self.max_query_length + 3:
            raise AlbertError(
                f"`max_seq_length`={self.max_seq_length} leaves no room for the paragraph; it must "
                f"be more than max_query_length + 3 = {self.max_query_length + 3}."
            )


@dataclasses.dataclass(frozen=True)
class Answer:
    """A gold answer.

    Attributes:
      text: the answer, not empty.
      start: character of the context where it starts, according to the file.
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """One question about one paragraph.

    Attributes:
      id: unique in its file.
      question: the question's text.
      context: the paragraph; questions about one paragraph share the object.
      answers: gold answers; none if the question is unanswerable or has no labels.
      is_impossible: the paragraph does not answer the question (2.0 only).
      where: file and id, for errors.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    where: str

    @property
    def path(self) -> str:
        """The file of the question."""
        return self.where.rpartition(": question ")[0]


def check_answered(questions: Iterable[Question]) -> None:
    """Raises AlbertError if a question has no answer and is not marked as unanswerable."""
    for question in questions:
        if not question.answers and not question.is_impossible:
            raise AlbertError(
                f"{question.where} has no answers to compare with; use `do_predict` for questions "
                "whose answers are unknown."
            )


def read_squad(path: str, *, version: str) -> list[Question]:
    """Reads a SQuAD file, with or without answers.

    Args:
      path: the JSON file.
      version: "1.1" or "2.0"; 2.0 allows unanswerable questions, and also reads files of 1.1.

    Returns:
      The questions in the file's order.

    Raises:
      AlbertError: the file is missing, empty, not JSON or not in SQuAD's layout; an id occurs
        twice; a question of a 1.1 file is unanswerable.
    """
    check_version(version)
    content = files.read_object(path, "SQuAD file")
    questions: list[Question] = []
    for article, article_where in _objects(content, "data", path):
        for paragraph, where in _objects(article, "paragraphs", article_where):
            context = _field(paragraph, "context", str, where)
            for qa, qa_where in _objects(paragraph, "qas", where):
                questions.append(_question(qa, context, path, qa_where))
    check_questions(questions, version)
    if not questions:
        raise AlbertError(f"{path} contains no questions.")
    return questions


def check_version(version: str) -> None:
    """Raises AlbertError unless there is this version of SQuAD."""
    if version not in VERSIONS:
        raise AlbertError(f"The SQuAD version must be one of {', '.join(VERSIONS)}, not {version}.")


def check_questions(questions: Iterable[Question], version: str) -> None:
    """Checks what the version of SQuAD allows.

    Raises:
      AlbertError: there is no such version, an id occurs twice, or a question of 1.1 is
        unanswerable.
    """
    check_version(version)
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise AlbertError(f"{question.where}: the id occurs twice.")
        if question.is_impossible and version == "1.1":
            raise AlbertError(
                f"{question.where} is unanswerable (is_impossible), which SQuAD 1.1 does not have; "
                "use `version`=2.0."
            )
        seen.add(question.id)


def row_questions(rows: Rows, name: str) -> list[Question]:
    """Converts rows to questions.

    A row has `question`, `context` and optionally `id` (default: its number from 0), `answers` and
    `is_impossible`. The answers are a text, a list of texts, SQuAD's list of objects with `text`
    and `answer_start`, or a dict of lists with these names, as in Hugging Face's data sets. A text
    without a start is searched for in the context. An empty list means that the context does not
    answer the question; None or no column, that the answers are unknown.

    Args:
      rows: see `data_rows`.
      name: of the data set, for errors.

    Raises:
      AlbertError: a row is malformed.
    """
    questions: list[Question] = []
    contexts: dict[str, str] = {}
    for where, row in rows:
        for column in ("question", "context"):
            if not isinstance(row.get(column), str):
                raise AlbertError(
                    f"{where} has no text in the column {column!r}; its columns are {joined(row)}."
                )
        qa = {"id": str(row.get("id", len(questions))), "question": row["question"]}
        if row.get("answers") is not None:
            qa["answers"] = _row_answers(row["answers"], where)
            qa["is_impossible"] = not qa["answers"]
        if row.get("is_impossible") is not None:
            qa["is_impossible"] = row["is_impossible"]
        context = contexts.setdefault(row["context"], row["context"])
        questions.append(_question(qa, context, f"the {name} data", where))
    return questions


def _row_answers(answers: Any, where: str) -> list[Any]:
    """Returns the answers of a row as in SQuAD's files; see `row_questions`."""
    if isinstance(answers, str):
        answers = [answers]
    elif isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list):
            starts = [0] * len(texts) if starts is None else starts
            if isinstance(starts, list) and len(starts) == len(texts):
                return [{"text": t, "answer_start": s} for t, s in zip(texts, starts)]
    if not isinstance(answers, list):
        raise AlbertError(
            f"{where}: 'answers' must be a text, a list, or an object with the lists 'text' and "
            f"'answer_start' of the same length, not {short_repr(answers)}."
        )
    return [{"text": x, "answer_start": 0} if isinstance(x, str) else x for x in answers]


def answer_span(question: Question, answer: Answer) -> tuple[int, int]:
    """Finds an answer in the context; returns its characters [start, end).

    If it is not where the file says, this is the nearest occurrence of the text, or else the
    nearest one that differs only in case and white space.

    Raises:
      AlbertError: the context does not contain the answer.
    """
    context, text = question.context, answer.text.strip()
    start = answer.start + answer.text.find(text)
    if start >= 0 and context.startswith(text, start):
        return start, start + len(text)
    literal = re.escape(text)
    loose = r"\s+".join(map(re.escape, text.split()))
    for pattern in (re.compile(literal), re.compile(loose, re.IGNORECASE)):
        spans = [match.span() for match in pattern.finditer(context)]
        if spans:
            return min(spans, key=lambda span: abs(span[0] - start))
    raise AlbertError(
        f"{question.where}: the answer {short_repr(text)} is not in the context, neither at "
        f"character {answer.start} nor elsewhere."
    )


def _objects(holder: dict[str, Any], name: str, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the objects of the list `name`, each with its place in the file, as "data[3]"."""
    for i, item in enumerate(_field(holder, name, list, where)):
        place = f"{where}: {name}[{i}]" if name == "data" else f"{where}.{name}[{i}]"
        if not isinstance(item, dict):
            raise AlbertError(f"{place} must be an object, not {short_repr(item)}.")
        yield item, place


def _field(holder: dict[str, Any], name: str, kind: type, where: str) -> Any:
    if name not in holder:
        raise AlbertError(f"{where} lacks {name!r}; is this a SQuAD file?")
    value = holder[name]
    if type(value) is not kind:
        raise AlbertError(
            f"{where}: {name!r} must be {_TYPE_NAMES[kind]}, not {short_repr(value)}."
        )
    return value


def _question(qa: dict[str, Any], context: str, path: str, where: str) -> Question:
    question_id = _field(qa, "id", str, where)
    where = f"{path}: question {question_id}"
    text = _field(qa, "question", str, where)
    is_impossible = qa.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise AlbertError(f"{where}: 'is_impossible' must be true or false.")
    answers: list[Answer] = []
    if "answers" in qa:
        for entry, answer_where in _objects(qa, "answers", where):
            answer = Answer(
                _field(entry, "text", str, answer_where),
                _field(entry, "answer_start", int, answer_where),
            )
            if not answer.text.strip():
                raise AlbertError(f"{answer_where}: the answer is empty.")
            answers.append(answer)
    if answers and is_impossible:
        raise AlbertError(f"{where} has answers although it is marked is_impossible.")
    return Question(question_id, text, context, tuple(answers), is_impossible, where)
