# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import concurrent.futures
import gc
import json
import os
import random
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import albert_tf.training.estimator
import albert_tf.training.run
from albert_tf import EvalSpec
from albert_tf.data.context import InputContext
from albert_tf.errors import AlbertError
from albert_tf.io.signals import STOP_SIGNALS
from albert_tf.training.checkpoints import CheckpointStore
from tests.training.conftest import HEADS_ALONE, NO_DROPOUT
from tests.training.damage import stored
from tests.training.runs import (
    STEPS,
    assert_same,
    fail,
    interrupted_at,
    logged,
    saved_steps,
    weights_of,
    with_action,
    with_bad_steps,
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, make):
    """The folder and the weights of a finished run."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    estimator, spec, _ = make(folder)
    estimator.train_and_evaluate(spec)
    return folder, weights_of(estimator)


@pytest.mark.parametrize(
    "loop_seconds",
    [pytest.param(0.0, marks=pytest.mark.slow), pytest.param(5.0, marks=pytest.mark.smoke)],
)
def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(
    tmp_path, make, uninterrupted, monkeypatch, loop_seconds
):
    monkeypatch.setattr(albert_tf.training.run, "LOOP_SECONDS", loop_seconds)
    estimator, spec, _ = make(tmp_path)
    with pytest.raises(tf.errors.OpError):
        estimator.train_and_evaluate(interrupted_at(spec, 9, fail))
    with open(tmp_path / "metrics.jsonl", "a") as f:
        f.write('{"step": 9, "spl')  # A line cut off by the crash.
    resumed, spec, _ = make(tmp_path)
    resumed.train_and_evaluate(spec)
    assert_same(weights_of(resumed), uninterrupted[1])
    steps = [entry["step"] for entry in logged(tmp_path)]
    assert steps == [entry["step"] for entry in logged(uninterrupted[0])] and steps[-1] == STEPS
    slots, expected = (
        {k: v for k, v in stored(folder / "checkpoints").items() if "adam_" in k}
        for folder in (tmp_path, uninterrupted[0])
    )
    assert slots == expected and len(slots) == 2 * len(uninterrupted[1])


def test_no_training_where_another_process_trains(tmp_path, make, hold):
    estimator, spec, _ = make(tmp_path / "run")
    with hold(tmp_path / "run"):
        with pytest.raises(AlbertError, match=r"run is in use by process "):
            estimator.train_and_evaluate(spec)
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_each_signal_ends_a_run_with_a_checkpoint(tmp_path, make, number):
    estimator, spec, _ = make(tmp_path, log_every_steps=1, **HEADS_ALONE)
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with pytest.raises(expected) as exit_info:
        estimator.train_and_evaluate(interrupted_at(spec, 6, lambda: os.kill(os.getpid(), number)))
    assert number == signal.SIGINT or exit_info.value.code == 128 + number
    assert 6 <= saved_steps(tmp_path)[-1] < STEPS


def test_a_second_interrupt_ends_training_at_once_but_not_the_process(tmp_path, make, monkeypatch):
    saved = []

    def interrupted_save(store, step):
        time.sleep(0.6)
        os.kill(os.getpid(), signal.SIGINT)
        saved.append(step)

    monkeypatch.setattr(CheckpointStore, "save", interrupted_save)
    estimator, spec, _ = make(tmp_path, log_every_steps=1, **HEADS_ALONE)
    with pytest.raises(KeyboardInterrupt):
        estimator.train_and_evaluate(
            interrupted_at(spec, 0, lambda: os.kill(os.getpid(), signal.SIGINT))
        )
    assert not saved


@pytest.mark.slow
def test_threads_that_train_in_two_folders_do_not_change_each_other(tmp_path, make):
    def train(precision, name):
        estimator, spec, _ = make(tmp_path / f"{precision}-{name}", steps=3, precision=precision)
        estimator.train_and_evaluate(spec)
        return weights_of(estimator)

    precisions = ["float32", "mixed_bfloat16"]
    alone = [train(precision, "alone") for precision in precisions]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        together = list(threads.map(train, precisions, ["together"] * 2))
    for weights, expected in zip(together, alone):
        assert_same(weights, expected)
    assert any(np.any(alone[0][name] != alone[1][name]) for name in alone[0])


@pytest.mark.parametrize("strategy", ["default", pytest.param("mirrored", marks=pytest.mark.slow)])
def test_the_graphs_of_a_run_are_freed(tmp_path, make, strategy):
    def train(name):
        settings = {**HEADS_ALONE, "strategy": strategy, "steps": 2}
        estimator, spec, source = make(tmp_path / name, **settings)
        estimator.train_and_evaluate(spec, EvalSpec(source.eval_input_fn))

    def live_graphs():
        gc.collect()
        return sum(issubclass(type(value), tf.Graph) for value in gc.get_objects())

    train("first")  # Compiles the kernels, which the process keeps.
    kept = live_graphs()
    train("second")
    assert live_graphs() == kept


def test_waiting_for_input_is_measured(tmp_path, make):
    estimator, spec, _ = make(tmp_path, steps=7, **HEADS_ALONE)
    estimator.train_and_evaluate(with_action(spec, lambda _: time.sleep(0.2)))
    shares = [x["input_wait_share"] for x in logged(tmp_path) if "input_wait_share" in x]
    assert len(shares) == 3
    # Batches of the first period were read while the graph was built.
    assert all(0.0 <= share <= 1.0 for share in shares) and min(shares[1:]) > 0.1


def test_auto_precision_keeps_that_of_an_existing_run(
    tmp_path, monkeypatch, make, uninterrupted, capsys
):
    fast = "mixed_bfloat16", "float32"
    monkeypatch.setattr(albert_tf.training.estimator, "fast_precisions", lambda _: fast)
    folder = uninterrupted[0]
    estimator, spec, _ = make(folder, precision="auto")
    assert estimator.config.precision == "float32"
    estimator.train_and_evaluate(spec)
    assert "already trained to step 12" in capsys.readouterr().out
    explicit, spec, _ = make(folder, precision="mixed_bfloat16")
    with pytest.raises(AlbertError, match="`precision`=float32 there, mixed_bfloat16 here"):
        explicit.train_and_evaluate(spec)
    # Nor without a checkpoint: it is the same run.
    run = {"run": {"precision": "float32"}, "task": {}, "train": {}}
    (tmp_path / "run_config.json").write_text(json.dumps(run))
    estimator, *_ = make(tmp_path, precision="auto")
    assert estimator.config.precision == "float32"


def test_one_step_takes_the_gradient_of_the_official_loss(tmp_path, make):
    estimator, spec, source = make(tmp_path, NO_DROPOUT, steps=1, num_warmup_steps=0)
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
    estimator.train_and_evaluate(spec)
    first = logged(tmp_path)[0]
    assert first["loss"] == pytest.approx(float(loss), abs=1e-5)
    assert first["gradient_norm"] == pytest.approx(float(norm), abs=1e-5)
    moved = {k for k, v in weights_of(estimator).items() if (v != initial[k]).any()}
    assert moved == set(initial)


def test_a_run_that_only_skips_stops_and_names_the_last_good_checkpoint(tmp_path, make):
    estimator, spec, _ = make(tmp_path, steps=30)
    with pytest.raises(AlbertError, match=r"10 steps in a row .* last good checkpoint is .*ckpt-5"):
        estimator.train_and_evaluate(with_bad_steps(spec, lambda i: i >= 6))


@pytest.mark.parametrize(
    ("batch_size", "strategy"),
    [pytest.param(8, "default", marks=pytest.mark.slow), (10, "mirrored")],
)
def test_evaluation_counts_every_example_once(tmp_path, make, uninterrupted, batch_size, strategy):
    one, _, source = make(tmp_path, eval_batch_size=101)
    reference = one.evaluate(EvalSpec(source.eval_input_fn), str(uninterrupted[0]))
    other, _, _ = make(tmp_path, eval_batch_size=batch_size, strategy=strategy)
    results = other.evaluate(EvalSpec(source.eval_input_fn), str(uninterrupted[0]))
    assert results == pytest.approx(reference, abs=1e-5)
    outputs = other.predict(source.eval_input_fn, str(uninterrupted[0]))
    assert {len(v) for v in outputs.values()} == {101}


def test_the_callers_random_numbers_go_on(tmp_path, make):
    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    make(tmp_path)
    assert (random.random(), np.random.random()) == expected


def test_a_batch_that_does_not_divide_is_refused(tmp_path, make):
    estimator, spec, _ = make(tmp_path, gradient_accumulation_steps=3)
    message = (
        r"`train_batch_size`=8 is not divisible by 3 \(replicas × `gradient_accumulation_steps`\)"
    )
    with pytest.raises(AlbertError, match=message):
        estimator.train_and_evaluate(spec)
    estimator, _, source = make(tmp_path, strategy="mirrored", eval_batch_size=9)
    with pytest.raises(
        AlbertError, match=r"`eval_batch_size`=9 is not divisible by \d \(replicas\)"
    ):
        estimator.outputs(EvalSpec(source.eval_input_fn))
