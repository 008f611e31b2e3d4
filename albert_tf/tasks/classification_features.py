# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From texts to records: token ids of texts and pairs, label values, and the record cache."""

from __future__ import annotations

import collections
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_manifest
from albert_tf.data.text_tables import TextExample
from albert_tf.errors import AlbertError
from albert_tf.tokenization import Tokenizer

#: [CLS] A [SEP] B [SEP].
MIN_SEQ_LENGTH = 5
_CHUNK = 2048
#: Part of the cache's key: raise it when the same texts give other records.
_FORMAT = 1


def truncated_lengths(length_a: int, length_b: int, room: int) -> tuple[int, int]:
    """How many tokens of A and B are kept, taken off the end of whichever is longer.

    Of two that are equally long, B gives way first (google-research/albert
    classifier_utils._truncate_seq_pair, in closed form).
    """
    kept_a = min(length_a, max(room - length_b, (room + 1) // 2))
    return kept_a, min(length_b, room - kept_a)


def featurize(
    tokenizer: Tokenizer, examples: Sequence[TextExample], max_seq_length: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Token ids of texts: [CLS] A [SEP], or [CLS] A [SEP] B [SEP] if there is a second text.

    Source: google-research/albert classifier_utils.convert_single_example.

    Args:
      tokenizer: gives the ids.
      examples: n texts or pairs; an empty second text counts as none.
      max_seq_length: length of every row; longer pairs lose tokens, see `truncated_lengths`.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int64 [n, max_seq_length] padded with the
      padding id and zeros; and the lengths before truncation, int64 [n].
    """
    ids = np.full((len(examples), max_seq_length), tokenizer.pad_id, np.int64)
    mask, segments = np.zeros_like(ids), np.zeros_like(ids)
    lengths = np.zeros(len(examples), np.int64)
    first = tokenizer.encode_batch([example.text for example in examples])
    second = tokenizer.encode_batch([example.text_pair or "" for example in examples])
    for row, (a, b) in enumerate(zip(first, second)):
        extra = 3 if b else 2
        lengths[row] = len(a) + len(b) + extra
        kept_a, kept_b = truncated_lengths(len(a), len(b), max_seq_length - extra)
        sequence = [tokenizer.cls_id, *a[:kept_a], tokenizer.sep_id]
        if b:
            segments[row, len(sequence) : len(sequence) + kept_b + 1] = 1
            sequence += [*b[:kept_b], tokenizer.sep_id]
        ids[row, : len(sequence)] = sequence
        mask[row, : len(sequence)] = 1
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments}, lengths


def label_set(examples: Sequence[TextExample]) -> tuple[str, ...]:
    """The labels that occur, sorted.

    Raises:
      AlbertError: a label is empty, or there are fewer than two.
    """
    for example in examples:
        if not example.label:
            raise AlbertError(f"{example.where}: the label is empty.")
    labels = sorted({example.label for example in examples})
    if len(labels) < 2:
        raise AlbertError(
            f"All {len(examples)} training examples have the label {labels[0]!r}; "
            "at least two labels are needed."
        )
    return tuple(labels)


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
                    f"{example.where}: the label {example.label!r} does not occur in the training "
                    f"data, which has {', '.join(labels)}."
                )
        return np.array([index[example.label] for example in examples], np.int64)
    return np.array([_number(example) for example in examples], np.float32)


def _number(example: TextExample) -> float:
    try:
        value = float(example.label)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AlbertError(f"{example.where}: the label {example.label!r} is not a finite number.")
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

    The records' folder is named by a hash of all that decides its content: the texts and labels,
    the tokenizer and the options.

    Args:
      folder: the cache.
      examples: the texts.
      tokenizer: gives the ids.
      max_seq_length: length of the records.
      labels: see `label_values`.
      labelled: whether the labels are read; otherwise they are 0.
      shuffle_seed: puts the examples in a random order; None keeps theirs. Training needs it:
        files are often sorted by label, and later shuffling is local.

    Returns:
      Path of the record file; a manifest lies beside it.
    """
    if max_seq_length < MIN_SEQ_LENGTH:
        raise AlbertError(f"max_seq_length={max_seq_length} must be at least {MIN_SEQ_LENGTH}.")
    options = {
        "format": _FORMAT,
        "max_seq_length": max_seq_length,
        "labels": list(labels),
        "labelled": labelled,
        "shuffle_seed": shuffle_seed,
        "content": _content_hash(examples),
    }
    key = json.dumps([options, tokenizer.spec.to_dict()], sort_keys=True)
    folder = os.path.join(folder, hashlib.sha256(key.encode()).hexdigest()[:16])
    path = os.path.join(folder, "examples.tfrecord")
    if find_manifest([path]) is not None:
        return path
    # Checked before the tokenizer's work, and before anything is written.
    values = label_values(examples, labels) if labelled else np.zeros(len(examples), np.int64)
    order = np.arange(len(examples))
    if shuffle_seed is not None:
        np.random.default_rng(shuffle_seed).shuffle(order)
    features = records.classification_features(max_seq_length, label_dtype(labels))
    lengths: list[np.ndarray] = []

    def encoded() -> Iterator[bytes]:
        for begin in range(0, len(order), _CHUNK):
            rows = order[begin : begin + _CHUNK]
            chosen = [examples[row] for row in rows]
            columns, chunk_lengths = featurize(tokenizer, chosen, max_seq_length)
            lengths.append(chunk_lengths)
            yield from records.encode_examples({**columns, "label_ids": values[rows]}, features)

    shard = records.write_shard(path, encoded())
    all_lengths = np.concatenate(lengths)
    statistics = {
        "examples": len(examples),
        "longest": int(all_lengths.max()),
        "truncated": int((all_lengths > max_seq_length).sum()),
        "mean_length": float(np.minimum(all_lengths, max_seq_length).mean()),
    }
    if labels and labelled:
        counts = collections.Counter(example.label for example in examples)
        statistics["labels"] = {label: counts[label] for label in labels}
    # The manifest comes last: where it is, the records are complete.
    Manifest(
        "classification", features, [shard], tokenizer.spec.to_dict(), options, statistics
    ).save(folder)
    return path


def label_dtype(labels: Sequence[str]) -> str:
    """Type of the records' labels: indices, or numbers if there is no label set."""
    return "int64" if labels else "float32"


def _content_hash(examples: Sequence[TextExample]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        row = [example.text, example.text_pair, example.label]
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()
