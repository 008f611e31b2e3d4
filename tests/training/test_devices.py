# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Devices, precisions and `jit_compile`. Without GPU and TPU, TensorFlow's answers are replaced.

test_xla_step.py tests the compiled step of a TPU.
"""

from __future__ import annotations

import json
import os

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.errors import AlbertError
from albert_tf.modeling.kernels.graph_mode import GraphMode
from albert_tf.training import devices
from albert_tf.training.devices import (
    check_tpu_run,
    fast_precisions,
    has_compiler,
    make_strategy,
    mode_chooser,
    print_once,
)
from albert_tf.training.estimator import Estimator
from albert_tf.training.run import TrainingRun
from albert_tf.training.specs import TrainSpec
from tests.support import builders
from tests.support.small_tasks import PIECES, open_small_task
from tests.training.conftest import HEADS_ALONE

HOSTS = ["host0:2222", "host1:2222"]


def tf_config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    "value",
    [
        None,
        "{",
        "[]",
        json.dumps({"cluster": {"worker": HOSTS}}),
        tf_config({"worker": 3}),
        tf_config({"worker": HOSTS}, "ps"),
        tf_config({"worker": HOSTS}, index="x"),
        tf_config({"worker": HOSTS}, index=2),
        tf_config({"worker": HOSTS}, index=-1),
        tf_config({"worker": ["host0", "host1"]}),
        tf_config({"worker": ["host0:2222", "host1:0"]}),
        tf_config({"worker": [2222, 2223]}),
        tf_config({"worker": HOSTS[:1] * 2}),
        tf_config({"chief": HOSTS[:1]}, "chief"),
    ],
)
def test_an_invalid_cluster_is_one_sentence(monkeypatch, value):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(AlbertError, match=r"needs .* TF_CONFIG with a JSON object .* two workers"):
        make_strategy(RunConfig("runs/a", strategy="multi_worker"))


def test_a_cluster_joined_too_late_is_one_sentence(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": HOSTS}))
    tf.constant(1)
    with pytest.raises(AlbertError, match=r"run its first operation; call .*join_cluster"):
        make_strategy(RunConfig("runs/a", strategy="multi_worker"))


def test_mirrored_with_one_device_is_refused(monkeypatch):
    (one, *_) = tf.config.list_logical_devices("CPU")
    found = {"GPU": [], "CPU": [one]}
    monkeypatch.setattr(tf.config, "list_logical_devices", found.get)
    with pytest.raises(AlbertError, match="needs at least two GPUs, and TensorFlow sees no GPU; "):
        make_strategy(RunConfig("runs/a", strategy="mirrored"))
    found["GPU"] = [one]
    with pytest.raises(AlbertError, match="sees one GPU; `strategy`=default uses one device"):
        make_strategy(RunConfig("runs/a", strategy="mirrored"))


@pytest.mark.parametrize(
    ("capabilities", "precisions"),
    [
        ([None], ["float32"]),  # AMD's
        ([(6, 0)], ["float32"]),  # P100
        ([(7, 0)], ["mixed_float16", "float32"]),  # V100
        ([(7, 5), (8, 0)], ["mixed_float16", "float32"]),  # T4 and A100: the older one decides.
        ([(8, 0)], ["mixed_bfloat16", "mixed_float16", "float32"]),
        ([(12, 0)], ["mixed_bfloat16", "mixed_float16", "float32"]),  # RTX 50
    ],
)
def test_the_oldest_gpu_decides_which_precisions_are_fast(monkeypatch, capabilities, precisions):
    details = [{"compute_capability": x} if x else {} for x in capabilities]
    monkeypatch.setattr(devices, "gpu_details", lambda strategy: details)
    assert fast_precisions(tf.distribute.get_strategy()) == tuple(precisions)


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="has a GPU")
@pytest.mark.parametrize(("name", "words"), [("default", "1 CPU"), ("mirrored", "2 CPUs")])
def test_the_devices_are_printed_once(monkeypatch, capsys, name, words):
    monkeypatch.setattr(devices, "_DRIVER", ())
    print_once.cache_clear()
    for _ in range(2):
        devices.announce_devices(make_strategy(RunConfig("runs/a", strategy=name)))
    assert capsys.readouterr().out == f"Devices: {words}.\n"


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="has a GPU")
def test_a_gpu_that_tensorflow_does_not_see_is_explained(monkeypatch, capsys, tmp_path):
    assert not devices.missing_gpu() or any(map(os.path.exists, devices._DRIVER))
    (tmp_path / "version").touch()
    monkeypatch.setattr(devices, "_DRIVER", (str(tmp_path / "version"),))
    assert f'pip install "tensorflow[and-cuda]=={tf.__version__}"' in devices.missing_gpu()
    print_once.cache_clear()
    devices.announce_devices(make_strategy(RunConfig("runs/a")))
    printed = capsys.readouterr().out
    assert printed.splitlines() == ["Devices: 1 CPU.", devices.missing_gpu()]


def tpu_run(**values):
    defaults = {"output_dir": "gs://bucket/run", "train_batch_size": 64, "strategy": "tpu"}
    return RunConfig(**{**defaults, **values})


@pytest.fixture(autouse=True)
def no_name_in_the_environment(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)


def test_float16_is_refused():
    with pytest.raises(AlbertError, match=r"is for GPUs; .* use `precision`=mixed_bfloat16\.$"):
        tpu_run(precision="mixed_float16")
    tpu_run(precision="mixed_float16", strategy="mirrored")


def test_a_tpu_needs_batches_of_one_length():
    with pytest.raises(AlbertError, match="pass `pad_to_max`"):
        check_tpu_run({"input_word_ids": tf.TensorSpec([16, None], tf.int32)})
    check_tpu_run({"input_word_ids": tf.TensorSpec([16, 8], tf.int32)})


def test_a_tpu_named_by_the_environment_is_started_once_a_process(monkeypatch):
    """TensorFlow's part is replaced, as there is no TPU here."""
    started = []
    resolvers = tf.distribute.cluster_resolver
    monkeypatch.setattr(resolvers, "TPUClusterResolver", lambda tpu: tpu)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda _: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", started.append)
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: [resolver])
    monkeypatch.setenv("TPU_NAME", "pod")
    first = make_strategy(tpu_run())
    assert make_strategy(tpu_run(output_dir="gs://bucket/b")) is first
    make_strategy(tpu_run(tpu_name="other"))
    assert started == ["pod", "other"]


@pytest.mark.parametrize(
    ("name", "reason"), [("no-such-tpu", ""), (None, "TPUs not found in the cluster")]
)
def test_a_tpu_that_cannot_be_used_is_one_sentence(name, reason):
    named = f"The TPU '{name or 'local'}' cannot be used: {reason}"
    with pytest.raises(AlbertError, match=named) as error:
        make_strategy(tpu_run(tpu_name=name))
    assert "\n" not in str(error.value)


ONE_LENGTH = {"ids": tf.TensorSpec([None, 16], tf.int32), "weights": tf.TensorSpec([8], tf.float32)}
LENGTHS = {**ONE_LENGTH, "ids": tf.TensorSpec([8, None], tf.int32)}
NVIDIA = {"compute_capability": (7, 0)}


@pytest.fixture
def gpu(monkeypatch):
    """Makes strategies seem to use GPUs with these details, and NVIDIA's compiler be there."""

    def gpu(*details, compiler=True):
        monkeypatch.setattr(devices, "gpu_details", lambda strategy: list(details))
        monkeypatch.setattr(devices, "has_compiler", lambda: compiler)
        print_once.cache_clear()

    return gpu


def strategy_of(replicas=1):
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy("/cpu:0")
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def chosen(jit_compile="auto", replicas=1):
    mode_of = mode_chooser(strategy_of(replicas), jit_compile)
    return tuple(mode_of(batch) is GraphMode.XLA for batch in (ONE_LENGTH, LENGTHS))


@pytest.mark.parametrize(
    ("details", "auto"),
    [
        ([], (False, False)),  # A CPU.
        ([NVIDIA], (True, False)),
        ([NVIDIA, NVIDIA], (False, False)),
        ([{"device_name": "another maker's"}], (False, False)),
    ],
)
def test_one_gpu_of_nvidia_alone_compiles_steps_of_one_length_untold(gpu, details, auto):
    if details:
        gpu(*details)
    assert chosen(replicas=max(1, len(details))) == auto
    assert chosen(jit_compile=True) == (True, True)
    assert chosen(jit_compile=False) == (False, False)


def test_a_gpu_without_the_compiler_goes_on_without_it_and_says_so(gpu, capsys):
    gpu(NVIDIA, compiler=False)
    assert chosen() == chosen() == (False, False)
    assert capsys.readouterr().out == (
        "Steps run without XLA, which lacks NVIDIA's ptxas; "
        f'pip install "tensorflow[and-cuda]=={tf.__version__}" brings it.\n'
    )


def test_the_compiler_is_looked_for_where_xla_looks(tmp_path, monkeypatch):
    monkeypatch.setattr(tf, "__file__", str(tmp_path / "tensorflow" / "__init__.py"))
    monkeypatch.setenv("PATH", "")
    assert not has_compiler() or os.path.exists("/usr/local/cuda/bin/ptxas")
    package = tmp_path / "nvidia" / "cuda_nvcc"
    (package / "bin").mkdir(parents=True)
    (package / "bin" / "ptxas").touch()
    assert has_compiler()


def traces(graphs):
    """How often a function was traced with and without XLA."""
    return tuple(graphs[jit].experimental_get_tracing_count() for jit in (True, False))


@pytest.mark.parametrize("pad_to_max", [False, True])
def test_steps_of_fine_tuning_are_compiled_if_they_are_padded_to_one_length(
    gpu, tmp_path, pad_to_max
):
    gpu(NVIDIA)
    config = builders.tiny_config(len(PIECES), max_position_embeddings=32)
    task, source, held_out = open_small_task(
        "classification", config, tmp_path, pad_to_max=pad_to_max, max_seq_length=32
    )
    batches = {"train_batch_size": 8, "eval_batch_size": 8}
    estimator = Estimator(task, RunConfig(str(tmp_path / "run"), **batches, **HEADS_ALONE))
    run = TrainingRun(estimator, TrainSpec.of(source, 1), held_out)
    run.run()
    expected = (1, 0) if pad_to_max else (0, 1)
    assert traces(run.loop._gradients) == traces(estimator._predictor._compute) == expected
