# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""SentencePiece encoding exactly as in the English ALBERT releases."""

from __future__ import annotations

import functools
import io
import string
import tempfile
import unicodedata
from collections.abc import Container, Iterable

import numpy as np
from google.protobuf.message import DecodeError

from albert_tf.errors import AlbertError
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.normalization import normalize

WORD_START = "▁"
# As in the official table, which lacks ', <, = and >.
_PUNCTUATION = frozenset(string.punctuation) - frozenset("'<=>")
_CONTINUING = frozenset(string.ascii_lowercase) | _PUNCTUATION
#: The library trains no pieces longer than this, and those of 100,000 bytes overflow its stack.
_MAX_PIECE = 512
#: Sizes of the library's lists of the rules, and of the user-defined symbols, that match at a place
#: in a text. Those that begin alike differ in length.
_MAX_RULE_BYTES, _MAX_SYMBOL = 32, 64
#: What is subtracted from the scores of pieces such as "9,", which the release splits; every other
#: segmentation then scores higher. Hugging Face's converter subtracts 100.
_LOWERED = 1000.0
_SPECIAL = ("[CLS]", "[SEP]", "[MASK]")
#: Parts of a unit of the array: a leaf has the highest bit, and a value; others have a label,
#: whether a leaf follows, and the scale of the offset in the highest bits.
_LEAF, _LABEL, _HAS_LEAF, _SCALE = (np.uint32(bits) for bits in (1 << 31, 0xFF, 1 << 8, 1 << 9))


def starts_word(piece: str) -> bool:
    """Returns whether a SentencePiece piece starts a word.

    A piece of ASCII letters and several punctuation marks continues a word; any other character
    starts one. Source: google-research/albert create_pretraining_data._is_start_piece_sp.
    """
    is_mark = piece.startswith((WORD_START, "<")) or piece in _PUNCTUATION
    return is_mark or not all(character.lower() in _CONTINUING for character in piece)


class SentencePieceModel:
    """A SentencePiece model with ALBERT's normalization and digit-comma rule."""

    pad, unk = "<pad>", "<unk>"
    starts_word = staticmethod(starts_word)

    def __init__(
        self, model_proto: bytes, source: str, lower_case: bool, strip_accents: bool
    ) -> None:
        """Loads a serialized model; `source` names it in errors.

        Raises:
          AlbertError: the bytes are not a SentencePiece model, or it is damaged.
        """
        import sentencepiece as spm

        self._processor = spm.SentencePieceProcessor()
        try:
            model = ModelProto.FromString(model_proto)
            self.pieces = [entry.piece for entry in model.pieces]
            if fault := model_fault(model):
                raise AlbertError(f"{source} is damaged: {fault}; get it again.")
            self._processor.LoadFromSerializedProto(model_proto)
        except (DecodeError, RuntimeError, UnicodeDecodeError) as error:
            raise AlbertError(
                f"{source} is not a SentencePiece model (nor a WordPiece vocabulary: it is not "
                "text); give the .model file or a vocab.txt."
            ) from error
        self._lower_case = lower_case
        self._strip_accents = strip_accents
        #: The probability of each piece, if the model is a unigram one; 1 of special ones.
        self.frequencies = np.exp([entry.score for entry in model.pieces])
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        #: The ids into which the digit-comma rule splits a piece, for the pieces that it splits.
        self.replacements = {}
        if "," in self.ids:
            self._tabulate_digit_commas()

    def _tabulate_digit_commas(self) -> None:
        """Tabulates the ids of pieces that end in digit and comma.

        A table suffices, as the rule of google-research/albert tokenization.encode_pieces depends
        on the piece alone. This is the intended rule: the reference compares str with bytes, and so
        never removes the word-start mark that re-encoding adds.
        """
        unk_id = self._processor.unk_id()
        for i, piece in enumerate(self.pieces):
            if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
                continue
            parts = self._processor.EncodeAsPieces(piece[:-1].replace(WORD_START, ""))
            if not piece.startswith(WORD_START):
                parts[0] = parts[0].removeprefix(WORD_START)
            parts = [*filter(None, parts), ","]
            self.replacements[i] = [self.ids.get(part, unk_id) for part in parts]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        normalized = [normalize(text, self._lower_case, self._strip_accents) for text in texts]
        encoded = self._processor.EncodeAsIds(normalized, num_threads=1)
        return [
            ids
            if self.replacements.keys().isdisjoint(ids)
            else [part for i in ids for part in self.replacements.get(i, (i,))]
            for ids in encoded
        ]

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`, without control symbols."""
        return self._processor.DecodeIds(ids)

    def is_special(self, i: int) -> bool:
        """Returns whether no text encodes to id `i`."""
        processor = self._processor
        return processor.IsControl(i) or processor.IsUnknown(i) or processor.IsUnused(i)


def model_fault(model: ModelProto) -> str:
    """Describes what would end the process if the library read a model; "" if it is safe.

    A model has a table of replacements for its normalizer, and one for its denormalizer: the size
    of a double array (uint32), the array (uint32 each), and the replacements, separated by NUL. All
    numbers are little-endian. The library follows the array's offsets wherever they lead. It checks
    neither what a piece is made of, nor how many rules or user-defined symbols begin alike.
    """
    for i, entry in enumerate(model.pieces):
        longest = _MAX_SYMBOL if entry.type == entry.USER_DEFINED else _MAX_PIECE
        if not isinstance(entry.piece, str):
            return f"piece {i} is not UTF-8"
        if "\0" in entry.piece or len(entry.piece) > longest:
            kind = "user-defined symbol" if longest == _MAX_SYMBOL else "piece"
            return f"{kind} {i} has a NUL character, or more than {longest} characters"
    specs = model.normalizer_spec, model.denormalizer_spec
    tables = [spec.precompiled_charsmap for spec in specs if spec.precompiled_charsmap]
    return next(filter(None, map(_table_fault, tables)), "")


def _table_fault(table: bytes) -> str:
    """Describes what is wrong with a table of replacements, `precompiled_charsmap` of a model."""
    size = int.from_bytes(table[:4], "little")
    text_bytes = len(table) - 4 - size
    if size < 4 or size % 4 or text_bytes < 1:
        return "its table of replacements is cut off"
    units, blocks = _units(table)
    labelled = np.flatnonzero(units < _LEAF)
    own_blocks = labelled ^ (units[labelled] & _LABEL)
    reached = np.zeros(1, np.uint32)
    # All units for the first byte of a rule, then those for the second, ….
    for _ in range(_MAX_RULE_BYTES):
        if not len(reached):
            return ""
        followed = blocks[reached]
        has_leaf = units[reached] & _HAS_LEAF > 0
        is_outside = (followed | _LABEL).max() >= len(units)
        if is_outside or (units[followed[has_leaf]] & ~_LEAF >= text_bytes).any():
            return "its table of replacements has an offset outside of it"
        is_next = np.zeros((len(units) | _LABEL) + 1, np.bool_)
        is_next[followed] = True
        reached = labelled[is_next[own_blocks]]
    return f"its table of replacements has rules of more than {_MAX_RULE_BYTES - 2} bytes"


def _units(table: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Returns the array of a table, uint32 [n], and the block of each unit.

    The units that may follow a unit are at its block ^ their label.
    """
    units = np.frombuffer(table, "<u4", int.from_bytes(table[:4], "little") // 4, offset=4)
    offsets = units >> np.uint32(10) << ((units & _SCALE) >> np.uint32(6))
    return units, np.arange(len(units), dtype=np.uint32) ^ offsets


def whole_model(data: bytes, lower_case: bool, strip_accents: bool, split: Iterable[int]) -> bytes:
    """Returns a model that gives a text the ids that `data` gives the normalized text.

    keras-hub, and every program that leaves all to spiece.model, then gets the ids of pretraining.

    Args:
      data: a SentencePiece model that `model_fault` accepts.
      lower_case, strip_accents: see `normalize`. Its result is not changed any further.
      split: the ids of pieces that the digit-comma rule splits.
    """
    model = ModelProto.FromString(data)
    rules = model.normalizer_spec
    rules.precompiled_charsmap = _table(rules.precompiled_charsmap, lower_case, strip_accents)
    for entry in map(model.pieces.__getitem__, split):
        entry.score -= _LOWERED * (entry.score > -_LOWERED)
    return model.SerializeToString(deterministic=True)


def lower_symbols(data: bytes) -> bytes:
    """Returns a model whose user-defined symbols are found in lower-cased text.

    The special pieces, which such a symbol may be, are not meant to be found.
    """
    try:
        model = ModelProto.FromString(data)
        pieces = {*_SPECIAL, *(entry.piece for entry in model.pieces)}
    except (DecodeError, UnicodeDecodeError):
        return data  # For the error of who reads it.
    changed = False
    for entry in model.pieces:
        lower = entry.piece.lower()
        is_symbol = entry.type == entry.USER_DEFINED and isinstance(lower, str)
        if is_symbol and entry.piece not in _SPECIAL and lower not in pieces:
            entry.piece, changed = lower, True
            pieces.add(lower)
    return model.SerializeToString(deterministic=True) if changed else data


@functools.lru_cache(maxsize=4)
def _table(table: bytes, lower_case: bool, strip_accents: bool) -> bytes:
    """Returns a table of replacements that normalizes a text before it does what `table` does."""
    import sentencepiece as spm

    # There is nothing to normalize in the planes from the third on.
    characters = map(chr, (*range(1, 0xD800), *range(0xE000, 0x30000)))
    normalized = {
        c: " " if c.isspace() else normalize(c, lower_case, strip_accents)
        for c in characters
        if c.lower() != c
        or c.isspace()
        or unicodedata.combining(c)
        or not unicodedata.is_normalized("NFKD", c)
    }
    normalized = {c: text for c, text in normalized.items() if c != text}
    rules = {**{key: key for key in _keys(table, normalized)}, **normalized}
    old = ModelProto()
    old.normalizer_spec.precompiled_charsmap = table
    replace = spm.SentencePieceNormalizer(model_proto=old.SerializeToString()).Normalize
    lines = (
        "\t".join(" ".join(f"{ord(c):x}" for c in text) for text in rule)
        for rule in zip(rules, replace([*rules.values()]) if table else rules.values())
        if rule[0] != rule[1]
    )
    # Only the trainer compiles tables.
    compiled = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        spm.SentencePieceTrainer.Train(
            sentence_iterator=iter(["a"]),
            model_writer=compiled,
            model_type="char",
            vocab_size=4,
            hard_vocab_limit=False,
            normalization_rule_tsv=file.name,
            minloglevel=2,
        )
    return ModelProto.FromString(compiled.getvalue()).normalizer_spec.precompiled_charsmap


def _keys(table: bytes, excluded: Container[str]) -> list[str]:
    """Returns what a table replaces, except texts with one of the excluded characters."""
    if not table:
        return []
    units, blocks = _units(table)
    labels = np.arange(1, 256, dtype=np.uint32)
    keys, left = [], [(b"", 0)]
    while left:
        key, place = left.pop()
        try:
            text = key.decode()
        except UnicodeDecodeError:  # A character is not complete.
            text = ""
        if text[-1:] and text[-1] in excluded:
            continue
        if text and units[place] & _HAS_LEAF:
            keys.append(text)
        places = blocks[place] ^ labels
        there = (units[places] & (_LEAF | _LABEL)) == labels
        left += [(key + bytes([n]), place) for n, place in zip(labels[there], places[there])]
    return keys
