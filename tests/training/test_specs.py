# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from albert_tf import AlbertError, RunConfig, TrainSpec
from albert_tf.settings import INT32_MAX


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [(None, "`output_dir` is needed"), (3, "`output_dir`=3 must be of type str")],
)
def test_invalid_output_directories_are_refused(folder, sentence):
    with pytest.raises(AlbertError, match=f"^{sentence}"):
        RunConfig(folder)


def test_the_output_directory_may_be_a_path_object(tmp_path):
    assert RunConfig(tmp_path).output_dir == str(tmp_path)


def test_the_smallest_and_largest_values_are_accepted():
    smallest = {"num_warmup_steps": 0, "seed": 0}
    RunConfig("runs/mine", learning_rate=1e-30, clip_norm=1e-30, **smallest)
    RunConfig("runs/mine", seed=INT32_MAX)
    TrainSpec(input, max_steps=INT32_MAX)


@pytest.mark.parametrize("steps", [0, -5, 10**20])
def test_impossible_numbers_of_steps_are_refused(steps):
    with pytest.raises(AlbertError, match=f"^`max_steps`={steps} must be an integer from 1 to"):
        TrainSpec(input, max_steps=steps)


@pytest.mark.parametrize("values", [{"shallow_layers": 2}, {"num_shallow_steps": 5}], ids=str)
def test_shallow_layers_and_their_steps_need_each_other(values):
    with pytest.raises(AlbertError, match="Give both `shallow_layers` and `num_shallow_steps`"):
        RunConfig("runs/mine", **values)
