# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's tokenizer.json for a SentencePiece vocabulary, with our ids.

Without this file its libraries derive a tokenizer from spiece.model, which splits at user-defined
symbols, starts a new word after each, and lacks the digit-comma rule: a third of all sentences
then get ids that the model was not trained with.
"""

from __future__ import annotations

import base64
from typing import Any

from albert_tf.tokenization.hugging_face_files import LOWERED
from albert_tf.tokenization.tokenizer import Tokenizer


def sentencepiece_pipeline(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Returns the content of tokenizer.json, None unless the SentencePiece model is a unigram one.

    The steps are those of `albert_tf.tokenization.normalization.normalize`, SentencePiece's own
    normalisation, splitting at white space and the best segmentation; the scores of pieces that
    the digit-comma rule splits are lowered. Only texts that spell out a
    special piece ("[CLS]") get other ids: Hugging Face reads them as the special piece.
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
        [piece.piece, piece.score - LOWERED * (i in avoided)]
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
    """Returns the pieces that are matched before tokenization; user-defined ones are not."""
    ids = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": i, "content": tokenizer.id_to_piece(i), **plain, "special": True}
        for i in sorted({*ids, tokenizer.mask_id})
    ]


def _template(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the templates [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with segment numbers."""

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
