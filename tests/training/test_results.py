# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that compute NaN: what is said, what is written, and what is not the best."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf import EvalSpec, RunConfig
from albert_tf.errors import DivergedError
from albert_tf.training.estimator import Estimator
from albert_tf.training.monitors import write_results
from albert_tf.training.task import Task
from albert_tf.weights.checkpoint import write_tf2
from albert_tf.weights.run_folder import RunFolder
from tests.support.pages import ROOT
from tests.support.small_tasks import open_small_task
from tests.training.conftest import HEADS_ALONE
from tests.training.runs import logged


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def strict_json(path):
    return json.loads(path.read_text(), parse_constant=refuse)


def test_results_that_are_not_finite_are_null_and_an_error(tmp_path, capsys):
    write_results(RunFolder(str(tmp_path)), {"loss": 0.5})
    assert strict_json(tmp_path / "eval_results.json") == {"loss": 0.5}
    results = {"loss": math.nan, "accuracy": 0.5, "perplexity": math.inf}
    with pytest.raises(DivergedError, match=r"not finite \(loss, perplexity; null in .*\.json\)"):
        write_results(RunFolder(str(tmp_path)), results)
    written = strict_json(tmp_path / "eval_results.json")
    assert written == {"loss": None, "accuracy": 0.5, "perplexity": None}
    assert capsys.readouterr().out.count("Written to") == 2
    with pytest.raises(DivergedError):
        write_results(RunFolder(str(tmp_path / "none")), results, writes=False)
    assert not (tmp_path / "none").exists()


def test_metrics_no_better_than_those_of_a_constant_answer_are_named_as_on_the_page():
    def note(metrics, constant):
        return Task.constant_answer_note(SimpleNamespace(constant_answers=constant), metrics)

    names = {"accuracy": "majority_accuracy"}
    text = note({"accuracy": 0.5271, "majority_accuracy": 0.5271}, names)
    assert f"\n{text}\n" in (ROOT / "docs/divergence.md").read_text("utf-8")
    assert not note({"accuracy": 0.6, "majority_accuracy": 0.5271}, names)
    # A correlation is 0 if all answers are the same.
    assert note({"pearson": -0.1}, {"pearson": "majority_pearson"})
    assert not note({"pearson": 0.1}, {"pearson": "majority_pearson"})
    assert not note(dict.fromkeys(("accuracy", "majority_accuracy"), math.nan), names)


@pytest.mark.parametrize("name", ["classification", "squad_2"])
def test_no_metric_of_a_model_that_computes_nan_passes_for_a_result(tmp_path, tiny_config, name):
    task, _, held_out = open_small_task(name, tiny_config, tmp_path)
    estimator = Estimator(task, RunConfig(str(tmp_path), train_batch_size=8, eval_batch_size=8))
    whole = estimator.metrics(held_out, estimator.outputs(held_out))
    assert all(math.isfinite(value) for value in whole.values())
    for weight in estimator.model.named_weights().values():
        weight.assign(weight * math.nan)
    results = estimator.metrics(held_out, estimator.outputs(held_out))
    assert results.keys() == whole.keys()
    assert all(math.isnan(value) for value in results.values())


def test_predictions_that_are_nan_are_an_error(tmp_path, tiny_config):
    task, _, held_out = open_small_task("classification", tiny_config, tmp_path)
    estimator = Estimator(task, RunConfig(str(tmp_path), eval_batch_size=8))
    weights = {
        k: np.full(v.shape, 3e38, np.float32) for k, v in estimator.model.named_weights().items()
    }
    write_tf2(str(tmp_path / "huge"), tiny_config, None, weights)
    with pytest.raises(DivergedError, match=r"gives NaN for (\d+) of \1 examples"):
        estimator.predict(held_out.input_fn, str(tmp_path / "huge"))


def test_a_training_that_ends_with_nan_is_an_error_and_leaves_no_best_weights(tmp_path, make):
    # The first step has the rate 0, the second one ruins the weights. The run is over before
    # so many steps have passed as end a run.
    values = {**HEADS_ALONE, "learning_rate": 1e30, "log_every_steps": 1}
    estimator, spec, source = make(tmp_path, steps=8, **values)
    with pytest.raises(DivergedError) as error:
        estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=1))
    match = re.match(
        r"Training has diverged: \d steps in a row before step 8 gave a loss or gradient that is "
        r"not finite; there is no checkpoint from before\.",
        str(error.value),
    )
    assert match, error.value
    evaluations = logged(tmp_path, "eval")
    assert evaluations[0]["loss"] > 0 and evaluations[-1]["loss"] is None
    assert evaluations[-1]["masked_lm_accuracy"] is None
    best = strict_json(tmp_path / "best/best.json")
    assert best["step"] <= 2
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    with pytest.raises(DivergedError, match=r"The weight \S+ of \S+ckpt-\d is not finite: its tra"):
        estimator.predict(source.eval_input_fn, str(tmp_path / "checkpoints"))
