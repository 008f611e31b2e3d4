# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from albert_tf import RunConfig
from albert_tf.errors import AlbertError
from albert_tf.training.strategy import make_strategy

HOSTS = ["host0:2222", "host1:2222"]


def tf_config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "needs the environment variable TF_CONFIG with a JSON object"),
        ("{", "needs the environment variable TF_CONFIG"),
        ("[]", "needs the environment variable TF_CONFIG"),
        (json.dumps({"cluster": {"worker": HOSTS}}), "needs the environment variable TF_CONFIG"),
        (tf_config({"worker": 3}), "needs the environment variable TF_CONFIG"),
        (tf_config({"worker": HOSTS}, "ps"), "needs the environment variable TF_CONFIG"),
        (tf_config({"worker": HOSTS}, index="x"), "needs the environment variable TF_CONFIG"),
        (tf_config({"worker": HOSTS}, index=2), "this is worker 2, and there are 2, counted from"),
        (tf_config({"worker": HOSTS}, index=-1), "this is worker -1, and there are 2"),
        (tf_config({"worker": HOSTS[:1]}), "names one worker only"),
        (tf_config({"chief": HOSTS[:1]}, "chief"), "names one worker only"),
    ],
)
def test_a_cluster_that_cannot_be_is_one_sentence(monkeypatch, value, sentence):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(AlbertError, match=sentence):
        make_strategy(RunConfig("runs/a", strategy="multi_worker"))


def test_a_cluster_joined_too_late_is_one_sentence(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config({"worker": HOSTS}))
    tf.constant(1)
    with pytest.raises(AlbertError, match=r"computed something already; call .*join_cluster"):
        make_strategy(RunConfig("runs/a", strategy="multi_worker"))
