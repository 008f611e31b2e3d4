# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Each set of versions reads the files of the other; tests.version_sets lists them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from albert_tf.keras2 import keras
from albert_tf.modeling.encoder import AlbertEncoder
from tests import version_sets as sets
from tests.test_keras2 import run_program

#: Reading the files of the other set shows more than reading those of the installed set.
SETS = [
    pytest.param(name, marks=pytest.mark.slow) if name == sets.here() else name
    for name in sets.NAMES
]


@pytest.fixture(scope="module", params=SETS)
def folder(request):
    """The files of one set, which tests must not change."""
    return sets.unpacked(request.param)


def assert_close(arrays, expected_path):
    expected = np.load(expected_path)
    assert set(arrays) == set(expected.files)
    for name in expected.files:
        np.testing.assert_allclose(arrays[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_a_resumed_run_ends_as_the_uninterrupted_one(folder, tmp_path, capsys):
    shutil.copytree(folder / "run", tmp_path / "run")
    weights = sets.train(folder / "records/compact", tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"Resuming {tmp_path / 'run'} at step {sets.STOP}." in printed
    written_here = folder.name == sets.here()
    assert ("This run began with TensorFlow" in printed) == (not written_here)
    # Rounding causes differences up to 1e-6 in weights up to 1.
    assert_close(weights, folder / "run_end.npz")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    steps = [entry["step"] for entry in map(json.loads, lines) if "gradient_norm" in entry]
    assert steps == list(range(1, sets.STEPS + 1))


@pytest.mark.parametrize("record_format", ["masked", "compact"])
def test_records_are_the_same_bytes(record_format, folder, tmp_path):
    expected = folder / "records" / record_format
    sets.build_records(str(expected / "small.model"), tmp_path, record_format)
    shards = [path.name for path in expected.glob("*.tfrecord")]
    assert len(shards) == 2
    for name in [*shards, "tokenizer.json"]:
        assert (tmp_path / name).read_bytes() == (expected / name).read_bytes()
    manifests = [json.loads((f / "manifest.json").read_text()) for f in (expected, tmp_path)]
    for manifest in manifests:
        for file in manifest["options"]["input_files"]:
            file.pop("modified_nanoseconds")
    assert manifests[0] == manifests[1]


def test_exports_have_the_same_outputs_as_with_the_set_that_wrote_them(folder):
    assert_close(sets.outputs(folder), folder / "expected.npz")


#: Runs in a separate process: Keras 2.15 imports tf_keras for such a file, and with both imported
#: it hangs when it loads a functional model.
LOAD = """
from albert_tf.keras2 import keras
try:
    keras.models.load_model({!r})
except TypeError as error:
    print(error)
"""


def test_a_keras_file_of_the_newer_set_cannot_be_loaded_with_the_older_one(folder, tmp_path):
    path = folder / "around.keras"
    if (folder.name, sets.here()) == ("tf2.21", "tf2.15"):
        printed = run_program(LOAD.format(str(path)), None, tmp_path)
        assert "Unrecognized keyword arguments: ['optional']" in " ".join(printed)
        return
    inputs = {name: tf.constant(value) for name, value in sets.encoder_inputs().items()}
    expected = np.load(folder / "expected.npz")["around"]
    loaded = keras.models.load_model(path)
    np.testing.assert_allclose(loaded(inputs), expected, rtol=0, atol=1e-5)
    assert any(isinstance(layer, AlbertEncoder) for layer in loaded.layers)


def test_an_exported_encoder_is_fine_tuned(folder):
    encoder = hub.KerasLayer(str(folder / "encoder"), trainable=True)
    inputs = {name: tf.constant(value) for name, value in sets.encoder_inputs().items()}
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(encoder(inputs, training=True)["sequence_output"]))
    gradients = tape.gradient(loss, encoder.trainable_weights, unconnected_gradients="zero")
    sizes = {w.name: float(tf.norm(g)) for w, g in zip(encoder.trainable_weights, gradients)}
    assert len(sizes) == 25 and np.isfinite(list(sizes.values())).all()
    without = [name for name, size in sizes.items() if not size]
    assert without == ["bert/pooler/dense/kernel:0", "bert/pooler/dense/bias:0"]
