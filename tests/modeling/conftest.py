# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden fixture of the TF1 release, and a small configuration with every feature."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.keras2 import keras

FIXTURE = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "golden_fixture.json").read_text()
)


@dataclasses.dataclass(frozen=True)
class GoldenCase:
    """One configuration of the fixture with its inputs and expected arrays."""

    config: AlbertConfig
    inputs: dict[str, tf.Tensor]
    labels: dict[str, np.ndarray]
    expected: dict

    def fill(self, model) -> None:
        """Gives the k-th weight of variable j the value 0.05 sin(1 + 0.7 j + 0.13 k)."""
        for j, (name, variable) in enumerate(model.named_weights().items()):
            k = np.arange(variable.shape.num_elements())
            value = 0.05 * np.sin(1 + 0.7 * j + 0.13 * k) + name.endswith("gamma")
            variable.assign(value.reshape(variable.shape).astype(np.float32))


@pytest.fixture(params=["groups1_inner1", "groups2_inner1", "groups1_inner2"])
def golden(request) -> GoldenCase:
    values = dict(FIXTURE["config"])
    values["hidden_dropout_prob"] = values.pop("dropout")
    groups, inner = int(request.param[6]), int(request.param[-1])
    row, column = np.mgrid[:2, :7]
    mask = np.ones([2, 7], np.int32)
    mask[1, -2:] = 0
    given = FIXTURE["inputs"]
    return GoldenCase(
        config=AlbertConfig(**values, num_hidden_groups=groups, inner_group_num=inner),
        inputs={
            "input_word_ids": tf.constant((5 * row + 3 * column + 2) % 37, tf.int32),
            "input_mask": tf.constant(mask),
            "input_type_ids": tf.constant(column >= 4, tf.int32),
            "masked_lm_positions": tf.constant(given["masked_lm_positions"], tf.int32),
        },
        labels={
            name: np.array(given[name])
            for name in ("masked_lm_ids", "masked_lm_weights", "sop_labels")
        },
        expected=FIXTURE["cases"][request.param],
    )


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


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(7)
