# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""TFRecord files: reads consecutive records, describes and checks files, names damaged records.

A record is framed by its length (uint64, little-endian), a checksum of the length (uint32), and
after the payload a checksum of it (tensorflow/core/lib/io/record_writer.h). TensorFlow's reader
checks both. But it allocates as much as a length says, even 2^60 bytes, which ends the process. So
lengths are followed here first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage

#: Size of the reads of `read_frames`, and records read or checked together.
_READ_BYTES, _BATCH = 4 << 20, 1000


def read_consecutive(
    path: tf.Tensor, offset: tf.Tensor, count: tf.Tensor, buffer_bytes: tf.Tensor
) -> tf.data.Dataset:
    """Returns a data set of consecutive records of a file, string scalars.

    TensorFlow 2.15 cannot serialize this data set (it loses byte_offsets), and so cannot optimize a
    pipeline that begins with it. Use it inside a function of another data set.

    Args:
      path: the file, a string scalar.
      offset: int64 scalar: byte at which the first record begins.
      count: int64 scalar: number of records.
      buffer_bytes: int64 scalar: size of the reads.
    """
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=buffer_bytes, byte_offsets=[offset]
    )
    dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
    return dataset.take(count)


def check_lengths(path: bytes, offset: np.int64, size: np.int64) -> np.int64:
    """Checks that the lengths in `size` bytes of records, from byte `offset` on, lead to their end.

    Returns `size`.

    Raises:
      ValueError: they do not.
    """
    begin, end = int(offset), int(offset + size)
    try:
        *_, last = begin, *_ends(path.decode(), begin, end)
    except tf.errors.OpError:
        return size  # The reader will report it.
    if last != end:
        raise ValueError(f"{path.decode()} is damaged at or after byte {offset}.")
    return size


class Frame(NamedTuple):
    """A record: the byte of the file at which it begins, its payload, and what is wrong with it."""

    byte: int
    example: bytes
    fault: str = ""


def read_frames(path: str) -> Iterator[Frame]:
    """Yields all records of a TFRecord file, faulty ones too, in bounded memory.

    After a record whose length is wrong, no other one can be located.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    files.check_file(path, "record file")
    begin = 0
    try:
        size = storage.size(path)
        ends = _ends(path, begin, size)
        while bounds := list(islice(ends, _BATCH)):
            yield from _read(path, [begin, *bounds])
            begin = bounds[-1]
    except tf.errors.OpError as error:
        raise AlbertError(f"The record file {path} cannot be read: {error.message}.") from error
    if begin < size:
        yield Frame(begin, b"", "the file is cut off or damaged")


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the payloads of all records of a TFRecord file, in bounded memory.

    Raises:
      AlbertError: as `read_frames`; or a record is faulty, see `record_error`.
    """
    for number, frame in enumerate(read_frames(path)):
        if frame.fault:
            raise record_error(path, number, frame.byte, frame.fault)
        yield frame.example


def record_error(path: str, number: int, byte: int, fault: str) -> AlbertError:
    """Returns the error for a faulty record: its number in the file, from 0, and its first byte."""
    return AlbertError(
        f"{path}: record {number} (byte {byte}): {fault}; build it again, which gives the same "
        "bytes, or copy it again."
    )


def describe_shard(path: str) -> records.ShardInfo:
    """Reads a TFRecord file of any program and describes it, as one pass.

    Raises:
      AlbertError: see `read_examples`.
    """
    examples, blocks = read_examples(path), []
    while block := list(islice(examples, records.BLOCK_EXAMPLES)):
        blocks.append(records.describe_block(0, block))
    return records.ShardInfo(os.path.basename(path), files.sha256(path), tuple(blocks))


def infer_features(path: str) -> dict[str, records.FeatureSpec]:
    """Infers the layout of masked records from the first one, for a shard without a manifest.

    Raises:
      AlbertError: the shard is missing, empty or damaged, or holds other records.
    """
    from google.protobuf.message import DecodeError

    try:
        example = tf.train.Example.FromString(next(read_examples(path)))
    except StopIteration:
        raise AlbertError(f"The record file {path} holds no examples.") from None
    except DecodeError:
        example = tf.train.Example()
    names = "input_ids", "masked_lm_positions"
    lengths = [len(example.features.feature[name].int64_list.value) for name in names]
    if not all(lengths):
        raise AlbertError(
            f"{path} does not contain masked pretraining records; build them with "
            "albert create-pretraining-data. Compact ones need their manifest.json."
        )
    return records.pretraining_features(*lengths)


def check_shard(
    path: str,
    features: records.Features,
    listed: records.ShardInfo | None,
    on_read: Callable[[int], object],
    vocab_size: int | None,
) -> tuple[int, list[AlbertError]]:
    """Reads and checks all records of a shard.

    Args:
      path: the TFRecord file.
      features: the layout; records may have further features.
      listed: what the shard should be; None if nothing is known.
      on_read: called from time to time with the number of bytes read since the last call.
      vocab_size: limit of the ids; None: no limit.

    Returns:
      The number of records, and an error for each faulty one, which names it and its byte; or else
      one if the shard differs from what it should be.

    Raises:
      AlbertError: the shard is missing or cannot be read.
    """
    frames, number, errors = read_frames(path), 0, []
    while batch := list(islice(frames, _BATCH)):
        faults = _faults([frame.example for frame in batch], features, vocab_size)
        for row, frame in enumerate(batch):
            if fault := frame.fault or faults.get(row):
                errors.append(record_error(path, number + row, frame.byte, fault))
        number += len(batch)
        on_read(sum(records.FRAME_BYTES + len(frame.example) for frame in batch))
    if listed and not errors and files.sha256(path) != listed.sha256:
        errors.append(
            AlbertError(
                f"{path} differs from its manifest, or from the file that this run opened: it has "
                "another checksum; build it again, which gives the same bytes, or copy it again."
            )
        )
    return number, errors


def _faults(
    examples: list[bytes], features: records.Features, vocab_size: int | None
) -> dict[int, str]:
    """Returns the fault of each faulty record, by its place in the list."""
    try:
        parsed = records.parse_columns(tf.constant(examples, tf.string), features)
    # TensorFlow quotes a name that is not UTF-8, and Python then cannot decode the message.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        if len(examples) == 1:
            return {0: "it does not have the layout of the others"}
        single = [_faults([example], features, vocab_size) for example in examples]
        return {row: found[0] for row, found in enumerate(single) if found}
    columns = {name: value.numpy() for name, value in parsed.items()}
    if (segments := columns.get("segment_lengths")) is not None:
        # With [CLS], and [SEP] after each segment.
        columns["the length"] = 1 + (segments + (segments > 0)).sum(axis=1)
    sequence = features.get("input_ids") or features.get("text_ids")
    length = sequence.shape[0] if sequence else 0
    ids = "input_ids", "text_ids", "masked_lm_ids"
    flags = "input_mask", "segment_ids", "masked_lm_weights", "next_sentence_labels"
    # The largest possible numbers; the smallest is 0.
    limits = {
        **dict.fromkeys(ids, (vocab_size or 1 << 31) - 1),
        **dict.fromkeys(flags, 1),
        "masked_lm_positions": length - 1,
        "segment_lengths": length,
        "the length": length,
    }
    faults = {}
    for name, most in limits.items():
        if name in columns:
            outside = np.argwhere(~((columns[name] >= 0) & (columns[name] <= most)))
            for row in outside[:, 0].tolist():
                faults.setdefault(row, f"{name} has a number outside 0 … {most}")
    return faults


def _ends(path: str, begin: int, end: int) -> Iterator[int]:
    """Yields where records end, as their lengths say, between two bytes of a file."""
    with tf.io.gfile.GFile(path, "rb") as f:
        while begin < end:
            f.seek(begin)
            begin += records.FRAME_BYTES + int.from_bytes(f.read(8), "little")
            if begin > end:
                return
            yield begin


def _read(path: str, bounds: list[int]) -> list[Frame]:
    """Reads the records between these bytes: together, or if one is damaged, half by half."""
    count = len(bounds) - 1
    try:
        dataset = read_consecutive(path, bounds[0], count, _READ_BYTES).batch(count)
        return [*map(Frame, bounds, dataset.get_single_element().numpy().tolist())]
    except tf.errors.DataLossError:
        if count == 1:
            return [Frame(bounds[0], b"", "its checksum is wrong")]
        middle = count // 2
        return _read(path, bounds[: middle + 1]) + _read(path, bounds[middle:])
