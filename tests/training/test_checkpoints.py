# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.optimization.optimizer import create_optimizer
from albert_tf.training.checkpoints import CheckpointStore, load_weights
from albert_tf.weights.load import LoadReport
from albert_tf.weights.run_folder import BestRecord, RunFolder, find_checkpoint


def variables(value, **shapes):
    shapes = shapes or {"bert/a/kernel": [2, 3], "bert/a.b/bias": [3], "cls/output_bias": [4]}
    return {name: tf.Variable(tf.fill(shape, float(value))) for name, shape in shapes.items()}


def store_of(folder, weights):
    optimizer = create_optimizer("lamb", 0.1, weights)
    return CheckpointStore(RunFolder(str(folder)), weights, optimizer, {}, keep_max=3)


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


def test_a_better_evaluation_replaces_the_best(tmp_path):
    store = store_of(tmp_path, variables(1))
    store.save_best(3, "accuracy", 0.5)
    store.save_best(6, "accuracy", 0.6)
    names = sorted(p.name for p in (tmp_path / "best").iterdir())
    assert names == ["best.json", "ckpt-6.data-00000-of-00001", "ckpt-6.index"]
    assert store.best == BestRecord(6, "accuracy", 0.6, "ckpt-6")


def test_a_tf1_checkpoint_loads_by_its_names_without_its_optimizer_state(tmp_path):
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = [f"bert/a/kernel{slot}" for slot in ("", "/adam_m", "/adam_v")]
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model.ckpt"),
        tensor_names=[*names, "global_step"],
        shape_and_slices=[""] * 4,
        tensors=[kernel, kernel, kernel, np.int64(3)],
    )
    fresh = variables(0, **{"bert/a/kernel": [2, 3]})
    report = load_weights(str(tmp_path / "model.ckpt"), fresh)
    np.testing.assert_array_equal(fresh["bert/a/kernel"].numpy(), kernel)
    assert report.unexpected == ()


@pytest.mark.parametrize(
    ("shapes", "difference"),
    [
        ({"bert/a/kernel": [2], "bert/new/kernel": [2]}, "it lacks bert/new/kernel"),
        ({"bert/a/kernel": [3]}, r"bert/a/kernel \(shape \[2\], not \[3\]\)"),
    ],
)
def test_missing_encoder_variables_and_other_shapes_are_named(tmp_path, shapes, difference):
    store_of(tmp_path, variables(1, **{"bert/a/kernel": [2]})).save(1)
    with pytest.raises(AlbertError, match=difference):
        load_weights(str(tmp_path), variables(0, **shapes))


def layers(value, attention, ffn, inner=1):
    """Kernels of the given number of groups of attention and of feed-forward weights."""
    kernels = [("attention_1/self/query", g) for g in range(attention)]
    kernels += [("ffn_1/intermediate/dense", g) for g in range(ffn)]
    scope = "bert/encoder/transformer/group_{}/inner_group_{}/{}/kernel"
    return variables(
        value, **{scope.format(g, i, part): [2] for part, g in kernels for i in range(inner)}
    )


@pytest.mark.parametrize(
    ("stored", "model", "difference"),
    [
        ((4, 4), (1, 1), "it has 4 groups of attention weights (the model 1) and 4 groups of "
         "feed-forward weights (the model 1)"),
        ((4, 4), (1, 4), "it has 4 groups of attention weights (the model 1)"),
        ((1, 4), (1, 1), "it has 4 groups of feed-forward weights (the model 1)"),
        ((2, 2, 3), (2, 2, 1), "it has 3 inner groups (the model 1)"),
        ((1, 1), (4, 4), "it has 1 group of attention weights (the model 4) and 1 group of "
         "feed-forward weights (the model 4)"),
    ],
)  # fmt: skip
def test_a_checkpoint_with_other_groups_than_the_model_is_refused(
    tmp_path, stored, model, difference
):
    store_of(tmp_path, layers(1, *stored)).save(1)
    with pytest.raises(AlbertError) as error:
        load_weights(str(tmp_path), layers(0, *model))
    assert f"does not fit the model; {difference}; " in str(error.value)
    assert "num_hidden_groups, inner_group_num and parameter_sharing" in str(error.value)


def test_weights_of_a_layer_that_the_model_does_not_have_are_refused(tmp_path):
    stored = layers(1, 1, 1)
    stored["bert/encoder/transformer/group_0/inner_group_0/gate/kernel"] = tf.Variable([1.0])
    store_of(tmp_path, stored).save(1)
    with pytest.raises(AlbertError, match=r"it also has bert/encoder/.*/gate/kernel\. Use the"):
        load_weights(str(tmp_path), layers(0, 1, 1))


POSITIONS = "bert/embeddings/position_embeddings"


def test_a_model_for_longer_sequences_repeats_the_positions_between_first_and_last(tmp_path):
    short = variables(1, **{POSITIONS: [5, 2]})
    store_of(tmp_path, short).save(1)
    longer = variables(0, **{POSITIONS: [12, 2]})
    report = load_weights(str(tmp_path), longer, whole=True)
    rows = [0, 1, 2, 3, 4, 1, 2, 3, 1, 2, 3, 1]
    np.testing.assert_array_equal(longer[POSITIONS].numpy(), short[POSITIONS].numpy()[rows])
    assert report.matched == (POSITIONS,) and report.repeated == 5
    assert str(report).splitlines()[-1] == "  positions from 5 on repeat the checkpoint's"


@pytest.mark.parametrize("shape", [[4, 2], [12, 3]])
def test_fewer_or_wider_positions_than_the_checkpoint_has_are_an_error(tmp_path, shape):
    store_of(tmp_path, variables(1, **{POSITIONS: [5, 2]})).save(1)
    with pytest.raises(AlbertError, match=r"it lacks .*position_embeddings \(shape \[5, 2\]"):
        load_weights(str(tmp_path), variables(0, **{POSITIONS: shape}))


def test_the_pooler_may_be_missing_unless_the_model_must_be_whole(tmp_path):
    pooler = {f"bert/pooler/dense/{part}": [2] for part in ("bias", "kernel")}
    store_of(tmp_path, variables(1, **{"bert/a/kernel": [2]})).save(1)
    fresh = variables(0, **{"bert/a/kernel": [2], **pooler})
    assert load_weights(str(tmp_path), fresh).missing == tuple(pooler)
    with pytest.raises(AlbertError, match=r"it lacks bert/pooler/dense/bias, bert/pooler"):
        load_weights(str(tmp_path), fresh, whole=True)
    store_of(tmp_path / "odd", variables(1, **{"bert/a/kernel": [2], **pooler})).save(1)
    wider = variables(0, **{"bert/a/kernel": [2], **{name: [3] for name in pooler}})
    with pytest.raises(AlbertError, match=r"bert/pooler/dense/bias \(shape \[2\], not \[3\]\)"):
        load_weights(str(tmp_path / "odd"), wider)


def test_heads_may_be_missing_and_are_reported(tmp_path):
    store_of(tmp_path, variables(1, **{"bert/a/kernel": [2], "cls/x": [1]})).save(1)
    fresh = variables(0, **{"bert/a/kernel": [2], "output_bias": [5]})
    report = load_weights(str(tmp_path), fresh)
    assert report.missing == ("output_bias",) and report.unexpected == ("cls/x",)
    assert "output_bias" in str(report) and "cls/x" in str(report)
    assert (fresh["output_bias"].numpy() == 0).all()


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
