# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs whose first steps train fewer layers."""

from __future__ import annotations

import dataclasses

import pytest
import tensorflow as tf

from albert_tf import EvalSpec
from albert_tf.errors import AlbertError
from albert_tf.training.run import TrainingRun
from albert_tf.weights.run_folder import BestRecord
from tests.training.conftest import TINY_CONFIG
from tests.training.damage import stored
from tests.training.runs import assert_same, fail, interrupted_at, logged, weights_of

STEPS, SHALLOW_STEPS = 6, 3
DEEP = dataclasses.replace(TINY_CONFIG, num_hidden_layers=3)
SHALLOW = {"shallow_layers": 1, "num_shallow_steps": SHALLOW_STEPS}


@pytest.fixture(scope="module")
def new_run(make):
    def new_run(folder, config=DEEP, save_checkpoints_steps=SHALLOW_STEPS, **values):
        settings = {"save_checkpoints_steps": save_checkpoints_steps, "log_every_steps": 2}
        return make(folder, config, steps=STEPS, **settings, **values)[:2]

    return new_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory, new_run):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("shallow") / "run"
    estimator, spec = new_run(folder, **SHALLOW)
    estimator.train_and_evaluate(spec)
    return folder


def checkpoint(folder, step):
    return stored(folder / f"checkpoints/ckpt-{step}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        {"gradient_accumulation_steps": 2, "recompute": True},
        {"strategy": "mirrored"},
        {"jit_compile": True},
    ],
    ids=str,
)
def test_steps_computed_in_another_way_have_fewer_layers_too(tmp_path, new_run, way):
    for name, config, values in (("deep", DEEP, SHALLOW), ("shallow", TINY_CONFIG, {})):
        estimator, spec = new_run(tmp_path / name, config, **values, **way)
        estimator.train_and_evaluate(spec)
    deep, shallow = tmp_path / "deep", tmp_path / "shallow"
    assert checkpoint(deep, SHALLOW_STEPS) == checkpoint(shallow, SHALLOW_STEPS)
    assert checkpoint(deep, STEPS) != checkpoint(shallow, STEPS)


def test_the_first_steps_are_those_of_a_model_with_fewer_layers(tmp_path, new_run, folder):
    estimator, spec = new_run(tmp_path, TINY_CONFIG)
    estimator.train_and_evaluate(spec)
    values, expected = checkpoint(folder, SHALLOW_STEPS), checkpoint(tmp_path, SHALLOW_STEPS)
    assert len(values) > 40
    assert values == expected
    assert checkpoint(folder, STEPS) != checkpoint(tmp_path, STEPS)


def test_the_other_steps_train_all_layers(tmp_path, new_run, folder):
    run = TrainingRun(*new_run(tmp_path), None)
    run.store.restore(str(folder / f"checkpoints/ckpt-{SHALLOW_STEPS}"))
    run.loop.run(run.batches(SHALLOW_STEPS), STEPS - SHALLOW_STEPS)
    finished = TrainingRun(*new_run(folder, **SHALLOW), None)
    finished.store.restore_newest()
    assert_same(weights_of(run.estimator), weights_of(finished.estimator))


@pytest.mark.parametrize(
    "step", [3, *(pytest.param(step, marks=pytest.mark.slow) for step in (2, 4))]
)
def test_a_resumed_run_ends_like_the_uninterrupted_one(tmp_path, new_run, folder, step, capsys):
    estimator, spec = new_run(tmp_path, save_checkpoints_steps=1, **SHALLOW)
    with pytest.raises(tf.errors.OpError):
        estimator.train_and_evaluate(interrupted_at(spec, step, fail))
    estimator, spec = new_run(tmp_path, save_checkpoints_steps=1, **SHALLOW)
    estimator.train_and_evaluate(spec)
    assert checkpoint(tmp_path, STEPS) == checkpoint(folder, STEPS)
    assert "From step 4 on, all layers are trained." in capsys.readouterr().err


@pytest.mark.slow
def test_evaluations_use_all_layers(tmp_path, make):
    """The weights of a shallow step are evaluated as the whole model that is saved."""
    values = {"steps": STEPS, "save_checkpoints_steps": SHALLOW_STEPS}
    estimator, spec, source = make(tmp_path / "run", DEEP, **values, **SHALLOW)
    held_out = EvalSpec(source.eval_input_fn, every_steps=SHALLOW_STEPS)
    estimator.train_and_evaluate(spec, held_out)
    first = logged(tmp_path / "run", "eval")[0]
    deep = TrainingRun(*make(tmp_path / "deep", DEEP, **values)[:2], None)
    deep.store.restore(str(tmp_path / f"run/checkpoints/ckpt-{SHALLOW_STEPS}"))
    outputs = deep.estimator.outputs(held_out, lambda: None)
    results = deep.estimator.metrics(held_out, outputs)
    assert first == {"step": SHALLOW_STEPS, "split": "eval", **results}


def test_evaluations_before_all_layers_are_trained_select_nothing_and_stop_nothing(tmp_path, make):
    values = iter([0.9, 0.8, 0.7, 0.1, 0.2, 0.3])
    config = {**SHALLOW, "early_stopping_evals": 2}
    estimator, spec, source = make(tmp_path, DEEP, steps=STEPS, **config)
    estimator.task.metrics = lambda *_: {"masked_lm_accuracy": next(values)}
    estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=1))
    assert [entry["step"] for entry in logged(tmp_path, "eval")] == [1, 2, 3, 4, 5, 6]
    assert BestRecord.load(str(tmp_path / "best")).step == 6


def test_a_run_is_resumed_with_the_same_shallow_steps_only(folder, new_run):
    estimator, spec = new_run(folder)
    with pytest.raises(AlbertError, match="`shallow_layers`=1 there, None here"):
        estimator.train_and_evaluate(spec)
