# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cuts questions into windows: sequences of a question and a part of its paragraph.

Source: google-research/albert squad_utils.convert_examples_to_features. Here the tokenizer aligns
pieces with the paragraph's characters, once for each paragraph, and no question is left out.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from albert_tf.tasks.squad.data import Question, SquadSpec, answer_span
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """The pieces of a context: piece i, ids[i], covers the characters starts[i]:ends[i].

    All fields are int32 [pieces]; starts and ends never decrease.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def pieces_of(self, char_start: int, char_end: int) -> tuple[int, int]:
        """Returns the first and last piece of the characters [char_start, char_end)."""
        first = int(np.searchsorted(self.ends, char_start, side="right"))
        last = int(np.searchsorted(self.starts, char_end, side="left")) - 1
        # Characters that the tokenizer drops have no piece; the next one stands in for them.
        first = min(first, len(self.ids) - 1)
        return first, max(first, last)


def window_spans(num_pieces: int, max_pieces: int, doc_stride: int) -> list[tuple[int, int]]:
    """Returns (first piece, number of pieces) of the windows that cover a paragraph.

    Windows of `max_pieces` begin every `doc_stride` pieces, or sooner if that would skip pieces;
    the last one ends with the paragraph.
    """
    spans = []
    first = 0
    while True:
        length = min(max_pieces, num_pieces - first)
        spans.append((first, length))
        if first + length >= num_pieces:
            return spans
        first += min(length, doc_stride)


@functools.lru_cache(maxsize=65536)
def max_contexts(num_pieces: int, max_pieces: int, doc_stride: int) -> tuple[np.ndarray, ...]:
    """Finds the window with the most context around each piece of a paragraph.

    This is the window in which the smaller of the numbers of pieces to the left and right is
    largest. Among equals a longer window wins, then an earlier one, so each piece has exactly one.

    Returns:
      For each window, bool [its pieces]: whether it is the piece's window.

    Source: google-research/albert squad_utils._check_is_max_context.
    """
    spans = window_spans(num_pieces, max_pieces, doc_stride)
    best = np.full(num_pieces, -np.inf)
    owner = np.zeros(num_pieces, np.int64)
    for window, (first, length) in enumerate(spans):
        position = np.arange(length)
        score = np.minimum(position, length - 1 - position) + 0.01 * length
        covered = slice(first, first + length)
        better = score > best[covered]
        best[covered][better] = score[better]
        owner[covered][better] = window
    return tuple(owner[f : f + n] == w for w, (f, n) in enumerate(spans))


class Windows:
    """All windows of a list of questions, in their order.

    A window's sequence is `[CLS] question [SEP] pieces [SEP]`; a position is an index into it.

    Args:
      questions: the questions.
      query_ids: the ids of each question, cut to max_query_length.
      paragraphs: the context of each question.
      spec: how to cut them.

    Attributes:
      question_index: int32 [n]: index of the window's question.
      context_start: int32 [n]: position of the window's first piece.
      first_piece: int32 [n]: index of that piece in the paragraph.
      num_pieces: int32 [n]: number of the paragraph's pieces in the window.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        query_ids: Sequence[list[int]],
        paragraphs: Sequence[Paragraph],
        spec: SquadSpec,
    ) -> None:
        self.questions = questions
        self.query_ids = query_ids
        self.spec = spec
        self._paragraphs = paragraphs
        rows = []
        for index, (query, paragraph) in enumerate(zip(query_ids, paragraphs)):
            room = spec.max_seq_length - len(query) - 3
            for first, length in window_spans(len(paragraph.ids), room, spec.doc_stride):
                rows.append((index, len(query) + 2, first, length))
        columns = np.array(rows, np.int32).reshape(-1, 4).T
        self.question_index, self.context_start, self.first_piece, self.num_pieces = columns

    def __len__(self) -> int:
        return len(self.question_index)

    def paragraph(self, window: int) -> Paragraph:
        """Returns the whole paragraph that the window is cut from."""
        return self._paragraphs[self.question_index[window]]

    def ids(self, window: int) -> np.ndarray:
        """Returns the ids of the window's part of the paragraph, int32 [num_pieces]."""
        first = self.first_piece[window]
        return self.paragraph(window).ids[first : first + self.num_pieces[window]]

    def sequence(self, window: int, tokenizer: Tokenizer) -> np.ndarray:
        """Returns the ids of `[CLS] question [SEP] pieces [SEP]`, int32 [length]."""
        query = self.query_ids[self.question_index[window]]
        return join_segments(tokenizer, query, self.ids(window))

    def is_max_context(self, window: int) -> np.ndarray:
        """Returns whether no other window shows more around a piece, bool [num_pieces]."""
        index = self.question_index[window]
        room = self.spec.max_seq_length - len(self.query_ids[index]) - 3
        pieces = len(self._paragraphs[index].ids)
        number = window - int(np.searchsorted(self.question_index, index))
        return max_contexts(pieces, room, self.spec.doc_stride)[number]

    def text(self, window: int, start: int, end: int) -> tuple[str, int, int]:
        """Finds the context's text between two positions, both included.

        Returns:
          The text without surrounding white space, and its characters [start, end).
        """
        paragraph = self.paragraph(window)
        shift = self.first_piece[window] - self.context_start[window]
        char_start, char_end = int(paragraph.starts[start + shift]), paragraph.ends[end + shift]
        text = self.questions[self.question_index[window]].context[char_start:char_end]
        char_start += len(text) - len(text.lstrip())
        text = text.strip()
        return text, char_start, char_start + len(text)

    def positions(self, window: int, first: int, last: int) -> tuple[int, int] | None:
        """Returns the positions of the pieces first to last; None if the window lacks any."""
        begin = self.first_piece[window]
        if first < begin or last >= begin + self.num_pieces[window]:
            return None
        shift = int(self.context_start[window] - begin)
        return first + shift, last + shift


def make_windows(questions: Sequence[Question], tokenizer: Tokenizer, spec: SquadSpec) -> Windows:
    """Cuts the paragraphs of all questions into windows; tokenizes each paragraph once.
    The tokenizer takes a second for 2,000 paragraphs.

    Raises:
      AlbertError: a context has no text.
    """
    paragraphs_of: dict[str, Paragraph] = {}
    contexts = dict.fromkeys(question.context for question in questions)
    # A few questions typed at the terminal need no progress display.
    silent = len(contexts) <= 256
    with Progress("tokenize paragraphs", len(contexts), "", silent=silent) as progress:
        for context in contexts:
            columns = tokenizer.encode_with_offsets(context)
            paragraphs_of[context] = Paragraph(*(np.array(x, np.int32) for x in columns))
            progress.update(1)
    paragraphs = [paragraphs_of[question.context] for question in questions]
    for question, paragraph in zip(questions, paragraphs):
        if not len(paragraph.ids):
            raise AlbertError(f"{question.where}: the context contains no text.")
    queries = tokenizer.encode_batch([question.question for question in questions])
    queries = [query[: spec.max_query_length] for query in queries]
    return Windows(questions, queries, paragraphs, spec)


def gold_span(question: Question) -> tuple[int, int] | None:
    """Returns the characters of the first gold answer; None if the question is unanswerable."""
    if question.is_impossible:
        return None
    if not question.answers:
        raise AlbertError(f"{question.where} has no answer; training needs one for each question.")
    return answer_span(question, question.answers[0])


def label_windows(
    windows: Windows, spans: Sequence[tuple[int, int] | None], cut_answers: bool
) -> np.ndarray:
    """Returns start, end and is_impossible of every window, int64 [n, 3]; see SquadTask.encode.

    Args:
      windows: the windows.
      spans: of each question, from `gold_span`.
      cut_answers: if no window holds the whole answer, label the window with the largest part of it
        with that part.
    """
    labels = np.tile(np.array([0, 0, 1], np.int64), (len(windows), 1))
    bounds = np.searchsorted(windows.question_index, np.arange(len(spans) + 1)).tolist()
    for span, begin, stop in zip(spans, bounds, bounds[1:]):
        if span is None:
            continue
        first, last = windows.paragraph(begin).pieces_of(*span)
        rows = range(begin, stop)
        positions = {row: windows.positions(row, first, last) for row in rows}
        if not any(positions.values()) and cut_answers:
            positions = _largest_part(windows, rows, first, last)
        for row, start_end in positions.items():
            if start_end:
                labels[row] = (*start_end, 0)
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
