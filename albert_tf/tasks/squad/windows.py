# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Cuts questions and contexts into windows, and searches these for answers.

TensorFlow cuts and searches, so that a SavedModel has the same code. Source: google-research/albert
squad_utils.convert_examples_to_features, accumulate_predictions_v1 and _v2. Here the tokenizer
aligns pieces with characters, once for each context, and no question is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.tasks.squad.data import Answers, Question, Span, SquadSpec
from albert_tf.tasks.windows import Windows, cut_windows, shows_most
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.task import Arrays, Tensors

#: Windows searched at a time; limits the memory.
_CHUNK = 1024


def find_spans(
    windows: Windows, rows: tf.Tensor, outputs: Tensors, has_text: tf.Tensor, spec: SquadSpec
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Scores the spans of windows that the model proposes.

    A span is a possible answer if it lies within the context, is not too long, begins and ends with
    pieces that have text, and begins in the window that shows most context around its first piece.

    Args:
      windows: all windows.
      rows: numbers of n of them, int64 [n].
      outputs: of SquadTask.predict for these.
        starts, start_scores: the best starts, int and float [n, K1].
        ends, end_scores: the best ends, int and float [n, 1, K2]; for a beam [n, K1, K2], those of
          each start.
      has_text: whether a piece stands for characters, bool [P].
      spec: settings of the task.

    Returns:
      The first and last piece of each span, int64 [n, K], and its score, float [n, K], which is the
      smallest number of its type if the span is no possible answer.
    """
    first, size, shift = (
        tf.gather(x, rows)[:, None, None]
        for x in (windows.first, windows.size, windows.context_start)
    )
    starts = tf.cast(outputs["starts"], tf.int64)[:, :, None] - shift
    ends = tf.cast(outputs["ends"], tf.int64) - shift
    limit = tf.minimum(starts + spec.max_answer_length, size)
    allowed = (starts >= 0) & (ends >= starts) & (ends < limit)
    # The padding is for a window without pieces, which may be at the end.
    padded = tf.concat([has_text, [False]], axis=0)
    starts, ends = (first + tf.clip_by_value(x, 0, size) for x in (starts, ends))
    allowed &= tf.gather(padded, starts) & tf.gather(padded, ends)
    allowed &= shows_most(windows, rows, starts[:, :, 0])[:, :, None]
    scores = tf.add(outputs["start_scores"][:, :, None], outputs["end_scores"])
    scores = tf.where(allowed, scores, scores.dtype.min)
    shape = [tf.shape(scores)[0], -1]
    starts, ends = (tf.reshape(tf.broadcast_to(x, tf.shape(scores)), shape) for x in (starts, ends))
    return starts, ends, tf.reshape(scores, shape)


@dataclasses.dataclass
class WindowedQuestions:
    """Questions, and the windows that they are cut into.

    Attributes:
      questions: the questions.
      queries: the ids of each, cut to max_query_length.
      ids, starts, ends: int32 [P], the pieces of all contexts; a piece covers the characters
        [start, end) of its context.
      contexts: int64 [Q, 2], the numbers [first, end) of the pieces of each question's context.
      windows: with NumPy arrays.
      cut: how many questions were longer than max_query_length.
    """

    questions: Sequence[Question]
    queries: Sequence[Sequence[int]]
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    contexts: np.ndarray
    windows: Windows
    cut: int

    def sequence(self, window: int, tokenizer: Tokenizer) -> np.ndarray:
        """Returns the ids of `[CLS] question [SEP] pieces [SEP]`, int32 [length]."""
        question, first, size, _ = (column[window] for column in self.windows)
        return join_segments(tokenizer, self.queries[question], self.ids[first : first + size])

    def text(self, question: int, first: int, last: int) -> tuple[str, int, int]:
        """Returns the text of the pieces first to last, and its characters [start, end)."""
        start, end = int(self.starts[first]), int(self.ends[last])
        return self.questions[question].context[start:end], start, end

    def pieces(self, question: int, start: int, end: int) -> tuple[int, int]:
        """Returns the first and last piece of characters [start, end) in a question's context."""
        low, high = self.contexts[question].tolist()
        first = low + int(np.searchsorted(self.ends[low:high], start, side="right"))
        last = low + int(np.searchsorted(self.starts[low:high], end, side="left")) - 1
        # Characters that the tokenizer drops have no piece; the next one stands in for them.
        first = min(first, high - 1)
        return first, max(first, last)

    def labels(self, spans: Sequence[Span | None]) -> np.ndarray:
        """Returns the answer's start and end position in every window, int64 [W, 2].

        They are 0 if the window does not hold the whole answer. `spans` are the characters
        [start, end) of each question's answer; None without one.
        """
        pieces = [self.pieces(i, *span) if span else (-1, -1) for i, span in enumerate(spans)]
        question, begin, size, context_start = self.windows
        first, last = np.array(pieces)[question].T
        held = (first >= begin) & (last < begin + size)
        positions = np.stack([first, last], axis=1) + (context_start - begin)[:, None]
        return np.where(held[:, None], positions, 0)


def make_windows(
    questions: Sequence[Question], tokenizer: Tokenizer, spec: SquadSpec
) -> WindowedQuestions:
    """Cuts the contexts of all questions into windows; tokenizes each context once."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    pieces = list(tokenizer.encode_with_offsets(contexts))
    counts = np.array([columns.shape[1] for columns in pieces])
    numbers = {context: number for number, context in enumerate(contexts)}
    of = [numbers[question.context] for question in questions]
    starts, lengths = (np.cumsum(counts) - counts)[of], counts[of]
    queries = tokenizer.encode_batch([question.question for question in questions])
    cut = sum(len(query) > spec.max_query_length for query in queries)
    queries = [query[: spec.max_query_length] for query in queries]
    with tf.device("CPU"):
        windows = cut_windows(starts, lengths, np.array([len(x) for x in queries]), spec)
    windows = Windows(*(column.numpy() for column in windows))
    bounds = np.stack([starts, starts + lengths], axis=1)
    columns = np.concatenate(pieces, axis=1)
    return WindowedQuestions(questions, queries, *columns, bounds, windows, cut)


def extract_answers(asked: WindowedQuestions, outputs: Arrays, spec: SquadSpec) -> Answers:
    """Finds the best answers to every question.

    A question without a possible span, see `find_spans`, has the only answer "".

    Null odds are the smallest of its windows.

    Args:
      asked: the questions and their W windows.
      outputs: of SquadTask.predict in the order of the windows: those of `find_spans`; for 2.0,
        `null_odds`, float [W].
      spec: settings of the task.
    """
    windows, number = asked.windows, len(asked.windows.question)
    has_text = asked.ends > asked.starts
    parts = []
    for rows in np.array_split(np.arange(number), number // _CHUNK + 1):
        found = {name: values[rows] for name, values in outputs.items()}
        with tf.device("CPU"):
            spans = find_spans(windows, rows, found, has_text, spec)
        first, last, score = (column.numpy() for column in spans)
        possible = np.nonzero(score > np.finfo(score.dtype).min)
        question = windows.question[rows[possible[0]]]
        parts.append((question, *(column[possible] for column in (first, last, score))))
    question, first, last, score = map(np.concatenate, zip(*parts))
    order = np.lexsort((-score, question))
    bounds = np.searchsorted(question[order], np.arange(len(asked.questions) + 1))
    ids = [question.id for question in asked.questions]
    answers = {}
    for i, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        nbest = {}
        for span in order[begin:end]:
            text, start, stop = asked.text(i, first[span], last[span])
            entry = {"text": text, "start": start, "end": stop, "score": float(score[span])}
            nbest.setdefault(text, entry)
            if len(nbest) == spec.n_best_size:
                break
        nothing = {"text": "", "start": 0, "end": 0, "score": float(np.finfo(np.float32).min)}
        entries = list(nbest.values()) or [nothing]
        weights = np.exp([entry["score"] - entries[0]["score"] for entry in entries])
        for entry, probability in zip(entries, (weights / weights.sum()).tolist()):
            entry["probability"] = probability
        answers[ids[i]] = entries
    if "null_odds" not in outputs:
        return Answers(answers)
    odds = np.full(len(ids), np.inf)
    np.minimum.at(odds, windows.question, outputs["null_odds"])
    return Answers(answers, dict(zip(ids, odds.tolist())))
