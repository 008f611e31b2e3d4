# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What every format's weights and configuration must be, before a model is built with them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.errors import AlbertError, DivergedError
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.weights.checkpoint import write_tf1, write_tf2
from albert_tf.weights.load import load_weights
from albert_tf.weights.model_files import load_model_files
from tests.support.weights import weights_of

QUERY = "bert/encoder/transformer/group_1/inner_group_0/attention_1/self/query/kernel"


def write_hub(folder, config, tokenizer, weights):
    """A SavedModel with official names."""
    module = tf.Module()
    module.weights = [tf.Variable(value, name=name) for name, value in weights.items()]
    tf.saved_model.save(module, folder)
    config.to_json(f"{folder}/assets/albert_config.json")


WRITERS = {"tf1": write_tf1, "tf2": write_tf2, "hf": write_hugging_face, "hub": write_hub}
CONFIGS = {"hf": "config.json", "hub": "assets/albert_config.json"}


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("form", WRITERS)
def test_a_weight_that_is_not_finite_is_named(form, value, grouped, tmp_path):
    weights = weights_of(grouped)
    weights[QUERY][3, 2] = value
    WRITERS[form](str(tmp_path / "model"), grouped.config, None, weights)
    named = grouped.named_weights()
    for read in (albert_tf.load_pretrained, lambda path: load_weights(path, named)):
        with pytest.raises(DivergedError, match=rf"{QUERY} of \S+model\S* is not finite"):
            read(str(tmp_path / "model"))


def test_a_tied_weight_that_is_not_finite_is_named(grouped, tmp_path):
    from safetensors.numpy import load_file, save_file

    weights = weights_of(grouped)
    weights["cls/predictions/output_bias"][0] = np.nan
    write_hugging_face(str(tmp_path), grouped.config, None, weights)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "predictions.decoder.bias": tensors["predictions.bias"]}, path)
    with pytest.raises(DivergedError, match=r"cls/predictions/output_bias of .* is not finite"):
        albert_tf.load_pretrained(str(tmp_path))


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.complex64, np.float64])
def test_weights_of_other_types_are_refused(dtype, grouped, tmp_path):
    weights = weights_of(grouped)
    weights[QUERY] = weights[QUERY].astype(dtype)
    write_tf1(str(tmp_path / "model"), grouped.config, None, weights)
    if dtype == np.float64:
        assert albert_tf.load_pretrained(str(tmp_path / "model"))
        return
    name = np.dtype(dtype).name
    with pytest.raises(AlbertError, match=f"{QUERY} of .* is not float, but {name}"):
        albert_tf.load_pretrained(str(tmp_path / "model"))


@pytest.mark.parametrize("key", ["vocab_size", "max_position_embeddings", "intermediate_size"])
@pytest.mark.parametrize("form", WRITERS)
def test_no_model_is_built_that_is_much_larger_than_the_weights(form, key, grouped, tmp_path):
    folder = tmp_path / "model"
    WRITERS[form](str(folder), grouped.config, None, weights_of(grouped))
    path = folder / CONFIGS.get(form, "albert_config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), key: 2**29}))
    for read in (albert_tf.load_pretrained, load_model_files):
        with pytest.raises(AlbertError, match=r"describes a model of \S+ parameters, but"):
            read(str(folder))


def test_a_folder_that_is_not_of_a_run_takes_no_configuration_from_above(grouped, tmp_path):
    write_tf2(str(tmp_path / "mine"), grouped.config, None, weights_of(grouped))
    (tmp_path / "mine/albert_config.json").rename(tmp_path / "albert_config.json")
    for path in ("mine", "mine/ckpt"):
        with pytest.raises(AlbertError, match=r"There is no albert_config\.json with"):
            albert_tf.load_pretrained(str(tmp_path / path))


def test_names_in_a_file_cannot_steer_the_terminal(grouped, tmp_path, capsys):
    weights = {**weights_of(grouped), "\x1b[2J": np.zeros(3, np.float32)}
    write_tf1(str(tmp_path), grouped.config, None, weights)
    with pytest.raises(AlbertError, match=r"it also has \\x1b\[2J\."):
        albert_tf.load_pretrained(str(tmp_path))
    print(load_weights(str(tmp_path), grouped.named_weights()))
    assert r"not in the model: \x1b[2J" in capsys.readouterr().out
