# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""AlbertEncoder: outputs, masks, padding, optional inputs, errors, and what Keras rebuilds."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.modeling.classifier import AlbertClassifier, AlbertMultipleChoice, AlbertTagger
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.kernels.graph_mode import GraphMode, TrainingStep, graph_mode, training_step
from albert_tf.modeling.pretrainer import AlbertPretrainer
from albert_tf.modeling.question_answering import AlbertBeamAnswerer, AlbertSpanAnswerer
from tests.support.builders import tiny_config


def test_embeddings_equal_the_official_ones(golden):
    encoder = AlbertEncoder(golden.config)
    golden.fill(encoder)
    output = encoder.embeddings(golden.inputs["input_word_ids"], golden.inputs["input_type_ids"])
    np.testing.assert_allclose(
        np.ravel(output), golden.expected["embedding_output"], rtol=0, atol=2e-6
    )


@pytest.mark.parametrize(
    ("mode", "recompute"),
    [
        *((mode, False) for mode in GraphMode),
        (GraphMode.CPU, True),
        pytest.param(GraphMode.TPU, True, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_last_layer_can_compute_some_positions_alone(
    small_config, small_inputs, mode, recompute
):
    config = dataclasses.replace(
        small_config,
        initializer_range=0.2,
        num_hidden_layers=1,
        inner_group_num=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    encoder = AlbertEncoder(config)
    positions = tf.constant([[0, 7, 3, 3], [0, 2, 5, 0]], tf.int64)
    weights = list(encoder.named_weights().values())

    def choose(x):
        return tf.gather(x, positions, batch_dims=1)

    @tf.function(autograph=False, jit_compile=mode.is_compiled)
    def results(select):
        step = TrainingStep(tf.constant([1, 2]), recompute=recompute)
        with graph_mode(mode), training_step(step):
            with tf.GradientTape() as tape:
                outputs = encoder(small_inputs, training=True, select=select)
                sequence = outputs["sequence_output"]
                sequence = sequence if select else choose(sequence)
                loss = tf.reduce_sum(sequence**3) + tf.reduce_sum(outputs["pooled_output"])
            gradients = tape.gradient(loss, weights)
        return sequence, outputs["pooled_output"], [tf.convert_to_tensor(g) for g in gradients]

    (sequence, pooled, gradients), expected = results(choose), results(None)
    assert sequence.shape == [2, 4, 32]
    np.testing.assert_allclose(sequence, expected[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(pooled, expected[1], rtol=0, atol=1e-5)
    for name, a, b in zip(encoder.named_weights(), gradients, expected[2]):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1, np.abs(b).max()), err_msg=name)


def test_padding_changes_no_real_position(small_config, small_inputs):
    encoder = AlbertEncoder(dataclasses.replace(small_config, initializer_range=0.2))
    padded = {k: tf.pad(v, [[0, 0], [0, 7]]) for k, v in small_inputs.items()}
    # The token ids in the padding must not matter either.
    padded["input_word_ids"] += 3 * (1 - padded["input_mask"])
    short, long = encoder(small_inputs), encoder(padded)
    mask = small_inputs["input_mask"].numpy().astype(bool)
    np.testing.assert_allclose(
        long["sequence_output"][:, :10][mask], short["sequence_output"][mask], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(long["pooled_output"], short["pooled_output"], rtol=0, atol=1e-5)


def test_a_row_of_padding_alone_gives_finite_outputs(small_config):
    zeros = tf.zeros([2, 10], tf.int32)
    outputs = AlbertEncoder(small_config)({"input_word_ids": zeros, "input_mask": zeros})
    assert np.isfinite(outputs["sequence_output"]).all()


def test_mask_and_types_default_to_ones_and_zeros(small_config, small_inputs):
    encoder = AlbertEncoder(small_config)
    ids = small_inputs["input_word_ids"]
    full = {
        "input_word_ids": ids,
        "input_mask": tf.ones_like(ids),
        "input_type_ids": tf.zeros_like(ids),
    }
    np.testing.assert_array_equal(
        encoder({"input_word_ids": ids})["sequence_output"], encoder(full)["sequence_output"]
    )
    other_types = {**full, "input_type_ids": small_inputs["input_type_ids"]}
    assert (
        np.abs(encoder(other_types)["pooled_output"] - encoder(full)["pooled_output"]).max() > 1e-3
    )


def test_the_configured_activation_is_used(small_config, small_inputs):
    config = dataclasses.replace(small_config, initializer_range=0.2)
    gelu = AlbertEncoder(config)
    for name in ("relu", "tanh", "linear"):
        other = AlbertEncoder(dataclasses.replace(config, hidden_act=name))
        for source, target in zip(gelu.weights, other.weights):
            target.assign(source)
        difference = other(small_inputs)["pooled_output"] - gelu(small_inputs)["pooled_output"]
        assert np.abs(difference).max() > 1e-2, name


@pytest.mark.parametrize("rate", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_rate_acts_only_in_training(small_config, small_inputs, rate):
    encoder = AlbertEncoder(dataclasses.replace(small_config, **{rate: 0.5}))

    def output(training):
        return encoder(small_inputs, training=training)["pooled_output"].numpy()

    assert np.abs(output(True) - output(True)).max() > 1e-3
    np.testing.assert_array_equal(output(False), output(False))


@pytest.fixture
def small():
    return AlbertEncoder(tiny_config(40, max_position_embeddings=16))


IDS = np.array([[2, 7, 8, 3]], np.int32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (IDS, "takes a dict of int32 tensors .*, not EagerTensor"),
        ({"words": IDS}, "not a dict of words"),
        ({"input_ids": IDS}, "name for the input 'input_ids' is 'input_word_ids'; rename"),
        (
            {"input_word_ids": IDS, "attention_mask": IDS},
            "name for the input 'attention_mask' is 'input_mask'",
        ),
        ({"input_word_ids": [[2, 7, 3]]}, "must be a tensor .*, not list"),
        ({"input_word_ids": IDS[0]}, r"must have the shape \[batch, length\], not \(4,\)"),
        ({"input_word_ids": IDS[:, :0]}, r"not \(1, 0\)"),
        ({"input_word_ids": IDS.astype(np.float32)}, "must hold integers, not float32"),
        (
            {"input_word_ids": IDS, "input_mask": IDS[:, 1:]},
            r"input_mask must have the shape \(1, 4\) of input_word_ids, not \(1, 3\)",
        ),
        # These would be broadcast.
        (
            {"input_word_ids": IDS, "input_type_ids": IDS[:, :1]},
            r"input_type_ids must have the shape \(1, 4\) of input_word_ids, not \(1, 1\)",
        ),
        ({"input_word_ids": np.tile(IDS, [1, 5])}, "length 20 exceeds max_position_embeddings 16"),
    ],
)
def test_wrong_inputs_are_refused_in_one_sentence(inputs, message, small):
    with pytest.raises(AlbertError, match=f"^[^\n]*{message}[^\n]*$"):
        small(inputs)


@pytest.mark.parametrize(
    "name", ["model.keras", "model.h5", pytest.param("saved_model", marks=pytest.mark.slow)]
)
def test_keras_loads_a_model_around_the_encoder_without_custom_objects(name, small, tmp_path):
    names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = {name: keras.Input([None], dtype=tf.int32, name=name) for name in names}
    small.trainable = False
    model = keras.Model(inputs, keras.layers.Dense(2)(small(inputs)["pooled_output"]))
    model.save(tmp_path / name)
    loaded = keras.models.load_model(tmp_path / name)
    batch = {"input_word_ids": IDS, "input_mask": IDS * 0 + 1, "input_type_ids": IDS * 0}
    batch = {name: tf.constant(value) for name, value in batch.items()}
    np.testing.assert_array_equal(loaded(batch), model(batch))
    (encoder,) = (layer for layer in loaded.layers if layer.name == "albert_encoder")
    assert isinstance(encoder, AlbertEncoder) and encoder.config == small.config
    assert list(encoder.named_weights()) == list(small.named_weights())
    assert not encoder.trainable
    longer = {name: tf.tile(value, [3, 2]) for name, value in batch.items()}
    np.testing.assert_array_equal(loaded(longer), model(longer))


class FrozenAtFirst(AlbertEncoder):
    def __init__(self, config, dtype=None, name=None):
        super().__init__(config, dtype, name)
        self.embeddings.trainable = False


def test_copies_do_not_thaw_what_a_constructor_froze(small_config):
    model = FrozenAtFirst(small_config)
    assert not copy.deepcopy(model).embeddings.trainable


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (AlbertPretrainer, {}),
        (AlbertClassifier, {"num_labels": 3, "dropout_rate": 0.2}),
        (AlbertMultipleChoice, {"dropout_rate": 0.2}),
        (AlbertTagger, {"num_labels": 3}),
        (AlbertSpanAnswerer, {}),
        (AlbertBeamAnswerer, {"start_n_top": 2, "end_n_top": 3, "dropout_rate": 0.2}),
    ],
)
def test_keras_rebuilds_each_model_from_its_registered_name_and_configuration(kind, arguments):
    config = tiny_config(40, parameter_sharing="ffn")
    arguments = {**arguments, "name": "other", "dtype": "mixed_bfloat16"}
    model = kind(config, **arguments)
    serialized = keras.utils.serialize_keras_object(model)
    assert serialized["registered_name"] == f"albert_tf>{kind.__name__}"
    again = keras.utils.deserialize_keras_object(serialized)
    assert type(again) is kind and again.config == config
    assert arguments.items() <= model.get_config().items() <= again.get_config().items()
    assert again.encoder.transformer.compute_dtype == "bfloat16"
    shapes = [[(k, v.shape) for k, v in m.named_weights().items()] for m in (model, again)]
    assert shapes[0] == shapes[1]
