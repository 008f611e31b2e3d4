# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What the Estimator needs to know of a task; the tasks themselves live in albert_tf.tasks."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.training.divergence import Plateau

Batch = Mapping[str, tf.Tensor]


def correct(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Whether the highest score is the label's.

    Args:
      scores: float32 [..., classes].
      labels: int32 [...].

    Returns:
      bool [...].
    """
    # TensorFlow compares int32 on the CPU, also where the rest of the graph runs on a GPU.
    return tf.argmax(scores, -1) == tf.cast(labels, tf.int64)


class Task(abc.ABC):
    """Model, loss and metrics of one task.

    The training loss is a sum of terms, each a weighted mean over the *global* batch. A task gives
    the sums and weights of the examples it is handed; the Estimator adds them over micro-batches
    and replicas, so that the gradient does not depend on how the batch was cut.
    """

    name: str
    #: The entry of `metrics` that picks the best checkpoint, and whether larger is better.
    best_metric: str
    best_metric_larger_is_better: bool = True

    @abc.abstractmethod
    def description(self) -> dict[str, object]:
        """JSON values that identify the task; a resumed run must have the same."""

    @abc.abstractmethod
    def save_files(self, folder: str) -> None:
        """Writes what makes a checkpoint usable by itself: configuration, tokenizer, labels."""

    @abc.abstractmethod
    def build_model(self) -> keras.Model:
        """Returns a model with all weights created and a `named_weights()` method.

        Called inside the strategy scope and under the run's mixed-precision policy.
        `named_weights()` maps the official variable names to variables, in creation order. Layers
        whose `trainable` is False are not trained: their weights are saved as all others are, and
        never change.
        """

    @abc.abstractmethod
    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Scalar float32 weight of each loss term in `batch`: what its sum is divided by."""

    @abc.abstractmethod
    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Scalar float32 weighted sums over `batch`: losses, and whatever `means` reports."""

    @abc.abstractmethod
    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Divides sums by global weights. The entry `loss` is the training loss.

        `loss` must be linear in `sums`. The other entries are the metrics logged while training.
        """

    @abc.abstractmethod
    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Per-example outputs, used to evaluate and to predict.

        Each has the shape [batch, ...], the rest of it the same for batches of any length.
        """

    @abc.abstractmethod
    def metrics(self, outputs: Mapping[str, np.ndarray], examples: Any = None) -> dict[str, float]:
        """Metrics of a whole data set.

        Args:
          outputs: of `predict`, [examples, ...], in the examples' order.
          examples: of the EvalSpec.
        """

    def chance_loss(self, data_description: Mapping[str, Any]) -> float | None:
        """The training loss of a model that knows the labels' frequencies and nothing else.

        Args:
          data_description: of the training data, see TrainSpec.

        Returns:
          None if it is unknown.
        """
        del data_description
        return None

    def plateaus(self, data_description: Mapping[str, Any]) -> Sequence[Plateau]:
        """What the metrics look like if nothing is learned; a run that stays there has diverged.

        Args:
          data_description: of the training data, see TrainSpec.
        """
        chance = self.chance_loss(data_description)
        if chance is None:
            return ()
        advice = (
            "Try a lower --learning_rate (a third, down to 5e-6 for large models), a longer "
            "--warmup_step, another --random_seed, and see above that --init_checkpoint matched."
        )
        return (Plateau("loss", lambda: chance, "the loss", advice),)

    def training_flops(self, length: float) -> float:
        """Floating-point operations of training on one example of `length` positions; 0: unknown.

        `length` is a mean over batches of several lengths.
        """
        del length
        return 0.0

    def progress(self, means: Mapping[str, float]) -> str:
        """The task's part of a progress line: a few short figures from `means`."""
        return f"loss {means['loss']:.4f}"


def trainable_weights(model: keras.Model) -> dict[str, tf.Variable]:
    """`named_weights()` without those of layers whose `trainable` is False."""
    frozen = {variable.ref() for variable in model.non_trainable_weights}
    named = model.named_weights()
    return {name: variable for name, variable in named.items() if variable.ref() not in frozen}
