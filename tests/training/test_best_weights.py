# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests the choice of the best weights and early stopping."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil

import pytest

from albert_tf import EvalSpec
from albert_tf.errors import AlbertError
from albert_tf.io.signals import StopSignals
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from albert_tf.weights.run_folder import BestRecord
from tests.training.conftest import HEADS_ALONE
from tests.training.runs import logged, saved_steps


def test_the_best_checkpoint_is_kept_separately_and_is_never_step_0(tmp_path, make):
    estimator, spec, source = make(tmp_path, **HEADS_ALONE)
    estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=4))
    evaluations = {x["step"]: x["masked_lm_accuracy"] for x in logged(tmp_path, "eval")}
    best = json.loads((tmp_path / "best" / "best.json").read_text())
    assert sorted(evaluations) == [4, 8, 12]
    assert best["value"] == max(evaluations.values()) == evaluations[best["step"]]
    parts = [f"ckpt-{best['step']}{part}" for part in (".data-00000-of-00001", ".index")]
    assert sorted(p.name for p in (tmp_path / "best").iterdir()) == ["best.json", *parts]
    again = Estimator(estimator.task, estimator.config)
    results = again.evaluate(EvalSpec(source.eval_input_fn))
    assert results["masked_lm_accuracy"] == pytest.approx(best["value"])


@pytest.mark.parametrize(
    ("larger_is_better", "losses", "best"),
    [
        (True, [None] * 4, 4),
        (False, [None] * 4, 6),
        (True, [0.2, 0.3, 0.1, 0.2], 8),  # Of equal values, the lower loss.
        (True, [0.2, 0.3, 0.1, 0.299], 4),  # Rounding must not decide.
        (True, [0.2, 0.3, 0.1, math.nan], 4),
    ],
)
def test_the_best_evaluation_has_the_largest_or_the_smallest_value(
    tmp_path, make, monkeypatch, larger_is_better, losses, best
):
    estimator, spec, source = make(tmp_path)
    found = zip([0.4, 0.5, 0.3, 0.5], losses)
    named = ({"masked_lm_accuracy": x, "loss": loss} for x, loss in found)
    results = ({k: v for k, v in x.items() if v is not None} for x in named)
    monkeypatch.setattr(estimator, "metrics", lambda *_: next(results))
    estimator.task.best_metric_larger_is_better = larger_is_better
    run = TrainingRun(estimator, spec, EvalSpec(source.eval_input_fn, every_steps=2))
    run.signals = StopSignals()
    run.monitor = run.new_monitor(0)
    for step in (2, 4, 6, 8):
        run._evaluate(step)
    run.monitor.close()
    assert run.store.best.step == BestRecord.load(str(tmp_path / "best")).step == best


def test_a_run_stops_early_without_a_new_best_and_is_then_over(tmp_path, make, capsys):
    values = iter([0.1, 0.5, 0.4, 0.5, 0.3])
    for last in (0.5, 0.3):
        estimator, spec, source = make(tmp_path, **HEADS_ALONE, early_stopping_evals=2)
        estimator.task.metrics = lambda *_: {"masked_lm_accuracy": next(values)}
        eval_spec = EvalSpec(source.eval_input_fn, every_steps=2)
        assert estimator.train_and_evaluate(spec, eval_spec) == {"masked_lm_accuracy": last}
        assert saved_steps(tmp_path)[-1] == 8
    printed = capsys.readouterr()
    assert "Stopped early at step 8" in printed.err
    assert "no better masked_lm_accuracy than the 0.5000 of step 4" in printed.out
    assert not list(values)


@pytest.fixture
def half_trained(tmp_path, make):
    """Makes runs whose evaluations have the given values; None interrupts the run.

    The first one evaluates every four steps, with the value 0.9 at step 4, and ends at step 8.
    """

    def run(values, eval_spec, **settings):
        left = iter(values)

        def metrics(*_):
            if (value := next(left)) is None:
                raise KeyboardInterrupt
            return {"masked_lm_accuracy": value}

        settings = {**HEADS_ALONE, "save_checkpoints_steps": 4, **settings}
        estimator, spec, source = make(tmp_path, **settings)
        estimator.task.metrics = metrics
        if eval_spec:
            eval_spec = dataclasses.replace(eval_spec, input_fn=source.eval_input_fn)
        return estimator.train_and_evaluate(spec, eval_spec)

    with pytest.raises(KeyboardInterrupt):
        run([0.9, None], EvalSpec(None, every_steps=4, fingerprint="a"))
    assert saved_steps(tmp_path)[-1] == 8
    return run


def test_training_on_without_evaluations_is_refused_if_best_weights_would_hide_it(
    half_trained, tmp_path
):
    with pytest.raises(AlbertError, match=r"best weights, of step 4, .* \(`do_eval`\), or move"):
        half_trained([], None)
    shutil.rmtree(tmp_path / "best")
    half_trained([], None)
    assert saved_steps(tmp_path)[-1] == 12


def test_early_stopping_counts_evaluations(half_trained, tmp_path):
    # At step 8, four steps have passed since the best evaluation, but no evaluation.
    spec = EvalSpec(None, every_steps=1, fingerprint="a")
    half_trained([0.1] * 9, spec, early_stopping_evals=3)
    assert [x["step"] for x in logged(tmp_path, "eval")] == [4, 8, 9, 10]


def test_early_stopping_does_not_count_evaluations_that_are_repeated(tmp_path, make):
    """After a kill, the best weights and the log are newer than the checkpoint, of step 4."""
    values = iter([*[0.1] * 5, 0.9, None, 0.1, 0.9, *[0.5] * 9])

    def metrics(*_):
        if (value := next(values)) is None:
            raise KeyboardInterrupt
        return {"masked_lm_accuracy": value}

    settings = {**HEADS_ALONE, "save_checkpoints_steps": 4, "early_stopping_evals": 6}
    for _ in range(2):
        estimator, spec, source = make(tmp_path, **settings)
        estimator.task.metrics = metrics
        with contextlib.suppress(KeyboardInterrupt):
            estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=1))
    assert BestRecord.load(str(tmp_path / "best")).step == 6
    assert [x["step"] for x in logged(tmp_path, "eval")] == [*range(1, 13)]


def test_a_finished_run_is_evaluated_again(half_trained):
    spec = EvalSpec(None, every_steps=4, fingerprint="a")
    assert half_trained([float("nan"), 0.2], spec) == {"masked_lm_accuracy": 0.2}
    assert half_trained([0.7], spec) == {"masked_lm_accuracy": 0.7}


@pytest.mark.parametrize(("data", "step"), [("a", 4), ("b", 12)])
def test_values_of_other_data_are_not_compared(half_trained, tmp_path, capsys, data, step):
    half_trained([0.1, 0.2], EvalSpec(None, every_steps=4, fingerprint=data))
    best = BestRecord.load(str(tmp_path / "best"))
    assert (best.step, best.data) == (step, data)
    noted = "best weights, of step 4, were found on other data" in capsys.readouterr().err
    assert noted == (data == "b")


def test_early_stopping_without_evaluations_is_refused(tmp_path, make):
    estimator, spec, source = make(tmp_path, early_stopping_evals=2)
    for eval_spec in (None, EvalSpec(source.eval_input_fn)):
        with pytest.raises(AlbertError, match="needs evaluations during training; set `eval_every"):
            estimator.train_and_evaluate(spec, eval_spec)
