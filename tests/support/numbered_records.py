# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Records that carry numbers, so that tests can follow them through the input pipeline."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records, training_order

NUMBER = records.FeatureSpec("int64")
#: Records that hold nothing but a number.
LABELS = {"label_ids": NUMBER}


@contextlib.contextmanager
def small_blocks(examples: int, shuffled: int) -> Iterator[None]:
    """Makes blocks of a few records, and buffers of a few blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_EXAMPLES", examples)
        patch.setattr(training_order, "SHUFFLED_BLOCKS", shuffled)
        yield


def encode_numbers(**numbers: Sequence[int]) -> list[bytes]:
    """Encodes records with these numbers."""
    columns = {name: np.asarray(values) for name, values in numbers.items()}
    return records.encode_examples(columns, dict.fromkeys(numbers, NUMBER))


def write_labels(path: Path, numbers: Sequence[int]) -> records.ShardInfo:
    """Writes a shard of the layout LABELS."""
    return records.write_shard(str(path), encode_numbers(label_ids=numbers))


def numbers_of(
    dataset: tf.data.Dataset, batches: int | None = None, name: str = "label_ids"
) -> np.ndarray:
    """Returns the numbers of the first batches, by default all, int [batches, rows]."""
    return np.array([batch[name].numpy() for batch in itertools.islice(dataset, batches)])


def with_checksum(length: int) -> bytes:
    """Returns the length of a TFRecord and its checksum, a masked CRC-32C."""
    header, crc = length.to_bytes(8, "little"), 0xFFFFFFFF
    for byte in header:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return header + masked.to_bytes(4, "little")
