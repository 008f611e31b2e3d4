# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`RecordSource`: TFRecord shards as training and evaluation input.

Training follows `training_order`, so that a reader can start at any step without replaying the
steps before it, with any number of input pipelines.

Compact records are masked here. The random numbers are a function of the seed and of the example's
position in the stream (training) or among the records (evaluation).
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.context import DataSource, InputContext
from albert_tf.data.manifest import Manifest, find_manifest
from albert_tf.data.masking import Masking
from albert_tf.data.record_files import check_shard, describe_shard
from albert_tf.data.training_order import Blocks, TrainingOrder, read_blocks
from albert_tf.errors import AlbertError
from albert_tf.io import files, storage
from albert_tf.io.json_values import joined
from albert_tf.io.progress import Progress

#: Small batches are masked together, up to this number of examples, as each call has a fixed cost.
_MASKED_TOGETHER = 1024


@dataclasses.dataclass(eq=False)
class RecordSource(DataSource):
    """TFRecord shards as training and evaluation input.

    Attributes:
      files: paths of the shards; their order matters for evaluation only.
      features: the record layout, from `albert_tf.data.records`.
      seed: of the training order.
      masking: for compact records (records.compact_features): masks them.
      vocab_size: of the model, to check the records' ids; None: ids have no limit.
      num_examples: records in all shards.
      manifest: of the shards; made from the records if there is none.
      blocks: of the shards.
      fingerprint: hex digest of the data, independent of its folder.

    Raises:
      AlbertError: a shard is missing, cut off or of another size than its manifest says, or all
        shards are empty.
    """

    files: list[str]
    features: records.Features
    seed: int = 12345
    masking: Masking | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        """Finds the manifest and checks the shards."""
        manifest = find_manifest(self.files)
        if manifest is None:
            shards = [describe_shard(path) for path in self.files]
            manifest = Manifest("", self.features, shards, {}, {}, {})
        else:
            # A missing or cut-off shard is found before training comes to it.
            for path, shard in zip(self.files, manifest.shards):
                files.check_file(path, "record file")
                size = storage.size(path)
                if size != shard.bytes:
                    raise AlbertError(
                        f"The record file {path} has {size} bytes, but its manifest says "
                        f"{shard.bytes}; it is damaged: build or copy it again."
                    )
        self.manifest = manifest
        self.num_examples = manifest.num_examples
        if not self.num_examples:
            raise AlbertError(f"The record files {joined(self.files)} hold no examples.")
        self.blocks = Blocks.from_infos(self.files, manifest.shards)
        self.fingerprint = manifest.fingerprint()
        if self.masking:
            self.fingerprint += f"-{self.masking.fingerprint}"

    def check(self) -> None:
        """Reads all records to find out why a run failed.

        Raises:
          AlbertError: a record is corrupt, or a shard is not the one that was opened; names the
            first one.
        """
        shards = self.manifest.shards
        with Progress("looking for damage", sum(shard.bytes for shard in shards)) as progress:
            for path, shard in zip(self.files, shards):
                _, errors = check_shard(
                    path, self.features, shard, progress.update, self.vocab_size
                )
                for error in errors:
                    raise error

    @property
    def description(self) -> dict[str, Any]:
        """Describes the data and how they were built, as JSON values; without paths and times."""
        inputs = [
            {"name": os.path.basename(entry["path"]), "bytes": entry["bytes"]}
            for entry in self.manifest.options.get("input_files", ())
        ]
        return {
            "kind": self.manifest.kind,
            "examples": self.num_examples,
            "shards": [shard.name for shard in self.manifest.shards],
            "options": {**self.manifest.options, "input_files": inputs},
            "statistics": dict(self.manifest.statistics),
        }

    def _training(self, context: InputContext) -> tf.data.Dataset:
        order = TrainingOrder(self.blocks, context.batch_size, self.seed)
        dataset = order.batches(context.row_slice.start, context.rows, context.start_step)
        if self.masking:
            return self._masked(dataset, context)
        return dataset.map(
            lambda batch: self._read(batch, context.rows, 0), num_parallel_calls=tf.data.AUTOTUNE
        )

    def _masked(self, batches: tf.data.Dataset, context: InputContext) -> tf.data.Dataset:
        size, rows = context.batch_size, context.rows
        # With several pipelines, this one's batches are not contiguous in the stream.
        together = max(1, _MASKED_TOGETHER // size) if context.num_pipelines == 1 else 1

        def mask(number, serialized) -> dict[str, tf.Tensor]:
            step = context.start_step + number * together
            first = step * size + context.row_slice.start
            masked = self._read(tf.reshape(serialized, [-1]), together * rows, first)
            return {k: tf.reshape(v, [together, rows, *v.shape[1:]]) for k, v in masked.items()}

        dataset = batches.batch(together, drop_remainder=True).enumerate()
        dataset = dataset.map(mask, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.unbatch()

    def _evaluation(self, context: InputContext) -> tf.data.Dataset:
        size, own = context.batch_size, context.row_slice

        def parse(number, chosen) -> dict[str, tf.Tensor]:
            index, batch = chosen
            # Padding rows repeat a record, so that they parse; their outputs are ignored.
            missing = size - tf.size(index)
            index = tf.pad(tf.cast(index, tf.int32), [[0, missing]], constant_values=-1)[own]
            batch = tf.concat([batch, tf.repeat(batch[:1], missing)], 0)[own]
            parsed = self._read(batch, context.rows, number * size + own.start)
            return {**parsed, "example_index": tf.ensure_shape(index, [context.rows])}

        dataset = read_blocks(self.blocks.read(np.arange(len(self.blocks)))).enumerate()
        dataset = dataset.batch(size).enumerate()
        return dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)

    def _read(
        self, serialized: tf.Tensor, rows: int, first_row: tf.Tensor | int
    ) -> dict[str, tf.Tensor]:
        """Parses serialized records, string [rows], and masks compact ones; see Masking.draw.

        Returns tensors [rows, *shape] under the model's names, int32 or float32.
        """
        serialized = tf.ensure_shape(serialized, [rows])
        if self.masking:
            return self.masking.draw(serialized, self.seed, first_row)
        columns = records.parse_columns(serialized, self.features)
        return records.to_model_names(
            {
                name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
                for name, value in columns.items()
            }
        )
