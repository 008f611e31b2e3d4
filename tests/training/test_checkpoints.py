# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.weights.load import LoadReport, load_weights
from albert_tf.weights.run_folder import RunFolder, find_checkpoint


def variables(value):
    shapes = {"bert/a/kernel": [2, 3], "bert/a.b/bias": [3], "cls/output_bias": [4]}
    return {name: tf.Variable(tf.fill(shape, float(value))) for name, shape in shapes.items()}


def store_of(folder, weights):
    return CheckpointStore(RunFolder(str(folder)), weights, {}, keep_max=3)


def test_weights_come_back_by_name(tmp_path):
    saved = variables(1.5)
    store_of(tmp_path, saved).save(7)
    fresh = variables(0)
    report = load_weights(str(tmp_path), fresh)
    assert report.matched == tuple(fresh) and not report.missing and not report.unexpected
    assert all((v.numpy() == 1.5).all() for v in fresh.values())


def test_the_best_weights_of_an_output_dir_come_before_the_newest(tmp_path):
    weights = variables(1)
    store = store_of(tmp_path, weights)
    store.save_best(3, "accuracy", 0.5)
    weights["bert/a/kernel"].assign(tf.fill([2, 3], 9.0))
    store.save(7)
    assert find_checkpoint(str(tmp_path)).endswith("best/ckpt-3")
    assert find_checkpoint(str(tmp_path / "checkpoints")).endswith("checkpoints/ckpt-7")
    assert find_checkpoint(str(tmp_path / "checkpoints/ckpt-7")).endswith("ckpt-7")
    fresh = variables(0)
    load_weights(str(tmp_path), fresh)
    assert (fresh["bert/a/kernel"].numpy() == 1).all()


def test_no_checkpoint_is_one_sentence(tmp_path):
    with pytest.raises(AlbertError, match="There is no checkpoint at"):
        find_checkpoint(str(tmp_path))


def test_a_report_groups_many_names_of_one_scope():
    unexpected = [f"cls/predictions/{name}" for name in "abc"] + ["cls/other/x", "cls/other/y"]
    report = str(LoadReport("ckpt-1", ("bert/x",), ("output_bias",), tuple(unexpected)))
    assert report.splitlines() == [
        "Weights from ckpt-1: 1 variables matched",
        "  not in the checkpoint, left at random: output_bias",
        "  in the checkpoint, not in the model: cls/predictions/* (3), cls/other/x,",
        "    cls/other/y",
    ]


@pytest.mark.parametrize("relative", [False, True])
def test_tensorflow_finds_the_newest_checkpoint_also_in_a_moved_folder(
    tmp_path, monkeypatch, relative
):
    monkeypatch.chdir(tmp_path)
    store = store_of("run" if relative else str(tmp_path / "run"), variables(1))
    for step in (10, 20):
        store.save(step)
    (tmp_path / "run").rename(tmp_path / "moved")
    for folder in ("moved", tmp_path / "moved"):
        found = tf.train.latest_checkpoint(f"{folder}/checkpoints")
        assert found == RunFolder(str(folder)).newest() == f"{folder}/checkpoints/ckpt-20"
