# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record layouts, and how records are encoded, written, read and parsed.

A record is an uncompressed ``tf.train.Example`` in a TFRecord file, laid out as the TF1 release
lays them out (google-research/albert create_pretraining_data.write_instance_to_example_files).
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf import files
from albert_tf.errors import AlbertError

if TYPE_CHECKING:
    import tensorflow as tf

#: Bytes that TFRecord framing puts around a record: length and its checksum before, checksum after.
FRAME_BYTES = 16

_MODEL_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of a record.

    Attributes:
      dtype: "int64" or "float32".
      shape: shape within one record; () is a single number.
    """

    dtype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raises AlbertError for another dtype or an impossible shape."""
        if self.dtype not in ("int64", "float32"):
            raise AlbertError(f"A record feature is int64 or float32, not {self.dtype!r}.")
        if not all(isinstance(size, int) and size > 0 for size in self.shape):
            raise AlbertError(f"A record feature cannot have the shape {self.shape!r}.")


Features = Mapping[str, FeatureSpec]


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """What a manifest knows of one TFRecord file: base name, examples, bytes, hex SHA-256."""

    name: str
    examples: int
    bytes: int
    sha256: str


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, FeatureSpec]:
    """The layout of a pretraining record.

    Padding is 0 everywhere. `token_boundary` is 1 where a word starts and at [CLS] and [SEP].
    `next_sentence_labels` is one number: 1 if the segments are swapped (or, for NSP, unrelated).
    """
    token = FeatureSpec("int64", (max_seq_length,))
    prediction = FeatureSpec("int64", (max_predictions_per_seq,))
    return {
        "input_ids": token,
        "input_mask": token,
        "segment_ids": token,
        "token_boundary": token,
        "masked_lm_positions": prediction,
        "masked_lm_ids": prediction,
        "masked_lm_weights": FeatureSpec("float32", (max_predictions_per_seq,)),
        "next_sentence_labels": FeatureSpec("int64"),
    }


def classification_features(max_seq_length: int, label_dtype: str) -> dict[str, FeatureSpec]:
    """The layout of a classification ("int64" label) or regression ("float32" label) record."""
    token = FeatureSpec("int64", (max_seq_length,))
    return {
        "input_ids": token,
        "input_mask": token,
        "segment_ids": token,
        "label_ids": FeatureSpec(label_dtype),
    }


def to_model_names(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Renames record features to the names the models use; the one place where that is done."""
    return {_MODEL_NAMES.get(name, name): value for name, value in columns.items()}


def parse_columns(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized records, string [batch], to tensors [batch, *shape] as they are stored."""
    import tensorflow as tf

    return tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature(spec.shape, tf.as_dtype(spec.dtype))
            for name, spec in features.items()
        },
    )


def parse_batch(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized records for a model.

    Args:
      serialized: string [batch].
      features: the features wanted; others in the records are ignored.

    Returns:
      Tensors [batch, *shape] under the model's names, int32 or float32.
    """
    import tensorflow as tf

    columns = {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in parse_columns(serialized, features).items()
    }
    return to_model_names(columns)


def infer_features(serialized: bytes) -> dict[str, FeatureSpec]:
    """The layout of one serialized record, for records without a manifest.

    A feature of one number is taken for a scalar.

    Raises:
      AlbertError: it is not a ``tf.train.Example``, or a feature is empty or a string.
    """
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        example = tf.train.Example.FromString(serialized)
    except DecodeError as error:
        raise AlbertError("A record is not a tf.train.Example.") from error
    features = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        count = len(getattr(feature, kind).value) if kind else 0
        if kind not in ("int64_list", "float_list") or not count:
            raise AlbertError(f"The record feature {name!r} is not a list of numbers.")
        dtype = "int64" if kind == "int64_list" else "float32"
        features[name] = FeatureSpec(dtype, () if count == 1 else (count,))
    return features


# ---- Encoding --------------------------------------------------------------------------------
# Protobuf's wire format, written out with NumPy for many examples at once. An Example nests four
# deep; tags are (field number << 3 | 2), 2 meaning length-delimited:
#   Example.features(1) > Features.feature(1), a map entry > key(1), value(2), a Feature
#   > float_list(2) or int64_list(3) > value(1), packed.


def encode_examples(columns: Mapping[str, np.ndarray], features: Features) -> list[bytes]:
    """Encodes n examples as serialized ``tf.train.Example`` messages.

    The bytes are those of protobuf's deterministic serialization: features in sorted order.

    Args:
      columns: per feature an array [n, *shape].
      features: the layout; its names and `columns`' must be the same.

    Raises:
      AlbertError: a column is missing, unknown or has the wrong shape.
    """
    if set(columns) != set(features):
        odd = sorted(set(columns) ^ set(features))
        raise AlbertError(f"Records and their layout disagree on the features {odd}.")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise AlbertError("The columns of a batch of records have different lengths.")
    n = lengths.pop()
    entries = [_encode_feature(n, name, columns[name], features[name]) for name in sorted(features)]
    examples = []
    for parts in zip(*entries):
        body = b"".join(parts)
        examples.append(b"\n" + _varint(len(body)) + body)
    return examples


def _encode_feature(n: int, name: str, column: np.ndarray, spec: FeatureSpec) -> list[bytes]:
    """Encodes one feature of n examples: n map entries with their tags."""
    if column.shape[1:] != spec.shape:
        raise AlbertError(
            f"The record feature {name!r} has shape {column.shape[1:]}, its layout {spec.shape}."
        )
    flat = np.ascontiguousarray(column).reshape(n, -1)
    if spec.dtype == "float32":
        payload = flat.astype("<f4").tobytes()
        ends = np.arange(1, n + 1) * (4 * flat.shape[1])
    else:
        payload, ends = _pack_varints(flat.astype(np.int64))
    entries = []
    start = 0
    for end in ends.tolist():
        entries.append(_entry_head(name, spec.dtype, end - start) + payload[start:end])
        start = end
    return entries


def _pack_varints(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes int64 [n, m] as varints, row after row; also gives the end of each row, [n]."""
    unsigned = values.view(np.uint64)
    largest = int(unsigned.max(initial=0))
    if largest < 1 << 7:
        n, m = values.shape
        return unsigned.astype(np.uint8).tobytes(), np.arange(1, n + 1) * m
    if largest < 1 << 31:
        unsigned = unsigned.astype(np.uint32)
    width = -(-largest.bit_length() // 7)
    groups = np.empty((*values.shape, width), np.uint8)
    used = np.empty(groups.shape, bool)
    for i in range(width):
        rest = unsigned >> unsigned.dtype.type(7 * i)
        used[..., i] = rest > 0 if i else True
        groups[..., i] = (rest & 0x7F) | ((rest > 0x7F) << 7).astype(rest.dtype)
    return groups[used].tobytes(), np.cumsum(used.sum(axis=(1, 2)))


@functools.lru_cache(maxsize=65536)
def _entry_head(name: str, dtype: str, payload_bytes: int) -> bytes:
    """Everything of a map entry that stands before its packed values."""
    packed = b"\n" + _varint(payload_bytes)
    size = len(packed) + payload_bytes
    numbers = (b"\x12" if dtype == "float32" else b"\x1a") + _varint(size)
    size += len(numbers)
    value = b"\x12" + _varint(size)
    size += len(value)
    key = b"\n" + _varint(len(name.encode())) + name.encode()
    size += len(key)
    return b"\n" + _varint(size) + key + value + numbers + packed


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- Files -----------------------------------------------------------------------------------


def write_shard(path: str, examples: Iterable[bytes]) -> ShardInfo:
    """Writes serialized examples to a TFRecord file, which is either complete or absent.

    Raises:
      AlbertError: the file cannot be written.
    """
    import tensorflow as tf

    count = size = 0
    try:
        with files.atomic_path(path) as temporary:
            with tf.io.TFRecordWriter(temporary) as writer:
                for example in examples:
                    writer.write(example)
                    count += 1
                    size += len(example) + FRAME_BYTES
            digest = files.sha256(temporary)
    except tf.errors.OpError as error:
        raise AlbertError(f"{path} cannot be written: {error.message}.") from error
    return ShardInfo(os.path.basename(path), count, size, digest)


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the serialized examples of a TFRecord file.

    Raises:
      AlbertError: the file is missing, or a record is damaged or cut off; names the file, the
        record (from 0) and the byte where it starts.
    """
    import tensorflow as tf

    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The record file {path} does not exist.")
    index = offset = 0
    try:
        for example in tf.data.TFRecordDataset(path):
            serialized = example.numpy()
            yield serialized
            index += 1
            offset += len(serialized) + FRAME_BYTES
        # TensorFlow takes a file that ends inside a record's length for a complete one.
        intact = offset == tf.io.gfile.stat(path).length
    except tf.errors.DataLossError:
        intact = False
    if not intact:
        raise AlbertError(
            f"{path} is damaged or cut off at record {index} (byte {offset}); "
            "delete it and build it again."
        )
