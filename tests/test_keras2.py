# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 2 in a user's program, and the errors for mixing it with another Keras."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import AlbertEncoder
from albert_tf.errors import AlbertError
from tests.support.builders import tiny_config

ROOT = Path(__file__).parents[1]
CONFIG = tiny_config(50)
PROGRAM = """
import numpy as np
{imports}
from albert_tf import keras

encoder = albert_tf.AlbertEncoder(albert_tf.AlbertConfig.from_dict({config}))
batch = dict(input_word_ids=tf.ones([4, 6], tf.int32))
assert encoder(batch)["pooled_output"].shape == (4, 16)
inputs = dict(input_word_ids=keras.Input([None], dtype=tf.int32, name="input_word_ids"))
model = keras.Model(inputs, keras.layers.Dense(3)(encoder(inputs)["pooled_output"]))
model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)  # Traces nothing, to be fast.
before = encoder.get_weights()
model.fit(batch, tf.zeros([4, 3]), verbose=0)
moved = [(old != new).any() for old, new in zip(before, encoder.get_weights())]
assert sum(moved) >= len(moved) - 1 == 24  # All but perhaps the key's bias: it has no gradient.
model.save("model.keras")
np.testing.assert_array_equal(keras.models.load_model("model.keras")(batch), model(batch))
print(keras.Model.__module__.partition(".")[0], tf.keras.Model is keras.Model)
"""


def run_program(code, legacy, folder):
    """Runs Python code in another process and returns the words that it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    environment |= {"PYTHONPATH": str(ROOT), **({"TF_USE_LEGACY_KERAS": legacy} if legacy else {})}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("first", "legacy"),
    [
        ("albert_tf", None),
        pytest.param("tensorflow as tf", "1", marks=pytest.mark.slow),
        pytest.param("albert_tf", "1", marks=pytest.mark.slow),
        pytest.param("tensorflow as tf", None, marks=pytest.mark.slow),
    ],
)
def test_models_around_the_encoder_train_and_load_in_a_user_s_program(first, legacy, tmp_path):
    other = {"albert_tf", "tensorflow as tf"} - {first}
    imports = f"import {first}\nimport {other.pop()}"
    code = PROGRAM.format(imports=imports, config=CONFIG.to_dict())
    older = tf.__version__.startswith("2.15.")
    package = "keras" if older and not legacy else "tf_keras"
    assert run_program(code, legacy, tmp_path) == [package, str(bool(older or legacy))]


@pytest.fixture(scope="module")
def keras_3():
    if tf.__version__.startswith("2.15."):
        pytest.skip("TensorFlow 2.15 has only Keras 2")
    return importlib.import_module("keras")


@pytest.fixture(scope="module")
def encoder():
    return AlbertEncoder(CONFIG)


ADVICE = r"\(from albert_tf import keras\), or set TF_USE_LEGACY_KERAS=1 before TensorFlow is"


def test_inputs_of_another_keras_are_refused(keras_3, encoder):
    inputs = keras_3.Input([None], dtype="int32", name="input_word_ids")
    sentence = (
        rf"^AlbertEncoder is built on \w+ 2\.\d+\.\d+ \(Keras 2\) and cannot be given a "
        rf"KerasTensor of \w+ {keras_3.__version__}\. .*{ADVICE} imported.*\.$"
    )
    for given in (inputs, {"input_word_ids": inputs}):
        with pytest.raises(AlbertError, match=sentence):
            encoder(given)
    with pytest.raises(AlbertError, match=sentence):
        encoder(inputs={"input_word_ids": inputs})


def test_a_keras_3_layer_cannot_hold_an_encoder(keras_3, encoder):
    batch = {"input_word_ids": tf.ones([4, 6], tf.int32)}

    class Tagger(keras_3.Model):
        def __init__(self):
            super().__init__()
            self.encoder = encoder
            self.head = keras_3.layers.Dense(2)

        def call(self, inputs):
            return self.head(self.encoder(inputs)["pooled_output"])

    with pytest.raises(AlbertError, match=f"cannot be called by a Keras 3 layer, .*{ADVICE}"):
        Tagger()(batch)
    # Keras 3 itself refuses layers of another Keras.
    with pytest.raises(ValueError, match=r"Only instances of `keras\.Layer` can be added"):
        keras_3.Sequential([encoder])
    assert encoder(batch)["pooled_output"].shape == (4, 16)
