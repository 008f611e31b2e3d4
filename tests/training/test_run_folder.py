# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A folder belongs to one run: others are refused there, and change nothing."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import tensorflow as tf

from albert_tf import EvalSpec
from albert_tf.errors import AlbertError
from tests.training.conftest import HEADS_ALONE
from tests.training.damage import files_below
from tests.training.runs import InterruptedRunError, fail, interrupted, interrupted_at, logged


@pytest.fixture(scope="module")
def finished(tmp_path_factory, make):
    """A finished run with best weights."""
    folder = tmp_path_factory.mktemp("finished")
    train(make, folder)
    return folder


def train(make, folder, **values):
    estimator, spec, source = make(folder, **HEADS_ALONE, **values)
    estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=4))
    return estimator


def assert_refused(make, folder, message, **values):
    before = files_below(folder)
    with pytest.raises(AlbertError, match=message):
        train(make, folder, **values)
    assert files_below(folder) == before


def test_another_run_does_not_start_where_best_weights_are(finished, tmp_path, make):
    folder = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")  # Two thirds of the bytes.
    text = r"holds another run \(`learning_rate`=0.01 there, 0.02 here\); .*`init_checkpoint`="
    assert_refused(make, folder, text, learning_rate=0.02)


@pytest.mark.parametrize(
    "kept", ["best", "checkpoints", "metrics.jsonl", "task.json", "seeds.json"]
)
def test_the_remains_of_a_run_are_refused(finished, tmp_path, make, kept):
    folder = tmp_path / "run"
    folder.mkdir()
    if not (finished / kept).exists():
        (folder / kept).write_text("{}")
    elif (finished / kept).is_dir():
        shutil.copytree(finished / kept, folder / kept)
    else:
        shutil.copy(finished / kept, folder / kept)
    assert_refused(make, folder, rf"holds {kept} of a run, but no run_config.json")


def test_a_file_that_a_run_would_replace_is_refused(tmp_path, make):
    (tmp_path / "albert_config.json").write_text('{"of": "a release"}')
    assert_refused(make, tmp_path, r"albert_config\.json is not of this run")
    assert os.listdir(tmp_path) == ["albert_config.json"]


def test_files_of_no_run_may_be_there(tmp_path, make):
    (tmp_path / "slurm-17.out").write_text("log")
    (tmp_path / "weights.tmp20250131").mkdir()
    train(make, tmp_path)
    assert {"slurm-17.out", "weights.tmp20250131"} < {*os.listdir(tmp_path)}


def test_a_run_that_saved_nothing_begins_again_and_no_other_one_does(tmp_path, make):
    for _ in range(2):
        estimator, spec, _ = make(tmp_path)
        with pytest.raises(InterruptedRunError):
            estimator.train_and_evaluate(interrupted(spec))
    assert_refused(make, tmp_path, "holds another run", learning_rate=0.02)
    estimator, spec, _ = make(tmp_path)
    estimator.train_and_evaluate(spec)
    assert json.loads((tmp_path / "run_config.json").read_text())["run"]["learning_rate"] == 0.01


def test_best_weights_outlive_a_run_that_begins_again(finished, tmp_path, make):
    values = {"save_checkpoints_steps": 1000}
    estimator, spec, source = make(tmp_path, **HEADS_ALONE, **values)
    with pytest.raises(tf.errors.UnknownError, match="InterruptedRunError"):
        estimator.train_and_evaluate(
            interrupted_at(spec, 6, fail), EvalSpec(source.eval_input_fn, every_steps=4)
        )
    before = files_below(tmp_path / "best")
    assert len(before) == 3
    estimator, spec, source = make(tmp_path, **HEADS_ALONE, **values)
    # Again without a checkpoint.
    with pytest.raises(tf.errors.UnknownError, match="InterruptedRunError"):
        estimator.train_and_evaluate(
            interrupted_at(spec, 2, fail), EvalSpec(source.eval_input_fn, every_steps=4)
        )
    assert files_below(tmp_path / "best") == before
    train(make, tmp_path, **values)
    assert files_below(tmp_path / "best") == files_below(finished / "best")
    assert [x["step"] for x in logged(tmp_path, "eval")] == [4, 8, 12]


def test_missing_checkpoints_that_were_listed_do_not_start_the_run_afresh(finished, tmp_path, make):
    folder = shutil.copytree(finished, tmp_path / "run")
    for path in (folder / "checkpoints").glob("ckpt-*"):
        path.unlink()
    assert_refused(make, folder, "There is no good checkpoint in")
