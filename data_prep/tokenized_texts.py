# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts tokenized one by one, by workers that know nothing of each other, then dealt to buckets.

A text is one or more files, after which a document ends; its number is its place in the corpus. In
the build's folder it becomes three files: the documents as a run file holds them, their sizes
(int32 [documents, 2]: numbers in the first file, tokens), and a note with the counts, which is
written last and tells that the text is finished.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.io import files
from data_prep.documents import read_blocks, split_documents, tokenize_block
from data_prep.pretraining_shards import Context
from data_prep.spill import RUN_PER_BUCKET, Dealer, Runs, Spill, write_run


@dataclasses.dataclass(frozen=True)
class DealtText:
    """Where a tokenized text's documents go.

    Attributes:
      number: the text.
      first_document: Document.number of its first document; within the text they count from 0.
      first_place: place of its first document, or part of one, among those of the corpus.
      buckets: int32 [documents]: the bucket of each.
    """

    number: int
    first_document: int
    first_place: int
    buckets: np.ndarray


def _path(folder: str, number: int, suffix: str) -> str:
    return os.path.join(folder, f"text-{number:05d}.{suffix}")


def tokenize_text(context: Context, folder: str, number: int, paths: Sequence[str]) -> None:
    """Tokenizes a text, unless that has been done before.

    Raises:
      AlbertError: a file is missing, damaged or not text.
    """
    import tensorflow as tf

    note = _path(folder, number, "json")
    if tf.io.gfile.exists(note):
        return
    counts: Counter[str] = Counter()
    sizes = []
    blocks = read_blocks(paths, not context.options.official)
    tokenized = (tokenize_block(block, context.tokenizer) for block in blocks)
    path = _path(folder, number, "bin")
    with files.atomic_path(path) as temporary, tf.io.gfile.GFile(temporary, "wb") as f:
        f.write(b"")  # GFile makes no file before something is written.
        for document in split_documents(tokenized, counts):
            numbers = np.concatenate(document.numbers())
            f.write(numbers.astype("<i4").tobytes())
            sizes.append((len(numbers), len(document.tokens)))
    files.write_bytes(_path(folder, number, "sizes"), np.array(sizes, "<i4").tobytes())
    files.write_json(note, dict(counts))


def _sizes(folder: str, number: int) -> np.ndarray:
    data = files.read_bytes(_path(folder, number, "sizes"), "build state")
    return np.frombuffer(data, "<i4").reshape(-1, 2)


def deal_texts(folder: str, num_texts: int, num_buckets: int) -> Iterator[DealtText]:
    """Deals the documents of all texts in their order; at the end writes what `dealt` reads."""
    dealer = Dealer(num_buckets)
    counts: Counter[str] = Counter()
    place = 0
    for number in range(num_texts):
        tokens = _sizes(folder, number)[:, 1].tolist()
        buckets = np.fromiter(map(dealer.deal, tokens), np.int32, len(tokens))
        yield DealtText(number, counts["documents"], place, buckets)
        counts.update(files.read_json(_path(folder, number, "json"), "build state"))
        place += len(tokens)
    spill = Spill(RUN_PER_BUCKET, dealer.bucket_tokens(), dict(counts))
    files.write_json(os.path.join(folder, "dealt.json"), dataclasses.asdict(spill))


def dealt(folder: str) -> Spill:
    """The corpus as `deal_texts` has dealt it."""
    path = os.path.join(folder, "dealt.json")
    return Spill.from_values(files.read_json(path, "build state"), path)


def scatter_text(folder: str, text: DealtText) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yields of each document: bucket, place in the corpus, what a run file holds of it."""
    import tensorflow as tf

    sizes = _sizes(folder, text.number)[:, 0].tolist()
    with tf.io.gfile.GFile(_path(folder, text.number, "bin"), "rb") as f:
        for i, (size, bucket) in enumerate(zip(sizes, text.buckets.tolist())):
            numbers = np.frombuffer(f.read(4 * size), "<i4").copy()
            numbers[0] += text.first_document
            yield bucket, (text.first_place + i, numbers.tobytes())


def gather_bucket(folder: str, bucket: int, documents: Sequence[tuple[int, bytes]]) -> None:
    """Writes the run file of a bucket.

    Args:
      folder: the build's folder.
      bucket: number of the bucket.
      documents: what `scatter_text` gave for it, in any order.
    """
    parts = [np.frombuffer(numbers, "<i4") for _, numbers in sorted(documents)]
    write_run(Runs.path(folder, bucket, 0), [parts])
