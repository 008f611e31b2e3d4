# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Extends the vocabulary of a pretrained model by the words of a text."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from albert_tf.errors import AlbertError
from albert_tf.io import files, folders
from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.new_words import split_words, with_words
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.pretrained_model import load_pretrained

#: The weights with a row or a number for each piece.
_OF_PIECES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


def extend_vocabulary(
    path: str,
    input_files: str,
    output_dir: str,
    vocab_size: int | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Writes a model whose vocabulary also has words that that of `path` splits.

    Old pieces keep their ids. A new one follows them, and its embedding and output bias are the
    means of those of the pieces that stood for the word. Continue pretraining with the result.

    Args:
      path: anything that `load_pretrained` takes.
      input_files: text, or words: a comma list of paths and globs.
      output_dir: a new folder, for a checkpoint with its configuration and tokenizer.
      vocab_size: the number of pieces of the result, for which the most frequent words are taken;
        None for all words.
      overwrite: see folders.new_folder.

    Returns:
      The new words, in the order of their ids.

    Raises:
      AlbertError: there is no such model or text, the model has no tokenizer or one that cannot be
        extended, no word is new, or the folder is not empty.
    """
    paths = files.expand_globs(input_files)
    with folders.new_folder(output_dir, overwrite, path) as folder:
        model = load_pretrained(path)
        tokenizer = model.checked_tokenizer()
        old = tokenizer.vocab_size
        words = split_words(tokenizer, itertools.chain(*map(read_lines, paths)))
        if vocab_size is not None:
            if vocab_size <= old:
                raise AlbertError(f"`vocab_size` must be above {old}, that of {path}.")
            words = words[: vocab_size - old]
        if not words:
            raise AlbertError(f"The vocabulary of {path} has all words of {', '.join(paths)}.")
        extended, parts = with_words(tokenizer, words), tokenizer.encode_batch(words)
        weights = {name: model.named_weights()[name].numpy() for name in model.load_report.matched}
        for name in {*_OF_PIECES} & {*weights}:
            rows = weights[name][:old]  # The table may be padded.
            weights[name] = np.stack([*rows, *(rows[ids].mean(axis=0) for ids in parts)])
        config = dataclasses.replace(model.config, vocab_size=extended.vocab_size)
        write_tf2(folder, config, extended, weights)
    return words
