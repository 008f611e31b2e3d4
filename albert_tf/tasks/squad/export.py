# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a SQuAD model: questions and contexts in, answers out.

answer = tf.saved_model.load(path)
answer(["Who wrote it?"], ["It was written by Ada Lovelace in 1843."])["answer"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.model_card import Kind
from albert_tf.export.saved_model import Export, ReusableSavedModel, strings
from albert_tf.export.self_check import QUESTIONS, Probe, as_bytes, text_batches
from albert_tf.export.text_graph import (
    character_class,
    cut_padding,
    join,
    keep,
    merge_words,
    tokenizer_graph,
    valid_utf8,
)
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.data import SquadSpec
from albert_tf.tasks.squad.task import SquadTask

KIND = Kind(
    "ALBERT question answering",
    """import tensorflow as tf
import tensorflow_text  # registers the operations that read text

answer = tf.saved_model.load("{name}")
answer(["Who wrote it?"], ["Ada Lovelace wrote it in 1843."])["answer"]""",
)
_NEVER = tf.float32.min


class _Windows(NamedTuple):
    """The W windows of a batch of contexts, as albert_tf.tasks.squad.windows cuts them."""

    pair: tf.Tensor  # int64 [W], row of the question and its context in the batch.
    pieces: tf.RaggedTensor  # int64 [W, (pieces)], indices into the pieces of all contexts.
    #: bool [W, (pieces)], whether no other window shows more around the piece.
    is_max_context: tf.RaggedTensor


def _cut(contexts: tf.RaggedTensor, query_lengths: tf.Tensor, spec: SquadSpec) -> _Windows:
    """Cuts ragged contexts [B, (pieces)] for questions of the given lengths, int64 [B]."""
    lengths = contexts.row_lengths()
    room = spec.max_seq_length - 3 - query_lengths
    stride = tf.minimum(room, spec.doc_stride)
    count = 1 + (tf.maximum(lengths - room, 0) + stride - 1) // stride
    number = tf.ragged.range(count)
    pair = number.value_rowids()
    first = number.values * tf.gather(stride, pair)
    sizes = tf.minimum(tf.gather(room, pair), tf.gather(lengths, pair) - first)
    begin = tf.gather(contexts.row_starts(), pair) + first
    pieces = tf.ragged.range(begin, begin + sizes)
    # In float64, as in windows.max_contexts: equal scores there must be equal here.
    position = tf.cast(tf.ragged.range(sizes).values, tf.float64)
    window = pieces.value_rowids()
    size = tf.cast(tf.gather(sizes, window), tf.float64)
    score = tf.minimum(position, size - 1 - position) + 0.01 * size
    total = tf.size(contexts.values, tf.int64)
    best_score = tf.math.unsorted_segment_max(score, pieces.values, total)
    is_best = score == tf.gather(best_score, pieces.values)
    # Of several best windows, the first one counts.
    rank = tf.where(is_best, window, tf.int64.max)
    first_best = tf.math.unsorted_segment_min(rank, pieces.values, total)
    is_max_context = pieces.with_values(window == tf.gather(first_best, pieces.values))
    return _Windows(pair, pieces, is_max_context)


class _BestSpans(NamedTuple):
    """The best span of each of W windows, each field [W]."""

    first: tf.Tensor  # Its pieces, as indices into those of all contexts.
    last: tf.Tensor
    score: tf.Tensor  # _NEVER if the window has no possible answer.
    any_score: tf.Tensor  # Of the best span if spans of white space count, too.


def _best_spans(
    outputs: Mapping[str, tf.Tensor],
    windows: _Windows,
    context_start: tf.Tensor,
    has_text: tf.Tensor,
    max_answer_length: int,
) -> _BestSpans:
    sizes = windows.pieces.row_lengths()[:, None, None]
    starts = tf.cast(outputs["starts"], tf.int64)[:, :, None] - context_start[:, None, None]
    ends = tf.cast(outputs["ends"], tf.int64) - context_start[:, None, None]
    allowed = (starts >= 0) & (ends >= starts) & (ends < starts + max_answer_length)
    allowed &= ends < sizes
    row = windows.pieces.row_starts()[:, None, None]

    def look_up(values: tf.Tensor, position: tf.Tensor, pad: Any) -> tf.Tensor:
        # The padding is for a window without pieces, which may be at the end.
        values = tf.concat([values, tf.constant([pad], values.dtype)], axis=0)
        return tf.gather(values, row + tf.clip_by_value(position, 0, tf.maximum(sizes - 1, 0)))

    allowed &= look_up(windows.is_max_context.values, starts, False)
    firsts, lasts = (look_up(windows.pieces.values, x, 0) for x in (starts, ends))
    texts_before = tf.concat([[0], tf.cumsum(tf.cast(has_text, tf.int64)), [0]], axis=0)
    shows_text = tf.gather(texts_before, lasts + 1) > tf.gather(texts_before, firsts)
    score = outputs["start_scores"][:, :, None] + outputs["end_scores"]
    score = tf.where(allowed, score, _NEVER)
    firsts, lasts, shown = (
        tf.reshape(tf.broadcast_to(x, tf.shape(score)), [tf.shape(score)[0], -1])
        for x in (firsts, lasts, tf.where(shows_text, score, _NEVER))
    )
    best = tf.argmax(shown, axis=1)
    first, last, best_score = (tf.gather(x, best, batch_dims=1) for x in (firsts, lasts, shown))
    return _BestSpans(first, last, best_score, tf.reduce_max(score, axis=[1, 2]))


def _strip(texts: tf.Tensor, starts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Strips texts; returns them and their new starts."""
    spaces = f"[{character_class(str.isspace)}]+"
    lengths = tf.strings.length(texts, "UTF8_CHAR")
    texts = tf.strings.regex_replace(texts, f"^{spaces}", "")
    starts += lengths - tf.strings.length(texts, "UTF8_CHAR")
    return tf.strings.regex_replace(texts, f"{spaces}$", ""), starts


def squad_export(task: SquadTask, model: AlbertModel) -> Export:
    """Returns the SavedModel of a SQuAD model.

    The root, and `serving_default`, take `questions` and `contexts`, string [B], of any length.
    They return, each [B]: `answer`, string; `start` and `end`, int32, its characters [start, end)
    in the context; `score`, float32, the higher the better; `null_odds`, float32, the larger the
    more likely there is no answer; and `answerable`, bool, whether they are at most the task's
    threshold (always true for SQuAD 1.1). The answers equal those of albert_tf.tasks.squad.answers
    without `compat`, except that a question without a possible span gets an empty answer.
    """
    tokenizer, spec, threshold = task.tokenizer, task.spec, task.answer_threshold
    graph = tokenizer_graph(tokenizer)

    @tf.function(autograph=False, input_signature=[strings("questions"), strings("contexts")])
    def answer(questions: tf.Tensor, contexts: tf.Tensor) -> dict[str, tf.Tensor]:
        queries = keep(merge_words(graph(questions)), spec.max_query_length)
        query_lengths = queries.row_lengths()
        ids, starts, ends = graph.encode_with_offsets(contexts)
        windows = _cut(ids, query_lengths, spec)
        segments = [tf.gather(queries, windows.pair), tf.gather(ids.values, windows.pieces)]
        packed = join(segments, spec.max_seq_length, tokenizer)
        with graph_mode(GraphMode.SERVED):
            outputs = task.predict(model, cut_padding(packed))
        best = _best_spans(
            outputs,
            windows,
            tf.gather(query_lengths, windows.pair) + 2,
            ends.values > starts.values,
            spec.max_answer_length,
        )
        odds = outputs["null_logit"]
        if spec.head == "span":
            odds -= best.any_score
        pairs = tf.size(questions)
        score = tf.math.unsorted_segment_max(best.score, windows.pair, pairs)
        wins = best.score == tf.gather(score, windows.pair)
        rank = tf.where(wins, tf.range(tf.size(wins, tf.int64)), tf.int64.max)
        winner = tf.math.unsorted_segment_min(rank, windows.pair, pairs)
        null_odds = tf.math.unsorted_segment_min(odds, windows.pair, pairs)
        # A context without text has no pieces.
        starts, ends = (tf.concat([x.values, [0]], axis=0) for x in (starts, ends))
        has_span = score > _NEVER
        begin = tf.where(has_span, tf.gather(starts, tf.gather(best.first, winner)), 0)
        end = tf.where(has_span, tf.gather(ends, tf.gather(best.last, winner)), 0)
        text = tf.strings.substr(valid_utf8(contexts), begin, end - begin, "UTF8_CHAR")
        text, start = _strip(text, tf.cast(begin, tf.int32))
        always = tf.ones_like(has_span)
        return {
            "answer": text,
            "start": start,
            "end": start + tf.strings.length(text, "UTF8_CHAR"),
            "score": score,
            "null_odds": null_odds,
            "answerable": always if spec.version == "1.1" else null_odds <= threshold,
        }

    root = ReusableSavedModel(answer, list(model.named_weights().values()), trainable=False)
    root.tokenizer = graph
    probes = squad_probes(QuestionAnswerer(task, model))
    return Export(KIND, root, {"serving_default": answer}, probes)


def squad_probes(answerer: QuestionAnswerer) -> list[Probe]:
    """Returns questions about contexts of one window and of several.

    Without those that have no possible span, because the graph does not replace their answers.

    Raises:
      AlbertError: the model finds no possible span for any question.
    """
    spec = dataclasses.replace(answerer.task.spec, compat=False)  # The graph searches like this.
    probes = []
    for contexts in text_batches():
        pairs, answers = [], []
        for pair in zip(QUESTIONS, contexts):
            found = answerer.search(*pair, spec)
            if not found.without_span:
                pairs.append(pair)
                answers.append(answerer.best(found))
        if not pairs:
            continue
        expected = {
            "answer": as_bytes([answer.text for answer in answers]),
            "start": np.array([answer.start for answer in answers], np.int32),
            "end": np.array([answer.end for answer in answers], np.int32),
            "null_odds": np.array([answer.null_odds for answer in answers], np.float32),
            "answerable": np.array([answer.answerable for answer in answers]),
        }
        questions, contexts = map(as_bytes, zip(*pairs))
        inputs = {"questions": questions, "contexts": contexts}
        probes.append(Probe(inputs, expected))
    if not probes:
        raise AlbertError(
            "The model finds no possible answer to any of the questions that check the export; "
            "train it longer."
        )
    return probes
