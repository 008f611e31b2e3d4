# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record layouts; encodes, writes and parses records.

A record is an uncompressed ``tf.train.Example`` in a TFRecord file, laid out as the TF1 release
lays them out (google-research/albert create_pretraining_data.write_instance_to_example_files).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json, short_repr

if TYPE_CHECKING:
    import tensorflow as tf

#: What framing adds to each record in a file.
FRAME_BYTES = 16
#: Records of a block, the unit in which training reads shards.
BLOCK_EXAMPLES = 1024
#: More numbers than any feature has; keeps a damaged layout from asking for all memory.
_MAX_NUMBERS = 1 << 16
#: Types that are stored as bytes.
PACKED = ("uint8", "uint16", "int32")

#: Varints of numbers with at most so many bits, such as piece ids, come from a table.
_TABLE_BITS = 21
#: Tag of the list of values within a Feature; other types are stored as bytes.
_LIST_TAGS = {"float32": b"\x12", "int64": b"\x1a"}
_MODEL_NAMES = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}


@dataclasses.dataclass(frozen=True)
class FeatureSpec:
    """One feature of a record.

    Attributes:
      dtype: "int64", "float32", or one of PACKED, whose numbers are stored as little-endian bytes.
      shape: shape within one record; () is a single number. For a packed type, (n,) means at most n
        numbers; parsing pads them with zeros.
    """

    dtype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raises AlbertError for another dtype or an impossible shape; a list becomes a tuple."""
        if self.dtype not in ("int64", "float32", *PACKED):
            raise AlbertError(
                f"A record feature is int64 or float32, not {short_repr(self.dtype)}."
            )
        if (
            not isinstance(self.shape, (list, tuple))
            or not all(type(size) is int and size > 0 for size in self.shape)
            or (self.dtype in PACKED and len(self.shape) != 1)
            or math.prod(self.shape) > _MAX_NUMBERS
        ):
            raise AlbertError(f"A record feature cannot have the shape {short_repr(self.shape)}.")
        object.__setattr__(self, "shape", tuple(self.shape))


Features = Mapping[str, FeatureSpec]


class Block(NamedTuple):
    """Consecutive records of one pass over a shard's text, the unit in which training reads them.

    Attributes:
      text_pass: number of the pass, from 0.
      examples: number of records: BLOCK_EXAMPLES, or fewer at the end of the pass.
      bytes: their size in the file.
    """

    text_pass: int
    examples: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class ShardInfo:
    """Describes one TFRecord file in a manifest.

    `name` is the base name; `blocks` are all records in file order, as an index of the file.
    """

    name: str
    sha256: str
    blocks: Sequence[Block]

    @property
    def examples(self) -> int:
        """Number of records."""
        return sum(block.examples for block in self.blocks)

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return sum(block.bytes for block in self.blocks)

    @classmethod
    def from_values(cls, values: object, where: str) -> ShardInfo:
        """Inverse of `dataclasses.asdict`; `where` names the file in errors.

        Raises:
          AlbertError: a field is missing, unknown or of another type, or a block is impossible.
        """
        shard = from_json(cls, values, where)
        text_pass, blocks = 0, []
        for block in shard.blocks if isinstance(shard.blocks, (list, tuple)) else [None]:
            valid = isinstance(block, (list, tuple)) and [type(n) for n in block] == [int] * 3
            valid = valid and block[0] in (text_pass, text_pass + bool(blocks))
            if not valid or not (0 < block[1] <= BLOCK_EXAMPLES and block[2] >= FRAME_BYTES):
                raise AlbertError(
                    f"{where}: {shard.name} has no valid list of blocks, but {short_repr(block)}."
                )
            text_pass = block[0]
            blocks.append(Block(*block))
        return dataclasses.replace(shard, blocks=tuple(blocks))


def pretraining_features(
    max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, FeatureSpec]:
    """Returns the layout of a pretraining record.

    All padding is 0. `token_boundary` is 1 where a word starts and at [CLS] and [SEP].
    `next_sentence_labels` is 1 if the segments are swapped (for NSP: unrelated), else 0.
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


def compact_features(max_seq_length: int, vocab_size: int) -> dict[str, FeatureSpec]:
    """Returns the layout of a compact pretraining record: two segments, neither masked nor swapped.

    `text_ids` concatenates the tokens of both segments, without [CLS] and [SEP], in the smallest
    type that holds the vocabulary. `word_starts` has a bit for each token, from the highest bit of
    the first byte on: whether a word starts there. `segment_lengths` are two numbers; the second is
    0 if there is one segment. `masking` turns these records into model inputs.
    """
    id_type = "uint16" if vocab_size <= 1 << 16 else "int32"
    return {
        "text_ids": FeatureSpec(id_type, (max_seq_length,)),
        "word_starts": FeatureSpec("uint8", (-(-max_seq_length // 8),)),
        "segment_lengths": FeatureSpec("int64", (2,)),
    }


def to_model_names(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Renames record features to the models' names. No other code translates these names."""
    return {_MODEL_NAMES.get(name, name): value for name, value in columns.items()}


def parse_columns(serialized: tf.Tensor, features: Features) -> dict[str, tf.Tensor]:
    """Parses serialized records, string [batch], into tensors [batch, *shape] of the stored types.

    Packed features are padded or cut to the layout's length.
    """
    import tensorflow as tf

    packed = {name: spec for name, spec in features.items() if spec.dtype in PACKED}
    wanted = {
        name: tf.io.FixedLenFeature(spec.shape, tf.as_dtype(spec.dtype))
        for name, spec in features.items()
    }
    wanted |= dict.fromkeys(packed, tf.io.FixedLenFeature((), tf.string))
    parsed = tf.io.parse_example(serialized, wanted)
    for name, spec in packed.items():
        dtype = tf.as_dtype(spec.dtype)
        size = spec.shape[0] * dtype.size
        parsed[name] = tf.io.decode_raw(parsed[name], dtype, fixed_length=size)
    return parsed


def encode_examples(
    columns: Mapping[str, np.ndarray | Sequence[np.ndarray]], features: Features
) -> list[bytes]:
    """Encodes n examples as serialized ``tf.train.Example`` messages.

    The bytes are those of protobuf's deterministic serialization
    (``tf.train.Example(...).SerializeToString(deterministic=True)``), with the features sorted by
    name. Protobuf takes several times as long as writing its wire format with NumPy, a feature of
    all examples at a time.

    An Example nests four deep. Tags are (field number << 3 | 2), where 2 means length-delimited:
    Example.features(1) > Features.feature(1), a map entry > key(1), value(2), a Feature >
    bytes_list(1) > value(1), or float_list(2) or int64_list(3) > value(1), packed.

    A column is an array [n, *shape], or a list of n arrays if the feature is packed.
    """
    # For each feature a list of n bytes objects. Or, if these have one size, two arrays uint8
    # [n, size], the heads and the values: joining arrays is faster.
    entries = []
    for name, spec in sorted(features.items()):
        if spec.dtype in PACKED:
            values = np.concatenate(columns[name])
            bounds = np.cumsum([0, *map(len, columns[name])])
        else:
            values = np.reshape(columns[name], -1)
            bounds = np.arange(0, len(values) + 1, math.prod(spec.shape))
        if spec.dtype == "int64":
            payload, ends = _pack_varints(values, bounds)
        else:
            stored = values.astype(np.dtype(spec.dtype).newbyteorder("<"))
            payload, ends = stored.tobytes(), stored.itemsize * bounds
        sizes = np.diff(ends).tolist()
        heads = [_entry_head(name, spec.dtype, size) for size in sizes]
        if len(set(sizes)) == 1:
            rows = np.frombuffer(payload, np.uint8).reshape(len(sizes), sizes[0])
            head = np.frombuffer(heads[0], np.uint8)
            entries += [np.broadcast_to(head, (len(sizes), len(head))), rows]
        else:
            ends = ends.tolist()
            entries.append([head + payload[i:j] for head, i, j in zip(heads, ends, ends[1:])])
    parts = []
    for entry_type, group in itertools.groupby(entries, type):
        if entry_type is list:
            parts += group
        else:
            block = np.concatenate([*group], axis=1)
            data, size = block.tobytes(), block.shape[1]
            parts.append([data[i : i + size] for i in range(0, len(data), size)])
    bodies = map(b"".join, zip(*parts))
    return [b"\n" + _varint(len(body)) + body for body in bodies]


def _pack_varints(values: np.ndarray, bounds: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes integers or bools [m] as varints; also returns `bounds` in bytes."""
    largest = int(values.max(initial=0))
    if values.min(initial=0) < 0 or largest >> _TABLE_BITS:
        varints = [_varint(value % (1 << 64)) for value in values.tolist()]
        payload, sizes = b"".join(varints), list(map(len, varints))
    elif largest < 1 << 7:
        return values.astype(np.uint8).tobytes(), bounds
    else:
        table, used, counts = _varint_tables(largest.bit_length())
        is_used = used.take(values).view(np.bool_)
        payload = np.compress(is_used, table.take(values).view(np.uint8)).tobytes()
        sizes = counts.take(values)
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return payload, ends[bounds]


@functools.lru_cache
def _varint_tables(bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the varints of 0 … 2**bits - 1.

    Each has four bytes, in a uint32; the second array has a 1 for each byte that is used, and the
    third, uint8, says how many are.
    """
    groups = np.arange(1 << bits)[:, None] >> 7 * np.arange(4)
    used = groups > 0
    used[0, 0] = True
    varints = groups & 0x7F | (groups > 0x7F) << 7
    as_bytes = varints.astype(np.uint8), used.astype(np.uint8)
    return *(table.view(np.uint32)[:, 0] for table in as_bytes), used.sum(axis=1, dtype=np.uint8)


@functools.lru_cache(maxsize=65536)
def _entry_head(name: str, dtype: str, payload_bytes: int) -> bytes:
    """Returns the bytes of a map entry that precede its values."""
    head = b""
    # From the inside: the packed values, their list, and the Feature.
    for tag in (b"\n", _LIST_TAGS.get(dtype, b"\n"), b"\x12"):
        head = tag + _varint(payload_bytes + len(head)) + head
    head = b"\n" + _varint(len(name.encode())) + name.encode() + head
    return b"\n" + _varint(payload_bytes + len(head)) + head


@functools.lru_cache(maxsize=65536)
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_shard(path: str, *passes: Iterable[bytes]) -> ShardInfo:
    """Writes the serialized examples of each pass over a text to a TFRecord file.

    After an error there is no file.

    Raises:
      AlbertError: the file cannot be written.
    """
    import tensorflow as tf

    blocks = []
    try:
        with files.atomic_path(path) as temporary:
            with tf.io.TFRecordWriter(temporary) as writer:
                for examples in passes:
                    text_pass = blocks[-1].text_pass + 1 if blocks else 0
                    examples = iter(examples)
                    while block := list(itertools.islice(examples, BLOCK_EXAMPLES)):
                        blocks.append(describe_block(text_pass, block))
                        for example in block:
                            writer.write(example)
            digest = files.sha256(temporary)
    except tf.errors.OpError as error:
        raise AlbertError(f"{path} cannot be written: {error.message}.") from error
    return ShardInfo(os.path.basename(path), digest, tuple(blocks))


def describe_block(text_pass: int, examples: list[bytes]) -> Block:
    """Returns the block of these serialized examples."""
    size = sum(len(example) + FRAME_BYTES for example in examples)
    return Block(text_pass, len(examples), size)
