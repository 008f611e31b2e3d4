# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a multiple-choice model: texts, questions and options in, answers out.

choose = tf.saved_model.load(path)
choose(["a text"], ["a question"], [["first option", "second", "third"]])["answer"]
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from albert_tf.export.packing import cut_padding, join, keep, merge_words
from albert_tf.export.saved_model import Export, Kind, strings, text_model
from albert_tf.export.self_check import OPTIONS, QUESTIONS, Probe, as_bytes, text_batches
from albert_tf.modeling.classifier import AlbertMultipleChoice
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.tasks.multiple_choice.data import MultipleChoiceExample
from albert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from albert_tf.training.task import Tensors

KIND = Kind.of_texts(
    "ALBERT multiple choice",
    "choose",
    'choose(["A text."], ["A question?"], [["first option", "second"]])["answer"]',
)


def _option_texts(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Applies multiple_choice.task.option_text to strings [N] and [N]."""
    # The parts between the blanks, each but the last followed by the option.
    parts = tf.strings.split(tf.strings.regex_replace(questions, "_+", "_"), "_")
    row = parts.value_rowids()
    is_last = tf.range(tf.size(row), dtype=tf.int64) == tf.gather(parts.row_limits(), row) - 1
    filled = tf.strings.join([parts.values, tf.where(is_last, "", tf.gather(options, row))])
    filled = tf.strings.reduce_join(parts.with_values(filled), axis=1)
    following = tf.where(questions == "", options, tf.strings.join([questions, options], " "))
    return tf.where(parts.row_lengths() > 1, filled, following)


def multiple_choice_export(task: MultipleChoiceTask, model: AlbertMultipleChoice) -> Export:
    """Returns the SavedModel of a multiple-choice model.

    The root, and `serving_default`, take `texts` and `questions`, string [B], and `options`, string
    [B, C] for any number C. They return the chosen option as `answer`, string [B], and `index`,
    int32 [B], and `probabilities`, float32 [B, C].
    """
    graph, spec = task.tokenizer.graph(), task.spec
    specs = [strings("texts"), strings("questions"), strings("options", rank=2)]

    @tf.function(autograph=False, input_signature=specs)
    def choose(texts: tf.Tensor, questions: tf.Tensor, options: tf.Tensor) -> Tensors:
        choices = tf.shape(options)[1]
        asked = _option_texts(tf.repeat(questions, choices), tf.reshape(options, [-1]))
        ends = keep(merge_words(graph(asked)), spec.max_qa_length, at_end=True)
        row = tf.repeat(tf.range(tf.size(texts)), choices)
        texts = tf.gather(merge_words(graph(texts)), row)
        texts = keep(texts, spec.max_seq_length - 3 - ends.row_lengths())
        inputs = cut_padding(join([texts, ends], spec.max_seq_length, task.tokenizer))
        length = tf.shape(inputs["input_mask"])[1]
        inputs = {k: tf.reshape(v, [-1, choices, length]) for k, v in inputs.items()}
        with graph_mode(GraphMode.SERVED):
            outputs = task.predict(model, inputs)
        best = tf.argmax(outputs["probabilities"], axis=-1, output_type=tf.int32)
        return {"answer": tf.gather(options, best, batch_dims=1), "index": best, **outputs}

    probes = []
    for texts in text_batches():
        questions = QUESTIONS[: len(texts)]
        examples = [
            MultipleChoiceExample("", text, question, OPTIONS, None, "", "")
            for text, question in zip(texts, questions)
        ]
        inputs = {
            "texts": as_bytes(texts),
            "questions": as_bytes(questions),
            "options": np.stack([as_bytes(OPTIONS)] * len(texts)),
        }
        probes.append(Probe(inputs, task.outputs(model, examples)))
    root = text_model(choose, graph, model)
    return Export(KIND, root, {"serving_default": choose}, probes)
