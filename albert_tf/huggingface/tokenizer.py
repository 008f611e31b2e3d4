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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from albert_tf.errors import AlbertError
from albert_tf.huggingface import ADDED_TOKENS, TOKENIZER_CONFIG, VOCABULARIES
from albert_tf.io import files
from albert_tf.io.json_values import joined, short_repr
from albert_tf.io.sentencepiece_proto import ModelProto

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

*VOCABULARY_FILES, _PIPELINE = VOCABULARIES
#: The key that tells Hugging Face's tokenizer.json from ours.
PIPELINE_KEY = "model"
#: The steps of a SentencePiece model's tokenizer. Hugging Face adds replacements that the release's
#: does not make: of quotes in the style of LaTeX, and of spaces, which are collapsed anyway.
_NEEDED = {"NFKD", "Metaspace"}
_STEPS = {*_NEEDED, "StripAccents", "Lowercase", "Precompiled", "WhitespaceSplit"}
_STEPS |= {"``", "''", " {2,}"}
#: Without the first of these, transformers 5 does not pass the segments of a pair to the model.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
#: Settings in tokenizer_config.json. Without one, the default is that of `Tokenizer.from_file`.
_SETTINGS = ("do_lower_case", "keep_accents", "strip_accents")


class VocabularyFile(NamedTuple):
    """A vocabulary file, and the settings that go with it.

    A `strip_accents` of None stands for the default of `Tokenizer.from_file`.
    """

    name: str
    data: bytes
    lower_case: bool
    strip_accents: bool | None


def read_vocabulary_file(path: str) -> VocabularyFile:
    """Reads a vocabulary with its settings and its added tokens.

    It is one of Hugging Face's tokenizer.json; or a file with settings and tokens beside it, if
    any: in tokenizer_config.json, added_tokens.json and tokenizer.json, ours (if it is of this
    file) or Hugging Face's.

    Raises:
      AlbertError: one of the files cannot be read or is damaged, or a tokenizer.json is not of an
        ALBERT's tokenizer.
    """
    try:
        return _read(path)
    except AlbertError:
        raise
    except (AttributeError, DecodeError, LookupError, TypeError, ValueError) as error:
        raise AlbertError(
            f"{path}, or a file of the tokenizer beside it, is damaged ({type(error).__name__}: "
            f"{error}); get it again."
        ) from error


def _read(path: str) -> VocabularyFile:
    """See `read_vocabulary_file`; errors about the form of values are Python's own."""
    folder, name = os.path.split(path)

    def beside(name) -> dict[str, Any]:
        file = os.path.join(folder, name)
        return files.read_object(file, "tokenizer's file") if files.exists(file) else {}

    options, tokens = {}, {}
    if name.endswith(".json"):
        values = files.read_object(path, "tokenizer spec")
        name, data = _built(values, path)
        options = _settings(values)
        tokens = {token["id"]: token["content"] for token in values["added_tokens"]}
    else:
        data, values = files.read_bytes(path, "vocabulary"), beside(_PIPELINE)
        if values.get("model_file") == name:
            options = {**values, "do_lower_case": values.get("lower_case")}
        if name in VOCABULARY_FILES:
            options = _settings(values) if PIPELINE_KEY in values else options
            config = beside(TOKENIZER_CONFIG)
            options |= {key: value for key, value in config.items() if value is not None}
            tokens = {int(i): token for token, i in beside(ADDED_TOKENS).items()}
            listed = config.get("added_tokens_decoder") or {}
            tokens |= {int(i): token["content"] for i, token in listed.items()}
    lower_case, keep, strip = given = [*map(options.get, _SETTINGS)]
    if not {*map(type, given)} <= {bool, type(None)}:
        raise TypeError(f"{', '.join(_SETTINGS)} must be true, false or null")
    data = _with_symbols(name, data, tokens, path)
    strip = strip if keep is None else not keep
    return VocabularyFile(name, data, lower_case is not False, strip)


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a pipeline by their names in tokenizer_config.json."""
    steps = _steps(values["normalizer"])
    if bert := steps.get("BertNormalizer"):
        return {"do_lower_case": bert["lowercase"], "strip_accents": bert["strip_accents"]}
    return {"do_lower_case": "Lowercase" in steps, "strip_accents": "StripAccents" in steps}


def _with_symbols(name: str, data: bytes, tokens: Mapping[int, str], source: str) -> bytes:
    """Adds those tokens to a vocabulary, as user-defined symbols, that follow its pieces.

    Hugging Face adds tokens to a tokenizer without changing its file.
    """
    if not tokens:
        return data
    model, pieces = None, data.rstrip(b"\r\n").split(b"\n")
    if name.endswith(".model"):
        model = ModelProto.FromString(data)
        pieces = model.pieces
    size = len(pieces)
    beyond = sorted(i for i in tokens if i >= size)
    if beyond != [*range(size, size + len(beyond))]:
        raise _unlike(source, f"an added token {beyond[-1]} beside its {size} pieces")
    if not beyond:
        return data
    if model is None:
        return b"\n".join([*pieces, *(tokens[i].encode() for i in beyond), b""])
    for i in beyond:
        pieces.add(piece=tokens[i], type="USER_DEFINED")
    return model.SerializeToString(deterministic=True)


def _unlike(source: str, what: str) -> AlbertError:
    return AlbertError(
        f"{source} has {what}, which no ALBERT's tokenizer has; give its spiece.model or vocab.txt."
    )


def _steps(*given: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Returns steps, and those of sequences, by type or by what they replace."""
    steps = {}
    for step in filter(None, given):
        if step["type"] == "Sequence":
            steps |= _steps(*(step.get("normalizers") or step["pretokenizers"]))
        else:
            (name,) = step["pattern"].values() if step["type"] == "Replace" else [step["type"]]
            steps[name] = step
    return steps


def _built(values: Mapping[str, Any], source: str) -> tuple[str, bytes]:
    """Returns the name and the content of the vocabulary file of Hugging Face's tokenizer.json."""
    kind = values["model"].get("type")
    if kind == "Unigram":
        return "spiece.model", _sentencepiece(values, source)
    if kind == "WordPiece":
        return "vocab.txt", _wordpiece(values, source)
    raise _unlike(source, f"a model of the type {short_repr(kind)}")


def _sentencepiece(values: Mapping[str, Any], source: str) -> bytes:
    """Builds the SentencePiece model of a unigram tokenizer."""
    model, steps = values["model"], _steps(values["normalizer"], values["pre_tokenizer"])
    if model.get("byte_fallback"):
        steps["byte fallback"] = {}
    if not _NEEDED <= {*steps} <= _STEPS:
        raise _unlike(source, f"the steps {joined(steps)}")
    words = steps["Metaspace"]
    if words.get("prepend_scheme", "always") != "always" or not words.get("add_prefix_space", True):
        raise _unlike(source, "no space before the first word")
    proto = ModelProto()
    table = steps.get("Precompiled", {}).get("precompiled_charsmap", "")
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(table, validate=True)
    kinds = {x["id"]: "CONTROL" if x["special"] else "USER_DEFINED" for x in values["added_tokens"]}
    kinds[model["unk_id"]] = "UNKNOWN"
    for i, (piece, score) in enumerate(model["vocab"]):
        # A trained piece has the logarithm of a probability.
        kind = kinds.get(i, "NORMAL" if score else "USER_DEFINED")
        proto.pieces.add(piece=piece, score=score, type=kind)
    proto.trainer_spec.unk_id = model["unk_id"]  # Which Hugging Face's converter reads.
    return proto.SerializeToString(deterministic=True)


def _wordpiece(values: Mapping[str, Any], source: str) -> bytes:
    """Builds the vocab.txt of a WordPiece tokenizer."""
    model, normalizer, ids = values["model"], values["normalizer"], values["model"]["vocab"]
    plain = model["unk_token"] == "[UNK]" and model["continuing_subword_prefix"] == "##"
    chinese = normalizer["type"] == "BertNormalizer" and normalizer["handle_chinese_chars"]
    if not (plain and chinese and values["pre_tokenizer"]["type"] == "BertPreTokenizer"):
        raise _unlike(source, "other steps than BERT's")
    if sorted(ids.values()) != [*range(len(ids))]:
        raise ValueError("the ids have gaps")
    if any({"\r", "\n"} & {*piece} for piece in ids):
        raise ValueError("a piece is more than a line")
    return "".join(f"{piece}\n" for piece in sorted(ids, key=ids.get)).encode()


def tokenizer_files(tokenizer: Tokenizer, max_length: int) -> dict[str, bytes]:
    """Returns the contents by name of the files that Hugging Face's libraries read.

    `max_length` is the model's greatest number of positions; longer texts are cut if asked to.
    """
    spec = tokenizer.spec
    if spec.kind == "sentencepiece":
        name, kind = "spiece.model", "AlbertTokenizer"
        accents = {"keep_accents": not spec.strip_accents}
    else:
        name, kind, accents = "vocab.txt", "BertTokenizer", {"strip_accents": spec.strip_accents}
    options = {
        "tokenizer_class": kind,
        "do_lower_case": spec.lower_case,
        **accents,
        "model_input_names": _INPUTS,
        "model_max_length": max_length,
        **{f"{key}_token": tokenizer.id_to_piece(i) for key, i in tokenizer.named_ids.items()},
    }
    contents = {name: tokenizer.whole_data(), TOKENIZER_CONFIG: files.json_bytes(options)}
    if values := tokenizer_json(tokenizer):
        contents[_PIPELINE] = files.json_bytes(values)
    return contents


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any] | None:
    """Returns Hugging Face's tokenizer.json.

    The steps are those of `albert_tf.tokenization.normalization.normalize`, SentencePiece's own
    normalisation, splitting at white space and the best segmentation; the scores of pieces that
    the digit-comma rule splits are lowered. Or they are BERT's. Only texts that spell out a special
    piece ("[CLS]") get other ids: Hugging Face reads them as the special piece.

    Returns:
      Its content; None for a SentencePiece model unless it is a unigram one without bytes as
      pieces.
    """
    is_wordpiece = tokenizer.spec.kind == "wordpiece"
    values = (_wordpiece_steps if is_wordpiece else _sentencepiece_steps)(tokenizer)
    if values is None:
        return None
    added = [
        {
            "id": i,
            "content": tokenizer.id_to_piece(i),
            "special": special,
            "normalized": not special,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        # These are matched before tokenization; user-defined pieces are not.
        for ids, special in ((tokenizer.named_ids, True), (tokenizer.symbols, False))
        for i in sorted(ids.values())
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        # [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with segment numbers.
        "post_processor": {
            "type": "BertProcessing",
            "cls": ["[CLS]", tokenizer.cls_id],
            "sep": ["[SEP]", tokenizer.sep_id],
        },
        **values,
    }


def _sentencepiece_steps(tokenizer: Tokenizer) -> dict[str, Any] | None:
    model = ModelProto.FromString(tokenizer.data)
    trainer = model.trainer_spec
    if trainer.model_type != trainer.UNIGRAM or trainer.byte_fallback:
        return None
    kinds = ["NFKD"] + ["StripAccents"] * tokenizer.spec.strip_accents
    steps = [{"type": kind} for kind in kinds + ["Lowercase"] * tokenizer.spec.lower_case]
    if table := model.normalizer_spec.precompiled_charsmap:
        encoded = base64.b64encode(table).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    # There, pieces that the digit-comma rule splits are never the best.
    pieces = ModelProto.FromString(tokenizer.whole_data()).pieces
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, words],
        },
        "decoder": words,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": [[entry.piece, entry.score] for entry in pieces],
            "byte_fallback": False,
        },
    }


def _wordpiece_steps(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": tokenizer.spec.strip_accents,
            "lowercase": tokenizer.spec.lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 200,
            "vocab": {piece: i for i, piece in enumerate(tokenizer.pieces)},
        },
    }
