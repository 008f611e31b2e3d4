# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenized documents: from sentence files into buckets, each of which fits into memory.

A tokenized text is one array of int32: the ids of each sentence and SENTENCE_END, and DOCUMENT_END
after the sentences of each document. The file of a bucket holds its documents in this form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from albert_tf.io import files
from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.tokenizer import Tokenizer

SENTENCE_END, DOCUMENT_END = -1, -2
#: Characters of text tokenized at once, and sent to a worker process at once.
_BLOCK_CHARACTERS = 1 << 19
#: Longer documents are cut, so that text without blank lines neither fills the memory nor ends up
#: in a single shard. A cut costs one instance its full length.
MAX_DOCUMENT_CHARACTERS = 1 << 19


def read_blocks(
    paths: Sequence[str], on_read: Callable[[int], None] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of a text and stripped lines of whole documents; "" ends a document.

    The texts, plain or compressed, have one sentence per line and blank lines between documents.
    Documents end with their files, and so do blocks. On `on_read` see read_lines.

    Raises:
      AlbertError: a file is missing, damaged or not text; see read_lines.
    """
    for text, path in enumerate(paths):
        block = []
        in_block = in_document = 0
        for line in read_lines(path, on_read=on_read):
            line = line.strip()
            block.append(line)
            in_block += len(line) + 1
            in_document = in_document + len(line) + 1 if line else 0
            if in_document >= MAX_DOCUMENT_CHARACTERS:
                block.append("")
                in_document = 0
            if not block[-1] and in_block >= _BLOCK_CHARACTERS:
                yield text, block
                block, in_block = [], 0
        yield text, [*block, ""]


def tokenize(lines: Sequence[str], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Returns the tokenized documents of a block; those without tokens are left out."""
    encoded = iter(tokenizer.encode_batch([line for line in lines if line]))

    def sentences() -> Iterator[Sequence[int]]:
        for line in lines:
            if not line:
                yield (DOCUMENT_END,)
            elif ids := next(encoded):
                yield ids
                yield (SENTENCE_END,)

    numbers = np.fromiter(chain.from_iterable(sentences()), np.int32)
    documents = np.split(numbers, np.flatnonzero(numbers == DOCUMENT_END) + 1)
    return [document for document in documents if len(document) > 1]


def bucket_of(text: int, document: int, num_buckets: int) -> int:
    """Returns the bucket of a document from its number in a text, and the number of the text.

    Neighbours get different buckets, and the order in which texts are tokenized does not matter.
    """
    return (text + document) % num_buckets


def bucket_path(folder: str, bucket: int) -> str:
    """Returns the path of a bucket's file; buckets without documents have none."""
    return os.path.join(folder, f"bucket-{bucket:05d}.bin")


class Bucket(NamedTuple):
    """Documents in memory, concatenated.

    Attributes:
      tokens: int32 [tokens].
      sentence_bounds: int32 [sentences + 1]: sentence s is tokens[bounds[s]:bounds[s + 1]].
      document_bounds: int32 [documents + 1]: likewise, the documents' bounds in sentences.
      own_documents: the bucket's own documents are the first `own_documents` ones.
    """

    tokens: np.ndarray
    sentence_bounds: np.ndarray
    document_bounds: np.ndarray
    own_documents: int

    @classmethod
    def from_numbers(cls, own: np.ndarray, *others: np.ndarray) -> Bucket:
        """Separates tokens and ends; the documents of other buckets follow the bucket's own."""
        numbers = np.concatenate([own, *others])
        is_token = numbers >= 0
        ends = np.flatnonzero(~is_token)
        ends_sentence = numbers[ends] == SENTENCE_END
        tokens_before = ends - np.arange(len(ends))
        sentences_before = np.cumsum(ends_sentence)
        return cls(
            numbers[is_token],
            np.append(0, tokens_before[ends_sentence]).astype(np.int32),
            np.append(0, sentences_before[~ends_sentence]).astype(np.int32),
            int(np.count_nonzero(ends[~ends_sentence] < len(own))),
        )

    @classmethod
    def read(cls, folder: str, buckets: Sequence[int]) -> Bucket:
        """Reads bucket `buckets[0]`; appends the documents of the other buckets to its own."""
        data = (files.read_bytes(bucket_path(folder, bucket)) for bucket in buckets)
        return cls.from_numbers(*(np.frombuffer(numbers, "<i4") for numbers in data))
