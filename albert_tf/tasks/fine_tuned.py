# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""FineTunedModel: trains, loads, evaluates and exports a model of one task, without flags."""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.huggingface.hub import upload
from albert_tf.io.files import path_of, read_object, write_json
from albert_tf.io.json_values import short_repr
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.pretrained.locate import locate
from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask, Values
from albert_tf.tasks.tables import with_labels
from albert_tf.tokenization.tokenizer import checked_text
from albert_tf.training.monitors import read_metrics
from albert_tf.training.task import Arrays, Metrics, Tensors
from albert_tf.weights.load import load_weights
from albert_tf.weights.model_files import load_model_files
from albert_tf.weights.run_folder import METRICS_FILE, RESULTS_FILE, RunFolder, model_folder
from albert_tf.weights.thresholds import save_thresholds

if TYPE_CHECKING:
    from typing_extensions import Self


class FineTunedModel:
    """Base of the classes that train and use a task's models, such as TextClassifier.

    Args:
      task: the task of the model, of `task_class`, which each class has.
      model: with its weights.
      output_dir: holds the model, or those of several seeds; `metrics`, `history` and `export` need
        it.
    """

    def __init__(self, task: FineTuningTask, model: AlbertModel, output_dir: str = "") -> None:
        self.task, self.model = task, model
        #: Of the model, and of all seeds.
        self.folder, self.output_dir = model_folder(output_dir), output_dir
        self._graphs = {}  # By the inputs: pairs have an axis more than single texts.

    def _predict(self, batch: Tensors) -> Tensors:
        """Returns the predictions of the task for a batch, from a graph for all sizes."""
        specs = {k: tf.TensorSpec([None] * x.shape.rank, x.dtype) for k, x in batch.items()}
        if (key := (*specs.values(),)) not in self._graphs:
            predict = functools.partial(self.task.predict, self.model)
            self._graphs[key] = tf.function(predict, [specs], autograph=False)
        return self._graphs[key](batch)

    def _outputs_of(
        self, examples: Sequence[Any], batch_size: int | None = None
    ) -> tuple[ExampleSet, Arrays]:
        """Returns at least one example as sequences, and the task's outputs for these.

        Warns of what happened to the examples, such as that some are cut.
        """
        data = self.task.encode(examples, labelled=False)
        if data.notes:
            warnings.warn(f"Of {len(examples):,} examples, {'; '.join(data.notes)}.", stacklevel=3)
        return data, data.outputs(self._predict, batch_size)

    @classmethod
    def load(cls, folder: str, **changes: Any) -> Self:
        """Loads the model of an output directory, or that of its best seed.

        Args:
          folder: the output directory of `train` or of the task's script; or the folder or name of
            a model on Hugging Face with this task's head.
          **changes: settings of the task that may differ from those of the training, such as
            `max_seq_length`, or `labels` and `columns` of a model of Hugging Face's.

        Raises:
          AlbertError: there is no such model.
        """
        output_dir = locate(folder, "model's output directory")
        folder = model_folder(output_dir)
        task = cls.task_class.load(folder, **changes)
        model = task.build_model()
        load_weights(folder, model.named_weights(), whole=True)
        return cls(task, model, output_dir)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last evaluation by `train` or by a script; empty without one."""
        run = RunFolder(self.output_dir)
        return read_object(run.file(RESULTS_FILE)) if run.has(RESULTS_FILE) else {}

    @property
    def history(self) -> list[dict[str, Any]]:
        """The training's curve, from metrics.jsonl: dicts with `step`, `split` and numbers.

        The split is "train" or "eval"; `pandas.DataFrame(model.history)` makes a table of it.
        """
        run = RunFolder(self.folder)
        return read_metrics(run) if run.has(METRICS_FILE) else []

    @classmethod
    def train(cls, model: str, train: Any, eval: Any = None, **settings: Any) -> Self:
        """Fine-tunes a pretrained model, with the recipe and the results of the task's script.

        As `TextClassifier.train`, except for the data.

        Args:
          model: what to start from; see `albert_tf.load_pretrained`.
          train, eval: the examples: the path of a file, or data in memory; see the class.
          **settings: fields of FineTuneConfig, and of the task's settings; see the script's flags.
        """
        examples = with_labels(cls._read(train, "train", {}))
        spec = cls.task_class.learned(examples)
        return cls._train(model, examples, eval, spec, settings)

    @classmethod
    def _train(
        cls,
        model: str,
        train: Any,
        eval: Any,
        spec: Values,
        settings: Values,
    ) -> Self:
        """Fine-tunes as the task's script does, and loads the result; see FineTuningTask.new."""
        from albert_tf.tasks.runner import Examples, run

        if "init_checkpoint" in settings:
            raise AlbertError(
                "`init_checkpoint` is the first argument of `train`, the model to start from; "
                "leave it out."
            )
        held_out = () if eval is None else cls._read(eval, "eval", spec)
        model = path_of(model, "pretrained model")
        settings = {**settings, "init_checkpoint": model}
        task, config = cls.task_class.new(*load_model_files(model), spec, settings)
        run(task, Examples(train, {"eval": held_out}), config)
        return cls.load(config.output_dir)

    @classmethod
    def _read(cls, data: Any, name: str, spec: Values) -> Sequence[Any]:
        """Reads the examples of a data set, given the task's settings."""
        return cls.task_class.read(data, name)

    def evaluate(self, data: Any) -> Metrics:
        """Returns the metrics for labelled data, as the task's script computes them.

        The weights and settings are those of this object, in float32.

        Args:
          data: as for `train`, with the same columns.

        Raises:
          AlbertError: the data is malformed or lacks labels.
        """
        examples = self._read(data, "eval", vars(self.task.spec))
        held_out = self.task.open_examples(examples, "eval")
        return self.task.metrics(held_out.outputs(self._predict), held_out)

    def export(self, path: str, overwrite: bool = False) -> None:
        """Writes a SavedModel that takes texts; see `albert_tf.export_model`.

        It has the weights and settings of this object; its model card describes the run.

        Args:
          path: the folder to create.
          overwrite: replace an earlier export at `path`.

        Raises:
          AlbertError: the folder exists.
        """
        from albert_tf.tasks.export import publish_task

        publish_task(self.task, self.model, self.output_dir, path, overwrite)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Uploads the model in Hugging Face's format; see `hub.upload`.

        It has the weights and settings of this object; its card has the metrics of the last
        evaluation. Returns the address of the commit.

        Raises:
          AlbertError: Hugging Face's code has no such head; or see `hub.upload`.

        Example:
          classifier.push_to_hub("OWNER/NAME", private=True)
        """
        from albert_tf.weights.checkpoint import write_tf2
        from albert_tf.weights.conversion import convert

        weights = {name: x.numpy() for name, x in self.model.named_weights().items()}
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = (os.path.join(folder, name) for name in ("ours", "theirs"))
            os.makedirs(ours)
            write_tf2(ours, self.task.config, self.task.tokenizer, weights)
            self.task.save_files(ours)
            if self.task.thresholds:
                save_thresholds(RunFolder(ours), self.task.thresholds)
            write_json(os.path.join(ours, RESULTS_FILE), self.metrics)
            convert(ours, "hf", theirs)
            return upload(theirs, repo_id, **options)

    def __repr__(self) -> str:
        """Says where the model is from, what it was trained for, and how large it is."""
        tokenizer = self.task.tokenizer.spec
        return (
            f"{type(self).__name__} of {self.folder}\n"
            f"  task: {short_repr(self.task.spec, 500)}\n"
            f"  parameters: {self.model.count_params():,}\n"
            f"  config: {self.task.config}\n"
            f"  tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} pieces"
        )


def is_list(value: Any) -> bool:
    """Returns whether a value is a list of several, in any type, and no text."""
    return np.iterable(value) and not isinstance(value, (str, bytes, Mapping))


def each_of(size: int, **texts: Any) -> dict[str, list[Any]]:
    """Returns columns of one length, given lists, or texts for all rows.

    Raises:
      AlbertError: a list has another length, or an argument is neither a list nor a string.
    """
    columns = {}
    for name, value in texts.items():
        found = list(value) if is_list(value) else [checked_text(value, f"The {name}")] * size
        if len(found) != size:
            raise AlbertError(f"There are {len(found):,} {name}s, not {size:,}.")
        columns[name] = found
    return columns
