# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract of fine-tuning tasks: their model, data, predictions and files."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig, missing_setting
from albert_tf.data.pipeline import RecordSource, length_buckets
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.modeling.flops import training_flops
from albert_tf.tasks.registry import register
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.training.specs import EvalSpec
from albert_tf.training.task import Batch, Task, correct
from albert_tf.weights.load import check_architecture, open_source
from albert_tf.weights.model_folders import TASK_FILE, VOCABULARY_SETTINGS, read_task_file

if TYPE_CHECKING:
    from albert_tf.data.records import FeatureSpec
    from albert_tf.export.model_card import Kind
    from albert_tf.export.publish import Export
    from albert_tf.export.tflite import Outputs
    from albert_tf.modeling.encoder import AlbertModel


@dataclasses.dataclass(frozen=True)
class ExampleSet:
    """Examples of a task, and the records that were made of them.

    Attributes:
      name: of the data set, for the terminal and in the names of metrics.
      examples: of the task's own type.
      source: the records, in the order of the examples; one for each, or several.
    """

    name: str
    examples: Sequence[Any]
    source: RecordSource

    def eval_spec(self, batch_size: int, every_steps: int | None = None) -> EvalSpec:
        """Evaluation on, or prediction of, these examples."""
        batches = self.source.num_batches(batch_size)
        return EvalSpec(self.source.eval_input_fn, every_steps, batches, self.name, self)


@dataclasses.dataclass(frozen=True)
class InputOptions:
    """How examples become the input of a task.

    Attributes:
      cache_dir: where records are kept.
      labelled: whether every example must have a label.
      train_seed: of the training order; None keeps the examples' own, for evaluation.
      pad_to_max: pad all batches to the longest length.
    """

    cache_dir: str
    labelled: bool = True
    train_seed: int | None = None
    pad_to_max: bool = False


class FineTuningTask(Task):
    """A task on token sequences, with the configuration and the tokenizer of a pretrained model.

    Its data are examples, each of which counts the same in the loss.

    Args:
      config: of the model.
      tokenizer: saved with the model.
      spec: what the task is besides its model, such as labels; a dataclass that has, in tokens, the
        `max_seq_length` of the longest sequences.
      dropout_rate: dropout on what the task's own head reads.

    Raises:
      AlbertError: the configuration fits neither the tokenizer nor the length.
    """

    #: The dataclass of `spec`.
    spec_class: type
    #: The entry of `metrics` that answering without a look at the text would reach in
    #: `best_metric`; None: that is 0.
    baseline_metric: str | None = None

    def __init_subclass__(cls) -> None:
        """Makes the task known by its name; see albert_tf.tasks.registry."""
        super().__init_subclass__()
        if "name" in vars(cls):
            register(cls)

    def __init__(
        self,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        spec: Any,
        dropout_rate: float = 0.1,
    ) -> None:
        if tokenizer.vocab_size != config.vocab_size:
            raise AlbertError(
                f"The vocabulary {tokenizer.spec.model_file} has {tokenizer.vocab_size} pieces, "
                f"but the model vocab_size={config.vocab_size}; give the checkpoint's vocabulary."
            )
        config.check_length(spec.max_seq_length)
        self.config, self.tokenizer = config, tokenizer
        self.spec, self.dropout_rate = spec, dropout_rate

    def task_file(self) -> dict[str, object]:
        """The specification as JSON values."""
        values = dataclasses.asdict(self.spec)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def read_spec(cls, values: Mapping[str, Any], path: str) -> Any:
        """The specification from what `task_file` gives.

        Args:
          values: may be damaged.
          path: of the file, for errors.

        Raises:
          AlbertError: the values are no specification.
        """
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        where = f"{path} does not describe {cls.name.replace('_', ' ')}"
        return from_json(cls.spec_class, values, where)

    @classmethod
    def load(cls, folder: str, **changes: Any) -> FineTuningTask:
        """The task that the model in an output directory was trained for.

        Args:
          folder: the output directory.
          **changes: entries of `task_file` to have otherwise.

        Raises:
          AlbertError: the folder is not that of a model trained for this task.
        """
        values = {**read_task_file(folder, cls.name), **changes}
        spec = cls.read_spec(values, os.path.join(folder, TASK_FILE))
        return cls(*load_model_files(None, None, None, folder), spec)

    def open_examples(
        self,
        examples: Sequence[Any],
        name: str,
        cache_dir: str,
        *,
        labelled: bool = True,
        train_seed: int | None = None,
        pad_to_max: bool = False,
    ) -> ExampleSet:
        """Examples as input of this task, by way of records in the cache.

        Args:
          examples: of the task's own type.
          name: what they are, for the terminal.
          cache_dir, labelled, train_seed, pad_to_max: see InputOptions.

        Raises:
          AlbertError: a label is missing or unknown.
        """
        options = InputOptions(cache_dir, labelled, train_seed, pad_to_max)
        return self.make_records(examples, name, options)

    @abc.abstractmethod
    def make_records(self, examples: Sequence[Any], name: str, options: InputOptions) -> ExampleSet:
        """What `open_examples` does; `record_set` makes the result of a file of records."""

    def record_set(
        self,
        examples: Sequence[Any],
        name: str,
        path: str,
        features: Mapping[str, FeatureSpec],
        options: InputOptions,
    ) -> ExampleSet:
        """The examples whose records, with these features, are in a file."""
        lengths = length_buckets(self.spec.max_seq_length, options.pad_to_max)
        source = RecordSource([path], features, options.train_seed or 0, lengths=lengths)
        return ExampleSet(name, examples, source)

    @abc.abstractmethod
    def write_predictions(
        self, data: ExampleSet, outputs: Mapping[str, np.ndarray], output_dir: str
    ) -> None:
        """Writes the predictions for a data set.

        Args:
          data: the examples.
          outputs: of `predict`, in the order of the records.
          output_dir: where the files go.
        """

    def write_evaluation(
        self,
        data: ExampleSet,
        outputs: Mapping[str, np.ndarray],
        results: Mapping[str, float],
        output_dir: str,
    ) -> None:
        """Writes what an evaluation leaves beside eval_results.json; by default nothing.

        Args:
          data: the examples.
          outputs: of `predict`, in the order of the records.
          results: the metrics.
          output_dir: where the files go.
        """

    def export(self, model: AlbertModel) -> Export:
        """The SavedModel of a model of this task, which takes text.

        Raises:
          AlbertError: the task has none.
        """
        raise AlbertError(
            f"There is no SavedModel for the task {self.name!r}; export the model's encoder."
        )

    def export_lite(self, model: AlbertModel) -> tuple[Kind, Outputs, tuple[str, ...]]:
        """What a TensorFlow Lite model of this task is made of.

        Returns:
          What its SavedModel is; outputs by name from the encoder's inputs and `training`; the
          labels, if the outputs are theirs.

        Raises:
          AlbertError: the task has none.
        """
        raise AlbertError(
            f"There is no TensorFlow Lite model for the task {self.name!r}; export the encoder, or "
            "a SavedModel."
        )

    def description(self) -> dict[str, object]:
        """The model's configuration, the tokenizer and what task.json holds."""
        return {
            "name": self.name,
            "config": self.config.to_dict(),
            "tokenizer": self.tokenizer.spec.to_dict(),
            "dropout_rate": self.dropout_rate,
            **self.task_file(),
        }

    def save_files(self, folder: str) -> None:
        """Writes albert_config.json, the tokenizer and task.json."""
        self.config.to_json(os.path.join(folder, CONFIG_FILE))
        self.tokenizer.save(folder)
        value = {"task": self.name, **self.task_file()}
        files.write_json(os.path.join(folder, TASK_FILE), value)

    def training_flops(self, length: float) -> float:
        """See albert_tf.modeling.flops."""
        return training_flops(self.config, length)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Records in the batch."""
        return {"examples": tf.cast(tf.shape(batch["input_word_ids"])[0], tf.float32)}

    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Mean loss and, where the task sums it, accuracy."""
        return {name: value / weights["examples"] for name, value in sums.items()}

    def progress(self, means: Mapping[str, float]) -> str:
        """Loss and, where the task sums it, accuracy."""
        shown = super().progress(means)
        return f"{shown} accuracy {means['accuracy']:.1%}" if "accuracy" in means else shown


def model_inputs(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The part of a batch that the encoder reads."""
    return {name: batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")}


def choice_sums(logits: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """Summed cross-entropy `loss` and right choices, `accuracy`, of logits [B, C], labels [B]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    right = tf.cast(correct(logits, labels), tf.float32)
    return {"loss": tf.reduce_sum(losses), "accuracy": tf.reduce_sum(right)}


def load_model_files(
    config_file: str | None,
    vocabulary: str | None,
    lower_case: bool | None,
    checkpoint: str | None,
) -> tuple[AlbertConfig, Tokenizer]:
    """The model's configuration and tokenizer, as given or else from beside the checkpoint.

    Args:
      config_file: JSON file, or a preset, whose vocabulary size then follows the tokenizer.
      vocabulary: SentencePiece model, WordPiece vocabulary or tokenizer.json.
      lower_case: see Tokenizer.from_file.
      checkpoint: see albert_tf.weights.load.open_source.

    Raises:
      AlbertError: one of them is neither given nor found, there is no such checkpoint, or the
        configuration does not fit.
    """
    source = open_source(checkpoint) if checkpoint and not (config_file and vocabulary) else None
    config = AlbertConfig.load(config_file) if config_file else source and source.config()
    if vocabulary:
        tokenizer = Tokenizer.from_file(vocabulary, lower_case)
    else:
        tokenizer = source and source.tokenizer(lower_case)
    for found, flag, name in (
        (config, "--albert_config_file", CONFIG_FILE),
        (tokenizer, VOCABULARY_SETTINGS, SPEC_FILE),
    ):
        if not found:
            if not source:
                raise missing_setting(flag)
            # Where there is no such folder, asking for the weights' place tells it.
            place = checkpoint if tf.io.gfile.exists(checkpoint) else source.location
            raise AlbertError(f"{flag} is needed: there is no {name} beside {place}.")
    if config_file in AlbertConfig.preset_names():
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    if checkpoint and config_file:
        check_architecture(config, checkpoint)
    return config, tokenizer
