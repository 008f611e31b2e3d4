# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of run_pretraining.py that diverge because of their learning rate or their data."""

from __future__ import annotations

import json
import math
import re

import pytest

import run_pretraining
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tasks.pretraining.task import masked_lm_entropy
from tests.training.runs import logged

TOO_HIGH = ("--learning_rate=0.5", "--num_warmup_steps=200", "--num_train_steps=200")
ROSE = r"the loss rose from \S+, its lowest running median, to \S+ between steps"


@pytest.fixture
def run(run_script, tiny_config, chance_records):
    def run(folder, *flags):
        folder.mkdir(exist_ok=True)
        tiny_config.to_json(str(folder / "config.json"))
        return run_script(
            run_pretraining,
            f"--input_file={chance_records}",
            f"--albert_config_file={folder / 'config.json'}",
            f"--output_dir={folder / 'run'}",
            "--train_batch_size=16",
            "--save_checkpoints_steps=25",
            "--keep_checkpoint_max=8",
            "--log_every_steps=10",
            *flags,
        )

    return run


def joined(text):
    """Printed text without its line breaks."""
    return " ".join(text.split())


def test_the_entropy_of_the_masked_pieces_is_that_of_their_frequencies(tiny_config, chance_records):
    source = open_records(chance_records, tiny_config)
    # Uniform over 35 pieces; the estimate is off by 1 / sqrt(predictions) at most.
    assert masked_lm_entropy(source) == pytest.approx(math.log(35), abs=0.01)
    assert masked_lm_entropy(source, predictions=500) == pytest.approx(math.log(35), abs=0.05)


@pytest.mark.slow
def test_a_learning_rate_that_is_too_high_is_warned_of_once_for_each_cause(run, tmp_path):
    done = run(tmp_path, *TOO_HIGH)
    assert done.returncode == 0
    text = joined(done.stderr)
    for cause in ("the loss rose", "the gradient norm exploded"):
        assert len(re.findall(f"Warning: {cause} from .* to .* between steps", text)) == 1
    assert "Lower the learning rate or lengthen the warm-up." in text
    assert logged(tmp_path / "run")[-1]["step"] == 200


def test_stop_ends_a_divergent_run_and_names_the_last_good_checkpoint(run, tmp_path):
    done = run(tmp_path, *TOO_HIGH, "--on_divergence=stop")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    text = joined(done.stderr)
    match = re.search(rf"{ROSE} (\d+) and (\d+)", text)
    onset, step = map(int, match.groups())
    good = 25 * (onset // 25)
    assert f"last good checkpoint is {tmp_path}/run/checkpoints/ckpt-{good}. Lower" in text
    assert not (tmp_path / f"run/checkpoints/ckpt-{25 * (step // 25 + 1)}.index").exists()


@pytest.mark.slow
def test_a_stopped_run_ends_with_the_same_error_when_it_is_resumed(run, tmp_path):
    first, again = (run(tmp_path, *TOO_HIGH, "--on_divergence=stop") for _ in range(2))
    match = re.search(ROSE, joined(first.stderr))
    assert again.returncode == 1 and match.group() in joined(again.stderr)


@pytest.mark.slow
def test_objectives_that_stay_at_chance_are_named_once_each(run, tmp_path):
    # Labels and pieces are drawn at random: there is nothing to learn.
    flags = (
        "--train_batch_size=800",
        "--learning_rate=0.005",
        "--num_warmup_steps=10",
        "--save_checkpoints_steps=1000",
        "--log_every_steps=100",
    )
    done = run(tmp_path, *flags, "--num_train_steps=510")
    assert done.returncode == 0
    text = joined(done.stderr)
    assert len(re.findall(r"Warning: the masked LM loss is 3\.\d+ in the 500 steps", text)) == 1
    assert "before step 510, where 3.55" in text
    assert len(re.findall(r"Warning: the sentence order accuracy is (49|50)\.\d%", text)) == 1
    assert "sop_weight=0" in text
    assert "loss rose" not in text and "exploded" not in text


@pytest.mark.slow  # test_rollback.py has steps that are not finite.
def test_rollbacks_lower_the_rate_and_skip_data_until_the_run_recovers(run, tmp_path):
    done = run(tmp_path, *TOO_HIGH, "--on_divergence=rollback")
    assert done.returncode == 0, done.stderr
    entries = json.loads((tmp_path / "run/rollbacks.json").read_text())
    assert 1 <= len(entries) <= 3
    skipped = 0
    for number, entry in enumerate(entries, 1):
        assert entry["cause"] in ("loss_spike", "gradient_explosion")
        assert entry["learning_rate_factor"] == 0.5**number
        assert entry["to_step"] % 25 == 0 and entry["to_step"] < entry["step"]
        skipped += entry["step"] - entry["to_step"]
        assert entry["skipped_batches"] == skipped
    assert joined(done.stderr).count("Diverged: ") == len(entries)
    entries_of_log = logged(tmp_path / "run")
    steps = [entry["step"] for entry in entries_of_log]
    assert steps == sorted(set(steps)) and steps[-1] == 200
    assert all(entry["loss"] < 6 for entry in entries_of_log)
    (at_190,) = (entry for entry in entries_of_log if entry["step"] == 190)
    assert at_190["learning_rate"] == pytest.approx(0.5 * 189 / 200 * 0.5 ** len(entries))
