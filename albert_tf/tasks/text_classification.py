# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Classification of, or regression on, single texts and pairs of texts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.config import CONFIG_FILE, AlbertConfig
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.records import classification_features
from albert_tf.data.text_tables import TextColumns, TextExample
from albert_tf.errors import AlbertError
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.modeling.flops import training_flops
from albert_tf.tasks.classification_features import build_records, label_dtype, label_set
from albert_tf.tasks.classification_metrics import classification_metrics, regression_metrics
from albert_tf.tokenization import SPEC_FILE, Tokenizer
from albert_tf.training.task import Batch, Task

TASK_FILE = "task.json"


@dataclasses.dataclass(frozen=True)
class ClassificationSpec:
    """What a classifier was trained to do; saved with it.

    Attributes:
      labels: the classes in the order of the model's outputs; empty for regression.
      max_seq_length: length that texts are padded or cut to.
      columns: where the training file had its texts and labels.
    """

    labels: tuple[str, ...]
    max_seq_length: int
    columns: TextColumns

    def save(self, folder: str) -> None:
        """Writes task.json."""
        files.write_json(os.path.join(folder, TASK_FILE), dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: str) -> ClassificationSpec:
        """Reads task.json.

        Raises:
          AlbertError: the folder is not that of a trained classifier.
        """
        path = os.path.join(folder, TASK_FILE)
        if not tf.io.gfile.exists(path):
            raise AlbertError(
                f"{folder} holds no trained classifier (it has no {TASK_FILE}); give the output "
                "directory of a training run, or train with --do_train."
            )
        value = files.read_json(path, "task description")
        try:
            columns = TextColumns(**value["columns"])
            return cls(tuple(value["labels"]), value["max_seq_length"], columns)
        except (KeyError, TypeError) as error:
            raise AlbertError(f"{path} does not describe a classifier: {error}.") from error


class TextClassificationTask(Task):
    """A linear layer on the pooled output; cross-entropy, or squared error for regression.

    Args:
      config: of the model.
      tokenizer: saved with the model.
      spec: labels and length.

    Raises:
      AlbertError: the configuration fits neither the tokenizer nor the length.
    """

    name = "text_classification"

    def __init__(
        self, config: AlbertConfig, tokenizer: Tokenizer, spec: ClassificationSpec
    ) -> None:
        if tokenizer.vocab_size != config.vocab_size:
            raise AlbertError(
                f"The vocabulary {tokenizer.spec.model_file} has {tokenizer.vocab_size} pieces, "
                f"but the model vocab_size={config.vocab_size}; give the checkpoint's vocabulary."
            )
        if spec.max_seq_length > config.max_position_embeddings:
            raise AlbertError(
                f"max_seq_length={spec.max_seq_length} exceeds the model's "
                f"max_position_embeddings={config.max_position_embeddings}."
            )
        self.config, self.tokenizer, self.spec = config, tokenizer, spec
        self.best_metric = "accuracy" if spec.labels else "pearson"
        self.training_flops = training_flops(config, spec.max_seq_length)

    def description(self) -> dict[str, object]:
        """The model's configuration, the tokenizer, the labels and the length."""
        return {
            "name": self.name,
            "config": self.config.to_dict(),
            "tokenizer": self.tokenizer.spec.to_dict(),
            "labels": list(self.spec.labels),
            "max_seq_length": self.spec.max_seq_length,
        }

    def save_files(self, folder: str) -> None:
        """Writes albert_config.json, the tokenizer and task.json."""
        self.config.to_json(os.path.join(folder, CONFIG_FILE))
        self.tokenizer.save(folder)
        self.spec.save(folder)

    def open_examples(
        self,
        examples: Sequence[TextExample],
        name: str,
        cache_dir: str,
        *,
        labelled: bool = True,
        train_seed: int | None = None,
    ) -> RecordSource:
        """Examples as input of this task, by way of records in the cache.

        Args:
          examples: the texts.
          name: what they are, for the terminal.
          cache_dir: where records are kept.
          labelled: whether the labels are used.
          train_seed: of the training order; None keeps the examples' own, for evaluation.
        """
        path = build_records(
            cache_dir,
            examples,
            self.tokenizer,
            self.spec.max_seq_length,
            self.spec.labels,
            labelled=labelled,
            shuffle_seed=train_seed,
        )
        features = classification_features(self.spec.max_seq_length, label_dtype(self.spec.labels))
        source = RecordSource([path], features, train_seed or 0)
        print(_summary(name, self.spec.max_seq_length, source.manifest.statistics))
        return source

    def build_model(self) -> AlbertClassifier:
        """Encoder and classification head."""
        return AlbertClassifier(self.config, len(self.spec.labels) or 1)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Examples in the batch."""
        return {"examples": tf.cast(tf.shape(batch["label_ids"])[0], tf.float32)}

    def sums(self, model: tf.keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Summed loss and, for classification, correct answers."""
        logits, labels = _logits(model, batch, training), batch["label_ids"]
        if not self.spec.labels:
            return {"loss": tf.reduce_sum(tf.square(logits[:, 0] - labels))}
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        right = tf.cast(tf.argmax(logits, -1, tf.int32) == labels, tf.float32)
        return {"loss": tf.reduce_sum(losses), "accuracy": tf.reduce_sum(right)}

    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Mean loss and, for classification, accuracy."""
        return {name: value / weights["examples"] for name, value in sums.items()}

    def predict(self, model: tf.keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """`probabilities` [batch, labels], or `values` [batch] for regression; and `label_ids`."""
        logits = _logits(model, batch, training=False)
        if self.spec.labels:
            return {"probabilities": tf.nn.softmax(logits), "label_ids": batch["label_ids"]}
        return {"values": logits[:, 0], "label_ids": batch["label_ids"]}

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """See albert_tf.tasks.classification_metrics."""
        if self.spec.labels:
            return classification_metrics(outputs["probabilities"], outputs["label_ids"])
        return regression_metrics(outputs["values"], outputs["label_ids"])

    def progress(self, means: Mapping[str, float]) -> str:
        """Loss and accuracy."""
        shown = super().progress(means)
        return f"{shown} accuracy {means['accuracy']:.1%}" if self.spec.labels else shown


def _logits(model: tf.keras.Model, batch: Batch, training: bool) -> tf.Tensor:
    inputs = ("input_word_ids", "input_mask", "input_type_ids")
    return model({name: batch[name] for name in inputs}, training=training)["logits"]


def _summary(name: str, max_seq_length: int, statistics: Mapping[str, object]) -> str:
    """A line on a data set, with advice where its length is badly chosen."""
    examples, longest = statistics["examples"], statistics["longest"]
    line = f"{name}: {examples:,} examples, {statistics['mean_length']:.0f} tokens on average"
    if statistics["truncated"]:
        line += f"; {statistics['truncated']:,} are longer than {max_seq_length} tokens and cut"
    elif longest <= max_seq_length // 2:
        line += f"; --max_seq_length={longest} would hold the longest and be faster"
    if statistics.get("labels"):
        shares = {k: v / examples for k, v in statistics["labels"].items()}
        most = sorted(shares, key=shares.get, reverse=True)[:5]
        line += "; labels " + ", ".join(f"{label} {shares[label]:.1%}" for label in most)
        line += " …" if len(shares) > len(most) else ""
    return line


def find_model_file(checkpoint: str | None, name: str) -> str | None:
    """A file that a run keeps next to its checkpoints; None if there is none.

    Args:
      checkpoint: an output directory, a folder of checkpoints in it, or a checkpoint's name.
      name: albert_config.json or tokenizer.json.
    """
    folder = checkpoint or ""
    for _ in range(3):
        if not folder:
            return None
        path = os.path.join(folder, name)
        if tf.io.gfile.exists(path):
            return path
        folder = os.path.dirname(folder)
    return None


def load_model_files(
    config_file: str | None,
    vocabulary: str | None,
    lower_case: bool | None,
    checkpoint: str | None,
) -> tuple[AlbertConfig, Tokenizer]:
    """The model's configuration and tokenizer, as given or else from beside the checkpoint.

    Args:
      config_file: JSON file, or a preset, whose vocabulary size then follows the tokenizer.
      vocabulary: SentencePiece model, WordPiece vocabulary or tokenizer.json.
      lower_case: see Tokenizer.from_file.
      checkpoint: see find_model_file.

    Raises:
      AlbertError: one of them is neither given nor found.
    """
    paths = {}
    for flag, given, name in (
        ("--albert_config_file", config_file, CONFIG_FILE),
        ("--spm_model_file or --vocab_file", vocabulary, SPEC_FILE),
    ):
        paths[name] = given or find_model_file(checkpoint, name)
        if not paths[name]:
            reason = "no --init_checkpoint tells it"
            if checkpoint:
                reason = f"there is no {name} beside {checkpoint}"
            raise AlbertError(f"{flag} is needed: {reason}.")
    tokenizer = Tokenizer.from_file(paths[SPEC_FILE], lower_case)
    config = AlbertConfig.load(paths[CONFIG_FILE])
    if paths[CONFIG_FILE] in AlbertConfig.preset_names():
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    return config, tokenizer


def new_task(
    examples: Sequence[TextExample],
    columns: TextColumns,
    config: AlbertConfig,
    tokenizer: Tokenizer,
    regression: bool = False,
    max_seq_length: int | None = None,
) -> TextClassificationTask:
    """The task that training examples define: their labels are its labels.

    Args:
      examples: the training examples.
      columns: where they come from.
      config: of the model.
      tokenizer: of the model.
      regression: whether labels are numbers.
      max_seq_length: None for 512, or what the model can read.
    """
    labels = () if regression else label_set(examples)
    length = max_seq_length or min(512, config.max_position_embeddings)
    return TextClassificationTask(config, tokenizer, ClassificationSpec(labels, length, columns))


def load_task(folder: str, columns: Mapping[str, str]) -> TextClassificationTask:
    """The task that a model in `folder` was trained for, with some other columns if given."""
    spec = ClassificationSpec.load(folder)
    spec = dataclasses.replace(spec, columns=dataclasses.replace(spec.columns, **columns))
    return TextClassificationTask(*load_model_files(None, None, None, folder), spec)


def write_predictions(
    path: str,
    examples: Sequence[TextExample],
    outputs: Mapping[str, np.ndarray],
    labels: Sequence[str],
) -> None:
    """Writes a TSV file: id, prediction and, for classification, the probability of each label."""
    rows = [["id", "prediction", *labels]]
    if labels:
        for example, row in zip(examples, outputs["probabilities"]):
            rows.append([example.id, labels[row.argmax()], *(f"{p:.6f}" for p in row)])
    else:
        for example, value in zip(examples, outputs["values"]):
            rows.append([example.id, f"{value:.6f}"])
    # A tab or line end inside an id or label would break the table.
    text = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    files.write_text(path, text)
