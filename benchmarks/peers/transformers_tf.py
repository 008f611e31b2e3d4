# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The training step of transformers' ALBERT for TensorFlow. See protocol.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
import transformers

from benchmarks.peers import protocol

#: Names of the same functions there.
ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu"}


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Forward and backward pass, gradients clipped, AdamW, in one graph of many steps."""
    tf.config.threading.set_intra_op_parallelism_threads(setup["threads"])
    tf_keras.utils.set_random_seed(0)
    tf_keras.mixed_precision.set_global_policy(setup["policy"])
    config = setup["config"]
    model = transformers.TFAlbertForPreTraining(
        transformers.AlbertConfig(
            **{**config, "hidden_act": ACTIVATIONS.get(config["hidden_act"], config["hidden_act"])},
            classifier_dropout_prob=0.0,
        )
    )
    model.build()
    variables = model.trainable_variables
    optimizer = tf_keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.build(variables)

    batch = {name: tf.constant(value) for name, value in np.load(setup["batch"]).items()}
    inputs = {
        "input_ids": tf.cast(batch["input_ids"], tf.int32),
        "attention_mask": tf.cast(batch["input_mask"], tf.int32),
        "token_type_ids": tf.cast(batch["segment_ids"], tf.int32),
    }
    labels, order = batch["labels"], batch["next_sentence_labels"]

    def library_loss() -> tf.Tensor:
        outputs = model(**inputs, labels=labels, sentence_order_label=order, training=True)
        return outputs.loss[0]

    def masked_only_loss() -> tf.Tensor:
        hidden, pooled = model.albert(**inputs, training=True)[:2]
        hidden = tf.gather(hidden, batch["masked_lm_positions"], batch_dims=1)
        logits = model.predictions(hidden_states=hidden)
        sop_logits = model.sop_classifier(pooled_output=pooled, training=True)
        return sum(
            tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, tf.cast(found, tf.float32))
            )
            for wanted, found in ((batch["masked_lm_ids"], logits), (order, sop_logits))
        )

    loss_function = masked_only_loss if setup["masked_only"] else library_loss

    @tf.function
    def run(steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                value = loss_function()
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
            loss = tf.cast(value, tf.float32)
        return loss

    return lambda steps: float(run(tf.constant(steps)))


if __name__ == "__main__":
    protocol.serve(build, ("transformers", "tensorflow"))
