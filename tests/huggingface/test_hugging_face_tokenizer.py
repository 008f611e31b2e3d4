# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's tokenizer.json, alone and beside the vocabulary that it was made from."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from albert_tf.errors import AlbertError
from albert_tf.huggingface.tokenizer import tokenizer_json, write_tokenizer
from albert_tf.io.sentencepiece_proto import ModelProto
from albert_tf.tokenization.normalization import normalize
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.tokenization.conftest import RELEASED_MODEL, WORDPIECES, needs_release, random_texts

GOLDEN = Path(__file__).parents[1] / "golden"
USER_DEFINED = 4


def with_options(model, **options):
    """Returns the tokenizer of a vocabulary file with other settings than by default."""
    tokenizer = Tokenizer.from_file(model)
    return Tokenizer(dataclasses.replace(tokenizer.spec, **options), tokenizer.data, model)


def ours(model):
    """Returns the tokenizer.json that conversion writes for a SentencePiece model."""
    return tokenizer_json(Tokenizer.from_file(model))


def theirs(model, recent):
    """Returns an imitation of what Hugging Face's own converter makes of a SentencePiece model.

    It lowers the scores of pieces such as "9,", replaces quotes, and in recent releases takes
    user-defined symbols as added tokens.
    """
    values = copy.deepcopy(ours(model))
    proto = ModelProto.FromString(Path(model).read_bytes())
    table = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    steps = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
        *({"type": kind} for kind in ("NFKD", "StripAccents", "Lowercase")),
        {"type": "Precompiled", "precompiled_charsmap": table},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    values["normalizer"] = {"type": "Sequence", "normalizers": steps}
    values["model"]["vocab"] = [
        [p.piece, p.score - 100 * (p.piece[-1] == "," and p.piece[-2:-1].isdigit())]
        for p in proto.pieces
    ]
    words = {"type": "Metaspace", "replacement": "▁"}
    if not recent:
        words["add_prefix_space"] = True
        parts = [{"type": "WhitespaceSplit"}, words]
        values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
        return values
    values["pre_tokenizer"] = {**words, "prepend_scheme": "always", "split": True}
    values["added_tokens"] += [
        {"id": i, "content": p.piece, "special": False}
        for i, p in enumerate(proto.pieces)
        if p.type == USER_DEFINED
    ]
    return values


def write(folder, values):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(values), "utf-8")
    return str(path)


def texts():
    cases = json.loads((GOLDEN / "tokenization_cases.json").read_text("utf-8"))
    return [*(case["text"] for case in cases), *random_texts(300), "1,234 20,5 x9, (12,) 1999,20"]


@pytest.fixture(params=["small", pytest.param("released", marks=needs_release)])
def model(request):
    if request.param == "small":
        return request.getfixturevalue("small_model")
    return str(RELEASED_MODEL)


@pytest.mark.parametrize("form", ["ours", "theirs", "theirs, recent"])
def test_tokenizer_json_alone_has_the_ids_of_its_sentencepiece_model(model, form, tmp_path):
    values = ours(model) if form == "ours" else theirs(model, "recent" in form)
    original = Tokenizer.from_file(model)
    tokenizer = Tokenizer.from_file(write(tmp_path, values))
    assert tokenizer.vocab_size == original.vocab_size
    assert tokenizer.special_ids.tolist() == original.special_ids.tolist()
    for text in texts():
        assert tokenizer.encode(text) == original.encode(text), text
    assert Tokenizer.from_file(tokenizer.save(str(tmp_path / "saved"))).spec == tokenizer.spec


def test_settings_of_the_normalizer_are_kept(small_model, tmp_path):
    cased = with_options(small_model, lower_case=False, strip_accents=False)
    tokenizer = Tokenizer.from_file(write(tmp_path, tokenizer_json(cased)))
    assert not (tokenizer.spec.lower_case or tokenizer.spec.strip_accents)
    assert tokenizer.encode("The Né") == cased.encode("The Né")
    assert Tokenizer.from_file(f"{tmp_path}/tokenizer.json", True).spec.lower_case


@pytest.mark.parametrize("given", ["folder", "tokenizer.json"])
def test_a_vocabulary_beside_it_is_read_with_its_settings(given, small_model, tmp_path):
    path = write(tmp_path, theirs(small_model, recent=True))
    shutil.copy(small_model, tmp_path / "spiece.model")
    options = {"do_lower_case": False, "keep_accents": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    tokenizer = Tokenizer.from_file(str(tmp_path) if given == "folder" else path)
    assert tokenizer.data == Path(small_model).read_bytes()
    assert not (tokenizer.spec.lower_case or tokenizer.spec.strip_accents)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lower_case": False},
        {"lower_case": False, "strip_accents": False},
    ],
)
def test_a_written_folder_keeps_the_rules(options, small_model, tmp_path):
    tokenizer = with_options(small_model, **options)
    write_tokenizer(str(tmp_path), tokenizer)
    found = Tokenizer.from_file(str(tmp_path))
    assert found.spec == dataclasses.replace(tokenizer.spec, model_file="spiece.model")
    assert found.encode("Café 9,000 2013,") == tokenizer.encode("Café 9,000 2013,")


def wordpiece_values(**normalizer):
    """Returns the tokenizer.json of Hugging Face's BertTokenizer for WORDPIECES."""
    return {
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
            **normalizer,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "vocab": {piece: i for i, piece in enumerate(WORDPIECES)},
        },
    }


@pytest.mark.parametrize("lower_case", [True, False])
def test_a_wordpiece_tokenizer_json_alone_has_the_ids_of_its_vocabulary(
    lower_case, wordpiece, tmp_path
):
    original = Tokenizer.from_file(str(tmp_path / "vocab.txt"), lower_case)
    folder = tmp_path / "theirs"
    folder.mkdir()
    tokenizer = Tokenizer.from_file(write(folder, wordpiece_values(lowercase=lower_case)))
    assert tokenizer.spec == original.spec
    for text in texts():
        assert tokenizer.encode(text) == original.encode(text)


def changed(values, *keys, value):
    """Returns a copy with another value at the end of the keys."""
    values = copy.deepcopy(values)
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return values


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("model", "type"), "BPE", "has a model of the type 'BPE', which no ALBERT's tok"),
        (("normalizer", "normalizers", 0, "type"), "NFC", "has the steps NFC, .*, which no ALBERT"),
        (("normalizer",), None, "has the steps WhitespaceSplit, Metaspace, which no"),
        (("pre_tokenizer",), {"type": "ByteLevel"}, "has the steps NFKD, .*, ByteLevel, which no"),
        (("model", "byte_fallback"), True, "has the steps NFKD, .*, byte fallback, which no"),
        (("pre_tokenizer", "pretokenizers", 1, "prepend_scheme"), "never", "has no space before"),
        (("added_tokens", 0, "id"), 10**6, "has an added token 1000000 beside its 265 pieces"),
        (("model", "vocab"), 3, r"tokenizer\.json is damaged \(TypeError"),
        (("model", "unk_id"), None, r"tokenizer\.json is damaged \(TypeError"),
    ],
)
def test_another_tokenizer_is_refused_in_one_sentence(keys, value, message, small_model, tmp_path):
    path = write(tmp_path, changed(ours(small_model), *keys, value=value))
    with pytest.raises(AlbertError, match=message):
        Tokenizer.from_file(path)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("normalizer", "handle_chinese_chars"), False, "has other steps than BERT's"),
        (("model", "vocab", "un"), 99, r"is damaged \(ValueError: the ids have gaps\)"),
        (("added_tokens", 0, "id"), 99, "has an added token 99"),
        (("normalizer",), None, r"is damaged \(TypeError"),
    ],
)
def test_another_wordpiece_tokenizer_is_refused(keys, value, message, tmp_path):
    path = write(tmp_path, changed(wordpiece_values(), *keys, value=value))
    with pytest.raises(AlbertError, match=message):
        Tokenizer.from_file(path)


def test_the_written_one_segments_as_the_digit_comma_rule_does(released_model):
    tokenizer = Tokenizer.from_file(released_model)
    model = ModelProto.FromString(tokenizer.data)
    vocabulary = tokenizer_json(tokenizer)["model"]["vocab"]
    for piece, (text, score) in zip(model.pieces, vocabulary):
        assert piece.piece == text
        piece.score = score
    plain = SentencePieceProcessor(model_proto=model.SerializeToString())
    cases = json.loads((GOLDEN / "tokenization_cases.json").read_text("utf-8"))
    for text in [*(case["text"] for case in cases), "1,234 20,5 x9, (12,) 1999,2000,"]:
        assert plain.encode(normalize(text, True, True)) == tokenizer.encode(text)


def test_the_written_one_matches_only_special_pieces_first(released_model):
    values = tokenizer_json(Tokenizer.from_file(released_model, lower_case=False))
    added = {token["content"]: token["id"] for token in values["added_tokens"]}
    assert added == {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    steps = [step["type"] for step in values["normalizer"]["normalizers"]]
    assert steps == ["NFKD", "StripAccents", "Precompiled"]
