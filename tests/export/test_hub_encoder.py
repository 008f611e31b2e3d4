# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoder SavedModel fulfils TF-Hub's contract: outputs, weights, training, heads, assets."""

import pathlib
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from albert_tf.export.hub import encoder_export
from albert_tf.export.saved_model import write_saved_model
from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.support.builders import tiny_config

CONFIG = tiny_config(
    140, embedding_size=16, hidden_size=32, num_hidden_layers=2, intermediate_size=64,
    hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
#: It shifts all scores of a query equally, which softmax ignores: its gradient is rounding.
WITHOUT_GRADIENT = "attention_1/self/key/bias:0"


class Saved(NamedTuple):
    """A model, and the SavedModel exported from it."""

    model: AlbertPretrainer
    path: str


def write_export(model, tokenizer, path):
    write_saved_model(encoder_export(model, tokenizer), str(path))
    return str(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, sentencepiece_tokenizer) -> Saved:
    keras.utils.set_random_seed(1)
    model = AlbertPretrainer(CONFIG, dtype="float32")
    for variable in model.named_weights().values():
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.1))
    folder = tmp_path_factory.mktemp("export")
    return Saved(model, write_export(model, sentencepiece_tokenizer, folder / "encoder"))


@pytest.fixture(scope="module")
def loaded(saved):
    return hub.load(saved.path)


@pytest.fixture(scope="module")
def layer(loaded):
    """A trainable layer, whose weights are not to be changed."""
    return hub.KerasLayer(loaded, trainable=True)


def batch(rows=2, length=10, seed=0):
    generator = np.random.default_rng(seed)
    mask = np.ones([rows, length], np.int32)
    mask[-1, length * 2 // 3 :] = 0
    return {
        "input_word_ids": tf.constant(generator.integers(5, 140, mask.shape) * mask, tf.int32),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.constant((np.arange(length) >= 4) * mask, tf.int32),
    }


def asset_path(asset):
    return pathlib.Path(asset.asset_path.numpy().decode())


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.smoke
def test_outputs_are_those_of_the_model(saved, loaded, layer):
    found, served = layer(batch()), loaded.signatures["serving_default"](**batch())
    expected = saved.model.encoder(batch())
    assert {*found} == {*served, "encoder_outputs"}
    assert {*served} == {"default", "pooled_output", "sequence_output"}
    assert_close(served["default"], expected["pooled_output"])
    for name in served:
        assert_close(found[name], served[name])
    assert len(found["encoder_outputs"]) == CONFIG.num_hidden_layers
    for ours, theirs in zip(found["encoder_outputs"], expected["encoder_outputs"]):
        assert_close(ours, theirs)
    assert found["sequence_output"].shape == [2, 10, CONFIG.hidden_size]


def test_a_keras_layer_has_the_weights_of_the_encoder_alone(saved, loaded, layer):
    expected = saved.model.encoder.named_weights()
    assert len(layer.trainable_weights) == len(layer.weights) == len(expected) == 25
    for found, (name, variable) in zip(layer.weights, expected.items()):
        assert found.name == f"{name}:0"
        np.testing.assert_array_equal(found, variable)
    assert not hub.KerasLayer(loaded).trainable_weights
    assert not layer.losses


def test_heads_have_their_own_weights_and_share_the_others(saved, loaded):
    assert len(loaded.mlm.trainable_variables) == 32
    shared = {id(variable) for variable in loaded.variables}
    assert shared < {id(variable) for variable in loaded.mlm.variables}
    own = [variable.name for variable in loaded.mlm.variables if id(variable) not in shared]
    heads = (saved.model.mlm_head, saved.model.sop_head)
    assert own == [f"{name}:0" for head in heads for name in head.named_weights()]


def test_an_encoder_without_heads_has_none(tmp_path, wordpiece_tokenizer):
    model = AlbertEncoder(CONFIG, dtype="float32")
    loaded = hub.load(write_export(model, wordpiece_tokenizer, tmp_path / "encoder"))
    assert not hasattr(loaded, "mlm") and not hasattr(loaded, "sp_model_file")
    assert asset_path(loaded.vocab_file).read_bytes() == wordpiece_tokenizer.data
    assert_close(loaded(batch())["default"], model(batch())["pooled_output"])


def test_dropout_varies_when_training_and_only_then(layer):
    for training, low, high in ((True, 1e-3, np.inf), (False, -1, 1e-6)):
        outputs = [layer(batch(), training=training)["pooled_output"] for _ in range(5)]
        assert low < np.std(outputs, axis=0).mean() < high


def test_static_lengths_propagate(loaded):
    inputs = {name: keras.Input([12], dtype=tf.int32, name=name) for name in batch()}
    outputs = hub.KerasLayer(loaded)(inputs)
    assert outputs["sequence_output"].shape.as_list() == [None, 12, CONFIG.hidden_size]
    assert outputs["pooled_output"].shape.as_list() == [None, CONFIG.hidden_size]


def test_gradients_are_those_of_the_model_and_reach_every_variable(saved, layer):
    def gradients(call, weights):
        with tf.GradientTape() as tape:
            outputs = call(batch(), training=False)
            loss = tf.reduce_sum(outputs["pooled_output"] ** 2 + outputs["sequence_output"][:, 1])
        return map(tf.convert_to_tensor, tape.gradient(loss, weights))

    named = saved.model.encoder.named_weights()
    found = gradients(layer, layer.trainable_variables)
    expected = gradients(saved.model.encoder, list(named.values()))
    for name, ours, theirs in zip(named, found, expected):
        assert tf.reduce_max(tf.abs(ours)) > 1e-6 or f"{name}:0".endswith(WITHOUT_GRADIENT), name
        assert_close(ours, theirs, 1e-4)


def test_it_trains_on_two_replicas(saved):
    strategy = tf.distribute.MirroredStrategy(
        [device.name for device in tf.config.list_logical_devices("CPU")],
        # Collectives of several strategies in one process get in each other's way.
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        layer = hub.KerasLayer(saved.path, trainable=True)
        optimizer = keras.optimizers.legacy.SGD(0.1)
    before = [weight.numpy() for weight in layer.weights]
    data = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(batch(4)).batch(4)
    )

    @tf.function(autograph=False)
    def step(inputs):
        def replica_step(inputs):
            with tf.GradientTape() as tape:
                outputs = layer(inputs, training=True)
                loss = tf.reduce_mean(outputs["pooled_output"] + outputs["sequence_output"][:, 1])
                loss += tf.reduce_mean(outputs["pooled_output"] ** 2)
            gradients = tape.gradient(loss, layer.trainable_variables)
            optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

        strategy.run(replica_step, args=(inputs,))

    step(next(iter(data)))
    for weight, old in zip(layer.weights, before):
        moved = np.abs(weight.numpy() - old).max() > 1e-7
        assert moved or weight.name.endswith(WITHOUT_GRADIENT), weight.name


def test_the_asset_is_the_vocabulary(loaded, saved, sentencepiece_tokenizer):
    path = asset_path(loaded.sp_model_file)
    assert path.parent == pathlib.Path(saved.path) / "assets"
    assert path.read_bytes() == sentencepiece_tokenizer.data
    assert loaded.do_lower_case.numpy() and not loaded.do_lower_case.trainable


def test_a_loaded_encoder_can_be_saved_again_and_moved(saved, loaded, tmp_path):
    tf.saved_model.save(loaded, str(tmp_path / "again"))
    (tmp_path / "again").rename(tmp_path / "moved")
    again = hub.load(str(tmp_path / "moved"))
    found = hub.KerasLayer(again, trainable=True)
    assert len(found.trainable_weights) == 25
    assert_close(found(batch())["default"], saved.model.encoder(batch())["pooled_output"], 1e-6)
    assert len(again.mlm.trainable_variables) == 32
    assert asset_path(again.sp_model_file).exists()


def test_graphs_need_no_compiler_no_gradient_functions_and_assert_nothing(saved):
    content = (pathlib.Path(saved.path) / "saved_model.pb").read_bytes()
    graph = SavedModel.FromString(content).meta_graphs[0].graph_def
    for function in graph.library.function:
        assert not function.attr["_XlaMustCompile"].b
        for node in function.node_def:
            # TPU workers, where assertions may be placed, do not have this operation.
            assert node.op != "Assert"
            assert "_XlaMustCompile" not in node.attr
            assert "_gradient_op_type" not in node.attr
