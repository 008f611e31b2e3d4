# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The weights that a training step changes, however it is computed."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode, training_step
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training import loop as loop_module
from albert_tf.training.loop import distribute
from albert_tf.training.run import TrainingRun
from tests.training.conftest import TINY_CONFIG

WAYS = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2},
    "recomputed": {"recompute": True},
    "recomputed and accumulated": {"recompute": True, "gradient_accumulation_steps": 2},
    "compiled": {"jit_compile": True},
    "compiled and accumulated": {"jit_compile": True, "gradient_accumulation_steps": 2},
    "two replicas": {"strategy": "mirrored"},
    "two replicas, accumulated": {"strategy": "mirrored", "gradient_accumulation_steps": 2},
}
#: The way that is not slow; with frozen weights, two others are not slow either.
SHORT = ("recomputed",)
OF_SENTENCES = ("bert/pooler/", "cls/seq_relationship/")


class PartlyFrozenTask(PretrainingTask):
    """Trains all but the attention and its normalisation, as a user's own task might."""

    def build_model(self, dtype):
        model = super().build_model(dtype)
        model.encoder.transformer.blocks[0].trainable = False
        return model


@pytest.fixture(scope="module")
def new_run(make):
    """Makes a run before its first step."""

    def new_run(folder, config=TINY_CONFIG, steps=2, **values):
        settings = {"num_warmup_steps": 0, **values}
        estimator, spec, _ = make(folder, config, steps=steps, **settings)
        return TrainingRun(estimator, spec, None)

    return new_run


def values_of(run):
    return {name: value.numpy() for name, value in run.estimator.model.named_weights().items()}


def train(run):
    """Trains; returns the names of the weights and of the slots that changed."""
    weights, slots = run.estimator.model.named_weights(), run.optimizer.named_slots
    before = {name: value.numpy() for name, value in {**weights, **slots}.items()}
    run.run()
    return tuple(
        {name for name, value in values.items() if (value.numpy() != before[name]).any()}
        for values in (weights, slots)
    )


@pytest.mark.parametrize(
    "way", [way if way in SHORT else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]
)
def test_weights_without_a_gradient_keep_every_bit(way, tmp_path, new_run):
    def task(*arguments):
        made = PretrainingTask(*arguments)
        made.has_order = False
        return made

    run = new_run(tmp_path, task=task, **WAYS[way])
    weights, slots = train(run)
    names = run.estimator.model.named_weights()
    assert weights == {name for name in names if not name.startswith(OF_SENTENCES)}
    assert slots == {f"{name}/adam_{slot}" for name in weights for slot in "mv"}


@pytest.mark.parametrize(
    ("way", "parts"),
    [({"gradient_accumulation_steps": 4}, 4), ({"strategy": "mirrored"}, 2)],
    ids=["micro-batches", "replicas"],
)
def test_each_part_of_each_batch_has_other_dropout_masks(
    tmp_path, monkeypatch, new_run, way, parts
):
    seeds = []

    def recorded(step):
        if tf.executing_eagerly():
            seeds.append(tuple(step.seed.numpy()))
        return training_step(step)

    monkeypatch.setattr(loop_module, "training_step", recorded)
    run = new_run(tmp_path, **way)
    batches = run.batches(0)
    tf.config.run_functions_eagerly(True)
    try:
        for _ in range(2):
            run.estimator.strategy.run(run.loop.replica_step, args=(next(batches),))
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(seeds) == len(set(seeds)) == 2 * parts


class InfiniteLossTask(PretrainingTask):
    """Has an infinite loss with a finite gradient."""

    def means(self, sums, weights):
        means = super().means(sums, weights)
        return {**means, "loss": means["loss"] + np.inf}


def test_a_step_whose_loss_alone_is_not_finite_changes_nothing(tmp_path, new_run):
    run = new_run(tmp_path, task=InfiniteLossTask, freeze="encoder")
    values = {**run.estimator.model.named_weights(), **run.optimizer.named_slots}
    before = {name: value.numpy() for name, value in values.items()}
    metrics = run.loop.run(run.batches(0), 1)
    assert np.isfinite(metrics["gradient_norm"]) and metrics["gradient_norm"] > 0
    assert metrics["finite"] == 0
    for name, value in values.items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)


FREEZING = {
    "encoder": ({"freeze": "encoder"}, "bert/"),
    "embeddings": ({"freeze": "embeddings"}, "bert/embeddings/"),
    "a layer": (
        {"task": PartlyFrozenTask},
        r"bert/encoder/transformer/.*/(attention_1|LayerNorm)/",
    ),
}


@pytest.mark.parametrize(
    ("frozen", "way"),
    [
        ("encoder", "plain"),
        ("a layer", "recomputed and accumulated"),
        pytest.param("encoder", "compiled and accumulated", marks=pytest.mark.slow),
        pytest.param("embeddings", "two replicas, accumulated", marks=pytest.mark.slow),
        pytest.param("embeddings", "recomputed", marks=pytest.mark.slow),
    ],
)
def test_frozen_weights_keep_every_bit_and_have_no_slots(frozen, way, tmp_path, new_run):
    settings, pattern = FREEZING[frozen]
    run = new_run(tmp_path, **settings, **WAYS[way])
    names = run.estimator.model.named_weights()
    trained = {name for name in names if not re.match(pattern, name)}
    assert 0 < len(trained) < len(names)
    weights, slots = train(run)
    assert weights == trained
    assert slots == set(run.optimizer.named_slots)
    assert slots == {f"{name}/adam_{slot}" for name in trained for slot in "mv"}
    saved = tf.train.load_checkpoint([*run.folder.checkpoints().values()][-1])
    for name, value in values_of(run).items():
        key = f"weights/{name.replace('/', '.S')}/.ATTRIBUTES/VARIABLE_VALUE"
        np.testing.assert_array_equal(saved.get_tensor(key), value, err_msg=name)


def test_freezing_changes_neither_the_gradient_of_the_rest_nor_clips_by_what_is_frozen(
    tmp_path, new_run
):
    weights, norms = [], []
    for freeze in (None, "embeddings"):
        folder = tmp_path / str(freeze)
        values = {"freeze": freeze, "clip_norm": 1e6, "optimizer": "adamw", "steps": 1}
        run = new_run(folder, **values)
        run.run()
        weights.append(values_of(run))
        slots = run.optimizer.named_slots
        # After one step the first moment is a tenth of the gradient.
        moments = [10 * slots[f"{name}/adam_m"].numpy() for name in run.optimizer.named_weights]
        (logged,) = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        norms.append(logged["gradient_norm"])
        assert norms[-1] == pytest.approx(np.sqrt(sum(np.sum(m**2) for m in moments)), rel=1e-4)
    assert norms[1] < norms[0]
    for name, value in weights[1].items():
        if not name.startswith("bert/embeddings/"):
            np.testing.assert_allclose(value, weights[0][name], rtol=0, atol=1e-5, err_msg=name)


def products(function, *arguments):
    """Counts the matrix products in a graph and in the functions it calls."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return sum("MatMul" in node.op for node in nodes)


def backward_products(run):
    """Counts the matrix products of a step beyond those of the forward pass."""
    batch = dict(next(run.batches(0)))
    task, model, strategy = run.task, run.estimator.model, run.estimator.strategy
    step = products(lambda batch: strategy.run(run.loop.replica_step, args=(batch,)), batch)
    with graph_mode(GraphMode.CPU):
        return step - products(lambda batch: task.sums(model, batch, training=True), batch)


def test_no_backward_pass_goes_through_a_frozen_encoder(tmp_path, new_run):
    counts = {}
    for freeze, layers in (("encoder", 1), ("encoder", 2), (None, 1)):
        config = dataclasses.replace(TINY_CONFIG, num_hidden_layers=layers)
        run = new_run(tmp_path, config, freeze=freeze)
        counts[freeze, layers] = backward_products(run)
    assert counts[None, 1] > counts["encoder", 2] == counts["encoder", 1] > 0


def test_a_run_is_resumed_with_the_same_frozen_weights_only(tmp_path, new_run):
    folders = {}
    for freeze in (None, "encoder"):
        folders[freeze] = tmp_path / str(freeze)
        run = new_run(folders[freeze], freeze=freeze, steps=1)
        run._begin(known=False)
        run.optimizer.iterations.assign(1)
        run.store.save(1)
    for freeze, other, sentence in (
        ("encoder", None, r"`frozen`=\[\] there, \['bert/embeddings/"),
        ("embeddings", "encoder", "another `frozen`"),
        (None, "encoder", r"`frozen`=\['bert/.* there, \[\] here"),
    ):
        run = new_run(folders[other], freeze=freeze, steps=1)
        with pytest.raises(AlbertError, match=f"holds another run.*{sentence}"):
            run.run()


def test_frozen_weights_that_the_checkpoint_lacks_are_warned_of(tmp_path, new_run, capsys):
    weights = new_run(tmp_path).estimator.model.named_weights()
    held = {name: weight for name, weight in weights.items() if "pooler" not in name}
    tf.train.Checkpoint(weights=tf.train.Checkpoint(**held)).write(str(tmp_path / "initial"))
    values = {"init_checkpoint": str(tmp_path / "initial"), "steps": 1}
    for freeze, warned in (("embeddings", False), ("encoder", True)):
        new_run(tmp_path / freeze, freeze=freeze, **values)._begin(known=False)
        text = " ".join(capsys.readouterr().out.split())
        sentence = "so they stay random: bert/pooler/dense/kernel, bert/pooler/dense/bias."
        assert (sentence in text) == warned


class AllFrozenTask(PretrainingTask):
    def build_model(self, dtype):
        model = super().build_model(dtype)
        model.trainable = False
        return model


class NoEncoderTask(PretrainingTask):
    def build_model(self, dtype):
        return keras.Sequential([keras.layers.Dense(2, input_shape=[3])])


@pytest.mark.parametrize(
    ("task", "freeze", "sentence"),
    [
        (AllFrozenTask, None, "There is nothing to train: the loss depends on frozen weights only"),
        (NoEncoderTask, "encoder", "needs a model with an AlbertEncoder in its attribute `enc"),
        (PretrainingTask, "pooler", "`freeze`='pooler' is unknown; use one of None, embeddings,"),
    ],
)
def test_impossible_freezing_is_one_sentence(task, freeze, sentence, tmp_path, new_run):
    with pytest.raises(AlbertError, match=sentence):
        new_run(tmp_path, task=task, freeze=freeze).run()


def test_one_cpu_reads_the_data_set_itself(make, tmp_path):
    # tf.distribute would add a data set that is autotuned.
    estimator, spec, _ = make(tmp_path, TINY_CONFIG, steps=2)
    batches = distribute(estimator.strategy, spec.input_fn, 4, start_step=3)
    assert batches.options().autotune.enabled is False
    expected = spec.input_fn(InputContext(4, start_step=3))
    for got, wanted in zip(batches.take(2), expected.take(2)):
        np.testing.assert_array_equal(got["input_word_ids"], wanted["input_word_ids"])
