# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Converts labelled texts and pairs of texts to records."""

from __future__ import annotations

import collections
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.record_cache import cached_records
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown, shown_names
from albert_tf.io.text_tables import TextExample
from albert_tf.tokenization.sequences import MIN_SEQ_LENGTH, join_segments, truncated_lengths
from albert_tf.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert_tf.tasks.base import InputOptions

_CHUNK = 2048
#: The largest number to predict: its square, which the loss has, is finite in float32.
_LARGEST = 1e18
#: Part of the cache's key: increase it when the same texts result in other records.
_FORMAT = 2


def featurize(
    tokenizer: Tokenizer, examples: Sequence[TextExample], max_seq_length: int
) -> tuple[dict[str, list[np.ndarray] | np.ndarray], np.ndarray]:
    """Tokenizes texts to [CLS] A [SEP], and pairs to [CLS] A [SEP] B [SEP].

    Source: google-research/albert classifier_utils.convert_single_example.

    Args:
      tokenizer: tokenizes the texts.
      examples: n texts or pairs; an empty second text counts as none.
      max_seq_length: longer texts and pairs are cut, see `truncated_lengths`.

    Returns:
      The columns of records.sequence_features: `input_ids`, n arrays of ids, `row_lengths` and
      `first_lengths`, int64 [n, 1]; and the lengths before truncation, int64 [n].
    """
    sequences = []
    first_lengths = np.zeros((len(examples), 1), np.int64)
    lengths = np.zeros(len(examples), np.int64)
    first = tokenizer.encode_batch([example.text for example in examples])
    second = tokenizer.encode_batch([example.text_pair or "" for example in examples])
    for row, (a, b) in enumerate(zip(first, second)):
        extra = 3 if b else 2
        lengths[row] = len(a) + len(b) + extra
        kept_a, kept_b = truncated_lengths(len(a), len(b), max_seq_length - extra)
        first_lengths[row] = kept_a + 2
        sequences.append(join_segments(tokenizer, a[:kept_a], b[:kept_b] if b else None))
    row_lengths = np.array([[len(sequence)] for sequence in sequences], np.int64)
    columns = {"input_ids": sequences, "row_lengths": row_lengths, "first_lengths": first_lengths}
    return columns, lengths


def label_set(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """Returns the distinct labels, sorted.

    Raises:
      AlbertError: a label is empty, two labels are the same value in two spellings (1 and 1.0,
        1 and true), or there are fewer than two labels.
    """
    first: dict[str, TextExample] = {}
    for example in examples:
        if not example.label:
            raise AlbertError(f"{example.where}: the label is empty.")
        first.setdefault(example.label, example)
    labels = sorted(first)
    spellings: dict[object, str] = {}
    for label in labels:
        other = spellings.setdefault(_label_value(label), label)
        if other != label:
            raise AlbertError(
                f"{first[label].where}: the label {shown(label)} is the same value as "
                f"{shown(other)} at {first[other].where}; write each label in one way only."
            )
    if len(labels) < 2:
        raise AlbertError(
            f"The training examples ({len(examples):,}) all have the label {shown(labels[0])}; at "
            "least two labels are needed."
        )
    return tuple(labels)


def _label_value(label: str) -> object:
    """Returns the number that a label stands for, 1 and 0 for true and false; or the label."""
    value = _finite({"true": "1", "false": "0"}.get(label.lower(), label))
    return label if value is None else value


def _finite(text: str) -> float | None:
    """Converts a finite number; returns None for other texts."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def empty_text_warning(examples: Sequence[TextExample], name: str) -> str:
    """Returns a warning if there are empty texts, or "".

    Args:
      examples: texts or pairs; a pair counts as empty if one of its texts is.
      name: of the data set.
    """
    empty = [
        example
        for example in examples
        if any(text is not None and not text.strip() for text in (example.text, example.text_pair))
    ]
    if not empty:
        return ""
    return (
        f"Warning: {len(empty):,} of the {len(examples):,} {name} examples have an empty text, "
        f"the first at {empty[0].where}."
    )


def label_values(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Returns labels as indices into `labels`, int64 [n]; without `labels` as float32 [n].

    Raises:
      AlbertError: a label is not in `labels`, or is not a number that can be trained on.
    """
    index = {label: i for i, label in enumerate(labels)}
    values = []
    for example in examples:
        value = index.get(example.label) if labels else _finite(example.label)
        if value is None or not (labels or abs(value) <= _LARGEST):
            problem = f"is not a number from {-_LARGEST:g} to {_LARGEST:g}"
            if labels:
                problem = f"does not occur in the training data, which has {shown_names(labels)}"
            raise AlbertError(f"{example.where}: the label {shown(example.label)} {problem}.")
        values.append(value)
    return np.array(values, np.int64 if labels else np.float32)


def build_records(
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    labels: Sequence[str],
    options: InputOptions,
) -> str:
    """Writes the examples as records, unless the cache has them.

    Args:
      examples: the texts.
      tokenizer: tokenizes the texts.
      max_seq_length: the maximum length of a record.
      labels: see `label_values`.
      options: `cache_dir`; `labelled`, without which labels are not read and are 0 in the records;
        and `train_seed`, the seed of a random order. Training needs one: files are often sorted by
        label, and later shuffling is local.

    Returns:
      Path of the record file; its manifest is beside it.

    Raises:
      AlbertError: `max_seq_length` is too small, or a label is wrong; see `label_values`.
    """
    if max_seq_length < MIN_SEQ_LENGTH:
        raise AlbertError(f"max_seq_length={max_seq_length} must be at least {MIN_SEQ_LENGTH}.")
    # Checks the labels before the texts are tokenized and anything is written.
    labelled = options.labelled
    values = label_values(examples, labels) if labelled else np.zeros(len(examples), np.int64)
    features = record_features(labels)
    key = {
        "format": _FORMAT,
        "max_seq_length": max_seq_length,
        "labels": list(labels),
        "labelled": labelled,
        "shuffle_seed": options.train_seed,
        "content": _content_hash(examples),
    }

    def encode(statistics: dict[str, Any]) -> Iterator[bytes]:
        order = np.arange(len(examples))
        if options.train_seed is not None:
            np.random.default_rng(options.train_seed).shuffle(order)
        lengths: list[np.ndarray] = []
        for begin in range(0, len(order), _CHUNK):
            rows = order[begin : begin + _CHUNK]
            chosen = [examples[row] for row in rows]
            columns, chunk_lengths = featurize(tokenizer, chosen, max_seq_length)
            lengths.append(chunk_lengths)
            yield from records.encode_examples({**columns, "label_ids": values[rows]}, features)
        statistics.update(_statistics(np.concatenate(lengths), max_seq_length))
        if labelled:
            statistics["labels"] = _label_statistics(examples, values, labels)

    return cached_records(options.cache_dir, "classification", key, features, tokenizer, encode)


def record_features(labels: Sequence[str]) -> dict[str, records.FeatureSpec]:
    """Returns the layout of the records, with labels as indices, or as numbers for regression."""
    dtype = "int64" if labels else "float32"
    return records.sequence_features(label_ids=records.FeatureSpec(dtype))


def _statistics(lengths: np.ndarray, max_seq_length: int) -> dict[str, Any]:
    return {
        "examples": len(lengths),
        "longest": int(lengths.max()),
        "truncated": int((lengths > max_seq_length).sum()),
        "mean_length": float(np.minimum(lengths, max_seq_length).mean()),
    }


def _label_statistics(
    examples: Sequence[TextExample], values: np.ndarray, labels: Sequence[str]
) -> dict[str, Any]:
    """Counts the labels, or computes mean and variance of the numbers."""
    if not labels:
        return {"mean": float(values.mean()), "variance": float(values.var())}
    counts = collections.Counter(example.label for example in examples)
    return {label: counts[label] for label in labels}


def _content_hash(examples: Sequence[TextExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        row = [example.text, example.text_pair, example.label]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
