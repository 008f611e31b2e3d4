# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build in processes of this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.workers import Advance, Workers
from data_prep.documents import TokenBlock, read_blocks, split_documents, tokenize_block
from data_prep.encoding import Context
from data_prep.pretraining_shards import ShardTask, write_pretraining_shard
from data_prep.spill import Spill, SpillWriter


class LocalRunner:
    """Runs a build in processes of this machine; see pretraining_build.Runner."""

    def __init__(self, context: Context, folder: str, num_workers: int = 1) -> None:
        """Prepares the workers.

        Args:
          context: tokenizer and options.
          folder: the build's working folder.
          num_workers: number of processes.
        """
        self._options = context.options
        self._folder = folder
        self._workers = Workers(num_workers, Context, (context.tokenizer, context.options))

    def __enter__(self) -> LocalRunner:
        self._workers.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._workers.__exit__(*exception)

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> Spill:
        """Tokenizes blocks of lines in the workers; deals documents in this process."""
        writer = SpillWriter(self._folder, num_buckets)
        counts: Counter[str] = Counter()
        with Progress("tokenizing", total_bytes(list(input_files))) as progress:
            blocks = read_blocks(input_files, progress.update)
            tokenized = self._workers.map(_tokenize, blocks, progress.update)
            for document in split_documents(tokenized, counts):
                writer.add(document)
        return Spill(*writer.finish(), dict(counts))

    def write_shards(self, tasks: Sequence[ShardTask], all_tokens: int) -> None:
        """Writes shards in the workers."""
        passes = self._options.dupe_factor
        done = all_tokens - sum(task.num_tokens for task in tasks)
        with Progress("building", passes * all_tokens, "tokens", passes * done) as progress:
            for _ in self._workers.map(write_pretraining_shard, tasks, progress.update):
                pass


def _tokenize(context: Context, lines: list[str], advance: Advance) -> TokenBlock:
    return tokenize_block(lines, context.tokenizer)
