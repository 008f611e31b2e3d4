# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes one shard of pretraining records, masked or compact, from its buckets of documents."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.data import records
from albert_tf.data.masking import Masking
from albert_tf.data.records import ShardInfo
from albert_tf.data_prep.documents import Bucket
from albert_tf.data_prep.instances import create_instances
from albert_tf.data_prep.pretraining_options import SOP, PretrainingOptions
from albert_tf.io import files, removal, storage
from albert_tf.io.workers import Advance
from albert_tf.tokenization.tokenizer import Tokenizer

#: Folder of the shards and the notes on them, in the build's working folder.
RECORDS = "records"
#: Numbers (instances × length) processed at once: many for NumPy, few enough for the caches.
_BATCH_NUMBERS = 1 << 19
#: Counts of how documents are cut, for the statistics.
_CUTTING = (
    "instances_truncated",
    "tokens_truncated",
    "chunks_dropped_no_other_document",
    "documents_skipped_single_sentence",
    "sentences_left_out",
    "instances_repeated",
)


@dataclasses.dataclass(frozen=True)
class Context:
    """The tokenizer and the options, which are the same for all records of a build."""

    tokenizer: Tokenizer
    options: PretrainingOptions

    @functools.cached_property
    def masking(self) -> Masking:
        """Masks and, for sentence order, swaps compact records."""
        length, swap = self.options.max_seq_length, self.options.sentence_objective == SOP
        features = records.compact_features(length, self.tokenizer.vocab_size)
        return Masking(features, self.options, self.tokenizer, swap)


class ShardTask(NamedTuple):
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
        """The TFRecord file."""
        return os.path.join(self.folder, RECORDS, self.name)

    @property
    def note_path(self) -> str:
        """Path of the note on the finished shard."""
        return f"{self.path}.json"

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

    `advance` is called with 1 for each bucket in each pass.
    """
    counts = Counter()
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


def encode(
    context: Context,
    tokens: np.ndarray,
    instances: np.ndarray,
    seed: int,
    first: int,
    counts: Counter[str],
) -> list[bytes]:
    """Encodes instances in the format of the options.

    Args:
      context: tokenizer and options.
      tokens: int32 [tokens] of the bucket.
      instances: int32 [5, n], see create_instances.
      seed: of all random choices; not used for compact records.
      first: position of the first instance among those with this seed.
      counts: counts for the statistics; added to.
    """
    options, tokenizer = context.options, context.tokenizer
    columns = compact_columns(tokens, instances, options.max_seq_length, tokenizer)
    lengths = columns["segment_lengths"]
    counts["instances"] += len(lengths)
    counts["sequence_tokens"] += int(lengths.sum() + (2 + (lengths[:, 1] > 0)).sum())
    if options.compact:
        sizes = lengths.sum(axis=1)
        for name, used in (("text_ids", sizes), ("word_starts", -(-sizes // 8))):
            columns[name] = [row[:size] for row, size in zip(columns[name], used.tolist())]
    else:
        columns = masked_columns(context, columns, instances[4], seed, first, counts)
    return records.encode_examples(columns, options.features(tokenizer.vocab_size))


def compact_columns(
    tokens: np.ndarray, instances: np.ndarray, max_seq_length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """Returns n instances as columns of records.compact_features, [n, *shape], padded with 0.

    On `tokens` and `instances` see `encode`.
    """
    a_start, a_end, b_start, b_end, _ = instances
    a, b = a_end - a_start, b_end - b_start
    column = np.arange(max_seq_length, dtype=np.int32)
    in_text = column < (a + b)[:, None]
    index = column + a_start[:, None]
    index += (column >= a[:, None]) * (b_start - a - a_start)[:, None]
    ids = tokens.take(index, mode="clip") * in_text
    starts = tokenizer.word_starts.take(ids) & in_text
    dtype = records.compact_features(max_seq_length, tokenizer.vocab_size)["text_ids"].dtype
    return {
        "text_ids": ids.astype(dtype),
        "word_starts": np.packbits(starts, axis=1),
        "segment_lengths": np.stack([a, b], axis=1),
    }


def masked_columns(
    context: Context,
    columns: dict[str, np.ndarray],
    labels: np.ndarray,
    seed: int,
    first: int,
    counts: Counter[str],
) -> dict[str, np.ndarray]:
    """Masks n instances with `labels`, int32 [n]; on the other arguments see `encode`.

    Returns:
      The features of records.pretraining_features by name, [n, *shape].
    """
    masked = context.masking.mask(columns, seed, first)
    masked["next_sentence_labels"] += labels
    counts["label_1"] += int(masked["next_sentence_labels"].sum())
    counts["masked_tokens"] += int(masked["masked_lm_weights"].sum())
    features = context.options.features(context.tokenizer.vocab_size)
    return dict(zip(features, map(masked.get, records.to_model_names(features))))


def summarize(counts: Counter[str], options: PretrainingOptions) -> dict[str, Any]:
    """Returns the manifest's statistics; compact records have none of what training draws.

    The counts are of all shards and passes; those of the corpus itself of one pass.
    """
    tokens = counts["sequence_tokens"]
    statistics = {
        "corpus": {name: counts[name] for name in ("documents", "sentences", "tokens")},
        "instances": counts["instances"],
        "fill_ratio": round(tokens / counts["instances"] / options.max_seq_length, 6),
        "cutting": {name: counts[name] for name in _CUTTING},
    }
    if options.compact:
        return statistics
    return {
        **statistics,
        "label_1_share": round(counts["label_1"] / counts["instances"], 6),
        "masked_tokens": counts["masked_tokens"],
        "masked_share": round(counts["masked_tokens"] / tokens, 6),
    }
