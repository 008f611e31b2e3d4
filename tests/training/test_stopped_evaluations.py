# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs that end within an evaluation, and go on with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

import pytest

from albert_tf import EvalSpec
from albert_tf.io.signals import StopSignals
from tests.faults.same import compare
from tests.training.conftest import HEADS_ALONE
from tests.training.runs import STEPS, logged, saved_steps, with_action

#: Steps between evaluations; between checkpoints there are 5.
EVERY = 2
BATCHES = 13


@pytest.fixture(scope="module")
def start(make):
    """Makes a run; returns Estimator, TrainSpec and EvalSpec."""

    def start(folder, **values):
        settings = {"keep_checkpoint_max": 1, "log_every_steps": 1, **values}
        estimator, train_spec, source = make(folder, **HEADS_ALONE, **settings)
        return estimator, train_spec, EvalSpec(source.eval_input_fn, every_steps=EVERY)

    return start


def with_action_in_evaluation(eval_spec, number, action, batches_read=None):
    """Returns an EvalSpec that calls `action` in the middle of evaluation `number`, from 1.

    `batches_read` is a list that grows by one item per batch.
    """
    batches_read = [] if batches_read is None else batches_read

    def count(_):
        batches_read.append(None)
        if len(batches_read) == (number - 1) * BATCHES + 4:
            action()

    return with_action(eval_spec, count)


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)  # What is in flight comes to its end.


@pytest.fixture(scope="module")
def saved_before_evaluations():
    """For each evaluation of the run below, the steps of the checkpoints that were there."""
    return []


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, start, saved_before_evaluations):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    estimator, train_spec, eval_spec = start(folder)

    metrics = estimator.task.metrics

    def look_first(*arguments):
        saved_before_evaluations.append(saved_steps(folder))
        return metrics(*arguments)

    estimator.task.metrics = look_first
    estimator.train_and_evaluate(train_spec, eval_spec)
    return folder


def finish_and_compare(start, folder, uninterrupted):
    """Resumes the run; what it leaves must be what the uninterrupted one has left."""
    estimator, *specs = start(folder)
    results = estimator.train_and_evaluate(*specs)
    comparison = compare(uninterrupted, folder)
    # TensorFlow counts how often it has saved; a stop adds a checkpoint.
    differences = [line for line in comparison.differences if "save_counter" not in line]
    assert not differences and comparison.compared > 10_000
    return results


@pytest.mark.parametrize("step", [8, pytest.param(STEPS, marks=pytest.mark.slow)])
def test_a_signal_ends_an_evaluation_which_the_resumed_run_begins_with(
    tmp_path, start, uninterrupted, step
):
    """No checkpoint is due at step 8; step 12 is the last."""
    estimator, train_spec, eval_spec = start(tmp_path)
    stopped = with_action_in_evaluation(eval_spec, step // EVERY, terminate)
    with pytest.raises(SystemExit) as exit_info:
        estimator.train_and_evaluate(train_spec, stopped)
    assert exit_info.value.code == 128 + signal.SIGTERM
    assert [entry["step"] for entry in logged(tmp_path, "eval")] == list(range(2, step, EVERY))
    assert saved_steps(tmp_path) == [step]
    results = finish_and_compare(start, tmp_path, uninterrupted)
    assert results["loss"] == logged(tmp_path, "eval")[-1]["loss"]


def test_a_checkpoint_that_is_due_is_saved_before_the_evaluation(
    uninterrupted, saved_before_evaluations
):
    assert saved_before_evaluations == [[], [], [5], [5], [10], [12]]


def test_an_evaluation_that_was_not_logged_is_repeated_once(tmp_path, start, uninterrupted):
    """The log comes last: what was killed before it may have saved the best weights."""
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted, folder)
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["split"] == "eval"
    path.write_text("".join(lines[:-1]))
    repeated = finish_and_compare(start, folder, uninterrupted)
    assert repeated
    # It is read from the log, which a third evaluation would lengthen.
    assert finish_and_compare(start, folder, uninterrupted) == pytest.approx(repeated)


def test_a_signal_ends_an_evaluation_outside_of_training_between_two_batches(
    tmp_path, start, uninterrupted
):
    estimator, _, eval_spec = start(tmp_path)
    asked = []
    interrupted = with_action_in_evaluation(eval_spec, 1, terminate, asked)
    with (
        pytest.raises(SystemExit),
        StopSignals(first_raises=True) as signals,
    ):  # As every script does.
        estimator.evaluate(interrupted, str(uninterrupted))
    assert signals.received == signal.SIGTERM
    assert 4 <= len(asked) < BATCHES
