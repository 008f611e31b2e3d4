# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretraining: masked LM and sentence order prediction (paper, sections 3.1 and 4.1)."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.data.manifest import find_manifest, find_shards
from albert_tf.data.pipeline import RecordSource
from albert_tf.io import files
from albert_tf.keras2 import keras
from albert_tf.modeling.neighbor_attention import attend_to_neighbors
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.pretraining.config import PretrainingConfig
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Metrics, Task, Tensors, correct, floats
from albert_tf.weights.model_files import load_config

#: Added to the sum of weights that divides the masked LM loss, as in the TF1 release.
_EPSILON = 1e-5


class PretrainingTask(Task):
    """Masked LM plus sentence order prediction.

    Args:
      config: configuration of the model.
      source: the training records.
      neighbor_attention: see albert_tf.modeling.neighbor_attention.

    Attributes:
      has_order: whether the sentence order is trained, which records without a sentence objective
        and shortened ones do not have.
    """

    name = "pretraining"
    best_metric = "masked_lm_accuracy"

    def __init__(
        self, config: AlbertConfig, source: RecordSource, neighbor_attention: bool = False
    ) -> None:
        self.config, self.neighbor_attention = config, neighbor_attention
        is_part = source.masking and source.masking.is_part
        self.has_order = not is_part and source.manifest.options.get("sentence_objective") != "none"
        self.constant_answers = {"masked_lm_accuracy": "masked_lm_majority"}
        if self.has_order:
            self.constant_answers["sentence_order_accuracy"] = "sentence_order_majority"
        self._source = source

    def description(self) -> dict[str, object]:
        """Returns the model's configuration, the loss and how the attention starts."""
        return {
            "name": self.name,
            "config": self.config.to_dict(),
            "sentence_order": self.has_order,
            "neighbor_attention": self.neighbor_attention,
        }

    def save_files(self, folder: str) -> None:
        """Writes albert_config.json and, if it lies beside the records, the tokenizer."""
        self.config.to_json(os.path.join(folder, CONFIG_FILE))
        tokenizer_file = os.path.join(os.path.dirname(self._source.files[0]), SPEC_FILE)
        if files.exists(tokenizer_file):
            Tokenizer.from_file(tokenizer_file).save(folder)

    def build_model(self, dtype: str = FLOAT32) -> AlbertPretrainer:
        """Builds the encoder, the masked LM head and the sentence order head."""
        model = AlbertPretrainer(self.config, dtype)
        if self.neighbor_attention:
            attend_to_neighbors(model.encoder)
        return model

    def weights(self, batch: Batch) -> Tensors:
        """Returns the numbers of masked positions and of examples."""
        return {
            "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]),
            "sentence_order": super().weights(batch)["examples"],
        }

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Returns the summed losses and correct predictions of both objectives."""
        values = _per_example(model, batch, training)
        return {k: tf.reduce_sum(v) for k, v in values.items() if k != "masked_lm_weight"}

    def means(self, sums: Tensors, weights: Tensors) -> Tensors:
        """Returns loss and accuracy of each objective, and the training loss."""
        masked, examples = weights["masked_lm"] + _EPSILON, weights["sentence_order"]
        masked_lm_loss = sums["masked_lm_loss"] / masked
        sentence_order_loss = sums["sentence_order_loss"] / examples
        return {
            "loss": masked_lm_loss + sentence_order_loss if self.has_order else masked_lm_loss,
            "masked_lm_loss": masked_lm_loss,
            "masked_lm_accuracy": sums["masked_lm_correct"] / masked,
            "sentence_order_loss": sentence_order_loss,
            "sentence_order_accuracy": sums["sentence_order_correct"] / examples,
        }

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns each example's summed losses, correct predictions and masked positions.

        Also `masked_lm_ids` [batch, predictions], 0 where there is none, and
        `next_sentence_labels` [batch].
        """
        # Not int32, which a GPU would copy to the host's memory.
        ids, labels = (
            tf.cast(batch[name], tf.int64) for name in ("masked_lm_ids", "next_sentence_labels")
        )
        return {
            **_per_example(model, batch, training=False),
            "masked_lm_ids": ids * tf.cast(batch["masked_lm_weights"] > 0, tf.int64),
            "next_sentence_labels": tf.reshape(labels, [-1]),
        }

    def metrics(self, outputs: Arrays, examples: object = None) -> Metrics:
        """Returns the entries of `means` over a whole data set, and those of constant answers.

        `masked_lm_majority` is the accuracy of always predicting the most frequent piece,
        `sentence_order_majority` that of always giving the more frequent order.
        """
        outputs = dict(outputs)
        pieces, orders = outputs.pop("masked_lm_ids"), outputs.pop("next_sentence_labels")
        sums = {k: float(np.sum(v, dtype=np.float64)) for k, v in outputs.items()}
        weights = {"masked_lm": sums["masked_lm_weight"], "sentence_order": float(len(orders))}
        return {
            **floats(self.means(sums, weights)),
            "masked_lm_majority": _majority(pieces[pieces > 0]),
            "sentence_order_majority": _majority(orders),
        }

    def progress(self, means: Metrics) -> str:
        """Returns masked LM loss and accuracy, and sentence order accuracy if it is trained."""
        text = f"mlm {means['masked_lm_loss']:.2f} {means['masked_lm_accuracy']:.1%}"
        return f"{text} sop {means['sentence_order_accuracy']:.0%}" if self.has_order else text


def _majority(values: np.ndarray) -> float:
    """Returns the share of the most frequent of some integers; 0 without any."""
    return float(np.bincount(values, minlength=1).max() / max(1, len(values)))


def _per_example(model: keras.Model, batch: Batch, training: bool) -> Tensors:
    """Returns losses, correct predictions and weights summed over each example, float32 [batch]."""
    outputs = model(batch, training=training)
    weights = batch["masked_lm_weights"]  # [batch, predictions]
    right = tf.cast(outputs["mlm_correct"], tf.float32)
    labels = tf.reshape(batch["next_sentence_labels"], [-1])  # [batch]
    order = outputs["sop_logits"]  # [batch, 2]
    return {
        "masked_lm_loss": tf.reduce_sum(outputs["mlm_losses"] * weights, -1),
        "masked_lm_correct": tf.reduce_sum(right * weights, -1),
        "masked_lm_weight": tf.reduce_sum(weights, -1),
        "sentence_order_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, order),
        "sentence_order_correct": correct(order, labels),
    }


def open_inputs(config: PretrainingConfig, train: bool = True) -> tuple[AlbertConfig, RecordSource]:
    """Opens the model's configuration and `input_file`, or without that `eval_input_file`.

    A preset takes its vocabulary size from the records. Only training masks as `config` says.

    Raises:
      AlbertError: see `load_config` and `open_records`.
    """
    patterns = config.input_file or config.eval_input_file  # To evaluate, the latter is enough.
    model = load_config(config.albert_config_file, config.init_checkpoint)
    is_preset = config.albert_config_file in AlbertConfig.preset_names()
    if is_preset and (manifest := find_manifest(find_shards(patterns))):
        vocab_size = manifest.tokenizer_value("vocab_size", int)
        model = dataclasses.replace(model, vocab_size=vocab_size)
    masks = {"masked_lm_prob": config.masked_lm_prob, "ngram": config.ngram} if train else {}
    return model, open_records(
        patterns, model, max_seq_length=config.max_seq_length, seed=config.seed, **masks
    )
