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
import contextlib
import os
from collections.abc import Iterator, Mapping
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
#: What our writer and Hugging Face's converter subtract from the scores of pieces such as "9,",
#: which the release splits; every other segmentation then scores higher.
LOWERED, _THEIR_LOWERED = 1000.0, 100.0
#: The steps of a SentencePiece model's tokenizer. Hugging Face adds replacements that the release's
#: does not make: of quotes in the style of LaTeX, and of spaces, which are collapsed anyway.
_NEEDED = {"NFKD", "Metaspace"}
_STEPS = {*_NEEDED, "StripAccents", "Lowercase", "Precompiled", "WhitespaceSplit"}
_STEPS |= {"``", "''", " {2,}"}
#: Without the first of these, transformers 5 does not pass the segments of a pair to the model.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


class VocabularyFile(NamedTuple):
    """A vocabulary file, and the settings that go with it.

    A `strip_accents` of None stands for the default of `Tokenizer.from_file`.
    """

    name: str
    data: bytes
    lower_case: bool = True
    strip_accents: bool | None = None


def is_pipeline(values: object) -> bool:
    """Returns whether the content of a tokenizer.json is Hugging Face's, and not ours."""
    return isinstance(values, Mapping) and "model" in values


def read_vocabulary_file(path: str) -> VocabularyFile:
    """Reads a vocabulary with the settings and the added tokens in the files beside it, if any.

    These are tokenizer_config.json, added_tokens.json and tokenizer.json, ours (if it is of this
    file) or Hugging Face's.

    Raises:
      AlbertError: one of the files cannot be read, or a setting is not true, false or null.
    """
    folder, name = os.path.split(path)
    is_model = name.endswith(".model")

    def beside(name: str, what: str) -> dict[str, Any]:
        file = os.path.join(folder, name)
        return files.read_object(file, what) if files.exists(file) else {}

    data, options = files.read_bytes(path, "vocabulary"), {}
    values = beside(_PIPELINE, "tokenizer spec")
    with _damage_named(f"A file of the tokenizer in {folder}"):
        if is_pipeline(values) and name in VOCABULARY_FILES:
            options = _settings(values)
        elif values.get("model_file") == name:
            strip = values.get("strip_accents")
            options = {"strip_accents": strip, "keep_accents": not strip}
            options["do_lower_case"] = values.get("lower_case")
        if name in VOCABULARY_FILES:
            given = beside(TOKENIZER_CONFIG, "tokenizer configuration")
            options.update((key, value) for key, value in given.items() if value is not None)
            added = _added_tokens(given, beside(ADDED_TOKENS, "added tokens"))
            data = _with_symbols(data, added, path)
    lower_case, keep, strip = map(options.get, ("do_lower_case", "keep_accents", "strip_accents"))
    if not {type(lower_case), type(keep), type(strip)} <= {bool, type(None)}:
        raise AlbertError(
            f"{os.path.join(folder, TOKENIZER_CONFIG)}: do_lower_case, keep_accents and "
            "strip_accents must be true, false or null."
        )
    return VocabularyFile(name, data, lower_case is not False, not keep if is_model else strip)


def read_pipeline(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Turns the content of Hugging Face's tokenizer.json, at `source`, into a vocabulary file.

    Raises:
      AlbertError: it is damaged, or not a tokenizer of an ALBERT.
    """
    with _damage_named(source):
        kind = values["model"].get("type")
        read = {"Unigram": _sentencepiece, "WordPiece": _wordpiece}.get(kind)
        if read is None:
            raise _unlike(source, f"a model of the type {short_repr(kind)}")
        return read(values, source)


@contextlib.contextmanager
def _damage_named(source: str) -> Iterator[None]:
    """Turns errors about the form of values from a file into sentences."""
    try:
        yield
    except AlbertError:
        raise
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise AlbertError(
            f"{source} is damaged ({type(error).__name__}: {error}); get it again."
        ) from error


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a pipeline by their names in tokenizer_config.json."""
    steps = dict(_steps(values["normalizer"]))
    if bert := steps.get("BertNormalizer"):
        return {"do_lower_case": bert["lowercase"], "strip_accents": bert["strip_accents"]}
    return {"do_lower_case": "Lowercase" in steps, "keep_accents": "StripAccents" not in steps}


def _added_tokens(config: Mapping[str, Any], added: Mapping[str, int]) -> dict[int, str]:
    """Returns tokens by id of tokenizer_config.json and of added_tokens.json."""
    listed = config.get("added_tokens_decoder") or {}
    tokens = {int(i): token["content"] for i, token in listed.items()}
    return {**{int(i): token for token, i in added.items()}, **tokens}


def _with_symbols(data: bytes, tokens: Mapping[int, str], source: str) -> bytes:
    """Adds those tokens to a vocabulary, as user-defined symbols, that follow its pieces.

    Hugging Face adds tokens to a tokenizer without changing its file.
    """
    if not tokens:
        return data
    model, lines = None, data.rstrip(b"\r\n").split(b"\n")
    if b"\0" in data:  # See Tokenizer.from_file.
        try:
            model = ModelProto.FromString(data)
        except DecodeError:
            return data  # For the error of who reads it.
    size = len(model.pieces if model else lines)
    beyond = sorted(i for i in tokens if i >= size)
    if beyond != [*range(size, size + len(beyond))]:
        raise _unlike(source, f"an added token {beyond[-1]} beside its {size} pieces")
    if not beyond:
        return data
    if not model:
        return b"".join(line + b"\n" for line in (*lines, *(tokens[i].encode() for i in beyond)))
    for i in beyond:
        model.pieces.add(piece=tokens[i], score=0.0, type="USER_DEFINED")
    return model.SerializeToString(deterministic=True)


def _unlike(source: str, what: str) -> AlbertError:
    return AlbertError(
        f"{source} has {what}, which no ALBERT's tokenizer has; give its spiece.model or vocab.txt."
    )


def _steps(step: Mapping[str, Any] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the steps of a sequence, or the only step, by type or by what they replace."""
    if step and step["type"] == "Sequence":
        for inner in step.get("normalizers") or step["pretokenizers"]:
            yield from _steps(inner)
    elif step and step["type"] == "Replace":
        yield next(iter(step["pattern"].values())), step
    elif step:
        yield step["type"], step


def _sentencepiece(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Builds the SentencePiece model of a unigram tokenizer."""
    steps = dict([*_steps(values["normalizer"]), *_steps(values["pre_tokenizer"])])
    model = values["model"]
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
    # true: a control symbol; false: a symbol that the user gave to SentencePiece's trainer.
    added = {token["id"]: bool(token["special"]) for token in values["added_tokens"]}
    tokens = {token["id"]: token["content"] for token in values["added_tokens"]}
    raised = _lowered_scores(model["vocab"])
    for i, (piece, score) in enumerate(model["vocab"]):
        entry = proto.pieces.add(piece=piece, score=score + raised.get(i, 0.0))
        if i == model["unk_id"]:
            entry.type = entry.UNKNOWN
        elif added.get(i):
            entry.type = entry.CONTROL
        elif i in added or score == 0.0:  # A trained piece has the logarithm of a probability.
            entry.type = entry.USER_DEFINED
    # Absent ids would be those of SentencePiece's defaults, which are other pieces here.
    ids = {entry.piece: i for i, entry in enumerate(proto.pieces)}
    trainer = proto.trainer_spec
    trainer.model_type, trainer.vocab_size = trainer.UNIGRAM, len(model["vocab"])
    trainer.unk_id, trainer.unk_piece = model["unk_id"], model["vocab"][model["unk_id"]][0]
    trainer.pad_id, trainer.bos_id, trainer.eos_id = ids.get("<pad>", -1), -1, -1
    data = _with_symbols(proto.SerializeToString(deterministic=True), tokens, source)
    return VocabularyFile("spiece.model", data, "Lowercase" in steps, "StripAccents" in steps)


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
    return dict.fromkeys(commas, LOWERED if highest <= -LOWERED else _THEIR_LOWERED)


def _wordpiece(values: Mapping[str, Any], source: str) -> VocabularyFile:
    """Builds the vocab.txt of a WordPiece tokenizer."""
    model, normalizer = values["model"], values["normalizer"]
    tokens = {token["id"]: token["content"] for token in values["added_tokens"]}
    plain = model["unk_token"] == "[UNK]" and model["continuing_subword_prefix"] == "##"
    chinese = normalizer["type"] == "BertNormalizer" and normalizer["handle_chinese_chars"]
    if not (plain and chinese and values["pre_tokenizer"]["type"] == "BertPreTokenizer"):
        raise _unlike(source, "other steps than BERT's")
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    if [*map(model["vocab"].get, pieces)] != [*range(len(pieces))]:
        raise ValueError("the ids have gaps")
    if any({"\r", "\n"} & {*piece} for piece in pieces):
        raise ValueError("a piece is more than a line")
    data = _with_symbols("".join(f"{piece}\n" for piece in pieces).encode(), tokens, source)
    strip = normalizer["strip_accents"]
    return VocabularyFile("vocab.txt", data, bool(normalizer["lowercase"]), strip)


def tokenizer_files(tokenizer: Tokenizer, max_length: int) -> dict[str, bytes]:
    """Returns the contents by name of the files that Hugging Face's libraries read.

    `max_length` is the model's greatest number of positions; longer texts are cut if asked to.
    """
    spec = tokenizer.spec
    options: dict[str, Any] = {
        "do_lower_case": spec.lower_case,
        "model_input_names": _INPUTS,
        "model_max_length": max_length,
    }
    for name, i in tokenizer.named_ids.items():
        options[f"{name}_token"] = tokenizer.id_to_piece(i)
    if spec.kind == "sentencepiece":
        name = "spiece.model"
        options.update(tokenizer_class="AlbertTokenizer", keep_accents=not spec.strip_accents)
    else:
        name = "vocab.txt"
        options.update(tokenizer_class="BertTokenizer", strip_accents=spec.strip_accents)
    values = tokenizer_json(tokenizer)
    return {
        name: tokenizer.whole_data(),
        TOKENIZER_CONFIG: files.json_bytes(options),
        **({_PIPELINE: files.json_bytes(values)} if values else {}),
    }


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
    steps = _wordpiece_steps if tokenizer.spec.kind == "wordpiece" else _sentencepiece_steps
    if (values := steps(tokenizer)) is None:
        return None
    # These are matched before tokenization; user-defined pieces are not.
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": tokenizer.id_to_piece(i), **plain, "special": True}
            for i in sorted(tokenizer.named_ids.values())
        ]
        + [
            {"id": i, "content": tokenizer.id_to_piece(i), **plain, "special": False}
            | {"normalized": True}
            for i in tokenizer.symbols.values()
        ],
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
    pieces = [
        # Those of a model that conversion wrote are lowered already.
        [p.piece, p.score - LOWERED * (i in tokenizer.digit_comma_parts and p.score > -LOWERED)]
        for i, p in enumerate(model.pieces)
    ]
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
            "vocab": pieces,
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
            "vocab": {tokenizer.id_to_piece(i): i for i in range(tokenizer.vocab_size)},
        },
    }
