# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The interface between the Estimator and a task; the tasks themselves are in albert_tf.tasks."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.errors import DivergedError
from albert_tf.keras2 import keras
from albert_tf.training.specs import FLOAT32
from albert_tf.weights.load import LoadReport, load_weights

Batch = Mapping[str, tf.Tensor]
#: Outputs, sums and others by name, in graphs and of whole data sets.
Tensors = dict[str, tf.Tensor]
Arrays = Mapping[str, np.ndarray]
Metrics = dict[str, float]
#: Of what a JointTask adds to a batch: the prefix of its names, and the name of the gradients.
_SHARED, _GRADIENTS = "shared/", "gradients"


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Returns 1 where the label has the highest score, else 0, float32 [...].

    Takes scores, float32 [..., classes], and labels, int32 [...].
    """
    # TensorFlow compares int32 on the CPU, even if the rest of the graph runs on a GPU.
    return tf.cast(tf.argmax(scores, -1) == tf.cast(labels, tf.int64), tf.float32)


def floats(values: Mapping[str, Any]) -> Metrics:
    """Returns metrics as Python's own numbers."""
    return {name: float(value) for name, value in values.items()}


def examples_with_nan(outputs: Arrays) -> int:
    """Counts the examples with a NaN in any output."""
    bad = [np.isnan(values).reshape(len(values), -1).any(1) for values in outputs.values()]
    return int(np.any(bad, axis=0).sum())


def without_nan(outputs: Arrays) -> Arrays:
    """Returns the outputs; raises DivergedError if one is NaN, whose arg max would be the first."""
    if bad := examples_with_nan(outputs):
        raise DivergedError(
            f"The model gives NaN for {bad:,} of {len(next(iter(outputs.values()))):,} examples: "
            "its training has diverged. Use another checkpoint, or train again with a lower "
            "learning rate."
        )
    return outputs


def in_order(batches: Sequence[Arrays]) -> Arrays:
    """Joins the outputs of batches, [rows, ...], and sorts them by `example_index`, int [rows]."""
    outputs = {k: np.concatenate([batch[k] for batch in batches]) for k in batches[0]}
    order = np.argsort(outputs.pop("example_index"), kind="stable")
    return {name: values[order] for name, values in outputs.items()}


class Task(abc.ABC):
    """Model, loss and metrics of one task.

    The training loss is a sum of terms, each a weighted mean over the *global* batch. A task
    computes the sums and weights of part of a batch; the Estimator adds them over micro-batches and
    replicas, so that the gradient does not depend on how the batch was split.
    """

    name: str
    #: The entry of `metrics` that selects the best checkpoint, and whether larger is better.
    best_metric: str
    best_metric_larger_is_better: bool = True
    #: For entries of `metrics` in which larger is better: the entry that says what the same answer
    #: to every example reaches, 0 if there is none.
    constant_answers: Mapping[str, str] = {}

    def constant_answer_note(self, metrics: Metrics) -> str | None:
        """Returns a sentence if metrics are no better than with a constant answer, else None."""
        bad = [
            f"{name} {metrics[name]:.4f}"
            for name, constant in self.constant_answers.items()
            if metrics.get(name, math.inf) <= metrics.get(constant, 0.0)
        ]
        return f"No better than the same answer every time: {', '.join(bad)}." if bad else None

    @abc.abstractmethod
    def description(self) -> dict[str, object]:
        """Returns JSON values that identify the task; a resumed run must have the same ones."""

    @abc.abstractmethod
    def save_files(self, folder: str) -> None:
        """Writes the files needed to use a checkpoint: configuration, tokenizer, labels."""

    @abc.abstractmethod
    def build_model(self, dtype: str = FLOAT32) -> keras.Model:
        """Returns a model with all weights created and a `named_weights()` method.

        Called inside the strategy scope. `named_weights()` maps the official variable names to
        variables, in creation order. Layers with `trainable=False` are not trained: their weights
        are saved, but never change.

        Args:
          dtype: the Keras precision policy of all layers, such as "mixed_bfloat16". Keras' global
            policy, which belongs to all threads, stays as it is.
        """

    def load_initial(self, checkpoint: str, named_weights: Mapping[str, tf.Variable]) -> LoadReport:
        """Loads the weights that a new run starts from; see `load_weights`."""
        return load_weights(checkpoint, named_weights)

    def weights(self, batch: Batch) -> Tensors:
        """Returns the scalar float32 weight of each loss term in `batch`: its sum's divisor.

        That is the number of examples, for all sums.
        """
        return {"examples": tf.cast(tf.shape(batch["input_word_ids"])[0], tf.float32)}

    @abc.abstractmethod
    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Returns scalar float32 weighted sums over `batch`: losses, and others for `means`."""

    def means(self, sums: Tensors, weights: Tensors) -> Tensors:
        """Divides sums by global weights.

        Returns `loss`, the training loss, which must be linear in `sums`, and the metrics to log
        during training.
        """
        return {name: value / weights["examples"] for name, value in sums.items()}

    @abc.abstractmethod
    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns the outputs for each example, used to evaluate and to predict.

        Each has the shape [batch, ...], where the rest does not depend on the length of the batch.
        """

    @abc.abstractmethod
    def metrics(self, outputs: Arrays, examples: Any = None) -> Metrics:
        """Returns the metrics of a whole data set.

        Takes the outputs of `predict`, [examples, ...], in the order of the EvalSpec's `examples`.
        """

    def progress(self, means: Metrics) -> str:
        """Returns the task's part of a progress line: a few short numbers from `means`."""
        text = f"loss {means['loss']:.4f}"
        return f"{text} accuracy {means['accuracy']:.1%}" if "accuracy" in means else text


class JointTask(Task):
    """A task whose loss of an example depends on the vectors of all others of the global batch.

    Where a batch is split, TrainLoop first computes the vectors of all parts, then what the losses
    and their gradients by these vectors are; `sums` uses these of a part. So the gradient is exact
    for any split, at the cost of another forward pass (Gao et al. 2021, arXiv 2101.06983).
    """

    @abc.abstractmethod
    def vectors(self, model: keras.Model, batch: Batch, training: bool = False) -> tf.Tensor:
        """Returns a float32 vector, or several, of each example, [batch, ...]."""

    @abc.abstractmethod
    def joint_values(self, vectors: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """Returns values of the examples, float32 [batch]; one is `loss`.

        Given are the vectors and `targets` of the whole batch; those are a column of batches.
        """

    def share(self, vectors: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """Returns what `sums` needs of the whole batch, by row; see `joint_values`."""
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            values = self.joint_values(vectors, targets)
        gradients = tape.gradient(values["loss"], vectors)
        return {_SHARED + k: v for k, v in {**values, _GRADIENTS: gradients}.items()}

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """See Task; sums the `joint_values`, with the gradients of the global batch."""
        vectors = self.vectors(model, batch, training)
        shared = {k.removeprefix(_SHARED): v for k, v in batch.items() if k.startswith(_SHARED)}
        gradients = shared.pop(_GRADIENTS, None)
        values = shared or self.joint_values(vectors, batch["targets"])
        sums = {name: tf.reduce_sum(value) for name, value in values.items()}
        if gradients is not None:  # What is added has the value 0 and the right gradient.
            sums["loss"] += tf.reduce_sum((vectors - tf.stop_gradient(vectors)) * gradients)
        return sums
