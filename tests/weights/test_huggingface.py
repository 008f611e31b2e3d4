# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pickle
import shutil
import struct

import ml_dtypes
import numpy as np
import pytest

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.weights.config_files import read_hugging_face_config
from albert_tf.weights.huggingface import write_hugging_face
from albert_tf.weights.safetensors import SafetensorsFile, write_safetensors


def header_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def folder(hf_tiny, tmp_path):
    shutil.copytree(hf_tiny, tmp_path / "hf")
    return tmp_path / "hf"


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return str(path)


def change_tensors(folder, change):
    file = SafetensorsFile(str(folder / "model.safetensors"))
    tensors = {name: file.read(name) for name in file.shapes}
    change(tensors)
    write_safetensors(str(folder / "model.safetensors"), tensors)


def test_a_written_folder_is_what_hugging_face_itself_wrote(hf_tiny, tmp_path):
    model = albert_tf.load_pretrained(str(hf_tiny))
    weights = {k: v.numpy() for k, v in model.named_weights().items()}
    write_hugging_face(str(tmp_path), model.config, None, weights)
    theirs, their_data = header_of(hf_tiny / "model.safetensors")
    ours, our_data = header_of(tmp_path / "model.safetensors")
    assert ours == theirs and our_data == their_data
    config = json.loads((hf_tiny / "config.json").read_text())
    written = json.loads((tmp_path / "config.json").read_text())
    config["classifier_dropout_prob"] = 0.1  # No setting of a pretrained model of ours.
    assert written.items() <= config.items()
    assert set(config) - set(written) == {
        "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "transformers_version"
    }  # fmt: skip


def test_groups_have_hugging_faces_names_and_shapes(grouped, tmp_path):
    weights = {k: v.numpy() for k, v in grouped.named_weights().items()}
    write_hugging_face(str(tmp_path), grouped.config, None, weights)
    shapes = SafetensorsFile(str(tmp_path / "model.safetensors")).shapes
    layer = "albert.encoder.albert_layer_groups.1.albert_layers.0"
    assert shapes[f"{layer}.ffn.weight"] == [12, 8]
    assert shapes[f"{layer}.ffn_output.weight"] == [8, 12]
    assert len(shapes) == 16 + 4 * 16


@pytest.mark.parametrize(
    ("theirs", "ours"), [("gelu", "gelu_erf"), ("gelu_new", "gelu"), ("relu", "relu")]
)
def test_activations_keep_their_meaning(folder, theirs, ours):
    assert read_hugging_face_config(change_config(folder, hidden_act=theirs)).hidden_act == ours


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_act": "silu"}, "hidden_act must be one of"),
        ({"model_type": "bert"}, "not of an ALBERT: its model_type is 'bert'"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps must be 1e-12"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
        ({"position_embedding_type": "relative_key"}, "must be 'absolute'"),
        ({"num_hidden_layers": 49, "num_hidden_groups": 49}, "another group than the TF1"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(folder, values, message):
    with pytest.raises(AlbertError, match=message):
        read_hugging_face_config(change_config(folder, **values))


def test_copies_of_tied_weights_are_accepted_if_they_are_copies(folder):
    def add_copies(tensors):
        table = tensors["albert.embeddings.word_embeddings.weight"]
        tensors["predictions.decoder.weight"] = table
        tensors["predictions.decoder.bias"] = tensors["predictions.bias"]

    change_tensors(folder, add_copies)
    report = albert_tf.load_pretrained(str(folder)).load_report
    assert report.state == ("predictions.decoder.weight", "predictions.decoder.bias")
    change_tensors(folder, lambda t: t.update({"predictions.decoder.bias": np.ones(120, "f4")}))
    with pytest.raises(AlbertError, match="differs from predictions"):
        albert_tf.load_pretrained(str(folder))


def test_of_tied_weights_either_name_will_do(folder):
    before = albert_tf.load_pretrained(str(folder)).named_weights()["cls/predictions/output_bias"]

    def rename(tensors):
        tensors["predictions.decoder.bias"] = tensors.pop("predictions.bias")

    change_tensors(folder, rename)
    after = albert_tf.load_pretrained(str(folder))
    np.testing.assert_array_equal(after.named_weights()["cls/predictions/output_bias"], before)
    assert after.load_report.state == ()


def test_a_model_of_equal_widths_gets_a_projection_that_does_nothing(grouped, tmp_path):
    config = dataclasses.replace(grouped.config, embedding_size=8)
    model = AlbertPretrainer(config)
    weights = {k: v.numpy() for k, v in model.named_weights().items()}
    write_hugging_face(str(tmp_path), config, None, weights)
    loaded = albert_tf.load_pretrained(str(tmp_path))
    assert len(loaded.load_report.state) == 2
    for name, variable in loaded.named_weights().items():
        np.testing.assert_array_equal(variable.numpy(), weights[name])
    for part in ("weight", "bias"):
        name = f"albert.encoder.embedding_hidden_mapping_in.{part}"
        change_tensors(tmp_path, lambda t, name=name: t.update({name: t[name] + 1}))
        with pytest.raises(AlbertError, match="which our model does not"):
            albert_tf.load_pretrained(str(tmp_path))
        change_tensors(tmp_path, lambda t, name=name: t.update({name: t[name] - 1}))


def test_what_does_not_fit_is_listed(folder):
    def damage(tensors):
        tensors["qa_outputs.weight"] = np.zeros([2, 32], "f4")
        tensors["albert.pooler.bias"] = np.zeros(31, "f4")
        del tensors["predictions.dense.bias"]

    change_tensors(folder, damage)
    with pytest.raises(AlbertError) as error:
        albert_tf.load_pretrained(str(folder))
    for name in (
        "qa_outputs.weight",
        "bert/pooler/dense/bias (shape [31], not [32])",
        "cls/predictions/transform/dense/bias",
    ):
        assert name in str(error.value)


def test_an_encoder_saved_alone_has_no_prefix_and_is_loaded_in_part(folder):
    def cut_heads(tensors):
        for name in list(tensors):
            value = tensors.pop(name)
            if name.startswith("albert."):
                tensors[name[len("albert.") :]] = value

    change_tensors(folder, cut_heads)
    with pytest.warns(UserWarning, match="cls/predictions/output_bias"):
        model = albert_tf.load_pretrained(str(folder), allow_partial=True)
    assert len(model.load_report.matched) == 25 and not model.load_report.unexpected


def test_weights_of_a_tensorflow_class_are_refused_with_a_way_out(folder):
    def rename(tensors):
        tensors["albert/pooler/kernel:0"] = tensors.pop("albert.pooler.weight").T.copy()

    change_tensors(folder, rename)
    with pytest.raises(AlbertError, match=r"saved by a TensorFlow class .* from_tf=True"):
        albert_tf.load_pretrained(str(folder))


def test_a_masked_lm_saved_without_its_pooler_is_loaded_in_part(folder, hf_tiny):
    def cut(tensors):
        for name in list(tensors):
            if "pooler" in name or name.startswith("sop_classifier"):
                del tensors[name]

    change_tensors(folder, cut)
    with pytest.raises(AlbertError, match=r"it lacks bert/pooler/dense/kernel.*loaded in part"):
        albert_tf.load_pretrained(str(folder))
    with pytest.warns(UserWarning, match="it lacks bert/pooler/dense/kernel"):
        model = albert_tf.load_pretrained(str(folder), allow_partial=True)
    expected = np.load(hf_tiny / "expected.npz")
    names = {"input_ids": "word_ids", "input_mask": "mask", "segment_ids": "type_ids"}
    batch = {f"input_{new}": expected[old].astype(np.int32) for old, new in names.items()}
    logits = model(batch)["mlm_logits"]
    np.testing.assert_allclose(logits, expected["mlm_logits"], rtol=0, atol=1e-5)


def test_half_precision_is_widened_exactly(tmp_path):
    values = np.array([1.5, -0.3, 3e-5, 6e4], np.float32)
    for dtype, stored in (("F16", values.astype(np.float16)),
                          ("BF16", values.astype(ml_dtypes.bfloat16))):  # fmt: skip
        path = tmp_path / dtype
        header = {"x": {"dtype": dtype, "shape": [4], "data_offsets": [0, 8]}}
        with_header(path, header, stored.tobytes())
        read = SafetensorsFile(str(path)).read("x")
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, stored.astype(np.float32))


def test_a_truncated_file_is_refused_wherever_it_is_cut(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    for size in (0, 5, 8, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(AlbertError, match="not an intact safetensors file"):
            albert_tf.load_pretrained(str(folder))
    path.write_bytes(data + b"x")
    with pytest.raises(AlbertError, match="not an intact safetensors file"):
        albert_tf.load_pretrained(str(folder))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 12]},
        {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]},
        {"dtype": "F32", "shape": [4], "data_offsets": [4, 20]},
        {"dtype": "F32", "shape": "four", "data_offsets": [0, 16]},
        {"dtype": "F32", "data_offsets": [0, 16]},
        ["F32"],
    ],
)
def test_a_header_that_lies_is_refused(entry, tmp_path):
    path = tmp_path / "x.safetensors"
    with_header(path, {"x": entry}, b"\0" * 16)
    with pytest.raises(AlbertError, match="not an intact safetensors file"):
        SafetensorsFile(str(path))


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_is_never_run(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    victim = tmp_path / "victim"
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(str(victim))))
    there = importlib.util.find_spec("torch") is not None
    with pytest.raises(AlbertError, match="weights alone" if there else "PyTorch is not installed"):
        albert_tf.load_pretrained(str(folder))
    assert not victim.exists()
