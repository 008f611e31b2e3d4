# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tagging as a task: its model, loss, windows, metrics and predictions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from albert_tf.data.length_batches import NO_NUMBER, Sequences
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.io.log import log
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertTagger
from albert_tf.tasks.fine_tuning_task import ExampleSet, FineTuningTask, logits_of
from albert_tf.tasks.tagging.data import (
    Entity,
    Tagged,
    TaggedText,
    TaggingSpec,
    entities,
    read_tagged,
    tag_settings,
)
from albert_tf.tasks.windows import Windows, cut_windows, shows_most
from albert_tf.tokenization.sequences import join_segments
from albert_tf.training.specs import FLOAT32
from albert_tf.training.task import Arrays, Batch, Metrics, Tensors, correct
from albert_tf.weights.run_folder import RunFolder

#: Less than half a unit of any count of words in float32.
_TINY = 1e-30


@dataclasses.dataclass(eq=False)
class TaggedSet(ExampleSet):
    """Texts, whose sequences are windows of them.

    `places`, int64 [words, 2], has each word's window and the position of its first piece there.
    """

    places: np.ndarray | None = None

    def results(self, outputs: Arrays, spec: TaggingSpec) -> list[Tagged]:
        """Returns what each text has, given the outputs of `TaggingTask.predict`."""
        numbers, scores = (outputs[name][tuple(self.places.T)] for name in ("tags", "scores"))
        results, begin = [], 0
        for example in self.examples:
            rows = slice(begin, begin := begin + len(example.words))
            tags, found = [spec.tags[number] for number in numbers[rows]], []
            for first, end, label in sorted(entities(tags, spec)):
                start, stop = example.words[first][0], example.words[end - 1][1]
                score = float(scores[rows][first:end].mean())
                found.append(Entity(example.text[start:stop], label, start, stop, score))
            words = [example.text[start:end] for start, end in example.words]
            results.append(Tagged(words, tags, found))
        return results


class TaggingTask(FineTuningTask):
    """Predicts the tag of each word at its first piece, in the window that shows it best."""

    name = "tagging"
    spec_class = TaggingSpec
    form = "albert_tf.tasks.tagging.export.TagForm"
    read, learned = staticmethod(read_tagged), staticmethod(tag_settings)
    names_of_outputs = "tags"
    best_metric = "f1"
    prediction_files = ("predictions.txt",)
    #: No entity at all.
    constant_answers: ClassVar = {"f1": ""}

    def encode(
        self, examples: Sequence[TaggedText], *, labelled: bool = True, training: bool = False
    ) -> TaggedSet:
        """See FineTuningTask. Makes [CLS] pieces [SEP] of the windows of each text.

        A word becomes pieces by itself, at least the unknown one. `tags` of the batches has the
        number of a word's tag at its place, and NO_NUMBER elsewhere.
        """
        for example in examples if labelled else ():
            if example.tags is None:
                raise AlbertError(
                    f"{example.where}: the tags are missing; training and evaluation need them."
                )
        words = [x.text[start:end] for x in examples for start, end in x.words]
        distinct = [*dict.fromkeys(words)]
        known = dict(zip(distinct, self.tokenizer.encode_batch(distinct)))
        ids = [known[word] or [self.tokenizer.unk_id] for word in words]
        sizes = [len(x.words) for x in examples], [*map(len, ids)]
        ids = np.array([*itertools.chain(*ids)], np.int32)
        with tf.device("CPU"):
            pieces = tf.RaggedTensor.from_nested_row_lengths(ids, sizes)
            windows, places = place_words(pieces, self.spec)
        sequences = [
            join_segments(self.tokenizer, ids[first : first + size])
            for first, size in zip(windows.first.numpy(), windows.size.numpy())
        ]
        places, tags = places.numpy(), [np.full(len(x), NO_NUMBER) for x in sequences]
        gold = [tag for x in examples for tag in x.tags] if labelled else []
        numbers = {tag: number for number, tag in enumerate(self.spec.tags)}
        for tag, (window, position) in zip(gold, places):
            tags[window][position] = numbers.get(tag, NO_NUMBER)
        made = ((sequence, len(sequence)) for sequence in sequences)
        data = Sequences(made, self.tokenizer.pad_id, token_columns={"tags": tags})
        summary = f"{len(examples):,} texts, {len(words):,} words, {len(sequences):,} windows"
        unknown = sorted({*gold} - {*numbers})
        notes = [f"the training data has no tags {joined(unknown)}"] if unknown else ()
        return TaggedSet(examples, data, summary, notes=notes, places=places)

    def build_model(self, dtype: str = FLOAT32) -> AlbertTagger:
        """Builds the encoder with its head."""
        return AlbertTagger(self.config, len(self.spec.tags), self.dropout_rate, dtype)

    def weights(self, batch: Batch) -> Tensors:
        """Counts the words in the batch."""
        # Without a word, as in an empty text, the mean is 0.
        return {"examples": tf.reduce_sum(tf.cast(batch["tags"] >= 0, tf.float32)) + _TINY}

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> Tensors:
        """Sums the loss of the words, and the correct tags."""
        logits, tags = logits_of(model, batch, training), batch["tags"]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(tags, 0), logits)
        losses = tf.where(tags >= 0, losses, 0.0)
        right = tf.reduce_sum(correct(logits, tags))
        return {"loss": tf.reduce_sum(losses), "accuracy": right}

    def predict(self, model: keras.Model, batch: Batch) -> Tensors:
        """Returns the best `tags`, int32, and their `scores`, float32, [batch, max_seq_length].

        Both are 0 in the padding, whatever its length is.
        """
        probabilities = tf.nn.softmax(logits_of(model, batch))
        tags = tf.argmax(probabilities, -1, tf.int32)
        outputs = {"tags": tags, "scores": tf.reduce_max(probabilities, -1)}
        present = batch["input_mask"] > 0
        outputs = {k: tf.where(present, x, tf.zeros_like(x)) for k, x in outputs.items()}
        padding = [[0, 0], [0, tf.maximum(self.spec.max_seq_length - tf.shape(tags)[1], 0)]]
        return {name: tf.pad(value, padding) for name, value in outputs.items()}

    def metrics(self, outputs: Arrays, examples: TaggedSet) -> Metrics:
        """Returns precision, recall and F1 of entities, overall and by label, and token accuracy.

        Those of `conlleval`; the ones named strict are of seqeval's strict mode, see `entities`.
        """
        found = [result.tags for result in examples.results(outputs, self.spec)]
        return tagging_metrics([text.tags for text in examples.examples], found, self.spec)

    def write_predictions(self, data: TaggedSet, outputs: Arrays, folder: RunFolder) -> None:
        """Writes predictions.txt: a word and its tag per line, an empty line after each text."""
        lines = []
        for words, tags, _ in data.results(outputs, self.spec):
            lines += [f"{' '.join(word.split())}\t{tag}\n" for word, tag in zip(words, tags)]
            lines.append("\n")
        files.write_text(path := folder.file(*self.prediction_files), "".join(lines))
        log.info(f"Tags of {len(data.examples):,} texts are in {path}.")


def place_words(pieces: tf.RaggedTensor, spec: TaggingSpec) -> tuple[Windows, tf.Tensor]:
    """Cuts texts into windows, and finds the one that shows most context around each word.

    `pieces` are the ids of the words of texts, [B, (words), (pieces)], with one or more for each
    word. The sequence of a window is [CLS] pieces [SEP].

    Returns:
      The windows; for each word, int64 [W, 2], the number of its window and the position of its
      first piece there.
    """
    ids = pieces.merge_dims(1, 2)
    lengths = ids.row_lengths()
    # As those of contexts with questions; without one, there is no [SEP] after it.
    windows = cut_windows(ids.row_starts(), lengths, -tf.ones_like(lengths), spec)
    row, piece = windows.pieces.value_rowids(), windows.pieces.values
    is_first = tf.ragged.range(pieces.values.row_lengths()).values == 0
    chosen = tf.gather(is_first, piece) & shows_most(windows, row, piece[:, None])[:, 0]
    # In the order of the words: the later a piece, the later the window that shows it best.
    position = piece - tf.gather(windows.first, row) + tf.gather(windows.context_start, row)
    return windows, tf.boolean_mask(tf.stack([row, position], axis=1), chosen)


def tagging_metrics(
    gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], spec: TaggingSpec
) -> Metrics:
    """Computes the metrics of tags of the words of texts; see `TaggingTask.metrics`."""
    metrics = {}
    for prefix, form in (("", ".+"), ("strict_", spec.strict_form)):
        sets = [
            {(i, *x) for i, tags in enumerate(rows) for x in entities(tags, spec, form)}
            for rows in (gold, found)
        ]
        labels = () if prefix else sorted({x[-1] for x in set.union(*sets)})
        for name, label in ((prefix, ""), *((f"{label}_", label) for label in labels)):
            true, guessed = ({x for x in chosen if label in ("", x[-1])} for chosen in sets)
            right = len(true & guessed)
            metrics[f"{name}precision"] = right / max(len(guessed), 1)
            metrics[f"{name}recall"] = right / max(len(true), 1)
            metrics[f"{name}f1"] = 2 * right / max(len(guessed) + len(true), 1)
    right = [a == b for row in zip(gold, found) for a, b in zip(*row)]
    return {**metrics, "accuracy": sum(right) / max(len(right), 1)}
