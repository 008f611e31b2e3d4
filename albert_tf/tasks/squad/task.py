# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: its model, loss, answers and files."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.question_answering import (
    AlbertBeamAnswerer,
    AlbertSpanAnswerer,
    allowed_positions,
    masked,
    top_k,
)
from albert_tf.tasks.base import ExampleSet, FineTuningTask, InputOptions, model_inputs
from albert_tf.tasks.squad.answer_files import write_answers
from albert_tf.tasks.squad.answers import Answers, extract_answers
from albert_tf.tasks.squad.data import Question, check_answered
from albert_tf.tasks.squad.features import SquadSpec, build_squad_records, squad_features
from albert_tf.tasks.squad.scoring import CONSTANT_ANSWERS, score_answers
from albert_tf.tasks.squad.thresholds import DEFAULT, Threshold, load_threshold, save_threshold
from albert_tf.tasks.squad.windows import Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Batch, correct, rows_to_show
from albert_tf.weights.run_folder import model_folder

if TYPE_CHECKING:
    from albert_tf.export.saved_model import Export
    from albert_tf.modeling.encoder import AlbertModel


@dataclasses.dataclass(frozen=True)
class QuestionSet(ExampleSet):
    """Questions, whose records are windows of their contexts.

    Attributes:
      task: the task that answers them.
      made_windows: the windows, or None if the records were cached.
    """

    task: SquadTask
    made_windows: Windows | None
    _latest: list = dataclasses.field(default_factory=list, repr=False, compare=False)

    @functools.cached_property
    def windows(self) -> Windows:
        """The windows in the order of the records."""
        if self.made_windows is not None:
            return self.made_windows
        return make_windows(self.examples, self.task.tokenizer, self.task.spec.windows)

    @property
    def fingerprint(self) -> str:
        """See ExampleSet. The records have no answers."""
        answers = repr([(question.answers, question.is_impossible) for question in self.examples])
        return f"{super().fingerprint}-{hashlib.sha256(answers.encode()).hexdigest()[:16]}"

    def answers(self, outputs: Mapping[str, np.ndarray]) -> Answers:
        """Returns the best answers, given the outputs of SquadTask.predict for all records."""
        # An evaluation scores answers and then writes them: both times of the same outputs.
        if not self._latest or self._latest[0] is not outputs:
            self._latest[:] = outputs, extract_answers(self.windows, outputs, self.task.spec)
        return self._latest[1]


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2).

    Args:
      config: configuration of the model.
      tokenizer: saved with the model.
      spec: settings of the task.
      dropout_rate: dropout in the beam head's answerability classifier.
      threshold: for 2.0, null odds above which a question counts as unanswerable; None until an
        evaluation finds the best one.

    Raises:
      AlbertError: the configuration does not match the tokenizer or the length.
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
        threshold: Threshold | None = None,
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

    def forget_evaluation(self) -> None:
        """See FineTuningTask: forgets the threshold."""
        self.threshold = None

    def make_records(
        self, examples: Sequence[Question], name: str, options: InputOptions
    ) -> QuestionSet:
        """See FineTuningTask. A record is a window of a question's context."""
        training = options.train_seed is not None
        if options.labelled and not training:
            check_answered(examples)
        questions = tuple(examples)
        path, windows = build_squad_records(
            options.cache_dir,
            questions,
            self.tokenizer,
            self.spec,
            labelled=training,
            shuffle_seed=options.train_seed,
        )
        source = self.open_records(path, squad_features(training), options)
        summary = f"{name}: {len(questions):,} questions, {source.num_examples:,} windows"
        left_out = source.manifest.statistics.get("windows_left_out")
        summary += f", {left_out:,} more without the answer left out" if left_out else ""
        # Training needs no answers, so its windows are not kept.
        windows = None if training else windows
        return QuestionSet(name, questions, source, summary, task=self, made_windows=windows)

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
        threshold = self.threshold.value if self.threshold else None
        answers = examples.answers(outputs)
        return score_answers(examples.examples, answers, self.spec.version, threshold)

    def shown_predictions(
        self, outputs: Mapping[str, np.ndarray], examples: QuestionSet
    ) -> list[dict[str, object]]:
        """Returns questions with their first gold answer and the best span."""
        answers, rows = examples.answers(outputs), []
        for question in (examples.examples[i] for i in rows_to_show(len(examples.examples))):
            best = answers.nbest[question.id][0]
            row = {"question": question.question, "context": question.context}
            row["label"] = question.answers[0].text if question.answers else "no answer"
            row["predicted"] = best["text"]
            row["probability"] = float(best["probability"])
            if self.spec.version == "2.0":
                row["null odds"] = answers.null_odds[question.id]
            rows.append(row)
        return rows

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
                value, path = results["null_threshold"], data.examples[0].path
                save_threshold(model_folder(output_dir), value, results["f1"], path)
                print(Threshold(value, f"the best for {path}; kept"))
                self.threshold = Threshold(value, f"found on {path}")
            else:
                print(self.threshold)
        write_answers(output_dir, data.answers(outputs), self.threshold and self.threshold.value)

    def write_predictions(
        self, data: QuestionSet, outputs: Mapping[str, np.ndarray], output_dir: str
    ) -> None:
        """Writes predictions.json, nbest_predictions.json and, for 2.0, null_odds.json."""
        threshold = None
        if self.spec.version == "2.0":
            threshold = self.threshold or load_threshold(model_folder(output_dir)) or DEFAULT
            print(threshold)
        path = write_answers(output_dir, data.answers(outputs), threshold and threshold.value)
        print(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Mapping[str, float]) -> str:
        """Returns the loss and the share of correct spans."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"
