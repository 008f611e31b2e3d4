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
from albert_tf.huggingface.tokenizer import tokenizer_files, tokenizer_json
from albert_tf.io.sentencepiece_proto import ModelProto
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


@pytest.mark.parametrize("form", ["ours", "ours, cased", "theirs", "theirs, recent"])
def test_tokenizer_json_alone_has_the_ids_of_its_sentencepiece_model(model, form, tmp_path):
    cased = {"lower_case": False, "strip_accents": False} if "cased" in form else {}
    original = with_options(model, **cased)
    values = tokenizer_json(original) if "ours" in form else theirs(model, "recent" in form)
    tokenizer = Tokenizer.from_file(path := write(tmp_path, values))
    assert tokenizer.spec.lower_case == tokenizer.spec.strip_accents == (not cased)
    assert Tokenizer.from_file(path, True).spec.lower_case
    assert tokenizer.vocab_size == original.vocab_size
    assert tokenizer.special_ids.tolist() == original.special_ids.tolist()
    for text in texts():
        assert tokenizer.encode(text) == original.encode(text), text
    assert Tokenizer.from_file(tokenizer.save(str(tmp_path / "saved"))).spec == tokenizer.spec


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
    "options", [{}, {"lower_case": False}, {"lower_case": False, "strip_accents": False}]
)
def test_a_written_folder_keeps_the_rules(options, small_model, tmp_path):
    tokenizer = with_options(small_model, **options)
    for name, data in tokenizer_files(tokenizer, 64).items():
        (tmp_path / name).write_bytes(data)
    for path in (tmp_path, tmp_path / "spiece.model"):
        found = Tokenizer.from_file(str(path))
        settings = {"model_file": "spiece.model", "sha256": found.spec.sha256}
        assert found.spec == dataclasses.replace(tokenizer.spec, **settings)
        assert found.encode_batch(texts()) == tokenizer.encode_batch(texts())
    # Written again, it changes no more.
    assert tokenizer_files(found, 64)["spiece.model"] == found.data
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["model_max_length"] == 64


@pytest.mark.parametrize("beside", ["ours", "theirs"])
def test_the_tokenizer_json_beside_a_vocabulary_given_by_name_counts(beside, small_model, tmp_path):
    cased = with_options(small_model, lower_case=False, strip_accents=False)
    if beside == "ours":
        cased.save(str(tmp_path))
    else:
        write(tmp_path, tokenizer_json(cased))
        shutil.copy(small_model, tmp_path / "spiece.model")
    (path,) = tmp_path.glob("*.model")
    found = Tokenizer.from_file(str(path)).spec
    assert not (found.lower_case or found.strip_accents)
    assert Tokenizer.from_file(str(path), lower_case=True).spec.lower_case


ADDED = {
    "added_tokens.json": lambda tokens: tokens,
    "tokenizer_config.json": lambda tokens: {
        "added_tokens_decoder": {str(i): {"content": token} for token, i in tokens.items()}
    },
    "tokenizer.json": lambda tokens: {
        "added_tokens": [{"id": i, "content": t, "special": True} for t, i in tokens.items()]
    },
}


@pytest.mark.parametrize("name", ADDED)
def test_added_tokens_are_user_defined_symbols(name, small_model, tmp_path):
    def add(tokens):
        values = ours(small_model) if name == "tokenizer.json" else {}
        (tmp_path / name).write_text(json.dumps({**values, **ADDED[name](tokens)}))
        return Tokenizer.from_file(str(tmp_path))

    if name != "tokenizer.json":
        shutil.copy(small_model, tmp_path / "spiece.model")
    plain = Tokenizer.from_file(small_model)
    size = plain.vocab_size
    found = add({"[E1]": size, "<pad>": 0, "é!": size + 1})
    assert found.vocab_size == size + 2
    # Texts are lower-cased before symbols are looked up, and so are symbols.
    ba = plain.encode("ba")
    symbols = [i for i in found.encode("ba[E1] ba [e1]ba") if i in (*ba, size)]
    assert symbols == [*ba, size, *ba, size]
    assert found.encode("the ba 9,") == plain.encode("the ba 9,")
    with pytest.raises(AlbertError, match=f"an added token {size + 1} beside its {size} pieces"):
        add({"[E1]": size + 1})


@pytest.mark.parametrize("name", ADDED)
def test_added_tokens_of_a_wordpiece_vocabulary_are_found(name, wordpiece, tmp_path):
    size = wordpiece.vocab_size
    values = wordpiece_values() if name == "tokenizer.json" else {}
    tokens = {"[PAD]": 0, "[E1]": size, "covid": size + 1}
    (tmp_path / name).write_text(json.dumps({**values, **ADDED[name](tokens)}))
    if name == "tokenizer.json":
        (tmp_path / "vocab.txt").unlink()
    found = Tokenizer.from_file(str(tmp_path))
    texts = ["the [E1] un[e1]able", "中[E1]，covid", "[E 1]"]
    expected = ["the", "[E1]", "un", "[E1]", "[UNK]"]
    assert found.vocab_size == size + 2 and found.tokenize(texts[0]) == expected
    assert found.tokenize(texts[1])[:2] == ["中", "[E1]"]
    assert found.encode(texts[1])[-1] == size + 1 and size not in found.encode(texts[2])
    offsets = [columns[0].tolist() for columns in found.encode_with_offsets(texts)]
    assert offsets == found.encode_batch(texts)
    again = Tokenizer.from_file(found.save(str(tmp_path / "saved")))
    assert again.encode_batch(texts) == offsets
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(found)))
    assert [theirs.encode(t, add_special_tokens=False).ids for t in texts] == offsets


def test_symbols_with_capitals_are_found_in_lower_case(small_model, tmp_path):
    model = ModelProto.FromString(Path(small_model).read_bytes())
    for piece in ("NEW", "[MASK]"):
        model.pieces[5 if piece == "NEW" else 4].piece = piece
        model.pieces[5 if piece == "NEW" else 4].type = USER_DEFINED
    (tmp_path / "x.model").write_bytes(model.SerializeToString())
    for lower_case, text in ((True, "a new NEW day"), (False, "a NEW NEW day")):
        tokenizer = Tokenizer.from_file(str(tmp_path / "x.model"), lower_case)
        assert tokenizer.encode(text).count(5) == 2
        assert tokenizer.id_to_piece(4) == "[MASK]"


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
        (("model", "vocab"), 3, r"is damaged \(TypeError"),
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
    ],
)
def test_another_wordpiece_tokenizer_is_refused(keys, value, message, tmp_path):
    path = write(tmp_path, changed(wordpiece_values(), *keys, value=value))
    with pytest.raises(AlbertError, match=message):
        Tokenizer.from_file(path)


def test_other_libraries_give_our_ids_from_the_files_written_for_them(released_model, wordpiece):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = Tokenizer.from_file(released_model)
    # keras-hub leaves all to spiece.model.
    whole = SentencePieceProcessor(model_proto=tokenizer.whole_data())
    theirs, bert = (
        tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(t))) for t in (tokenizer, wordpiece)
    )
    for text in [*texts(), *random_texts(700, seed=1), "1,234 20,5 x9, (12,) 1999,2000,"]:
        expected = tokenizer.encode(text)
        assert whole.encode(text) == expected, text
        if "[CLS]" not in text:  # Which is a special piece to them.
            assert theirs.encode(text, add_special_tokens=False).ids == expected, text
            if "Σ" not in text:  # They lower-case it without looking at its place in a word.
                ids = bert.encode(text, add_special_tokens=False).ids
                assert ids == wordpiece.encode(text), text
