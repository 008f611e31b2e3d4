# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""WordPiece as in BERT, for the Chinese ALBERT releases and BERT vocabularies.

Source: google-research/albert tokenization.BasicTokenizer and WordpieceTokenizer.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
import unicodedata
from collections.abc import Iterable

from albert_tf.errors import AlbertError
from albert_tf.io.json_values import short_repr
from albert_tf.tokenization.normalization import drop_combining

CONTINUATION = "##"
MAX_CHARACTERS_PER_WORD = 200
_MAX_CACHED_WORDS = 1 << 18
IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
# Tab, newline, carriage return, category Zs, and the two separators that str.split() adds.
SPACES = " \t\n\r\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# An ideograph is a word; other words end at whitespace or at an ideograph.
_WORDS = re.compile(f"[{IDEOGRAPHS}]|[^{SPACES}{IDEOGRAPHS}]+")
_SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")
_UNUSED = re.compile(r"\[unused\d+\]")


def is_dropped(character: str) -> bool:
    """Returns whether cleaning drops a character: controls, formats, NUL, the replacement mark."""
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def is_punctuation(character: str) -> bool:
    """Returns True for ASCII except letters, digits and space, and for Unicode punctuation."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def symbol_pattern(symbols: Iterable[str]) -> str:
    """Returns a pattern, also for RE2, that finds the longest of the symbols at a place."""
    return "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))


def _parse_vocabulary(data: bytes, source: str) -> list[str]:
    """Returns the pieces of a vocab.txt, one per line, in the order of their ids."""
    try:
        lines = data.decode("utf-8-sig").rstrip("\r\n").split("\n")
    except UnicodeDecodeError as error:
        raise AlbertError(f"The vocabulary {source} is not UTF-8 at byte {error.start}.") from error
    # BERT's Chinese vocabulary has the line separator U+2028, which is white space, as a piece.
    pieces = [line.strip() or line.strip(string.whitespace) for line in lines]
    seen = {}
    for number, piece in enumerate(pieces, start=1):
        if not piece:
            raise AlbertError(f"{source}:{number}: the line is empty; a piece was expected.")
        if piece in seen:
            raise AlbertError(
                f"{source}:{number}: {short_repr(piece)} is already on line {seen[piece]}."
            )
        seen[piece] = number
    return pieces


class WordPieceModel:
    """A WordPiece vocabulary with BERT's basic tokenization."""

    pad, unk = "[PAD]", "[UNK]"

    def __init__(self, data: bytes, source: str, lower_case: bool, strip_accents: bool) -> None:
        """Loads the bytes of a vocab.txt; `source` names it in errors.

        Raises:
          AlbertError: they are not text, or a piece is empty or repeated.
        """
        self.pieces = _parse_vocabulary(data, source)
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._unk_id = self.ids.get(self.unk, 0)
        self._lower_case = lower_case
        self._strip_accents = strip_accents
        # Words repeat.
        self._encode_word = functools.lru_cache(_MAX_CACHED_WORDS)(self._encode_new_word)
        #: Ids of user-defined symbols, by their form in cleaned text. These are the pieces that
        #: punctuation would split, after the last continuation: no vocabulary is trained to have
        #: such, but Hugging Face adds them.
        self.symbols = {}
        for i, piece in reversed([*enumerate(self.pieces)]):
            if piece.startswith(CONTINUATION):
                break
            if len(piece) > 1 and any(map(is_punctuation, piece)) and not _SPECIAL.fullmatch(piece):
                self.symbols[self._cleaned(piece)] = i
        self._symbol = re.compile(f"({symbol_pattern(self.symbols)})")

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        return [*map(self._encode_text, texts)]

    def _encode_text(self, text: str) -> list[int]:
        parts = [text]
        if self.symbols:
            parts = self._symbol.split(self._cleaned(re.sub(f"[{SPACES}]", " ", text)))
        ids = []
        for part in parts:
            if part in self.symbols:
                ids.append(self.symbols[part])
            else:
                for word in _WORDS.findall(part):
                    ids += self._encode_word(word)
        return ids

    def _cleaned(self, text: str) -> str:
        text = "".join(character for character in text if not is_dropped(character))
        if self._lower_case:
            text = text.lower()
        if self._strip_accents:
            text = drop_combining(unicodedata.normalize("NFD", text))
        return text

    def _encode_new_word(self, word: str) -> list[int]:
        text = self._cleaned(word)
        ids = []
        for is_mark, characters in itertools.groupby(text, is_punctuation):
            for part in characters if is_mark else ["".join(characters)]:
                ids += self._longest_matches(part)
        return ids

    def _longest_matches(self, word: str) -> list[int]:
        """Returns the ids of a word's greedy longest-match-first pieces, or [UNK]'s."""
        if len(word) > MAX_CHARACTERS_PER_WORD:
            return [self._unk_id]
        pieces = []
        begin = 0
        while begin < len(word):
            prefix = CONTINUATION if begin else ""
            for end in range(len(word), begin, -1):
                piece = self.ids.get(prefix + word[begin:end])
                if piece is not None:
                    break
            else:
                return [self._unk_id]
            pieces.append(piece)
            begin = end
        return pieces

    def decode(self, ids: list[int]) -> str:
        """Joins words by spaces, and continuation pieces to their word."""
        return " ".join(self.pieces[i] for i in ids).replace(" " + CONTINUATION, "")

    @staticmethod
    def starts_word(piece: str) -> bool:
        """Returns False for pieces that begin with "##"."""
        return not piece.startswith(CONTINUATION)

    def is_special(self, i: int) -> bool:
        """Returns whether id `i` is a reserved piece such as "[unused7]"."""
        return _UNUSED.fullmatch(self.pieces[i]) is not None
