# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build in processes of this machine."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from albert_tf.data_prep.documents import bucket_of, bucket_path, read_blocks, tokenize
from albert_tf.data_prep.pretraining_shards import Context, ShardTask, write_pretraining_shard
from albert_tf.io import files, folders
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.workers import Advance, Workers


class LocalRunner(Workers):
    """Runs a build in processes of this machine; see build_pretraining_data.

    `folder` is the build's working folder.
    """

    def __init__(self, context: Context, folder: str, num_workers: int = 1) -> None:
        self._passes, self._folder = context.options.dupe_factor, folder
        super().__init__(num_workers, Context, (context.tokenizer, context.options))

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> None:
        """Tokenizes blocks of lines in the workers; writes the buckets in this process."""
        progress = Progress("tokenizing", total_bytes(list(input_files)))
        scratch_folder = folders.scratch_folder(os.path.join(self._folder, "buckets"))
        with progress, scratch_folder as scratch:
            blocks = read_blocks(input_files, progress.update)
            counts = Counter()  # Of the documents of each text.
            for text, documents in self.map(_tokenize, blocks, progress.update):
                by_bucket = defaultdict(list)
                for number, document in enumerate(documents, counts[text]):
                    by_bucket[bucket_of(text, number, num_buckets)].append(document)
                counts[text] += len(documents)
                for bucket, arrays in by_bucket.items():
                    with open(bucket_path(scratch, bucket), "ab") as f:
                        f.writelines(arrays)
            for name in os.listdir(scratch):
                content = files.read_bytes(os.path.join(scratch, name))
                files.write_bytes(os.path.join(self._folder, name), content)

    def write_shards(self, tasks: Sequence[ShardTask]) -> None:
        """Writes shards in the workers."""
        total = self._passes * sum(len(task.buckets) for task in tasks)
        with Progress("building", total, "buckets") as progress:
            for _ in self.map(write_pretraining_shard, tasks, progress.update):
                pass


def _tokenize(
    context: Context, block: tuple[int, list[str]], advance: Advance
) -> tuple[int, list[np.ndarray]]:
    text, lines = block
    return text, tokenize(lines, context.tokenizer)
