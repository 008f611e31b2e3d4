# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Adds whole words to a vocabulary, with ids after those of its pieces."""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import joined
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.sentencepiece_model import WORD_START
from albert_tf.tokenization.tokenizer import WORDPIECE, Tokenizer

#: What the score of a new piece is above the sum of those that stood for the word, for each of its
#: letters: more than the rounding errors in a long text. If a new piece begins with another one,
#: it has more letters, and so remains the best.
_MARGIN = 0.05


def split_words(tokenizer: Tokenizer, lines: Iterable[str]) -> list[str]:
    """Returns the words that are not a piece, normalized, the most frequent first.

    A word is letters, marks and digits between spaces, perhaps with punctuation after it.
    """
    spec, counts = tokenizer.spec, Counter()
    for line in lines:
        text = normalize(line, spec.lower_case, spec.strip_accents)
        # Vocabularies have accents that are kept in one character with their letter.
        parts = unicodedata.normalize("NFC", text).split()
        counts.update(part.rstrip(string.punctuation) for part in parts)
    found = [
        word
        for word, _ in counts.most_common()
        if all(unicodedata.category(character)[0] in "LMN" for character in word)
    ]
    encoded = zip(found, tokenizer.encode_batch(found))
    return [word for word, ids in encoded if len(ids) > 1 or ids == [tokenizer.unk_id]]


def with_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """Returns a tokenizer in which words of `split_words` are pieces, with ids from vocab_size on.

    In a SentencePiece model their scores are a little above those of the pieces that stood for
    them. So other texts change only where just these pieces were at the beginning of a word.

    Raises:
      AlbertError: the vocabulary cannot have one of them as a piece.
    """
    if tokenizer.spec.kind == WORDPIECE:
        data = b"\n".join([tokenizer.data.rstrip(b"\r\n"), *map(str.encode, words), b""])
    else:
        model = ModelProto.FromString(tokenizer.data)
        for word, ids in zip(words, tokenizer.encode_batch(words)):
            score = sum(model.pieces[i].score for i in ids) + _MARGIN * len(word)
            model.pieces.add(piece=WORD_START + word, score=score)
        data = model.SerializeToString(deterministic=True)
    extended = Tokenizer(tokenizer.spec, data, tokenizer.source)
    new = range(tokenizer.vocab_size, extended.vocab_size)
    if extended.encode_batch(words) != [[i] for i in new]:
        raise AlbertError(
            f"{tokenizer.source} splits some of the words even as pieces, because it is a model of "
            f"BPE, or because they have ideographs or symbols of its own: {joined(words)}."
        )
    return extended
