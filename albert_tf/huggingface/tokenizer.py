# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tokenizers as Hugging Face's libraries save them.

Their tokenizer.json holds the pieces and the steps of a tokenizer. It is turned back into the
vocabulary file that it was made from, a SentencePiece model or a list of WordPiece pieces, so that
texts get the ids that the model was trained with. A step that ALBERT's tokenizers do not have is an
error.

For a SentencePiece model tokenizer.json is written, too. Without it these libraries derive a
tokenizer from spiece.model, which splits at user-defined symbols, starts a new word after each, and
lacks the digit-comma rule: a third of all sentences then get ids that the model was not trained
with.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.huggingface import TOKENIZER_CONFIG, VOCABULARIES
from albert_tf.io import files
from albert_tf.io.json_values import short_repr

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

*_VOCABULARY_FILES, _PIPELINE = VOCABULARIES
#: What our writer and Hugging Face's converter subtract from the scores of pieces such as "9,",
#: which the release splits; every other segmentation then scores higher.
_LOWERED, _THEIR_LOWERED = 1000.0, 100.0
#: Replacements that Hugging Face adds and the release's tokenizer does not make: quotes in the
#: style of LaTeX, and spaces, which normalisation collapses anyway.
_REPLACED = ("``", "''", " {2,}")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
#: Without the first of these, transformers 5 does not pass the segments of a pair to the model.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


class VocabularyFile(NamedTuple):
    """A vocabulary file, and the settings that go with it.

    Attributes:
      name: of the file.
      data: its content.
      lower_case: see TokenizerSpec.
      strip_accents: see TokenizerSpec; None for the default of `Tokenizer.from_file`.
    """

    name: str
    data: bytes
    lower_case: bool = True
    strip_accents: bool | None = None


def is_pipeline(values: object) -> bool:
    """Returns whether the content of a tokenizer.json is Hugging Face's, and not ours."""
    return isinstance(values, Mapping) and "model" in values


def vocabulary_file(folder: str) -> str | None:
    """Returns the path of a Hugging Face folder's spiece.model or vocab.txt, None without one."""
    paths = (os.path.join(folder, name) for name in _VOCABULARY_FILES)
    return next(filter(files.exists, paths), None)


def read_vocabulary_file(path: str) -> VocabularyFile:
    """Reads a vocabulary; spiece.model or vocab.txt with the tokenizer_config.json beside it.

    Raises:
      AlbertError: one of the files cannot be read, or a setting is not true, false or null.
    """
    options: dict[str, Any] = {}
    options_file = os.path.join(os.path.dirname(path), TOKENIZER_CONFIG)
    if os.path.basename(path) in _VOCABULARY_FILES and files.exists(options_file):
        options = files.read_object(options_file, "tokenizer configuration")
        for key in ("do_lower_case", "keep_accents", "strip_accents"):
            if not isinstance(options.get(key), (bool, type(None))):
                raise AlbertError(f"{options_file}: {key} must be true, false or null.")
    is_sentencepiece = path.endswith(".model")
    return VocabularyFile(
        os.path.basename(path),
        files.read_bytes(path, "vocabulary"),
        bool(options.get("do_lower_case", True)),
        not options.get("keep_accents") if is_sentencepiece else options.get("strip_accents"),
    )


def read_pipeline(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Turns the content of Hugging Face's tokenizer.json into a vocabulary file.

    Args:
      values: JSON keys and values.
      source: the file's path, for errors.

    Raises:
      AlbertError: it is damaged, or not a tokenizer of an ALBERT.
    """
    try:
        kind = values["model"].get("type")
        if kind == "Unigram":
            return _sentencepiece(values, source)
        if kind == "WordPiece":
            return _wordpiece(values, source)
    except AlbertError:
        raise
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise AlbertError(
            f"{source} is damaged ({type(error).__name__}: {error}); get it again."
        ) from error
    raise _unlike(source, f"a model of the type {short_repr(kind)}")


def _unlike(source: str, what: str) -> AlbertError:
    return AlbertError(
        f"{source} has {what}, which no ALBERT's tokenizer has; give its spiece.model or vocab.txt."
    )


def _steps(step: Mapping[str, Any] | None, parts: str) -> Iterator[Mapping[str, Any]]:
    """Yields the steps of a sequence, which is in the key `parts`, or the only step."""
    if step and step["type"] == "Sequence":
        for inner in step[parts]:
            yield from _steps(inner, parts)
    elif step:
        yield step


def _sentencepiece(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Builds the SentencePiece model of a unigram tokenizer."""
    from sentencepiece import sentencepiece_model_pb2 as pb2

    lower_case = strip_accents = has_nfkd = False
    table = b""
    for step in _steps(values["normalizer"], "normalizers"):
        kind = step["type"]
        if kind == "Precompiled":
            table = base64.b64decode(step["precompiled_charsmap"], validate=True)
        elif kind not in ("NFKD", "StripAccents", "Lowercase", "Replace"):
            raise _unlike(source, f"the normalizer {short_repr(kind)}")
        elif kind == "Replace" and next(iter(step["pattern"].values())) not in _REPLACED:
            raise _unlike(source, f"a replacement of {short_repr(step['pattern'])}")
        has_nfkd |= kind == "NFKD"
        lower_case |= kind == "Lowercase"
        strip_accents |= kind == "StripAccents"
    splits = {step["type"]: step for step in _steps(values["pre_tokenizer"], "pretokenizers")}
    prefix = splits.get("Metaspace", {})
    prefixed = prefix.get("prepend_scheme", "always") == "always"
    if not has_nfkd:
        raise _unlike(source, "no NFKD")
    if not {"Metaspace"} <= {*splits} <= {"Metaspace", "WhitespaceSplit"}:
        raise _unlike(source, "other pre-tokenizers than Metaspace")
    if not (prefixed and prefix.get("add_prefix_space", True)):
        raise _unlike(source, "no space before the first word")
    model = values["model"]
    proto = pb2.ModelProto()
    trainer = proto.trainer_spec
    trainer.model_type = trainer.UNIGRAM
    trainer.vocab_size, trainer.unk_id = len(model["vocab"]), model["unk_id"]
    trainer.byte_fallback = bool(model.get("byte_fallback", False))
    proto.normalizer_spec.precompiled_charsmap = table
    # true: a control symbol; false: a symbol that the user gave to SentencePiece's trainer.
    added = {token["id"]: bool(token["special"]) for token in values["added_tokens"]}
    _check_added(added, len(model["vocab"]), source)
    raised = _lowered_scores(model["vocab"])
    for i, (piece, score) in enumerate(model["vocab"]):
        entry = proto.pieces.add(piece=piece, score=score + raised.get(i, 0.0))
        if i == model["unk_id"]:
            entry.type, trainer.unk_piece = entry.UNKNOWN, piece
        elif i in added:
            entry.type = entry.CONTROL if added[i] else entry.USER_DEFINED
        elif score == 0.0:  # A trained piece has the logarithm of a probability below 1.
            entry.type = entry.USER_DEFINED
        elif trainer.byte_fallback and _BYTE.fullmatch(piece):
            entry.type = entry.BYTE
    # Absent ids would be those of SentencePiece's defaults, which are other pieces here.
    ids = {entry.piece: i for i, entry in enumerate(proto.pieces)}
    trainer.pad_id = ids.get("<pad>", -1)
    trainer.bos_id = trainer.eos_id = -1
    data = proto.SerializeToString(deterministic=True)
    return VocabularyFile("spiece.model", data, lower_case, strip_accents)


def _lowered_scores(vocabulary: list[tuple[str, float]]) -> dict[int, float]:
    """Returns what to add to scores that were lowered, by id; they are logarithms, at most 0."""
    commas = {
        i: score
        for i, (piece, score) in enumerate(vocabulary)
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    }
    highest = max(commas.values(), default=0.0)
    if highest > -_THEIR_LOWERED:
        return {}
    return dict.fromkeys(commas, _LOWERED if highest <= -_LOWERED else _THEIR_LOWERED)


def _check_added(added: Mapping[int, bool], size: int, source: str) -> None:
    beyond = [i for i in added if not 0 <= i < size]
    if beyond:
        raise _unlike(source, f"an added token {beyond[0]} beside its {size} pieces")


def _wordpiece(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Builds the vocab.txt of a WordPiece tokenizer."""
    model, normalizer = values["model"], values["normalizer"]
    plain = model["unk_token"] == "[UNK]" and model["continuing_subword_prefix"] == "##"
    chinese = normalizer["type"] == "BertNormalizer" and normalizer["handle_chinese_chars"]
    if not (plain and chinese and values["pre_tokenizer"]["type"] == "BertPreTokenizer"):
        raise _unlike(source, "other steps than BERT's")
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("the ids have gaps")
    if any(line_end in piece for piece in ids for line_end in "\r\n"):
        raise ValueError("a piece is more than a line")
    _check_added({token["id"]: True for token in values["added_tokens"]}, len(ids), source)
    text = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.get))
    lower_case, strip_accents = normalizer["lowercase"], normalizer["strip_accents"]
    return VocabularyFile("vocab.txt", text.encode(), bool(lower_case), strip_accents)


def write_tokenizer(folder: str, tokenizer: Tokenizer) -> None:
    """Writes the vocabulary file, tokenizer_config.json and, for SentencePiece, tokenizer.json."""
    spec = tokenizer.spec
    options: dict[str, Any] = {"do_lower_case": spec.lower_case, "model_input_names": _INPUTS}
    if spec.kind == "sentencepiece":
        name = "spiece.model"
        options.update(tokenizer_class="AlbertTokenizer", keep_accents=not spec.strip_accents)
        if values := tokenizer_json(tokenizer):
            files.write_json(os.path.join(folder, _PIPELINE), values)
    else:
        name = "vocab.txt"
        options.update(tokenizer_class="BertTokenizer", strip_accents=spec.strip_accents)
    files.write_bytes(os.path.join(folder, name), tokenizer.data)
    files.write_json(os.path.join(folder, TOKENIZER_CONFIG), options)


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Returns Hugging Face's tokenizer.json for a tokenizer with a SentencePiece model.

    The steps are those of `albert_tf.tokenization.normalization.normalize`, SentencePiece's own
    normalisation, splitting at white space and the best segmentation; the scores of pieces that
    the digit-comma rule splits are lowered. Only texts that spell out a special piece ("[CLS]") get
    other ids: Hugging Face reads them as the special piece.

    Returns:
      Its content; None unless the model is a unigram one.
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
        [piece.piece, piece.score - _LOWERED * (i in avoided)]
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
