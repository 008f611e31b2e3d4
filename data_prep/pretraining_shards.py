# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One shard of pretraining records from its buckets of tokenized documents."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf.data import records
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.io.workers import Advance
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.assembly import assemble
from data_prep.compact_records import encode_compact_instances
from data_prep.instances import Instances, create_instances
from data_prep.masking import mask
from data_prep.pretraining_options import PretrainingOptions
from data_prep.spill import Bucket, Runs, bucket_reader

#: Numbers (instances × length) worked on at once: large enough for NumPy, small enough for caches.
_BATCH_NUMBERS = 1 << 19


@dataclasses.dataclass(frozen=True)
class Context:
    """What is the same for all shards of a build."""

    tokenizer: Tokenizer
    options: PretrainingOptions


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """One shard to write.

    Attributes:
      path: the TFRecord file.
      build_folder: where the run files are, and a note on every finished shard.
      runs: how the run files hold the buckets.
      buckets: the shard's buckets, each with those its unrelated segments may come from after it.
      num_tokens: tokens in the shard's own buckets.
    """

    path: str
    build_folder: str
    runs: Runs
    buckets: Sequence[Sequence[int]]
    num_tokens: int

    @property
    def note_path(self) -> str:
        """Where the note on the finished shard is."""
        return os.path.join(self.build_folder, f"{os.path.basename(self.path)}.json")

    def result(self) -> ShardResult | None:
        """What the note says; None if there is none, or the shard is not whole any longer."""
        import tensorflow as tf

        if not tf.io.gfile.exists(self.note_path):
            return None
        note = files.read_json(self.note_path, "build state")
        result = from_json(ShardResult, note, self.note_path)
        info = records.ShardInfo.from_values(result.shard, self.note_path)
        folder, name = os.path.split(self.path)
        if info.name != name or not is_whole(folder, info):
            return None
        return dataclasses.replace(result, shard=info)


@dataclasses.dataclass(frozen=True)
class ShardResult:
    """A written shard: its description, and counts for the statistics."""

    shard: records.ShardInfo
    counts: dict[str, int]


def is_whole(folder: str, shard: records.ShardInfo) -> bool:
    """Whether the shard is in `folder` and as long as it should be."""
    import tensorflow as tf

    path = os.path.join(folder, shard.name)
    return tf.io.gfile.exists(path) and tf.io.gfile.stat(path).length == shard.bytes


def write_pretraining_shard(context: Context, task: ShardTask, advance: Advance) -> None:
    """Writes a shard, a pure function of the documents, the options and the bucket numbers.

    Each pass goes over all buckets of the shard, so that any part of the shard that is as long as a
    pass holds nearly all of its text. Then writes the note that `ShardTask.result` reads.

    Args:
      context: tokenizer and options.
      task: see ShardTask.
      advance: told how many tokens of the documents, counted once a pass, have been worked on.
    """
    counts: Counter[str] = Counter()
    passes = range(context.options.dupe_factor)
    copies = os.path.join(task.build_folder, "buckets") if len(passes) > 1 else None
    with bucket_reader(task.build_folder, task.runs, copies) as read:
        info = records.write_sections(
            task.path, (_one_pass(context, task, read, n, counts, advance) for n in passes)
        )
    result = ShardResult(info, dict(counts))
    files.write_json(task.note_path, dataclasses.asdict(result))


def _one_pass(
    context: Context,
    task: ShardTask,
    read: Callable[[Sequence[int]], Bucket],
    number: int,
    counts: Counter[str],
    advance: Advance,
) -> Iterator[bytes]:
    """The examples of one pass over the shard's buckets, one bucket in memory at a time.

    What is made of a bucket follows from (seed, bucket, pass); the order of the buckets, from
    (seed, first bucket of the shard, pass).
    """
    seed, first = context.options.random_seed, task.buckets[0][0]
    # The 1 tells this stream of numbers from that of the first bucket's instances.
    order = np.random.default_rng([seed, first, number, 1]).permutation(len(task.buckets))
    for place in order.tolist():
        buckets = task.buckets[place]
        rng = np.random.default_rng([seed, buckets[0], number])
        yield from _examples(context, read(buckets), rng, counts, advance)


def _examples(
    context: Context,
    bucket: Bucket,
    rng: np.random.Generator,
    counts: Counter[str],
    advance: Advance,
) -> Iterator[bytes]:
    """The examples of one pass over a bucket."""
    options = context.options
    batch_size = max(1, _BATCH_NUMBERS // options.max_seq_length)
    instances, cut = create_instances(
        bucket, context.tokenizer.word_starts, options.instances(), rng
    )
    counts.update(cut)
    work = bucket.own_tokens
    for start in range(0, len(instances), batch_size):
        end = min(start + batch_size, len(instances))
        some = instances.take(slice(start, end))
        if options.compact:
            yield from encode_compact_instances(
                context.tokenizer, options, bucket.tokens, some, counts
            )
        else:
            yield from encode_instances(context, bucket.tokens, some, rng, counts)
        advance(work * end // len(instances) - work * start // len(instances))


def encode_instances(
    context: Context,
    tokens: np.ndarray,
    instances: Instances,
    rng: np.random.Generator,
    counts: Counter[str],
) -> list[bytes]:
    """Masks instances and encodes them as records; adds to `counts`."""
    options, tokenizer = context.options, context.tokenizer
    batch = assemble(tokens, instances, options.max_seq_length, tokenizer)
    masked = mask(batch, options.masking(), tokenizer.mask_id, random_ids(context), rng)
    counts["instances"] += len(instances)
    counts["sequence_tokens"] += int(batch.lengths.sum())
    counts["label_1"] += int(instances.labels.sum())
    counts["instances_without_predictions"] += int((masked.weights[:, 0] == 0).sum())
    counts["replaced_by_mask"] += masked.replaced_by_mask
    counts["kept"] += masked.kept
    counts["replaced_by_random"] += masked.replaced_by_random
    counts["permuted"] += masked.permuted
    for words, spans in enumerate(masked.span_counts.tolist(), start=1):
        counts[f"spans_{words}"] += spans
    columns = {
        "input_ids": masked.input_ids,
        "input_mask": batch.input_mask,
        "segment_ids": batch.segment_ids,
        "token_boundary": batch.piece_starts,
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.labels,
        "masked_lm_weights": masked.weights,
        "next_sentence_labels": instances.labels,
    }
    return records.encode_examples(
        columns,
        options.features(tokenizer.vocab_size),
    )


def random_ids(context: Context) -> np.ndarray:
    """int32: the ids random replacements are drawn from; the official builder draws from all."""
    ids = np.arange(context.tokenizer.vocab_size, dtype=np.int32)
    return ids if context.options.official else np.delete(ids, context.tokenizer.special_ids)
