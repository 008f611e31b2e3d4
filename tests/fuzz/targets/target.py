# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a kind of file is that is fuzzed, and what several kinds are made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from albert_tf.tokenization.tokenizer import Tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##a", "##b"]


CONFIG = {
    "vocab_size": len(PIECES),
    "embedding_size": 4,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 16,
}


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes:
      make: writes a valid file, with all that belongs to it, into a folder; gives its path.
      read: reads it, as a program would; is handed its path.
      is_json: whether values in it may be changed besides bytes.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    is_json: bool = False


def written(name: str, content: str | bytes | object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content
        if not isinstance(data, (str, bytes)):
            data = json.dumps(data)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return make


def vocabulary(folder: Path) -> Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(folder / "vocab.txt"))
