# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.errors import AlbertError
from albert_tf.training import strategy as devices
from albert_tf.training.strategy import fast_precisions, make_strategy, precisions_of_gpu

HOSTS = ["host0:2222", "host1:2222"]
NO_CLUSTER = "needs the environment variable TF_CONFIG with a JSON object"


def tf_config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, NO_CLUSTER),
        ("{", NO_CLUSTER),
        ("[]", NO_CLUSTER),
        (json.dumps({"cluster": {"worker": HOSTS}}), NO_CLUSTER),
        (tf_config({"worker": 3}), NO_CLUSTER),
        (tf_config({"worker": HOSTS}, "ps"), NO_CLUSTER),
        (tf_config({"worker": HOSTS}, index="x"), NO_CLUSTER),
        (tf_config({"worker": HOSTS}, index=2), "this is worker 2, but its cluster has 2; indices"),
        (tf_config({"worker": HOSTS}, index=-1), "this is worker -1, but its cluster has 2"),
        (tf_config({"worker": ["host0", "host1"]}), NO_CLUSTER),
        (tf_config({"worker": ["host0:2222", "host1:0"]}), NO_CLUSTER),
        (tf_config({"worker": [2222, 2223]}), NO_CLUSTER),
        (tf_config({"worker": HOSTS[:1] * 2}), "names the address host0:2222 more than once"),
        (tf_config({"worker": HOSTS[:1], "chief": HOSTS[:1]}), "host0:2222 more than once"),
        (tf_config({"worker": HOSTS[:1]}), "names one worker only"),
        (tf_config({"chief": HOSTS[:1]}, "chief"), "names one worker only"),
    ],
)
def test_an_invalid_cluster_is_one_sentence(monkeypatch, value, sentence):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(AlbertError, match=sentence):
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
    ("compute_capability", "precisions"),
    [
        (None, ["float32"]),  # AMD's
        ((6, 0), ["float32"]),  # P100
        ((7, 0), ["mixed_float16", "float32"]),  # V100
        ((7, 5), ["mixed_float16", "float32"]),  # T4
        ((8, 0), ["mixed_bfloat16", "mixed_float16", "float32"]),  # A100
        ((12, 0), ["mixed_bfloat16", "mixed_float16", "float32"]),  # RTX 50
    ],
)
def test_the_compute_capability_of_a_gpu_decides_which_precisions_are_fast(
    compute_capability, precisions
):
    assert precisions_of_gpu(compute_capability) == tuple(precisions)


def test_the_oldest_gpu_decides_for_all(monkeypatch):
    details = [{"compute_capability": (8, 0)}, {"compute_capability": (7, 5)}]
    monkeypatch.setattr(devices, "gpu_details", lambda strategy: details)
    strategy = tf.distribute.get_strategy()
    assert fast_precisions(strategy) == ("mixed_float16", "float32")
    del details[1]
    assert fast_precisions(strategy)[0] == "mixed_bfloat16"
    details[0] = {"device_name": "of another maker"}
    assert fast_precisions(strategy) == ("float32",)


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="has a GPU")
@pytest.mark.parametrize(("name", "words"), [("default", "1 CPU"), ("mirrored", "2 CPUs")])
def test_the_devices_are_printed_once(monkeypatch, capsys, name, words):
    monkeypatch.setattr(devices, "_DRIVER", ())
    devices.print_once.cache_clear()
    for _ in range(2):
        devices.announce_devices(make_strategy(RunConfig("runs/a", strategy=name)))
    assert capsys.readouterr().out == f"Devices: {words}.\n"


@pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="has a GPU")
def test_a_gpu_that_tensorflow_does_not_see_is_explained(monkeypatch, capsys, tmp_path):
    assert not devices.missing_gpu() or any(map(os.path.exists, devices._DRIVER))
    (tmp_path / "version").touch()
    monkeypatch.setattr(devices, "_DRIVER", (str(tmp_path / "version"),))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert devices.missing_gpu().endswith("sees no GPU: CUDA_VISIBLE_DEVICES='-1' hides it.")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert f'pip install "tensorflow[and-cuda]=={tf.__version__}"' in devices.missing_gpu()
    devices.print_once.cache_clear()
    devices.announce_devices(make_strategy(RunConfig("runs/a")))
    printed = capsys.readouterr().out
    assert printed.splitlines() == ["Devices: 1 CPU.", devices.missing_gpu()]
