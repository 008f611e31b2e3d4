# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: its model, loss, answers and files."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.question_answering import (
    AlbertBeamAnswerer,
    AlbertSpanAnswerer,
    allowed_positions,
    masked,
    top_k,
)
from albert_tf.settings import check_number
from albert_tf.tasks.example_set import ExampleSet
from albert_tf.tasks.fine_tuning_task import FineTuningTask
from albert_tf.tasks.squad.data import (
    FILES,
    Question,
    SquadSpec,
    answer_span,
    write_answers,
)
from albert_tf.tasks.squad.scoring import score_answers
from albert_tf.tasks.squad.windows import WindowedQuestions, extract_answers, make_windows
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors, correct
from albert_tf.weights.run_folder import RunFolder

if TYPE_CHECKING:
    from albert_tf.export.text_form import TextForm
    from albert_tf.modeling.encoder import AlbertModel

#: The name of the threshold, and of the metric that finds it.
THRESHOLD = "null_threshold"
#: The columns of training windows.
LABELS = ("start_positions", "end_positions")
#: Questions that are left out, and shown.
_SHOWN = 3
_SPAN_LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(eq=False)
class QuestionSet(ExampleSet):
    """Questions, whose sequences are windows of their contexts, in the order of `asked`."""

    asked: WindowedQuestions | None = None


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2)."""

    name = "squad"
    spec_class = SquadSpec
    prediction_files = FILES
    constant_answers: ClassVar = {"f1": "all_null_f1"}

    @property
    def best_metric(self) -> str:
        """See Task: F1; for 2.0, with the best threshold."""
        return "best_f1" if self.spec.version == "2.0" else "f1"

    @property
    def threshold_names(self) -> Sequence[str]:
        """See FineTuningTask: for 2.0, the null odds above which there is no answer."""
        return () if self.spec.version == "1.1" else (THRESHOLD,)

    def use_threshold(self, threshold: float) -> None:
        """Sets the threshold.

        Raises:
          AlbertError: SQuAD 1.1 has no unanswerable questions, or the threshold is not finite.
        """
        if self.spec.version == "1.1":
            raise AlbertError(
                "`null_score_diff_threshold` is for SQuAD 2.0; in 1.1 every question has an "
                "answer. Leave it out."
            )
        check_number("`null_score_diff_threshold`", threshold, -1e38)
        self.thresholds = {THRESHOLD: threshold}

    @property
    def answer_threshold(self) -> float | None:
        """The threshold to answer with, by default 0: more likely than not. None for 1.1."""
        return (self.thresholds or {THRESHOLD: 0.0})[THRESHOLD] if self.threshold_names else None

    def encode(
        self, examples: Sequence[Question], *, labelled: bool = True, training: bool = False
    ) -> QuestionSet:
        """See FineTuningTask. A sequence is a window of a question's context, see `make_windows`.

        In training, a window that lacks a part of the answer is an example of "no answer here" for
        2.0. For 1.1, which has no such examples, it is left out. `start_positions` and
        `end_positions` are the answer's first and last position in the window, and 0 ([CLS]) in a
        window without an answer.

        Questions whose answers are not in the context are left out of the training. The answer to
        an empty context is "".

        Raises:
          AlbertError: a question has no answer, or one of 1.1 is unanswerable; or more than a tenth
            would be left out.
        """
        version, notes = self.spec.version, []
        for question in examples if labelled else ():
            if not (question.answers or question.is_impossible):
                raise AlbertError(
                    f"{question.where} has no answer, which training and evaluation need; use "
                    "`do_predict` for questions whose answers are unknown."
                )
            if question.is_impossible and version == "1.1":
                raise AlbertError(f"{question.where} is unanswerable, which needs `version`=2.0.")
        if training:
            examples, spans, notes = _found(examples)
        asked = make_windows(examples, self.tokenizer, self.spec)
        number = len(asked.windows.question)
        rows, columns = np.arange(number), {}
        if training:
            labels = asked.labels(spans)
            if version == "1.1":
                rows = np.flatnonzero(labels[:, 0])
            columns = dict(zip(LABELS, labels[rows].T))
        first = asked.windows.context_start
        made = ((asked.sequence(row, self.tokenizer), first[row]) for row in rows)
        data = Sequences(made, self.tokenizer.pad_id, columns)
        summary = f"{len(examples):,} questions, {len(rows):,} windows"
        if unused := number - len(rows):
            summary += f", {unused:,} more without the answer left out"
        if asked.cut:
            longest = self.spec.max_query_length
            notes.append(f"{asked.cut:,} questions are longer than {longest} tokens and cut")
        answers = repr([(question.answers, question.is_impossible) for question in examples])
        identity = hashlib.sha256(answers.encode()).hexdigest()[:16]
        return QuestionSet(examples, data, summary, identity, notes=notes, asked=asked)

    def text_form(self, model: AlbertModel) -> TextForm:
        """See AnswerForm."""
        from albert_tf.tasks.squad.export import AnswerForm

        return AnswerForm(self, model)

    def build_model(self, dtype: str = FLOAT32) -> AlbertSpanAnswerer | AlbertBeamAnswerer:
        """Builds the encoder and the head, which for 2.0 is the one with a beam."""
        if self.spec.version == "1.1":
            return AlbertSpanAnswerer(self.config, dtype)
        widths = self.spec.start_n_top, self.spec.end_n_top
        return AlbertBeamAnswerer(self.config, *widths, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Returns summed losses, and the numbers of correct spans and correct answerabilities.

        The loss of a window is 0.5 (start + end cross-entropy), for 2.0 plus 0.5 times the
        cross-entropy of the answerability. The labels of windows without an answer are [CLS].
        """
        starts, ends = batch["start_positions"], batch["end_positions"]
        outputs, sums = model(batch, training=training), {}
        if self.spec.version == "1.1":
            allowed = allowed_positions(batch)
            start_log_probs, end_log_probs = (
                tf.nn.log_softmax(masked(outputs[name], allowed)) for name in _SPAN_LOGITS
            )
        else:
            start_log_probs, end_log_probs = outputs["start_log_probs"], outputs["end_log_probs"]
            impossible, logits = tf.cast(starts == 0, tf.float32), outputs["cls_logits"]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(impossible, logits)
            right = tf.equal(logits > 0, impossible > 0)
            sums = {"answerability_loss": losses, "answerability_accuracy": right}
        right = correct(start_log_probs, starts) & correct(end_log_probs, ends)
        start_gold = tf.gather(start_log_probs, starts, batch_dims=1)
        end_gold = tf.gather(end_log_probs, ends, batch_dims=1)
        sums = {"span_loss": -0.5 * (start_gold + end_gold), "span_accuracy": right, **sums}
        return {k: tf.reduce_sum(tf.cast(v, tf.float32)) for k, v in sums.items()}

    def means(self, sums: Tensors, weights: Tensors) -> Tensors:
        """Returns mean losses and accuracies over the windows."""
        means = super().means(sums, weights)
        return {"loss": means["span_loss"] + 0.5 * means.get("answerability_loss", 0.0), **means}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns the outputs that `extract_answers` describes, [batch, ...]."""
        outputs = model(batch, training=False)
        if self.spec.version == "2.0":
            beam = [-1, self.spec.start_n_top, self.spec.end_n_top]
            return {
                "starts": outputs["start_top_index"],
                "start_scores": outputs["start_top_log_probs"],
                "ends": tf.reshape(outputs["end_top_index"], beam),
                "end_scores": tf.reshape(outputs["end_top_log_probs"], beam),
                "null_odds": outputs["cls_logits"],
            }
        # [CLS] is no answer and must not take a place among the best.
        allowed = allowed_positions(batch) & (tf.range(tf.shape(batch["input_mask"])[1]) > 0)
        (start_scores, starts), (end_scores, ends) = (
            top_k(masked(outputs[name], allowed), self.spec.n_best_size) for name in _SPAN_LOGITS
        )
        return {
            "starts": starts,
            "start_scores": start_scores,
            "ends": ends[:, None],
            "end_scores": end_scores[:, None],
        }

    def metrics(self, outputs: Arrays, examples: QuestionSet) -> dict[str, float]:
        """See `score_answers`; without a threshold, uses the best one for these questions."""
        answers = extract_answers(examples.asked, outputs, self.spec)
        threshold = self.answer_threshold if self.thresholds else None
        return score_answers(examples.examples, answers, self.spec.version, threshold)

    def write_evaluation(
        self, data: QuestionSet, outputs: Arrays, results: Mapping[str, float], folder: RunFolder
    ) -> None:
        """Writes the answers, and keeps the threshold."""
        if self.threshold_names:
            self.keep_thresholds({THRESHOLD: results[THRESHOLD]}, folder)
        self.write_predictions(data, outputs, folder)

    def write_predictions(self, data: QuestionSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
        if (threshold := self.answer_threshold) is not None:
            log.info(f"Threshold on the null odds: {threshold:.4f}.")
        answers = extract_answers(data.asked, outputs, self.spec)
        path = write_answers(folder.path, answers, threshold)
        log.info(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Mapping[str, float]) -> str:
        """Returns the loss and the share of correct spans."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"


def _found(
    examples: Sequence[Question],
) -> tuple[list[Question], list[tuple[int, int] | None], list[str]]:
    """Chooses the training questions whose answers are in their contexts; see `SquadTask.encode`.

    Returns:
      The questions, the characters of each one's answer (None if there is none), and notes.
    """
    chosen, spans, left_out = [], [], []
    for question in examples:
        places = (answer_span(question.context, answer) for answer in question.answers)
        span = next(filter(None, places), None)
        if span or question.is_impossible:
            chosen.append(question)
            spans.append(span)
        else:
            left_out.append(f"{question.where} {short_repr(question.answers[0].text)}")
    if not left_out:
        return chosen, spans, []
    shown = "; ".join(left_out[:_SHOWN])
    note = f"{len(left_out):,} are left out, as their answers are not in the contexts: {shown}"
    if len(left_out) * 10 > len(examples):
        raise AlbertError(f"Of {len(examples):,} questions, more than a tenth, {note}.")
    return chosen, spans, [note]
