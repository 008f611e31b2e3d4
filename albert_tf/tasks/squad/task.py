# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 and 2.0 as a task: which model, which loss, which outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json, shown
from albert_tf.keras2 import keras
from albert_tf.modeling.question_answering import (
    AlbertBeamAnswerer,
    AlbertSpanAnswerer,
    allowed_positions,
    masked,
    top_k,
)
from albert_tf.tasks.base import FineTuningTask, InputOptions, model_inputs
from albert_tf.tasks.squad.answer_files import write_answers
from albert_tf.tasks.squad.answers import Answers, extract_answers
from albert_tf.tasks.squad.data import VERSIONS, Question, check_answered
from albert_tf.tasks.squad.features import build_squad_records, squad_features
from albert_tf.tasks.squad.question_set import BASELINE, QuestionSet, baseline_note, score_answers
from albert_tf.tasks.squad.thresholds import DEFAULT, Threshold, load_threshold, save_threshold
from albert_tf.tasks.squad.windows import WindowOptions, Windows, make_windows
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.task import Batch, correct
from albert_tf.weights.model_folders import model_folder

if TYPE_CHECKING:
    from albert_tf.export.publish import Export
    from albert_tf.modeling.encoder import AlbertModel

HEADS = ("span", "beam")


@dataclasses.dataclass(frozen=True)
class SquadSpec:
    """What is asked for and how answers are searched; kept in task.json beside the model.

    Attributes:
      version: "1.1", or "2.0" where questions may have no answer.
      head: "span" or "beam"; None takes that of the release, beam for 2.0 and span for 1.1.
      windows: how a context is cut.
      n_best_size: answers kept a question.
      max_answer_length: tokens of the longest answer.
      start_n_top, end_n_top: width of the beam.
      compat: train and search as the release does where it is at fault: the span head's softmax
        runs over question and padding too, and 1.1 windows without the answer train [CLS].

    Raises:
      AlbertError: unknown version or head.
    """

    version: str
    head: str | None = None
    windows: WindowOptions = dataclasses.field(default_factory=WindowOptions)
    n_best_size: int = 20
    max_answer_length: int = 30
    start_n_top: int = 5
    end_n_top: int = 5
    compat: bool = False

    def __post_init__(self) -> None:
        """Fills in the head."""
        if self.version not in VERSIONS:
            raise AlbertError(f"version={shown(self.version)} is not one of {', '.join(VERSIONS)}.")
        head = self.head or ("beam" if self.version == "2.0" else "span")
        if head not in HEADS:
            raise AlbertError(f"head={shown(head)} is not one of {', '.join(HEADS)}.")
        object.__setattr__(self, "head", head)

    @property
    def max_seq_length(self) -> int:
        """Tokens of the longest sequences."""
        return self.windows.max_seq_length

    def to_dict(self) -> dict[str, object]:
        """JSON values; max_seq_length stands at the top."""
        values = dataclasses.asdict(self)
        windows = values.pop("windows")
        return {**values, **windows}

    @classmethod
    def from_dict(cls, values: Mapping[str, object], where: str) -> SquadSpec:
        """The reverse of `to_dict`; other entries are ignored. `where` is for the errors."""
        names = {field.name for field in dataclasses.fields(WindowOptions)}
        windows = {k: v for k, v in values.items() if k in names}
        names = {field.name for field in dataclasses.fields(cls)} - {"windows"}
        own = {k: v for k, v in values.items() if k in names}
        return from_json(cls, {**own, "windows": from_json(WindowOptions, windows, where)}, where)


class SquadTask(FineTuningTask):
    """Answers are spans of the context (official run_squad_v1 and run_squad_v2).

    Args:
      config: of the model.
      tokenizer: saved with the model.
      spec: what is asked for.
      dropout_rate: of the beam head's answerability.
      threshold: for 2.0, the null odds above which a question counts as unanswerable; None until
        an evaluation finds the one that is best for its questions.

    Raises:
      AlbertError: the configuration fits neither the tokenizer nor the length.
    """

    name = "squad"
    spec_class = SquadSpec

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
        if spec.version == "2.0":
            self.best_metric, self.baseline_metric = "best_f1", BASELINE
        else:
            self.best_metric = "f1"

    def task_file(self) -> dict[str, object]:
        """The specification."""
        return self.spec.to_dict()

    @classmethod
    def read_spec(cls, values: Mapping[str, Any], path: str) -> SquadSpec:
        """See FineTuningTask."""
        return SquadSpec.from_dict(values, f"{path} does not describe SQuAD")

    @classmethod
    def load(cls, folder: str, **changes: Any) -> SquadTask:
        """See FineTuningTask; with the threshold that is kept beside the model."""
        task = super().load(folder, **changes)
        if task.spec.version == "2.0":
            task.threshold = load_threshold(folder)
        return task

    def make_records(
        self, examples: Sequence[Question], name: str, options: InputOptions
    ) -> QuestionSet:
        """See FineTuningTask. A record is a window of a question's context."""
        training = options.train_seed is not None
        if options.labelled and not training:
            check_answered(examples)
        cut, asked = self.spec.windows, tuple(examples)
        windows = functools.cache(lambda: make_windows(asked, self.tokenizer, cut))
        path = build_squad_records(
            options.cache_dir,
            asked,
            self.tokenizer,
            cut,
            version=self.spec.version,
            labelled=training,
            compat=self.spec.compat,
            shuffle_seed=options.train_seed,
            cut=None if training else lambda _: windows(),
        )
        source = self.open_records(path, squad_features(training), options)
        summary = f"{name}: {len(asked):,} questions, {source.num_examples:,} windows"
        left_out = source.manifest.statistics.get("windows_left_out")
        summary += f", {left_out:,} more without the answer left out" if left_out else ""
        return QuestionSet(name, asked, source, summary, windows, self.extract)

    def extract(self, windows: Windows, outputs: Mapping[str, np.ndarray]) -> Answers:
        """The best answers in windows, from the outputs of `predict` for these."""
        return extract_answers(
            windows,
            outputs,
            head=self.spec.head,
            n_best_size=self.spec.n_best_size,
            max_answer_length=self.spec.max_answer_length,
            compat=self.spec.compat,
        )

    def export(self, model: AlbertModel) -> Export:
        """See albert_tf.tasks.squad.export."""
        from albert_tf.tasks.squad.export import squad_export

        return squad_export(self, model)

    def build_model(self) -> AlbertSpanAnswerer | AlbertBeamAnswerer:
        """Encoder and the head that the specification names."""
        if self.spec.head == "span":
            return AlbertSpanAnswerer(self.config)
        widths = self.spec.start_n_top, self.spec.end_n_top
        return AlbertBeamAnswerer(self.config, *widths, self.dropout_rate)

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Summed losses and, of spans and answerability, how often the model is right.

        The loss of a window is 0.5 (start + end cross-entropy), for the beam head plus 0.5 times
        the cross-entropy of the answerability. Windows without an answer point at [CLS].
        """
        starts, ends = batch["start_positions"], batch["end_positions"]
        inputs = model_inputs(batch)
        if self.spec.head == "span":
            outputs = model(inputs, training=training)
            start_logits, end_logits = self._competing(outputs, inputs)
            start_log_probs = tf.nn.log_softmax(start_logits)
            end_log_probs = tf.nn.log_softmax(end_logits)
            extra = {}
        else:
            outputs = model({**inputs, "start_positions": starts}, training=training)
            start_log_probs, end_log_probs = outputs["start_log_probs"], outputs["end_log_probs"]
            impossible, logits = tf.cast(batch["is_impossible"], tf.float32), outputs["cls_logits"]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(impossible, logits)
            right = tf.equal(logits > 0, impossible > 0)
            extra = {"answerability_loss": losses, "answerability_accuracy": right}
        right = correct(start_log_probs, starts) & correct(end_log_probs, ends)
        picked = [
            tf.gather(log_probs, positions, batch_dims=1)
            for log_probs, positions in ((start_log_probs, starts), (end_log_probs, ends))
        ]
        values = {"span_loss": -0.5 * (picked[0] + picked[1]), "span_accuracy": right, **extra}
        return {k: tf.reduce_sum(tf.cast(v, tf.float32)) for k, v in values.items()}

    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Mean losses and accuracies over the windows."""
        means = super().means(sums, weights)
        loss = means["span_loss"]
        if "answerability_loss" in means:
            loss += 0.5 * means["answerability_loss"]
        return {"loss": loss, **means}

    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """What `extract_answers` needs, [batch, ...]; see albert_tf.tasks.squad.answers."""
        inputs = model_inputs(batch)
        outputs = model(inputs, training=False)
        if self.spec.head == "beam":
            return outputs
        null_logit = outputs["start_logits"][:, 0] + outputs["end_logits"][:, 0]
        scored = {"null_logit": null_logit}
        # [CLS] is no answer, so it shall not take a place among the best.
        position = tf.range(tf.shape(batch["input_mask"])[1])
        for name, logits in zip(("start", "end"), self._competing(outputs, inputs)):
            if not self.spec.compat:
                logits = masked(logits, position > 0)
            values, positions = top_k(logits, self.spec.n_best_size)
            scored[f"{name}_top_logits"], scored[f"{name}_top_index"] = values, positions
        return scored

    def _competing(
        self, outputs: Mapping[str, tf.Tensor], inputs: Mapping[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Logits of the span head, with those masked that cannot be part of an answer."""
        logits = outputs["start_logits"], outputs["end_logits"]
        if self.spec.compat:
            return logits
        allowed = allowed_positions(inputs)
        return masked(logits[0], allowed), masked(logits[1], allowed)

    def metrics(self, outputs: Mapping[str, np.ndarray], examples: QuestionSet) -> dict[str, float]:
        """See `score_answers`; with the threshold, or without one the best for these questions."""
        threshold = self.threshold.value if self.threshold else None
        answers = examples.answers(outputs)
        return score_answers(examples.examples, answers, self.spec.version, threshold)

    def write_evaluation(
        self,
        data: QuestionSet,
        outputs: Mapping[str, np.ndarray],
        results: Mapping[str, float],
        output_dir: str,
    ) -> None:
        """Writes the answers and, if there was no threshold, keeps the one that was found."""
        if note := baseline_note(results):
            print(note)
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
            threshold = self.threshold or DEFAULT
            print(threshold)
        path = write_answers(output_dir, data.answers(outputs), threshold and threshold.value)
        print(f"Answers to {len(data.examples):,} questions are in {path}.")

    def progress(self, means: Mapping[str, float]) -> str:
        """Loss and how many spans are right."""
        return f"{super().progress(means)} spans {means['span_accuracy']:.1%}"
