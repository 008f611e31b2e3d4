# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a SQuAD task; its questions, from JSON files or rows; and answers to them.

Source of the files of answers: google-research/albert squad_utils.write_predictions_v1 and _v2.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.text_tables import Rows
from albert_tf.settings import Settings, setting

PREDICTIONS_FILE = "predictions.json"
_NBEST_FILE = "nbest_predictions.json"
_NULL_ODDS_FILE = "null_odds.json"
FILES = (PREDICTIONS_FILE, _NBEST_FILE, _NULL_ODDS_FILE)


@dataclasses.dataclass(frozen=True)
class SquadSpec(Settings):
    """Settings of a SQuAD task, kept in task.json beside the model.

    As in the TF1 release, models of 1.1 score starts and ends independently; those of 2.0 score the
    ends of each start of a beam, and whether there is an answer. Larger numbers than the bounds
    find no better answers: they are sizes of tensors.

    Raises:
      AlbertError: unknown version, a number out of bounds, or lengths that leave no room for the
        context.
    """

    version: str = setting(
        help="Version of SQuAD. 2.0 has unanswerable questions.",
        choices=("1.1", "2.0"),
        needs="do_train",
    )
    n_best_size: int = setting(
        20, "Answers per question in nbest_predictions.json.", minimum=1, maximum=1000
    )
    max_answer_length: int = setting(
        30, "Maximum answer length in tokens.", minimum=1, maximum=1 << 16
    )
    start_n_top: int = setting(5, "2.0: number of starts in the beam.", minimum=1, maximum=32)
    end_n_top: int = setting(
        5, "2.0: number of ends in the beam for each start.", minimum=1, maximum=1000
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
        """Checks the values."""
        super().__post_init__()
        if self.max_seq_length <= self.max_query_length + 3:
            raise AlbertError(
                f"`max_seq_length`={self.max_seq_length} leaves no room for the paragraph; it must "
                f"be more than max_query_length + 3 = {self.max_query_length + 3}."
            )


class Answer(NamedTuple):
    """A gold answer, not empty, and the character where it starts, according to the data."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """One question about one paragraph.

    Attributes:
      id: unique in its data set.
      question: the question's text.
      context: the paragraph; questions about one paragraph share the object.
      answers: gold answers; none if the question is unanswerable or has no labels.
      is_impossible: the paragraph does not answer the question (2.0 only).
      where: its place and id, for errors.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    where: str


def version_of(questions: Iterable[Question]) -> str:
    """Returns the version of SQuAD that questions with answers need."""
    return "2.0" if any(question.is_impossible for question in questions) else "1.1"


def read_squad(path: str, *, version: str) -> list[Question]:
    """Reads a SQuAD file, with or without answers.

    Version "2.0" allows unanswerable questions, and also reads files of 1.1.

    Raises:
      AlbertError: the file is missing, empty, not JSON or not in SQuAD's layout, or as
        `row_questions`.
    """
    questions = row_questions(_file_rows(path), version)
    if not questions:
        raise AlbertError(f"{path} contains no questions.")
    return questions


def _file_rows(path: str) -> Rows:
    """Yields the questions of a SQuAD file as rows, each with its place."""
    content = files.read_object(path, "SQuAD file")
    for article, article_place in _objects(content, "data", f"{path}: "):
        for paragraph, place in _objects(article, "paragraphs", f"{article_place}."):
            for row, where in _objects(paragraph, "qas", f"{place}."):
                if "id" not in row:
                    raise AlbertError(f"{where} lacks 'id'; it has {joined(row)}.")
                # Here is_impossible says which questions have no answer; an empty list does not.
                row["answers"] = row.get("answers") or None
                yield where, {**row, "context": paragraph.get("context")}


def _objects(holder: dict[str, Any], name: str, place: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yields the objects of the list `name`, each with its place in the file, as "data[3]"."""
    items = holder.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise AlbertError(f"{place}{name} must be a list of objects; is this a SQuAD file?")
    for i, item in enumerate(items):
        yield item, f"{place}{name}[{i}]"


def row_questions(rows: Rows, version: str) -> list[Question]:
    """Converts rows to questions.

    A row has `question`, `context` and optionally `id` (default: its number from 0), `answers` and
    `is_impossible`. The answers are a text, a list of texts, SQuAD's list of objects with `text`
    and `answer_start`, or a dict of lists with these names, as in Hugging Face's data sets. A text
    without a start is searched for in the context. An empty list means that the context does not
    answer the question; None or no column, that the answers are unknown. Version "2.0" allows
    unanswerable questions.

    Raises:
      AlbertError: a row is malformed, an id occurs twice, or a question of 1.1 is unanswerable.
    """
    questions: dict[str, Question] = {}
    contexts: dict[str, str] = {}
    for place, row in rows:
        id_ = str(row.get("id", len(questions)))
        where = f"{place} (question {id_})"
        for name in ("question", "context"):
            if not isinstance(row.get(name), str):
                raise AlbertError(f"{where} has no text {name!r}; it has {joined(row)}.")
        answers, impossible = row.get("answers"), row.get("is_impossible")
        found = () if answers is None else _answers(answers, where)
        if impossible is None:
            impossible = answers is not None and not found
        if not isinstance(impossible, bool):
            raise AlbertError(f"{where}: 'is_impossible' must be true or false.")
        if impossible and found:
            raise AlbertError(f"{where} has answers although it is marked is_impossible.")
        if impossible and version == "1.1":
            raise AlbertError(
                f"{where} is unanswerable (is_impossible), which SQuAD 1.1 does not have; use "
                "`version`=2.0."
            )
        if id_ in questions:
            raise AlbertError(f"{where}: the id occurs twice.")
        context = contexts.setdefault(row["context"], row["context"])
        questions[id_] = Question(id_, row["question"], context, found, impossible, where)
    return list(questions.values())


def _answers(value: Any, where: str) -> tuple[Answer, ...]:
    """Returns the answers of a row; see `row_questions`."""
    entries = [value] if isinstance(value, str) else value
    try:
        if isinstance(value, dict):
            texts, starts = value["text"], value.get("answer_start")
            starts = [0] * len(texts) if starts is None else starts
            if not isinstance(texts, list) or len(starts) != len(texts):
                raise ValueError
            entries = list(zip(texts, starts))
        else:
            entries = [(x, 0) if isinstance(x, str) else (x["text"], x["answer_start"])
                       for x in entries]  # fmt: skip
        answers = tuple(Answer(*entry) for entry in entries)
        if all(type(x.start) is int and x.text.strip() for x in answers):
            return answers
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise AlbertError(
        f"{where}: the answers must be texts, objects with 'text' and 'answer_start', or an object "
        f"with lists of these, of one length; no text may be empty: {short_repr(value)}."
    )


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


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers by question id.

    Attributes:
      nbest: the best answers, with different texts, best first; each a dict of text, probability
        (softmax of the scores in the list), start and end (characters of the context, end
        exclusive) and score.
      null_odds: a logit: the larger, the more likely the question is unanswerable; none for 1.1.
    """

    nbest: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    null_odds: dict[str, float] = dataclasses.field(default_factory=dict)


def predictions(answers: Answers, threshold: float | None) -> dict[str, str]:
    """Returns the best answer to every question, or "" if its null odds exceed the threshold."""
    return {
        name: nbest[0]["text"] if threshold is None or answers.null_odds[name] <= threshold else ""
        for name, nbest in answers.nbest.items()
    }


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the files of answers; returns the path of predictions.json."""
    path = os.path.join(folder, PREDICTIONS_FILE)
    files.write_json(path, predictions(answers, threshold))
    files.write_json(os.path.join(folder, _NBEST_FILE), answers.nbest)
    if answers.null_odds:
        files.write_json(os.path.join(folder, _NULL_ODDS_FILE), answers.null_odds)
    return path


def read_answers(folder: str) -> Answers:
    """Reads n-best lists and, if there are some, null odds.

    Raises:
      AlbertError: a file is missing or damaged.
    """
    paths = [os.path.join(folder, name) for name in (_NBEST_FILE, _NULL_ODDS_FILE)]
    nbest = files.read_object(paths[0], "file of answers")
    odds = files.read_object(paths[1], "file of null odds") if files.exists(paths[1]) else {}
    for path, values, is_valid in zip(paths, (nbest, odds), (_is_nbest, _is_odds)):
        for question, value in values.items():
            if not is_valid(value):
                raise AlbertError(f"{path}: the entry for question {question} is damaged.")
    return Answers(nbest, odds)


def _is_odds(value: Any) -> bool:
    # Integers of any size are valid JSON, but may not fit into a float64.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_nbest(entries: Any) -> bool:
    try:
        return bool(entries) and all(
            isinstance(entry["text"], str)
            and type(entry["start"]) is type(entry["end"]) is int
            and 0 <= entry["probability"] <= 1
            for entry in entries
        )
    except (KeyError, TypeError):
        return False
