# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""ChoiceTask: a task with one label for each example."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.keras2 import keras
from albert_tf.tasks.fine_tuning_task import FineTuningTask, logits_of
from albert_tf.training.task import Batch, Tensors, correct


class ChoiceTask(FineTuningTask):
    """A task whose model gives `logits` [batch, choices]; the batches have `label_ids` [batch]."""

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Sums the cross-entropy, times `loss_weights` if there are some, and correct choices."""
        logits, labels = logits_of(model, batch, training), batch["label_ids"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        if "loss_weights" in batch:
            losses *= batch["loss_weights"]
        hits = tf.cast(correct(logits, labels), tf.float32)
        return {"loss": tf.reduce_sum(losses), "accuracy": tf.reduce_sum(hits)}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns `probabilities` [batch, choices]."""
        return {"probabilities": tf.nn.softmax(logits_of(model, batch))}


def choice_loss(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean negative log-likelihood of int labels [n], given probabilities [n, C]."""
    likelihoods = probabilities[np.arange(len(labels)), labels.astype(np.int64)]
    return -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny)).mean()
