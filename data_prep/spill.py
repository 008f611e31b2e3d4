# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenized documents dealt into buckets on disk, so that a corpus of any size fits into memory.

Documents arrive one by one and are kept in memory, bucket by bucket, until there are enough for a
run: one file with the documents of all buckets in the buckets' order. A bucket is read back as the
parts that it has in each of the runs.

A run file: int64 [num_buckets + 1], the bounds of the buckets in what follows; int32 numbers, for
each document its number, the number of its sentences, their lengths, their tokens.
"""

from __future__ import annotations

import dataclasses
import heapq
import os
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.errors import AlbertError

#: Numbers (4 bytes each) held in memory before a run is written.
_RUN_NUMBERS = 1 << 23


@dataclasses.dataclass(frozen=True)
class Document:
    """A tokenized document, or a part of a very long one.

    Attributes:
      number: counted from 0 over the corpus; the parts of one document share it.
      sentence_lengths: int32 [sentences], none 0.
      tokens: int32 [sum of sentence_lengths].
    """

    number: int
    sentence_lengths: np.ndarray
    tokens: np.ndarray


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Documents in memory, end to end.

    Attributes:
      tokens: int32 [tokens].
      sentence_bounds: int32 [sentences + 1]: sentence s is tokens[bounds[s]:bounds[s + 1]].
      document_bounds: int32 [documents + 1]: the same, of documents in sentences.
      document_ids: int32 [documents]: Document.number.
      own_documents: how many of them, from the first, are the bucket's own.
    """

    tokens: np.ndarray
    sentence_bounds: np.ndarray
    document_bounds: np.ndarray
    document_ids: np.ndarray
    own_documents: int

    @property
    def own_tokens(self) -> int:
        """Tokens of the bucket's own documents."""
        return int(self.sentence_bounds[self.document_bounds[self.own_documents]])

    @classmethod
    def from_documents(
        cls, documents: Sequence[Document], own_documents: int | None = None
    ) -> Bucket:
        """Joins documents; by default all are the bucket's own."""
        lengths = [document.sentence_lengths for document in documents]
        return cls(
            np.concatenate([np.zeros(0, np.int32), *(d.tokens for d in documents)]),
            _bounds(np.concatenate([np.zeros(0, np.int32), *lengths])),
            _bounds(np.array([len(x) for x in lengths], np.int32)),
            np.array([document.number for document in documents], np.int32),
            len(documents) if own_documents is None else own_documents,
        )


def _bounds(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


class SpillWriter:
    """Deals documents to buckets and writes them to run files.

    Each document goes to the bucket with the fewest tokens so far. That depends on the documents
    and their order alone, evens the buckets out, and spreads neighbours over the corpus.
    """

    def __init__(self, folder: str, num_buckets: int) -> None:
        """Prepares to write into `folder`, which exists."""
        self._folder = folder
        self._heap = [(0, bucket) for bucket in range(num_buckets)]
        self._parts: list[list[np.ndarray]] = [[] for _ in range(num_buckets)]
        self._waiting = 0
        self._runs = 0

    def add(self, document: Document) -> None:
        """Takes the next document."""
        tokens, bucket = heapq.heappop(self._heap)
        heapq.heappush(self._heap, (tokens + len(document.tokens), bucket))
        head = np.array([document.number, len(document.sentence_lengths)], np.int32)
        self._parts[bucket] += [head, document.sentence_lengths, document.tokens]
        self._waiting += 2 + len(document.sentence_lengths) + len(document.tokens)
        if self._waiting >= _RUN_NUMBERS:
            self._write_run()

    def finish(self) -> tuple[int, list[int]]:
        """Writes what is left; returns the number of runs and the tokens in each bucket."""
        self._write_run()
        tokens = {bucket: count for count, bucket in self._heap}
        return self._runs, [tokens[bucket] for bucket in range(len(self._parts))]

    def _write_run(self) -> None:
        import tensorflow as tf

        sizes = [sum(map(len, parts)) for parts in self._parts]
        with tf.io.gfile.GFile(_run_path(self._folder, self._runs), "wb") as f:
            f.write(np.concatenate([[0], np.cumsum(sizes)]).astype("<i8").tobytes())
            for parts in self._parts:
                for part in parts:
                    f.write(part.astype("<i4").tobytes())
                parts.clear()
        self._runs += 1
        self._waiting = 0


def read_bucket(folder: str, num_runs: int, num_buckets: int, buckets: Sequence[int]) -> Bucket:
    """Reads the bucket `buckets[0]`, with the documents of the others after its own."""
    documents: list[Document] = []
    own_documents = 0
    for bucket in buckets:
        for run in range(num_runs):
            documents += _read_part(_run_path(folder, run), num_buckets, bucket)
        own_documents = own_documents or len(documents)
    return Bucket.from_documents(documents, own_documents)


def _read_part(path: str, num_buckets: int, bucket: int) -> Iterator[Document]:
    import tensorflow as tf

    damaged = AlbertError(
        f"The build state {path} is damaged; delete its folder, and build the records again."
    )
    with tf.io.gfile.GFile(path, "rb") as f:
        size = f.size()
        f.seek(8 * bucket)
        bounds = f.read(16)
        start, end = np.frombuffer(bounds, "<i8").tolist() if len(bounds) == 16 else (0, -1)
        first = 8 * (num_buckets + 1)
        if not 0 <= start <= end <= (size - first) // 4:
            raise damaged
        f.seek(first + 4 * start)
        numbers = np.frombuffer(f.read(4 * (end - start)), "<i4")
    position = 0
    while position < len(numbers):
        number, sentences = [*numbers[position : position + 2].tolist(), -1][:2]
        first_token = position + 2 + sentences
        lengths = numbers[position + 2 : first_token]
        if sentences < 0 or len(lengths) < sentences or lengths.min(initial=0) < 0:
            raise damaged
        position = first_token + int(lengths.sum(dtype=np.int64))
        if position > len(numbers):
            raise damaged
        yield Document(number, lengths, numbers[first_token:position])


def _run_path(folder: str, run: int) -> str:
    return os.path.join(folder, f"run-{run:05d}.bin")
