# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores masked language models by whole words, to compare models with different vocabularies.

The same words of the same passages are masked for each model. All pieces of a masked word become
[MASK]. The word counts as predicted if every piece is the most probable one; its probability is the
product of its pieces' probabilities.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.io.text_files import read_lines
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.pretrained_model import load_pretrained

#: Words of a passage. With 2.6 pieces a word it still fits into 128 positions.
_WORDS = 48
_LENGTH = 128
_HIDDEN_SHARE = 0.15
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Passage:
    """Consecutive words of one document, some of which are hidden.

    Attributes:
      words: as they stand in the text, with punctuation.
      hidden: indices of the hidden words; all of these consist of letters.
    """

    words: Sequence[str]
    hidden: Sequence[int]


def read_passages(path: str, count: int, seed: int = 12345) -> list[Passage]:
    """Draws passages from a text, the same ones for the same arguments.

    Args:
      path: one sentence per line, a blank line between documents.
      count: how many passages to draw, all of them if the text has fewer.
      seed: of the passages and of the hidden words.
    """
    rng = np.random.default_rng(seed)
    found = list(_cut(path))
    chosen = rng.permutation(len(found))[:count]
    return [_hide(found[i], rng) for i in sorted(chosen)]


def _cut(path: str) -> Iterator[list[str]]:
    """Cuts each document into lists of _WORDS words; what is left at its end is dropped."""
    for is_text, lines in itertools.groupby(read_lines(path), lambda line: bool(line.strip())):
        if is_text:
            words = [word for line in lines for word in line.split()]
            for begin in range(0, len(words) - _WORDS + 1, _WORDS):
                yield words[begin : begin + _WORDS]


def _hide(words: list[str], rng: np.random.Generator) -> Passage:
    candidates = [i for i, word in enumerate(words) if word.isalpha()]
    count = min(len(candidates), max(1, round(_HIDDEN_SHARE * len(words))))
    return Passage(words, sorted(rng.choice(candidates, count, replace=False).tolist()))


def score(model_path: str, passages: Sequence[Passage]) -> dict[str, float]:
    """Scores a model.

    Args:
      model_path: see albert_tf.load_pretrained; it must have a tokenizer.
      passages: of `read_passages`.

    Returns:
      `word_accuracy`, the share of hidden words that are found; `bits_per_character`, the negative
      binary logarithm of the hidden words' probability, divided by the number of their characters;
      and the numbers of `words` and of `pieces`.
    """
    model = load_pretrained(model_path)
    if model.config.max_position_embeddings < _LENGTH:
        raise ValueError(f"{model_path} has positions for fewer than {_LENGTH} tokens.")
    predict = tf.function(lambda batch: model(batch)["mlm_logits"], autograph=False)
    found = words = pieces = characters = 0
    bits = 0.0
    for begin in range(0, len(passages), _BATCH):
        part = passages[begin : begin + _BATCH]
        inputs, targets = _encode(part, model.tokenizer)
        logits = predict({name: tf.constant(value) for name, value in inputs.items()})
        log_probs = tf.nn.log_softmax(logits).numpy()
        best = log_probs.argmax(-1)
        for row, slots in enumerate(targets):
            for word, (first, ids) in slots.items():
                columns = np.arange(first, first + len(ids))
                found += bool((best[row, columns] == ids).all())
                bits -= float(log_probs[row, columns, ids].sum()) / math.log(2)
                words, pieces = words + 1, pieces + len(ids)
                characters += len(part[row].words[word])
    return {
        "word_accuracy": found / words,
        "bits_per_character": bits / characters,
        "words": words,
        "pieces": pieces,
    }


def _encode(
    passages: Sequence[Passage], tokenizer: Tokenizer
) -> tuple[dict[str, np.ndarray], list[dict[int, tuple[int, list[int]]]]]:
    """Tokenizes passages and hides words.

    A passage too long for the model is cut off, with the words hidden there.

    Returns:
      The encoder's inputs and `masked_lm_positions`, int32 [n, P]; and for each passage, by the
      index of the hidden word, its first slot among the positions and the ids of its pieces.
    """
    ids = np.zeros((len(passages), _LENGTH), np.int32)
    mask = np.zeros_like(ids)
    positions: list[list[int]] = []
    targets: list[dict[int, tuple[int, list[int]]]] = []
    for row, passage in enumerate(passages):
        tokens = [tokenizer.cls_id]
        positions.append([])
        targets.append({})
        # SentencePiece never joins words, so each can be encoded by itself.
        for index, pieces in enumerate(tokenizer.encode_batch(passage.words)):
            if len(tokens) + len(pieces) >= _LENGTH:
                break
            if index in passage.hidden and pieces:
                targets[-1][index] = len(positions[-1]), pieces
                positions[-1] += range(len(tokens), len(tokens) + len(pieces))
                pieces = [tokenizer.mask_id] * len(pieces)
            tokens += pieces
        tokens.append(tokenizer.sep_id)
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    width = -(-max(map(len, positions)) // 8) * 8
    slots = np.zeros((len(passages), width), np.int32)
    for row, columns in enumerate(positions):
        slots[row, : len(columns)] = columns
    return {"input_word_ids": ids, "input_mask": mask, "masked_lm_positions": slots}, targets
