# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of run_pretraining.py that diverge because of their learning rate, and one that does not."""

from __future__ import annotations

import re

import pytest

from albert_tf.scripts import run_pretraining
from tests.training.runs import logged, saved_steps

TOO_HIGH = ("--learning_rate=0.5", "--num_warmup_steps=200", "--num_train_steps=200")
ROSE = r"the mean loss of the 50 steps up to step (\d+) is \S+, after \S+ up to step (\d+) and \S+"


@pytest.fixture
def run(run_script, tiny_config, chance_records):
    def run(folder, *flags):
        folder.mkdir(exist_ok=True)
        tiny_config.to_json(str(folder / "config.json"))
        done = run_script(
            run_pretraining,
            f"--input_file={chance_records}",
            f"--albert_config_file={folder / 'config.json'}",
            f"--output_dir={folder / 'run'}",
            "--train_batch_size=16",
            "--save_checkpoints_steps=25",
            "--keep_checkpoint_max=8",
            *flags,
        )
        return done.returncode, " ".join(done.stderr.split())  # Without line breaks.

    return run


def test_a_learning_rate_that_is_too_high_is_warned_of_once(run, tmp_path):
    status, text = run(tmp_path, *TOO_HIGH)
    assert status == 0
    assert len(re.findall(f"Warning: {ROSE} at first. Lower the learning rate or ", text)) == 1
    assert text.count("Warning: the mean loss") == 1
    assert logged(tmp_path / "run")[-1]["step"] == 200


def test_stop_ends_it_and_names_the_last_good_checkpoint_again_when_it_is_resumed(run, tmp_path):
    (status, text), (again, resumed) = (
        run(tmp_path, *TOO_HIGH, "--on_divergence=stop") for _ in range(2)
    )
    assert status == again == 1 and "Traceback" not in text
    step, best = map(int, re.search(ROSE, text).groups())
    assert f"last good checkpoint is {tmp_path}/run/checkpoints/ckpt-{best}. Lower" in text
    assert max(saved_steps(tmp_path / "run")) < step
    assert re.search(ROSE, resumed).group() == re.search(ROSE, text).group()


def test_a_run_that_learns_nothing_but_frequencies_is_not_warned_of(run, tmp_path):
    flags = ("--learning_rate=0.005", "--num_warmup_steps=10", "--num_train_steps=200")
    status, text = run(tmp_path, *flags)
    assert status == 0 and "Warning: the mean loss" not in text
