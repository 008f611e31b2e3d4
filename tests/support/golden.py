# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The golden fixture: outputs and training traces of the TF1 release, with weights by a formula."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import AlbertModel

FIXTURE = json.loads((Path(__file__).parents[1] / "golden" / "golden_fixture.json").read_text())


@dataclasses.dataclass(frozen=True)
class GoldenCase:
    """One configuration of the fixture with its inputs, labels and expected values."""

    config: AlbertConfig
    inputs: dict[str, tf.Tensor]
    labels: dict[str, np.ndarray]
    expected: dict[str, Any]

    def fill(self, model: AlbertModel) -> None:
        """Gives the k-th weight of variable j the value 0.05 sin(1 + 0.7 j + 0.13 k)."""
        for j, (name, variable) in enumerate(model.named_weights().items()):
            k = np.arange(variable.shape.num_elements())
            value = 0.05 * np.sin(1 + 0.7 * j + 0.13 * k) + name.endswith("gamma")
            variable.assign(value.reshape(variable.shape).astype(np.float32))

    def losses(self, outputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the release's losses: of each masked position, of all of them, of the order."""
        per_position = tf.nn.sparse_softmax_cross_entropy_with_logits(
            self.labels["masked_lm_ids"], outputs["mlm_logits"]
        )
        weights = tf.constant(self.labels["masked_lm_weights"], tf.float32)
        mlm = tf.reduce_sum(weights * per_position) / (tf.reduce_sum(weights) + 1e-5)
        sop = tf.nn.sparse_softmax_cross_entropy_with_logits(
            self.labels["sop_labels"], outputs["sop_logits"]
        )
        return per_position, mlm, tf.reduce_mean(sop)


def golden_case(name: str) -> GoldenCase:
    """Returns a case of the fixture, such as "groups2_inner1"."""
    fields = dict(FIXTURE["config"])
    fields["hidden_dropout_prob"] = fields.pop("dropout")
    row, column = np.mgrid[:2, :7]
    mask = np.ones([2, 7], np.int32)
    mask[1, -2:] = 0
    values = FIXTURE["inputs"]
    return GoldenCase(
        config=AlbertConfig(
            **fields, num_hidden_groups=int(name[6]), inner_group_num=int(name[-1])
        ),
        inputs={
            "input_word_ids": tf.constant((5 * row + 3 * column + 2) % 37, tf.int32),
            "input_mask": tf.constant(mask),
            "input_type_ids": tf.constant(column >= 4, tf.int32),
            "masked_lm_positions": tf.constant(values["masked_lm_positions"], tf.int32),
        },
        labels={
            label: np.array(values[label])
            for label in ("masked_lm_ids", "masked_lm_weights", "sop_labels")
        },
        expected=FIXTURE["cases"][name],
    )
