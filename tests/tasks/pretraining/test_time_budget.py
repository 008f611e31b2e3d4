# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans for pretraining within a given time."""

from __future__ import annotations

import pytest

from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.time_budget import (
    SHORT_FOLDER,
    Outline,
    load_plan,
    make_plan,
    outline_stages,
    save_plan,
)
from albert_tf.training.specs import RunConfig


def duration(stage, seconds_per_position):
    return (
        stage.num_train_steps
        * stage.train_batch_size
        * stage.max_seq_length
        * seconds_per_position[stage.max_seq_length]
    )


def whole_run(length):
    """The stage of masked records."""
    return outline_stages(length, is_compact=False)


def test_compact_records_begin_short_and_have_many_masks():
    short, last = outline_stages(128, is_compact=True)
    assert (short.max_seq_length, short.masked_lm_prob, short.ngram) == (32, 0.4, 1)
    assert (last.max_seq_length, last.masked_lm_prob, last.ngram) == (128, 0.4, 1)
    assert short.learning_rate > last.learning_rate
    assert short.time_share + last.time_share == 1


def test_short_compact_records_have_the_first_stage_only():
    (only,) = outline_stages(48, is_compact=True)
    assert only == Outline(48, 0.4, 1, 1.0, outline_stages(128, is_compact=True)[0].learning_rate)


def test_masked_records_keep_their_length_and_masks():
    (only,) = whole_run(128)
    assert only == Outline(
        128, None, None, 1.0, outline_stages(128, is_compact=True)[1].learning_rate
    )


@pytest.mark.parametrize("minutes", [5, 60, 600])
def test_the_stages_fill_the_time_with_steps_of_a_fitting_size(minutes):
    rates = {32: 1e-4, 128: 1.5e-4}
    outlines = outline_stages(128, is_compact=True)
    step_seconds = [
        outline.batch_size * outline.max_seq_length * rates[outline.max_seq_length]
        for outline in outlines
    ]
    short, last = make_plan(60 * minutes, outlines, step_seconds)
    share = outlines[0].time_share
    assert duration(short, rates) == pytest.approx(60 * minutes * share, rel=0.01)
    assert duration(short, rates) + duration(last, rates) == pytest.approx(60 * minutes, rel=0.01)
    assert (short.folder, last.folder) == (SHORT_FOLDER, "")
    assert last.is_last and not short.is_last
    for stage, outline in zip((short, last), outlines):
        assert 0 < stage.num_warmup_steps < stage.num_train_steps <= 12_000
        assert (stage.masked_lm_prob, stage.ngram) == (outline.masked_lm_prob, outline.ngram)
    positions = last.train_batch_size * 128
    assert positions == 2048 if minutes < 61 else positions > 2048


def test_the_learning_rate_grows_with_the_square_root_of_the_batch():
    (few,) = make_plan(1000, whole_run(128), [1.0])
    (many,) = make_plan(48_000, whole_run(128), [1.0])
    assert many.train_batch_size == 4 * few.train_batch_size
    assert many.learning_rate == pytest.approx(2 * few.learning_rate)


@pytest.mark.parametrize(("steps", "warmup"), [(4, 0), (400, 80), (2000, 200), (11_000, 440)])
def test_short_stages_warm_up_for_a_larger_share_of_their_steps(steps, warmup):
    (stage,) = make_plan(steps + 0.5, whole_run(128), [1.0])
    assert (stage.num_train_steps, stage.num_warmup_steps) == (steps, warmup)


def test_too_short_a_time_is_an_error():
    with pytest.raises(AlbertError, match=r"too short: 1 seconds are left .* one step takes 4"):
        make_plan(1.0, whole_run(128), [4.0])


def test_a_plan_is_kept_for_the_same_time_and_for_no_other(tmp_path):
    folder = str(tmp_path)
    assert load_plan(folder, 60.0) is None
    stages = make_plan(60.0, outline_stages(128, is_compact=True), [0.1, 0.1])
    save_plan(folder, 60.0, stages)
    assert load_plan(folder, 60.0) == stages
    with pytest.raises(AlbertError, match=r"planned for 60\.0 seconds, not 90; give the same time"):
        load_plan(folder, 90.0)


def test_a_stage_sets_its_own_schedule_and_keeps_all_other_settings():
    common = RunConfig("run", seed=7, precision="mixed_bfloat16", train_batch_size=4096)
    (stage,) = make_plan(50.0, whole_run(128), [0.1])
    config = stage.run_config(common, "run", "run/length-32")
    assert (config.seed, config.precision, config.init_checkpoint) == (
        7, "mixed_bfloat16", "run/length-32",
    )  # fmt: skip
    assert (config.train_batch_size, config.num_warmup_steps) == (16, 100)
    assert config.save_checkpoints_steps == 25
