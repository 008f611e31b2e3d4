# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Golden cases, a small model's configuration and inputs, and a check of gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras
from albert_tf.modeling.kernels.graph_mode import TrainingStep, training_step
from tests.support.golden import GoldenCase, golden_case


@pytest.fixture(params=["groups1_inner1", "groups2_inner1", "groups1_inner2"])
def golden(request) -> GoldenCase:
    return golden_case(request.param)


@pytest.fixture
def small_config() -> AlbertConfig:
    return AlbertConfig.from_preset("albert_test")


@pytest.fixture
def small_inputs(small_config) -> dict[str, tf.Tensor]:
    """Two rows of length 10, the second one padded from position 6 on."""
    generator = np.random.default_rng(0)
    ids = generator.integers(5, small_config.vocab_size, [2, 10]).astype(np.int32)
    mask = np.ones([2, 10], np.int32)
    mask[1, 6:] = 0
    return {
        "input_word_ids": tf.constant(ids * mask),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.constant((np.arange(10) >= 4) * mask, tf.int32),
        "masked_lm_positions": tf.constant([[1, 3, 8], [2, 5, 0]], tf.int32),
    }


def loss_and_gradients(model, inputs, recompute=False, seed=(1, 2)):
    """Returns a loss of both heads of a pretrainer, and the gradients of all weights as tensors."""
    step = training_step(TrainingStep(tf.constant(seed), recompute=recompute))
    with step, tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = tf.reduce_mean(outputs["mlm_logits"] ** 2) + tf.reduce_sum(outputs["sop_logits"])
    gradients = tape.gradient(loss, list(model.named_weights().values()))
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(7)
