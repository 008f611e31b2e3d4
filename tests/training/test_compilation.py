# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""When `jit_compile`="auto" compiles. There is no GPU here; TensorFlow's answers are replaced."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.data.length_batches import length_buckets
from albert_tf.modeling.kernels.graph_mode import GraphMode
from albert_tf.training import compilation
from albert_tf.training.compilation import can_compile, missing_compiler, mode_chooser
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import TrainSpec
from albert_tf.training.strategy import print_once
from tests.support.builders import tiny_config
from tests.support.small_tasks import PIECES, open_small_task
from tests.training.conftest import HEADS_ALONE

ONE_LENGTH = {"ids": tf.TensorSpec([None, 16], tf.int32), "weights": tf.TensorSpec([8], tf.float32)}
LENGTHS = {**ONE_LENGTH, "ids": tf.TensorSpec([8, None], tf.int32)}
NVIDIA = {"compute_capability": (7, 0)}


@pytest.fixture
def gpu(monkeypatch):
    """Makes strategies seem to use GPUs with these details, and NVIDIA's compiler be there."""

    def gpu(*details, lacking=""):
        monkeypatch.setattr(compilation, "gpu_details", lambda strategy: list(details))
        monkeypatch.setattr(compilation, "missing_compiler", lambda: lacking)
        print_once.cache_clear()

    return gpu


def strategy(replicas=1):
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def chosen(jit_compile="auto", replicas=1):
    mode_of = mode_chooser(strategy(replicas), jit_compile)
    return tuple(mode_of(batch) is GraphMode.XLA for batch in (ONE_LENGTH, LENGTHS))


def test_a_cpu_compiles_only_if_it_is_told_to():
    assert chosen() == (False, False)
    assert chosen(jit_compile=True) == (True, True)
    assert chosen(jit_compile=False) == (False, False)


def test_one_gpu_compiles_steps_of_batches_of_one_length(gpu):
    gpu(NVIDIA)
    assert chosen() == (True, False)
    assert chosen(jit_compile=True) == (True, True)
    assert chosen(jit_compile=False) == (False, False)


def test_several_gpus_and_those_of_other_makers_do_not_compile(gpu):
    gpu(NVIDIA, NVIDIA)
    assert chosen(replicas=2) == (False, False)
    gpu({"device_name": "another maker's"})
    assert chosen() == (False, False)


def test_a_gpu_without_the_compiler_goes_on_without_it_and_says_so(gpu, capsys):
    gpu(NVIDIA, lacking="ptxas")
    assert chosen() == chosen() == (False, False)
    assert capsys.readouterr().out == (
        "Steps run without XLA, which lacks NVIDIA's ptxas; "
        f'pip install "tensorflow[and-cuda]=={tf.__version__}" brings it.\n'
    )


def test_a_device_that_xla_cannot_compile_for_is_found_out(monkeypatch, capsys):
    can_compile.cache_clear()
    assert can_compile("/cpu:0")
    monkeypatch.setattr(tf.math, "rsqrt", tf.strings.as_string)  # Unknown to XLA.
    can_compile.cache_clear()
    print_once.cache_clear()
    assert not can_compile("/cpu:0")
    printed = capsys.readouterr().out
    assert printed.startswith("Steps run without XLA, which cannot compile for /cpu:0: ")
    assert printed.count("\n") == 1
    can_compile.cache_clear()


def test_both_parts_of_the_compiler_are_looked_for_where_xla_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "_TOOLKITS", ())
    monkeypatch.setattr(tf, "__file__", str(tmp_path / "tensorflow" / "__init__.py"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert missing_compiler() == "ptxas"
    package = tmp_path / "nvidia" / "cuda_nvcc"
    (package / "bin").mkdir(parents=True)
    (package / "bin" / "ptxas").touch()
    assert missing_compiler() == "libdevice.10.bc"
    (package / "nvvm" / "libdevice").mkdir(parents=True)
    (package / "nvvm" / "libdevice" / "libdevice.10.bc").touch()
    assert missing_compiler() == ""
    package.rename(tmp_path / "toolkit")
    assert missing_compiler() == "ptxas"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_a=1 --xla_gpu_cuda_data_dir={tmp_path / 'toolkit'}")
    assert missing_compiler() == ""


def traces(graphs):
    """How often a function was traced with and without XLA."""
    return tuple(graphs[jit].experimental_get_tracing_count() for jit in (True, False))


def test_the_step_of_pretraining_has_one_length(gpu, tmp_path, make):
    gpu(NVIDIA)
    estimator, spec, _ = make(tmp_path, **HEADS_ALONE, steps=2)
    run = TrainingRun(estimator, spec, None)
    run.run()
    assert traces(run.loop._gradients) == (1, 0)


@pytest.mark.parametrize("pad_to_max", [False, True])
def test_steps_of_fine_tuning_are_compiled_if_they_are_padded_to_one_length(
    gpu, tmp_path, pad_to_max
):
    gpu(NVIDIA)
    config = tiny_config(len(PIECES), max_position_embeddings=32)
    task, source, held_out = open_small_task(
        "classification", config, tmp_path, pad_to_max=pad_to_max, max_seq_length=32
    )
    batches = {"train_batch_size": 8, "eval_batch_size": 8}
    estimator = Estimator(task, RunConfig(str(tmp_path / "run"), **batches, **HEADS_ALONE))
    run = TrainingRun(estimator, TrainSpec.of(source, 1), held_out)
    run.run()
    expected = (1, 0) if pad_to_max else (0, 1)
    assert traces(run.loop._gradients) == traces(estimator._predictor._compute) == expected


def test_compiled_steps_have_at_most_twelve_lengths_for_512_positions():
    """Where the steps of each length are compiled; docs/clusters.md tells the number."""
    assert len(length_buckets(512, few=True)) == 12 and len(length_buckets(128, few=True)) == 5
    assert len(length_buckets(512, pad_to_max=True)) == 1
