# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import tarfile

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.huggingface.weights import write_hugging_face
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.tasks.classification.task import ClassificationSpec, TextClassificationTask
from albert_tf.weights.checkpoint import write_tf1
from albert_tf.weights.load import load_weights
from albert_tf.weights.model_files import load_config, load_model_files
from tests.support.builders import tiny_config, vocabulary, write_tokenizer

LETTERS = "abc"
CONFIG = tiny_config(len(vocabulary(LETTERS)), max_position_embeddings=64)


@pytest.fixture
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("letters"), LETTERS)


@pytest.fixture
def task(tokenizer):
    return TextClassificationTask(CONFIG, tokenizer, ClassificationSpec(("x", "y"), 64))


def test_model_files_are_found_by_any_name_of_a_checkpoint(task, tokenizer, tmp_path):
    task.save_files(str(tmp_path))
    for folder in ("checkpoints", "best"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ckpt-10.index").touch()
    for name in ("", "checkpoints", "checkpoints/ckpt-10", "best/ckpt-10"):
        config, loaded = load_model_files(str(tmp_path / name))
        assert config == task.config
        assert loaded.spec == tokenizer.spec


def test_a_preset_gets_the_size_of_the_vocabulary(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    config, _ = load_model_files(None, "albert_test", str(tmp_path / "vocab.txt"))
    assert config.vocab_size == tokenizer.vocab_size


def test_a_missing_model_file_is_an_error_with_its_setting(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path))
    with pytest.raises(AlbertError, match="`albert_config_file` is needed: there is no albert_con"):
        load_model_files(str(tmp_path))
    with pytest.raises(AlbertError, match="`vocab_file` is needed: there is no `init_checkpoint`"):
        load_model_files(None, "albert_test")


@pytest.fixture
def pretrained(task, tokenizer, tmp_path):
    """The paths of a model as archive, TF1 folder and Hugging Face folder; its weights."""
    model = AlbertPretrainer(task.config)
    weights = {name: v.numpy() for name, v in model.named_weights().items()}
    paths = {"tf1": tmp_path / "tf1", "hf": tmp_path / "hf", "archive": tmp_path / "tf1.tar.gz"}
    for name, write in (("tf1", write_tf1), ("hf", write_hugging_face)):
        write(str(paths[name]), task.config, tokenizer, weights)
    (tmp_path / "tf1" / "tokenizer.json").unlink()  # As in a release.
    with tarfile.open(paths["archive"], "w:gz") as archive:
        archive.add(paths["tf1"], "albert_tiny")
    return paths, weights


@pytest.mark.parametrize("kind", ["archive", "tf1", "hf"])
def test_fine_tuning_starts_from_models_of_all_formats(pretrained, kind, tokenizer):
    paths, weights = pretrained
    config, loaded = load_model_files(str(paths[kind]))
    assert config == load_config(str(paths["hf"] / "config.json"), None)
    assert loaded.encode_batch(["a b c"]) == tokenizer.encode_batch(["a b c"])
    task = TextClassificationTask(config, loaded, ClassificationSpec(("x", "y"), 64))
    model = task.build_model()
    report = load_weights(str(paths[kind]), model.named_weights())
    assert report.missing == ("output_weights", "output_bias")
    for name, variable in model.encoder.named_weights().items():
        np.testing.assert_array_equal(variable.numpy(), weights[name])


@pytest.mark.parametrize(("key", "value"), [("num_attention_heads", 4), ("hidden_act", "relu")])
def test_a_configuration_that_contradicts_the_weights_is_refused(pretrained, key, value, tmp_path):
    config = dataclasses.replace(CONFIG, **{key: value})
    config.to_json(str(tmp_path / "other.json"))
    for path in pretrained[0].values():
        with pytest.raises(AlbertError, match=f"was trained with {key}="):
            load_model_files(str(path), str(tmp_path / "other.json"))
