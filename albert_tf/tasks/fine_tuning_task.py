# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""FineTuningTask: a task that starts from a pretrained model, and ExampleSet: its examples.

A ChoiceTask has one label for each example.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.data.length_batches import Sequences, length_batches, length_buckets
from albert_tf.io import files
from albert_tf.io.json_values import from_json, joined
from albert_tf.io.log import log
from albert_tf.io.progress import Progress
from albert_tf.io.tensorflow_import import check_not_forked
from albert_tf.io.text_tables import label_text
from albert_tf.keras2 import keras
from albert_tf.settings import check_names, field_names
from albert_tf.tasks.fine_tune_config import FineTuneConfig
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.training.specs import EvalSpec, RunConfig
from albert_tf.training.task import (
    Arrays,
    Batch,
    Metrics,
    Task,
    Tensors,
    correct,
    in_order,
    without_nan,
)
from albert_tf.weights.load import ENCODER_SCOPE, LoadReport, load_weights, open_source
from albert_tf.weights.model_files import load_model_files
from albert_tf.weights.run_folder import TASK_FILE, RunFolder, find_task
from albert_tf.weights.thresholds import load_thresholds, save_thresholds

#: The classes of tasks that have been imported by name; of several, as in a notebook, the last one.
TASKS = {}
#: Settings or JSON values by name.
Values = Mapping[str, Any]
#: Pairs of texts tokenized together.
_CHUNK = 2048


@dataclasses.dataclass(eq=False)
class ExampleSet:
    """Examples of a task, and their token sequences.

    Attributes:
      examples: of the task's own type.
      source: their token sequences, in the order of the examples; one or several for each.
      summary: describes them on the terminal.
      identity: identifies what the examples have besides `source`.
      name: of the data set, for the terminal and the names of metrics.
      notes: what happened to some of the examples, such as that sequences are cut.
    """

    examples: Sequence[Any]
    source: Sequences
    summary: str
    identity: str = ""
    name: str = ""
    notes: Sequence[str] = ()

    @property
    def fingerprint(self) -> str:
        """Identifies the data, their labels included."""
        return f"{self.source.fingerprint}-{self.identity}"

    def eval_spec(self, batch_size: int, every_steps: int | None = None) -> EvalSpec:
        """Returns the EvalSpec that evaluates on, or predicts, these examples."""
        read, batches = self.source.eval_input_fn, self.source.num_batches(batch_size)
        return EvalSpec(read, every_steps, batches, self.name, self, self.fingerprint)

    def outputs(self, predict: Callable[[Batch], Tensors], batch_size: int | None = None) -> Arrays:
        """Returns the outputs of `Task.predict` for all sequences or groups, [n, ...], in order.

        Raises:
          DivergedError: an output is NaN.
        """
        check_not_forked()
        parts = []
        for rows, length in length_batches(self.source.longest, "predicting", batch_size):
            outputs = predict(self.source.batch(rows, length))
            arrays = {name: value.numpy() for name, value in outputs.items()}
            parts.append({**arrays, "example_index": rows})
        return without_nan(in_order(parts))


class FineTuningTask(Task):
    """A task on token sequences, with the configuration and the tokenizer of a pretrained model.

    All examples have the same weight in the loss.

    Args:
      config: of the model.
      tokenizer: saved with the model.
      spec: the task's own settings, such as labels: a dataclass with at least `max_seq_length`,
        the maximum length of a sequence in tokens.
      dropout_rate: dropout on the input of the task's head.

    Attributes:
      thresholds: those of `threshold_names`; None until an evaluation finds the best ones.

    Raises:
      AlbertError: the configuration does not fit the tokenizer or the length.
    """

    thresholds = None
    #: The dataclass of `spec`.
    spec_class: type
    #: The recipe of the training; settings of the task in braces are filled in.
    recipe = "custom"
    #: The setting in `spec`, if there is one, with the names of the outputs of the head.
    names_of_outputs = "labels"
    #: The TextForm of the SavedModel that takes texts; a name, as training needs no exports.
    form = ""
    #: Examples of an evaluation batch, if the settings do not say.
    eval_batch_size = RunConfig.eval_batch_size
    #: The files of predictions in an output directory.
    prediction_files = ("predictions.tsv",)

    @staticmethod
    def read(data: Any, name: str) -> Sequence[Any]:
        """Reads the examples of a data set, the path of a file or data in memory, with a name."""
        raise NotImplementedError

    @staticmethod
    def learned(examples: Sequence[Any]) -> Values:
        """Returns the settings in `spec` that the training examples decide."""
        return {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls):
            TASKS[cls.name] = cls

    def __init__(
        self, config: AlbertConfig, tokenizer: Tokenizer, spec: Any, dropout_rate: float = 0.1
    ) -> None:
        config.check_vocabulary(tokenizer.vocab_size, tokenizer.spec.model_file)
        config.check_length(spec.max_seq_length)
        self.config, self.tokenizer = config, tokenizer
        self.spec, self.dropout_rate = spec, dropout_rate

    @classmethod
    def new(
        cls,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        spec: Values,
        settings: Values,
        recipe: str | None = None,
    ) -> tuple[FineTuningTask, FineTuneConfig]:
        """Returns a task to train, and the settings of its training.

        Args:
          config, tokenizer: of the pretrained model.
          spec: entries of the task's own settings.
          settings: of the run; and of the task, if its `spec_class` declares them by `setting`,
            which take precedence over `spec`.
          recipe: see `FineTuneConfig.from_recipe`; None for the task's.

        Raises:
          AlbertError: a setting is impossible.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        settings = {"eval_batch_size": cls.eval_batch_size, **given}
        fields = dataclasses.fields(cls.spec_class)
        declared = {x.name for x in fields if "help" in x.metadata} - {"max_seq_length"}
        check_names(settings, {*declared, *field_names(FineTuneConfig)})
        own = {**spec, **{name: settings.pop(name) for name in declared & {*settings}}}
        longest = settings.get("max_seq_length", FineTuneConfig.max_seq_length)
        cls.spec_class(**{**own, "max_seq_length": longest})  # No recipe is for wrong values.
        recipe = (recipe or cls.recipe).format_map(own)
        run = FineTuneConfig.from_recipe(recipe, config, **settings)
        own = cls.spec_class(**{**own, "max_seq_length": run.max_seq_length})
        if run.dropout is not None:
            rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
            config = dataclasses.replace(config, **dict.fromkeys(rates, run.dropout))
        return cls(config, tokenizer, own, run.classifier_dropout), run

    def task_file(self) -> dict[str, object]:
        """Returns the specification as JSON values."""
        values = dataclasses.asdict(self.spec)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def load(cls, folder: str, **changes: Any) -> FineTuningTask:
        """Loads the task of the model in an output directory, with the thresholds kept there.

        `changes` override entries of its `task_file`.

        Raises:
          AlbertError: the folder does not hold a model trained for this task, or there is no such
            entry.
        """
        check_names(changes, field_names(cls.spec_class))
        values = {**RunFolder(folder).task(cls.name), **changes}
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        values.pop("thresholds", None)
        spec = from_json(cls.spec_class, values, os.path.join(folder, TASK_FILE))
        task = cls(*load_model_files(folder), spec)
        task.thresholds = load_thresholds(RunFolder(folder), task.threshold_names)
        return task

    @property
    def threshold_names(self) -> Sequence[str]:
        """The thresholds on outputs that the task decides by; none if it needs no evaluation."""
        return ()

    def open_examples(
        self,
        examples: Sequence[Any],
        name: str,
        *,
        labelled: bool = True,
        training: bool = False,
        **lengths: bool,
    ) -> ExampleSet:
        """Tokenizes the examples of a data set, see `encode`, and prints a summary.

        For `lengths` see `length_buckets`.
        """
        data = self.encode(examples, labelled=labelled, training=training)
        data.name = name
        data.source.lengths = length_buckets(self.spec.max_seq_length, **lengths)
        log.info(f"{name}: {'; '.join([data.summary, *data.notes])}")
        return data

    @abc.abstractmethod
    def encode(
        self, examples: Sequence[Any], *, labelled: bool = True, training: bool = False
    ) -> ExampleSet:
        """Converts examples to token sequences of at most `max_seq_length`.

        Args:
          examples: as `read` returns them.
          labelled: whether the labels are needed.
          training: whether the sequences are for training.

        Raises:
          AlbertError: a label is missing or unknown, or as the task says.
        """

    def tokenized(
        self, pairs: Sequence[tuple[str, str]]
    ) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yields the ids of pairs of texts, many pairs at a time, and shows progress.

        Equal texts that are close to each other are tokenized once.
        """
        with Progress("tokenizing", len(pairs), "sequences") as progress:
            for begin in range(0, len(pairs), _CHUNK):
                chunk = pairs[begin : begin + _CHUNK]
                texts = list(dict.fromkeys(itertools.chain(*chunk)))
                ids = dict(zip(texts, self.tokenizer.encode_batch(texts)))
                yield [(ids[a], ids[b]) for a, b in chunk]
                progress.update(len(chunk))

    def join(
        self,
        pairs: Sequence[tuple[str, str]],
        cut: Callable[[list[int], list[int]], tuple[list[int], list[int] | None]],
        columns: Arrays,
        group: int | None = None,
    ) -> tuple[Sequences, list[str]]:
        """Tokenizes pairs of texts: [CLS] A [SEP] B [SEP], or [CLS] A [SEP].

        Args:
          pairs: A and B; see `tokenized`.
          cut: returns the tokens of A and B to keep, given all; None for [CLS] A [SEP].
          columns, group: see Sequences.

        Returns:
          The sequences, and the notes of an ExampleSet.
        """
        number = 0

        def sequences() -> Iterator[tuple[np.ndarray, int]]:
            nonlocal number
            for a, b in itertools.chain.from_iterable(self.tokenized(pairs)):
                first, second = cut(a, b)
                number += len(first) + len(second or ()) < len(a) + len(b)
                yield join_segments(self.tokenizer, first, second), len(first) + 2

        data = Sequences(sequences(), self.tokenizer.pad_id, columns, group=group)
        return data, self.cut_notes(number)

    def cut_notes(self, number: int) -> list[str]:
        """Returns the notes of an ExampleSet with this number of sequences that are cut."""
        cut_ones = "sequence is" if number == 1 else "sequences are"
        longest = self.spec.max_seq_length
        return [f"{number:,} {cut_ones} cut to fit into {longest} tokens"] if number else []

    def load_initial(self, checkpoint: str, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
        """See Task. A head for the same outputs is taken over, any other one is not.

        Raises:
          AlbertError: see `load_weights`.
        """
        source = open_source(checkpoint)
        head = {
            name: weight
            for name, weight in named_weights.items()
            if name in source.shapes and not name.startswith(ENCODER_SCOPE)
        }
        theirs = find_task(source.location)
        order = self.order_of_outputs(theirs) if head else []
        if order is None:
            named_weights = {k: v for k, v in named_weights.items() if k not in head}
            log.info(
                f"The head of {source.location} is not taken over, as it is for other outputs "
                f"({theirs.get('task', 'unknown')}: {joined(self._names_in(theirs))}); the new one "
                "starts at random."
            )
        report = load_weights(source, named_weights)
        for weight in head.values() if order else ():
            weight.assign(tf.gather(weight, order))
        left = tuple(name for name in report.unexpected if name not in head)
        return report._replace(unexpected=left)

    def _names_in(self, values: Values) -> list[str]:
        """Returns the names of the outputs in the content of a task.json."""
        names = values.get(self.names_of_outputs)
        return [*map(label_text, names)] if isinstance(names, list) else []

    def order_of_outputs(self, theirs: Values) -> list[int] | None:
        """Finds this task's outputs among those of the model with another task.json.

        Returns their numbers there; an empty list if outputs have no names; None if that model has
        others.
        """
        there, here = map(self._names_in, (theirs, self.task_file()))
        if theirs.get("task") != self.name or {*there} != {*here}:
            return None
        return [there.index(name) for name in here]

    @abc.abstractmethod
    def write_predictions(self, data: ExampleSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes the predictions for a data set, given the outputs of `predict` in its order."""

    def write_evaluation(
        self, data: ExampleSet, outputs: Arrays, results: Metrics, folder: RunFolder
    ) -> None:
        """Writes more than the `results`, which are in eval_results.json; by default nothing."""

    def keep_thresholds(self, thresholds: Mapping[str, float], folder: RunFolder) -> None:
        """Keeps the best thresholds of an evaluation with its weights, if there were none before.

        So those found after the training stay when the model is evaluated on other examples.
        """
        if self.thresholds is None:
            self.thresholds = thresholds
            save_thresholds(folder.best_seed(), thresholds)
            log.info("The thresholds that are best for these examples are kept with the model.")

    def description(self) -> dict[str, object]:
        """Returns the model's configuration, the tokenizer and the content of task.json."""
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


def logits_of(model: keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
    """Returns the output `logits` of a model for a batch."""
    return model(batch, training=training)["logits"]


class ChoiceTask(FineTuningTask):
    """A task whose model gives `logits` [batch, choices]; the batches have `label_ids` [batch]."""

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Sums the cross-entropy, times `loss_weights` if there are some, and correct choices."""
        logits, labels = logits_of(model, batch, training), batch["label_ids"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if "loss_weights" in batch:
            losses *= batch["loss_weights"]
        right = tf.reduce_sum(correct(logits, labels))
        return {"loss": tf.reduce_sum(losses), "accuracy": right}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `probabilities` [batch, choices]."""
        return {"probabilities": tf.nn.softmax(logits_of(model, batch))}


def choice_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean negative log-likelihood of int labels [n], given probabilities [n, C]."""
    likelihoods = probabilities[np.arange(len(labels)), labels.astype(np.int64)]
    return -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean()
