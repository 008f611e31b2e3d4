# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a model of sentence vectors: texts in, vectors out.

embed = tf.saved_model.load(path)
embed(["one text", "another"])["embedding"]
"""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from albert_tf.export.text_form import SENTENCES, TextForm, pack
from albert_tf.training.task import Tensors


class EmbeddingForm(TextForm):
    """Embeds texts.

    It takes `texts`, string [B], and returns `embedding`, float32 [B, H]. Longer texts are cut as
    in training.
    """

    title = "ALBERT text embedder"
    call = 'embed(["A text.", "Another one."])["embedding"]'
    samples: ClassVar = {"texts": SENTENCES}
    columns = ("text",)
    takes_ids = True

    def outputs(self, texts: tf.Tensor) -> Tensors:
        """See the class."""
        inputs = pack([self.ids(texts)], self.task.spec.max_seq_length, self.tokenizer)
        return self.predict(inputs)
