# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A preset that keras-hub 0.32 wrote, with its outputs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.errors import AlbertError
from albert_tf.tokenization.tokenizer import Tokenizer

PRESET = Path(__file__).parents[1] / "golden/keras_hub"


def test_a_preset_has_the_outputs_of_keras_hub():
    with pytest.warns(UserWarning, match="cls/predictions"):
        model = albert_tf.load_pretrained(str(PRESET))
    inputs = dict(np.load(PRESET / "outputs.npz"))
    expected = inputs.pop("pooled_output")
    assert len(model.load_report.matched) == 41 and not model.load_report.unexpected
    np.testing.assert_allclose(model(inputs)["pooled_output"], expected, rtol=0, atol=1e-6)


def test_its_vocabulary_is_among_its_assets(small_model, tmp_path):
    (tmp_path / "assets/tokenizer").mkdir(parents=True)
    shutil.copy(small_model, tmp_path / "assets/tokenizer/vocabulary.spm")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"class_name": "AlbertTokenizer"}))
    found, expected = Tokenizer.from_file(str(tmp_path)), Tokenizer.from_file(small_model)
    assert found.encode("The 2013, ba") == expected.encode("The 2013, ba")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_name": "BertBackbone"}, "its class_name is 'BertBackbone'"),
        ({"embedding_dim": 8}, r"not \[30, 8\].* it also has bert/encoder/embedding_hidden_map"),
        ({"num_inner_repetitions": 2}, "not hold the weights of an AlbertBackbone"),
    ],
)
def test_another_preset_is_one_sentence(change, message, tmp_path):
    folder = shutil.copytree(PRESET, tmp_path / "preset")
    values = json.loads((folder / "config.json").read_text())
    if "class_name" in change:
        values.update(change)
    values["config"].update(change)
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(AlbertError, match=message):
        albert_tf.load_pretrained(str(folder))
