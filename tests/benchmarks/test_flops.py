# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Counted operations against the matrix products in the graph."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.modeling.question_answering import AlbertSpanAnswerer
from benchmarks.flops import forward_flops

pytestmark = pytest.mark.tooling

BATCH, LENGTH, PREDICTIONS = 2, 16, 3
CONFIG = AlbertConfig.from_preset("albert_test")


def product_flops(graph):
    """2 m k n over all matrix products of a graph."""
    total = 0
    for op in graph.get_operations():
        if op.type in ("MatMul", "BatchMatMulV2"):
            flag = "transpose_a" if op.type == "MatMul" else "adj_x"
            inner = op.inputs[0].shape[-2 if op.get_attr(flag) else -1]
            total += 2 * inner * op.outputs[0].shape.num_elements()
    return total


@pytest.mark.parametrize("embedding_size", [16, 32])
@pytest.mark.parametrize("inner_group_num", [1, 2])
def test_forward_flops_are_those_of_the_products_in_the_graph(embedding_size, inner_group_num):
    config = dataclasses.replace(
        CONFIG, embedding_size=embedding_size, inner_group_num=inner_group_num
    )
    model = AlbertPretrainer(config)
    ids = tf.TensorSpec([BATCH, LENGTH], tf.int32)
    positions = tf.TensorSpec([BATCH, PREDICTIONS], tf.int32)
    forward = tf.function(lambda a, b: model({"input_word_ids": a, "masked_lm_positions": b}))
    graph = forward.get_concrete_function(ids, positions).graph
    assert product_flops(graph) == BATCH * forward_flops(config, LENGTH, PREDICTIONS)


@pytest.mark.parametrize(
    ("model_of", "read"),
    [(lambda config: AlbertClassifier(config, 2), 1), (AlbertSpanAnswerer, None)],
    ids=["classifier", "span"],
)
def test_a_classifier_reads_one_position_of_the_last_layer(model_of, read):
    model = model_of(CONFIG)
    ids = tf.TensorSpec([BATCH, LENGTH], tf.int32)
    forward = tf.function(lambda ids: model({"input_word_ids": ids}))
    products = product_flops(forward.get_concrete_function(ids).graph)
    head = 2 * 2 * CONFIG.hidden_size * (read or LENGTH)
    assert products == BATCH * (forward_flops(CONFIG, LENGTH, num_read=read) + head)
