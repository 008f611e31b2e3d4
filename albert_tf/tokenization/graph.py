# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenization as TensorFlow operations: ids in SavedModels, and offsets everywhere.

Character classes are computed from Python's Unicode tables when a graph is built, as in the host's
tokenizer. NFD, NFKD and lower-casing use TensorFlow's tables, which may be of an earlier Unicode
version.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.tokenization import wordpiece
from albert_tf.tokenization.sentencepiece_model import WORD_START

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

#: Words or ids [B, (tokens)], and the start and end of each, int64 [B, (tokens)].
_Spans = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


@functools.cache
def _character_class(is_member: Callable[[str], object]) -> str:
    """Returns the members of a set of characters as ranges for a character class in RE2."""
    ranges = []
    for point in range(sys.maxunicode + 1):
        # Surrogates are not characters, and have no UTF-8 encoding.
        if 0xD800 <= point <= 0xDFFF or not is_member(chr(point)):
            continue
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces invalid UTF-8, which the operations below refuse, with U+FFFD."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def drop_combining(texts: tf.Tensor) -> tf.Tensor:
    """Drops the characters of non-zero combining class."""
    return tf.strings.regex_replace(texts, f"[{_character_class(unicodedata.combining)}]", "")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """str.lower of UTF-8 strings."""
    # The operation stops at NUL, so a noncharacter replaces it temporarily.
    texts = tf.strings.regex_replace(texts, r"\x{0}", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, r"\x{10ffff}", "\0")


def normalize(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Applies `normalize` of albert_tf.tokenization.normalization to a tensor of UTF-8 strings."""
    texts = valid_utf8(texts)
    texts = tf.strings.regex_replace(texts, f"[{_character_class(str.isspace)}]+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = tf_text.normalize_utf8(texts, "NFKD")
    if strip_accents:
        texts = drop_combining(texts)
    return lower(texts) if lower_case else texts


def _each_character(
    texts: tf.Tensor, process: Callable[[tf.Tensor], tf.Tensor], *classes: str
) -> tuple[tf.RaggedTensor, ...]:
    """Returns the characters of string [B], as string [B, (characters)], N in all.

    Then the number of bytes that each becomes when it is processed alone, int64 [N]; and for each
    of the classes in RE2 whether it is in it, bool [N].
    """
    characters = tf.strings.unicode_split(valid_utf8(texts), "UTF-8")
    distinct, index = tf.unique(characters.values)
    found = [tf.cast(tf.strings.length(process(distinct)), tf.int64)]
    found += [tf.strings.regex_full_match(distinct, f"[{members}]") for members in classes]
    return characters, *(tf.gather(values, index) for values in found)


def before(values: tf.Tensor, first: bool | int | str) -> tf.Tensor:
    """Returns the value before each, [N]; `first` before the first one."""
    return tf.concat([[first], values], axis=0)[:-1]


def _is_first(characters: tf.RaggedTensor) -> tf.Tensor:
    """Whether a character is the first of its text, bool [N]."""
    return tf.ragged.range(characters.row_lengths()).values == 0


def _original_spans(
    characters: tf.RaggedTensor,
    sizes: tf.Tensor,
    is_letter: tf.Tensor,
    row: tf.Tensor,
    begins: tf.Tensor,
    ends: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the original characters [start, end) of bytes [begins, ends) of processed texts.

    A text is processed as a whole, because the form of a final sigma, but not its size, depends on
    its neighbours.

    Args:
      characters, sizes: see `_each_character`.
      is_letter: bool [N], False for a dropped character that belongs to the one before it.
      row: indices of texts, int64 [n], as are `begins`, `ends` and the results.
    """
    is_letter |= _is_first(characters)
    # Letters count from 1. The numbers before and after them stand for the ends of all texts.
    bounds = tf.concat([[0], tf.where(is_letter)[:, 0], [tf.size(sizes, tf.int64)]], axis=0)
    letters = tf.repeat(tf.cumsum(tf.cast(is_letter, tf.int64)), sizes)
    letters = tf.concat([[0], letters, [tf.size(bounds, tf.int64) - 1]], axis=0)
    first_bytes = tf.gather(tf.concat([[0], tf.cumsum(sizes)], axis=0), characters.row_starts())
    shift, first, limit = (
        tf.gather(x, row) for x in (first_bytes, characters.row_starts(), characters.row_limits())
    )
    start = tf.minimum(tf.gather(bounds, tf.gather(letters, begins + shift + 1)), limit)
    # An empty range is empty, or between two parts of one letter that letter.
    end = tf.maximum(start, tf.gather(bounds, tf.gather(letters, ends + shift) + 1))
    return start - first, end - first


def _dropped_by_model(tokenizer: Tokenizer) -> str:
    """Returns a pattern in RE2: the control and format characters that the model's rules drop.

    Dropped before it sees the text, they do not shift the parts of a piece that is split.
    """
    controls = filter(wordpiece.is_dropped, map(chr, range(sys.maxunicode + 1)))
    without = tokenizer.encode("aa")
    return "|".join(rf"\x{{{ord(c):x}}}" for c in controls if tokenizer.encode(f"a{c}a") == without)


class SentencePieceGraph(tf.__internal__.tracking.AutoTrackable):
    """SentencePiece with ALBERT's normalisation and its digit-comma rule.

    Ids may differ from the host's tokenizer in two cases: for characters that are newer than
    TensorFlow's Unicode version, and where two segmentations are equally likely and the host's and
    tensorflow_text's versions of SentencePiece choose differently.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        spec = tokenizer.spec
        self._normalized = lambda texts: normalize(texts, spec.lower_case, spec.strip_accents)
        self._dropped = _dropped_by_model(tokenizer)
        self._sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.data, out_type=tf.int32)
        # The digit-comma rule replaces some pieces with others: a table of ids by id.
        replaced = tokenizer.digit_comma_parts
        rows = [replaced.get(i, [i]) for i in range(tokenizer.vocab_size)]
        self._table = tf.ragged.constant(rows, tf.int32)
        pieces = [tokenizer.pieces[part].replace(WORD_START, "") for row in rows for part in row]
        self._part_sizes = tf.constant([len(piece.encode()) for piece in pieces], tf.int64)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (tokens)], without [CLS] and [SEP]."""
        ids = self._sentencepiece.tokenize(self._normalized(texts))
        return tf.gather(self._table, ids).merge_dims(1, 2)

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids, and the start and end of each in the characters of the text.

        If accents are kept, a letter and its accent may be one piece even if a control character,
        which the model drops, is between them.
        """

        def process(texts) -> tf.Tensor:
            return tf.strings.regex_replace(self._normalized(texts), self._dropped, "")

        text = process(texts)
        ids, begins, ends = self._sentencepiece.tokenize_with_offsets(text)
        row = ids.value_rowids()
        begins, ends = tf.cast(begins.values, tf.int64), tf.cast(ends.values, tf.int64)
        surface = tf.strings.substr(tf.gather(text, row), begins, ends - begins)
        stripped = tf.strings.length(tf.strings.regex_replace(surface, "^ +", ""))
        begins = ends - tf.cast(stripped, tf.int64)
        parts = tf.gather(self._table, ids.values)
        sizes = tf.gather(self._table.with_values(self._part_sizes), ids.values).values
        piece = parts.value_rowids()
        # From the end, because SentencePiece's spaces may precede the first part.
        through = tf.cumsum(sizes)
        through_piece = tf.gather(through, tf.gather(parts.row_limits(), piece) - 1)
        part_ends = tf.gather(ends, piece) - (through_piece - through)
        is_whole = tf.gather(parts.row_lengths(), piece) == 1
        begins = tf.where(is_whole, tf.gather(begins, piece), part_ends - sizes)
        ids = ids.with_values(parts).merge_dims(1, 2)
        row = tf.gather(row, piece)
        characters, sizes, is_space = _each_character(texts, process, _character_class(str.isspace))
        # Of the spaces between two words, the normalised text keeps one.
        is_kept = ~(_is_first(characters) | before(is_space, True))
        sizes = tf.where(is_space, tf.cast(is_kept, tf.int64), sizes)
        is_letter = (sizes > 0) | is_space
        spans = _original_spans(characters, sizes, is_letter, row, begins, part_ends)
        return ids, *map(ids.with_values, spans)


class WordPieceGraph(tf.__internal__.tracking.AutoTrackable):
    """WordPiece with BERT's basic tokenization.

    Ids differ from the host's tokenizer only for characters that are newer than TensorFlow's
    Unicode version.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spec = tokenizer.spec
        self._unknown_id, self._symbols = tokenizer.unk_id, tokenizer.symbols
        pieces = [*tokenizer.pieces]
        for symbol, i in self._symbols.items():
            pieces[i] = symbol
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            pieces,
            wordpiece.CONTINUATION,
            max_bytes_per_word=4 * wordpiece.MAX_CHARACTERS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=tokenizer.id_to_piece(tokenizer.unk_id),
            no_pretokenization=True,
        )

    def _spaced(self, texts: tf.Tensor) -> tf.Tensor:
        """Takes the steps of BERT's basic tokenization that change characters of string [B].

        Each white space becomes a space, and each ideograph gets a space on either side.
        """
        # Spaces first: some of them are control characters, which are dropped below.
        texts = tf.strings.regex_replace(valid_utf8(texts), f"[{wordpiece.SPACES}]", " ")
        texts = tf.strings.regex_replace(texts, f"([{wordpiece.IDEOGRAPHS}])", r" \1 ")
        texts = tf.strings.regex_replace(texts, f"[{_character_class(wordpiece.is_dropped)}]", "")
        if self._spec.lower_case:
            texts = lower(texts)
        if self._spec.strip_accents:
            texts = drop_combining(tf_text.normalize_utf8(texts, "NFD"))
        return texts

    def _words(self, texts: tf.Tensor) -> _Spans:
        """Splits `_spaced` texts at spaces, and around symbols and punctuation.

        Returns words and their bytes.
        """
        marks = f"[{_character_class(wordpiece.is_punctuation)}]"
        if self._symbols:
            marks = f"{wordpiece.symbol_pattern(self._symbols)}|{marks}"
        return tf_text.regex_split_with_offsets(self._spaced(texts), f" |{marks}", marks)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (words), (pieces)], without [CLS] and [SEP]."""
        words, _, _ = self._words(texts)
        return words.with_values(self._wordpiece.tokenize(_without_long(words.values)))

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids, and the start and end of each in the characters of the text."""
        words, word_begins, word_ends = self._words(texts)
        ids, begins, ends = self._wordpiece.tokenize_with_offsets(_without_long(words.values))
        word = ids.value_rowids()
        word_begin, word_end = (tf.gather(x.values, word) for x in (word_begins, word_ends))
        # An unknown piece is a whole word, also one that was replaced because of its length.
        is_unknown = ids.values == self._unknown_id
        begins = word_begin + tf.where(is_unknown, tf.constant(0, tf.int64), begins.values)
        ends = tf.where(is_unknown, word_end, word_begin + ends.values)
        row = tf.gather(words.value_rowids(), word)
        ids = words.with_values(ids).merge_dims(1, 2)
        # Alone, a character has what it has in its text, such as the spaces around an ideograph.
        characters, sizes, is_ideograph = _each_character(texts, self._spaced, wordpiece.IDEOGRAPHS)
        # An ideograph is a word, so what follows it begins another.
        is_letter = (sizes > 0) | before(is_ideograph, True)
        spans = _original_spans(characters, sizes, is_letter, row, begins, ends)
        return ids, *map(ids.with_values, spans)


def _without_long(words: tf.Tensor) -> tf.Tensor:
    """Replaces long words by a line end, which no piece contains, so they become unknown."""
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.where(lengths > wordpiece.MAX_CHARACTERS_PER_WORD, "\n", words)
