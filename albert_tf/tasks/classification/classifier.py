# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TextClassifier and TextRegressor: trained on texts, they predict a label or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import Label, class_labels
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.tasks.classification.labels import label_settings
from albert_tf.tasks.classification.task import TextClassificationTask
from albert_tf.tasks.fine_tuned import FineTunedModel
from albert_tf.tasks.tables import TextColumns, TextExample, read_texts, with_labels
from albert_tf.tokenization.tokenizer import checked_texts

if TYPE_CHECKING:
    from typing_extensions import Self


class Classified(NamedTuple):
    """A label of a text, and its probability."""

    label: Label
    probability: float


class _TextModel(FineTunedModel):
    """A model of texts or pairs of texts; `_has_labels`: whether of labels, or numbers."""

    task_class = TextClassificationTask

    def __init__(
        self, task: TextClassificationTask, model: AlbertModel, output_dir: str = ""
    ) -> None:
        if bool(task.spec.labels) != self._has_labels:
            kinds = ("labels; open it with TextClassifier", "numbers; open it with TextRegressor")
            raise AlbertError(f"The model in {output_dir} predicts {kinds[self._has_labels]}.")
        super().__init__(task, model, output_dir)

    @property
    def takes_pairs(self) -> bool:
        """Whether the model was trained on pairs of texts."""
        return self.task.spec.columns.text_pair is not None

    @classmethod
    def train(
        cls,
        model: str,
        train: Any,
        eval: Any = None,
        *,
        text: str = "text",
        text_pair: str | None = None,
        label: str = "label",
        label_separator: str | None = None,
        **settings: Any,
    ) -> Self:
        """Fine-tunes a pretrained model, with the recipe and the results of run_classifier.py.

        If the output directory holds a run with the same settings and data, it is resumed, or
        loaded if it is complete.

        Args:
          model: what to start from; see `albert_tf.load_pretrained`.
          train: the training data: the path of a .tsv, .csv or .jsonl file, a list of dicts, a dict
            of columns, a pandas DataFrame, a `datasets.Dataset`, or a `tf.data.Dataset` of dicts.
          eval: data to evaluate on, in any of these forms; None: no evaluation. With
            `eval_every_steps` in the settings, the best weights are kept.
          text: the column of the text.
          text_pair: the column of the second text; None for single texts.
          label: the column of the label, or of the number. If it holds lists, a text may have any
            number of labels, also none.
          label_separator: what is between several labels in a text, such as "|", instead of lists.
          **settings: `output_dir`, which is required, and other fields of
            FineTuneConfig, such as `num_train_epochs`, `learning_rate`, `max_seq_length` or `seed`,
            which override the recipe; or of ClassificationSpec, such as `doc_stride`.

        Returns:
          The trained model.

        Raises:
          AlbertError: the data, the model or a setting is wrong, or the output directory holds
            another run.

        Example:
          classifier = TextClassifier.train(
              "albert_tiny_books", "train.tsv", "dev.tsv", text="sentence", label="author",
              output_dir="runs/authors", num_train_epochs=3)
        """
        names = (text, text_pair, label)  # Those of a data frame may be numbers.
        columns = TextColumns(
            *(None if name is None else str(name) for name in names),
            label_separator=label_separator,
        )
        spec = {"columns": columns}
        examples = with_labels(cls._read(train, "train", spec))
        order = class_labels(train, columns.label)
        spec |= label_settings(examples, not cls._has_labels, order)
        return cls._train(model, examples, eval, spec, settings)

    @classmethod
    def _read(cls, data: Any, name: str, spec: Mapping[str, Any]) -> list[TextExample]:
        return read_texts(data, spec["columns"], name)

    def _outputs(
        self, texts: Sequence[str], second_texts: Sequence[str] | None, batch_size: int | None
    ) -> np.ndarray:
        """Returns the output of the task for texts, in their order."""
        texts = checked_texts(texts)
        seconds = [None] * len(texts)
        if texts and (second_texts is not None) != self.takes_pairs:
            advice = "pairs of texts; give" if self.takes_pairs else "single texts; leave out"
            raise AlbertError(f"The model was trained on {advice} the second texts.")
        if second_texts is not None:
            seconds = checked_texts(second_texts, "second texts")
        if len(texts) != len(seconds):
            raise AlbertError(f"There are {len(texts)} texts, but {len(seconds)} second texts.")
        if not texts:
            return np.zeros([0, len(self.task.spec.labels)][: 1 + self._has_labels], np.float32)
        examples = [TextExample("", a, b, None, "") for a, b in zip(texts, seconds)]
        found = self.task.of_texts(*self._outputs_of(examples, batch_size))
        return next(iter(found.values()))


class TextClassifier(_TextModel):
    """Predicts the label, or labels, of a text or pair of texts. `train` and `load` create it.

    Example:
      classifier = TextClassifier.load("runs/mine")
      classifier.predict(["A text.", "Another one."])[0].label
    """

    _has_labels = True

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels in the order of `probabilities`, with the type that they have in the data."""
        return self.task.spec.labels

    def predict(
        self,
        texts: Sequence[str],
        second_texts: Sequence[str] | None = None,
        batch_size: int | None = None,
    ) -> list[Classified] | list[list[Classified]]:
        """Returns the most probable label of each text, or pair of texts, and its probability.

        If texts may have several labels, returns a list for each text: the labels whose
        probabilities are above their thresholds, the most probable first.

        Texts are computed in batches of similar lengths, `batch_size` at a time if it is given.

        Raises:
          AlbertError: the texts are not lists of strings or differ in number from the second texts,
            or there are no second texts for a model of pairs, or some for one of single texts.
          DivergedError: the model answers with NaN.
        """
        probabilities = self.probabilities(texts, second_texts, batch_size)
        if not self.task.spec.multi_label:
            return [Classified(self.labels[x.argmax()], float(x.max())) for x in probabilities]
        return [
            [Classified(self.labels[i], float(row[i])) for i in np.argsort(-row) if chosen[i]]
            for row, chosen in zip(probabilities, self.task.chosen(probabilities))
        ]

    def probabilities(
        self,
        texts: Sequence[str],
        second_texts: Sequence[str] | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray:
        """Returns the probabilities of all `labels`, float32 [texts, labels].

        Raises:
          AlbertError: as `predict`.
        """
        return self._outputs(texts, second_texts, batch_size)


class TextRegressor(_TextModel):
    """Predicts a number for a text, or for a pair of texts. `train` and `load` create it.

    Example:
      regressor = TextRegressor.train("albert_tiny_books", "train.csv", text="review",
                                      label="stars", output_dir="runs/stars")
      regressor.predict(["A text.", "Another one."])
    """

    _has_labels = False

    def predict(
        self,
        texts: Sequence[str],
        second_texts: Sequence[str] | None = None,
        batch_size: int | None = None,
    ) -> np.ndarray:
        """Returns the numbers for texts, or pairs of texts, float32 [texts].

        Raises:
          AlbertError: as `TextClassifier.predict`.
        """
        return self._outputs(texts, second_texts, batch_size)
