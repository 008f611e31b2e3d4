# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a SQuAD task; its questions, from JSON files or rows; and answers to them.

Source of the files of answers: google-research/albert squad_utils.write_predictions_v1 and _v2.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.text_tables import Rows, data_rows, read_rows
from albert_tf.settings import Settings, count_setting, setting, training_setting
from albert_tf.tasks.tables import with_distinct_ids

#: The files of answers: the best ones, lists of the best, and null odds.
FILES = ("predictions.json", "nbest_predictions.json", "null_odds.json")
_ANSWERS = (
    "they must be texts, objects with 'text' and 'answer_start', or an object with lists of these, "
    "of one length, and no text may be empty"
)
#: A letter, digit or sign on one, but not of scripts without spaces between words, or (in Hangul)
#: before particles.
_LETTER = (
    "(?:[^\\W_\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff"
    "\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
    "|[\u0300-\u036f\u0591-\u05c7\u0610-\u06ed\u0900-\u0963\u0966-\u0dff])"
)
#: A place inside a word, or inside a number such as 1.5.
_INSIDE = re.compile(rf"(?<={_LETTER})(?={_LETTER})|(?<=\d)(?=[.,]\d)|(?<=\d[.,])(?=\d)")


@dataclasses.dataclass(frozen=True)
class SquadSpec(Settings):
    """Settings of a SQuAD task, kept in task.json beside the model.

    As in the TF1 release, models of 1.1 score starts and ends independently; those of 2.0 score the
    ends of each start of a beam, and whether there is an answer. With `plain_head` those of 2.0 are
    as those of 1.1, and "no answer" is the span of [CLS], as in BERT (Devlin et al., 2019). Larger
    numbers than the bounds find no better answers: they are sizes of tensors.

    Raises:
      AlbertError: unknown version, a number out of bounds, or lengths that leave no room for the
        context.
    """

    version: str = training_setting(
        help="Version of SQuAD. 2.0 has unanswerable questions. Default: 2.0 if there are such in "
        "the training data.",
        choices=("1.1", "2.0"),
    )
    n_best_size: int = count_setting(
        20, "Answers per question in nbest_predictions.json.", maximum=1000
    )
    max_answer_length: int = count_setting(30, "Maximum answer length in tokens.", maximum=1 << 16)
    plain_head: bool = setting(
        False,
        "2.0: use the head of 1.1 instead of the beam. Hugging Face has this head, and ONNX and "
        "TensorFlow Lite models need it.",
    )
    start_n_top: int = count_setting(5, "2.0: starts in the beam.", maximum=32, flag=None)
    end_n_top: int = count_setting(
        5, "2.0: ends in the beam for each start.", maximum=1000, flag=None
    )
    max_seq_length: int = count_setting(384, "Maximum length of question and window, in tokens.")
    doc_stride: int = count_setting(
        128, "Tokens between the starts of consecutive windows of a long text."
    )
    max_query_length: int = count_setting(
        64, "Maximum question length in tokens; longer ones are truncated."
    )

    @property
    def has_beam(self) -> bool:
        """Whether the model is the one with a beam."""
        return self.version == "2.0" and not self.plain_head

    def __post_init__(self) -> None:
        """Checks the values."""
        super().__post_init__()
        if self.max_seq_length <= self.max_query_length + 3:
            raise AlbertError(
                f"`max_seq_length`={self.max_seq_length} leaves no room for the paragraph; it must "
                f"be more than `max_query_length` + 3 = {self.max_query_length + 3}."
            )


#: Characters [start, end) of a context.
Span = tuple[int, int]


class Answer(NamedTuple):
    """A gold answer, not empty, and the character where it starts, if the data says so."""

    text: str
    start: int | None


@dataclasses.dataclass(frozen=True)
class Question:
    """One question about one paragraph.

    Attributes:
      id: unique in its data set.
      question: the question's text.
      context: the paragraph; questions about one paragraph share the object.
      answers: gold answers; none if the question is unanswerable or has no labels.
      is_impossible: the paragraph does not answer the question, which only 2.0 allows.
      where: its place and id, for errors.
      problem: what is wrong with its row, such as "has no text 'context'"; without both texts, the
        question and the context are empty.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    is_impossible: bool
    where: str
    problem: str = ""


def squad_settings(questions: Iterable[Question]) -> dict[str, str]:
    """Returns what training questions decide in a SquadSpec: the version that they need."""
    return {"version": "2.0" if any(question.is_impossible for question in questions) else "1.1"}


def read_squad(data: Any, name: str = "") -> list[Question]:
    """Reads a file in SQuAD's layout, or by `row_questions` a table or data in memory.

    `name` is that of the data set, for errors.

    Raises:
      AlbertError: there is no question, or the file is missing or of another layout; or as
        `row_questions` and `read_rows`.
    """
    return row_questions(read_rows(data, name, dict.fromkeys((None, "json"), _file_rows)))


def _file_rows(path: str) -> Rows:
    """Yields the questions of a SQuAD file, or of a list, as rows, each with its place."""
    place, content = "the beginning", files.read_json(path, "SQuAD file")
    if isinstance(content, list):
        return (yield from data_rows(content, path))
    try:
        for i, article in enumerate(content["data"]):
            for j, paragraph in enumerate(article["paragraphs"]):
                for k, row in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    yield f"{path}: {place}", {**row, "context": paragraph.get("context")}
    except (AttributeError, KeyError, TypeError) as error:
        raise AlbertError(
            f"{path} has not SQuAD's layout of data, paragraphs and qas at or after {place} "
            f"({short_repr(error)})."
        ) from error


def row_questions(rows: Rows) -> list[Question]:
    """Converts rows to questions.

    A row has `question`, `context` and optionally `id` (default: its number from 0), `answers` and
    `is_impossible`. The answers are a text, a list of texts, SQuAD's list of objects with `text`
    and `answer_start`, or a dict of lists with these names, as in Hugging Face's data sets. A text
    without a start is searched for in the context, see `answer_spans`. An empty list means that the
    context does not answer the question, as does an `is_impossible` that is true; None, an empty
    text or no column, that the answers are unknown. A malformed row is a question with a `problem`.

    Raises:
      AlbertError: an id occurs twice.
    """
    questions = []
    contexts = {}
    for place, row in rows:
        id_ = str(row.get("id", len(questions)))
        where = f"{place} (question {id_})"
        if "answer" in row and "answers" not in row:
            raise AlbertError(f"{where}: there is no column 'answers'; there are {joined(row)}.")
        answers, impossible = row.get("answers"), row.get("is_impossible")
        if isinstance(impossible, str):  # In a table of texts.
            impossible = {"true": True, "false": False, "": None}.get(
                impossible.lower(), impossible
            )
        found, problem = () if answers in (None, "") else _answers(answers), ""
        if found is None:
            problem = f"has malformed answers; {_ANSWERS}: {short_repr(answers)}"
        elif impossible is None:
            impossible = answers not in (None, "") and not found
        elif not isinstance(impossible, bool):
            problem = f"has an 'is_impossible' that is not true or false: {short_repr(impossible)}"
        elif impossible and found:
            problem = "has answers although it is marked is_impossible"
        question, context = row.get("question"), row.get("context")
        for name, text in {"question": question, "context": context}.items():
            if not isinstance(text, str):
                problem, question, context = f"has no text {name!r}; it has {joined(row)}", "", ""
        if problem:
            found, impossible = (), False
        context = contexts.setdefault(context, context)
        questions.append(Question(id_, question, context, found, impossible, where, problem))
    return with_distinct_ids(questions)


def _answers(value: Any) -> tuple[Answer, ...] | None:
    """Returns the answers of a row, None if they are malformed; see `row_questions`."""
    try:
        if isinstance(value, dict):
            texts = value["text"]
            starts = value.get("answer_start") or [None] * len(texts)
            entries = [{"text": x, "answer_start": y} for x, y in zip(texts, starts)]
            if not isinstance(texts, list) or len(starts) != len(texts):
                return None
        else:
            entries = [value] if isinstance(value, str) else value
        entries = [{"text": x} if isinstance(x, str) else x for x in entries]
        answers = tuple(Answer(x["text"], x.get("answer_start")) for x in entries)
        valid = all(type(x.start) in (int, type(None)) and x.text.strip() for x in answers)
    except (AttributeError, KeyError, TypeError):
        return None
    return answers if valid else None


def answer_spans(context: str, answer: Answer) -> list[Span]:
    """Finds an answer in a context; returns its possible characters [start, end), the best first.

    An answer that is where the data says has only this place; not one at 0, which may stand for an
    unknown start, that ends inside a word if there is another place. Others have the places where
    their text is at the bounds of words, or else those of a text that differs in case and white
    space, sorted by the distance to the start in the data, or to the beginning.
    """
    text, start, exact = answer.text.strip(), 0, []
    if answer.start is not None:
        start = answer.start + answer.text.find(text)
        if start >= 0 and context.startswith(text, start):
            exact = [(start, start + len(text))]
            if start or not _INSIDE.match(context, len(text)):
                return exact
    loose = r"\s+".join(map(re.escape, text.split()))
    for pattern in (re.escape(text), f"(?i:{loose})"):
        found = (match.span(1) for match in re.finditer(f"(?=({pattern}))", context))
        if spans := [span for span in found if not any(_INSIDE.match(context, x) for x in span)]:
            return sorted(spans, key=lambda span: abs(span[0] - start))
    return exact


class Answers(NamedTuple):
    """Answers by question id.

    Attributes:
      nbest: the best answers, with different texts, best first; each a dict of text, probability
        (softmax of the scores in the list), start and end (characters of the context, end
        exclusive) and score.
      null_odds: a logit: the larger, the more likely the question is unanswerable; none for 1.1.
    """

    nbest: Mapping[str, Sequence[Mapping[str, Any]]]
    null_odds: Mapping[str, float] = {}


def predictions(answers: Answers, threshold: float | None) -> dict[str, str]:
    """Returns the best answer to every question, or "" if its null odds exceed the threshold."""
    return {
        name: nbest[0]["text"] if threshold is None or answers.null_odds[name] <= threshold else ""
        for name, nbest in answers.nbest.items()
    }


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the files of answers; returns the path of predictions.json."""
    best, nbest, null_odds = (os.path.join(folder, name) for name in FILES)
    files.write_json(best, predictions(answers, threshold))
    files.write_json(nbest, answers.nbest)
    if answers.null_odds:
        files.write_json(null_odds, answers.null_odds)
    return best
