# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The training step of Model Garden's ALBERT, which is its task's own. See protocol.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from official.modeling import optimization
from official.nlp.configs import bert, encoders
from official.nlp.tasks import masked_lm

from benchmarks.peers import protocol


def _task(config: dict[str, Any]) -> masked_lm.MaskedLMTask:
    if config["num_hidden_groups"] != 1 or config["inner_group_num"] != 1:
        raise SystemExit("Model Garden's ALBERT has one group with one block.")
    if config["hidden_act"] == "gelu_erf":
        raise SystemExit("Model Garden's gelu is the tanh approximation.")
    encoder = encoders.AlbertEncoderConfig(
        vocab_size=config["vocab_size"],
        embedding_width=config["embedding_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        hidden_activation=config["hidden_act"],
        intermediate_size=config["intermediate_size"],
        dropout_rate=config["hidden_dropout_prob"],
        attention_dropout_rate=config["attention_probs_dropout_prob"],
        max_position_embeddings=config["max_position_embeddings"],
        type_vocab_size=config["type_vocab_size"],
        initializer_range=config["initializer_range"],
    )
    # The pooler is a part of this head; the encoder's own is not trained.
    head = bert.ClsHeadConfig(inner_dim=config["hidden_size"], name="next_sentence")
    return masked_lm.MaskedLMTask(
        masked_lm.MaskedLMConfig(
            model=bert.PretrainerConfig(
                encoder=encoders.EncoderConfig(type="albert", albert=encoder),
                cls_heads=[head],
                mlm_activation=config["hidden_act"],
            )
        )
    )


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Forward and backward pass, gradients clipped, AdamW, in one graph of many steps."""
    tf.config.threading.set_intra_op_parallelism_threads(setup["threads"])
    tf.keras.utils.set_random_seed(0)
    tf.keras.mixed_precision.set_global_policy(setup["policy"])
    task = _task(setup["config"])
    model = task.build_model()
    adam_with_clipping = {"type": "adamw", "adamw": {"weight_decay_rate": 0.01}}
    rate = {"type": "constant", "constant": {"learning_rate": 1e-4}}
    optimizer = task.create_optimizer(
        optimization.OptimizationConfig({"optimizer": adam_with_clipping, "learning_rate": rate})
    )

    batch = {name: tf.constant(value) for name, value in np.load(setup["batch"]).items()}
    renamed = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
    inputs = {renamed.get(name, name): value for name, value in batch.items()}
    inputs = {
        name: tf.cast(value, tf.int32) if value.dtype.is_integer else value
        for name, value in inputs.items()
    }
    # The losses' means alone, which the step needs; accuracies would cost time.
    means = [tf.keras.metrics.Mean(name) for name in ("lm_example_loss", "next_sentence_loss")]

    @tf.function
    def run(steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = task.train_step(inputs, model, optimizer, means)[task.loss]
        return loss

    return lambda steps: float(run(tf.constant(steps)))


if __name__ == "__main__":
    protocol.serve(build, ("tf-models-official", "tensorflow"))
