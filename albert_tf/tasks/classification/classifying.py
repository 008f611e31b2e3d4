# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassifier: classifies texts with the model of an output directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.keras2 import keras
from albert_tf.tasks.classification.features import featurize
from albert_tf.tasks.classification.glue_tasks import find_task
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.tokenization.sequences import pad_sequences
from albert_tf.tokenization.tokenizer import checked_texts
from albert_tf.training.checkpoints import load_weights
from albert_tf.weights.model_folders import model_folder

_BATCH = 64


def _takes_pairs(spec: ClassificationSpec) -> bool:
    """Whether a model was trained on pairs of texts; True if that is unknown."""
    columns = spec.columns
    if columns is None and spec.task_name != "custom":
        columns = find_task(spec.task_name).splits[0].columns
    return columns is None or columns.text_pair is not None


class Classified(NamedTuple):
    """The most probable label of a text, and its probability."""

    label: str
    probability: float


class TextClassifier:
    """Classifies texts, or predicts a number for each, with a model of run_classifier.

    Args:
      task: the task of the model.
      model: with its weights.

    Example:
      classifier = TextClassifier.load("runs/mine")
      classifier.classify(["A text.", "Another one."])[0].label
    """

    def __init__(self, task: TextClassificationTask, model: keras.Model) -> None:
        self.task, self.model = task, model
        token = tf.TensorSpec([None, None], tf.int32)
        names = ("input_word_ids", "input_mask", "input_type_ids")
        label = tf.TensorSpec([None], tf.int32)
        self._predict = tf.function(
            lambda batch: self.task.predict(self.model, batch),
            [{**dict.fromkeys(names, token), "label_ids": label}],
            autograph=False,
        )

    @classmethod
    def load(cls, folder: str) -> TextClassifier:
        """Loads the model in an output directory of run_classifier, or that of its best seed.

        Raises:
          AlbertError: there is no such model.
        """
        folder = model_folder(folder)
        task = TextClassificationTask.load(folder)
        model = task.build_model()
        load_weights(folder, model.named_weights(), whole=True)
        return cls(task, model)

    def classify(
        self, texts: Sequence[str], second_texts: Sequence[str] | None = None
    ) -> list[Classified]:
        """Returns the most probable label of each text, or pair of texts.

        Raises:
          AlbertError: the model predicts numbers, the texts are not lists of strings or differ in
            number from the second texts, or second texts are given to a model of single texts.
        """
        labels = self.task.spec.labels
        return [
            Classified(labels[row.argmax()], float(row.max()))
            for row in self.probabilities(texts, second_texts)
        ]

    def probabilities(
        self, texts: Sequence[str], second_texts: Sequence[str] | None = None
    ) -> np.ndarray:
        """Returns the probabilities of `task.spec.labels`, float32 [texts, labels].

        Raises:
          AlbertError: as `classify`.
        """
        if not self.task.spec.labels:
            raise AlbertError("The model predicts numbers, not labels; call `values`.")
        return self._outputs("probabilities", texts, second_texts)

    def values(self, texts: Sequence[str], second_texts: Sequence[str] | None = None) -> np.ndarray:
        """Returns the predictions of a regression model, float32 [texts].

        Raises:
          AlbertError: the model predicts labels; for the texts, as `classify`.
        """
        if self.task.spec.labels:
            raise AlbertError("The model predicts labels, not numbers; call `classify`.")
        return self._outputs("values", texts, second_texts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies the task and the model, without TensorFlow's traced functions."""
        return type(self), (self.task, self.model)

    def _outputs(
        self, name: str, texts: Sequence[str], second_texts: Sequence[str] | None
    ) -> np.ndarray:
        texts = checked_texts(texts)
        seconds = [None] * len(texts)
        if second_texts is not None:
            seconds = checked_texts(second_texts, "second texts")
            if not _takes_pairs(self.task.spec):
                raise AlbertError(
                    "The model was trained on single texts; leave the second texts out."
                )
        if len(texts) != len(seconds):
            raise AlbertError(f"There are {len(texts)} texts, but {len(seconds)} second texts.")
        if not texts:
            raise AlbertError("There is no text to classify; give at least one.")
        examples = [TextExample("", a, b, None, "") for a, b in zip(texts, seconds)]
        parts = [
            self._predict(self._batch(examples[start : start + _BATCH]))[name].numpy()
            for start in range(0, len(examples), _BATCH)
        ]
        return np.concatenate(parts)

    def _batch(self, examples: Sequence[TextExample]) -> dict[str, np.ndarray]:
        """Returns the model's inputs, int32 [examples, longest], and unused label ids."""
        tokenizer = self.task.tokenizer
        columns, _ = featurize(tokenizer, examples, self.task.spec.max_seq_length)
        inputs = pad_sequences(tokenizer, columns["input_ids"], columns["first_lengths"][:, 0])
        return {**inputs, "label_ids": np.zeros(len(examples), np.int32)}
