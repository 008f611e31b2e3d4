# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From texts to records: token ids of texts and pairs, label values, and the record cache."""

from __future__ import annotations

import collections
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.record_cache import cached_records
from albert_tf.errors import AlbertError
from albert_tf.io.json_values import shown, shown_names
from albert_tf.io.text_tables import TextExample
from albert_tf.tokenization.sequences import join_segments, truncated_lengths
from albert_tf.tokenization.tokenizer import Tokenizer

#: [CLS] A [SEP] B [SEP].
MIN_SEQ_LENGTH = 5
_CHUNK = 2048
#: Part of the cache's key: raise it when the same texts give other records.
_FORMAT = 2


def featurize(
    tokenizer: Tokenizer, examples: Sequence[TextExample], max_seq_length: int
) -> tuple[dict[str, list[np.ndarray] | np.ndarray], np.ndarray]:
    """Token ids of texts: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] if there is a second text.

    Source: google-research/albert classifier_utils.convert_single_example.

    Args:
      tokenizer: gives the ids.
      examples: n texts or pairs; an empty second text counts as none.
      max_seq_length: longer texts and pairs lose tokens, see `truncated_lengths`.

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
    """The labels that occur, sorted.

    Raises:
      AlbertError: a label is empty, two labels are the same value written in two ways (1 and 1.0,
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
    """What a label stands for: a number, also for true and false, or else the label itself."""
    truth = {"true": 1.0, "false": 0.0}.get(label.lower())
    if truth is not None:
        return truth
    try:
        value = float(label)
    except ValueError:
        return label
    return value if math.isfinite(value) else label


def empty_text_warning(examples: Sequence[TextExample], name: str) -> str:
    """A sentence with the number of empty texts among the examples; "" if there are none.

    Args:
      examples: texts or pairs. An empty text of a pair counts as well.
      name: of the data set.
    """
    empty = [
        example
        for example in examples
        if not example.text.strip()
        or (example.text_pair is not None and not example.text_pair.strip())
    ]
    if not empty:
        return ""
    return (
        f"Warning: {len(empty):,} of the {len(examples):,} {name} examples have an empty text, "
        f"the first at {empty[0].where}."
    )


def label_values(examples: Sequence[TextExample], labels: Sequence[str]) -> np.ndarray:
    """Labels as indices into `labels`, int64 [n]; or without `labels` as numbers, float32 [n].

    Raises:
      AlbertError: a label is not in `labels`, or not a finite number.
    """
    if labels:
        index = {label: i for i, label in enumerate(labels)}
        for example in examples:
            if example.label not in index:
                raise AlbertError(
                    f"{example.where}: the label {shown(example.label)} does not occur in the "
                    f"training data, which has {shown_names(labels)}."
                )
        return np.array([index[example.label] for example in examples], np.int64)
    return np.array([_number(example) for example in examples], np.float32)


def _number(example: TextExample) -> float:
    try:
        value = float(example.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AlbertError(
            f"{example.where}: the label {shown(example.label)} is not a finite number."
        )
    return value


def build_records(
    folder: str,
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    labels: Sequence[str],
    *,
    labelled: bool,
    shuffle_seed: int | None = None,
) -> str:
    """Writes the examples as records below `folder`, unless the same records are there already.

    Args:
      folder: the cache, see record_cache.
      examples: the texts.
      tokenizer: gives the ids.
      max_seq_length: of the longest records.
      labels: see `label_values`.
      labelled: whether the labels are read; otherwise they are 0.
      shuffle_seed: puts the examples in a random order; None keeps theirs. Training needs it:
        files are often sorted by label, and later shuffling is local.

    Returns:
      Path of the record file; a manifest lies beside it.
    """
    if max_seq_length < MIN_SEQ_LENGTH:
        raise AlbertError(f"max_seq_length={max_seq_length} must be at least {MIN_SEQ_LENGTH}.")
    # Checked before the tokenizer's work, and before anything is written.
    values = label_values(examples, labels) if labelled else np.zeros(len(examples), np.int64)
    features = record_features(labels)
    key = {
        "format": _FORMAT,
        "max_seq_length": max_seq_length,
        "labels": list(labels),
        "labelled": labelled,
        "shuffle_seed": shuffle_seed,
        "content": _content_hash(examples),
    }

    def encode(statistics: dict[str, Any]) -> Iterator[bytes]:
        order = np.arange(len(examples))
        if shuffle_seed is not None:
            np.random.default_rng(shuffle_seed).shuffle(order)
        lengths: list[np.ndarray] = []
        for begin in range(0, len(order), _CHUNK):
            rows = order[begin : begin + _CHUNK]
            chosen = [examples[row] for row in rows]
            columns, chunk_lengths = featurize(tokenizer, chosen, max_seq_length)
            lengths.append(chunk_lengths)
            yield from records.encode_examples({**columns, "label_ids": values[rows]}, features)
        counted = _statistics(np.concatenate(lengths), max_seq_length)
        statistics.update(counted)
        if labelled:
            statistics["labels"] = _label_statistics(examples, values, labels)

    return cached_records(folder, "classification", key, features, tokenizer, encode)


def record_features(labels: Sequence[str]) -> dict[str, records.FeatureSpec]:
    """The records' layout: labels are indices, or numbers if there is no label set."""
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
    """Counts of the labels, or mean and variance of the numbers."""
    if not labels:
        return {"mean": float(values.mean()), "variance": float(values.var())}
    counts = collections.Counter(example.label for example in examples)
    return {label: counts[label] for label in labels}


def chance_loss(statistics: Mapping[str, Any], labels: Sequence[str]) -> float:
    """Training loss of answering by the labels' frequencies alone.

    For n equally frequent labels it is ln n; for numbers their variance.
    """
    counted = statistics["labels"]
    if not labels:
        return counted["variance"]
    shares = [counted[label] / statistics["examples"] for label in labels if counted[label]]
    return -sum(share * math.log(share) for share in shares)


def _content_hash(examples: Sequence[TextExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        row = [example.text, example.text_pair, example.label]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
