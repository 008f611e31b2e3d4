# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds what would end the process if the SentencePiece library read it.

A model has a table of replacements for its normalizer, and one for its denormalizer: the size of a
double array (uint32), the array (uint32 each), and the replacements, separated by NUL. All numbers
are little-endian. The library follows the array's offsets wherever they lead. It checks neither
what a piece is made of, nor how many user-defined symbols begin alike.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

#: Pieces of 100,000 bytes overflow the library's stack; it trains none of more than 512 characters.
_MAX_PIECE_BYTES = 4 * 512
#: Sizes of the library's lists of the rules, and of the symbols, that match at a place in a text.
_MAX_RULES, _MAX_SYMBOLS = 32, 64
#: An array with a cycle has no longest rule.
_MAX_RULE_BYTES = 1024
#: Parts of a unit of the array: a leaf has the highest bit, and a value; others have a label,
#: whether a leaf follows, and the scale of the offset in the highest bits.
_LEAF, _LABEL, _HAS_LEAF, _SCALE = (np.uint32(bits) for bits in (1 << 31, 0xFF, 1 << 8, 1 << 9))


def model_fault(model: ModelProto) -> str:
    """Describes what is wrong with a model; "" if the library can read it and encode any text."""
    symbols = {entry.piece for entry in model.pieces if entry.type == entry.USER_DEFINED}
    fault = _pieces_fault([entry.piece for entry in model.pieces], symbols)
    for spec in (model.normalizer_spec, model.denormalizer_spec):
        if spec.precompiled_charsmap:
            fault = fault or _table_fault(spec.precompiled_charsmap)
    return fault


def _table_fault(table: bytes) -> str:
    """Describes what is wrong with a table of replacements, `precompiled_charsmap` of a model."""
    size = int.from_bytes(table[:4], "little")
    text_bytes = len(table) - 4 - size
    if size < 4 or size % 4 or text_bytes < 1:
        return "its table of replacements is cut off"
    units = np.frombuffer(table, "<u4", size // 4, offset=4)
    places = np.arange(len(units), dtype=np.uint32)
    # The units that may follow a unit are at its block ^ their label.
    blocks = places ^ (units >> np.uint32(10) << ((units & _SCALE) >> np.uint32(6)))
    labelled = np.flatnonzero(units < _LEAF)
    own_blocks = labelled ^ (units[labelled] & _LABEL)
    reached, rules = places[:1], 0
    # All units for the first byte of a rule, then those for the second, ….
    for _ in range(_MAX_RULE_BYTES):
        if not len(reached):
            return ""
        followed = blocks[reached]
        if (followed | _LABEL).max() >= len(units):
            return "its table of replacements has an offset outside of it"
        leaves = units[followed[units[reached] & _HAS_LEAF > 0]] & ~_LEAF
        if len(leaves) and leaves.max() >= text_bytes:
            return "its table of replacements has an offset outside of it"
        rules += len(leaves) > 0
        if rules > _MAX_RULES:
            break
        is_next = np.zeros((len(units) | _LABEL) + 1, np.bool_)
        is_next[followed] = True
        reached = labelled[is_next[own_blocks]]
    return "its table of replacements has too many rules that begin alike"


def _pieces_fault(pieces: Sequence[str], symbols: Set[str]) -> str:
    """Describes what is wrong with the pieces of a model, of which `symbols` are user-defined."""
    if not all(isinstance(piece, str) for piece in pieces):
        return "it has a piece that is not UTF-8"
    if any("\0" in piece for piece in pieces):
        return "it has a piece with a NUL character"
    if any(len(piece.encode()) > _MAX_PIECE_BYTES for piece in pieces):
        return f"it has a piece of more than {_MAX_PIECE_BYTES} bytes"
    for symbol in symbols:
        if sum(symbol[:end] in symbols for end in range(1, len(symbol) + 1)) > _MAX_SYMBOLS:
            return f"it has more than {_MAX_SYMBOLS} user-defined symbols that begin alike"
    return ""
