# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads multiple-choice questions: RACE as distributed, and other questions from JSON lines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import string
from typing import Any

from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.progress import Progress
from albert_tf.io.text_tables import Rows, not_empty, read_rows
from albert_tf.settings import Settings, count_setting
from albert_tf.tasks.tables import Row, with_distinct_ids
from albert_tf.tokenization.tokenizer import checked_text

#: Of the options, in their order.
LETTERS = string.ascii_uppercase
#: The two parts of RACE: examinations of middle and of high schools.
RACE_GROUPS = ("middle", "high")
#: Questions evaluated together; each has a sequence for every choice.
EVAL_BATCH_SIZE = 16
#: In place of a label, -1 as in Hugging Face's test splits.
_NO_LABEL = (None, "", -1, "-1")
#: Articles that users of the TF1 release joined, beside their own files.
_JOINED = "all.txt"


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

    max_seq_length: int = count_setting(
        512, "Maximum length of a sequence in tokens; the text is cut to fit."
    )
    max_qa_length: int | None = count_setting(
        None,
        "Maximum length of question and option together, in tokens; the beginning of longer ones "
        "is cut off. Default: 128, or half of the maximum sequence length if that is less.",
    )

    def __post_init__(self) -> None:
        """Fills in the length and checks the values."""
        super().__post_init__()
        if self.max_qa_length is None:
            object.__setattr__(self, "max_qa_length", min(128, self.max_seq_length // 2))
        # [CLS], two [SEP] and at least one token of the text.
        if self.max_qa_length > self.max_seq_length - 4:
            raise AlbertError(
                f"`max_qa_length`={self.max_qa_length} does not fit: with `max_seq_length`="
                f"{self.max_seq_length} it must be 1 to {self.max_seq_length - 4}."
            )


def read_race(data_dir: str, split: str) -> list[MultipleChoiceExample]:
    """Reads a split of RACE, "train", "dev" or "test", as distributed.

    `<data_dir>/<split>/<group>` or `<data_dir>/RACE/<split>/<group>` has the articles, each in a
    JSON file *.txt: an object with `id`, `article`, `questions`, `options` (a list for each
    question) and `answers` (letters; may be absent). A question's id is that of its article, a
    hyphen and its number from 0.

    Raises:
      AlbertError: a folder is missing or empty, or an article is malformed.
    """
    root = os.path.join(data_dir, "RACE")
    root = root if files.isdir(root) else data_dir
    return row_questions(not_empty(_race_rows(root, split), os.path.join(root, split)))


def _race_rows(root: str, split: str) -> Rows:
    """Yields a row for each question of a split."""
    for group in RACE_GROUPS:
        folder = os.path.join(root, split, group)
        if not files.isdir(folder):
            raise AlbertError(
                f"{folder} is not there; `data_dir` should be the folder of RACE, with "
                f"{split}/middle and {split}/high in it."
            )
        paths = storage.glob(os.path.join(folder, "*.txt"))
        paths = [path for path in paths if os.path.basename(path) != _JOINED]
        if not paths:
            raise AlbertError(f"{folder} contains no articles, each a file *.txt.")
        with Progress(f"Reading {split}/{group}", len(paths), "article") as progress:
            for path in paths:
                yield from _article_rows(files.read_object(path, "article"), group, path)
                progress.update(1)


def read_questions(data: Any, name: str = "") -> list[MultipleChoiceExample]:
    """Reads questions from a table or data in memory; for `data` and `name` see `read_rows`.

    The columns: `options`, a list of texts, in .csv and .tsv files as JSON; `context`, the text
    they are about (may be absent if there is a question); `question` (may be absent: the options
    then continue the context, as in SWAG); the correct option as `label` or `answer`, its number
    from 0 or its letter (may be absent); `id` (by default the question's number, from 0).

    Raises:
      AlbertError: as `read_rows` and `row_questions`.
    """
    return row_questions(read_rows(data, name))


def row_questions(rows: Rows) -> list[MultipleChoiceExample]:
    """Converts rows, each with its place for errors, to questions; see `read_questions`.

    Raises:
      AlbertError: a row is malformed, the numbers of options differ, or an id occurs twice.
    """
    examples = []
    number = 0
    for where, row in rows:
        if "context" not in row and "question" not in row:
            raise AlbertError(f"{where}: there is neither a context nor a question.")
        options = _list(row, "options", where)
        number = number or len(options)
        if not 2 <= len(options) <= 26:  # Each is named by a letter.
            raise AlbertError(f"{where}: there must be 2 to 26 options, not {len(options)}.")
        if len(options) != number:
            raise AlbertError(
                f"{where}: {len(options)} options, but the first question has {number}; every "
                "question must have the same number of options."
            )
        examples.append(
            MultipleChoiceExample(
                id=str(row.get("id", len(examples))),
                context=checked_text(row.get("context", ""), f"{where}: the context"),
                question=checked_text(row.get("question", ""), f"{where}: the question"),
                options=tuple(checked_text(x, f"{where}: the option") for x in options),
                label=_label(row, len(options), where),
                group=row["group"] if row.get("group") in RACE_GROUPS else "",
                where=where,
            )
        )
    return with_distinct_ids(examples)


def _article_rows(article: dict[str, Any], group: str, path: str) -> Rows:
    """Yields a row for each question of an article of RACE, with its place; see `row_questions`."""
    questions, options = (_list(article, key, path) for key in ("questions", "options"))
    answers = _list(article, "answers", path) if "answers" in article else [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise AlbertError(
            f"{path}: {len(questions)} questions have {len(options)} lists of options and "
            f"{len(answers)} answers; the numbers must be the same."
        )
    shared = {"context": article.get("article"), "group": group}
    for i, (question, choices, answer) in enumerate(zip(questions, options, answers)):
        row = {"id": f"{article.get('id', path)}-{i}", "question": question, "answer": answer}
        yield f"{path}, question {i + 1}", {**shared, **row, "options": choices}


def _list(row: Row, key: str, where: str) -> list[Any]:
    value = row.get(key)
    with contextlib.suppress(ValueError):
        value = json.loads(value) if isinstance(value, str) else value
    if not isinstance(value, list):
        raise AlbertError(f"{where}: {key!r} must be a list; the keys are {joined(row)}.")
    return value


def _label(row: Row, choices: int, where: str) -> int | None:
    """Returns the correct option; null, an empty text and -1 count as absent."""
    given = [row[key] for key in ("label", "answer") if row.get(key) not in _NO_LABEL]
    if len(given) > 1:
        raise AlbertError(f"{where} has a 'label' and an 'answer'; give one of them.")
    if not given:
        return None
    names = {name: i for i in range(choices) for name in (LETTERS[i], str(i))}
    if str(given[0]) not in names:
        raise AlbertError(
            f"{where}: the label {short_repr(given[0])} is not one of 0 to {choices - 1} or A to "
            f"{LETTERS[choices - 1]}."
        )
    return names[str(given[0])]
