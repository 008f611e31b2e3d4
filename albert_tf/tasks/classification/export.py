# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a classifier, or of a regression.

classify = tf.saved_model.load(path)
classify(["one text", "another"])["label"]
classify(["a premise"], ["a hypothesis"])["probabilities"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.export.self_check import TOLERANCE
from albert_tf.export.text_form import SENTENCES, TextForm, pack
from albert_tf.tasks.classification.task import TextSet
from albert_tf.tasks.tables import TextExample
from albert_tf.tasks.windows import text_windows
from albert_tf.training.task import Arrays, Tensors


class ClassifierForm(TextForm):
    """Classifies texts, or pairs of texts.

    It takes `sentences`, string [B], and for pairs `second_sentences`, string [B]; an empty second
    sentence counts as none. It returns `label` [B], a string, or an int64, float64 or bool if the
    labels are such, and `probabilities`, float32 [B, labels], in the order of `labels()`. If texts
    may have several labels, `chosen`, bool [B, labels], says in place of `label` which of them are
    above their thresholds. A regression returns `value`, float32 [B]. Longer texts are cut, or
    become windows, as in training. The signature `serving_default` takes `sentences`, and `pairs`
    both; of a model of pairs, both take both.
    """

    title = "ALBERT text classifier"
    call = 'classify(["A text."])'
    samples: ClassVar = {"sentences": SENTENCES, "second_sentences": SENTENCES[::-1]}
    takes_ids = True

    @property
    def labels(self) -> Sequence[object]:
        """See TextForm."""
        return self.task.spec.labels

    def signatures(self) -> dict[str, Sequence[str]]:
        """See TextForm."""
        pairs = [*self.samples]
        is_single = self.task.spec.columns.text_pair is None
        return {"serving_default": pairs[:1] if is_single else pairs, "pairs": pairs}

    def outputs(self, sentences: tf.Tensor, second_sentences: tf.Tensor | None = None) -> Tensors:
        """See the class."""
        spec, given = self.task.spec, [sentences]
        if second_sentences is not None:
            given.append(second_sentences)
        segments = [self.ids(text) for text in given]
        if spec.doc_stride:
            texts, segments = self._windows(segments)
        inputs = pack(segments, spec.max_seq_length, self.tokenizer, skip_empty_second=True)
        outputs = self.predict(inputs)
        if spec.doc_stride:
            outputs = self.task.pooled(outputs["logits"], texts)
        if spec.multi_label:
            outputs["chosen"] = self.task.chosen(outputs["probabilities"])
        elif self.labels:
            best = tf.argmax(outputs["probabilities"], axis=-1)
            outputs["label"] = tf.gather(np.array(self.labels), best)
        return outputs

    def examples(self, *texts: Sequence[str]) -> list[TextExample]:
        """See TextForm."""
        pairs = zip(*texts, [None] * len(texts[0]))
        return [TextExample("", text, second, None, "") for text, second, *_ in pairs]

    def found(self, data: TextSet, outputs: Arrays) -> Arrays:
        """See TextForm. Masks what is `chosen` if rounding may decide it."""
        outputs = self.task.of_texts(data, outputs)
        if self.task.spec.multi_label:
            low, high = (outputs["probabilities"] + x for x in (-TOLERANCE, TOLERANCE))
            low, high = self.task.chosen(low), self.task.chosen(high)
            outputs["chosen"] = np.ma.masked_where(low != high, high)
        return outputs

    def _windows(
        self, segments: Sequence[tf.RaggedTensor]
    ) -> tuple[tf.Tensor, list[tf.RaggedTensor]]:
        """Returns the text of each window, and the ids of its segments; see `text_windows`."""
        lengths = [ids.row_lengths() for ids in segments]
        lengths += [tf.zeros_like(lengths[0])] * (2 - len(lengths))
        texts, *ranges = text_windows(*lengths, self.task.spec)
        shown = []
        for ids, places in zip(segments, ranges):
            places += tf.gather(ids.row_starts(), texts)[:, None]
            shown.append(tf.gather(ids.values, tf.ragged.range(places[:, 0], places[:, 1])))
        return texts, shown
