# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: its model, loss, answers and files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io import files
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
from albert_tf.tasks.base import ExampleSet, FineTuningTask, model_inputs
from albert_tf.tasks.squad.data import Answers, Question, SquadSpec, answer_span, write_answers
from albert_tf.tasks.squad.scoring import score_answers
from albert_tf.tasks.squad.windows import WindowedQuestions, extract_answers, make_windows
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Tensors, correct
from albert_tf.weights.run_folder import RunFolder, find_checkpoint, has_checkpoint

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export
    from albert_tf.modeling.encoder import AlbertModel

THRESHOLDS_FILE = "thresholds.json"
#: The columns of training windows.
LABELS = ("start_positions", "end_positions")
_SPAN_LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(eq=False)
class QuestionSet(ExampleSet):
    """Questions, whose sequences are windows of their contexts, in the order of `asked`."""

    asked: WindowedQuestions | None = None
    _latest: tuple[object, Answers | None] = (None, None)

    def answers(self, outputs: Arrays, spec: SquadSpec) -> Answers:
        """Returns the best answers, given the outputs of SquadTask.predict for all windows."""
        # An evaluation scores answers and then writes them: both times of the same outputs.
        if self._latest[0] is not outputs:
            self._latest = outputs, extract_answers(self.asked, outputs, spec)
        return self._latest[1]


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2).

    Attributes:
      threshold: for 2.0, null odds above which a question counts as unanswerable; None until an
        evaluation finds the best one.
    """

    name = "squad"
    spec_class = SquadSpec
    constant_answers: ClassVar = {"f1": "all_null_f1"}
    threshold: float | None = None

    @property
    def best_metric(self) -> str:
        """See Task: F1; for 2.0, with the best threshold."""
        return "best_f1" if self.spec.version == "2.0" else "f1"

    @classmethod
    def load(cls, folder: str, **changes: Any) -> SquadTask:
        """See FineTuningTask; also loads the threshold kept beside the model."""
        task = super().load(folder, **changes)
        if task.spec.version == "2.0":
            task.threshold = load_threshold(RunFolder(folder))
        return task

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
        self.threshold = threshold

    @property
    def answer_threshold(self) -> float | None:
        """The threshold to answer with, by default 0: more likely than not. None for 1.1."""
        return None if self.spec.version == "1.1" else self.threshold or 0.0

    def forget_evaluation(self) -> None:
        """See FineTuningTask: forgets the threshold."""
        self.threshold = None

    def encode(
        self, examples: Sequence[Question], *, labelled: bool = True, training: bool = False
    ) -> QuestionSet:
        """See FineTuningTask. A sequence is a window of a question's context, see `make_windows`.

        In training, a window that lacks a part of the answer is an example of "no answer here" for
        2.0. For 1.1, which has no such examples, it is left out. `start_positions` and
        `end_positions` are the answer's first and last position in the window, and 0 ([CLS]) in a
        window without an answer.

        Raises:
          AlbertError: a context has no text; in training and evaluation, a question has no answer;
            in training, the context does not contain it.
        """
        # Errors come before the tokenizer's work.
        for question in examples if labelled else ():
            if not (question.answers or question.is_impossible):
                raise AlbertError(
                    f"{question.where} has no answer, which training and evaluation need; use "
                    "`do_predict` for questions whose answers are unknown."
                )
        if training:
            spans = [answer_span(x, x.answers[0]) if x.answers else None for x in examples]
        asked = make_windows(examples, self.tokenizer, self.spec)
        number = len(asked.windows.question)
        rows, columns = np.arange(number), {}
        if training:
            labels = asked.labels(spans)
            if self.spec.version == "1.1":
                rows = np.flatnonzero(labels[:, 0])
            columns = dict(zip(LABELS, labels[rows].T))
        first = asked.windows.context_start
        made = ((asked.sequence(row, self.tokenizer), first[row]) for row in rows)
        data = Sequences(made, self.tokenizer.pad_id, columns)
        summary = f"{len(examples):,} questions, {len(rows):,} windows"
        if left_out := number - len(rows):
            summary += f", {left_out:,} more without the answer left out"
        answers = repr([(question.answers, question.is_impossible) for question in examples])
        identity = hashlib.sha256(answers.encode()).hexdigest()[:16]
        return QuestionSet(examples, data, summary, identity, asked=asked)

    def export(self, model: AlbertModel) -> Export:
        """See albert_tf.tasks.squad.export."""
        from albert_tf.tasks.squad.export import squad_export

        return squad_export(self, model)

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
        inputs = model_inputs(batch)
        sums = {}
        if self.spec.version == "1.1":
            outputs, allowed = model(inputs, training=training), allowed_positions(inputs)
            start_log_probs, end_log_probs = (
                tf.nn.log_softmax(masked(outputs[name], allowed)) for name in _SPAN_LOGITS
            )
        else:
            outputs = model({**inputs, "start_positions": starts}, training=training)
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
        inputs = model_inputs(batch)
        outputs = model(inputs, training=False)
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
        allowed = allowed_positions(inputs) & (tf.range(tf.shape(inputs["input_mask"])[1]) > 0)
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
        answers = examples.answers(outputs, self.spec)
        return score_answers(examples.examples, answers, self.spec.version, self.threshold)

    def write_evaluation(
        self, data: QuestionSet, outputs: Arrays, results: Mapping[str, float], folder: RunFolder
    ) -> None:
        """Writes the answers and, if there was no threshold before, keeps the best one."""
        if self.spec.version == "2.0" and self.threshold is None:
            self.threshold, model = results["null_threshold"], folder.best_seed()
            kept = {"null_threshold": self.threshold, "checkpoint": _checkpoint(model)}
            files.write_json(model.file(THRESHOLDS_FILE), kept)
            log.info("The threshold that is best for these questions is kept with the model.")
        self.write_predictions(data, outputs, folder)

    def write_predictions(self, data: QuestionSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
        if (threshold := self.answer_threshold) is not None:
            log.info(f"Threshold on the null odds: {threshold:.4f}.")
        path = write_answers(folder.path, data.answers(outputs, self.spec), threshold)
        log.info(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Mapping[str, float]) -> str:
        """Returns the loss and the share of correct spans."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"


def load_threshold(folder: RunFolder) -> float | None:
    """Returns the threshold kept beside the model in a folder; raises AlbertError if it is damaged.

    None if there is none, or only one of other weights, from which training has gone on.
    """
    if not folder.has(THRESHOLDS_FILE):
        return None
    path = folder.file(THRESHOLDS_FILE)
    kept = files.read_object(path, "file of thresholds")
    if kept.get("checkpoint") not in (None, _checkpoint(folder)):
        return None
    check_number(f"`null_threshold` in {path}", kept.get("null_threshold"), -1e38)
    return kept["null_threshold"]


def _checkpoint(folder: RunFolder) -> str | None:
    """Returns the name of the weights that are used, relative to the folder; None without any."""
    path = folder.path
    return os.path.relpath(find_checkpoint(path), path) if has_checkpoint(path) else None
