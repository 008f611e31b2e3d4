# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import RunConfig, TrainSpec
from albert_tf.errors import AlbertError
from albert_tf.keras2 import keras
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import PretrainingTask
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.divergence import Alarm
from albert_tf.training.estimator import Estimator
from albert_tf.training.rollback import Rollbacks
from tests.training.conftest import HEADS_ALONE
from tests.training.damage import DAMAGE

STEPS = 40


def alarm(step, onset):
    return Alarm("loss_spike", step, onset, "the loss jumped", "Do something.")


def test_each_rollback_halves_the_rate_and_passes_over_the_data_up_to_its_alarm(tmp_path):
    rollbacks = Rollbacks(str(tmp_path), True)
    assert (rollbacks.count, rollbacks.learning_rate_factor, rollbacks.skipped_batches) == (0, 1, 0)
    rollbacks.add(alarm(130, 120), 100)
    rollbacks.add(alarm(170, 160), 150)
    assert rollbacks.learning_rate_factor == 0.25
    assert rollbacks.skipped_batches == 30 + 20


def test_the_checkpoint_gone_back_to_is_the_newest_good_one_and_an_older_one_the_next_time(
    tmp_path,
):
    rollbacks = Rollbacks(str(tmp_path), True)
    steps = [50, 150, 100]
    assert rollbacks.target(alarm(130, 120), steps) == 100
    assert rollbacks.target(alarm(40, 30), steps) == 50  # All are from after it.
    assert rollbacks.target(alarm(40, 30), []) is None
    rollbacks.add(alarm(130, 120), 100)
    assert rollbacks.target(alarm(130, 120), [50, 100]) == 50
    assert rollbacks.target(alarm(180, 170), [50, 100, 150]) == 150
    assert rollbacks.target(alarm(130, 120), [100]) == 100


def test_a_resumed_run_is_subject_to_the_rollbacks_of_its_checkpoint(tmp_path):
    rollbacks = Rollbacks(str(tmp_path), True)
    rollbacks.add(alarm(130, 120), 100)
    rollbacks.add(alarm(130, 120), 50)

    def resumed(step, count):
        other = Rollbacks(str(tmp_path), True)
        other.resume(step, count)
        return other.count

    assert resumed(50, 0) == 2  # Saved before both, which led back to it.
    assert resumed(60, 2) == 2
    assert resumed(25, 0) == 0  # An older one, the newer being damaged: all comes again.
    rollbacks.forget()
    assert resumed(50, 0) == 0


@pytest.mark.parametrize("relative", [False, True])
def test_forgotten_checkpoints_are_gone_and_saving_goes_on(tmp_path, monkeypatch, relative):
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


class InterruptedRunError(Exception):
    pass


def bad_batches(source, begin, end):
    """The training data, of which some batches give a loss that is not finite."""

    def input_fn(context):
        def spoil(i, batch):
            factor = tf.where((i >= begin) & (i < end), np.inf, 1.0)
            return {**batch, "masked_lm_weights": batch["masked_lm_weights"] * factor}

        return source.train_input_fn(context).enumerate(context.start_step).map(spoil)

    return input_fn


def train(folder, config, records, begin=22, end=26, **values):
    source = open_records(",".join(records), config)
    options = {
        "train_batch_size": 8,
        "learning_rate": 0.01,
        "num_warmup_steps": 5,
        "save_checkpoints_steps": 10,
        "log_every_steps": 1,
        "max_nonfinite_steps": 3,
        "on_divergence": "rollback",
        **HEADS_ALONE,
    }
    run_config = RunConfig(output_dir=str(folder), **{**options, **values})
    estimator = Estimator(PretrainingTask(config, source), run_config)
    estimator.train(TrainSpec(bad_batches(source, begin, end), STEPS, source.fingerprint))


def end_state(folder):
    reader = tf.train.load_checkpoint(str(folder / f"checkpoints/ckpt-{STEPS}"))
    names = [k for k in reader.get_variable_to_shape_map() if k.endswith("VARIABLE_VALUE")]
    state = {k: reader.get_tensor(k) for k in names if "save_counter" not in k}
    assert len(state) > 40
    return state


def learning_curve(folder):
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    entries = [x for x in lines if x["split"] == "train"]
    names = ("step", "loss", "gradient_norm", "learning_rate", "skipped_steps")
    return [tuple(x[name] for name in names) for x in entries]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_config, record_paths):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder, tiny_config, record_paths)
    return folder


def test_bad_data_are_passed_over(uninterrupted):
    (entry,) = json.loads((uninterrupted / "rollbacks.json").read_text())
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


def interrupted_after(self, alarm, to_step, add=Rollbacks.add):
    add(self, alarm, to_step)
    raise InterruptedRunError


def interrupted_in_the_second_attempt(self, step, save=CheckpointStore.save):
    path = save(self, step)
    if step == 30:
        raise InterruptedRunError
    return path


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        pytest.param(Rollbacks, "add", interrupted_before, marks=pytest.mark.slow),
        pytest.param(Rollbacks, "add", interrupted_after, marks=pytest.mark.slow),
        (CheckpointStore, "save", interrupted_in_the_second_attempt),
    ],
)
def test_resumed_around_a_rollback_equals_uninterrupted_bit_for_bit(
    tmp_path, monkeypatch, tiny_config, record_paths, uninterrupted, owner, name, replacement
):
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, replacement)
        with pytest.raises(InterruptedRunError):
            train(tmp_path, tiny_config, record_paths)
    train(tmp_path, tiny_config, record_paths, steps_per_loop=3)
    expected, found = end_state(uninterrupted), end_state(tmp_path)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    record = (tmp_path / "rollbacks.json").read_text()
    assert record == (uninterrupted / "rollbacks.json").read_text()
    assert learning_curve(tmp_path) == learning_curve(uninterrupted)


@pytest.mark.slow  # test_damaged_checkpoints.py finds one that is whole.
def test_a_damaged_checkpoint_is_not_gone_back_to(
    tmp_path, monkeypatch, capsys, tiny_config, record_paths
):
    def save_and_damage(self, step, save=CheckpointStore.save):
        path = save(self, step)
        if step == 20:
            DAMAGE["zeros"](Path(f"{path}.data-00000-of-00001"))
        return path

    monkeypatch.setattr(CheckpointStore, "save", save_and_damage)
    train(tmp_path, tiny_config, record_paths)
    (entry,) = json.loads((tmp_path / "rollbacks.json").read_text())
    assert (entry["step"], entry["to_step"], entry["skipped_batches"]) == (25, 10, 15)
    assert "ckpt-20isdamaged" in "".join(capsys.readouterr().err.split())
    end_state(tmp_path)


def test_three_rollbacks_that_do_not_help_are_the_end(tmp_path, tiny_config, record_paths):
    with pytest.raises(AlbertError, match=r"last good checkpoint is .*3 rollbacks did not help"):
        train(tmp_path, tiny_config, record_paths, end=10_000)
    entries = json.loads((tmp_path / "rollbacks.json").read_text())
    assert [entry["to_step"] for entry in entries] == [20, 10, 0]
    assert [entry["learning_rate_factor"] for entry in entries] == [0.5, 0.25, 0.125]


@pytest.mark.slow  # The third rollback of the test above goes back to the beginning, too.
def test_before_the_first_checkpoint_the_run_goes_back_to_its_beginning(
    tmp_path, tiny_config, record_paths
):
    train(tmp_path, tiny_config, record_paths, begin=2, end=5)
    (entry,) = json.loads((tmp_path / "rollbacks.json").read_text())
    assert (entry["step"], entry["to_step"]) == (5, 0)
    end_state(tmp_path)


@pytest.mark.slow
def test_replicas_roll_back_together(tmp_path, tiny_config, record_paths, uninterrupted):
    train(tmp_path, tiny_config, record_paths, strategy="mirrored")
    record = (tmp_path / "rollbacks.json").read_text()
    assert record == (uninterrupted / "rollbacks.json").read_text()
    rates = [[entry[3] for entry in learning_curve(x)] for x in (tmp_path, uninterrupted)]
    assert rates[0] == rates[1]
