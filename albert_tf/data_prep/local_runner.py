# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a build in processes of this machine."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from albert_tf.data_prep.documents import bucket_of, bucket_path, read_blocks, tokenize
from albert_tf.data_prep.pretraining_shards import Context, ShardTask, write_pretraining_shard
from albert_tf.io import files, folders
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.io.workers import Advance, Workers

#: Numbers (4 bytes each) of tokenized documents held in memory.
_MAX_NUMBERS = 1 << 23


class LocalRunner(Workers):
    """Runs a build in processes of this machine; see pretraining_build.Runner.

    `folder` is the build's working folder.
    """

    def __init__(self, context: Context, folder: str, num_workers: int = 1) -> None:
        self._passes, self._folder = context.options.dupe_factor, folder
        super().__init__(num_workers, Context, (context.tokenizer, context.options))

    def tokenize(self, input_files: Sequence[str], num_buckets: int) -> None:
        """Tokenizes blocks of lines in the workers; writes the buckets in this process."""
        with Progress("tokenizing", total_bytes(list(input_files))) as progress:
            blocks = read_blocks(input_files, progress.update)
            tokenized = self.map(_tokenize, blocks, progress.update)
            _write_buckets(self._folder, _with_buckets(tokenized, num_buckets))

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


def _with_buckets(
    tokenized: Iterable[tuple[int, list[np.ndarray]]], num_buckets: int
) -> Iterator[tuple[int, np.ndarray]]:
    counts: Counter[int] = Counter()
    for text, documents in tokenized:
        for document in documents:
            yield bucket_of(text, counts[text], num_buckets), document
            counts[text] += 1


def _write_buckets(folder: str, documents: Iterable[tuple[int, np.ndarray]]) -> None:
    """Writes the files of all buckets from documents in order, each with its bucket."""
    with folders.scratch_folder(os.path.join(folder, "buckets")) as scratch:
        waiting: dict[int, list[np.ndarray]] = defaultdict(list)
        size = 0

        def append() -> None:
            for bucket, arrays in waiting.items():
                with open(bucket_path(scratch, bucket), "ab") as f:
                    f.writelines(arrays)
            waiting.clear()

        for bucket, document in documents:
            waiting[bucket].append(document)
            size += len(document)
            if size >= _MAX_NUMBERS:
                append()
                size = 0
        append()
        for name in os.listdir(scratch):
            content = files.read_bytes(os.path.join(scratch, name))
            files.write_bytes(os.path.join(folder, name), content)
