# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Labels, or numbers, for texts at hand, from the model of an output directory."""

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
from albert_tf.tasks.classification.task import (
    ClassificationSpec,
    TextClassificationTask,
)
from albert_tf.tokenization.tokenizer import checked_texts
from albert_tf.training.checkpoints import load_weights
from albert_tf.weights.model_folders import model_folder

_BATCH = 64


def _takes_pairs(spec: ClassificationSpec) -> bool:
    """Whether a model was trained on pairs of texts, or nothing tells."""
    columns = spec.columns
    if columns is None and spec.task_name != "custom":
        columns = find_task(spec.task_name).splits[0].columns
    return columns is None or columns.text_pair is not None


class Classified(NamedTuple):
    """The likeliest label of a text, and how likely the model takes it to be."""

    label: str
    probability: float


class TextClassifier:
    """Classifies texts, or gives them numbers, with a model of run_classifier.

    Args:
      task: what the model was trained for.
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
        """The model of an output directory of run_classifier, or of its best seed.

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
        """The likeliest label of each text, or pair of texts.

        Raises:
          AlbertError: the model gives numbers, the texts are not lists of strings, there are not as
            many second texts as texts, or the model was trained on single texts.
        """
        labels = self.task.spec.labels
        return [
            Classified(labels[row.argmax()], float(row.max()))
            for row in self.probabilities(texts, second_texts)
        ]

    def probabilities(
        self, texts: Sequence[str], second_texts: Sequence[str] | None = None
    ) -> np.ndarray:
        """Of each label, in the order of `task.spec.labels`; float32 [texts, labels].

        Raises:
          AlbertError: as `classify`.
        """
        if not self.task.spec.labels:
            raise AlbertError("The model gives numbers, not labels; ask for its values.")
        return self._outputs("probabilities", texts, second_texts)

    def values(self, texts: Sequence[str], second_texts: Sequence[str] | None = None) -> np.ndarray:
        """The numbers that a regression model gives the texts, float32 [texts].

        Raises:
          AlbertError: the model gives labels; or as `classify`, of the texts.
        """
        if self.task.spec.labels:
            raise AlbertError("The model gives labels, not numbers; ask it to classify.")
        return self._outputs("values", texts, second_texts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied are the task and the model, not what TensorFlow has traced."""
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
            raise AlbertError("There is no text to look at.")
        examples = [TextExample("", a, b, None, "") for a, b in zip(texts, seconds)]
        parts = [
            self._predict(self._batch(examples[start : start + _BATCH]))[name].numpy()
            for start in range(0, len(examples), _BATCH)
        ]
        return np.concatenate(parts)

    def _batch(self, examples: Sequence[TextExample]) -> dict[str, np.ndarray]:
        """The model's inputs, int32 [examples, longest], and label ids that nothing reads."""
        tokenizer = self.task.tokenizer
        columns, _ = featurize(tokenizer, examples, self.task.spec.max_seq_length)
        positions = np.arange(columns["row_lengths"].max())
        mask = positions < columns["row_lengths"]
        ids = np.full(mask.shape, tokenizer.pad_id, np.int32)
        ids[mask] = np.concatenate(columns["input_ids"])
        return {
            "input_word_ids": ids,
            "input_mask": mask.astype(np.int32),
            "input_type_ids": (mask & (positions >= columns["first_lengths"])).astype(np.int32),
            "label_ids": np.zeros(len(examples), np.int32),
        }
