# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record layouts, and how records are encoded, written, read and parsed.

A record is an uncompressed ``tf.train.Example`` in a TFRecord file, laid out as the TF1 release
lays them out (google-research/albert create_pretraining_data.write_instance_to_example_files).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.data.framing import FRAME_BYTES, read_frames
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json, shown

if TYPE_CHECKING:
    import tensorflow as tf

#: More numbers than any record has in one feature; a damaged layout should not ask for all memory.
_MAX_NUMBERS = 1 << 24
#: Types of features that are stored as bytes.
PACKED = ("uint8", "uint16", "int32")

_MODEL_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of a record.

    Attributes:
      dtype: "int64" or "float32"; or one of PACKED, numbers stored as little-endian bytes.
      shape: shape within one record; () is a single number, (None,) a list of any length. Packed,
        (n,) means at most n numbers, which parsing fills up with zeros.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        """Raises AlbertError for another dtype or an impossible shape."""
        if self.dtype not in ("int64", "float32", *PACKED):
            raise AlbertError(f"A record feature is int64 or float32, not {shown(self.dtype)}.")
        sizes = () if self.shape == (None,) else self.shape
        possible = self.dtype not in PACKED or len(sizes) == 1
        possible = possible and all(type(size) is int and size > 0 for size in sizes)
        if not possible or math.prod(sizes) > _MAX_NUMBERS:
            raise AlbertError(f"A record feature cannot have the shape {shown(self.shape)}.")


Features = Mapping[str, FeatureSpec]


@dataclasses.dataclass(frozen=True)
class Section:
    """Consecutive records of a shard that come from one pass over the shard's text.

    Attributes:
      examples: number of records, at least 1.
      bytes: their size in the file.
    """

    examples: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """What a manifest knows of one TFRecord file.

    Attributes:
      name: base name.
      examples: number of records.
      bytes: size of the file.
      sha256: hex SHA-256 of the file.
      sections: the shard's passes over its text, in file order; their examples and bytes add up to
        those of the shard. Empty if the records are no pretraining records, or if an older builder
        or another program wrote them.
    """

    name: str
    examples: int
    bytes: int
    sha256: str
    sections: Sequence[Section] = ()

    @classmethod
    def from_values(cls, values: object, where: str) -> ShardInfo:
        """From what dataclasses.asdict gives, read from the file `where`.

        Raises:
          AlbertError: a field is missing, unknown or of another type, a number is negative, or the
            sections do not add up to the shard.
        """
        shard = from_json(cls, values, where)
        if not isinstance(shard.sections, (list, tuple)):
            raise AlbertError(f"{where}: sections is not a list, but {shown(shard.sections)}.")
        sections = tuple(from_json(Section, section, where) for section in shard.sections)
        sizes = [(section.examples, section.bytes) for section in sections]
        if shard.examples < 0 or shard.bytes < 0 or any(min(pair) < 1 for pair in sizes):
            raise AlbertError(f"{where}: {shard.name} has a number that is too small.")
        total = tuple(map(sum, zip(*sizes)))
        if sizes and total != (shard.examples, shard.bytes):
            raise AlbertError(
                f"{where}: the sections of {shard.name} have {total[0]} examples and {total[1]} "
                f"bytes, the shard has {shard.examples} and {shard.bytes}."
            )
        return dataclasses.replace(shard, sections=sections)


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


def sequence_features(rows: int = 1, **others: FeatureSpec) -> dict[str, FeatureSpec]:
    """The layout of a fine-tuning record: token sequences without padding, and `others`.

    A row is one sequence [CLS] A [SEP] or [CLS] A [SEP] B [SEP]; multiple choice has one an option.
    `input_ids` holds the rows one after the other, `row_lengths` their lengths and `first_lengths`
    the lengths of their first segments, [CLS] and [SEP] included. `parse_sequences` makes the
    padded tensors of it.
    """
    lengths = FeatureSpec("int64", (rows,))
    token = FeatureSpec("int64", (None,))
    return {"input_ids": token, "row_lengths": lengths, "first_lengths": lengths, **others}


def compact_features(max_seq_length: int, vocab_size: int) -> dict[str, FeatureSpec]:
    """The layout of a compact pretraining record: two segments of text, nothing masked or swapped.

    `text_ids` are the tokens of the segments one after the other, without [CLS] and [SEP], in the
    smallest type that holds the vocabulary. `word_starts` has a bit for each, the first in the
    highest of the first byte: whether a word starts there. `segment_lengths` are two numbers; the
    second is 0 if there is one segment. `dynamic_masking` makes model inputs of them.
    """
    id_type = "uint16" if vocab_size <= 1 << 16 else "int32"
    return {
        "text_ids": FeatureSpec(id_type, (max_seq_length,)),
        "word_starts": FeatureSpec("uint8", (-(-max_seq_length // 8),)),
        "segment_lengths": FeatureSpec("int64", (2,)),
    }


def to_model_names(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Renames record features to the names the models use; the one place where that is done."""
    return {_MODEL_NAMES.get(name, name): value for name, value in columns.items()}


def parse_columns(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized records, string [batch], to tensors [batch, *shape] as they are stored.

    Features of any length become ragged tensors; packed ones are unpacked, and cut at the length
    that the layout names.
    """
    import tensorflow as tf

    wanted: dict[str, Any] = {}
    for name, spec in features.items():
        if spec.dtype in PACKED:
            wanted[name] = tf.io.FixedLenFeature((), tf.string)
        elif spec.shape == (None,):
            wanted[name] = tf.io.RaggedFeature(tf.as_dtype(spec.dtype), row_splits_dtype=tf.int64)
        else:
            wanted[name] = tf.io.FixedLenFeature(spec.shape, tf.as_dtype(spec.dtype))
    parsed = tf.io.parse_example(serialized, wanted)
    for name, spec in features.items():
        if spec.dtype in PACKED:
            dtype = tf.as_dtype(spec.dtype)
            size = spec.shape[0] * dtype.size
            parsed[name] = tf.io.decode_raw(parsed[name], dtype, fixed_length=size)
    return parsed


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


def parse_sequences(
    serialized: tf.Tensor, features: Features, length: tf.Tensor | int
) -> dict[str, tf.Tensor]:
    """Parses records laid out by `sequence_features` for a model.

    Args:
      serialized: string [batch].
      features: the layout.
      length: S, at least the length of the longest row.

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids` int32, [batch, S] if records have one row,
      else [batch, rows, S]; and the other features, [batch, *shape] int32 or float32.
    """
    import tensorflow as tf

    parsed = parse_columns(serialized, features)
    ids, sizes, first = (parsed.pop(n) for n in ("input_ids", "row_lengths", "first_lengths"))
    rows = sizes.shape[1]
    flat = tf.RaggedTensor.from_row_lengths(ids.values, tf.reshape(sizes, [-1]), validate=False)
    shape = [-1, length] if rows == 1 else [-1, rows, length]
    size = tf.cast(length, tf.int64)
    position = tf.range(size)
    mask = position < sizes[..., None]  # [batch, rows, S]
    inputs = {
        "input_word_ids": flat.to_tensor(shape=tf.stack([-1, size])),
        "input_mask": mask,
        "input_type_ids": mask & (position >= first[..., None]),
    }
    inputs = {name: tf.cast(tf.reshape(x, shape), tf.int32) for name, x in inputs.items()}
    for name, value in parsed.items():
        inputs[name] = tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    return inputs


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
            raise AlbertError(
                f"The record feature {shown(name)} is not a list of numbers; compact records need "
                "the manifest.json that was written with them."
            )
        dtype = "int64" if kind == "int64_list" else "float32"
        features[name] = FeatureSpec(dtype, () if count == 1 else (count,))
    return features


# ---- Encoding --------------------------------------------------------------------------------
# Protobuf's wire format, written out with NumPy for many examples at once. An Example nests four
# deep; tags are (field number << 3 | 2), 2 meaning length-delimited:
#   Example.features(1) > Features.feature(1), a map entry > key(1), value(2), a Feature
#   > bytes_list(1) > value(1), or float_list(2) or int64_list(3) > value(1), packed.


def encode_examples(
    columns: Mapping[str, np.ndarray | Sequence[np.ndarray]], features: Features
) -> list[bytes]:
    """Encodes n examples as serialized ``tf.train.Example`` messages.

    The bytes are those of protobuf's deterministic serialization: features in sorted order.

    Args:
      columns: per feature an array [n, *shape]; a list of n arrays if it is packed or of any
        length.
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


def _encode_feature(
    n: int, name: str, column: np.ndarray | Sequence[np.ndarray], spec: FeatureSpec
) -> list[bytes]:
    """Encodes one feature of n examples: n map entries with their tags."""
    if spec.shape == (None,) or spec.dtype in PACKED:
        flat = np.concatenate(column)
        bounds = np.cumsum([0, *map(len, column)])
    elif column.shape[1:] == spec.shape:
        flat = np.ascontiguousarray(column).reshape(-1)
        bounds = np.arange(n + 1) * (len(flat) // n)
    else:
        raise AlbertError(
            f"The record feature {name!r} has shape {column.shape[1:]}, its layout {spec.shape}."
        )
    if spec.dtype != "int64":
        stored = flat.astype(np.dtype(spec.dtype).newbyteorder("<"))
        payload, ends = stored.tobytes(), (stored.itemsize * bounds).tolist()
    else:
        payload, ends = _pack_varints(flat, bounds)
    return [
        _entry_head(name, spec.dtype, end - start) + payload[start:end]
        for start, end in zip(ends, ends[1:])
    ]


def _pack_varints(values: np.ndarray, bounds: np.ndarray) -> tuple[bytes, list[int]]:
    """Encodes integers or bools [m] as varints; also gives `bounds` between them in bytes."""
    if values.dtype == np.bool_:
        return values.tobytes(), bounds.tolist()
    if values.min(initial=0) < 0:  # Varints are of 64 bits, so -1 takes ten bytes.
        values = values.astype(np.int64).view(np.uint64)
    largest = int(values.max(initial=0))
    if largest < 1 << 7:
        return values.astype(np.uint8).tobytes(), bounds.tolist()
    rest = values.astype(np.uint32 if largest < 1 << 32 else np.uint64)
    width = -(-largest.bit_length() // 7)
    groups = np.empty((len(values), width), np.uint8)
    used = np.ones(groups.shape, np.bool_)
    sizes = np.ones(len(values), np.uint8)
    for i in range(width):
        more = rest > 0x7F
        groups[:, i] = rest.astype(np.uint8) | more.view(np.uint8) << 7
        if i + 1 < width:
            used[:, i + 1] = more
            sizes += more
            rest >>= rest.dtype.type(7)
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return groups[used].tobytes(), ends[bounds].tolist()


@functools.lru_cache(maxsize=65536)
def _entry_head(name: str, dtype: str, payload_bytes: int) -> bytes:
    """Everything of a map entry that stands before its packed values."""
    packed = b"\n" + _varint(payload_bytes)
    size = len(packed) + payload_bytes
    numbers = {"float32": b"\x12", "int64": b"\x1a"}.get(dtype, b"\n") + _varint(size)
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
    return dataclasses.replace(write_sections(path, [examples]), sections=())


def write_sections(path: str, sections: Iterable[Iterable[bytes]]) -> ShardInfo:
    """Writes a shard of several sections, each given by its serialized examples.

    A section without examples is left out of the description. See `write_shard`.
    """
    import tensorflow as tf

    written = []
    try:
        with files.atomic_path(path) as temporary:
            with tf.io.TFRecordWriter(temporary) as writer:
                for examples in sections:
                    count = size = 0
                    for example in examples:
                        writer.write(example)
                        count += 1
                        size += len(example) + FRAME_BYTES
                    if count:
                        written.append(Section(count, size))
            digest = files.sha256(temporary)
    except tf.errors.OpError as error:
        raise AlbertError(f"{path} cannot be written: {error.message}.") from error
    count, size = sum(s.examples for s in written), sum(s.bytes for s in written)
    return ShardInfo(os.path.basename(path), count, size, digest, tuple(written))


def read_examples(path: str) -> Iterator[bytes]:
    """Yields the serialized examples of a TFRecord file.

    Raises:
      AlbertError: the file is missing, or a record is damaged or cut off; names the file, the
        record (from 0) and the byte where it starts.
    """
    for frame in read_frames(path):
        if frame.fault:
            raise AlbertError(
                f"{path}: record {frame.number} (byte {frame.offset}): {frame.fault}; "
                "build or copy the file again."
            )
        yield frame.example
