# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenized documents in buckets on disk, so that a corpus of any size fits into memory.

`Dealer` assigns documents to buckets. Run files hold the buckets: each run file has a range of
buckets in order, and of each bucket all documents or only some, with the rest in other run files.
`SpillWriter` writes runs with parts of all buckets, one whenever enough documents are in memory;
the Beam pipeline writes one run for each bucket. `bucket_reader` reads buckets once per pass.

A run file holds int64 [num_buckets + 1], the bounds of the buckets in what follows, and then int32
numbers: for each document its number, the number of its sentences, their lengths, their tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, folders
from albert_tf.io.json_values import from_json

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

    def arrays(self) -> list[np.ndarray]:
        """Returns int32 arrays that make up the document's numbers in a run file."""
        head = np.array([self.number, len(self.sentence_lengths)], np.int32)
        return [head, self.sentence_lengths, self.tokens]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Documents in memory, concatenated.

    Attributes:
      tokens: int32 [tokens].
      sentence_bounds: int32 [sentences + 1]: sentence s is tokens[bounds[s]:bounds[s + 1]].
      document_bounds: int32 [documents + 1]: likewise, the documents' bounds in sentences.
      document_ids: int32 [documents]: Document.number.
      own_documents: the bucket's own documents are the first `own_documents` ones.
    """

    tokens: np.ndarray
    sentence_bounds: np.ndarray
    document_bounds: np.ndarray
    document_ids: np.ndarray
    own_documents: int

    def save(self, path: str) -> None:
        """Writes the bucket to a local file."""
        arrays = (self.tokens, self.sentence_bounds, self.document_bounds, self.document_ids)
        with open(path, "wb") as f:
            f.write(np.array([self.own_documents, *map(len, arrays)], np.int64))
            for array in arrays:
                f.write(array)

    @classmethod
    def load(cls, path: str) -> Bucket:
        """Reads a file written by `save`."""
        with open(path, "rb") as f:
            own_documents, *sizes = np.fromfile(f, np.int64, 5).tolist()
            return cls(*(np.fromfile(f, np.int32, size) for size in sizes), own_documents)

    @property
    def own_tokens(self) -> int:
        """The number of tokens in the bucket's own documents."""
        return int(self.sentence_bounds[self.document_bounds[self.own_documents]])

    @classmethod
    def from_documents(
        cls, documents: Sequence[Document], own_documents: int | None = None
    ) -> Bucket:
        """Concatenates documents; by default all are the bucket's own."""
        lengths = [document.sentence_lengths for document in documents]
        empty = np.zeros(0, np.int32)
        return cls(
            np.concatenate([empty, *(document.tokens for document in documents)]),
            _bounds(np.concatenate([empty, *lengths])),
            _bounds(np.array([len(x) for x in lengths], np.int32)),
            np.array([document.number for document in documents], np.int32),
            len(documents) if own_documents is None else own_documents,
        )


def _bounds(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


class Dealer:
    """Assigns each document to the bucket that has the fewest tokens so far.

    The result depends on the documents and their order only. Buckets get nearly equal sizes, and
    neighbouring documents get different buckets.
    """

    def __init__(self, num_buckets: int) -> None:
        """Starts with empty buckets."""
        self._heap = [(0, bucket) for bucket in range(num_buckets)]

    def deal(self, num_tokens: int) -> int:
        """Returns the bucket of the next document, which has `num_tokens` tokens."""
        tokens, bucket = self._heap[0]
        heapq.heapreplace(self._heap, (tokens + num_tokens, bucket))
        return bucket

    def bucket_tokens(self) -> list[int]:
        """Returns the number of tokens in each bucket."""
        return [tokens for _, tokens in sorted((bucket, tokens) for tokens, bucket in self._heap)]


@dataclasses.dataclass(frozen=True)
class Runs:
    """How the run files of a folder hold the buckets.

    Attributes:
      num_buckets: buckets in a file; files of group g hold the buckets from g * num_buckets on.
      num_files: files in a group, each with a part of all buckets of the group.
    """

    num_buckets: int
    num_files: int

    @staticmethod
    def path(folder: str, group: int, number: int) -> str:
        """Returns the path of a group's file number `number`."""
        return os.path.join(folder, f"run-{group:05d}-{number:05d}.bin")


#: One file for each bucket.
RUN_PER_BUCKET = Runs(num_buckets=1, num_files=1)


@dataclasses.dataclass(frozen=True)
class Spill:
    """A tokenized corpus on disk.

    Attributes:
      runs: how the run files hold the buckets.
      bucket_tokens: tokens in each bucket.
      counts: counts of split_documents.
    """

    runs: Runs
    bucket_tokens: Sequence[int]
    counts: dict[str, int]

    def save(self, path: str) -> None:
        """Writes this description, not the run files, to a JSON file."""
        files.write_json(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> Spill:
        """Reads a file written by `save`.

        Raises:
          AlbertError: the file is missing or damaged.
        """
        spill = from_json(cls, files.read_json(path, "build state"), path)
        return dataclasses.replace(spill, runs=from_json(Runs, spill.runs, path))


class SpillWriter:
    """Deals documents to buckets and writes them to run files."""

    def __init__(self, folder: str, num_buckets: int) -> None:
        """Prepares to write into `folder`, which exists."""
        self._folder = folder
        self._dealer = Dealer(num_buckets)
        self._buckets: list[list[np.ndarray]] = [[] for _ in range(num_buckets)]
        self._numbers_in_memory = 0
        self._num_files = 0

    def add(self, document: Document) -> None:
        """Adds the next document."""
        arrays = document.arrays()
        self._buckets[self._dealer.deal(len(document.tokens))] += arrays
        self._numbers_in_memory += sum(map(len, arrays))
        if self._numbers_in_memory >= _RUN_NUMBERS:
            self._write_run()

    def finish(self) -> tuple[Runs, list[int]]:
        """Writes the last run; returns the layout and the number of tokens in each bucket."""
        self._write_run()
        return Runs(len(self._buckets), self._num_files), self._dealer.bucket_tokens()

    def _write_run(self) -> None:
        write_run(Runs.path(self._folder, 0, self._num_files), self._buckets)
        for arrays in self._buckets:
            arrays.clear()
        self._num_files += 1
        self._numbers_in_memory = 0


def write_run(path: str, buckets: Sequence[Sequence[np.ndarray]]) -> None:
    """Writes a run file, which is either complete or absent.

    Args:
      path: path of the file.
      buckets: for each bucket int32 arrays with the numbers of its documents.
    """
    import tensorflow as tf

    sizes = [sum(map(len, arrays)) for arrays in buckets]
    with files.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as f:
        f.write(np.concatenate([[0], np.cumsum(sizes)]).astype("<i8").tobytes())
        for arrays in buckets:
            for array in arrays:
                f.write(array.astype("<i4").tobytes())


def read_bucket(folder: str, runs: Runs, buckets: Sequence[int]) -> Bucket:
    """Reads bucket `buckets[0]`; appends the documents of the other buckets to its own."""
    documents: list[Document] = []
    own_documents = 0
    for bucket in buckets:
        group, index = divmod(bucket, runs.num_buckets)
        for number in range(runs.num_files):
            documents += _read_part(Runs.path(folder, group, number), runs.num_buckets, index)
        own_documents = own_documents or len(documents)
    return Bucket.from_documents(documents, own_documents)


@contextlib.contextmanager
def bucket_reader(
    folder: str, runs: Runs, scratch: str | None
) -> Iterator[Callable[[Sequence[int]], Bucket]]:
    """Yields a function that reads buckets as `read_bucket` does, several times if need be.

    A bucket may be scattered over hundreds of run files, or lie on a remote file system. So the
    first call for a bucket leaves a copy on this machine. Reading the copy takes a hundredth of
    the time of a pass over the bucket.

    Args:
      folder: see read_bucket.
      runs: see read_bucket.
      scratch: folder for the copies, see folders.scratch_folder; None: make no copies, for buckets
        that are read once.
    """
    if scratch is None:
        yield functools.partial(read_bucket, folder, runs)
        return
    with folders.scratch_folder(scratch) as copies:

        def read(buckets: Sequence[int]) -> Bucket:
            path = os.path.join(copies, f"{buckets[0]}.bin")
            if os.path.exists(path):
                return Bucket.load(path)
            bucket = read_bucket(folder, runs, buckets)
            bucket.save(path)
            return bucket

        yield read


def _read_part(path: str, num_buckets: int, index: int) -> Iterator[Document]:
    """Yields the documents that a run file holds of its bucket number `index`."""
    import tensorflow as tf

    damaged = AlbertError(
        f"The build state {path} is damaged; delete its folder, and build the records again."
    )
    with tf.io.gfile.GFile(path, "rb") as f:
        size = f.size()
        f.seek(8 * index)
        bounds = f.read(16)
        start, end = np.frombuffer(bounds, "<i8").tolist() if len(bounds) == 16 else (0, -1)
        head_bytes = 8 * (num_buckets + 1)
        if not 0 <= start <= end <= (size - head_bytes) // 4:
            raise damaged
        f.seek(head_bytes + 4 * start)
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
