# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.divergence import Alarm, DivergenceDetector
from albert_tf.training.rollback import DivergenceGuard
from tests.training.conftest import HEADS_ALONE
from tests.training.damage import DAMAGE, stored
from tests.training.runs import InterruptedRunError, logged, saved_steps, with_bad_steps

STEPS = 40


def alarm(step, onset):
    return Alarm("loss_spike", step, onset, "the loss rose", "Do something.")


@pytest.fixture
def new_guard(tmp_path):
    def new_guard():
        config = RunConfig(str(tmp_path))
        detector = DivergenceDetector((), config, max_steps=1000)
        return DivergenceGuard(detector, config, tf.distribute.get_strategy(), print)

    return new_guard


def test_each_rollback_halves_the_rate_and_skips_the_data_up_to_its_alarm(new_guard, tmp_path):
    guard = new_guard()
    assert guard.skipped_batches == 0 and guard.learning_rate_factor.numpy() == 1
    guard.record(alarm(130, 120), 100)
    guard.record(alarm(170, 160), 150)
    assert guard.skipped_batches == 30 + 20
    entries = json.loads((tmp_path / "rollbacks.json").read_text())
    assert [entry["learning_rate_factor"] for entry in entries] == [0.5, 0.25]


def test_a_rollback_goes_to_the_newest_good_checkpoint_and_the_next_time_to_an_older_one(new_guard):
    guard = new_guard()
    steps = [50, 150, 100]
    assert guard.target(alarm(130, 120), steps) == 100
    assert guard.target(alarm(40, 30), steps) == 50  # All checkpoints are newer.
    assert guard.target(alarm(40, 30), []) is None
    guard.record(alarm(130, 120), 100)
    assert guard.target(alarm(130, 120), [50, 100]) == 50
    assert guard.target(alarm(180, 170), [50, 100, 150]) == 150
    assert guard.target(alarm(130, 120), [100]) == 100


def test_a_resumed_run_applies_the_rollbacks_of_its_checkpoint(new_guard):
    guard = new_guard()
    guard.record(alarm(130, 120), 100)
    guard.record(alarm(130, 120), 50)

    def factor(step, count):
        resumed = new_guard()
        resumed.deserialize(json.dumps({"rollbacks": count}))
        resumed.resume(step)
        return resumed.learning_rate_factor.numpy()

    assert factor(50, 0) == 0.25  # Saved before both rollbacks, which led back to it.
    assert factor(60, 2) == 0.25
    assert factor(25, 0) == 1  # The newer ones were damaged: the rollbacks will happen again.
    with pytest.raises(AlbertError, match=r"step 60 comes after 3 rollbacks, but .*json has 2; "):
        factor(60, 3)
    guard.begin()
    assert factor(50, 0) == 1


def test_checkpoints_after_the_one_gone_back_to_are_forgotten(new_guard, tmp_path):
    guard, weights = new_guard(), {"w": tf.Variable(0.0)}
    optimizer = keras.optimizers.legacy.SGD()
    store = CheckpointStore(str(tmp_path), weights, optimizer, {"guard": guard}, keep_max=4)
    for step in (10, 20, 30):
        weights["w"].assign(step)
        store.save(step)
    assert guard.roll_back(alarm(35, 25), store) == 20
    assert weights["w"].numpy() == 20
    assert list(store.kept()) == [10, 20]
    assert saved_steps(tmp_path) == [10, 20]


@pytest.mark.parametrize("relative", [False, True])
def test_forgotten_checkpoints_are_gone_and_saving_continues(tmp_path, monkeypatch, relative):
    monkeypatch.chdir(tmp_path)
    folder = "run" if relative else str(tmp_path / "run")
    weights = {"w": tf.Variable(0.0)}
    optimizer = keras.optimizers.legacy.SGD()
    store = CheckpointStore(folder, weights, optimizer, {}, keep_max=4)
    for step in (10, 20, 30):
        weights["w"].assign(step)
        store.save(step)
    store.forget_after(20)
    assert list(store.kept()) == [10, 20]
    assert not list((tmp_path / "run/checkpoints").glob("ckpt-30*"))
    assert tf.train.latest_checkpoint(f"{folder}/checkpoints").endswith("ckpt-20")
    store.restore(store.latest())
    assert weights["w"].numpy() == 20
    for step in (25, 30, 35):
        store.save(step)
    assert list(store.kept()) == [20, 25, 30, 35]
    assert not list((tmp_path / "run/checkpoints").glob("ckpt-10*"))
    moved = tmp_path / "moved"
    (tmp_path / "run").rename(moved)
    assert CheckpointStore(str(moved), weights, optimizer, {}, 4).latest().endswith("ckpt-35")


@pytest.fixture(scope="module")
def train(make):
    """Trains on data with some batches whose loss is not finite, and rolls back."""

    def train(folder, begin=22, end=26, **values):
        settings = {
            "num_warmup_steps": 5,
            "save_checkpoints_steps": 10,
            "log_every_steps": 1,
            "max_nonfinite_steps": 3,
            "on_divergence": "rollback",
            **HEADS_ALONE,
            **values,
        }
        estimator, spec, _ = make(folder, steps=STEPS, **settings)
        estimator.train(with_bad_steps(spec, lambda i: (i >= begin) & (i < end)))

    return train


def end_state(folder):
    state = stored(folder / f"checkpoints/ckpt-{STEPS}")
    return {name: value for name, value in state.items() if name.endswith("VARIABLE_VALUE")}


def learning_curve(folder):
    names = ("step", "loss", "gradient_norm", "learning_rate", "skipped_steps")
    return [tuple(entry[name] for name in names) for entry in logged(folder)]


def rollbacks(folder):
    return json.loads((folder / "rollbacks.json").read_text())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, train):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder)
    return folder


def test_a_rollback_skips_bad_data(uninterrupted):
    (entry,) = rollbacks(uninterrupted)
    assert entry.pop("text").startswith("3 steps in a row before step 25 gave a loss or gradient")
    assert entry == {
        "cause": "not_finite",
        "step": 25,
        "to_step": 20,
        "learning_rate_factor": 0.5,
        "skipped_batches": 5,
    }
    curve = learning_curve(uninterrupted)
    assert [step for step, *_ in curve] == list(range(1, STEPS + 1))
    # The last of the four bad batches is the first of the second attempt.
    assert [skipped for *_, skipped in curve] == [0] * 20 + [1] * 20


def interrupted_before(_, alarm, to_step):
    raise InterruptedRunError


def interrupted_after(self, alarm, to_step, record=DivergenceGuard.record):
    record(self, alarm, to_step)
    raise InterruptedRunError


def interrupted_in_the_second_attempt(self, step, save=CheckpointStore.save):
    path = save(self, step)
    if step == 30:
        raise InterruptedRunError
    return path


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        pytest.param(DivergenceGuard, "record", interrupted_before, marks=pytest.mark.slow),
        pytest.param(DivergenceGuard, "record", interrupted_after, marks=pytest.mark.slow),
        (CheckpointStore, "save", interrupted_in_the_second_attempt),
    ],
)
def test_a_run_resumed_around_a_rollback_equals_the_uninterrupted_one_bit_for_bit(
    tmp_path, monkeypatch, train, uninterrupted, owner, name, replacement
):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, replacement)
        with pytest.raises(InterruptedRunError):
            train(tmp_path)
    train(tmp_path, steps_per_loop=3)
    assert len(end_state(tmp_path)) > 40
    assert end_state(tmp_path) == end_state(uninterrupted)
    assert rollbacks(tmp_path) == rollbacks(uninterrupted)
    assert learning_curve(tmp_path) == learning_curve(uninterrupted)


@pytest.mark.slow  # test_damaged_checkpoints.py covers restoring the one before.
def test_a_rollback_passes_over_a_damaged_checkpoint(tmp_path, monkeypatch, capsys, train):
    def save_and_damage(self, step, save=CheckpointStore.save):
        path = save(self, step)
        if step == 20:
            DAMAGE["zeros"](Path(f"{path}.data-00000-of-00001"))
        return path

    monkeypatch.setattr(CheckpointStore, "save", save_and_damage)
    train(tmp_path)
    (entry,) = rollbacks(tmp_path)
    assert (entry["step"], entry["to_step"], entry["skipped_batches"]) == (25, 10, 15)
    assert "ckpt-20isdamaged" in "".join(capsys.readouterr().err.split())
    assert len(end_state(tmp_path)) > 40


def test_a_run_ends_after_three_rollbacks_that_do_not_help(tmp_path, train):
    with pytest.raises(AlbertError, match=r"last good checkpoint is .*3 rollbacks did not help"):
        train(tmp_path, end=10_000)
    assert [entry["to_step"] for entry in rollbacks(tmp_path)] == [20, 10, 0]
    assert [entry["learning_rate_factor"] for entry in rollbacks(tmp_path)] == [0.5, 0.25, 0.125]


@pytest.mark.slow  # The third rollback of the test above goes back to the beginning, too.
def test_before_the_first_checkpoint_the_run_goes_back_to_its_beginning(tmp_path, train):
    train(tmp_path, begin=2, end=5)
    (entry,) = rollbacks(tmp_path)
    assert (entry["step"], entry["to_step"]) == (5, 0)
    assert len(end_state(tmp_path)) > 40


@pytest.mark.slow
def test_replicas_roll_back_together(tmp_path, train, uninterrupted):
    train(tmp_path, strategy="mirrored")
    assert rollbacks(tmp_path) == rollbacks(uninterrupted)
    rates = [[entry[3] for entry in learning_curve(x)] for x in (tmp_path, uninterrupted)]
    assert rates[0] == rates[1]
