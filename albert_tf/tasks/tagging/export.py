# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The SavedModel of a tagger: texts in, entities out.

find = tf.saved_model.load(path)
find(["Ada Lovelace was born in London."])["label"]
"""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from albert_tf.export.text_form import SENTENCES, TextForm, pack
from albert_tf.tasks.tagging.data import Entity
from albert_tf.tasks.tagging.task import TaggedSet, place_words
from albert_tf.tasks.tagging.words import word_spans
from albert_tf.tokenization.graph import before, valid_utf8
from albert_tf.training.task import Arrays, Tensors


class TagForm(TextForm):
    """Finds the entities in texts as TextTagger does; for tags without prefixes, each word is one.

    It takes `texts`, string [B], of any length. It returns, each [B, entities] with empty ones at
    the end of rows: `text` and `label`, string; `start` and `end`, int32, its characters
    [start, end); and `score`, float32, the mean probability of the tags of its words.
    """

    title = "ALBERT tagger"
    call = 'find(["Ada Lovelace was born in London."])["label"]'
    samples: ClassVar = {"texts": SENTENCES}
    columns = ("text",)
    takes_ids = True

    @property
    def labels(self) -> tuple[str, ...]:
        """See TextForm."""
        return self.task.spec.tags

    def outputs(self, texts: tf.Tensor) -> Tensors:
        """See the class."""
        spec = self.task.spec
        words, starts, ends = word_spans(texts)
        pieces = self.ids(words.values)
        is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], self.tokenizer.unk_id)
        unknown = tf.RaggedTensor.from_row_lengths(unknown, is_empty)
        pieces = words.with_values(tf.concat([pieces, unknown], axis=1))
        windows, places = place_words(pieces, spec)
        ids = tf.gather(pieces.flat_values, windows.pieces)
        outputs = self.predict(pack([ids], spec.max_seq_length, self.tokenizer))
        tags, scores = (tf.gather_nd(outputs[name], places) for name in ("tags", "scores"))
        # As albert_tf.tasks.tagging.data.entities.
        prefix, label = (tf.gather(tf.constant(x), tags) for x in zip(*map(spec.kind, self.labels)))
        row, match = words.value_rowids(), tf.strings.regex_full_match
        begins = match(prefix, "[BS]") | match(before(prefix, ""), "[ES]")
        begins |= (label != before(label, "")) | (row != before(row, -1))
        inside = label != ""
        first = tf.where(begins & inside)[:, 0]
        number = tf.boolean_mask(tf.cumsum(tf.cast(begins & inside, tf.int32)) - 1, inside)
        row, start = tf.gather(row, first), tf.gather(starts.values, first)
        end = tf.math.segment_max(tf.boolean_mask(ends.values, inside), number)
        of_row = tf.gather(valid_utf8(texts), row)
        found = {
            "text": tf.strings.substr(of_row, start, end - start, "UTF8_CHAR"),
            "label": tf.gather(label, first),
            "start": start,
            "end": end,
            "score": tf.math.segment_mean(tf.boolean_mask(scores, inside), number),
        }
        ragged = tf.RaggedTensor.from_value_rowids
        count = tf.size(texts, tf.int64)
        return {name: ragged(x, row, count).to_tensor() for name, x in found.items()}

    def found(self, data: TaggedSet, outputs: Arrays) -> Arrays:
        """See TextForm."""
        rows = [result.entities for result in data.results(outputs, self.task.spec)]
        kinds, found = (tf.string, tf.string, tf.int32, tf.int32, tf.float32), {}
        for name, kind in zip(Entity._fields, kinds):
            values = [[getattr(entity, name) for entity in row] for row in rows]
            values = tf.ragged.constant(values, kind, ragged_rank=1).to_tensor().numpy()
            found[name] = values.astype("S") if kind is tf.string else values
        return found
