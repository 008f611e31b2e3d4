# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Position-addressable tf.data input from TFRecord shards.

The order of training examples is a pure function of (seed, epoch, position): each epoch visits the
shards in an order drawn from (seed, epoch) and shuffles windows of consecutive records with
permutations drawn from (seed, epoch, window). A reader can therefore start at any step without
replaying the steps before it, whichever the number of input pipelines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

import tensorflow as tf

from albert_tf import files
from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_manifest
from albert_tf.errors import AlbertError
from albert_tf.training.specs import InputContext

#: Records shuffled together. Builders shuffle within shards already; 16384 records of length 512
#: take about 50 MB.
SHUFFLE_WINDOW = 16384


class RecordSource:
    """TFRecord shards as training and evaluation input.

    Args:
      paths: of the shards; their order matters for evaluation only.
      features: the record layout, of `albert_tf.data.records`.
      seed: of the training order.
      shuffle_window: records shuffled together.

    Attributes:
      num_examples: records in all shards.
      manifest: of the shards, None if they have none.
      fingerprint: hex digest of the data, independent of the folder it lies in.

    Raises:
      AlbertError: a shard is missing, corrupt, of another size than its manifest says, or all
        are empty.
    """

    def __init__(
        self,
        paths: list[str],
        features: Mapping[str, records.FeatureSpec],
        seed: int = 12345,
        shuffle_window: int = SHUFFLE_WINDOW,
    ) -> None:
        self.files = list(paths)
        self.features = features
        self.seed = seed
        self._window = shuffle_window
        self.manifest = find_manifest(self.files)
        if self.manifest is None:
            self.counts = [sum(1 for _ in records.read_examples(path)) for path in self.files]
            identity = repr([(os.path.basename(f), n) for f, n in zip(self.files, self.counts)])
            self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()
        else:
            for path, shard in zip(self.files, self.manifest.shards):
                _check_size(path, shard)
            self.counts = [shard.examples for shard in self.manifest.shards]
            self.fingerprint = self.manifest.fingerprint()
        self.num_examples = sum(self.counts)
        if not self.num_examples:
            raise AlbertError(f"The record files {_name_some(self.files)} hold no examples.")

    def train_input_fn(self, context: InputContext) -> tf.data.Dataset:
        """Endless training batches from `context.start_step` on; see specs.InputFn."""
        start = context.start_step * context.batch_size
        first_epoch, offset = divmod(start, self.num_examples)
        first_offset, zero = tf.constant(offset, tf.int64), tf.constant(0, tf.int64)
        dataset = tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(
            lambda epoch: self._epoch(epoch, tf.where(epoch == first_epoch, first_offset, zero))
        )
        dataset = dataset.rebatch(context.batch_size)
        if context.num_pipelines > 1:
            begin = context.pipeline_index * context.rows
            dataset = dataset.map(lambda batch: batch[begin : begin + context.rows])
        dataset = dataset.map(
            lambda batch: self._parse(batch, context.rows), num_parallel_calls=tf.data.AUTOTUNE
        )
        return dataset.prefetch(tf.data.AUTOTUNE)

    def eval_input_fn(self, context: InputContext) -> tf.data.Dataset:
        """Every record once, in file order; the last batch is padded. See specs.InputFn."""
        begin = context.pipeline_index * context.rows

        def pad(batch: tf.Tensor) -> dict[str, tf.Tensor]:
            real = tf.range(context.batch_size) < tf.shape(batch)[0]
            # Padding rows repeat the first record, so that they parse; nobody reads their outputs.
            padding = tf.repeat(batch[:1], context.batch_size - tf.shape(batch)[0])
            rows = slice(begin, begin + context.rows)
            parsed = self._parse(tf.concat([batch, padding], 0)[rows], context.rows)
            return {**parsed, "is_real_example": tf.ensure_shape(real[rows], [context.rows])}

        dataset = tf.data.TFRecordDataset(self.files).batch(context.batch_size)
        return dataset.map(pad, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def num_batches(self, batch_size: int) -> int:
        """Batches that `eval_input_fn` yields."""
        return -(-self.num_examples // batch_size)

    def _epoch(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.data.Dataset:
        """Shuffled windows (string [<= window]) of one epoch, from record `offset` on."""
        key = tf.random.experimental.stateless_fold_in(tf.constant([self.seed, 0], tf.int64), epoch)
        order = tf.random.experimental.stateless_shuffle(tf.range(len(self.files)), key)
        counts = tf.gather(tf.constant(self.counts, tf.int64), order)
        ends = tf.cumsum(counts)
        first_window = offset // self._window
        skipped = first_window * self._window
        shard = tf.searchsorted(ends, [skipped], side="right")[0]
        shards = tf.gather(tf.constant(self.files), order)[shard:]
        dataset = tf.data.TFRecordDataset(shards, buffer_size=1 << 20)
        dataset = dataset.skip(skipped - (ends[shard] - counts[shard]))

        def shuffle(window: tf.Tensor, records_in_window: tf.Tensor) -> tf.Tensor:
            window_key = tf.random.experimental.stateless_fold_in(key, window + 1)
            shuffled = tf.random.experimental.stateless_shuffle(records_in_window, window_key)
            return shuffled[tf.where(window == first_window, offset - skipped, 0) :]

        return dataset.batch(self._window).enumerate(first_window).map(shuffle)

    def _parse(self, serialized: tf.Tensor, rows: int) -> dict[str, tf.Tensor]:
        parsed = records.parse_batch(serialized, self.features)
        return {k: tf.ensure_shape(v, [rows, *v.shape[1:]]) for k, v in parsed.items()}


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


def record_files(patterns: str) -> list[str]:
    """Shards named by a comma list of paths, globs and folders; a folder means its manifest's.

    Raises:
      AlbertError: a pattern matches nothing, or a folder has no manifest.
    """
    paths: list[str] = []
    for pattern in patterns.split(","):
        if tf.io.gfile.isdir(pattern.strip()):
            folder = pattern.strip()
            shards = Manifest.load(folder).shards
            paths += [os.path.join(folder, shard.name) for shard in shards]
        else:
            paths += files.expand_globs(pattern, "record file")
    return list(dict.fromkeys(paths))
