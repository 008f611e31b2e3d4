# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a SQuAD task, and records of questions: one for each window."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.record_cache import cached_records
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown
from albert_tf.tasks.squad.data import VERSIONS, Question, answer_span
from albert_tf.tasks.squad.windows import WindowOptions, Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import check_integer

HEADS = ("span", "beam")
#: Records encoded together.
_CHUNK = 256
#: Part of the cache's key: raise it when the same questions give other records.
_FORMAT = 1
#: Larger numbers find no better answers. They are sizes of tensors, and each start of the beam has
#: its own search for ends.
_MOST = {"n_best_size": 1000, "max_answer_length": 1 << 16, "start_n_top": 32, "end_n_top": 1000}


@dataclasses.dataclass(frozen=True)
class SquadSpec:
    """Settings of a SQuAD task, kept in task.json beside the model.

    Attributes:
      version: "1.1", or "2.0" where questions may have no answer.
      head: "span" or "beam"; None for that of the TF1 release, beam for 2.0 and span for 1.1.
      n_best_size: answers kept for each question.
      max_answer_length: longest answer, in tokens.
      start_n_top, end_n_top: width of the beam.
      compat: reproduces faults of the release: the span head's softmax runs over question and
        padding too, and 1.1 windows without the answer train [CLS].
      max_seq_length, doc_stride, max_query_length: see WindowOptions.

    Raises:
      AlbertError: unknown version or head, a number below 1, or lengths that leave no room for the
        context.
    """

    version: str
    head: str | None = None
    n_best_size: int = 20
    max_answer_length: int = 30
    start_n_top: int = 5
    end_n_top: int = 5
    compat: bool = False
    max_seq_length: int = WindowOptions.max_seq_length
    doc_stride: int = WindowOptions.doc_stride
    max_query_length: int = WindowOptions.max_query_length

    def __post_init__(self) -> None:
        """Fills in the head and checks the values."""
        if self.version not in VERSIONS:
            raise AlbertError(f"version={shown(self.version)} is not one of {', '.join(VERSIONS)}.")
        head = self.head or ("beam" if self.version == "2.0" else "span")
        if head not in HEADS:
            raise AlbertError(f"head={shown(head)} is not one of {', '.join(HEADS)}.")
        object.__setattr__(self, "head", head)
        for name, most in _MOST.items():
            value = getattr(self, name)
            check_integer(name, value)
            if value > most:
                raise AlbertError(f"{name}={value} must be at most {most}.")
        _ = self.windows  # Checks the lengths.

    @property
    def windows(self) -> WindowOptions:
        """How contexts are cut into windows."""
        return WindowOptions(self.max_seq_length, self.doc_stride, self.max_query_length)


def squad_features(labelled: bool) -> dict[str, records.FeatureSpec]:
    """Returns the layout of a record, which is one window.

    With labels, `start_positions` and `end_positions` are the answer's first and last position in
    the sequence and `is_impossible` is 0. In a window without an answer they are 0 ([CLS]), 0
    and 1.
    """
    names = ("start_positions", "end_positions", "is_impossible") if labelled else ()
    return records.sequence_features(1, **{name: records.FeatureSpec("int64") for name in names})


def build_squad_records(
    folder: str,
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    spec: SquadSpec,
    *,
    labelled: bool,
    shuffle_seed: int | None = None,
) -> tuple[str, Windows | None]:
    """Writes the windows of questions as records, unless the same records are cached.

    A labelled window that lacks a part of the answer is an example of "no answer here" for 2.0. For
    1.1, which has no such examples, it is left out, except with `spec.compat`. If no window holds
    the whole answer, the window with the largest part of it is labelled with that part.

    Args:
      folder: folder of the cache.
      questions: the questions; a record is one of their windows, see `make_windows`.
      tokenizer: converts texts to ids.
      spec: settings of the task.
      labelled: writes the first gold answer of each question, which training needs.
      shuffle_seed: shuffles the questions; None keeps their order.

    Returns:
      Path of the record file, whose manifest has the statistics; and the windows in the order of
      the records, or None if the records were cached. With labels there may be windows without a
      record.

    Raises:
      AlbertError: a context has no text; with labels, a question has no answer, or its context
        does not contain it.
    """
    key = {
        "format": _FORMAT,
        **dataclasses.asdict(spec.windows),
        "labels": [spec.version, spec.compat] if labelled else None,
        "shuffle_seed": shuffle_seed,
        "content": _content_hash(questions, labelled),
    }
    features = squad_features(labelled)
    if shuffle_seed is not None:
        order = np.random.default_rng(shuffle_seed).permutation(len(questions))
        questions = [questions[i] for i in order]
    windows: Windows | None = None

    def encode(statistics: dict[str, Any]) -> Iterator[bytes]:
        nonlocal windows
        # The search for answers may fail, so it comes before the tokenizer's work.
        spans = [_gold_span(question) for question in questions] if labelled else []
        windows = make_windows(questions, tokenizer, spec.windows)
        rows, labels = np.arange(len(windows)), np.zeros((len(windows), 0), np.int64)
        statistics["questions"] = len(questions)
        if labelled:
            labels = _labels(windows, spans, spec.compat, statistics)
            if spec.version == "1.1" and not spec.compat:
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

    path = cached_records(folder, "question_answering", key, features, tokenizer, encode)
    return path, windows


def _content_hash(questions: Sequence[Question], labelled: bool) -> str:
    digest = hashlib.sha256()
    for question in questions:
        row: list[Any] = [question.question, question.context]
        if labelled:
            row += [question.is_impossible, *map(dataclasses.astuple, question.answers[:1])]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def _gold_span(question: Question) -> tuple[int, int] | None:
    """Returns the characters of the first gold answer; None if the question is unanswerable."""
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
    """Returns start, end and is_impossible of every window, int64 [n, 3], and counts answers."""
    labels = np.tile(np.array([0, 0, 1], np.int64), (len(windows), 1))
    bounds = np.searchsorted(windows.question_index, np.arange(len(spans) + 1)).tolist()
    cut = 0
    for span, begin, stop in zip(spans, bounds, bounds[1:]):
        if span is None:
            continue
        first, last = windows.paragraph(begin).pieces_of(*span)
        rows = range(begin, stop)
        positions = {row: windows.positions(row, first, last) for row in rows}
        if not any(positions.values()) and not compat:
            cut += 1
            positions = _largest_part(windows, rows, first, last)
        for row, start_end in positions.items():
            if start_end:
                labels[row] = (*start_end, 0)
    statistics["unanswerable"] = sum(span is None for span in spans)
    statistics["answers_cut"] = cut
    return labels


def _largest_part(
    windows: Windows, rows: range, first: int, last: int
) -> dict[int, tuple[int, int] | None]:
    """Returns the window with most of the pieces first to last, and the positions of its part."""
    parts = {}
    for row in rows:
        begin, size = int(windows.first_piece[row]), int(windows.num_pieces[row])
        parts[row] = max(first, begin), min(last, begin + size - 1)
    row = max(rows, key=lambda row: parts[row][1] - parts[row][0])
    return {row: windows.positions(row, *parts[row])}
