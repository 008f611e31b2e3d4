# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: its model, loss, answers and files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import Sequences
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import short_repr
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import INPUTS
from albert_tf.modeling.question_answering import (
    AlbertBeamAnswerer,
    AlbertSpanAnswerer,
    allowed_positions,
    masked,
    top_k,
)
from albert_tf.settings import check_number
from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask
from albert_tf.tasks.squad.data import (
    FILES,
    Question,
    Span,
    SquadSpec,
    answer_spans,
    read_squad,
    squad_settings,
    write_answers,
)
from albert_tf.tasks.squad.scoring import score_answers
from albert_tf.tasks.squad.windows import WindowedQuestions, extract_answers, make_windows
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Metrics, Tensors, correct
from albert_tf.weights.run_folder import RunFolder

#: The name of the threshold, and of the metric that finds it.
THRESHOLD = "null_threshold"
#: The columns of training windows.
LABELS = ("start_positions", "end_positions")
#: Questions with problems that are shown; all are in a file.
_SHOWN = 3
SPAN_LOGITS = ("start_logits", "end_logits")


@dataclasses.dataclass(eq=False)
class QuestionSet(ExampleSet):
    """Questions, whose sequences are windows of their contexts, in the order of `asked`.

    `left_out` says which others the data has, and why they are left out; or, of questions without
    labels, which have no context.
    """

    asked: WindowedQuestions | None = None
    left_out: Sequence[str] = ()


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2).

    Attributes:
      left_out: of the training data; see QuestionSet.
    """

    name = "squad"
    spec_class = SquadSpec
    form = "albert_tf.tasks.squad.export.AnswerForm"
    recipe = "squad{version}"
    read, learned = staticmethod(read_squad), staticmethod(squad_settings)
    prediction_files = FILES
    constant_answers: ClassVar = {"f1": "all_null_f1"}
    left_out = ()

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

        Questions with a problem, without an answer, or (in training) with answers that are not in
        the context are left out; without labels, none is, and the answer to an empty context is "".

        Raises:
          AlbertError: more than a tenth of the questions would be left out, or lack a text.
        """
        version = self.spec.version
        examples, spans, left_out, repeated = _usable(examples, version, labelled, training)
        asked = make_windows(examples, self.tokenizer, self.spec)
        number = len(asked.windows.question)
        rows, columns = np.arange(number), {}
        if training:
            labels = asked.labels(spans)
            if version == "1.1":
                rows = np.flatnonzero(labels[:, 0])
            if not len(rows):
                raise AlbertError(
                    "No window of the training data holds a whole answer; increase "
                    "`max_seq_length`."
                )
            columns = dict(zip(LABELS, labels[rows].T))
        first = asked.windows.context_start
        made = ((asked.sequence(row, self.tokenizer), first[row]) for row in rows)
        data = Sequences(made, self.tokenizer.pad_id, columns)
        summary = f"{len(examples):,} questions, {len(rows):,} windows"
        if unused := number - len(rows):
            summary += f", {unused:,} more without the answer left out"
        notes = []
        if asked.cut:
            longest = self.spec.max_query_length
            notes.append(f"{asked.cut:,} questions are longer than {longest} tokens and cut")
        if repeated:
            notes.append(
                f"{repeated:,} answers without their right start occur several times; the nearest "
                "place is taken, or the first"
            )
        if left_out:
            what = 'lack a text and have the answer ""'
            if labelled:
                what = "are left out (left_out_*.txt in the output directory has all)"
            notes.append("\n  ".join([f"{len(left_out):,} {what}, such as:", *left_out[:_SHOWN]]))
        if training:
            self.left_out = left_out
        answers = repr([(question.answers, question.is_impossible) for question in examples])
        identity = hashlib.sha256(answers.encode()).hexdigest()[:16]
        return QuestionSet(
            examples, data, summary, identity, notes=notes, asked=asked, left_out=left_out
        )

    def save_files(self, folder: str) -> None:
        """See FineTuningTask; also lists the questions that are left out of the training."""
        super().save_files(folder)
        _write_left_out(folder, "train", self.left_out)

    def build_model(self, dtype: str = FLOAT32) -> AlbertSpanAnswerer | AlbertBeamAnswerer:
        """Builds the encoder and the head, which for 2.0 is the one with a beam, if not plain."""
        if not self.spec.has_beam:
            return AlbertSpanAnswerer(self.config, dtype)
        widths = self.spec.start_n_top, self.spec.end_n_top
        return AlbertBeamAnswerer(self.config, *widths, self.dropout_rate, dtype)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Returns summed losses, and the numbers of correct spans and correct answerabilities.

        The loss of a window is 0.5 (start + end cross-entropy), with a beam plus 0.5 times the
        cross-entropy of the answerability. The labels of windows without an answer are [CLS].
        """
        starts, ends = batch["start_positions"], batch["end_positions"]
        outputs, sums = model(batch, training=training), {}
        if not self.spec.has_beam:
            allowed = allowed_positions(batch)
            start_log_probs, end_log_probs = (
                tf.nn.log_softmax(masked(outputs[name], allowed)) for name in SPAN_LOGITS
            )
        else:
            start_log_probs, end_log_probs = outputs["start_log_probs"], outputs["end_log_probs"]
            impossible, logits = tf.cast(starts == 0, tf.float32), outputs["cls_logits"]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(impossible, logits)
            right = tf.equal(logits > 0, impossible > 0)
            sums = {"answerability_loss": losses, "answerability_accuracy": right}
        right = correct(start_log_probs, starts) * correct(end_log_probs, ends)
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
        # Without the positions of a training batch, with which the model computes other outputs.
        outputs = model({name: batch[name] for name in INPUTS}, training=False)
        if self.spec.has_beam:
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
            top_k(masked(outputs[name], allowed), self.spec.n_best_size) for name in SPAN_LOGITS
        )
        found = {
            "starts": starts,
            "start_scores": start_scores,
            "ends": ends[:, None],
            "end_scores": end_scores[:, None],
        }
        if self.spec.version == "2.0":
            no_answer = tf.add(*(outputs[name][:, 0] for name in SPAN_LOGITS))
            found["null_odds"] = no_answer - start_scores[:, 0] - end_scores[:, 0]
        return found

    def metrics(self, outputs: Arrays, examples: QuestionSet) -> Metrics:
        """See `score_answers`; without a threshold, uses the best one for these questions."""
        answers = extract_answers(examples.asked, outputs, self.spec)
        threshold = self.answer_threshold if self.thresholds else None
        return score_answers(examples.examples, answers, self.spec.version, threshold)

    def write_evaluation(
        self, data: QuestionSet, outputs: Arrays, results: Metrics, folder: RunFolder
    ) -> None:
        """Writes the answers, and keeps the threshold."""
        if self.threshold_names:
            self.keep_thresholds({THRESHOLD: results[THRESHOLD]}, folder)
        self.write_predictions(data, outputs, folder)

    def write_predictions(self, data: QuestionSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
        if (threshold := self.answer_threshold) is not None:
            log.info(f"Threshold on the null odds: {threshold:.4f}.")
        _write_left_out(folder.path, data.name, data.left_out)
        answers = extract_answers(data.asked, outputs, self.spec)
        path = write_answers(folder.path, answers, threshold)
        log.info(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Metrics) -> str:
        """Returns the loss and the share of correct spans."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"


def _usable(
    examples: Sequence[Question], version: str, labelled: bool, training: bool
) -> tuple[list[Question], list[Span | None], list[str], int]:
    """Chooses the questions to encode; see `SquadTask.encode`.

    Returns:
      The questions; in training, the characters of each one's answer; what is wrong with others,
      or, without labels, with some of them; and how many answers occur several times.
    """
    chosen, spans, wrong, repeated = [], [], [], 0
    for question in examples:
        found, problem = [None], question.problem
        if not labelled:
            problem = "" if question.context else problem
        elif not (problem or question.answers or question.is_impossible):
            problem = (
                "has no answer, which training and evaluation need; use `do_predict` for questions "
                "whose answers are unknown"
            )
        elif question.is_impossible and version == "1.1":
            problem = "is unanswerable, which needs `version`=2.0"
        elif training and question.answers:
            places = (answer_spans(question.context, answer) for answer in question.answers)
            found = next(filter(None, places), [])
            repeated += len(found) > 1
            if not found:
                text = short_repr(question.answers[0].text)
                problem = f"has the answer {text}, which is not in the context as whole words"
        if problem:
            wrong.append(f"{question.where} {problem}.")
        if not (problem and labelled):
            chosen.append(question)
            spans.append(found[0])
    if len(wrong) * 10 > len(examples):
        raise AlbertError(
            f"{len(wrong):,} of {len(examples):,} questions cannot be used, and not more than a "
            f"tenth are left out: {' '.join(wrong[:_SHOWN])}"
        )
    return chosen, spans, wrong, repeated


def _write_left_out(folder: str, name: str, left_out: Sequence[str]) -> None:
    """Lists what was left out of a data set in a file, if there is something, or was before."""
    path = os.path.join(folder, f"left_out_{name}.txt")
    if left_out or files.exists(path):
        files.write_text(path, "".join(f"{line}\n" for line in left_out))
