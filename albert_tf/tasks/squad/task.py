# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: its model, loss, answers and files."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
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
from albert_tf.tasks.base import ExampleSet, FineTuningTask, model_inputs
from albert_tf.tasks.squad.answers import Answers, extract_answers, write_answers
from albert_tf.tasks.squad.data import Question, SquadSpec, check_answered
from albert_tf.tasks.squad.scoring import CONSTANT_ANSWERS, score_answers
from albert_tf.tasks.squad.windows import (
    Windows,
    gold_span,
    label_windows,
    make_windows,
)
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Batch, correct
from albert_tf.weights.run_folder import find_checkpoint, has_checkpoint, model_folder

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export
    from albert_tf.modeling.encoder import AlbertModel

THRESHOLDS_FILE = "thresholds.json"
_THRESHOLD = "Threshold on the null odds:"
#: The columns of training windows.
LABELS = ("start_positions", "end_positions", "is_impossible")


@dataclasses.dataclass(eq=False)
class QuestionSet(ExampleSet):
    """Questions, whose sequences are windows of their contexts.

    Attributes:
      windows: in the order of the sequences; None for training, which needs no answers.
    """

    windows: Windows | None = None
    _latest: tuple[object, Answers | None] = (None, None)

    def answers(self, outputs: Mapping[str, np.ndarray], spec: SquadSpec) -> Answers:
        """Returns the best answers, given the outputs of SquadTask.predict for all windows."""
        # An evaluation scores answers and then writes them: both times of the same outputs.
        if self._latest[0] is not outputs:
            self._latest = outputs, extract_answers(self.windows, outputs, spec)
        return self._latest[1]


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2).

    Args:
      config, tokenizer, spec, dropout_rate: see FineTuningTask.
      threshold: for 2.0, null odds above which a question counts as unanswerable; None until an
        evaluation finds the best one.
    """

    name = "squad"
    spec_class = SquadSpec
    constant_answers = CONSTANT_ANSWERS

    def __init__(
        self,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        spec: SquadSpec,
        dropout_rate: float = 0.1,
        threshold: float | None = None,
    ) -> None:
        super().__init__(config, tokenizer, spec, dropout_rate)
        self.threshold = threshold
        self.best_metric = "best_f1" if spec.version == "2.0" else "f1"

    @classmethod
    def load(cls, folder: str, **changes: Any) -> SquadTask:
        """See FineTuningTask; also loads the threshold kept beside the model."""
        task = super().load(folder, **changes)
        if task.spec.version == "2.0":
            task.threshold = load_threshold(folder)
        return task

    @property
    def answer_threshold(self) -> float:
        """The threshold to answer with: without one, what the model finds more likely than not."""
        return 0.0 if self.threshold is None else self.threshold

    def forget_evaluation(self) -> None:
        """See FineTuningTask: forgets the threshold."""
        self.threshold = None

    def encode(
        self,
        examples: Sequence[Question],
        name: str,
        *,
        labelled: bool = True,
        training: bool = False,
    ) -> QuestionSet:
        """See FineTuningTask. A sequence is a window of a question's context, see `make_windows`.

        In training, a window that lacks a part of the answer is an example of "no answer here" for
        2.0. For 1.1, which has no such examples, it is left out, except with `spec.compat`.
        `start_positions` and `end_positions` are the answer's first and last position in the
        window and `is_impossible` is 0; in a window without an answer they are 0 ([CLS]), 0 and 1.

        Raises:
          AlbertError: a context has no text; in training, a question has no answer, or its context
            does not contain it; in evaluation, a question has no answer.
        """
        if labelled and not training:
            check_answered(examples)
        # The search for answers may fail, so it comes before the tokenizer's work.
        spans = [gold_span(question) for question in examples] if training else []
        windows = make_windows(examples, self.tokenizer, self.spec)
        rows, columns = np.arange(len(windows)), {}
        if training:
            labels = label_windows(windows, spans, cut_answers=not self.spec.compat)
            if self.spec.version == "1.1" and not self.spec.compat:
                rows = np.flatnonzero(labels[:, 2] == 0)
            columns = dict(zip(LABELS, labels[rows].T))
        made = ((windows.sequence(i, self.tokenizer), windows.context_start[i]) for i in rows)
        data = Sequences(made, self.tokenizer.pad_id, columns)
        summary = f"{name}: {len(examples):,} questions, {len(rows):,} windows"
        if left_out := len(windows) - len(rows):
            summary += f", {left_out:,} more without the answer left out"
        answers = repr([(question.answers, question.is_impossible) for question in examples])
        identity = hashlib.sha256(answers.encode()).hexdigest()[:16]
        windows = None if training else windows
        return QuestionSet(examples, data, summary, identity, windows=windows)

    def export(self, model: AlbertModel) -> Export:
        """See albert_tf.tasks.squad.export."""
        from albert_tf.tasks.squad.export import squad_export

        return squad_export(self, model)

    def build_model(self, dtype: str = FLOAT32) -> AlbertSpanAnswerer | AlbertBeamAnswerer:
        """Builds the encoder and the head."""
        if self.spec.head == "span":
            return AlbertSpanAnswerer(self.config, dtype)
        widths = self.spec.start_n_top, self.spec.end_n_top
        return AlbertBeamAnswerer(self.config, *widths, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Returns summed losses, and the numbers of correct spans and correct answerabilities.

        The loss of a window is 0.5 (start + end cross-entropy), for the beam head plus 0.5 times
        the cross-entropy of the answerability. The labels of windows without an answer are [CLS].
        """
        starts, ends = batch["start_positions"], batch["end_positions"]
        inputs = model_inputs(batch)
        sums = {}
        if self.spec.head == "span":
            logits = self._competing_logits(model(inputs, training=training), inputs)
            start_log_probs, end_log_probs = map(tf.nn.log_softmax, logits)
        else:
            outputs = model({**inputs, "start_positions": starts}, training=training)
            start_log_probs, end_log_probs = outputs["start_log_probs"], outputs["end_log_probs"]
            impossible, logits = tf.cast(batch["is_impossible"], tf.float32), outputs["cls_logits"]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(impossible, logits)
            right = tf.equal(logits > 0, impossible > 0)
            sums = {"answerability_loss": losses, "answerability_accuracy": right}
        right = correct(start_log_probs, starts) & correct(end_log_probs, ends)
        start_gold = tf.gather(start_log_probs, starts, batch_dims=1)
        end_gold = tf.gather(end_log_probs, ends, batch_dims=1)
        sums = {"span_loss": -0.5 * (start_gold + end_gold), "span_accuracy": right, **sums}
        return {k: tf.reduce_sum(tf.cast(v, tf.float32)) for k, v in sums.items()}

    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns mean losses and accuracies over the windows."""
        means = super().means(sums, weights)
        loss = means["span_loss"]
        if "answerability_loss" in means:
            loss += 0.5 * means["answerability_loss"]
        return {"loss": loss, **means}

    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Returns the outputs that `extract_answers` describes, [batch, ...]."""
        inputs = model_inputs(batch)
        outputs = model(inputs, training=False)
        if self.spec.head == "beam":
            beam = [-1, self.spec.start_n_top, self.spec.end_n_top]
            return {
                "starts": outputs["start_top_index"],
                "start_scores": outputs["start_top_log_probs"],
                "ends": tf.reshape(outputs["end_top_index"], beam),
                "end_scores": tf.reshape(outputs["end_top_log_probs"], beam),
                "null_logit": outputs["cls_logits"],
            }
        start_logits, end_logits = self._competing_logits(outputs, inputs)
        if not self.spec.compat:
            # [CLS] is no answer and must not take a place among the best.
            is_cls = tf.range(tf.shape(batch["input_mask"])[1]) == 0
            start_logits, end_logits = masked(start_logits, ~is_cls), masked(end_logits, ~is_cls)
        start_scores, starts = top_k(start_logits, self.spec.n_best_size)
        end_scores, ends = top_k(end_logits, self.spec.n_best_size)
        return {
            "starts": starts,
            "start_scores": start_scores,
            "ends": ends[:, None],
            "end_scores": end_scores[:, None],
            "null_logit": outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0],
        }

    def _competing_logits(
        self, outputs: Mapping[str, tf.Tensor], inputs: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the span head's logits, masked where no answer can start or end."""
        logits = outputs["start_logits"], outputs["end_logits"]
        if self.spec.compat:
            return logits
        allowed = allowed_positions(inputs)
        return masked(logits[0], allowed), masked(logits[1], allowed)

    def metrics(self, outputs: Mapping[str, np.ndarray], examples: QuestionSet) -> dict[str, float]:
        """See `score_answers`; without a threshold, uses the best one for these questions."""
        answers = examples.answers(outputs, self.spec)
        return score_answers(examples.examples, answers, self.spec.version, self.threshold)

    def write_evaluation(
        self,
        data: QuestionSet,
        outputs: Mapping[str, np.ndarray],
        results: Mapping[str, float],
        output_dir: str,
    ) -> None:
        """Writes the answers and, if there was no threshold before, keeps the best one."""
        if self.spec.version == "2.0":
            if self.threshold is None:
                self.threshold, path = results["null_threshold"], data.examples[0].path
                _save_threshold(model_folder(output_dir), self.threshold, results["f1"], path)
                log.info(f"{_THRESHOLD} {self.threshold:.4f}, the best for {path}; kept.")
            else:
                log.info(f"{_THRESHOLD} {self.threshold:.4f}.")
        write_answers(output_dir, data.answers(outputs, self.spec), self.threshold)

    def write_predictions(
        self, data: QuestionSet, outputs: Mapping[str, np.ndarray], output_dir: str
    ) -> None:
        """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
        threshold = None
        if self.spec.version == "2.0":
            threshold = self.answer_threshold
            log.info(f"{_THRESHOLD} {threshold:.4f}.")
        path = write_answers(output_dir, data.answers(outputs, self.spec), threshold)
        log.info(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Mapping[str, float]) -> str:
        """Returns the loss and the share of correct spans."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"


def check_threshold(version: str, threshold: float | None) -> None:
    """Checks a given threshold on the null odds; None passes.

    Raises:
      AlbertError: this version of SQuAD has no unanswerable questions, or the threshold is NaN.
    """
    if threshold is None:
        return
    if version == "1.1":
        raise AlbertError(
            "`null_score_diff_threshold` is for SQuAD 2.0; in 1.1 every question has an answer. "
            "Leave it out."
        )
    if math.isnan(threshold):
        raise AlbertError("`null_score_diff_threshold`=nan is not a number.")


def load_threshold(folder: str) -> float | None:
    """Reads the threshold kept beside the model in `folder`.

    Returns:
      None if there is none, or only one of other weights, from which training has gone on.

    Raises:
      AlbertError: the file is damaged.
    """
    path = os.path.join(folder, THRESHOLDS_FILE)
    if not files.exists(path):
        return None
    value = files.read_object(path, "file of thresholds")
    if value.get("checkpoint") not in (None, _checkpoint(folder)):
        return None
    try:
        return float(value["null_threshold"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise AlbertError(f"{path} has no null_threshold; delete it and evaluate again.") from error


def _save_threshold(folder: str, value: float, f1: float, found_on: str) -> None:
    """Writes a threshold beside the model, with its F1 and the data it was found on."""
    kept = {
        "null_threshold": value, "f1": f1, "found_on": found_on, "checkpoint": _checkpoint(folder)
    }  # fmt: skip
    files.write_json(os.path.join(folder, THRESHOLDS_FILE), kept)


def _checkpoint(folder: str) -> str | None:
    """Returns the name of the weights that are used, relative to the folder; None without any."""
    return os.path.relpath(find_checkpoint(folder), folder) if has_checkpoint(folder) else None
