# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes one shard of pretraining records from its buckets of tokenized documents."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.data import records
from albert_tf.data.records import ShardInfo
from albert_tf.io import files, removal, storage
from albert_tf.io.workers import Advance
from data_prep.documents import Bucket
from data_prep.encoding import Context, encode
from data_prep.instances import create_instances

#: Folder of the shards, in the build's working folder.
RECORDS, NOTES = "records", "notes"
#: Numbers (instances × length) processed at once: many for NumPy, few enough for the caches.
_BATCH_NUMBERS = 1 << 19


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard to write.

    Attributes:
      folder: the build's working folder, with the buckets.
      name: name of the TFRecord file.
      buckets: the shard's buckets, each followed by those that its unrelated segments may come
        from.
      owner: of temporary files, see removal.own_temporaries.
    """

    folder: str
    name: str
    buckets: Sequence[Sequence[int]]
    owner: str

    @property
    def path(self) -> str:
        """Path of the TFRecord file."""
        return os.path.join(self.folder, RECORDS, self.name)

    @property
    def note_path(self) -> str:
        """Path of the note on the finished shard."""
        return os.path.join(self.folder, NOTES, f"{self.name}.json")

    def result(self) -> tuple[ShardInfo, dict[str, int]] | None:
        """Reads the shard's description and counts; None if it is not finished."""
        if not files.exists(self.note_path):
            return None
        note = files.read_json(self.note_path, "build state")
        shard = ShardInfo.from_values(note["shard"], self.note_path)
        return (shard, note["counts"]) if is_complete(os.path.dirname(self.path), shard) else None


def is_complete(folder: str, shard: ShardInfo) -> bool:
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
      advance: called with 1 for each bucket in each pass.
    """
    counts: Counter[str] = Counter()
    passes = range(context.options.dupe_factor)
    with removal.own_temporaries(task.owner):
        all_passes = (_one_pass(context, task, number, counts, advance) for number in passes)
        shard = records.write_shard(task.path, *all_passes)
        note = {"shard": dataclasses.asdict(shard), "counts": dict(counts)}
        files.write_json(task.note_path, note)


def _one_pass(
    context: Context, task: ShardTask, number: int, counts: Counter[str], advance: Advance
) -> Iterator[bytes]:
    """Yields the examples of one pass over the shard's buckets, with one bucket in memory.

    What is drawn for a bucket depends on (seed, bucket, pass); the order of the buckets on (seed,
    first bucket of the shard, pass).
    """
    options = context.options
    batch_size = max(1, _BATCH_NUMBERS // options.max_seq_length)
    # The 1 separates this stream of random numbers from that of the first bucket's instances.
    order = np.random.default_rng([options.random_seed, task.buckets[0][0], number, 1])
    for index in order.permutation(len(task.buckets)).tolist():
        buckets = task.buckets[index]
        bucket = Bucket.read(task.folder, buckets)
        if number == 0:
            sentences = int(bucket.document_bounds[bucket.own_documents])
            counts["documents"] += bucket.own_documents
            counts["sentences"] += sentences
            counts["tokens"] += int(bucket.sentence_bounds[sentences])
        rng = np.random.default_rng([options.random_seed, buckets[0], number])
        instances, cutting = create_instances(bucket, context.tokenizer.word_starts, options, rng)
        counts.update(cutting)
        seed = int(rng.integers(1 << 62))
        for start in range(0, instances.shape[1], batch_size):
            batch = instances[:, start : start + batch_size]
            yield from encode(context, bucket.tokens, batch, seed, start, counts)
        advance(1)
