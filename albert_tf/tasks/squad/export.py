# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a SQuAD model: questions and contexts in, answers out.

answer = tf.saved_model.load(path)
answer(["Who wrote it?"], ["It was written by Ada Lovelace in 1843."])["answer"]
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.export.packing import cut_padding, join, keep, merge_words
from albert_tf.export.saved_model import Export, Kind, strings, text_model
from albert_tf.export.self_check import QUESTIONS, Probe, as_bytes, text_batches
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.squad.answerer import QuestionAnswerer
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.windows import cut_windows, find_spans
from albert_tf.tokenization.graph import valid_utf8
from albert_tf.training.task import Tensors

KIND = Kind.of_texts(
    "ALBERT question answering",
    "answer",
    'answer(["Who wrote it?"], ["Ada Lovelace wrote it in 1843."])["answer"]',
)


def squad_export(task: SquadTask, model: AlbertModel) -> Export:
    """Returns the SavedModel of a SQuAD model.

    The root, and `serving_default`, take `questions` and `contexts`, string [B], of any length.
    They return, each [B]: `answer`, string; `start` and `end`, int32, its characters [start, end)
    in the context; `score`, float32, the higher the better; and for SQuAD 2.0 `null_odds`, float32,
    the larger the more likely there is no answer, and `answerable`, bool, whether they are at most
    the task's threshold. The answers equal those of QuestionAnswerer.
    """
    tokenizer, spec, threshold = task.tokenizer, task.spec, task.answer_threshold
    graph = tokenizer.graph()

    @tf.function(autograph=False, input_signature=[strings("questions"), strings("contexts")])
    def answer(questions: tf.Tensor, contexts: tf.Tensor) -> Tensors:
        queries = keep(merge_words(graph(questions)), spec.max_query_length)
        query_lengths = queries.row_lengths()
        ids, starts, ends = graph.encode_with_offsets(contexts)
        windows = cut_windows(ids.row_starts(), ids.row_lengths(), query_lengths, spec)
        pieces = tf.ragged.range(windows.first, windows.first + windows.size)
        segments = [tf.gather(queries, windows.question), tf.gather(ids.values, pieces)]
        packed = join(segments, spec.max_seq_length, tokenizer)
        with graph_mode(GraphMode.SERVED):
            outputs = task.predict(model, cut_padding(packed))
        number = tf.range(tf.size(windows.size, tf.int64))
        has_text = ends.values > starts.values
        firsts, lasts, scores = find_spans(windows, number, outputs, has_text, spec)
        best = tf.argmax(scores, axis=1)
        first, last, best_score = (
            tf.gather(column, best, batch_dims=1) for column in (firsts, lasts, scores)
        )
        pairs = tf.size(questions)
        score = tf.math.unsorted_segment_max(best_score, windows.question, pairs)
        # Of several best windows, the first one counts.
        rank = tf.where(best_score == tf.gather(score, windows.question), number, tf.int64.max)
        winner = tf.math.unsorted_segment_min(rank, windows.question, pairs)
        # A context without text has no pieces.
        starts, ends = (tf.concat([x.values, [0]], axis=0) for x in (starts, ends))
        has_span = score > score.dtype.min
        start, end = (
            tf.where(has_span, tf.cast(tf.gather(places, tf.gather(piece, winner)), tf.int32), 0)
            for places, piece in ((starts, first), (ends, last))
        )
        text = tf.strings.substr(valid_utf8(contexts), start, end - start, "UTF8_CHAR")
        found = {"answer": text, "start": start, "end": end, "score": score}
        if spec.version == "2.0":
            odds = tf.math.unsorted_segment_min(outputs["null_odds"], windows.question, pairs)
            found |= {"null_odds": odds, "answerable": odds <= threshold}
        return found

    types = {"start": np.int32, "end": np.int32}
    if spec.version == "2.0":
        types |= {"null_odds": np.float32, "answerable": bool}
    answerer, probes = QuestionAnswerer(task, model), []
    for contexts in text_batches():
        questions = QUESTIONS[: len(contexts)]
        answers = [answerer.answer(*pair) for pair in zip(questions, contexts)]
        expected = {k: np.array([getattr(x, k) for x in answers], t) for k, t in types.items()}
        expected["answer"] = as_bytes([answer.text for answer in answers])
        inputs = {"questions": as_bytes(questions), "contexts": as_bytes(contexts)}
        probes.append(Probe(inputs, expected))
    root = text_model(answer, graph, model)
    return Export(KIND, root, {"serving_default": answer}, probes)
