# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from albert_tf.errors import AlbertError
from albert_tf.training.monitors import MetricsLog, RunMonitor, read_metrics
from albert_tf.training.specs import RunConfig
from albert_tf.weights.run_folder import RunFolder


def test_the_entries_of_a_run_are_read_without_damaged_ones(tmp_path):
    log = MetricsLog(RunFolder(str(tmp_path)), 0)
    log.write(1, "train", {"loss": 2.0})
    log.write(2, "eval", {"loss": float("nan")})
    log.close()
    with (tmp_path / "metrics.jsonl").open("a") as f:
        f.write('[1]\n{"step": "3"}\n{"step": 3, "spl')
    assert read_metrics(RunFolder(str(tmp_path))) == [
        {"step": 1, "split": "train", "loss": 2.0},
        {"step": 2, "split": "eval", "loss": None},
    ]
    with pytest.raises(AlbertError, match=r"metrics\.jsonl does not exist"):
        read_metrics(RunFolder(str(tmp_path / "other")))


def test_damaged_and_later_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    good = [json.dumps({"step": step, "split": "train"}).encode() for step in (1, 2, 3)]
    path.write_bytes(
        b"\n".join([good[0], b'{"step": 1, "sp', b"\xff\xfe\0", b"[]", *good[1:], b"{"])
    )
    MetricsLog(RunFolder(str(tmp_path)), 2).close()
    assert path.read_bytes().splitlines() == good[:2]


def test_a_log_whose_folder_is_gone_is_one_sentence(tmp_path):
    log = MetricsLog(RunFolder(str(tmp_path / "run")), 0)
    log.write(1, "train", {"loss": 1.0})
    shutil.rmtree(tmp_path / "run")
    sentence = r"^Cannot write the metrics of step 2, in .*metrics.jsonl \(.*No such file"
    with pytest.raises(AlbertError, match=sentence):
        log.write(2, "train", {"loss": 1.0})


def test_a_run_of_one_step_shows_it_once(tmp_path, capsys):
    task = type("OneTask", (), {"progress": lambda self, means: "loss 1"})()
    monitor = RunMonitor(task, RunConfig(output_dir=str(tmp_path)), 1, 0, None)
    names = ("loss", "learning_rate", "finite", "tokens", "positions", "input_wait")
    monitor.trained(1, {name: np.ones([1], np.float32) for name in names}, None, 0)
    monitor.close()
    assert capsys.readouterr().err.count("train 100% 1/1") == 1
