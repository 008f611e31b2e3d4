# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Exports a classifier as a SavedModel that takes texts, or the graph from ids to probabilities.

classify = tf.saved_model.load(path)
classify(["one text", "another"])["label"]
classify(["a premise"], ["a hypothesis"])["probabilities"]
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.export.saved_model import (
    Export,
    Kind,
    Outputs,
    ReusableSavedModel,
    input_specs,
    strings,
)
from albert_tf.export.self_check import SENTENCES, Probe, as_bytes, text_batches
from albert_tf.export.text_graph import cut_padding, pack, tokenizer_graph
from albert_tf.io.text_tables import TextExample
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.classification.task import TextClassificationTask

KIND = Kind(
    "ALBERT text classifier",
    """import tensorflow as tf
import tensorflow_text  # registers the operations that read text

classify = tf.saved_model.load("{name}")
classify(["A text."])""",
)


def classifier_export(task: TextClassificationTask, model: AlbertClassifier) -> Export:
    """Returns the SavedModel of a classifier.

    The root takes `sentences`, string [B], and for pairs `second_sentences`, string [B]; an empty
    second sentence counts as none. It returns `label`, string [B], and `probabilities`, float32
    [B, labels], in the order of `labels()`; or for regression `value`, float32 [B]. Longer texts
    are cut as in training. The signature `serving_default` takes `sentences`, and `pairs` both.
    """
    graph = tokenizer_graph(task.tokenizer)
    length, labels = task.spec.max_seq_length, task.spec.labels

    # Both signatures call this graph: tracing and storing a deep model takes seconds and megabytes.
    @tf.function(autograph=False, input_signature=[input_specs()])
    def outputs_of(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with graph_mode(GraphMode.SERVED):
            return classifier_outputs(task, model)(cut_padding(inputs), training=False)

    @tf.function(autograph=False)
    def classify(
        sentences: tf.Tensor, second_sentences: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        texts = [sentences] if second_sentences is None else [sentences, second_sentences]
        segments = [graph(text) for text in texts]
        outputs = outputs_of(pack(segments, length, task.tokenizer, skip_empty_second=True))
        if labels:
            best = tf.argmax(outputs["probabilities"], axis=-1)
            outputs["label"] = tf.gather(tf.constant(labels), best)
        return outputs

    @tf.function(autograph=False, input_signature=[])
    def all_labels() -> tf.Tensor:
        return tf.constant(labels, tf.string, [len(labels)])

    root = ReusableSavedModel(classify, list(model.named_weights().values()), trainable=False)
    root.tokenizer = graph
    root.labels = ReusableSavedModel(all_labels)
    sentences, second = strings("sentences"), strings("second_sentences")
    signatures = {
        "serving_default": classify.get_concrete_function(sentences),
        "pairs": classify.get_concrete_function(sentences, second),
    }
    return Export(KIND, root, signatures, _probes(task, model))


def _probes(task: TextClassificationTask, model: AlbertClassifier) -> list[Probe]:
    """Returns probes with single texts and with pairs."""
    labels, probes = task.spec.labels, []
    predict = functools.partial(task.predict, model)
    for texts in text_batches():
        for seconds in (None, SENTENCES[: len(texts)]):
            pairs = zip(texts, seconds or [None] * len(texts))
            examples = [TextExample("", text, second, None, "") for text, second in pairs]
            outputs = task.encode(examples, "probes", labelled=False).outputs(predict)
            arguments = {"sentences": as_bytes(texts)}
            if seconds:
                arguments["second_sentences"] = as_bytes(seconds)
            if labels:
                best = [labels[i] for i in outputs["probabilities"].argmax(axis=-1)]
                expected = {"label": as_bytes(best), "probabilities": outputs["probabilities"]}
            else:
                expected = {"value": outputs["values"]}
            probes.append(Probe(arguments, expected))
    return probes


def classifier_outputs(task: TextClassificationTask, model: AlbertClassifier) -> Outputs:
    """Returns a function to `probabilities` [B, labels], or for regression to `value` [B]."""

    def classify(inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        logits = model(inputs, training=training)["logits"]
        if task.spec.labels:
            return {"probabilities": tf.nn.softmax(logits)}
        return {"value": logits[:, 0]}

    return classify
