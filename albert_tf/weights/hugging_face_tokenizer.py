# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's tokenizer.json for a SentencePiece vocabulary, so that ids there are ours.

Without this file its libraries make one from spiece.model themselves, which cuts at user-defined
symbols, begins a new word after each, and lacks the digit-comma rule: a third of all sentences
then get ids that the model was not trained with.
"""

from __future__ import annotations

import base64
from typing import Any

from albert_tf.tokenization.tokenizer import Tokenizer

#: Of pieces that the digit-comma rule splits: any way around them is better.
_AVOIDED = -1000.0


def sentencepiece_pipeline(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """The content of tokenizer.json; None for SentencePiece models of another kind than unigram.

    The steps are those of `albert_tf.tokenization.normalization.normalize`, SentencePiece's own
    normalisation, the cut at white space and the best segmentation. Texts that spell out a special
    piece ("[CLS]") are the exception: Hugging Face reads them as the special piece.

    Args:
      tokenizer: of a SentencePiece vocabulary.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.data)
    if model.trainer_spec.model_type != model.trainer_spec.UNIGRAM:
        return None
    spec = tokenizer.spec
    steps = [{"type": "NFKD"}]
    steps += [{"type": "StripAccents"}] if spec.strip_accents else []
    steps += [{"type": "Lowercase"}] if spec.lower_case else []
    table = model.normalizer_spec.precompiled_charsmap
    if table:
        encoded = base64.b64encode(table).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    avoided = tokenizer.digit_comma_parts
    vocabulary = [
        [piece.piece, _AVOIDED if i in avoided else piece.score]
        for i, piece in enumerate(model.pieces)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _special_tokens(tokenizer),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, words],
        },
        "post_processor": _template(tokenizer),
        "decoder": words,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocabulary,
            "byte_fallback": model.trainer_spec.byte_fallback,
        },
    }


def _special_tokens(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The pieces that are found in texts before anything else; user-defined ones are not."""
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": i, "content": tokenizer.id_to_piece(i), **plain, "special": True}
        for i in sorted({*ids, tokenizer.mask_id})
    ]


def _template(tokenizer: Tokenizer) -> dict[str, Any]:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP], with their segments."""

    def special(piece: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": piece, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)]
    ids = {"[CLS]": tokenizer.cls_id, "[SEP]": tokenizer.sep_id}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special("[SEP]", 1)],
        "special_tokens": {
            piece: {"id": piece, "ids": [i], "tokens": [piece]} for piece, i in ids.items()
        },
    }
