# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From questions to windows: sequences that hold a question and a stretch of its paragraph.

Source: google-research/albert squad_utils.convert_examples_to_features. Pieces are aligned with the
paragraph's characters by the tokenizer, each paragraph once, and no question is ever left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress
from albert_tf.io.workers import Advance, Workers
from albert_tf.tasks.squad.data import Question
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import Tokenizer

#: Paragraphs a worker process takes at a time.
_CHUNK = 256
#: So many chunks, two seconds of work, are worth the start of another process.
_CHUNKS_OF_A_WORKER = 16


@dataclasses.dataclass(frozen=True)
class WindowOptions:
    """How paragraphs are cut.

    Attributes:
      max_seq_length: pieces of a sequence `[CLS] question [SEP] window [SEP]`.
      doc_stride: pieces from the start of a window to that of the next.
      max_query_length: pieces of the question; the rest is cut off.
    """

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self) -> None:
        """Raises AlbertError for lengths that leave no room."""
        if self.doc_stride < 1 or self.max_query_length < 1:
            raise AlbertError("doc_stride and max_query_length must be at least 1.")
        if self.max_seq_length <= self.max_query_length + 3:
            raise AlbertError(
                f"max_seq_length={self.max_seq_length} leaves no room for the paragraph; it must "
                f"be more than max_query_length + 3 = {self.max_query_length + 3}."
            )


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """The pieces of a context: piece i, ids[i], stands for the characters starts[i]:ends[i].

    All int32 [pieces]; starts and ends never go down.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def pieces_of(self, char_start: int, char_end: int) -> tuple[int, int]:
        """First and last piece of the characters [char_start, char_end)."""
        first = int(np.searchsorted(self.ends, char_start, side="right"))
        last = int(np.searchsorted(self.starts, char_end, side="left")) - 1
        # Characters that the tokenizer drops have no piece of their own; take the next one.
        first = min(first, len(self.ids) - 1)
        return first, max(first, last)


def window_spans(num_pieces: int, max_pieces: int, doc_stride: int) -> list[tuple[int, int]]:
    """(first piece, number of pieces) of the windows that cover a paragraph.

    Windows of `max_pieces` begin every `doc_stride` pieces (or sooner, so that none is missed); the
    last one ends with the paragraph.
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
    """For each window of a paragraph, bool [its pieces]: whether it shows most around the piece.

    Of the windows that hold a piece, that one is chosen in which the smaller of the numbers of
    pieces to its left and right is greatest; a longer window wins at the same number, and an
    earlier one at the same length. So each piece has exactly one window.

    Source: google-research/albert squad_utils._check_is_max_context.
    """
    spans = window_spans(num_pieces, max_pieces, doc_stride)
    best = np.full(num_pieces, -np.inf)
    owner = np.zeros(num_pieces, np.int64)
    for window, (first, length) in enumerate(spans):
        position = np.arange(length)
        score = np.minimum(position, length - 1 - position) + 0.01 * length
        held = slice(first, first + length)
        better = score > best[held]
        best[held][better] = score[better]
        owner[held][better] = window
    return tuple(owner[f : f + n] == w for w, (f, n) in enumerate(spans))


class Windows:
    """All windows of a list of questions, in the order of the records.

    A window's sequence is `[CLS] question [SEP] pieces [SEP]`; a position is an index into it.

    Attributes:
      questions: the questions.
      query_ids: the ids of each question, cut to max_query_length.
      question_index: int32 [n]: the question of each window.
      context_start: int32 [n]: position of the window's first piece.
      first_piece: int32 [n]: that piece's index in the paragraph.
      num_pieces: int32 [n]: pieces of the paragraph in the window.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        query_ids: Sequence[list[int]],
        paragraphs: Sequence[Paragraph],
        options: WindowOptions,
    ) -> None:
        """Cuts the windows; `query_ids` and `paragraphs` have one entry a question."""
        self.questions = questions
        self.query_ids = query_ids
        self.options = options
        self._paragraphs = paragraphs
        rows = []
        for index, (query, paragraph) in enumerate(zip(query_ids, paragraphs)):
            max_pieces = options.max_seq_length - len(query) - 3
            for first, length in window_spans(len(paragraph.ids), max_pieces, options.doc_stride):
                rows.append((index, len(query) + 2, first, length))
        columns = np.array(rows, np.int32).reshape(-1, 4).T
        self.question_index, self.context_start, self.first_piece, self.num_pieces = columns

    def __len__(self) -> int:
        return len(self.question_index)

    def paragraph(self, window: int) -> Paragraph:
        """The whole paragraph that the window is cut from."""
        return self._paragraphs[self.question_index[window]]

    def ids(self, window: int) -> np.ndarray:
        """Ids of the window's part of the paragraph, int32 [num_pieces]."""
        first = self.first_piece[window]
        return self.paragraph(window).ids[first : first + self.num_pieces[window]]

    def sequence(self, window: int, tokenizer: Tokenizer) -> np.ndarray:
        """`[CLS] question [SEP] pieces [SEP]`: ids, int32 [length]."""
        query = self.query_ids[self.question_index[window]]
        return join_segments(tokenizer, query, self.ids(window))

    def is_max_context(self, window: int) -> np.ndarray:
        """bool [num_pieces]: whether no other window shows more around the piece."""
        index = self.question_index[window]
        max_pieces = self.options.max_seq_length - len(self.query_ids[index]) - 3
        pieces = len(self._paragraphs[index].ids)
        number = window - int(np.searchsorted(self.question_index, index))
        return max_contexts(pieces, max_pieces, self.options.doc_stride)[number]

    def text(self, window: int, start: int, end: int) -> tuple[str, int, int]:
        """The text from one position to another, inclusive, as it stands in the context.

        Returns:
          The text without white space around it, and its characters [start, end).
        """
        paragraph = self.paragraph(window)
        shift = self.first_piece[window] - self.context_start[window]
        char_start, char_end = (
            int(paragraph.starts[start + shift]),
            int(paragraph.ends[end + shift]),
        )
        text = self.questions[self.question_index[window]].context[char_start:char_end]
        char_start += len(text) - len(text.lstrip())
        text = text.strip()
        return text, char_start, char_start + len(text)

    def positions(self, window: int, first: int, last: int) -> tuple[int, int] | None:
        """Positions of the paragraph's pieces first to last; None if the window lacks any."""
        begin = self.first_piece[window]
        if first < begin or last >= begin + self.num_pieces[window]:
            return None
        shift = int(self.context_start[window] - begin)
        return first + shift, last + shift


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    options: WindowOptions,
    *,
    workers: int | None = None,
) -> Windows:
    """Cuts the paragraphs of all questions into windows; each paragraph is tokenized once.

    Args:
      questions: the questions; none is left out.
      tokenizer: gives ids and offsets.
      options: lengths and stride.
      workers: processes that tokenize; the windows do not depend on it. None takes one, which
        does 2,000 paragraphs a second, and more for large training sets.

    Raises:
      AlbertError: a context holds no text.
    """
    contexts = list(dict.fromkeys(question.context for question in questions))
    paragraphs_of = dict(zip(contexts, _encode(contexts, tokenizer, workers)))
    paragraphs = [paragraphs_of[question.context] for question in questions]
    for question, paragraph in zip(questions, paragraphs):
        if not len(paragraph.ids):
            raise AlbertError(f"{question.where}: the context holds no text.")
    queries = tokenizer.encode_batch([question.question for question in questions])
    return Windows(
        questions, [query[: options.max_query_length] for query in queries], paragraphs, options
    )


def _encode(contexts: list[str], tokenizer: Tokenizer, workers: int | None) -> list[Paragraph]:
    chunks = [contexts[i : i + _CHUNK] for i in range(0, len(contexts), _CHUNK)]
    if workers is None:
        workers = max(1, min(os.cpu_count() or 1, len(chunks) // _CHUNKS_OF_A_WORKER))
    paragraphs: list[Paragraph] = []
    # A single question, typed by someone, needs no progress display.
    shown = Progress("tokenize paragraphs", len(contexts), "") if len(chunks) > 1 else None
    advance = shown.update if shown else lambda amount: None
    with shown or contextlib.nullcontext(), Workers(workers, _same, (tokenizer,)) as pool:
        for encoded in pool.map(_encode_chunk, chunks, advance):
            paragraphs += encoded
    return paragraphs


def _same(tokenizer: Tokenizer) -> Tokenizer:
    return tokenizer


def _encode_chunk(tokenizer: Tokenizer, contexts: list[str], advance: Advance) -> list[Paragraph]:
    paragraphs = [
        Paragraph(*(np.array(column, np.int32) for column in tokenizer.encode_with_offsets(text)))
        for text in contexts
    ]
    advance(len(contexts))
    return paragraphs
