# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`RecordSource`: TFRecord shards as training and evaluation input.

Training follows `training_order`, so that a reader can start at any step without replaying the
steps before it, with any number of input pipelines.

Token sequences are batched by length: chunks of the shuffled stream are sorted by length and cut
into batches, and the batches are shuffled. Each batch is padded to the next of `length_buckets`.

Compact records are masked here. The random numbers are a function of the seed and of the example's
position in the stream (training) or among the records (evaluation).
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.context import FileInput, InputContext
from albert_tf.data.manifest import Manifest, find_manifests, joined_manifest
from albert_tf.data.masking import Masking
from albert_tf.data.record_errors import raise_first_fault
from albert_tf.data.training_order import Blocks, TrainingOrder, read_blocks
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.json_values import shown_names

#: Number of batches in a chunk that is sorted by length.
CHUNK_BATCHES = 64
#: Small batches are masked together, up to this number of examples, as each call has a fixed cost.
_MASKED_TOGETHER = 1024
#: Lengths that batches are padded to: few where XLA compiles the whole model for each of them, and
#: otherwise close to each other, as padding costs time: multiples of 2 up to 32, of 4 up to 64, ….
_FEW_LENGTHS = (16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384)
_LENGTHS = (
    *range(4, 32, 2),
    *range(32, 64, 4),
    *range(64, 128, 8),
    *range(128, 256, 16),
    *range(256, 512, 32),
)


def length_buckets(
    max_seq_length: int, *, pad_to_max: bool = False, few: bool = False
) -> tuple[int, ...]:
    """Returns the lengths to pad batches to, in ascending order.

    Args:
      max_seq_length: the last one.
      pad_to_max: whether it is the only one, as on TPUs.
      few: whether there are only a few, because the model is compiled for each.
    """
    shorter = () if pad_to_max else _FEW_LENGTHS if few else _LENGTHS
    return (*(n for n in shorter if n < max_seq_length), max_seq_length)


@dataclasses.dataclass(eq=False)
class RecordSource:
    """TFRecord shards as training and evaluation input.

    Attributes:
      files: paths of the shards; their order matters for evaluation only.
      features: the record layout, from `albert_tf.data.records`.
      seed: of the training order.
      lengths: for records of token sequences (records.sequence_features): ascending lengths to pad
        batches to. The last one must hold every row.
      masking: for compact records (records.compact_features): masks them.
      vocab_size: of the model, to check the records' ids; None: ids have no limit.
      num_examples: records in all shards.
      manifest: of the shards, None if they have none.
      blocks: of the shards.
      fingerprint: hex digest of the data, independent of its folder.

    Raises:
      AlbertError: a shard is missing, cut off or of another size than its manifest says, or all
        shards are empty.
    """

    files: list[str]
    features: records.Features
    seed: int = 12345
    lengths: tuple[int, ...] = ()
    masking: Masking | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        """Finds the manifest and checks the shards."""
        manifests = find_manifests(self.files)
        self.manifest = joined_manifest(manifests, self.files)
        self._folder_manifests = list(manifests.values())
        infos = self.manifest.shards if self.manifest else None
        if infos is None:
            infos = [records.describe_shard(path) for path in self.files]
        else:
            for path, info in zip(self.files, infos):
                _check_size(path, info)
        self._infos = infos
        self.num_examples = sum(info.examples for info in infos)
        if not self.num_examples:
            raise AlbertError(f"The record files {shown_names(self.files)} hold no examples.")
        self.blocks = Blocks.from_infos(self.files, infos)
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        """Identifies the data and whatever else decides the batches, except for the seed."""
        if self.manifest:
            data = self.manifest.fingerprint()
        else:
            identity = repr([dataclasses.astuple(info) for info in self._infos])
            data = hashlib.sha256(identity.encode()).hexdigest()
        masking = self.masking.fingerprint if self.masking else ""
        parts = [data, *map(str, self.lengths), masking]
        return "-".join(filter(None, parts))

    def reseeded(self, seed: int) -> RecordSource:
        """Returns the same data in another training order."""
        other = copy.copy(self)
        other.seed = seed
        return other

    def check(self) -> None:
        """Reads all records to find out why a run failed.

        Raises:
          AlbertError: a record is corrupt; names the first one.
        """
        raise_first_fault(self.files, self.features, self.vocab_size)

    @property
    def description(self) -> dict[str, Any]:
        """Describes the data and how they were built, as JSON values.

        Without a manifest: the names of the shards and their numbers of examples. With manifests in
        several folders, `options` and `statistics` are the first one's, and `mixed_with` has those
        of the others.
        """
        common = {"examples": self.num_examples}
        if self.manifest is None:
            shards = [{"examples": info.examples, "name": info.name} for info in self._infos]
            return {**common, "shards": shards}
        first, *others = map(_describe_build, self._folder_manifests)
        description = {"kind": self.manifest.kind, **common, **first}
        if others:
            description["mixed_with"] = {f"folder {i}": other for i, other in enumerate(others, 2)}
        return description

    @property
    def train_input_fn(self) -> FileInput:
        """Yields training batches from `context.start_step` on; see context.InputFn."""
        return FileInput(self._training_batches, self.files, self.check)

    @property
    def eval_input_fn(self) -> FileInput:
        """Yields every record once; see context.InputFn."""
        return FileInput(self._evaluation_batches, self.files, self.check)

    def num_batches(self, batch_size: int) -> int:
        """Number of batches that `eval_input_fn` yields."""
        return -(-self.num_examples // batch_size)

    def _training_batches(self, context: InputContext) -> tf.data.Dataset:
        if self._is_sorted:
            return self._sorted_batches(context)
        order = TrainingOrder(self.blocks, context.batch_size, self.seed)
        dataset = order.batches(context.row_slice.start, context.rows, context.start_step)
        if self.masking:
            return self._masked(dataset, context)
        return _map_ahead(dataset, lambda batch: self._parse(batch, context.rows))

    def _sorted_batches(self, context: InputContext) -> tf.data.Dataset:
        """Returns training batches of similar lengths.

        Chunks are sorted as a whole, so each pipeline reads all of them. The data of fine-tuning
        tasks are small, and one shard.
        """
        size = context.batch_size
        first_chunk, batches_before = divmod(context.start_step, CHUNK_BATCHES)
        chunk = size * CHUNK_BATCHES

        def batches(number: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
            rows, lengths = self._cut(serialized, size)
            key = tf.random.experimental.stateless_fold_in(
                tf.constant([self.seed, 1], tf.int64), number
            )
            order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(lengths)), key)
            rows, lengths = tf.gather(rows, order), tf.gather(lengths, order)
            return tf.data.Dataset.from_tensor_slices((tf.gather(serialized, rows), lengths))

        order = TrainingOrder(self.blocks, chunk, self.seed, max_readers=1)
        dataset = order.batches(0, chunk, first_chunk)
        dataset = dataset.enumerate(first_chunk).flat_map(batches).skip(batches_before)
        return _map_ahead(
            dataset,
            lambda batch, length: self._parse(batch[context.row_slice], context.rows, length),
        )

    def _masked(self, batches: tf.data.Dataset, context: InputContext) -> tf.data.Dataset:
        """Masks this pipeline's batches, string [rows], from `context.start_step` on."""
        size, rows = context.batch_size, context.rows
        # With several pipelines, this one's batches are not contiguous in the stream.
        together = max(1, _MASKED_TOGETHER // size) if context.num_pipelines == 1 else 1

        def mask(number: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            serialized = tf.ensure_shape(tf.reshape(serialized, [-1]), [together * rows])
            step = context.start_step + number * together
            first = step * size + context.row_slice.start
            masked = self.masking.draw(serialized, self.seed, first)
            return {k: tf.reshape(v, [together, rows, *v.shape[1:]]) for k, v in masked.items()}

        dataset = batches.batch(together, drop_remainder=True).enumerate()
        dataset = dataset.map(mask, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.unbatch().prefetch(tf.data.AUTOTUNE)

    def _evaluation_batches(self, context: InputContext) -> tf.data.Dataset:
        size, own = context.batch_size, context.row_slice

        def batches(index: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
            # Padding rows repeat a record, so that they parse; their outputs are ignored.
            missing = -tf.size(index) % size
            index = tf.pad(tf.cast(index, tf.int32), [[0, missing]], constant_values=-1)
            serialized = tf.concat([serialized, tf.repeat(serialized[:1], missing)], 0)
            rows, lengths = self._cut(serialized, size)
            cut = tf.gather(index, rows), tf.gather(serialized, rows), lengths
            return tf.data.Dataset.from_tensor_slices(cut)

        def parse(number: tf.Tensor, cut: tuple[tf.Tensor, ...]) -> dict[str, tf.Tensor]:
            index, batch, length = cut
            if self.masking:
                batch = tf.ensure_shape(batch[own], [context.rows])
                parsed = self.masking.draw(batch, self.seed, number * size + own.start)
            else:
                parsed = self._parse(batch[own], context.rows, length)
            return {**parsed, "example_index": tf.ensure_shape(index[own], [context.rows])}

        dataset = read_blocks(self.blocks.read(np.arange(len(self.blocks)))).enumerate()
        chunk = size * (CHUNK_BATCHES if self._is_sorted else 1)
        return _map_ahead(dataset.batch(chunk).flat_map(batches).enumerate(), parse)

    @property
    def _is_sorted(self) -> bool:
        """Whether batches are made of records of similar length."""
        return len(self.lengths) > 1

    def _cut(self, serialized: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts records, string [n * size], into batches, of similar length if there are several.

        Returns:
          The rows of each batch, int [n, size], and the length to pad it to, int64 [n], which is 0
          if batches are not sorted by length.
        """
        if not self._is_sorted:
            rows = tf.reshape(tf.range(tf.size(serialized)), [-1, size])
            return rows, tf.zeros([tf.shape(rows)[0]], tf.int64)
        layout = {"row_lengths": self.features["row_lengths"]}
        longest = tf.reduce_max(records.parse_columns(serialized, layout)["row_lengths"], -1)
        lengths = tf.constant(self.lengths, tf.int64)
        buckets = tf.searchsorted(lengths, longest)
        # Stable: examples of one bucket stay in their random order.
        rows = tf.reshape(tf.argsort(buckets, stable=True), [-1, size])
        return rows, tf.gather(lengths, tf.gather(buckets, rows[:, -1]))

    def _parse(
        self, serialized: tf.Tensor, rows: int, length: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Parses a batch of static size `rows`; `length` matters if batches are sorted."""
        if self.lengths:
            length = length if self._is_sorted else self.lengths[0]
            parsed = records.parse_sequences(serialized, self.features, length)
        else:
            parsed = records.parse_batch(serialized, self.features)
        return {k: tf.ensure_shape(v, [rows, *v.shape[1:]]) for k, v in parsed.items()}


def _map_ahead(
    dataset: tf.data.Dataset, function: Callable[..., dict[str, tf.Tensor]]
) -> tf.data.Dataset:
    """Maps a data set in parallel and prefetches the results."""
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _describe_build(manifest: Manifest) -> dict[str, Any]:
    """Returns how the records of a folder were built; without folders in the names of the texts."""
    options = dict(manifest.options)
    if "input_files" in options:
        options["input_files"] = [
            {"name": os.path.basename(file["path"]), "bytes": file["bytes"]}
            for file in options["input_files"]
        ]
    return {"options": options, "statistics": dict(manifest.statistics)}


def _check_size(path: str, shard: records.ShardInfo) -> None:
    """Raises AlbertError for a missing or cut-off shard, before training comes to it."""
    files.check_file(path, "record file")
    size = storage.size(path)
    if size != shard.bytes:
        raise AlbertError(
            f"The record file {path} has {size} bytes, but its manifest says {shard.bytes}; "
            "it is damaged: build or copy it again."
        )
