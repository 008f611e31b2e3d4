# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From texts to the encoder's inputs with TensorFlow operations, as albert_tf.tokenization does.

Character classes are computed from Python's Unicode tables when a graph is built, as in the host's
tokenizer. NFD, NFKD and lower-casing use TensorFlow's tables, which may be of an earlier Unicode
version.

tensorflow-text pads; its `combine_segments` cannot leave out the [SEP] of an empty segment, and its
trimmers need custom operations or loops where two lines of arithmetic do.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from albert_tf.tokenization import wordpiece
from albert_tf.tokenization.sentencepiece_model import WORD_START
from albert_tf.tokenization.tokenizer import SENTENCEPIECE, Tokenizer

#: Words or ids [B, (tokens)], and the start and end of each, int64 [B, (tokens)].
_Spans = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


@functools.cache
def character_class(is_member: Callable[[str], object]) -> str:
    """Returns the members of a set of characters as ranges for a character class in RE2."""
    ranges: list[list[int]] = []
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
    return tf.strings.regex_replace(texts, f"[{character_class(unicodedata.combining)}]", "")


def lower(texts: tf.Tensor) -> tf.Tensor:
    """str.lower of UTF-8 strings."""
    # The operation stops at NUL, so a noncharacter replaces it temporarily.
    texts = tf.strings.regex_replace(texts, r"\x{0}", "\U0010ffff")
    texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, r"\x{10ffff}", "\0")


def normalize(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Applies `normalize` of albert_tf.tokenization.normalization to a tensor of UTF-8 strings."""
    texts = valid_utf8(texts)
    texts = tf.strings.regex_replace(texts, f"[{character_class(str.isspace)}]+", " ")
    texts = tf.strings.regex_replace(texts, "^ | $", "")
    texts = tf_text.normalize_utf8(texts, "NFKD")
    if strip_accents:
        texts = drop_combining(texts)
    return lower(texts) if lower_case else texts


def spaced_words(texts: tf.Tensor, lower_case: bool, strip_accents: bool) -> tf.Tensor:
    """Takes the steps of BERT's basic tokenization that change characters of string [B].

    Each white space becomes a space, and each ideograph gets a space on either side.
    """
    # Spaces first: some of them are control characters, which are dropped below.
    texts = tf.strings.regex_replace(valid_utf8(texts), f"[{wordpiece.SPACES}]", " ")
    texts = tf.strings.regex_replace(texts, f"([{wordpiece.IDEOGRAPHS}])", r" \1 ")
    texts = tf.strings.regex_replace(texts, f"[{character_class(wordpiece.is_dropped)}]", "")
    if lower_case:
        texts = lower(texts)
    if strip_accents:
        texts = drop_combining(tf_text.normalize_utf8(texts, "NFD"))
    return texts


def split_words(texts: tf.Tensor) -> _Spans:
    """Splits `spaced_words` at spaces and around punctuation; returns words and their bytes."""
    punctuation = f"[{character_class(wordpiece.is_punctuation)}]"
    return tf_text.regex_split_with_offsets(texts, f" |{punctuation}", punctuation)


def _original_spans(
    characters: tf.RaggedTensor,
    sizes: tf.Tensor,
    is_boundary: tf.Tensor,
    row: tf.Tensor,
    begins: tf.Tensor,
    ends: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the original characters [start, end) of bytes [begins, ends) of processed texts.

    Each character is also processed alone, to get its number of bytes. A text is processed as a
    whole, because the form of a final sigma, but not its size, depends on its neighbours.

    Args:
      characters: the original ones, string [B, (characters)], N in all.
      sizes: how many bytes each became, int64 [N].
      is_boundary: bool [N], False for a dropped character that belongs to the one before it.
      row: indices of texts, int64 [n], as are `begins`, `ends` and the results.
      begins: see above.
      ends: see above.
    """
    # The end of each character, in bytes of all texts one after the other.
    byte_limits = tf.cumsum(sizes)
    first_bytes = tf.gather(tf.concat([[0], byte_limits], axis=0), characters.row_starts())
    total = tf.size(sizes, tf.int64)
    # A dropped accent belongs to the last part of the letter before it.
    owners = tf.concat([tf.where(is_boundary)[:, 0], [total]], axis=0)
    shift, first, limit = (
        tf.gather(x, row) for x in (first_bytes, characters.row_starts(), characters.row_limits())
    )

    def character(byte: tf.Tensor) -> tf.Tensor:
        index = tf.searchsorted(byte_limits, byte, side="right", out_type=tf.int64)
        return tf.minimum(index, limit)

    start, last = character(begins + shift), character(ends + shift - 1)
    rank = tf.searchsorted(owners[:-1], last, side="right", out_type=tf.int64)
    following = tf.minimum(tf.gather(owners, rank), limit)
    is_whole = tf.gather(tf.concat([byte_limits, [0]], axis=0), last) == ends + shift
    end = tf.where(is_whole, following, last + 1)
    # An empty range is empty, or between two parts of one character that character.
    end = tf.where(begins < ends, end, tf.where(begins > 0, tf.maximum(start, end), start))
    return start - first, end - first


def _joins(is_space: tf.Tensor, row_starts: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """Marks the first space of each run between two words, which the normalised text keeps."""
    position = tf.range(tf.size(row, tf.int64))
    after_space = tf.concat([[True], is_space], axis=0)[:-1]
    is_first = position == tf.gather(row_starts, row)
    words = tf.where(is_space, tf.constant(-1, tf.int64), position)
    last_word = tf.math.unsorted_segment_max(words, row, tf.size(row_starts))
    return is_space & ~is_first & ~after_space & (position < tf.gather(last_word, row))


def _with_case_of(tokenizer: Tokenizer, function: Callable[..., tf.Tensor]) -> Callable[..., Any]:
    spec = tokenizer.spec
    return functools.partial(function, lower_case=spec.lower_case, strip_accents=spec.strip_accents)


class SentencePieceGraph(tf.__internal__.tracking.AutoTrackable):
    """SentencePiece with ALBERT's normalisation and its digit-comma rule.

    Ids may differ from the host's tokenizer in two cases: for characters that are newer than
    TensorFlow's Unicode version, and where two segmentations are equally likely and the host's and
    tensorflow_text's versions of SentencePiece choose differently.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._normalized = _with_case_of(tokenizer, normalize)
        self._sentencepiece = tf_text.SentencepieceTokenizer(tokenizer.data, out_type=tf.int32)
        # The digit-comma rule replaces some pieces with others: a table of ids by id.
        replaced = tokenizer.digit_comma_parts
        rows = [replaced.get(i, [i]) for i in range(tokenizer.vocab_size)]
        parts = [part for row in rows for part in row]
        lengths = [len(row) for row in rows]
        self._table = tf.RaggedTensor.from_row_lengths(tf.constant(parts, tf.int32), lengths)
        pieces = [tokenizer.id_to_piece(part).replace(WORD_START, "") for part in parts]
        self._part_sizes = tf.constant([len(piece.encode()) for piece in pieces], tf.int64)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [B], int32 [B, (tokens)], without [CLS] and [SEP]."""
        ids = self._sentencepiece.tokenize(self._normalized(texts))
        return tf.gather(self._table, ids).merge_dims(1, 2)

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids, and the start and end of each in the characters of the text.

        As the host's function of this name, except that offsets inside a number may be off by the
        characters that SentencePiece drops in or after it.
        """
        text = self._normalized(texts)
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
        spans = _original_spans(*self._characters(texts), row, begins, part_ends)
        return ids, *map(ids.with_values, spans)

    def _characters(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        characters = tf.strings.unicode_split(valid_utf8(texts), "UTF-8")
        is_space = tf.strings.regex_full_match(
            characters.values, f"[{character_class(str.isspace)}]"
        )
        joins = _joins(is_space, characters.row_starts(), characters.value_rowids())
        sizes = tf.strings.length(self._normalized(characters.values))
        sizes = tf.cast(tf.where(is_space, tf.cast(joins, tf.int32), sizes), tf.int64)
        return characters, sizes, (sizes > 0) | is_space


class WordPieceGraph(tf.__internal__.tracking.AutoTrackable):
    """WordPiece with BERT's basic tokenization.

    Ids differ from the host's tokenizer only for characters that are newer than TensorFlow's
    Unicode version.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spaced = _with_case_of(tokenizer, spaced_words)
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
        words, _, _ = split_words(self._spaced(texts))
        return words.with_values(self._wordpiece.tokenize(_without_long(words.values)))

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids, and the start and end of each in the characters of the text.

        As the host's function of this name, except that a control character after the first part of
        a Hangul syllable that is split belongs to its last part alone.
        """
        words, word_begins, word_ends = split_words(self._spaced(texts))
        ids, begins, ends = self._wordpiece.tokenize_with_offsets(_without_long(words.values))
        word = ids.value_rowids()
        word_begin, word_end = (tf.gather(x.values, word) for x in (word_begins, word_ends))
        # An unknown piece is a whole word, also one that was replaced because of its length.
        is_unknown = ids.values == self._unknown_id
        begins = word_begin + tf.where(is_unknown, tf.constant(0, tf.int64), begins.values)
        ends = tf.where(is_unknown, word_end, word_begin + ends.values)
        row = tf.gather(words.value_rowids(), word)
        ids = words.with_values(ids).merge_dims(1, 2)
        spans = _original_spans(*self._characters(texts), row, begins, ends)
        return ids, *map(ids.with_values, spans)

    def _characters(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """A dropped character at the beginning of a word belongs to no other."""
        characters = tf.strings.unicode_split(valid_utf8(texts), "UTF-8")
        values = characters.values
        is_space = tf.strings.regex_full_match(values, f"[{wordpiece.SPACES}]")
        is_ideograph = tf.strings.regex_full_match(values, f"[{wordpiece.IDEOGRAPHS}]")
        # Alone, a character has what it has in its text, such as the spaces around an ideograph.
        sizes = tf.cast(tf.strings.length(self._spaced(values)), tf.int64)
        # An ideograph is a word, so what follows it begins another.
        after_ideograph = tf.concat([[True], is_ideograph], axis=0)[:-1]
        return characters, sizes, (sizes > 0) | is_space | after_ideograph


def _without_long(words: tf.Tensor) -> tf.Tensor:
    """Replaces long words by a line end, which no piece contains, so they become unknown."""
    lengths = tf.strings.length(words, unit="UTF8_CHAR")
    return tf.where(lengths > wordpiece.MAX_CHARACTERS_PER_WORD, "\n", words)


def tokenizer_graph(tokenizer: Tokenizer) -> SentencePieceGraph | WordPieceGraph:
    """Returns a callable with the ids of `tokenizer`; a SavedModel's object has to track it."""
    kind = SentencePieceGraph if tokenizer.spec.kind == SENTENCEPIECE else WordPieceGraph
    return kind(tokenizer)


def merge_words(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns ids [B, (tokens)] from ids [B, (words), (pieces)] or [B, (tokens)]."""
    return ids if ids.ragged_rank == 1 else ids.merge_dims(1, ids.ragged_rank)


def keep(ids: tf.RaggedTensor, longest: int | tf.Tensor, at_end: bool = False) -> tf.RaggedTensor:
    """Returns the first, or last, entries of each row: at most `longest`, an int or int64 [B]."""
    lengths = tf.minimum(ids.row_lengths(), longest)
    first = ids.row_limits() - lengths if at_end else ids.row_starts()
    row = ids.value_rowids()
    position = tf.range(tf.size(row, tf.int64)) - tf.gather(first, row)
    kept = (position >= 0) & (position < tf.gather(lengths, row))
    return _rows(tf.boolean_mask(ids.values, kept), lengths)


def join(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Joins one or two segments [B, (tokens)] that fit to [CLS] A [SEP] B [SEP], and pads.

    If `skip_empty_second`, a pair whose B is empty becomes [CLS] A [SEP].
    """
    ones = tf.ones_like(segments[0].row_lengths())
    parts, types = [_repeated(tokenizer.cls_id, ones)], [_repeated(0, ones)]
    for number, segment in enumerate(segments):
        separators = _separators(segment) if number and skip_empty_second else ones
        parts += [segment, _repeated(tokenizer.sep_id, separators)]
        types.append(_repeated(number, segment.row_lengths() + separators))
    ids, mask = tf_text.pad_model_inputs(tf.concat(parts, axis=1), seq_length, tokenizer.pad_id)
    types, _ = tf_text.pad_model_inputs(tf.concat(types, axis=1), seq_length)
    packed = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    shape = [None, seq_length if isinstance(seq_length, int) else None]
    return {name: tf.ensure_shape(value, shape) for name, value in packed.items()}


def _separators(segment: tf.RaggedTensor) -> tf.Tensor:
    """Returns 1 for rows that are not empty, otherwise 0."""
    return tf.cast(segment.row_lengths() > 0, tf.int64)


def _repeated(value: int, times: tf.Tensor) -> tf.RaggedTensor:
    """Returns `value` times[i] times in row i; int64 [B] to int32 [B, (times)]."""
    return _rows(tf.fill([tf.reduce_sum(times)], value), times)


def _rows(values: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    # Checks would be most of the graph.
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)


def pack(
    segments: Sequence[tf.RaggedTensor],
    seq_length: int | tf.Tensor,
    tokenizer: Tokenizer,
    skip_empty_second: bool = False,
) -> dict[str, tf.Tensor]:
    """Truncates one or two segments, and joins them.

    Two segments that are too long lose tokens off the end of the longer one, B first where they
    are equally long, as in albert_tf.tokenization.sequences.truncated_lengths.

    Args:
      segments: ragged int32 [B, (tokens)] or [B, (words), (pieces)].
      seq_length: S, an int or a scalar int32 tensor; at least 3, or 2 for one segment.
      tokenizer: has the ids of the special pieces.
      skip_empty_second: see `join`.
    """
    flat = [merge_words(segment) for segment in segments]
    room = tf.cast(seq_length, tf.int64) - 2
    if len(flat) == 1:
        kept = [keep(flat[0], room)]
    else:
        room -= _separators(flat[1]) if skip_empty_second else 1
        first = keep(flat[0], tf.maximum(room - flat[1].row_lengths(), (room + 1) // 2))
        kept = [first, keep(flat[1], room - first.row_lengths())]
    return join(kept, seq_length, tokenizer, skip_empty_second)


def cut_padding(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Cuts the encoder's inputs [..., S] at the end of the longest sequence."""
    mask = inputs["input_mask"]
    # Of no sequences at all, the largest length is negative.
    longest = tf.maximum(tf.reduce_max(tf.reduce_sum(mask, axis=-1)), 1)
    return {name: value[..., :longest] for name, value in inputs.items()}
