# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Figure 1: distances and angles between the input and the output of each layer."""

from __future__ import annotations

import functools
import json
import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.cli import script
from albert_tf.weights.conversion import convert
from benchmarks.paper import __main__ as kit
from benchmarks.paper.figure1 import measure, table

pytestmark = pytest.mark.tooling

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"


def test_layers_of_the_tf1_release_give_the_same_figure():
    """Compares with inputs and outputs of the layers from the release's program."""
    expected = np.load(GOLDEN / "tf1_tiny/expected.npz")
    saved = tf.train.load_checkpoint(str(GOLDEN / "tf1_tiny/model.ckpt-best"))
    name = "bert/encoder/embedding_hidden_mapping_in/"
    first = expected["embedding_output"] @ saved.get_tensor(f"{name}kernel")
    states = [first + saved.get_tensor(f"{name}bias"), *expected["all_layers"]]
    mask = expected["input_mask"] > 0
    assert not mask.all()
    names = {"input_ids": "word_ids", "input_mask": "mask", "segment_ids": "type_ids"}
    batch = {f"input_{new}": expected[old] for old, new in names.items()}
    encoder = albert_tf.load_pretrained(str(GOLDEN / "tf1_tiny")).encoder
    changes = measure(encoder, [batch])
    assert changes.tokens == mask.sum()
    for layer, x, y in zip(changes.means(), states, states[1:]):
        x, y = x[mask], y[mask]
        cosines = (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
        distances = np.sqrt(((x - y) ** 2).sum(-1))
        assert layer["l2_distance"] == pytest.approx(distances.mean(), rel=1e-4)
        assert layer["angle"] == pytest.approx(np.degrees(np.arccos(cosines)).mean(), rel=1e-3)


def test_the_command_writes_a_table_and_a_plot_of_models_in_any_format(run_script, tmp_path):
    (tmp_path / "text.txt").write_text(
        "The captain walked along the shore, and men followed.\n" * 40
    )
    convert("albert_tiny_books", "tf1", str(tmp_path / "tf1"))
    command = types.SimpleNamespace(
        __name__="figure1", main=functools.partial(script.run, *kit.COMMANDS["figure1"])
    )
    done = run_script(
        command, f"--checkpoints=HF=albert_tiny_books,TF1={tmp_path}/tf1",
        f"--input_file={tmp_path}/text.txt", "--max_seq_length=32", f"--output_dir={tmp_path}/out",
    ).ok()  # fmt: skip
    result = json.loads((tmp_path / "out/figure1.json").read_text())
    ours, same = result["models"]
    for one, other in zip(ours["layers"], same["layers"]):
        assert one == pytest.approx(other, rel=1e-3)  # The bundled weights are float16.
    assert len(ours["layers"]) == 4 and ours["tokens"] > 300
    assert table(result["models"]) in done.stdout
    assert (tmp_path / "out/figure1.png").read_bytes().startswith(b"\x89PNG")
