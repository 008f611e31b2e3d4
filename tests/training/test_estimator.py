# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import albert_tf.training.evaluator
import albert_tf.training.run
from albert_tf import EvalSpec, RunConfig, TrainSpec
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from tests.training.conftest import HEADS_ALONE

STEPS = 12


def run_config(folder, **values):
    defaults = {
        "output_dir": str(folder),
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "learning_rate": 0.01,
        "num_warmup_steps": 2,
        "save_checkpoints_steps": 5,
        "log_every_steps": 3,
    }
    return RunConfig(**{**defaults, **values})


def make(folder, config, paths, **values):
    source = open_records(",".join(paths), config)
    estimator = Estimator(PretrainingTask(config, source), run_config(folder, **values))
    return estimator, TrainSpec(source.train_input_fn, STEPS, source.fingerprint), source


def weights_of(estimator):
    return {k: v.numpy() for k, v in estimator.model.named_weights().items()}


def logged(folder, split="train"):
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [x for x in lines if x["split"] == split]


def assert_same(a, b, tolerance=0.0):
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_config, record_paths):
    folder = tmp_path_factory.mktemp("uninterrupted")
    estimator, spec, _ = make(folder, tiny_config, record_paths)
    estimator.train(spec)
    return folder, weights_of(estimator)


class InterruptedRunError(Exception):
    pass


def interrupted_input_fn(context):
    raise InterruptedRunError


def interrupt_at(spec, step, action):
    """Calls `action` when the batch of `step` is asked for; what came before is trained on."""

    def input_fn(context):
        def count(i, batch):
            tf.py_function(lambda n: action() if n == step else None, [i], [])
            return batch

        dataset = spec.input_fn(context)
        return dataset.enumerate(context.start_step).map(count)

    return dataclasses.replace(spec, input_fn=input_fn)


@pytest.mark.parametrize(
    "steps_per_loop",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.smoke)],
)
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(
    tmp_path, tiny_config, record_paths, uninterrupted, steps_per_loop
):
    estimator, spec, _ = make(tmp_path, tiny_config, record_paths, steps_per_loop=steps_per_loop)

    def fail():
        raise InterruptedRunError

    with pytest.raises(tf.errors.OpError):
        estimator.train(interrupt_at(spec, 9, fail))
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"step": 9, "spl')  # A line cut off by the crash.
    resumed, spec, _ = make(tmp_path, tiny_config, record_paths, steps_per_loop=steps_per_loop)
    resumed.train(spec)
    assert_same(weights_of(resumed), uninterrupted[1])
    steps = [x["step"] for x in logged(tmp_path)]
    assert steps == [x["step"] for x in logged(uninterrupted[0])] and steps[-1] == STEPS
    reader = tf.train.load_checkpoint(str(tmp_path / "checkpoints"))
    reference = tf.train.load_checkpoint(str(uninterrupted[0] / "checkpoints"))
    slots = [k for k in reader.get_variable_to_shape_map() if "OPTIMIZER_SLOT" in k]
    assert len(slots) == 2 * len(uninterrupted[1])
    for key in slots:
        np.testing.assert_array_equal(reader.get_tensor(key), reference.get_tensor(key))


def test_no_training_where_another_process_trains(tmp_path, tiny_config, record_paths, hold):
    estimator, spec, _ = make(tmp_path / "run", tiny_config, record_paths)
    with hold(tmp_path / "run"):
        with pytest.raises(AlbertError, match=r"run is in use: process .* has been training there"):
            estimator.train(spec)
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.slow  # In test_stopped_evaluations.py, the signal is sent during an evaluation.
def test_sigterm_saves_and_the_run_resumes_to_the_same_end(
    tmp_path, tiny_config, record_paths, uninterrupted
):
    estimator, spec, _ = make(tmp_path, tiny_config, record_paths, steps_per_loop=1)
    stop = interrupt_at(spec, 6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit) as exit_info:
        estimator.train(stop)
    assert exit_info.value.code == 128 + signal.SIGTERM
    resumed, spec, _ = make(tmp_path, tiny_config, record_paths)
    resumed.train(spec)
    assert_same(weights_of(resumed), uninterrupted[1])


def test_time_spent_waiting_for_input_is_measured_and_warned_of_once(
    tmp_path, tiny_config, record_paths, capsys
):
    estimator, spec, _ = make(tmp_path, tiny_config, record_paths, **HEADS_ALONE)

    def slow_input_fn(context):
        def sleep(batch):
            with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.2), [], [])]):
                return {name: tf.identity(value) for name, value in batch.items()}

        return spec.input_fn(context).map(sleep)

    estimator.train(dataclasses.replace(spec, input_fn=slow_input_fn, max_steps=7))
    shares = [x["input_wait_share"] for x in logged(tmp_path) if "input_wait_share" in x]
    assert len(shares) == 3
    # Batches of the first period were read while the graph was built.
    assert all(0.0 <= share <= 1.0 for share in shares) and min(shares[1:]) > 0.1
    assert capsys.readouterr().err.count("Warning: before step") == 1


def test_a_finished_run_is_not_trained_again(uninterrupted, tiny_config, record_paths, capsys):
    folder, weights = uninterrupted
    estimator, spec, _ = make(folder, tiny_config, record_paths)
    estimator.train(spec)
    assert "already trained to step 12" in capsys.readouterr().out
    assert_same(weights_of(estimator), weights)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"learning_rate": 0.02}, "`learning_rate`=0.01 there"), ({"train_batch_size": 4}, "batch")],
)
def test_another_run_in_the_output_dir_is_refused(
    uninterrupted, tiny_config, record_paths, changes, named
):
    estimator, spec, _ = make(uninterrupted[0], tiny_config, record_paths, **changes)
    with pytest.raises(AlbertError, match=f"holds another run.*{named}"):
        estimator.train(spec)


def test_auto_precision_keeps_that_of_the_run_that_is_there(
    tmp_path, monkeypatch, uninterrupted, tiny_config, record_paths, capsys
):
    monkeypatch.setattr(albert_tf.training.evaluator, "fast_precision", lambda _: "mixed_bfloat16")
    folder = uninterrupted[0]
    estimator, spec, _ = make(folder, tiny_config, record_paths, precision="auto")
    assert estimator.config.precision == "float32"
    assert f"{folder} was trained in float32, which --precision=auto" in capsys.readouterr().out
    estimator.train(spec)
    assert "already trained to step 12" in capsys.readouterr().out
    explicit, spec, _ = make(folder, tiny_config, record_paths, precision="mixed_bfloat16")
    with pytest.raises(AlbertError, match="`precision`=float32 there, mixed_bfloat16 here"):
        explicit.train(spec)
    # What has no checkpoint is no run yet.
    (tmp_path / "run_config.json").write_text('{"run": {"precision": "float32"}}')
    estimator, *_ = make(tmp_path, tiny_config, record_paths, precision="auto")
    assert estimator.config.precision == "mixed_bfloat16"


def test_a_checkpoint_of_before_the_divergence_detector_is_resumed_with_a_new_one(
    tmp_path, uninterrupted, tiny_config, record_paths, capsys
):
    folder = tmp_path / "run"
    shutil.copytree(uninterrupted[0], folder)
    estimator, spec, _ = make(folder, tiny_config, record_paths)
    run = TrainingRun(estimator, spec, None)
    run.store.restore_newest()
    assert not run.memory.begun_anew
    weights = estimator.model.named_weights()
    state = {"skipped_steps": run.skipped}
    CheckpointStore(str(folder), weights, run.optimizer, state, 5).save(STEPS)
    again, spec, _ = make(folder, tiny_config, record_paths)
    again.train(spec)
    printed = capsys.readouterr().out
    assert "no history of loss, norm, masked_lm_loss, sentence_order_accuracy, as" in printed
    assert "already trained to step 12" in printed
    assert_same(weights_of(again), uninterrupted[1])


def test_a_run_that_saved_nothing_gives_way_to_another(tmp_path, tiny_config, record_paths):
    estimator, spec, _ = make(tmp_path, tiny_config, record_paths)
    with pytest.raises(InterruptedRunError):
        estimator.train(dataclasses.replace(spec, input_fn=interrupted_input_fn))
    assert (tmp_path / "run_config.json").exists()
    other, spec, _ = make(tmp_path, tiny_config, record_paths, learning_rate=0.02)
    with pytest.raises(InterruptedRunError):
        other.train(dataclasses.replace(spec, input_fn=interrupted_input_fn))
    assert json.loads((tmp_path / "run_config.json").read_text())["run"]["learning_rate"] == 0.02


@pytest.mark.slow  # By default, tests/distributed accumulates those of two devices.
def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path, tiny_config, record_paths):
    # Dropout differs by micro-batch, so it is off. For replicas see tests/distributed.
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    results, logs = [], []
    for parts in (1, 4):
        folder = tmp_path / str(parts)
        values = {"log_every_steps": 1, "gradient_accumulation_steps": parts}
        estimator, spec, _ = make(folder, config, record_paths, **values)
        estimator.train(spec)
        results.append(weights_of(estimator))
        logs.append(logged(folder))
    for entry, reference in zip(*reversed(logs)):
        for key in ("loss", "masked_lm_loss", "sentence_order_accuracy", "gradient_norm"):
            assert entry[key] == pytest.approx(reference[key], abs=1e-4), key
    assert_same(*results, tolerance=2e-4)


@pytest.mark.slow
def test_recomputation_changes_no_result_with_dropout_replicas_and_micro_batches(
    tmp_path, tiny_config, record_paths
):
    results = {}
    for name, recompute in (("kept", False), ("recomputed", True)):
        values = {"strategy": "mirrored", "gradient_accumulation_steps": 2, "recompute": recompute}
        estimator, spec, _ = make(tmp_path / name, tiny_config, record_paths, **values)
        estimator.train(spec)
        results[name] = weights_of(estimator)
    # The layers' gradients are added up in another order.
    assert_same(results["kept"], results["recomputed"], tolerance=1e-5)


def test_one_step_gives_the_gradient_of_the_official_loss(tmp_path, tiny_config, record_paths):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    estimator, spec, source = make(tmp_path, config, record_paths, num_warmup_steps=0)
    initial = weights_of(estimator)
    batch = next(iter(source.train_input_fn(InputContext(8))))
    with tf.GradientTape() as tape:
        inputs = ("input_word_ids", "input_mask", "input_type_ids", "masked_lm_positions")
        outputs = estimator.model({k: batch[k] for k in inputs}, training=True)
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(
            batch["masked_lm_ids"], outputs["mlm_logits"]
        )
        w = batch["masked_lm_weights"]
        loss = tf.reduce_sum(nll * w) / (tf.reduce_sum(w) + 1e-5)
        loss += tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["next_sentence_labels"], outputs["sop_logits"]
            )
        )
    gradients = tape.gradient(loss, list(estimator.model.named_weights().values()))
    norm = tf.linalg.global_norm([tf.convert_to_tensor(g) for g in gradients])
    estimator.train(dataclasses.replace(spec, max_steps=1))
    first = logged(tmp_path)[0]
    assert first["loss"] == pytest.approx(float(loss), abs=1e-5)
    assert first["gradient_norm"] == pytest.approx(float(norm), abs=1e-5)
    moved = {k for k, v in weights_of(estimator).items() if (v != initial[k]).any()}
    assert moved == set(initial)


def test_steps_that_are_not_finite_are_skipped_and_counted(tmp_path, tiny_config, record_paths):
    estimator, _, source = make(tmp_path, tiny_config, record_paths, **HEADS_ALONE)

    def poisoned(context):
        def poison(i, batch):
            factor = tf.where(tf.equal(i % 3, 1), np.nan, 1.0)
            return {**batch, "masked_lm_weights": batch["masked_lm_weights"] * factor}

        return source.train_input_fn(context).enumerate(context.start_step).map(poison)

    estimator.train(TrainSpec(poisoned, STEPS))
    assert logged(tmp_path)[-1]["skipped_steps"] == STEPS / 3
    assert all(np.isfinite(v).all() for v in weights_of(estimator).values())


@pytest.mark.slow  # tests/training/test_rollback.py counts such steps, too.
def test_a_run_that_only_skips_stops_and_names_the_last_good_checkpoint(
    tmp_path, tiny_config, record_paths
):
    estimator, _, source = make(
        tmp_path, tiny_config, record_paths, max_nonfinite_steps=3, steps_per_loop=2
    )

    def poisoned(context):
        def poison(i, batch):
            factor = tf.where(i >= 6, np.inf, 1.0)
            return {**batch, "masked_lm_weights": batch["masked_lm_weights"] * factor}

        return source.train_input_fn(context).enumerate(context.start_step).map(poison)

    with pytest.raises(AlbertError, match=r"3 steps in a row .* last good checkpoint is .*ckpt-5"):
        estimator.train(TrainSpec(poisoned, STEPS))


@pytest.mark.parametrize(
    ("batch_size", "strategy"),
    [pytest.param(8, "default", marks=pytest.mark.slow), (10, "mirrored")],
)
def test_evaluation_counts_every_example_once(
    tmp_path, tiny_config, record_paths, uninterrupted, batch_size, strategy
):
    one, _, source = make(tmp_path, tiny_config, record_paths, eval_batch_size=101)
    reference = one.evaluate(EvalSpec(source.eval_input_fn), str(uninterrupted[0]))
    other, _, _ = make(
        tmp_path, tiny_config, record_paths, eval_batch_size=batch_size, strategy=strategy
    )
    results = other.evaluate(EvalSpec(source.eval_input_fn), str(uninterrupted[0]))
    assert results == pytest.approx(reference, abs=1e-5)
    outputs = other.predict(source.eval_input_fn, str(uninterrupted[0]))
    assert {len(v) for v in outputs.values()} == {101}


def test_the_best_checkpoint_is_kept_apart_and_is_never_step_0(tmp_path, tiny_config, record_paths):
    estimator, spec, source = make(tmp_path, tiny_config, record_paths, **HEADS_ALONE)
    estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn, every_steps=4))
    evaluations = {x["step"]: x["masked_lm_accuracy"] for x in logged(tmp_path, "eval")}
    best = json.loads((tmp_path / "best" / "best.json").read_text())
    assert sorted(evaluations) == [4, 8, 12]
    assert best["value"] == max(evaluations.values()) == evaluations[best["step"]]
    files = sorted(p.name for p in (tmp_path / "best").iterdir())
    assert files == [
        "best.json",
        *(f"ckpt-{best['step']}{x}" for x in (".data-00000-of-00001", ".index")),
    ]
    again = Estimator(estimator.task, estimator.config)
    results = again.evaluate(EvalSpec(source.eval_input_fn))
    assert results["masked_lm_accuracy"] == pytest.approx(best["value"])


def test_a_run_stops_early_without_a_new_best_and_is_then_over(
    tmp_path, tiny_config, record_paths, capsys
):
    values = iter([0.1, 0.5, 0.4, 0.5, 0.3])

    def evaluations(source):
        return EvalSpec(source.eval_input_fn, every_steps=2)

    options = {**HEADS_ALONE, "early_stopping_evals": 2}
    estimator, spec, source = make(tmp_path, tiny_config, record_paths, **options)
    estimator.task.metrics = lambda *_: {"masked_lm_accuracy": next(values)}
    estimator.train_and_evaluate(spec, evaluations(source))
    assert "Stopped early at step 8" in capsys.readouterr().err
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-8")
    again, spec, source = make(tmp_path, tiny_config, record_paths, **options)
    again.train_and_evaluate(spec, evaluations(source))
    assert "no better masked_lm_accuracy than the 0.5000 of step 4" in capsys.readouterr().out
    assert next(values) == 0.3


def test_early_stopping_without_evaluations_is_refused(tmp_path, tiny_config, record_paths):
    estimator, spec, source = make(tmp_path, tiny_config, record_paths, early_stopping_evals=2)
    for eval_spec in (None, EvalSpec(source.eval_input_fn)):
        with pytest.raises(AlbertError, match=r"needs --do_eval and --eval_every_steps"):
            estimator.train_and_evaluate(spec, eval_spec)


@pytest.fixture(scope="module")
def bfloat16_run(tmp_path_factory, tiny_config, record_paths):
    """A finished run, and its weights."""
    folder = tmp_path_factory.mktemp("bfloat16")
    values = {**HEADS_ALONE, "save_checkpoints_steps": 2, "keep_checkpoint_max": 2}
    estimator, spec, _ = make(
        folder, tiny_config, record_paths, precision="mixed_bfloat16", **values
    )
    estimator.train(spec)
    return folder, weights_of(estimator)


def test_only_the_last_checkpoints_are_kept(bfloat16_run):
    kept = sorted(p.stem for p in (bfloat16_run[0] / "checkpoints").glob("*.index"))
    assert kept == ["ckpt-10", "ckpt-12"]


@pytest.mark.slow
def test_jit_compile_trains_alike(tmp_path, tiny_config, record_paths):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    losses = []
    for jit in (False, True):
        estimator, spec, _ = make(
            tmp_path / str(jit), config, record_paths, jit_compile=jit, log_every_steps=1
        )
        estimator.train(spec)
        losses.append([x["loss"] for x in logged(tmp_path / str(jit))])
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-4)


def test_mixed_bfloat16_keeps_float32_weights(bfloat16_run):
    folder, weights = bfloat16_run
    assert {value.dtype for value in weights.values()} == {np.dtype("float32")}
    assert np.isfinite(logged(folder)[-1]["loss"])


def test_a_batch_that_does_not_divide_is_refused(tmp_path, tiny_config, record_paths):
    with pytest.raises(AlbertError, match="train_batch_size=8 does not divide by 3"):
        make(tmp_path, tiny_config, record_paths, gradient_accumulation_steps=3)


@pytest.mark.parametrize(
    ("precision", "fast", "told"),
    [
        ("mixed_bfloat16", "float32", True),
        ("auto", "float32", False),
        ("mixed_bfloat16", "mixed_bfloat16", False),
        ("float32", "mixed_bfloat16", False),
    ],
)
def test_bfloat16_without_units_for_it_is_told(
    tmp_path, monkeypatch, capfd, tiny_config, record_paths, precision, fast, told
):
    for module in (albert_tf.training.evaluator, albert_tf.training.run):
        monkeypatch.setattr(module, "fast_precision", lambda strategy: fast)
    estimator, spec, _ = make(tmp_path, tiny_config, record_paths, precision=precision)
    with pytest.raises(InterruptedRunError):
        estimator.train(dataclasses.replace(spec, input_fn=interrupted_input_fn))
    assert ("several times as long as with --precision=float32" in capfd.readouterr().out) == told
