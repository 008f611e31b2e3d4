# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights that do not fit the model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.load import POSITIONS, load_weights
from tests.support.builders import tiny_config

PROJECTION = "bert/encoder/embedding_hidden_mapping_in/kernel"
LAYER = "bert/encoder/transformer/group_{}/inner_group_0/ffn_1/intermediate/dense/kernel"
POOLER = {f"bert/pooler/dense/{part}": [2] for part in ("bias", "kernel")}


def variables(value, shapes):
    return {
        name: tf.Variable(tf.random.normal(shape) if value else tf.zeros(shape))
        for name, shape in {"bert/a/kernel": [2], **shapes}.items()
    }


@pytest.fixture
def load(tmp_path):
    """Loads weights of some shapes into a model with others; returns model and report."""

    def loaded(stored, shapes, whole=False):
        weights = {name: value.numpy() for name, value in variables(1, stored).items()}
        write_tf2(str(tmp_path), tiny_config(9), None, weights)
        model = variables(0, shapes)
        return weights, model, load_weights(str(tmp_path), model, whole)

    return loaded


@pytest.mark.parametrize(
    ("stored", "model", "difference"),
    [
        ({}, {"bert/new/kernel": [2]}, "it lacks bert/new/kernel"),
        ({PROJECTION: [2]}, {}, f"it also has {PROJECTION}"),  # E = H, but it is projected.
        ({}, {"bert/a/kernel": [3]}, r"bert/a/kernel \(shape \[2\], not \[3\]\)"),
        ({LAYER.format(0): [2]}, {}, rf"it also has {LAYER.format(0)}\. Use the configuration"),
        (
            {LAYER.format(0): [2]},
            {LAYER.format(1): [2]},
            f"it lacks {LAYER.format(1)}; it also has {LAYER.format(0)}",
        ),
        ({POSITIONS: [5, 2]}, {POSITIONS: [4, 2]}, r"position_embeddings \(shape \[5, 2\], not"),
        ({POSITIONS: [5, 2]}, {POSITIONS: [12, 3]}, r"position_embeddings \(shape \[5, 2\], not"),
        (
            POOLER,
            {name: [3] for name in POOLER},
            r"bert/pooler/dense/bias \(shape \[2\], not \[3\]\)",
        ),
    ],
)
def test_an_encoder_that_does_not_fit_is_refused(load, stored, model, difference):
    with pytest.raises(AlbertError, match=difference):
        load(stored, model)


def test_a_model_for_longer_sequences_repeats_the_positions_between_first_and_last(load):
    weights, model, report = load({POSITIONS: [5, 2]}, {POSITIONS: [12, 2]}, whole=True)
    rows = [0, 1, 2, 3, 4, 1, 2, 3, 1, 2, 3, 1]
    np.testing.assert_array_equal(model[POSITIONS].numpy(), weights[POSITIONS][rows])
    assert report.repeated == 5
    assert str(report).splitlines()[-1] == "  positions from 5 on repeat the checkpoint's"


def test_the_pooler_may_be_missing_unless_the_model_must_be_whole(load):
    assert load({}, POOLER)[2].missing == tuple(POOLER)
    with pytest.raises(AlbertError, match=r"it lacks bert/pooler/dense/bias, bert/pooler"):
        load({}, POOLER, whole=True)


def test_heads_may_be_missing_and_are_reported(load):
    weights, model, report = load({"cls/x": [1]}, {"output_bias": [5]})
    assert report.missing == ("output_bias",) and report.unexpected == ("cls/x",)
    assert str(report).splitlines()[1:] == [
        "  not in the checkpoint, left at random: output_bias",
        "  in the checkpoint, not in the model: cls/x",
    ]
    np.testing.assert_array_equal(model["bert/a/kernel"], weights["bert/a/kernel"])
    assert (model["output_bias"].numpy() == 0).all()
