# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a multiple-choice model: texts, questions and options in, answers out.

choose = tf.saved_model.load(path)
choose(["a text"], ["a question"], [["first option", "second", "third"]])["answer"]
"""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from albert_tf.export.text_form import QUESTIONS, SENTENCES, TextForm, keep, pack
from albert_tf.training.task import Tensors

_OPTIONS = ("fox", "the lazy dog", "1,234 readers", "nobody", "London")


def _option_texts(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Applies multiple_choice.task.option_text to strings [N] and [N]."""
    parts = tf.strings.split(tf.strings.regex_replace(questions, "_+", "_"), "_")
    # The option follows each part between the blanks; after the last one it is cut off again.
    filled = tf.strings.join([parts.values, tf.gather(options, parts.value_rowids())])
    filled = tf.strings.reduce_join(parts.with_values(filled), axis=1)
    length = tf.strings.length(filled) - tf.strings.length(options)
    filled = tf.strings.substr(filled, tf.zeros_like(length), length)
    following = tf.where(questions == "", options, tf.strings.join([questions, options], " "))
    return tf.where(parts.row_lengths() > 1, filled, following)


class ChoiceForm(TextForm):
    """Chooses one of the options for each question.

    It takes `texts` and `questions`, string [B], and `options`, string [B, C] for any number C. It
    returns the chosen option as `answer`, string [B], and `index`, int32 [B], and `probabilities`,
    float32 [B, C].
    """

    title = "ALBERT multiple-choice model"
    call = 'choose(["A text."], ["A question?"], [["first option", "second"]])["answer"]'
    samples: ClassVar = {"texts": SENTENCES, "questions": QUESTIONS, "options": [_OPTIONS] * 3}
    columns = "context", "question", "options"

    def outputs(self, texts: tf.Tensor, questions: tf.Tensor, options: tf.Tensor) -> Tensors:
        """See the class."""
        spec, choices = self.task.spec, tf.shape(options)[1]
        asked = _option_texts(tf.repeat(questions, choices), tf.reshape(options, [-1]))
        ends = keep(self.ids(asked), spec.max_qa_length, at_end=True)
        texts = tf.gather(self.ids(texts), tf.repeat(tf.range(tf.size(texts)), choices))
        texts = keep(texts, spec.max_seq_length - 3 - ends.row_lengths())
        inputs = pack([texts, ends], spec.max_seq_length, self.tokenizer)
        shape = [-1, choices, spec.max_seq_length]
        outputs = self.predict({k: tf.reshape(v, shape) for k, v in inputs.items()})
        best = tf.argmax(outputs["probabilities"], axis=-1, output_type=tf.int32)
        return {"answer": tf.gather(options, best, batch_dims=1), "index": best, **outputs}
