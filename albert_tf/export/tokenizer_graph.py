# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers as TensorFlow operations, with the ids of albert_tf.tokenization.tokenizer."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.export.aligned_text import align_normalized, align_words
from albert_tf.export.text_graph import normalize, spaced_words, split_words
from albert_tf.tokenization import wordpiece
from albert_tf.tokenization.sentencepiece_model import WORD_START
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer


class SentencePieceGraph(tf.__internal__.tracking.AutoTrackable):
    """SentencePiece with ALBERT's normalisation and its digit-comma rule.

    Ids may differ from the host's tokenizer in two cases: for characters that are newer than
    TensorFlow's Unicode version, and where two segmentations are equally likely and the host's and
    tensorflow_text's versions of SentencePiece choose differently.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Uses the model of the host's tokenizer."""
        self._lower_case = tokenizer.spec.lower_case
        self._strip_accents = tokenizer.spec.strip_accents
        self._sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.data, out_type=tf.int32)
        # The digit-comma rule replaces some pieces with others: a table of ids by id.
        self._table: tf.RaggedTensor | None = None
        replaced = tokenizer.digit_comma_parts
        if replaced:
            rows = [replaced.get(i, [i]) for i in range(tokenizer.vocab_size)]
            parts = [part for row in rows for part in row]
            values = tf.constant(parts, tf.int32)
            self._table = tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])
            pieces = [tokenizer.id_to_piece(part).replace(WORD_START, "") for part in parts]
            self._part_sizes = tf.constant([len(piece.encode()) for piece in pieces], tf.int64)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (tokens)], without [CLS] and [SEP]."""
        texts = normalize(texts, self._lower_case, self._strip_accents)
        ids = self._sentencepiece.tokenize(texts)
        if self._table is None:
            return ids
        return tf.gather(self._table, ids).merge_dims(1, 2)

    def encode_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, and the start and end of each in the characters of the text.

        As the host's function of this name, except that offsets inside a number may be off by the
        characters that SentencePiece drops in or after it.

        Returns:
          int32, int64 and int64 [B, (tokens)].
        """
        aligned = align_normalized(texts, self._lower_case, self._strip_accents)
        ids, begins, ends = self._sentencepiece.tokenize_with_offsets(aligned.text)
        row = ids.value_rowids()
        begins, ends = tf.cast(begins.values, tf.int64), tf.cast(ends.values, tf.int64)
        surface = tf.strings.substr(tf.gather(aligned.text, row), begins, ends - begins)
        stripped = tf.strings.length(tf.strings.regex_replace(surface, "^ +", ""))
        begins = ends - tf.cast(stripped, tf.int64)
        if self._table is not None:
            parts = tf.gather(self._table, ids.values)
            sizes = tf.gather(self._table.with_values(self._part_sizes), ids.values).values
            piece = parts.value_rowids()
            # From the end, because SentencePiece's spaces may precede the first part.
            through = tf.cumsum(sizes)
            through_piece = tf.gather(through, tf.gather(parts.row_limits(), piece) - 1)
            part_ends = tf.gather(ends, piece) - (through_piece - through)
            is_whole = tf.gather(parts.row_lengths(), piece) == 1
            begins = tf.where(is_whole, tf.gather(begins, piece), part_ends - sizes)
            ends, row = part_ends, tf.gather(row, piece)
            ids = ids.with_values(parts).merge_dims(1, 2)
        starts, limits = aligned.spans(row, begins, ends)
        return ids, ids.with_values(starts), ids.with_values(limits)


class WordPieceGraph(tf.__internal__.tracking.AutoTrackable):
    """WordPiece with BERT's basic tokenization.

    Ids differ from the host's tokenizer only for characters that are newer than TensorFlow's
    Unicode version.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Uses the vocabulary of the host's tokenizer."""
        self._lower_case = tokenizer.spec.lower_case
        self._strip_accents = tokenizer.spec.strip_accents
        self._unknown_id = tokenizer.unk_id
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)],
            wordpiece.CONTINUATION,
            max_bytes_per_word=4 * wordpiece.MAX_CHARACTERS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=tokenizer.id_to_piece(tokenizer.unk_id),
            no_pretokenization=True,
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (words), (pieces)], without [CLS] and [SEP]."""
        words, _, _ = split_words(spaced_words(texts, self._lower_case, self._strip_accents))
        return words.with_values(self._wordpiece.tokenize(_without_long(words.values)))

    def encode_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, and the start and end of each in the characters of the text.

        As the host's function of this name, except that a control character after the first part of
        a Hangul syllable that is split belongs to its last part alone.

        Returns:
          int32, int64 and int64 [B, (tokens)].
        """
        aligned = align_words(texts, self._lower_case, self._strip_accents)
        words, word_begins, word_ends = split_words(aligned.text)
        ids, begins, ends = self._wordpiece.tokenize_with_offsets(_without_long(words.values))
        word = ids.value_rowids()
        word_begin, word_end = (tf.gather(x.values, word) for x in (word_begins, word_ends))
        # An unknown piece is a whole word, also one that was replaced because of its length.
        is_unknown = ids.values == self._unknown_id
        begins = word_begin + tf.where(is_unknown, tf.constant(0, tf.int64), begins.values)
        ends = tf.where(is_unknown, word_end, word_begin + ends.values)
        row = tf.gather(words.value_rowids(), word)
        starts, limits = aligned.spans(row, begins, ends)
        ids = words.with_values(ids).merge_dims(1, 2)
        return ids, ids.with_values(starts), ids.with_values(limits)


def _without_long(words: tf.Tensor) -> tf.Tensor:
    """Replaces long words by a line end, which no piece contains, so they become unknown."""
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.where(lengths > wordpiece.MAX_CHARACTERS_PER_WORD, "\n", words)


def tokenizer_graph(tokenizer: Tokenizer) -> SentencePieceGraph | WordPieceGraph:
    """Returns a callable with the ids of `tokenizer`; a SavedModel's object has to track it."""
    kind = SentencePieceGraph if tokenizer.spec.kind == SENTENCEPIECE else WordPieceGraph
    return kind(tokenizer)
