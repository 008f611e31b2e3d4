# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a classifier as a SavedModel that takes texts, or the graph from ids to probabilities.

classify = tf.saved_model.load(path)
classify(["one text", "another"])["label"]
classify(["a premise"], ["a hypothesis"])["probabilities"]
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.export.packing import cut_padding, pack
from albert_tf.export.saved_model import (
    Export,
    Kind,
    ReusableSavedModel,
    input_specs,
    strings,
    text_model,
)
from albert_tf.export.self_check import SENTENCES, Probe, as_bytes, text_batches
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.tables import TextExample
from albert_tf.training.task import Tensors

KIND = Kind.of_texts("ALBERT text classifier", "classify", 'classify(["A text."])')


def classifier_export(task: TextClassificationTask, model: AlbertClassifier) -> Export:
    """Returns the SavedModel of a classifier.

    The root takes `sentences`, string [B], and for pairs `second_sentences`, string [B]; an empty
    second sentence counts as none. It returns `label` [B], a string, or an int64, float64 or bool
    if the labels are such, and `probabilities`, float32 [B, labels], in the order of `labels()`; or
    for regression `value`, float32 [B]. Longer texts are cut as in training. The signature
    `serving_default` takes `sentences`, and `pairs` both; of a model of pairs, both take both.
    """
    graph = task.tokenizer.graph()
    length, labels = task.spec.max_seq_length, task.spec.labels
    numbers = labels and not isinstance(labels[0], str)
    values = np.array(labels) if numbers else as_bytes([*labels, ""])[:-1]

    # Both signatures call this graph: tracing and storing a deep model takes seconds and megabytes.
    @tf.function(autograph=False, input_signature=[input_specs()])
    def outputs_of(inputs: Tensors) -> Tensors:
        with graph_mode(GraphMode.SERVED):
            return task.predict(model, cut_padding(inputs))

    @tf.function(autograph=False)
    def classify(sentences: tf.Tensor, second_sentences: tf.Tensor | None = None) -> Tensors:
        texts = [sentences] if second_sentences is None else [sentences, second_sentences]
        segments = [graph(text) for text in texts]
        outputs = outputs_of(pack(segments, length, task.tokenizer, skip_empty_second=True))
        if labels:
            best = tf.argmax(outputs["probabilities"], axis=-1)
            outputs["label"] = tf.gather(tf.constant(values), best)
        return outputs

    @tf.function(autograph=False, input_signature=[])
    def all_labels() -> tf.Tensor:
        return tf.constant(values)

    root = text_model(classify, graph, model)
    root.labels = ReusableSavedModel(all_labels)
    sentences, second = strings("sentences"), strings("second_sentences")
    pairs = single = classify.get_concrete_function(sentences, second)
    if takes_singles := task.spec.columns.text_pair is None:
        single = classify.get_concrete_function(sentences)
    signatures = {"serving_default": single, "pairs": pairs}
    probes = []
    for texts in text_batches():
        for seconds in [None, SENTENCES[: len(texts)]][not takes_singles :]:
            pairs = zip(texts, seconds or [None] * len(texts))
            examples = [TextExample("", text, second, None, "") for text, second in pairs]
            expected = task.outputs(model, examples)
            arguments = {"sentences": as_bytes(texts)}
            if seconds:
                arguments["second_sentences"] = as_bytes(seconds)
            if labels:
                expected["label"] = values[expected["probabilities"].argmax(axis=-1)]
            probes.append(Probe(arguments, expected))
    return Export(KIND, root, signatures, probes)
