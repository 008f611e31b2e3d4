# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""An export appears only if its outputs are those of its model."""

import dataclasses
import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.export.hub import encoder_export
from albert_tf.export.model_card import ModelFacts
from albert_tf.export.saved_model import publish, write_saved_model
from albert_tf.export.self_check import Probe, self_check
from albert_tf.io import folders
from albert_tf.modeling.pretrainer import AlbertPretrainer
from tests.support.builders import tiny_config

CONFIG = tiny_config(
    30, embedding_size=4, hidden_size=8, intermediate_size=8, max_position_embeddings=12,
    initializer_range=0.3,
)  # fmt: skip


@pytest.fixture(scope="module")
def export():
    return encoder_export(AlbertPretrainer(CONFIG, dtype="float32"))


@pytest.fixture(scope="module")
def saved(export, tmp_path_factory):
    """The folder of an export, checked in a fresh process."""
    return write_export(export, tmp_path_factory.mktemp("published") / "saved")


def write_export(export, path):
    with folders.new_folder(str(path)) as folder:
        publish(export, folder, ModelFacts("small", CONFIG))
    return path


def test_two_batch_sizes_and_two_lengths_are_compared_and_reported(saved):
    report = json.loads((saved / "self_check.json").read_text())
    called = {(p["called"], p["batch_size"], p["length"]) for p in report["probes"]}
    assert called == set(
        itertools.product(("the model", "mlm", "sop"), (1, 4), ("3 pieces", "12 pieces"))
    )
    for probe in report["probes"]:
        for difference in probe["largest_difference"].values():
            assert 0 <= difference < 1e-5
    # All outputs, including each layer's.
    assert set(report["probes"][0]["largest_difference"]) == {
        "default", "pooled_output", "sequence_output", "encoder_outputs/0",
    }  # fmt: skip
    assert report["versions"]["tensorflow"] == tf.__version__
    # An encoder must load without tensorflow_text.
    assert "tensorflow_text" not in report["versions"]
    # No path of this machine is in anything that was written.
    for path in saved.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for text in (str(saved.parent), str(pathlib.Path(__file__).parents[2])):
                assert text.encode() not in content, path


@pytest.mark.usefixtures("self_check_here")
def test_other_outputs_than_the_models_are_refused_and_nothing_is_left(export, tmp_path):
    # Changed after the model's outputs were computed.
    variable = export.root.trainable_variables[3]
    value = variable.numpy()
    variable.assign_add([0.01] * 4)
    try:
        with pytest.raises(AlbertError, match=r"the model has a difference of .* in 'sequence_ou"):
            write_export(export, tmp_path / "saved")
    finally:
        variable.assign(value)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("self_check_here")
def test_strings_and_integers_must_be_equal(tmp_path):
    root = tf.Module()
    root.__call__ = tf.function(
        lambda sentences: {"label": sentences, "index": tf.strings.length(sentences)},
        input_signature=[tf.TensorSpec([None], tf.string, "sentences")],
    )
    write_saved_model(root, {}, str(tmp_path / "saved"))
    right = {"label": np.array([b"one", b"three"]), "index": np.array([3, 5], np.int32)}
    probe = Probe({"sentences": np.array([b"one", b"three"])}, right)
    report = self_check(str(tmp_path / "saved"), [probe])
    assert report["probes"][0]["largest_difference"] == {"label": 0.0, "index": 0.0}
    odd = dataclasses.replace(probe, expected={**right, "label": np.array([b"one", b"tree"])})
    with pytest.raises(AlbertError, match="other values in 'label'"):
        self_check(str(tmp_path / "saved"), [odd])


def test_a_damaged_saved_model_is_refused(export, saved, tmp_path):
    path = shutil.copytree(saved, tmp_path / "saved")
    data = next(iter((path / "variables").glob("*.data-*")))
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(AlbertError, match=r"cannot be used in a fresh process \(.+\)"):
        self_check(str(path), export.probes)
