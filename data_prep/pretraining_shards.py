# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes one shard of pretraining records from its buckets of tokenized documents."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf.data import records
from albert_tf.io import files, removal, storage
from albert_tf.io.json_values import from_json
from albert_tf.io.workers import Advance
from data_prep.encoding import Context, encode
from data_prep.instances import create_instances
from data_prep.spill import Bucket, Runs, bucket_reader

#: Numbers (instances × length) processed at once: many for NumPy, few enough for the caches.
_BATCH_NUMBERS = 1 << 19


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard to write.

    Attributes:
      path: path of the TFRecord file.
      build_folder: folder of the run files and of a note on each finished shard.
      runs: how the run files hold the buckets.
      buckets: the shard's buckets, each followed by those that its unrelated segments may come
        from.
      num_tokens: tokens in the shard's own buckets.
      owner: of temporary files, see removal.own_temporaries.
    """

    path: str
    build_folder: str
    runs: Runs
    buckets: Sequence[Sequence[int]]
    num_tokens: int
    owner: str

    @property
    def note_path(self) -> str:
        """Path of the note on the finished shard."""
        return os.path.join(self.build_folder, f"{os.path.basename(self.path)}.json")

    def result(self) -> ShardResult | None:
        """Reads the note; returns None if it is missing or the shard is no longer complete."""

        if not files.exists(self.note_path):
            return None
        note = files.read_json(self.note_path, "build state")
        result = from_json(ShardResult, note, self.note_path)
        info = records.ShardInfo.from_values(result.shard, self.note_path)
        folder, name = os.path.split(self.path)
        if info.name != name or not is_complete(folder, info):
            return None
        return dataclasses.replace(result, shard=info)


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """A finished shard: its description, and counts for the statistics."""

    shard: records.ShardInfo
    counts: dict[str, int]


def is_complete(folder: str, shard: records.ShardInfo) -> bool:
    """Returns whether the shard is in `folder` and has its full size."""

    path = os.path.join(folder, shard.name)
    return files.exists(path) and storage.size(path) == shard.bytes


def write_pretraining_shard(context: Context, task: ShardTask, advance: Advance) -> None:
    """Writes a shard and then the note that `ShardTask.result` reads.

    The shard is a pure function of the documents, the options and the bucket numbers. Each pass
    covers all buckets of the shard, so that any part of the shard as long as a pass holds nearly
    all of its text.

    Args:
      context: tokenizer and options.
      task: see ShardTask.
      advance: called with the number of document tokens processed, counted once per pass.
    """
    counts: Counter[str] = Counter()
    passes = range(context.options.dupe_factor)
    copies = os.path.join(task.build_folder, "buckets") if len(passes) > 1 else None
    with removal.own_temporaries(task.owner):
        with bucket_reader(task.build_folder, task.runs, copies) as read:
            all_passes = (_one_pass(context, task, read, n, counts, advance) for n in passes)
            info = records.write_passes(task.path, all_passes)
        files.write_json(task.note_path, dataclasses.asdict(ShardResult(info, dict(counts))))


def _one_pass(
    context: Context,
    task: ShardTask,
    read: Callable[[Sequence[int]], Bucket],
    number: int,
    counts: Counter[str],
    advance: Advance,
) -> Iterator[bytes]:
    """Yields the examples of one pass over the shard's buckets, with one bucket in memory.

    What is drawn for a bucket depends on (seed, bucket, pass); the order of the buckets on (seed,
    first bucket of the shard, pass).
    """
    seed = context.options.random_seed
    # The 1 separates this stream of random numbers from that of the first bucket's instances.
    order = np.random.default_rng([seed, task.buckets[0][0], number, 1])
    for index in order.permutation(len(task.buckets)).tolist():
        buckets = task.buckets[index]
        rng = np.random.default_rng([seed, buckets[0], number])
        yield from _examples(context, read(buckets), rng, counts, advance)


def _examples(
    context: Context,
    bucket: Bucket,
    rng: np.random.Generator,
    counts: Counter[str],
    advance: Advance,
) -> Iterator[bytes]:
    """Yields the examples of one pass over a bucket."""
    options = context.options
    instances, cutting = create_instances(bucket, context.tokenizer.word_starts, options, rng)
    counts.update(cutting)
    seed = int(rng.integers(1 << 62))
    batch_size = max(1, _BATCH_NUMBERS // options.max_seq_length)
    for start in range(0, len(instances), batch_size):
        end = min(start + batch_size, len(instances))
        batch = instances.take(slice(start, end))
        yield from encode(context, bucket.tokens, batch, seed, start, counts)
        tokens = bucket.own_tokens
        advance(tokens * end // len(instances) - tokens * start // len(instances))
