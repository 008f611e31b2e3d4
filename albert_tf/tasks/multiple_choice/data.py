# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads multiple-choice questions: RACE as distributed, and other questions from JSON lines."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.json_values import JSON_ERRORS, joined, json_fault, short_json, short_repr
from albert_tf.io.progress import Progress
from albert_tf.io.text_files import read_lines
from albert_tf.settings import Settings, setting

#: The two parts of RACE: examinations of middle and of high schools.
RACE_GROUPS = ("middle", "high")
#: Questions evaluated together; each has a sequence for every choice.
EVAL_BATCH_SIZE = 16
_ALL_ARTICLES = "all.txt"
#: The distribution's files have no line ends, so concatenated they are a single line.
_MAX_LINE_BYTES = 1 << 28


@dataclasses.dataclass(frozen=True)
class MultipleChoiceExample:
    """A question with its options.

    Attributes:
      id: name of the question in predictions.
      context: the text it is about; questions about the same text share the object.
      question: the question or the beginning of a sentence, perhaps with a blank "_"; may be empty.
      options: the answers to choose from.
      label: index of the correct option; None if it is unknown.
      group: its part of the data, such as "high"; may be empty.
      where: file, line and question, for errors.
    """

    id: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None
    group: str
    where: str


@dataclasses.dataclass(frozen=True)
class MultipleChoiceSpec(Settings):
    """Settings of a multiple-choice task, saved with the model.

    Raises:
      AlbertError: a value is out of range.
    """

    # Each option is named by a letter.
    num_choices: int = setting(4, "Options per question.", minimum=2, maximum=26)
    max_seq_length: int = setting(
        512, "Maximum length of a sequence in tokens; the text is cut to fit.", minimum=1
    )
    max_qa_length: int | None = setting(
        None,
        "Maximum length of question and option together, in tokens; the beginning of longer ones "
        "is cut off. Default: 128, or half of the maximum sequence length if that is less.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        """Fills in the length and checks the values."""
        super().__post_init__()
        if self.max_qa_length is None:
            object.__setattr__(self, "max_qa_length", min(128, self.max_seq_length // 2))
        # [CLS], two [SEP] and at least one token of the text.
        if not 1 <= self.max_qa_length <= self.max_seq_length - 4:
            raise AlbertError(
                f"`max_qa_length`={self.max_qa_length} does not fit: with max_seq_length="
                f"{self.max_seq_length} it must be 1 to {self.max_seq_length - 4}."
            )


def letter(index: int) -> str:
    """Returns the letter of an option: A for 0."""
    return chr(ord("A") + index)


def read_race(
    data_dir: str,
    split: str,
    groups: tuple[str, ...] = RACE_GROUPS,
    num_choices: int = 4,
) -> list[MultipleChoiceExample]:
    """Reads one split of RACE.

    `<data_dir>/<split>/<group>` or `<data_dir>/RACE/<split>/<group>` has the articles, each in a
    JSON file *.txt as distributed. If there is an all.txt with all articles one after the other, as
    the TF1 release needs it, only that is read. An article is an object with `id`, `article`,
    `questions`, `options` (a list for each question) and `answers` (letters; may be absent). A
    question's id is that of its article, a hyphen and its number from 0.

    Args:
      data_dir: see above.
      split: "train", "dev" or "test".
      groups: the groups to read.
      num_choices: number of options that every question must have.

    Raises:
      AlbertError: the folder is missing or empty, or an article is malformed.
    """
    check_race(data_dir, split, groups)
    rows: list[tuple[str, dict[str, Any]]] = []
    for group in groups:
        folder = _race_folder(data_dir, split, group)
        for where, article in _articles(folder, f"{split}/{group}"):
            rows += _article_rows(article, group, where)
    if not rows:
        raise AlbertError(f"The articles in {os.path.dirname(folder)} have no questions.")
    return row_questions(rows, num_choices)


def check_race(data_dir: str, split: str, groups: tuple[str, ...]) -> None:
    """Raises AlbertError unless the split has a folder for each group; see `read_race`."""
    present = [g for g in RACE_GROUPS if files.isdir(_race_folder(data_dir, split, g))]
    missing = [group for group in groups if group not in present]
    if missing:
        has = "it has neither"
        if present:
            has = f"it has {split}/{present[0]}, which `{present[0]}_only` reads"
        raise AlbertError(
            f"{_race_folder(data_dir, split, missing[0])} is not there; `data_dir` should be the "
            f"folder of RACE, with {split}/middle and {split}/high in it ({has})."
        )


def _race_folder(data_dir: str, split: str, group: str) -> str:
    root = os.path.join(data_dir, "RACE")
    return os.path.join(root if files.isdir(root) else data_dir, split, group)


def read_questions(path: str, num_choices: int | None) -> list[MultipleChoiceExample]:
    """Reads questions from JSON lines (.gz, .bz2 and .xz too), one object for each question.

    Its keys: `options`, a list of texts; `context`, the text they are about (may be absent if there
    is a question); `question` (may be absent: the options then continue the context, as in SWAG);
    the correct option as `label`, its number from 0, or as `answer`, its letter (both may be
    absent); `id` (by default the question's number, from 0).

    Args:
      path: the file.
      num_choices: number of options that every question must have; None: that of the first one.

    Raises:
      AlbertError: the file is missing, empty or malformed, or an id occurs twice.
    """
    rows = ((f"{path}:{number}", row) for number, row in _json_objects(path))
    examples = row_questions(rows, num_choices)
    if not examples:
        raise AlbertError(f"{path} contains no questions.")
    return examples


def row_questions(
    rows: Iterable[tuple[str, Mapping[str, Any]]], num_choices: int | None
) -> list[MultipleChoiceExample]:
    """Converts rows, each with its place for errors, to questions; see `read_questions`.

    Raises:
      AlbertError: a row is malformed, or an id occurs twice.
    """
    examples: dict[str, MultipleChoiceExample] = {}
    for where, row in rows:
        if "context" not in row and "question" not in row:
            raise AlbertError(f"{where}: there is neither a context nor a question.")
        options = _list(row, "options", where)
        num_choices = num_choices or len(options)
        if len(options) != num_choices:
            raise AlbertError(
                f"{where}: {len(options)} options, but `num_choices`={num_choices}; every question "
                "must have that many."
            )
        example = MultipleChoiceExample(
            id=str(row.get("id", len(examples))),
            context=_text(row.get("context", ""), "context", where),
            question=_text(row.get("question", ""), "question", where),
            options=tuple(_text(option, "option", where) for option in options),
            label=_label(row, num_choices, where),
            group=row["group"] if row.get("group") in RACE_GROUPS else "",
            where=where,
        )
        first = examples.setdefault(example.id, example)
        if first is not example:
            raise AlbertError(
                f"{where}: the id {short_repr(example.id)} was used at {first.where} already; "
                "predictions are named by their ids, so each must be unique."
            )
    return list(examples.values())


def check_labelled(examples: list[MultipleChoiceExample]) -> None:
    """Raises AlbertError if a question has no label."""
    for example in examples:
        if example.label is None:
            raise AlbertError(
                f"{example.where}: the answer is missing; training and evaluation need it."
            )


def _articles(folder: str, label: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the articles of a folder, each with its file and line."""
    all_articles = os.path.join(folder, _ALL_ARTICLES)
    if files.exists(all_articles):
        for number, article in _json_objects(all_articles):
            yield f"{all_articles}:{number}", article
        return
    paths = storage.glob(os.path.join(folder, "*.txt"))
    if not paths:
        raise AlbertError(
            f"{folder} contains no articles: neither {_ALL_ARTICLES} nor other *.txt."
        )
    with Progress(f"Reading {label}", len(paths), "article") as progress:
        for path in paths:
            yield path, files.read_object(path, "article")
            progress.update(1)


def _json_objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the objects in a file, with their line; a line may hold several."""
    decoder = json.JSONDecoder()
    for number, line in enumerate(read_lines(path, _MAX_LINE_BYTES), start=1):
        line = line.rstrip()
        end = len(line) - len(line.lstrip())
        while end < len(line):
            try:
                value, end = decoder.raw_decode(line, end)
            except JSON_ERRORS as error:
                raise AlbertError(
                    f"{path}:{number}: not a line of JSON: {json_fault(error)}."
                ) from error
            if not isinstance(value, dict):
                raise AlbertError(f"{path}:{number}: a JSON object was expected on this line.")
            yield number, value
            while line[end : end + 1].isspace():
                end += 1


def _article_rows(
    article: Mapping[str, Any], group: str, where: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a row for each question of an article of RACE, with its place; see `row_questions`."""
    name, context = (_value(article, key, where) for key in ("id", "article"))
    questions, options = (_list(article, key, where) for key in ("questions", "options"))
    answers = _list(article, "answers", where) if "answers" in article else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise AlbertError(
            f"{where}: {len(questions)} questions have {len(options)} lists of options and "
            f"{len(answers)} answers; the numbers must be the same."
        )
    for i, (question, choices, answer) in enumerate(zip(questions, options, answers)):
        row = {"id": f"{name}-{i}", "context": context, "question": question, "group": group}
        yield f"{where}, question {i + 1}", {**row, "options": choices, "answer": answer}


def _value(row: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in row:
        raise AlbertError(f"{where}: there is no {key!r}; the keys are {joined(row)}.")
    return row[key]


def _list(row: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = _value(row, key, where)
    if not isinstance(value, list):
        raise AlbertError(f"{where}: {key!r} must be a list.")
    return value


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise AlbertError(f"{where}: the {what} must be a text, not {short_json(value)}.")
    return value


def _label(row: Mapping[str, Any], num_choices: int, where: str) -> int | None:
    """Returns the correct option by `label` or `answer`; null counts as absent."""
    label, answer = row.get("label"), row.get("answer")
    if label is not None and answer is not None:
        raise AlbertError(f"{where}: give the right option as 'label' or as 'answer', not both.")
    letters = [letter(i) for i in range(num_choices)]
    if answer is not None:
        if answer not in letters:
            raise AlbertError(
                f"{where}: the answer {short_json(answer)} is not one of {letters[0]} to "
                f"{letters[-1]}."
            )
        return letters.index(answer)
    if label is not None and (type(label) is not int or not 0 <= label < num_choices):
        raise AlbertError(
            f"{where}: the label {short_json(label)} is not one of 0 to {num_choices - 1}."
        )
    return label
