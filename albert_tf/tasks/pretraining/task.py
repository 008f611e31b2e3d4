# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Pretraining: masked LM and sentence order prediction (paper, sections 3.1 and 4.1)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.config import CONFIG_FILE, AlbertConfig, missing_setting
from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.dynamic_masking import DynamicMasking
from albert_tf.data.manifest import COMPACT_PRETRAINING, Manifest, find_manifest
from albert_tf.data.masking_options import MaskingOptions
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.record_files import record_files
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.keras2 import keras
from albert_tf.modeling.flops import training_flops
from albert_tf.modeling.kernels.cross_entropy import cross_entropy
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer
from albert_tf.training.divergence import Plateau
from albert_tf.training.task import Batch, Task, correct
from albert_tf.weights.load import open_source

AUTO, STATIC, DYNAMIC = MASKING = ("auto", "static", "dynamic")
#: Of spans and numbers of predictions; a sequence has no more tokens.
_MAX_SIZE = 1 << 16
#: The release divides the masked LM loss by the sum of weights plus this.
_EPSILON = 1e-5
#: Predictions whose frequencies stand for those of all records.
_COUNTED_PREDICTIONS = 200_000


class PretrainingTask(Task):
    """Masked LM plus sentence order prediction.

    Args:
      config: of the model.
      source: the training records.
      sop_weight: factor of the sentence order loss; 0 trains the masked LM alone, which is also
        done for records without a sentence objective.
    """

    name = "pretraining"
    best_metric = "masked_lm_accuracy"

    def __init__(self, config: AlbertConfig, source: RecordSource, sop_weight: float = 1.0) -> None:
        self.config = config
        self.sop_weight = sop_weight
        if source.manifest and source.manifest.options.get("sentence_objective") == "none":
            self.sop_weight = 0.0
        self._source = source
        self._predictions = _lengths(source.features, source.manifest)[1]
        self._tokenizer_file = os.path.join(os.path.dirname(source.files[0]), SPEC_FILE)

    def description(self) -> dict[str, object]:
        """The model's configuration and the loss."""
        return {"name": self.name, "config": self.config.to_dict(), "sop_weight": self.sop_weight}

    def save_files(self, folder: str) -> None:
        """Writes albert_config.json and, if the records came with it, the tokenizer."""
        self.config.to_json(os.path.join(folder, CONFIG_FILE))
        if tf.io.gfile.exists(self._tokenizer_file):
            Tokenizer.from_file(self._tokenizer_file).save(folder)

    def plateaus(self, data_description: Mapping[str, Any]) -> Sequence[Plateau]:
        """The masked LM loss at the pieces' entropy, sentence order right half of the time."""
        del data_description  # The frequencies are counted in the records, and only when needed.
        masked_lm = Plateau(
            "masked_lm_loss",
            functools.partial(masked_lm_entropy, self._source),
            "the masked LM loss",
            "The model has learned how frequent pieces are and nothing more: try half the "
            "--learning_rate or a longer --num_warmup_steps, and look at the records with "
            "data_prep/inspect_records.py.",
            steps=500,
        )
        sentence_order = Plateau(
            "sentence_order_accuracy",
            lambda: 0.5,
            "the sentence order accuracy",
            "Sentence order is not learned: see with data_prep/inspect_records.py that the two "
            "segments are consecutive text of one document, try half the --learning_rate or a "
            "longer --num_warmup_steps, or train without it by --sop_weight=0.",
            accuracy=True,
            steps=500,
            examples=40_000,
        )
        return (masked_lm, sentence_order) if self.sop_weight else (masked_lm,)

    def training_flops(self, length: float) -> float:
        """See albert_tf.modeling.flops."""
        return training_flops(self.config, length, self._predictions)

    def build_model(self) -> AlbertPretrainer:
        """Encoder, masked LM head and sentence order head."""
        return AlbertPretrainer(self.config)

    def weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Masked positions and examples in the batch."""
        return {
            "masked_lm": tf.reduce_sum(batch["masked_lm_weights"]),
            "sentence_order": tf.cast(tf.shape(batch["input_word_ids"])[0], tf.float32),
        }

    def sums(self, model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
        """Summed losses and correct predictions of both objectives."""
        values = _per_example(model, batch, training)
        return {k: tf.reduce_sum(v) for k, v in values.items() if k != "masked_lm_weight"}

    def means(
        self, sums: Mapping[str, tf.Tensor], weights: Mapping[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Loss and accuracy of each objective, and the training loss."""
        masked, examples = weights["masked_lm"] + _EPSILON, weights["sentence_order"]
        masked_lm_loss = sums["masked_lm_loss"] / masked
        sentence_order_loss = sums["sentence_order_loss"] / examples
        loss = masked_lm_loss
        # Zero times a loss would give its weights a gradient of zeros, and so a decay.
        if self.sop_weight:
            loss += self.sop_weight * sentence_order_loss
        return {
            "loss": loss,
            "masked_lm_loss": masked_lm_loss,
            "masked_lm_accuracy": sums["masked_lm_correct"] / masked,
            "sentence_order_loss": sentence_order_loss,
            "sentence_order_accuracy": sums["sentence_order_correct"] / examples,
        }

    def predict(self, model: keras.Model, batch: Batch) -> dict[str, tf.Tensor]:
        """Each example's summed losses, correct predictions and masked positions."""
        return _per_example(model, batch, training=False)

    def metrics(
        self, outputs: Mapping[str, np.ndarray], examples: object = None
    ) -> dict[str, float]:
        """The entries of `means` over a whole data set."""
        totals = {k: float(np.sum(v, dtype=np.float64)) for k, v in outputs.items()}
        examples = float(len(outputs["sentence_order_loss"]))
        weights = {"masked_lm": totals["masked_lm_weight"], "sentence_order": examples}
        return {k: float(v) for k, v in self.means(totals, weights).items()}

    def progress(self, means: Mapping[str, float]) -> str:
        """Masked LM loss and accuracy, sentence order accuracy."""
        return (
            f"mlm {means['masked_lm_loss']:.2f} {means['masked_lm_accuracy']:.1%} "
            f"sop {means['sentence_order_accuracy']:.0%}"
        )


def _per_example(model: keras.Model, batch: Batch, training: bool) -> dict[str, tf.Tensor]:
    """Losses and correct predictions summed over each example, float32 [batch]."""
    inputs = ("input_word_ids", "input_mask", "input_type_ids", "masked_lm_positions")
    outputs = model({name: batch[name] for name in inputs}, training=training)
    weights = batch["masked_lm_weights"]  # [batch, predictions]
    logits, ids = outputs["mlm_logits"], batch["masked_lm_ids"]  # [batch, predictions, vocab]
    losses = cross_entropy(logits, ids, training)
    right = tf.cast(correct(logits, ids), tf.float32)
    labels = tf.reshape(batch["next_sentence_labels"], [-1])  # [batch]
    order = outputs["sop_logits"]  # [batch, 2]
    return {
        "masked_lm_loss": tf.reduce_sum(losses * weights, -1),
        "masked_lm_correct": tf.reduce_sum(right * weights, -1),
        "masked_lm_weight": tf.reduce_sum(weights, -1),
        "sentence_order_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, order),
        "sentence_order_correct": tf.cast(correct(order, labels), tf.float32),
    }


def masked_lm_entropy(source: RecordSource, predictions: int = _COUNTED_PREDICTIONS) -> float:
    """Loss of predicting pieces by their frequency alone, nats a masked position.

    The entropy of the frequencies in the first records, with the correction of Miller (1955) for
    pieces not met there.

    Args:
      source: of pretraining records.
      predictions: counts at least so many masked positions, or all.
    """
    counts: dict[int, int] = {}
    for batch in source.eval_input_fn(InputContext(batch_size=256)):
        real = (batch["masked_lm_weights"] > 0) & (batch["example_index"] >= 0)[:, None]
        ids = tf.boolean_mask(batch["masked_lm_ids"], real).numpy()
        pieces, numbers = np.unique(ids, return_counts=True)
        for piece, number in zip(pieces.tolist(), numbers.tolist()):
            counts[piece] = counts.get(piece, 0) + number
        if sum(counts.values()) >= predictions:
            break
    numbers = np.array(list(counts.values()), np.float64)
    share = numbers / numbers.sum()
    return float(-np.sum(share * np.log(share)) + (len(numbers) - 1) / (2 * numbers.sum()))


def model_config(
    name_or_path: str | None, patterns: str, checkpoint: str | None = None
) -> AlbertConfig:
    """The model's configuration.

    Args:
      name_or_path: JSON file, or a preset, whose vocabulary size then follows the records; None for
        the configuration beside the checkpoint.
      patterns: the records, see `open_records`.
      checkpoint: see albert_tf.weights.load.open_source.

    Raises:
      AlbertError: it is neither given nor found.
    """
    if not name_or_path:
        if not checkpoint:
            raise missing_setting("--albert_config_file")
        source = open_source(checkpoint)
        config = source.config()
        if config is None:
            raise AlbertError(
                f"--albert_config_file is needed: there is no {CONFIG_FILE} beside "
                f"{source.location}."
            )
        return config
    config = AlbertConfig.load(name_or_path)
    manifest = find_manifest(record_files(patterns))
    if manifest is None or name_or_path not in AlbertConfig.preset_names():
        return config
    return dataclasses.replace(config, vocab_size=manifest.tokenizer_value("vocab_size", int))


def open_records(
    patterns: str,
    config: AlbertConfig,
    *,
    max_seq_length: int | None = None,
    max_predictions_per_seq: int | None = None,
    masking: str = AUTO,
    seed: int = 12345,
    max_corrupt_records: int = 0,
) -> RecordSource:
    """Opens pretraining records and checks that the model can read them.

    Compact records are masked as the options in their manifest say.

    Args:
      patterns: comma list of shards, globs or folders with a manifest.
      config: of the model.
      max_seq_length: the length expected; None: whatever the records have.
      max_predictions_per_seq: likewise.
      masking: "static" for records that hold masks, "dynamic" for compact ones, "auto" for both.
      seed: of the training order, and of dynamic masks.
      max_corrupt_records: see RecordSource.

    Raises:
      AlbertError: no such files, not pretraining records, or records that disagree with the model,
        with the lengths or with the masking expected.
    """
    paths = record_files(patterns)
    manifest = find_manifest(paths)
    if manifest is None:
        first = next(records.read_examples(paths[0]), None)
        if first is None:
            raise AlbertError(f"The record file {paths[0]} holds no examples.")
        features = records.infer_features(first)
    else:
        features = manifest.features
        vocab_size = manifest.tokenizer_value("vocab_size", int)
        if vocab_size != config.vocab_size:
            raise AlbertError(
                f"The records {patterns} use a vocabulary of {vocab_size} pieces, the model has "
                f"vocab_size={config.vocab_size}; build them with the model's tokenizer."
            )
    compact = manifest is not None and manifest.kind == COMPACT_PRETRAINING
    if not compact and not {"input_ids", "masked_lm_positions"} <= set(features):
        raise AlbertError(f"{patterns} does not hold pretraining records.")
    _check_masking(patterns, compact, masking)
    sizes = _lengths(features, manifest)
    found = dict(zip(("max_seq_length", "max_predictions_per_seq"), sizes))
    for name, wanted in (
        ("max_seq_length", max_seq_length),
        ("max_predictions_per_seq", max_predictions_per_seq),
    ):
        if wanted is not None and wanted != found[name]:
            raise AlbertError(
                f"The records {patterns} have {name}={found[name]}, not {wanted}; leave the flag "
                "out to take it from the records."
            )
    if found["max_seq_length"] > config.max_position_embeddings:
        raise AlbertError(
            f"The records {patterns} have length {found['max_seq_length']}, the model has "
            f"max_position_embeddings={config.max_position_embeddings}."
        )
    drawn = _dynamic_masking(os.path.dirname(paths[0]), manifest) if compact else None
    if not compact:
        features = records.pretraining_features(*sizes)
        del features["token_boundary"]  # The builder's record of word starts; no model reads it.
    source = RecordSource(
        paths,
        features,
        seed,
        masking=drawn,
        vocab_size=config.vocab_size,
        max_corrupt_records=max_corrupt_records,
    )
    if source.num_corrupt:
        print(f"{patterns}: {source.corruption}")
    return source


def _lengths(features: records.Features, manifest: Manifest | None) -> tuple[int, int]:
    """Length and number of predictions of pretraining records."""
    if manifest and manifest.kind == COMPACT_PRETRAINING:
        vocab_size = manifest.tokenizer_value("vocab_size", int)
        length = _length(features, "text_ids")
        if features != records.compact_features(length, vocab_size):
            raise AlbertError("The records' layout in manifest.json is not that of compact ones.")
        return length, _masking_options(manifest).max_predictions_per_seq
    return _length(features, "input_ids"), _length(features, "masked_lm_positions")


def _length(features: records.Features, name: str) -> int:
    """How many numbers a list holds; one of a single number looks like a scalar."""
    shape = features[name].shape if name in features else (None,)
    if len(shape) > 1 or shape == (None,):
        raise AlbertError(f"The records' layout has no list {name!r} of a fixed length.")
    return shape[0] if shape else 1


def _masking_options(manifest: Manifest) -> MaskingOptions:
    """How compact records are to be masked."""
    names = {
        "max_predictions_per_seq": "max_predictions_per_seq",
        "masked_lm_prob": "masked_lm_prob",
        "ngram": "ngram",
        "favor_shorter_ngram": "favor_shorter_ngram",
        "whole_words": "do_whole_word_mask",
    }
    values = {
        ours: manifest.options[option]
        for ours, option in names.items()
        if option in manifest.options
    }
    where = "The masking options in the records' manifest.json"
    if len(values) < len(names):
        missing = [option for ours, option in names.items() if ours not in values]
        raise AlbertError(f"{where} lack {', '.join(missing)}; build the records again.")
    options = from_json(MaskingOptions, values, where)
    sizes = (options.max_predictions_per_seq, options.ngram)
    if not (all(0 < size <= _MAX_SIZE for size in sizes) and 0 < options.masked_lm_prob <= 1):
        raise AlbertError(f"{where} are out of range; build the records again.")
    return options


def _check_masking(patterns: str, compact: bool, masking: str) -> None:
    if compact and masking == STATIC:
        raise AlbertError(
            f"The records {patterns} are compact and hold no masks; leave --masking=static out, or "
            "build them with --record_format=masked."
        )
    if not compact and masking == DYNAMIC:
        raise AlbertError(
            f"The records {patterns} are masked already; leave --masking=dynamic out, or build "
            "them with --record_format=compact."
        )


def _dynamic_masking(folder: str, manifest: Manifest) -> DynamicMasking:
    """What masks the compact records of a folder, as its manifest's options say."""
    path = os.path.join(folder, SPEC_FILE)
    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The compact records in {folder or '.'} need {SPEC_FILE} beside them.")
    tokenizer = Tokenizer.from_file(path)
    if tokenizer.spec.sha256 != manifest.tokenizer_value("sha256", str):
        raise AlbertError(f"{path} is not the tokenizer these records were made with.")
    swap = manifest.options.get("sentence_objective") == "sop"
    return DynamicMasking(manifest.features, _masking_options(manifest), tokenizer, swap)


def check_held_out(train_patterns: str, eval_patterns: str) -> None:
    """Raises AlbertError if a shard is both trained and evaluated on."""
    common = files.common_files(record_files(train_patterns), record_files(eval_patterns))
    if common:
        raise AlbertError(
            f"{common[0]} is in --input_file and in --eval_input_file; evaluate on other text."
        )
