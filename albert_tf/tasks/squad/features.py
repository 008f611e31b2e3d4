# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From questions to records, one for each window."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.record_cache import cached_records
from albert_tf.errors import AlbertError
from albert_tf.tasks.squad.data import Question, answer_span
from albert_tf.tasks.squad.windows import WindowOptions, Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer

#: Records encoded together.
_CHUNK = 256
#: Part of the cache's key: raise it when the same questions give other records.
_FORMAT = 1


def squad_features(labelled: bool) -> dict[str, records.FeatureSpec]:
    """The layout of a record, which is one window.

    With labels it has `start_positions` and `end_positions`, the answer's first and last position
    in the sequence, or 0 and 0 ([CLS]) if the window has no answer; and `is_impossible`, then 1.
    """
    names = ("start_positions", "end_positions", "is_impossible") if labelled else ()
    return records.sequence_features(1, **{name: records.FeatureSpec("int64") for name in names})


def build_squad_records(
    folder: str,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    version: str,
    labelled: bool,
    compat: bool = False,
    shuffle_seed: int | None = None,
    cut: Callable[[Sequence[Question]], Windows] | None = None,
) -> str:
    """Writes the windows of questions as records below `folder`, unless they are there already.

    Args:
      folder: the cache.
      questions: in the order of the records, whose windows are those of `make_windows`.
      tokenizer: gives the ids.
      options: how contexts are cut.
      version: of SQuAD. Labelled windows that lack a part of the answer are examples of "no answer
        here" for 2.0, and left out for 1.1, which has no such thing. If no window holds the whole
        answer, the one that holds most of it has that part for its answer.
      labelled: write the first gold answer of each question; needed for training.
      compat: as the TF1 release, for 1.1 too, every window that lacks a part of the answer points
        at [CLS].
      shuffle_seed: puts the questions in a random order; None keeps theirs.
      cut: gives the windows of questions, if they are needed; None: `make_windows`.

    Returns:
      Path of the record file; a manifest lies beside it, whose statistics tell what was counted.

    Raises:
      AlbertError: a context holds no text; with labels, a question has no answer, or its context
        does not hold it.
    """
    key = {
        "format": _FORMAT,
        **dataclasses.asdict(options),
        "labels": [version, compat] if labelled else None,
        "shuffle_seed": shuffle_seed,
        "content": _content_hash(questions, labelled),
    }
    features = squad_features(labelled)
    if shuffle_seed is not None:
        order = np.random.default_rng(shuffle_seed).permutation(len(questions))
        questions = [questions[i] for i in order]

    def encode(statistics: dict[str, Any]) -> Iterator[bytes]:
        # Found before the tokenizer's work, because the search may fail.
        spans = [_gold_span(question) for question in questions] if labelled else []
        windows = cut(questions) if cut else make_windows(questions, tokenizer, options)
        rows, labels = np.arange(len(windows)), np.zeros((len(windows), 0), np.int64)
        statistics["questions"] = len(questions)
        if labelled:
            labels = _labels(windows, spans, compat, statistics)
            if version == "1.1" and not compat:
                rows = np.flatnonzero(labels[:, 2] == 0)
            statistics["windows_left_out"] = len(windows) - len(rows)
        lengths = windows.context_start + windows.num_pieces + 1
        statistics["mean_length"] = float(lengths[rows].mean())
        for begin in range(0, len(rows), _CHUNK):
            chunk = rows[begin : begin + _CHUNK]
            columns = {
                "input_ids": [windows.sequence(row, tokenizer) for row in chunk],
                "row_lengths": lengths[chunk, None],
                "first_lengths": windows.context_start[chunk, None],
                **dict(zip(list(features)[3:], labels[chunk].T)),
            }
            yield from records.encode_examples(columns, features)

    return cached_records(folder, "question_answering", key, features, tokenizer, encode)


def _content_hash(questions: Sequence[Question], labelled: bool) -> str:
    digest = hashlib.sha256()
    for question in questions:
        row: list[Any] = [question.question, question.context]
        if labelled:
            row += [question.is_impossible, *map(dataclasses.astuple, question.answers[:1])]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def _gold_span(question: Question) -> tuple[int, int] | None:
    """Characters of the first gold answer; None if the question is unanswerable."""
    if question.is_impossible:
        return None
    if not question.answers:
        raise AlbertError(f"{question.where} has no answer; training needs one for each question.")
    return answer_span(question, question.answers[0])


def _labels(
    windows: Windows,
    spans: Sequence[tuple[int, int] | None],
    compat: bool,
    statistics: dict[str, Any],
) -> np.ndarray:
    """Start, end and is_impossible of every window, int64 [n, 3]."""
    labels = np.tile(np.array([0, 0, 1], np.int64), (len(windows), 1))
    bounds = np.searchsorted(windows.question_index, np.arange(len(spans) + 1)).tolist()
    cut = 0
    for span, begin, stop in zip(spans, bounds, bounds[1:]):
        if span is None:
            continue
        first, last = windows.paragraph(begin).pieces_of(*span)
        found = {row: windows.positions(row, first, last) for row in range(begin, stop)}
        if not any(found.values()) and not compat:
            cut += 1
            row, part = _most_of(windows, range(begin, stop), first, last)
            found = {row: part}
        for row, positions in found.items():
            if positions:
                labels[row] = (*positions, 0)
    statistics["unanswerable"] = sum(span is None for span in spans)
    statistics["answers_cut"] = cut
    return labels


def _most_of(
    windows: Windows, rows: range, first: int, last: int
) -> tuple[int, tuple[int, int] | None]:
    """The window that holds most of the pieces first to last, and the positions it holds."""
    parts = {}
    for row in rows:
        begin, size = int(windows.first_piece[row]), int(windows.num_pieces[row])
        parts[row] = max(first, begin), min(last, begin + size - 1)
    row = max(rows, key=lambda row: parts[row][1] - parts[row][0])
    return row, windows.positions(row, *parts[row])
