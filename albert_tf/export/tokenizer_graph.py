# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer inside a TensorFlow graph, with the ids of albert_tf.tokenization."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf import wordpiece
from albert_tf.export.text_graph import normalize, split_words
from albert_tf.tokenization import SENTENCEPIECE, Tokenizer


class SentencePieceGraph(tf.__internal__.tracking.AutoTrackable):
    """SentencePiece with ALBERT's normalisation and its digit-comma rule.

    Texts may differ from the host's tokenizer in two ways: by characters that are newer than the
    Unicode version inside TensorFlow, and where two segmentations are equally likely and the
    SentencePiece versions inside tensorflow_text and of the host choose differently.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes the model over from the host's tokenizer."""
        self._lower_case = tokenizer.spec.lower_case
        self._strip_accents = tokenizer.spec.strip_accents
        self._sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.data, out_type=tf.int32)
        # What the rule makes of a piece depends on the piece alone, so it is a table.
        self._table: tf.RaggedTensor | None = None
        replaced = tokenizer.digit_comma_parts
        if replaced:
            rows = [replaced.get(i, [i]) for i in range(tokenizer.vocab_size)]
            values = tf.constant([part for row in rows for part in row], tf.int32)
            self._table = tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids of string [B], int32 [B, (tokens)], without [CLS] and [SEP]."""
        texts = normalize(texts, self._lower_case, self._strip_accents)
        ids = self._sentencepiece.tokenize(texts)
        if self._table is None:
            return ids
        return tf.gather(self._table, ids).merge_dims(1, 2)


class WordPieceGraph(tf.__internal__.tracking.AutoTrackable):
    """WordPiece with BERT's basic tokenization.

    Texts differ from the host's tokenizer only by characters that are newer than the Unicode
    version inside TensorFlow.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes the vocabulary over from the host's tokenizer."""
        self._lower_case = tokenizer.spec.lower_case
        self._strip_accents = tokenizer.spec.strip_accents
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)],
            wordpiece.CONTINUATION,
            max_bytes_per_word=4 * wordpiece.MAX_CHARACTERS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=tokenizer.id_to_piece(tokenizer.unk_id),
            no_pretokenization=True,
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Ids of string [B], int32 [B, (words), (pieces)], without [CLS] and [SEP]."""
        words = split_words(
            texts,
            wordpiece.SPACES,
            wordpiece.IDEOGRAPHS,
            wordpiece.is_dropped,
            wordpiece.is_punctuation,
            self._lower_case,
            self._strip_accents,
        )
        lengths = tf.strings.length(words, unit="UTF8_CHAR")
        # No vocabulary has a line end in a piece.
        words = tf.where(lengths > wordpiece.MAX_CHARACTERS_PER_WORD, "\n", words)
        return self._wordpiece.tokenize(words)


def tokenizer_graph(tokenizer: Tokenizer) -> SentencePieceGraph | WordPieceGraph:
    """The graph that gives the ids of `tokenizer`, a callable to be tracked by what is saved."""
    kind = SentencePieceGraph if tokenizer.spec.kind == SENTENCEPIECE else WordPieceGraph
    return kind(tokenizer)
