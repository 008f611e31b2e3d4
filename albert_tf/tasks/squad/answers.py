# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From the scores of positions to answers: n-best lists, the odds that there is none, and files.

Source: google-research/albert squad_utils.accumulate_predictions_v1 and _v2, write_predictions_v1
and _v2. One search serves both heads: "span" scores starts and ends separately, "beam" scores the
ends of each of its starts.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tasks.squad.windows import Windows

if TYPE_CHECKING:
    from albert_tf.tasks.squad.data import SquadSpec

PREDICTIONS_FILE = "predictions.json"
_NBEST_FILE = "nbest_predictions.json"
_NULL_ODDS_FILE = "null_odds.json"
FILES = (PREDICTIONS_FILE, _NBEST_FILE, _NULL_ODDS_FILE)
#: Windows searched at a time; limits the memory.
_CHUNK = 1024
#: Text and score that the TF1 release gives if it finds no span.
_RELEASE_NO_SPAN = {"span": ("empty", 0.0), "beam": ("", -2e6)}


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers by question id.

    Attributes:
      nbest: the best answers, with different texts, best first; each a dict of text, probability
        (softmax of the scores in the list), start and end (characters of the context, end
        exclusive) and score.
      null_odds: a logit: the larger, the more likely the question is unanswerable.
      without_span: questions without a possible span, whose answers are replacements.
    """

    nbest: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    null_odds: dict[str, float] = dataclasses.field(default_factory=dict)
    without_span: set[str] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True)
class _Spans:
    """All possible answers, window after window.

    Attributes:
      window, start, end, score: the window, positions and score of each span.
      best: the best score in each window, [n].
    """

    window: np.ndarray
    start: np.ndarray
    end: np.ndarray
    score: np.ndarray
    best: np.ndarray


def extract_answers(
    windows: Windows, outputs: Mapping[str, np.ndarray], spec: SquadSpec
) -> Answers:
    """Finds the best answers to every question.

    A span is a possible answer if it lies within the context, is not too long, and starts in the
    window that shows most context around its first piece. A question without such a span gets its
    best start, so that it always has an answer.

    Args:
      windows: n windows.
      outputs: outputs of SquadTask.predict in the order of the windows.
        starts, start_scores: the best starts, int and float [n, K1].
        ends, end_scores: the best ends, int and float [n, 1, K2]; for a beam [n, K1, K2], those of
          each start.
        null_logit: float [n], the sum of both logits at [CLS]; for a beam, its answerability logit.
      spec: settings of the task. With `compat`, as in the TF1 release, a question without a span is
        answered with "empty" (span) or "" (beam), and a span of white space is an answer.

    Returns:
      The answers. Null odds are the smallest of the question's windows: for a beam, its null
      logit, otherwise the null logit minus the score of the window's best span.

    Raises:
      AlbertError: the outputs belong to another number of windows.
    """
    predicted = len(outputs["starts"])
    if predicted != len(windows):
        raise AlbertError(
            f"There are predictions for {predicted} windows, but {len(windows)} windows; they were "
            "made from other data or with other options."
        )
    floats = ("start_scores", "end_scores", "null_logit")
    outputs = {**outputs, **{name: np.asarray(outputs[name], np.float64) for name in floats}}
    spans = _find_spans(windows, outputs, spec.max_answer_length)
    null_logit = outputs["null_logit"]
    odds = null_logit if spec.head == "beam" else null_logit - spans.best
    number = len(windows.questions)
    windows_of = np.searchsorted(windows.question_index, np.arange(number + 1))
    question = windows.question_index[spans.window]
    order = np.lexsort((-spans.score, question))
    spans_of = np.searchsorted(question, np.arange(number + 1))
    answers = Answers()
    for i, asked in enumerate(windows.questions):
        rows = range(windows_of[i], windows_of[i + 1])
        nbest = _distinct(windows, spans, order[spans_of[i] : spans_of[i + 1]], spec)
        null_odds = odds[rows].min()
        if not nbest:
            answers.without_span.add(asked.id)
            if spec.compat:
                text, score = _RELEASE_NO_SPAN[spec.head]
                nbest = [_entry(text, 0, 0, score)]
            else:
                nbest = [_best_start(windows, outputs, rows, spec.max_answer_length)]
            if spec.head == "span":
                null_odds = null_logit[rows].min() - nbest[0]["score"]
        _add_probabilities(nbest)
        answers.nbest[asked.id] = nbest
        answers.null_odds[asked.id] = float(null_odds)
    return answers


def predictions(answers: Answers, threshold: float | None) -> dict[str, str]:
    """Returns the best answer to every question, or "" if its null odds exceed the threshold.

    Args:
      answers: answers from `extract_answers`.
      threshold: None answers every question.
    """
    return {
        name: nbest[0]["text"] if threshold is None or answers.null_odds[name] <= threshold else ""
        for name, nbest in answers.nbest.items()
    }


def _find_spans(
    windows: Windows, outputs: Mapping[str, np.ndarray], max_answer_length: int
) -> _Spans:
    parts = []
    best = np.full(len(windows), -np.inf)
    for begin in range(0, len(windows), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        sizes = windows.num_pieces[rows]
        shift = windows.context_start[rows, None, None]
        starts, ends = outputs["starts"][rows, :, None] - shift, outputs["ends"][rows] - shift
        allowed = (starts >= 0) & (ends >= starts) & (ends < starts + max_answer_length)
        allowed &= ends < sizes[:, None, None]
        is_max = np.concatenate([windows.is_max_context(begin + i) for i in range(len(sizes))])
        first = (np.cumsum(sizes) - sizes)[:, None, None]
        allowed &= is_max[first + np.clip(starts, 0, sizes[:, None, None] - 1)]
        total = outputs["start_scores"][rows, :, None] + outputs["end_scores"][rows]
        best[rows] = np.where(allowed, total, -np.inf).max(axis=(1, 2))
        window = np.nonzero(allowed)[0]
        start, end = (np.broadcast_to(x + shift, allowed.shape)[allowed] for x in (starts, ends))
        parts.append((begin + window, start, end, total[allowed]))
    return _Spans(*(np.concatenate(column) for column in zip(*parts)), best)


def _distinct(
    windows: Windows, spans: _Spans, candidates: np.ndarray, spec: SquadSpec
) -> list[dict[str, Any]]:
    """Returns the first candidates with different texts."""
    entries: dict[str, dict[str, Any]] = {}
    for i in candidates:
        if len(entries) == spec.n_best_size:
            break
        text, start, end = windows.text(spans.window[i], spans.start[i], spans.end[i])
        if text not in entries and (text or spec.compat):
            entries[text] = _entry(text, start, end, spans.score[i])
    return list(entries.values())


def _best_start(
    windows: Windows, outputs: Mapping[str, np.ndarray], rows: range, max_answer_length: int
) -> dict[str, Any]:
    """Returns the best start within the context, in any window, with its best possible end.

    Without a start within the context, the answer begins with the first piece of the context.
    """
    selected = slice(rows.start, rows.stop)
    first = windows.context_start[selected, None]
    stop = first + windows.num_pieces[selected, None]
    starts, start_scores = outputs["starts"][selected], outputs["start_scores"][selected]
    inside = np.where((starts >= first) & (starts < stop), start_scores, -np.inf)
    row, rank = np.unravel_index(np.argmax(inside), inside.shape)
    window = rows[row]
    start = int(starts[row, rank]) if np.isfinite(inside[row, rank]) else int(first[row, 0])
    group = rank % outputs["ends"].shape[1]
    ends, end_scores = outputs["ends"][window, group], outputs["end_scores"][window, group]
    limit = min(start + max_answer_length, int(stop[row, 0]))
    reachable = np.where((ends >= start) & (ends < limit), end_scores, -np.inf)
    best = int(np.argmax(reachable))
    end, end_score = start, float(end_scores.min())
    if np.isfinite(reachable[best]):
        end, end_score = int(ends[best]), float(reachable[best])
    text, char_start, char_end = windows.text(window, start, end)
    while not text and end + 1 < stop[row, 0]:
        end += 1
        text, char_start, char_end = windows.text(window, start, end)
    return _entry(text, char_start, char_end, start_scores[row, rank] + end_score)


def _entry(text: str, start: int, end: int, score: float) -> dict[str, Any]:
    return {"text": text, "start": start, "end": end, "score": float(score)}


def _add_probabilities(nbest: list[dict[str, Any]]) -> None:
    scores = np.array([entry["score"] for entry in nbest])
    weights = np.exp(scores - scores.max())
    for entry, probability in zip(nbest, (weights / weights.sum()).tolist()):
        entry["probability"] = probability


def write_answers(folder: str, answers: Answers, threshold: float | None) -> str:
    """Writes the files of answers.

    Args:
      folder: folder of the files.
      answers: the answers.
      threshold: see `predictions`; None, as for 1.1, writes no null odds.

    Returns:
      The path of predictions.json.
    """
    path = os.path.join(folder, PREDICTIONS_FILE)
    files.write_json(path, predictions(answers, threshold))
    files.write_json(os.path.join(folder, _NBEST_FILE), answers.nbest)
    if threshold is not None:
        files.write_json(os.path.join(folder, _NULL_ODDS_FILE), answers.null_odds)
    return path


def read_answers(folder: str) -> Answers:
    """Reads n-best lists and, if there are some, null odds.

    Raises:
      AlbertError: a file is missing or damaged.
    """
    path = os.path.join(folder, _NBEST_FILE)
    nbest = files.read_object(path, "file of answers")
    for question, entries in nbest.items():
        if not _is_nbest(entries):
            raise AlbertError(f"{path}: the entry for question {question} is damaged.")
    path = os.path.join(folder, _NULL_ODDS_FILE)
    odds = files.read_object(path, "file of null odds") if files.exists(path) else {}
    for question, value in odds.items():
        if not _is_number(value):
            raise AlbertError(f"{path}: the entry for question {question} is damaged.")
    return Answers(nbest, odds)


def _is_number(value: Any) -> bool:
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
