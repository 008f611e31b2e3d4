# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads texts, pairs, triplets and scored pairs for sentence vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.config import POOLINGS
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.text_files import read_lines
from albert_tf.io.text_tables import Rows, read_rows
from albert_tf.settings import ABOVE_0, Settings, check_number, setting
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH
from albert_tf.tokenization.tokenizer import checked_text

#: Names of the columns, as data sets for sentence vectors have them.
_COLUMNS = (
    ("text", "anchor", "query", "sentence1"),
    ("text_pair", "positive", "passage", "sentence2"),
    ("negative",),
)
_SCORE = "score"


@dataclasses.dataclass(frozen=True)
class EmbeddingExample:
    """A text; two that belong together; these and one that does not; or a scored pair.

    `score` is None unless it is a scored pair; `where` is its place, for errors.
    """

    texts: tuple[str, ...]
    score: float | None
    where: str


@dataclasses.dataclass(frozen=True)
class EmbeddingSpec(Settings):
    """The settings of a model of sentence vectors.

    Attributes:
      normalize: whether the vectors have length 1.

    Raises:
      AlbertError: a value is out of range.
    """

    max_seq_length: int = setting(128, "Maximum length in tokens.", minimum=MIN_SEQ_LENGTH)
    pooling: str = setting(
        "sif",
        "The vector of a text: the mean of the first and the last layer over its tokens, rare ones "
        "counting more; the mean of the last layer; or its output at [CLS].",
        choices=POOLINGS,
        flag=None,
    )
    temperature: float = setting(
        0.05,
        "Divides the cosines in the loss; a lower one attends to the most similar of the other "
        "texts.",
        minimum=ABOVE_0,
        source="Gao et al. 2021 (SimCSE), section 3",
        flag=None,
    )
    normalize: bool = True


def read_embedding(data: Any, name: str = "") -> list[EmbeddingExample]:
    """Reads texts, pairs, triplets or scored pairs; for `data` and `name` see `read_rows`.

    The columns: `text` (also called anchor, query or sentence1); of pairs `text_pair` (positive,
    passage, sentence2), a text that belongs to it; `negative`, one that does not; of scored pairs
    `score`, a number, the larger the more alike. Other files have a text in each line.

    Raises:
      AlbertError: as `read_rows`; or a row has no text, a score is no number, or rows are of
        different kinds.
    """
    data = data.tolist() if hasattr(data, "tolist") else data  # Of NumPy and pandas.
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], str):
        data = {"text": data}
    rows = read_rows(data, name, {None: _lines})
    examples = [_example(where, row) for where, row in rows]
    kinds = {(len(example.texts), example.score is None) for example in examples}
    if len(kinds) > 1:
        raise AlbertError(
            f"The rows of {short_repr(name or data)} must all be texts, pairs, triplets or scored "
            "pairs; some have columns that others lack."
        )
    return examples


def _lines(path: str) -> Rows:
    """Yields a row for each line that is not blank."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield f"{path}:{number}", {"text": line}


def _example(where: str, row: Mapping[str, Any]) -> EmbeddingExample:
    found = [
        next((row[name] for name in names if row.get(name) is not None), None) for names in _COLUMNS
    ]
    texts = tuple(text for text in found if text is not None)
    if not texts or None in found[: len(texts)]:
        lacking = _COLUMNS[found.index(None)]
        raise AlbertError(
            f"{where}: there is no value in a column {lacking[0]!r} ({', '.join(lacking[1:])}); "
            f"the columns are {joined(row)}."
        )
    texts = tuple(checked_text(text, f"{where}: the text") for text in texts)
    score = row.get(_SCORE)
    if _SCORE in row:
        try:
            score = float(score)
            check_number("the score", score, -1e18)
        except (ValueError, TypeError, AlbertError) as error:
            raise AlbertError(f"{where}: the score {short_repr(score)} is not a number.") from error
        if len(texts) != 2:
            raise AlbertError(f"{where}: a score is of two texts, not of {len(texts)}.")
    return EmbeddingExample(texts, score, where)
