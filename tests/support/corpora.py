# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Random corpora, and pretraining records built from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.data import record_files, records
from albert_tf.data.manifest import Manifest
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_build import build_pretraining_data
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.verify_records import find_records
from albert_tf.io.files import sha256
from albert_tf.io.folders import names_below
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import SPECIAL_PIECES, write_vocabulary

WORDS = [f"w{i}" for i in range(200)]
#: Ids of words; the ids above are those of "##x" and "##y".
WORD_IDS = range(len(SPECIAL_PIECES), len(SPECIAL_PIECES) + len(WORDS))
VOCAB_SIZE = WORD_IDS.stop + 2
SMALL = PretrainingOptions(max_seq_length=32, dupe_factor=3)


def write_corpus_vocabulary(folder: Path) -> str:
    """Writes the vocabulary of `corpus`, whose words have one to three pieces."""
    return write_vocabulary(folder, [*WORDS, "##x", "##y"])


def corpus(documents: int = 40, sentences: int = 12, seed: int = 0) -> str:
    """Returns text of documents with 2 to `sentences` - 1 sentences."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        for _ in range(rng.integers(2, sentences)):
            words = rng.choice(WORDS, rng.integers(3, 9))
            suffixes = rng.choice(["", "", "x", "xy"], len(words))
            lines.append(" ".join(w + s for w, s in zip(words, suffixes)))
        lines.append("")
    return "\n".join(lines) + "\n"


def build(
    texts: str | Sequence[str],
    vocabulary: str,
    folder: str | Path,
    options: PretrainingOptions = SMALL,
    runner: Callable = LocalRunner,
    **arguments: object,
) -> Manifest:
    """Builds records.

    Args:
      texts: one text file, or several.
      vocabulary: path of the vocabulary.
      folder: folder for the records.
      options: options of the records.
      runner: see build_pretraining_data.
      arguments: `overwrite`, and further options.
    """
    texts = [texts] if isinstance(texts, str) else texts
    overwrite = arguments.pop("overwrite", False)
    options = dataclasses.replace(options, **arguments)
    source = Tokenizer.from_file(vocabulary)
    return build_pretraining_data(texts, source, str(folder), options, runner, overwrite)


def digests(folder: str | Path) -> dict[str, str]:
    """Returns the checksums of all files in a folder; a finished build has no other folder."""
    return {name: sha256(f"{folder}/{name}") for name in names_below(str(folder))}


def read_columns(folder: str | Path) -> dict[str, np.ndarray]:
    """Returns all records of a folder, [records, *shape] by feature."""
    (found,) = find_records(str(folder))
    examples = [e for path in found.paths for e in record_files.read_examples(path)]
    parsed = records.parse_columns(tf.constant(examples), found.features)
    return {name: value.numpy() for name, value in parsed.items()}


def unmasked_ids(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the ids of masked records before masking, int [records, length]."""
    ids = columns["input_ids"].copy()
    rows, used = np.nonzero(columns["masked_lm_weights"])
    positions = columns["masked_lm_positions"][rows, used]
    ids[rows, positions] = columns["masked_lm_ids"][rows, used]
    return ids
