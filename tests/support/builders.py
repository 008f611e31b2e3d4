# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny vocabularies and model configurations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from albert_tf.config import AlbertConfig
from albert_tf.tokenization.tokenizer import Tokenizer

SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary(words: Iterable[str]) -> list[str]:
    """Returns the pieces of a WordPiece vocabulary: the special ones, then the words."""
    return [*SPECIAL_PIECES, *words]


def write_vocabulary(folder: Path, words: Iterable[str]) -> str:
    """Writes `vocab.txt`, a WordPiece vocabulary, and returns its path."""
    path = Path(folder) / "vocab.txt"
    path.write_text("\n".join(vocabulary(words)) + "\n", encoding="utf-8")
    return str(path)


def write_tokenizer(folder: Path, words: Iterable[str]) -> Tokenizer:
    """Writes `vocab.txt` and returns the tokenizer of that vocabulary."""
    return Tokenizer.from_file(write_vocabulary(folder, words))


def tiny_config(vocab_size: int, **changes: object) -> AlbertConfig:
    """Returns the configuration of a model with one small layer.

    Args:
      vocab_size: number of pieces.
      changes: further fields of AlbertConfig.
    """
    fields = {
        "embedding_size": 8,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 32,
    }
    return AlbertConfig(vocab_size, **{**fields, **changes})
