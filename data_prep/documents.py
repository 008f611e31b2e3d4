# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and tokenizes sentence files: one sentence per line, a blank line between documents."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.spill import Document

#: Characters of text tokenized at once, and sent to a worker process at once.
_BLOCK_CHARACTERS = 1 << 19
#: Longer documents are cut into parts, so that text without blank lines neither fills the memory
#: nor ends up in a single shard. A cut costs one instance its full length.
MAX_PART_TOKENS = 1 << 17


@dataclasses.dataclass(frozen=True)
class TokenBlock:
    """Consecutive lines, tokenized.

    Attributes:
      lengths: int32 [lines]: tokens of the line; -1 where a document ends.
      tokens: int32: the tokens of all lines.
    """

    lengths: np.ndarray
    tokens: np.ndarray


_END = TokenBlock(np.array([-1], np.int32), np.zeros(0, np.int32))


def read_blocks(
    paths: Sequence[str], on_read: Callable[[int], None] | None = None
) -> Iterator[list[str]]:
    """Yields the stripped lines of all files in blocks; "" ends a document.

    Documents end with their files, and so do blocks. The documents of a file, and the parts of a
    very long one, then do not depend on the files before it.

    Args:
      paths: text files, plain or compressed.
      on_read: called from time to time with the number of further bytes (as stored) read.

    Raises:
      AlbertError: a file is missing, damaged or not text; see read_lines.
    """
    for path in paths:
        block: list[str] = []
        characters = 0
        for line in read_lines(path, on_read=on_read):
            line = line.strip()
            block.append(line)
            characters += len(line) + 1
            if characters >= _BLOCK_CHARACTERS:
                yield block
                block, characters = [], 0
        yield [*block, ""]


def tokenize_block(lines: Sequence[str], tokenizer: Tokenizer) -> TokenBlock:
    """Tokenizes a block of stripped lines."""
    encoded = tokenizer.encode_batch([line for line in lines if line])
    sizes = np.fromiter(map(len, encoded), np.int32, len(encoded))
    tokens = np.fromiter(chain.from_iterable(encoded), np.int32, int(sizes.sum()))
    lengths = np.full(len(lines), -1, np.int32)
    lengths[[bool(line) for line in lines]] = sizes
    return TokenBlock(lengths, tokens)


def split_documents(blocks: Iterable[TokenBlock], counts: Counter[str]) -> Iterator[Document]:
    """Joins token blocks and splits them into documents.

    Args:
      blocks: in the order of the text.
      counts: `documents`, `sentences`, `tokens`, `sentences_without_tokens` and
        `long_document_cuts` are added to it.
    """
    number = parts = num_tokens = 0
    lengths: list[np.ndarray] = []
    tokens: list[np.ndarray] = []
    for block in chain(blocks, [_END]):
        counts["sentences_without_tokens"] += int((block.lengths == 0).sum())
        for piece_lengths, piece_tokens, ends in _pieces(block):
            if len(piece_tokens):
                lengths.append(piece_lengths)
                tokens.append(piece_tokens)
                num_tokens += len(piece_tokens)
            if num_tokens and (ends or num_tokens >= MAX_PART_TOKENS):
                document = Document(number, np.concatenate(lengths), np.concatenate(tokens))
                counts["sentences"] += len(document.sentence_lengths)
                counts["tokens"] += num_tokens
                parts += 1
                num_tokens = 0
                lengths, tokens = [], []
                yield document
            if ends and parts:
                counts["documents"] += 1
                counts["long_document_cuts"] += parts - 1
                number += 1
                parts = 0


def _pieces(block: TokenBlock) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Splits a block where documents end and where there are enough tokens for a part.

    Yields sentence lengths, their tokens, and whether the document ends after them.
    """
    sizes = np.maximum(block.lengths, 0)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    start = 0
    for end in [*np.flatnonzero(block.lengths < 0).tolist(), len(block.lengths)]:
        while start < end:
            stop = int(np.searchsorted(bounds, bounds[start] + MAX_PART_TOKENS))
            stop = min(max(stop, start + 1), end)
            piece = sizes[start:stop]
            yield piece[piece > 0], block.tokens[bounds[start] : bounds[stop]], False
            start = stop
        if end < len(block.lengths):
            yield sizes[:0], block.tokens[:0], True
        start = end + 1
