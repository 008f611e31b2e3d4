# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the tokenizers that Hugging Face's libraries save.

Their tokenizer.json holds the pieces and the steps of a tokenizer. It is turned back into the
vocabulary file that it was made from, a SentencePiece model or a list of WordPiece pieces, so that
texts get the ids that the model was trained with. A step that ALBERT's tokenizers do not have is an
error.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown
from albert_tf.pretrained.hugging_face_hub import TOKENIZER_CONFIG, VOCABULARIES

PIPELINE = "tokenizer.json"
#: Vocabulary files that take precedence over tokenizer.json.
VOCABULARY_FILES = tuple(name for name in VOCABULARIES if name != PIPELINE)
#: What our writer and Hugging Face's converter subtract from the scores of pieces such as "9,",
#: which the release splits; every other segmentation then scores higher.
LOWERED, _THEIR_LOWERED = 1000.0, 100.0
#: Replacements that Hugging Face adds and the release's tokenizer does not make: quotes in the
#: style of LaTeX, and spaces, which normalisation collapses anyway.
_REPLACED = ("``", "''", " {2,}")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class VocabularyFile(NamedTuple):
    """A vocabulary file, and the settings that go with it.

    Attributes:
      name: of the file.
      data: its content.
      lower_case: see TokenizerSpec.
      strip_accents: see TokenizerSpec; None for the default of `Tokenizer.from_file`.
      split_digit_comma: likewise.
    """

    name: str
    data: bytes
    lower_case: bool = True
    strip_accents: bool | None = None
    split_digit_comma: bool | None = None


def is_pipeline(values: object) -> bool:
    """Returns whether the content of a tokenizer.json is Hugging Face's, and not ours."""
    return isinstance(values, Mapping) and "model" in values and "kind" not in values


def vocabulary_file(folder: str) -> str | None:
    """Returns the path of a Hugging Face folder's spiece.model or vocab.txt, None without one."""
    paths = (os.path.join(folder, name) for name in VOCABULARY_FILES)
    return next(filter(files.exists, paths), None)


def read_vocabulary_file(path: str) -> VocabularyFile:
    """Reads spiece.model or vocab.txt with the settings in tokenizer_config.json beside it.

    Raises:
      AlbertError: one of the files cannot be read, or a setting is not true, false or null.
    """
    options: dict[str, Any] = {}
    options_file = os.path.join(os.path.dirname(path), TOKENIZER_CONFIG)
    if files.exists(options_file):
        options = files.read_object(options_file, "tokenizer configuration")
        for key in ("do_lower_case", "keep_accents", "strip_accents", "split_digit_comma"):
            if not isinstance(options.get(key), (bool, type(None))):
                raise AlbertError(f"{options_file}: {key} must be true, false or null.")
    if path.endswith(".model"):
        strip = not options.get("keep_accents", False)
    else:
        strip = options.get("strip_accents")
    data = files.read_bytes(path, "vocabulary")
    return VocabularyFile(
        os.path.basename(path),
        data,
        bool(options.get("do_lower_case", True)),
        strip,
        options.get("split_digit_comma"),
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
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise AlbertError(
            f"{source} is damaged ({type(error).__name__}: {error}); get it again."
        ) from error
    raise _unlike(source, f"a model of the type {shown(kind)}")


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
            raise _unlike(source, f"the normalizer {shown(kind)}")
        elif kind == "Replace" and next(iter(step["pattern"].values())) not in _REPLACED:
            raise _unlike(source, f"a replacement of {shown(step['pattern'])}")
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
    # Files of our earlier versions have the score -1000, whatever the original one was.
    if highest > -_THEIR_LOWERED or {*commas.values()} == {-LOWERED}:
        return {}
    return dict.fromkeys(commas, LOWERED if highest <= -LOWERED else _THEIR_LOWERED)


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
