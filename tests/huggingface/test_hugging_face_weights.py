# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.huggingface.config import read_config
from albert_tf.huggingface.weights import read_safetensors, write_hugging_face, write_safetensors
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.load import load_weights
from tests.support.builders import tiny_config
from tests.support.weights import golden_outputs, weights_of, write_model

WEIGHTS = "model.safetensors"


def header_and_data(path):
    """Returns the two parts of a safetensors file."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write_tensor(path, entry, data, name="x"):
    """Writes a safetensors file with this header for one tensor."""
    text = json.dumps({name: entry}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


@pytest.fixture
def folder(hf_tiny, tmp_path):
    return shutil.copytree(hf_tiny, tmp_path / "hf")


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return str(path)


def change_tensors(folder, change):
    tensors = read_safetensors(str(folder / WEIGHTS))
    change(tensors)
    write_safetensors(str(folder / WEIGHTS), tensors)


def test_a_written_folder_equals_hugging_face_s(hf_tiny, tmp_path):
    write_model(tmp_path, albert_tf.load_pretrained(str(hf_tiny)), write_hugging_face)
    assert header_and_data(tmp_path / WEIGHTS) == header_and_data(hf_tiny / WEIGHTS)
    config, written = (json.loads((f / "config.json").read_text()) for f in (hf_tiny, tmp_path))
    config["classifier_dropout_prob"] = 0.1  # Not a setting of our pretrained models.
    assert written.items() <= config.items()
    assert set(config) - set(written) == {
        "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "transformers_version"
    }  # fmt: skip


def test_groups_have_hugging_faces_names_and_shapes(grouped, tmp_path):
    write_model(tmp_path, grouped, write_hugging_face)
    tensors = read_safetensors(str(tmp_path / WEIGHTS))
    layer = "albert.encoder.albert_layer_groups.1.albert_layers.0"
    assert tensors[f"{layer}.ffn.weight"].shape == (12, 8)
    assert tensors[f"{layer}.ffn_output.weight"].shape == (8, 12)
    assert len(tensors) == 16 + 4 * 16


@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu", "gelu_erf"), ("gelu_new", "gelu"), ("relu", "relu")]
)
def test_activations_keep_their_meaning(folder, theirs, ours):
    assert read_config(change_config(folder, hidden_act=theirs)).hidden_act == ours


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act must be one of gelu_new, .*, not 'silu'"),
        ({"model_type": "bert"}, "not of an ALBERT: its model_type is 'bert'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-12"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
        ({"position_embedding_type": "relative_key"}, "must be 'absolute'"),
        ({"num_hidden_layers": 49, "num_hidden_groups": 49}, "are of other groups than the TF1"),
    ],
)
def test_an_unsupported_configuration_is_refused(folder, values, message):
    with pytest.raises(AlbertError, match=message):
        read_config(change_config(folder, **values))


def test_copies_of_tied_weights_must_equal_them(folder):
    def add_copies(tensors):
        table = tensors["albert.embeddings.word_embeddings.weight"]
        tensors["predictions.decoder.weight"] = table
        tensors["predictions.decoder.bias"] = tensors["predictions.bias"]

    change_tensors(folder, add_copies)
    assert not albert_tf.load_pretrained(str(folder)).load_report.unexpected
    change_tensors(folder, lambda t: t.update({"predictions.decoder.bias": np.ones(120, "f4")}))
    with pytest.raises(AlbertError, match=r"decoder\.bias differs from predictions\.bias"):
        albert_tf.load_pretrained(str(folder))


def test_tied_weights_are_read_under_either_name(folder):
    def rename(tensors):
        tensors["predictions.decoder.bias"] = tensors.pop("predictions.bias")

    bias = "cls/predictions/output_bias"
    before = weights_of(albert_tf.load_pretrained(str(folder)))[bias]
    change_tensors(folder, rename)
    after = albert_tf.load_pretrained(str(folder))
    np.testing.assert_array_equal(weights_of(after)[bias], before)


def test_a_model_of_equal_widths_gets_an_identity_projection(grouped, tmp_path):
    model = AlbertPretrainer(dataclasses.replace(grouped.config, embedding_size=8))
    write_model(tmp_path, model, write_hugging_face)
    loaded = albert_tf.load_pretrained(str(tmp_path))
    assert not loaded.load_report.unexpected
    np.testing.assert_equal(weights_of(loaded), weights_of(model))
    for part in ("weight", "bias"):
        name = f"albert.encoder.embedding_hidden_mapping_in.{part}"
        change_tensors(tmp_path, lambda t, name=name: t.update({name: t[name] + 1}))
        with pytest.raises(AlbertError, match="which our model does not support"):
            albert_tf.load_pretrained(str(tmp_path))
        change_tensors(tmp_path, lambda t, name=name: t.update({name: t[name] - 1}))


def test_an_encoder_saved_alone_has_no_prefix_and_is_loaded_in_part(folder):
    def cut_heads(tensors):
        for name in list(tensors):
            value = tensors.pop(name)
            if name.startswith("albert."):
                tensors[name[len("albert.") :]] = value

    change_tensors(folder, cut_heads)
    with pytest.warns(UserWarning, match="cls/predictions/output_bias"):
        model = albert_tf.load_pretrained(str(folder))
    assert len(model.load_report.matched) == 25 and not model.load_report.unexpected
    # Half a head is damage.
    change_tensors(folder, lambda t: t.update({"predictions.bias": np.zeros(120, "f4")}))
    with pytest.raises(AlbertError, match="is not a whole pretrained model"):
        albert_tf.load_pretrained(str(folder))


def test_weights_in_several_parts_are_loaded(folder, hf_tiny, tmp_path):
    tensors = read_safetensors(str(folder / WEIGHTS))
    (folder / WEIGHTS).unlink()
    index = folder / f"{WEIGHTS}.index.json"
    places = {name: f"model-0000{i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    for part in {*places.values()}:
        kept = {name: value for name, value in tensors.items() if places[name] == part}
        write_safetensors(str(folder / part), kept)
    index.write_text(json.dumps({"weight_map": places}))
    for path in (folder, index, folder / places["predictions.bias"]):
        model = albert_tf.load_pretrained(str(path))
        expected = albert_tf.load_pretrained(str(hf_tiny))
        np.testing.assert_equal(weights_of(model), weights_of(expected))
    for odd, message in (
        ({"weight_map": {**places, "x": places["predictions.bias"]}}, "names lack x; get them"),
        ({"weight_map": {"x": "../x"}}, "is not the name of a file beside it"),
        ({}, r"index \S+ has no weight_map; get it again"),
    ):
        index.write_text(json.dumps(odd))
        with pytest.raises(AlbertError, match=message):
            albert_tf.load_pretrained(str(folder))


@pytest.mark.parametrize(
    ("head", "kind"),
    [("cls/", "AlbertModel"), ("cls/seq", "AlbertForMaskedLM"), ("-", "AlbertForPreTraining")],
)
def test_the_class_is_that_of_the_weights(head, kind, grouped, tmp_path):
    weights = {k: v for k, v in weights_of(grouped).items() if not k.startswith(head)}
    write_hugging_face(str(tmp_path), grouped.config, None, weights)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [kind]


def test_a_table_may_have_more_rows_than_the_vocabulary_has_pieces(small_model, tmp_path):
    tokenizer = Tokenizer.from_file(small_model)
    size = tokenizer.vocab_size
    padded = -(-size // 64) * 64
    for rows in (padded, padded + 1):
        model = AlbertPretrainer(tiny_config(rows))
        weights = weights_of(model)
        weights["cls/predictions/output_bias"][size:] = 9  # Of no piece.
        write_hugging_face(str(tmp_path), model.config, tokenizer, weights)
        if rows == padded:
            filled = albert_tf.load_pretrained(str(tmp_path)).fill_mask("the [MASK]")
            assert len(filled) == 5
            continue
        with pytest.raises(AlbertError, match=f"pieces, but the model vocab_size={rows}"):
            albert_tf.load_pretrained(str(tmp_path))


def test_a_masked_lm_saved_without_its_pooler_is_loaded_in_part(folder, hf_tiny):
    def cut(tensors):
        for name in list(tensors):
            if "pooler" in name or name.startswith("sop_classifier"):
                del tensors[name]

    change_tensors(folder, cut)
    with pytest.warns(UserWarning, match="loaded in part: it lacks bert/pooler/dense/kernel"):
        model = albert_tf.load_pretrained(str(folder))
    inputs, expected = golden_outputs(hf_tiny)
    logits = model(inputs)["mlm_logits"]
    np.testing.assert_allclose(logits, expected["mlm_logits"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "dtype"), [("F16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_half_precision_is_widened_exactly(name, dtype, folder):
    stored = read_safetensors(str(folder / WEIGHTS))["albert.pooler.bias"].astype(dtype)
    entry = {"dtype": name, "shape": [32], "data_offsets": [0, 64]}
    write_tensor(folder / WEIGHTS, entry, stored.tobytes(), "albert.pooler.bias")
    bias = {"bert/pooler/dense/bias": tf.Variable(tf.zeros(32))}
    assert load_weights(str(folder), bias, whole=True).missing == ()
    np.testing.assert_array_equal(bias["bert/pooler/dense/bias"], stored.astype(np.float32))


def test_tensors_are_written_to_every_file_system_in_their_logical_order(tmp_path):
    table = np.arange(6, dtype=np.float32).reshape(2, 3).T
    for path in (str(tmp_path / "x"), "ram://safetensors/x"):
        write_safetensors(path, {"x": table})
        np.testing.assert_array_equal(read_safetensors(path)["x"], table)


def test_a_truncated_file_is_refused_wherever_it_is_cut(folder):
    path = folder / WEIGHTS
    data = path.read_bytes()
    for size in (0, 5, 8, 100, len(data) // 2, len(data) - 1, len(data) + 1):
        path.write_bytes((data + b"x")[:size])
        with pytest.raises(AlbertError, match="not an intact safetensors file"):
            albert_tf.load_pretrained(str(folder))
    with pytest.raises(AlbertError, match=r"weights file .* does not exist"):
        read_safetensors(str(folder / "none"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 12]}, "not an intact safetensors"),
        ({"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}, r"of float weights \('F64'\)"),
    ],
)
def test_a_wrong_header_is_refused(entry, message, tmp_path):
    with pytest.raises(AlbertError, match=message):
        read_safetensors(write_tensor(tmp_path / "x.safetensors", entry, b"\0" * 16))


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_is_never_run(folder, tmp_path):
    (folder / WEIGHTS).unlink()
    victim = tmp_path / "victim"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(str(victim))))
    with pytest.raises(AlbertError, match="is a pickle, and cannot be read safely with PyTorch"):
        albert_tf.load_pretrained(str(folder))
    assert not victim.exists()
