# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`RecordSource`: TFRecord shards as training and evaluation input.

Training follows the order of `training_order`, so that a reader can start at any step without
replaying the steps before it, whatever the number of input pipelines.

Token sequences are batched with others of similar length: chunks of the shuffled stream are sorted
by length, cut into batches, and the batches are shuffled again. Each batch is padded to one of a
few lengths.

Where corrupt records are passed over, others take their places: see corrupt_records.

Of compact records, batches are masked here, with random numbers that are a function of the seed and
of an example's place in the stream (training) or among the records (evaluation).
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.context import FileInput, InputContext
from albert_tf.data.corrupt_records import (
    ADVICE,
    RepairedShard,
    find_corrupt_records,
    name_faults,
)
from albert_tf.data.dynamic_masking import DynamicMasking
from albert_tf.data.framing import end_checksums
from albert_tf.data.manifest import find_manifest
from albert_tf.data.record_faults import scan_shard
from albert_tf.data.sections import Sections
from albert_tf.data.training_order import (
    ORDER_VERSION,
    SHUFFLE_WINDOW,
    TrainingOrder,
    order_fingerprint,
)
from albert_tf.errors import AlbertError
from albert_tf.io.progress import Progress

#: Batches whose examples are sorted by length together.
_CHUNK_BATCHES = 64
#: Examples masked together when batches are smaller; much of the cost is the same for any number.
_MASKED_TOGETHER = 1024
#: Lengths that batches are padded to. Few, as each is compiled; close, as padding costs time.
_BUCKETS = (16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384)


def length_buckets(max_seq_length: int, pad_to_max: bool = False) -> tuple[int, ...]:
    """Lengths to pad batches to: a few up to `max_seq_length`, or that one alone, as for TPUs."""
    shorter = () if pad_to_max else tuple(n for n in _BUCKETS if n < max_seq_length)
    return (*shorter, max_seq_length)


class RecordSource:
    """TFRecord shards as training and evaluation input.

    Args:
      paths: of the shards; their order matters for evaluation only.
      features: the record layout, of `albert_tf.data.records`.
      seed: of the training order.
      shuffle_window: records shuffled together.
      lengths: for records of token sequences (records.sequence_features), the ascending lengths
        that batches may be padded to; the last one must hold every row.
      masking: for compact records (records.compact_features): what masks them.
      vocab_size: of the model, for checks of the records; None: their ids may be any.
      max_corrupt_records: so many corrupt records may be passed over: others of their shards take
        their places in training, and evaluation leaves them out. They are looked for at once, which
        means that all records are read. 0: nothing is looked for.

    Attributes:
      num_examples: records in all shards, corrupt ones included.
      num_corrupt: of them, those that are passed over.
      manifest: of the shards, None if they have none.
      sections: of the shards.
      fingerprint: hex digest of the data, independent of the folder it lies in.

    Raises:
      AlbertError: a shard is missing, cut off, of another size than its manifest says, or all
        are empty; or more records are corrupt than may be.
    """

    def __init__(
        self,
        paths: list[str],
        features: Mapping[str, records.FeatureSpec],
        seed: int = 12345,
        shuffle_window: int = SHUFFLE_WINDOW,
        lengths: tuple[int, ...] = (),
        masking: DynamicMasking | None = None,
        vocab_size: int | None = None,
        max_corrupt_records: int = 0,
    ) -> None:
        self.files = list(paths)
        self.features = features
        self.seed = seed
        self.lengths = lengths
        self.masking = masking
        self._window, self._vocab_size = shuffle_window, vocab_size
        self.manifest = find_manifest(self.files)
        listed = self.manifest and self.manifest.shards
        self._repaired: list[RepairedShard] = []
        if max_corrupt_records:
            shards = find_corrupt_records(
                self.files, listed, features, vocab_size, max_corrupt_records
            )
            counts = [shard.records for shard in shards]
            if any(len(shard.corrupt) for shard in shards):
                self._repaired = shards
        elif listed:
            for path, shard in zip(self.files, listed):
                _check_size(path, shard)
        else:
            counts = [sum(1 for _ in records.read_examples(path)) for path in self.files]
        self._infos = listed or [_describe(path, n) for path, n in zip(self.files, counts)]
        self.num_corrupt = sum(len(shard.corrupt) for shard in self._repaired)
        self.sections = Sections.of(self.files, self._infos, self._repaired)
        if self.manifest is None:
            identity = repr([dataclasses.astuple(info) for info in self._infos])
            self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()
        else:
            self.fingerprint = self.manifest.fingerprint()
        # All that takes part in the order of training.
        decisive = [order_fingerprint(self.sections), *map(str, lengths)]
        if masking:
            decisive.append(masking.fingerprint)
        self.fingerprint = "-".join([self.fingerprint, *filter(None, decisive)])
        self.num_examples = sum(info.examples for info in self._infos)
        if not self.num_examples:
            raise AlbertError(f"The record files {_name_some(self.files)} hold no examples.")

    def reseeded(self, seed: int) -> RecordSource:
        """The same data in another training order."""
        other = copy.copy(self)
        other.seed = seed
        return other

    def check(self) -> None:
        """Reads all records, to tell why a run failed.

        Raises:
          AlbertError: names the first record that is corrupt, if there is one.
        """
        known = {shard.path: set(shard.corrupt.tolist()) for shard in self._repaired}
        with Progress("looking for damage", len(self.files), "shards") as progress:
            for path in self.files:
                for fault in scan_shard(path, self.features, vocab_size=self._vocab_size).faults:
                    if fault.number not in known.get(path, ()):
                        raise AlbertError(f"{fault.place(path)}; {ADVICE}.")
                progress.update(1)

    @property
    def corruption(self) -> str:
        """A sentence on the records that are passed over; empty if there are none."""
        if not self.num_corrupt:
            return ""
        verb = "record is" if self.num_corrupt == 1 else "records are"
        return (
            f"{self.num_corrupt:,} of {self.num_examples:,} {verb} corrupt and passed over: "
            f"{name_faults(self._repaired)}."
        )

    @property
    def description(self) -> dict[str, Any]:
        """What the data are and how they were made, as JSON values.

        Without a manifest the names of the shards and how many examples they hold.
        """
        if self.manifest is None:
            shards = [{"examples": shard.examples, "name": shard.name} for shard in self._infos]
            return {
                "order_version": ORDER_VERSION,
                "examples": self.num_examples,
                "shards": shards,
            }
        options = dict(self.manifest.options)
        if "input_files" in options:
            options["input_files"] = [
                {"name": os.path.basename(file["path"]), "bytes": file["bytes"]}
                for file in options["input_files"]
            ]
        return {
            "kind": self.manifest.kind,
            "order_version": ORDER_VERSION,
            "examples": self.num_examples,
            "options": options,
            "statistics": dict(self.manifest.statistics),
        }

    @property
    def train_input_fn(self) -> FileInput:
        """Endless training batches from `context.start_step` on; see specs.InputFn."""
        return FileInput(self._training_batches, self.files, self.check)

    @property
    def eval_input_fn(self) -> FileInput:
        """Every record once; `example_index` tells which it is. See specs.InputFn."""
        return FileInput(self._evaluation_batches, self.files, self.check)

    def _training_batches(self, context: InputContext) -> tf.data.Dataset:
        if self._chunk_batches > 1:
            return self._batches_by_length(context)
        order = TrainingOrder(self.sections, context.batch_size, self.seed, self._window)
        dataset = order.batches(_rows_of(context).start, context.rows, context.start_step)
        if self.masking:
            return self._masked(dataset, context)
        length = tf.constant(max(self.lengths, default=0), tf.int64)
        dataset = dataset.map(
            lambda batch: self._parse(batch, context.rows, length),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _batches_by_length(self, context: InputContext) -> tf.data.Dataset:
        """Training batches cut from chunks that are sorted as a whole, so each pipeline reads all.

        The data of fine-tuning tasks are small, and one shard.
        """
        size, own = context.batch_size, _rows_of(context)
        first_chunk, batches_before = divmod(context.start_step, self._chunk_batches)
        chunk = size * self._chunk_batches

        def batches(number: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
            rows, lengths = self._cut(serialized, size)
            key = tf.random.experimental.stateless_fold_in(
                tf.constant([self.seed, 1], tf.int64), number
            )
            order = tf.random.experimental.stateless_shuffle(tf.range(tf.size(lengths)), key)
            rows, lengths = tf.gather(rows, order), tf.gather(lengths, order)
            return tf.data.Dataset.from_tensor_slices((tf.gather(serialized, rows), lengths))

        order = TrainingOrder(self.sections, chunk, self.seed, self._window, max_lanes=1)
        dataset = order.batches(0, chunk, first_chunk)
        dataset = dataset.enumerate(first_chunk).flat_map(batches).skip(batches_before)
        dataset = dataset.map(
            lambda batch, length: self._parse(batch[own], context.rows, length),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

    def _masked(self, batches: tf.data.Dataset, context: InputContext) -> tf.data.Dataset:
        """Masks this pipeline's batches, string [rows], the first of which is of the first step."""
        size, rows = context.batch_size, context.rows
        # Several batches follow each other without a gap only if there is no other pipeline.
        together = max(1, _MASKED_TOGETHER // size) if context.num_pipelines == 1 else 1

        def mask(step: tf.Tensor, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
            serialized = tf.ensure_shape(tf.reshape(serialized, [-1]), [together * rows])
            first = step * size + context.pipeline_index * rows
            masked = self.masking.draw(serialized, self.seed, first)
            return {k: tf.reshape(v, [together, rows, *v.shape[1:]]) for k, v in masked.items()}

        dataset = batches.batch(together, drop_remainder=True).enumerate()
        dataset = dataset.map(
            lambda number, group: mask(context.start_step + number * together, group),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return dataset.unbatch().prefetch(tf.data.AUTOTUNE)

    def _evaluation_batches(self, context: InputContext) -> tf.data.Dataset:
        size = context.batch_size
        own = _rows_of(context)

        def batches(index: tf.Tensor, serialized: tf.Tensor) -> tf.data.Dataset:
            # Padding rows repeat a record, so that they parse; nobody reads their outputs.
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

        sections = tf.data.Dataset.range(len(self.sections))
        dataset = sections.flat_map(self.sections.read).enumerate()
        if self._repaired:
            firsts = np.cumsum([0, *(shard.records for shard in self._repaired)])
            numbers = [first + shard.corrupt for first, shard in zip(firsts, self._repaired)]
            corrupt = tf.constant(np.concatenate(numbers), tf.int64)
            dataset = dataset.map(
                lambda index, record: (
                    tf.where(tf.reduce_any(index == corrupt), tf.constant(-1, tf.int64), index),
                    record,
                )
            )
        dataset = dataset.batch(size * self._chunk_batches).flat_map(batches)
        dataset = dataset.enumerate()
        return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def num_batches(self, batch_size: int) -> int:
        """Batches that `eval_input_fn` yields."""
        return -(-self.num_examples // batch_size)

    @property
    def _chunk_batches(self) -> int:
        return _CHUNK_BATCHES if len(self.lengths) > 1 else 1

    def _cut(self, serialized: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Cuts a chunk (string [n * size]) into batches of similar length.

        Returns:
          The rows of each batch, int [n, size], and the length it is to be padded to, int64 [n].
        """
        if len(self.lengths) <= 1:
            rows = tf.reshape(tf.range(tf.size(serialized)), [-1, size])
            length = tf.constant(max(self.lengths, default=0), tf.int64)
            return rows, tf.fill([tf.shape(rows)[0]], length)
        layout = {"row_lengths": self.features["row_lengths"]}
        longest = tf.reduce_max(records.parse_columns(serialized, layout)["row_lengths"], -1)
        buckets = tf.searchsorted(tf.constant(self.lengths, tf.int64), longest)
        # Stable: examples of one bucket stay in their random order.
        rows = tf.reshape(tf.argsort(buckets, stable=True), [-1, size])
        return rows, tf.gather(tf.constant(self.lengths, tf.int64), tf.gather(buckets, rows[:, -1]))

    def _parse(self, serialized: tf.Tensor, rows: int, length: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.lengths:
            static = self.lengths[0] if len(self.lengths) == 1 else length
            parsed = records.parse_sequences(serialized, self.features, static)
        else:
            parsed = records.parse_batch(serialized, self.features)
        return {k: tf.ensure_shape(v, [rows, *v.shape[1:]]) for k, v in parsed.items()}


def _rows_of(context: InputContext) -> slice:
    """Rows of a global batch that one pipeline yields."""
    begin = context.pipeline_index * context.rows
    return slice(begin, begin + context.rows)


def _describe(path: str, examples: int) -> records.ShardInfo:
    """What identifies a shard that no manifest lists: its size, and how it begins and ends."""
    size = tf.io.gfile.stat(path).length
    return records.ShardInfo(os.path.basename(path), examples, size, end_checksums(path))


def _check_size(path: str, shard: records.ShardInfo) -> None:
    """A cheap look that finds cut-off shards before training does."""
    if not tf.io.gfile.exists(path):
        raise AlbertError(f"The record file {path} does not exist.")
    size = tf.io.gfile.stat(path).length
    if size != shard.bytes:
        raise AlbertError(
            f"The record file {path} has {size} bytes where its manifest says {shard.bytes}; "
            "it is damaged: build or copy it again."
        )


def _name_some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
