# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizes texts independently of each other, then deals their documents to buckets.

A text is one file; its number is its position in the corpus.
In the build's folder a tokenized text is three files: the documents as in a run file, their sizes
(int32 [documents, 2]: numbers in the first file, tokens), and a JSON file with the counts, which is
written last and marks the text as finished.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.io import files
from data_prep.documents import read_blocks, split_documents, tokenize_block
from data_prep.encoding import Context
from data_prep.spill import RUN_PER_BUCKET, Dealer, Runs, Spill, write_run


@dataclasses.dataclass(frozen=True)
class DealtText:
    """Where a tokenized text's documents go.

    Attributes:
      number: number of the text.
      first_document: Document.number of its first document; within the text they count from 0.
      first_position: position of its first document, or part of one, among those of the corpus.
      buckets: int32 [documents]: the bucket of each.
    """

    number: int
    first_document: int
    first_position: int
    buckets: np.ndarray


def _path(folder: str, number: int, suffix: str) -> str:
    return os.path.join(folder, f"text-{number:05d}.{suffix}")


def tokenize_text(context: Context, folder: str, number: int, text_file: str) -> None:
    """Tokenizes a text, unless this has been done before.

    Raises:
      AlbertError: a file is missing, damaged or not text.
    """
    import tensorflow as tf

    counts_path = _path(folder, number, "json")
    if files.exists(counts_path):
        return
    counts: Counter[str] = Counter()
    sizes = []
    tokenized = (tokenize_block(block, context.tokenizer) for block in read_blocks([text_file]))
    path = _path(folder, number, "bin")
    with files.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as f:
        f.write(b"")  # GFile does not create the file before the first write.
        for document in split_documents(tokenized, counts):
            numbers = np.concatenate(document.arrays())
            f.write(numbers.astype("<i4").tobytes())
            sizes.append((len(numbers), len(document.tokens)))
    files.write_bytes(_path(folder, number, "sizes"), np.array(sizes, "<i4").tobytes())
    files.write_json(counts_path, dict(counts))


def _sizes(folder: str, number: int) -> np.ndarray:
    data = files.read_bytes(_path(folder, number, "sizes"), "build state")
    return np.frombuffer(data, "<i4").reshape(-1, 2)


def deal_texts(folder: str, num_texts: int, num_buckets: int) -> Iterator[DealtText]:
    """Deals the documents of all texts in order; finally writes the file that `dealt` reads."""
    dealer = Dealer(num_buckets)
    counts: Counter[str] = Counter()
    position = 0
    for number in range(num_texts):
        tokens = _sizes(folder, number)[:, 1].tolist()
        buckets = np.fromiter(map(dealer.deal, tokens), np.int32, len(tokens))
        yield DealtText(number, counts["documents"], position, buckets)
        counts.update(files.read_json(_path(folder, number, "json"), "build state"))
        position += len(tokens)
    Spill(RUN_PER_BUCKET, dealer.bucket_tokens(), dict(counts)).save(_dealt_path(folder))


def dealt(folder: str) -> Spill:
    """Returns the corpus as `deal_texts` has dealt it."""
    return Spill.load(_dealt_path(folder))


def _dealt_path(folder: str) -> str:
    return os.path.join(folder, "dealt.json")


def scatter_text(folder: str, text: DealtText) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yields for each document: bucket, (position in the corpus, its bytes in a run file)."""
    import tensorflow as tf

    sizes = _sizes(folder, text.number)[:, 0].tolist()
    with tf.io.gfile.GFile(_path(folder, text.number, "bin"), "rb") as f:
        for i, (size, bucket) in enumerate(zip(sizes, text.buckets.tolist())):
            numbers = np.frombuffer(f.read(4 * size), "<i4").copy()
            numbers[0] += text.first_document
            yield bucket, (text.first_position + i, numbers.tobytes())


def gather_bucket(folder: str, bucket: int, documents: Sequence[tuple[int, bytes]]) -> None:
    """Writes the run file of a bucket.

    Args:
      folder: the build's folder.
      bucket: number of the bucket.
      documents: its documents from `scatter_text`, in any order.
    """
    arrays = [np.frombuffer(numbers, "<i4") for _, numbers in sorted(documents)]
    write_run(Runs.path(folder, bucket, 0), [arrays])
