# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""ClassificationSpec: the settings of classification and regression, some of them flags."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import from_json, joined, short_repr
from albert_tf.io.text_tables import Label, label_text
from albert_tf.settings import Settings, as_plain, count_setting, setting, training_setting
from albert_tf.tasks.tables import TextColumns
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH

#: The default columns of tables.
COLUMNS = TextColumns("text", label="label")
#: The largest number to predict: its square, which the loss has, is finite in float32.
LARGEST = 1e18
BALANCED = "balanced"
MEAN = "mean"
#: Metrics that may select the best weights, the default first; those in which smaller is better.
_OF_LABELS = ("accuracy", "macro_f1", "loss", "f1", "matthews_corr")
_OF_SETS = ("mean_average_precision", "micro_f1", "macro_f1", "loss")
_OF_NUMBERS = ("pearson", "spearman", "mse", "loss")
SMALLER_IS_BETTER = ("loss", "mse")


@dataclasses.dataclass(frozen=True)
class ClassificationSpec(Settings):
    """The settings of a classification or regression task.

    Attributes:
      labels: the classes in the order of the model's outputs, texts or numbers; empty for
        regression.
      max_seq_length: the maximum length of a text or window in tokens.
      columns: the columns of the training file.
      task_name: "custom", or the name of a GLUE task.
      mean, deviation: of the numbers that a regression is trained on, which learns them with mean 0
        and deviation 1 and answers in their own unit. GLUE's STS-B learns them as they are, as in
        the release.
      multi_label: whether a text may have any number of the labels.
      doc_stride, window_pooling, best_metric, positive_label, class_weights: see their help. Class
        weights may be given as a dict; they become text, in the order of the labels.

    Raises:
      AlbertError: the labels are neither texts nor numbers, or a setting does not fit them.
    """

    labels: tuple[Label, ...]
    max_seq_length: int = setting(help="Maximum length in tokens.", minimum=MIN_SEQ_LENGTH)
    columns: TextColumns = COLUMNS
    task_name: str = "custom"
    mean: float = 0.0
    deviation: float = 1.0
    multi_label: bool = False
    doc_stride: int | None = count_setting(
        None,
        "Cut long texts into overlapping windows of max_seq_length: the tokens between the starts "
        "of consecutive ones. Of pairs, the second texts are cut, and each window has the first "
        "text. Each text counts the same in the training loss, and its windows share that equally; "
        "predictions and metrics are of texts. Default: none, longer texts lose their ends.",
    )
    window_pooling: str = setting(
        MEAN,
        "How the logits of a text's windows, or of a regression its numbers, become one: their "
        "mean, or for each label the maximum.",
        choices=(MEAN, "max"),
        flag=None,
    )
    best_metric: str | None = training_setting(
        None,
        "The metric that selects the best weights and ends the training with "
        "early_stopping_evals. Default: accuracy; mean_average_precision for several labels per "
        "text, pearson for regression; GLUE's own for its tasks.",
        choices=(None, *dict.fromkeys(_OF_LABELS + _OF_SETS + _OF_NUMBERS)),
    )
    positive_label: str | None = training_setting(
        None,
        "The label that precision, recall and f1 are of. Default: with two labels, f1 is of the "
        "second one.",
    )
    class_weights: str | None = training_setting(
        None,
        f"{BALANCED}, or name:weight,... by label (others have 1): the loss of each training "
        "example is multiplied by the weight of its label, divided by the mean weight of all "
        f"training examples. {BALANCED}: in inverse proportion to the number of examples with the "
        "label, so that each label has the same part in the loss. With several labels per text, "
        "the loss of a label is multiplied by its weight in the texts that have it, and by 1 in "
        f"the others; {BALANCED}: the number of texts without it by that of texts with it. Metrics "
        "are not weighted.",
    )

    def __post_init__(self) -> None:
        """Checks the values, and brings columns and weights into their form."""
        labels, weights = self.labels, self.class_weights
        positive = as_plain(self.positive_label)
        fit = isinstance(labels, tuple) and (
            all(isinstance(label, str) for label in labels) or are_numbers(labels)
        )
        if not fit:
            raise AlbertError(f"`labels`={short_repr(labels)} are neither texts nor numbers.")
        if not isinstance(self.columns, TextColumns):
            columns = from_json(TextColumns, self.columns, "`columns`")
            object.__setattr__(self, "columns", columns)
        if isinstance(weights, Mapping):
            text = ",".join(f"{label_text(label)}:{weight}" for label, weight in weights.items())
            object.__setattr__(self, "class_weights", text)
        if isinstance(positive, (int, float)):
            object.__setattr__(self, "positive_label", label_text(positive))
        super().__post_init__()
        if self.positive_label not in (None, *(() if self.multi_label else self.names)):
            raise AlbertError(
                f"`positive_label`={short_repr(self.positive_label)} must be one of the labels "
                f"{joined(labels)}, of which each text must have one."
            )
        if self.class_weights is not None:
            self.weights_by_label()
        if self.window_pooling != MEAN and not self.doc_stride:
            raise AlbertError("`window_pooling` needs `doc_stride`, which cuts texts into windows.")
        if self.best_metric not in (None, *self.metrics):
            raise AlbertError(
                f"`best_metric`={self.best_metric} is no metric of these labels; use one of "
                f"{joined(self.metrics)}; f1 needs two labels or `positive_label`."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as tables hold them."""
        return tuple(map(label_text, self.labels))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that may select the best weights, the default first."""
        if self.multi_label:
            return _OF_SETS
        # Always there, of a positive label, of two labels.
        number = 5 if len(self.labels) == 2 else 4 if self.positive_label else 3
        return _OF_LABELS[:number] if self.labels else _OF_NUMBERS

    @property
    def positive(self) -> int | None:
        """The number of the positive label, if there is one."""
        return self.names.index(self.positive_label) if self.positive_label else None

    def weights_by_label(self) -> dict[str, float]:
        """Returns the weights in `class_weights`, in the order of the labels; none if balanced."""
        text, names = self.class_weights, self.names
        form = r"(.+?):(\d*\.?\d+(?:e[-+]?\d+)?)(?:,|$)"
        given = {label: float(weight) for label, weight in re.findall(form, text)}
        is_given = re.fullmatch(f"(?:{form})+", text) and given.keys() <= {*names}
        if not names or not (
            text == BALANCED
            or (is_given and all(0 < weight < math.inf for weight in given.values()))
        ):
            raise AlbertError(
                f"`class_weights`={short_repr(text)} must be {BALANCED} or name:weight,... with "
                f"numbers above 0 for the labels {joined(names)}."
            )
        return {name: given[name] for name in names if name in given}


def are_numbers(labels: Sequence[object]) -> bool:
    """Returns whether labels are distinct numbers that 64 bits can hold, or are all booleans."""
    numbers = {x for x in labels if isinstance(x, (int, float)) and abs(x) < 2**63}
    kinds = {isinstance(x, bool) for x in numbers}
    return len(numbers) == len(labels) and len(kinds) == 1
