# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a SQuAD model: questions and contexts in, answers out.

answer = tf.saved_model.load(path)
answer(["Who wrote it?"], ["It was written by Ada Lovelace in 1843."])["answer"]
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.export.text_form import QUESTIONS, SENTENCES, TextForm, keep, pack
from albert_tf.tasks.squad.task import SPAN_LOGITS, QuestionSet
from albert_tf.tasks.squad.windows import extract_answers, find_spans
from albert_tf.tasks.windows import cut_windows
from albert_tf.tokenization.graph import valid_utf8
from albert_tf.training.task import Arrays, Tensors


class AnswerForm(TextForm):
    """Answers questions about contexts as QuestionAnswerer does.

    It takes `questions` and `contexts`, string [B], of any length. It returns, each [B]: `answer`,
    string; `start` and `end`, int32, its characters [start, end) in the context; `score`, float32,
    the higher the better; and for SQuAD 2.0 `null_odds`, float32, the larger the more likely there
    is no answer, and `answerable`, bool, whether they are at most the task's threshold.
    """

    title = "ALBERT question answerer"
    call = 'answer(["Who wrote it?"], ["Ada Lovelace wrote it in 1843."])["answer"]'
    samples: ClassVar = {"questions": QUESTIONS, "contexts": SENTENCES}
    columns = "question", "context"

    @property
    def takes_ids(self) -> bool:
        """See TextForm. Token ids alone are not enough to use the outputs of a beam."""
        return not self.task.spec.has_beam

    def of_ids(self, inputs: Tensors) -> Tensors:
        """Returns `start_logits` and `end_logits`, float32 [B, S], of all positions."""
        outputs = self.model(inputs, training=False)
        return {name: outputs[name] for name in SPAN_LOGITS}

    def outputs(self, questions: tf.Tensor, contexts: tf.Tensor) -> Tensors:
        """See the class."""
        spec = self.task.spec
        queries = keep(self.ids(questions), spec.max_query_length)
        ids, starts, ends = self.graph.encode_with_offsets(contexts)
        windows = cut_windows(ids.row_starts(), ids.row_lengths(), queries.row_lengths(), spec)
        segments = [tf.gather(queries, windows.question), tf.gather(ids.values, windows.pieces)]
        outputs = self.predict(pack(segments, spec.max_seq_length, self.tokenizer))
        number = tf.range(tf.size(windows.size, tf.int64))
        spans = find_spans(windows, number, outputs, ends.values > starts.values, spec)
        first, last, scores = (tf.reshape(column, [-1]) for column in spans)
        question = tf.repeat(windows.question, tf.shape(spans[0])[1])
        count = tf.size(questions)
        score = tf.math.unsorted_segment_max(scores, question, count)
        # Of several best spans, the first one counts.
        number = tf.range(tf.size(scores))
        rank = tf.where(scores == tf.gather(score, question), number, number.dtype.max)
        winner = tf.math.unsorted_segment_min(rank, question, count)
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
            odds = tf.math.unsorted_segment_min(outputs["null_odds"], windows.question, count)
            found |= {"null_odds": odds, "answerable": odds <= self.task.answer_threshold}
        return found

    def found(self, data: QuestionSet, outputs: Arrays) -> Arrays:
        """See TextForm."""
        answers = extract_answers(data.asked, outputs, self.task.spec)
        best = [entries[0] for entries in answers.nbest.values()]
        found = {name: np.array([entry[name] for entry in best]) for name in ("start", "end")}
        found["answer"] = np.char.encode([entry["text"] for entry in best], "utf-8")
        if answers.null_odds:
            odds = np.array([*answers.null_odds.values()], np.float32)
            found |= {"null_odds": odds, "answerable": odds <= self.task.answer_threshold}
        return found
