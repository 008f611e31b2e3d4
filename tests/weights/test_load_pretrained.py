# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.modeling.classifier import AlbertClassifier
from albert_tf.tokenization.tokenizer import Tokenizer
from albert_tf.weights.checkpoint import write_tf1, write_tf2
from albert_tf.weights.load import load_weights
from tests.support.builders import SPECIAL_PIECES
from tests.support.weights import golden_outputs, weights_of, write_model
from tests.training.damage import DAMAGE


def log_probs(mlm_logits):
    """Log probabilities of TF1's masked LM, float32 [12, 120]."""
    return tf.nn.log_softmax(tf.reshape(mlm_logits, [12, 120]))


@pytest.mark.golden
@pytest.mark.parametrize("form", ["folder", "name", "archive"])
def test_the_tf1_release_has_its_own_outputs(form, tf1_tiny, tf1_archive):
    paths = {"folder": tf1_tiny, "name": tf1_tiny / "model.ckpt-best", "archive": tf1_archive}
    inputs, expected = golden_outputs(tf1_tiny)
    positions = tf.constant(expected["masked_lm_positions"], tf.int32)
    model = albert_tf.load_pretrained(str(paths[form]))
    outputs = model({**inputs, "masked_lm_positions": positions})
    outputs["sequence_output"] = model(inputs)["sequence_output"]
    outputs["mlm_log_probs"] = log_probs(outputs["mlm_logits"])
    outputs["sop_log_probs"] = tf.nn.log_softmax(outputs["sop_logits"])
    for name in ("sequence_output", "pooled_output", "mlm_log_probs", "sop_log_probs"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=1e-5)
    assert model.config.num_attention_heads == 4
    assert model.tokenizer is None
    # The state of training is expected.
    assert len(model.load_report.matched) == 32 and not model.load_report.unexpected


@pytest.mark.golden
def test_hugging_face_has_its_own_outputs(hf_tiny):
    inputs, expected = golden_outputs(hf_tiny)
    model = albert_tf.load_pretrained(hf_tiny)  # Path objects are paths.
    outputs = model(inputs)
    for name in ("sequence_output", "pooled_output", "mlm_logits", "sop_logits"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=0, atol=1e-5)
    assert model.config.hidden_act == "gelu"


def test_every_variable_that_does_not_fit_is_listed(grouped, tmp_path):
    weights = weights_of(grouped)
    lost = "bert/encoder/transformer/group_1/inner_group_1/ffn_1/intermediate/dense/kernel"
    del weights[lost]
    weights["bert/pooler/dense/bias"] = np.zeros(9, np.float32)
    weights["bert/encoder/transformer/group_2/inner_group_0/LayerNorm/beta"] = np.zeros(8)
    path = str(tmp_path / "odd")
    write_tf1(path, grouped.config, None, weights)
    with pytest.raises(AlbertError) as error:
        albert_tf.load_pretrained(path)
    for name in (
        lost,
        "bert/pooler/dense/bias (shape [9], not [8])",
        "bert/encoder/transformer/group_2/inner_group_0/LayerNorm/beta",
    ):
        assert name in str(error.value)
    with pytest.raises(AlbertError, match="it lacks"):
        albert_tf.load_pretrained(path, allow_partial=True)


def test_a_fine_tuned_model_is_loaded_in_part_only_if_asked_for(grouped, tmp_path):
    classifier = AlbertClassifier(grouped.config, 3)
    path = write_model(tmp_path / "tuned", classifier, write_tf1)
    with pytest.raises(AlbertError, match=r"cls/seq_relationship/output_bias.*output_weights"):
        albert_tf.load_pretrained(path)
    with pytest.warns(UserWarning, match="loaded in part"):
        model = albert_tf.load_pretrained(path, allow_partial=True)
    np.testing.assert_equal(weights_of(model.encoder), weights_of(classifier.encoder))
    assert model.load_report.unexpected == ("output_bias", "output_weights")


def test_the_number_of_heads_is_never_guessed(tf1_tiny, hf_tiny, tmp_path):
    for tiny, config in ((tf1_tiny, "albert_config.json"), (hf_tiny, "config.json")):
        folder = shutil.copytree(tiny, tmp_path / tiny.name)
        values = json.loads((folder / config).read_text())
        del values["num_attention_heads"]
        (folder / config).write_text(json.dumps(values))
        with pytest.raises(AlbertError, match="lacks num_attention_heads"):
            albert_tf.load_pretrained(str(folder))
    (tmp_path / "tf1_tiny" / "albert_config.json").unlink()
    with pytest.raises(AlbertError, match="attention heads cannot be derived from the weights"):
        albert_tf.load_pretrained(str(tmp_path / "tf1_tiny"))


def test_a_configuration_of_a_similar_name_is_found_if_it_is_the_only_one(tf1_tiny, tmp_path):
    folder = shutil.copytree(tf1_tiny, tmp_path / "release")
    (folder / "albert_config.json").rename(folder / "albert_config_base.json")
    assert albert_tf.load_pretrained(str(folder)).config.num_attention_heads == 4
    shutil.copy(folder / "albert_config_base.json", folder / "albert_config_large.json")
    with pytest.raises(AlbertError, match="There is no albert_config"):
        albert_tf.load_pretrained(str(folder))


def test_the_vocabulary_beside_the_weights_comes_before_that_of_the_run(grouped, tmp_path):
    size = grouped.config.vocab_size
    path = write_model(tmp_path / "project" / "best", grouped, write_tf1)
    for folder, piece in (("project", "x"), ("project/best", "y")):
        pieces = [*SPECIAL_PIECES, *(f"{piece}{i}" for i in range(size - len(SPECIAL_PIECES)))]
        (tmp_path / folder / "vocab.txt").write_text("\n".join(pieces))
    Tokenizer.from_file(str(tmp_path / "project" / "vocab.txt")).save(str(tmp_path / "project"))
    assert albert_tf.load_pretrained(path).tokenizer.id_to_piece(size - 1).startswith("y")
    (tmp_path / "project" / "best" / "vocab.txt").unlink()
    assert albert_tf.load_pretrained(path).tokenizer.id_to_piece(size - 1).startswith("x")


def test_files_are_found_from_paths_within_the_folder_of_a_model(
    grouped, hf_tiny, tmp_path, monkeypatch
):
    path = write_model(tmp_path / "run", grouped, write_tf2)
    monkeypatch.chdir(path)
    for name in (".", "ckpt"):
        assert albert_tf.load_pretrained(name).config == grouped.config
    (tmp_path / "run" / "checkpoints").mkdir()
    for file in (tmp_path / "run").glob("ckpt*"):
        file.rename(tmp_path / "run" / "checkpoints" / file.name)
    monkeypatch.chdir(tmp_path / "run" / "checkpoints")
    assert albert_tf.load_pretrained("ckpt").config == grouped.config
    monkeypatch.chdir(hf_tiny)
    assert albert_tf.load_pretrained("model.safetensors").config.num_attention_heads == 4


def test_repeated_positions_are_warned_of(hf_tiny, tmp_path):
    folder = shutil.copytree(hf_tiny, tmp_path / "hf")
    values = json.loads((folder / "config.json").read_text())
    positions = values["max_position_embeddings"]
    (folder / "config.json").write_text(
        json.dumps({**values, "max_position_embeddings": positions + 4})
    )
    with pytest.warns(
        UserWarning, match=f": positions from {positions} on repeat the checkpoint's"
    ):
        albert_tf.load_pretrained(str(folder))


def write_hub_module(folder, tf1_tiny, scope=""):
    """What a hub module of the release holds, without its graphs."""
    reader = tf.train.load_checkpoint(str(tf1_tiny))
    names = [name for name in reader.get_variable_to_shape_map() if "adam" not in name]
    (folder / "variables").mkdir(parents=True)
    (folder / "assets").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(folder / "variables" / "variables"),
        tensor_names=[scope + name for name in names],
        shape_and_slices=[""] * len(names),
        tensors=[reader.get_tensor(name) for name in names],
    )
    (folder / "saved_model.pb").write_bytes(b"")
    shutil.copy(tf1_tiny / "albert_config.json", folder / "assets")


@pytest.mark.parametrize("scope", ["", "module/"])
def test_a_tf1_hub_module_loads(scope, tf1_tiny, tmp_path):
    write_hub_module(tmp_path, tf1_tiny, scope)
    inputs, expected = golden_outputs(tf1_tiny)
    outputs = albert_tf.load_pretrained(str(tmp_path))(inputs)
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)


def test_a_saved_model_with_official_names_loads(grouped, inputs, tmp_path):
    module = tf.Module()
    module.weights = list(grouped.named_weights().values())
    module.do_lower_case = tf.Variable(True, trainable=False, name="do_lower_case")
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(AlbertError, match="There is no albert_config"):
        albert_tf.load_pretrained(str(tmp_path))
    grouped.config.to_json(str(tmp_path / "assets" / "albert_config.json"))
    loaded = albert_tf.load_pretrained(str(tmp_path))
    for name, value in grouped(inputs).items():
        np.testing.assert_array_equal(loaded(inputs)[name], value)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
def test_a_damaged_saved_model_is_one_sentence(file, kind, tf1_tiny, tmp_path):
    write_hub_module(tmp_path, tf1_tiny)
    weights = albert_tf.load_pretrained(str(tmp_path)).named_weights()
    DAMAGE[kind](tmp_path / "variables" / file)
    for read in (albert_tf.load_pretrained, lambda path: load_weights(path, weights)):
        with pytest.raises(AlbertError, match=r"variables/variables.* is damaged: \S"):
            read(str(tmp_path))


def test_a_folder_with_two_checkpoints_is_refused(tf1_tiny, tmp_path):
    folder = shutil.copytree(tf1_tiny, tmp_path / "two")
    (folder / "checkpoint").unlink()
    shutil.copy(folder / "model.ckpt-best.index", folder / "model.ckpt-7.index")
    with pytest.raises(AlbertError, match=r"several checkpoints.*model.ckpt-7, model.ckpt-best"):
        albert_tf.load_pretrained(str(folder))


@pytest.fixture
def model_garden(tf1_tiny, tmp_path):
    """The TF1 fixture's encoder and masked LM head with TF Model Garden's names and shapes."""
    stored = tf.train.load_checkpoint(str(tf1_tiny))
    block = "bert/encoder/transformer/group_0/inner_group_0"
    attention = "transformer/self_attention"
    names = {
        "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
        "position_embedding/embeddings": "bert/embeddings/position_embeddings",
        "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
        "bert/cls/predictions/output_bias/bias": "cls/predictions/output_bias",
    }
    dense = {
        "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
        f"{attention}/attention_output": f"{block}/attention_1/output/dense",
        "transformer/intermediate": f"{block}/ffn_1/intermediate/dense",
        "transformer/output": f"{block}/ffn_1/intermediate/output/dense",
        "pooler_transform": "bert/pooler/dense",
        "bert/cls/predictions/transform/dense": "cls/predictions/transform/dense",
    }
    norms = {
        "embeddings/layer_norm": "bert/embeddings/LayerNorm",
        "transformer/self_attention_layer_norm": f"{block}/LayerNorm",
        "transformer/output_layer_norm": f"{block}/LayerNorm_1",
        "bert/cls/predictions/transform/LayerNorm": "cls/predictions/transform/LayerNorm",
    }
    shapes = {f"{attention}/attention_output/kernel": [4, 8, 32]}
    for part in ("query", "key", "value"):
        dense[f"{attention}/{part}"] = f"{block}/attention_1/self/{part}"
        shapes[f"{attention}/{part}/kernel"] = [32, 4, 8]
        shapes[f"{attention}/{part}/bias"] = [4, 8]
    for modules, parts in ((dense, ("kernel", "bias")), (norms, ("gamma", "beta"))):
        for theirs, ours in modules.items():
            names.update({f"{theirs}/{part}": f"{ours}/{part}" for part in parts})
    module = tf.Module()
    module.weights = []
    for theirs, ours in names.items():
        value = stored.get_tensor(ours)
        value = value.reshape(shapes.get(theirs, value.shape))
        module.weights.append(tf.Variable(value, name=theirs))
    tf.saved_model.save(module, str(tmp_path / "hub"))
    shutil.copy(tf1_tiny / "albert_config.json", tmp_path / "hub")
    return tmp_path / "hub"


def test_a_model_garden_encoder_loads_without_the_head_it_lacks(model_garden, tf1_tiny):
    lacks = "it lacks cls/seq_relationship/output_weights, cls/seq"
    with pytest.warns(UserWarning, match=f"loaded in part: {lacks}"):
        model = albert_tf.load_pretrained(str(model_garden))
    assert len(model.load_report.matched) == 30 and model.load_report.unexpected == ()
    inputs, expected = golden_outputs(tf1_tiny)
    positions = tf.constant(expected["masked_lm_positions"], tf.int32)
    outputs = model({**inputs, "masked_lm_positions": positions})
    np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=1e-5)
    found = log_probs(outputs["mlm_logits"])
    np.testing.assert_allclose(found, expected["mlm_log_probs"], rtol=0, atol=1e-5)


def test_a_configuration_with_other_heads_than_the_kernels_is_refused(model_garden):
    path = model_garden / "albert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_attention_heads": 8}))
    with pytest.raises(AlbertError, match=r"says num_attention_heads=8, but the model has 4"):
        albert_tf.load_pretrained(str(model_garden))


@pytest.mark.parametrize("path", [None, 3, b"folder", "", []])
def test_a_value_that_is_not_a_path_is_refused(path):
    with pytest.raises(AlbertError, match="The path of the pretrained model must be a string, not"):
        albert_tf.load_pretrained(path)
