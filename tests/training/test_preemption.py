# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Training that is asked to stop, as processes of run_pretraining.py with real signals."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import run_pretraining
from albert_tf.data import records
from tests.training.conftest import LENGTH, PREDICTIONS, pretraining_columns

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "run_pretraining.py"
STEPS = 600


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, tiny_config, record_paths):
    """The flags of a run in a given folder."""
    config = tmp_path_factory.mktemp("config") / "config.json"
    config.write_text(json.dumps(dataclasses.asdict(tiny_config)))

    def flags(folder, **values):
        given = {
            "input_file": ",".join(record_paths),
            "albert_config_file": config,
            "output_dir": folder,
            "train_batch_size": 8,
            "num_train_steps": STEPS,
            "num_warmup_steps": 10,
            "save_checkpoints_steps": 100_000,
            "log_every_steps": 10,
            **values,
        }
        return [f"--{name}={value}" for name, value in given.items()]

    return flags


@pytest.fixture
def held_out(tmp_path):
    path = str(tmp_path / "held_out.tfrecord")
    features = records.pretraining_features(LENGTH, PREDICTIONS)
    records.write_shard(path, records.encode_examples(pretraining_columns(64, seed=7), features))
    return path


class Run:
    """A process of the script; its outputs are files."""

    def __init__(self, folder, arguments):
        self._paths = [Path(f"{folder}.{name}") for name in ("stdout", "stderr")]
        with open(self._paths[0], "w") as out, open(self._paths[1], "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, *arguments],
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=err,
            )

    def wait_for(self, condition):
        while not condition():
            assert self.process.poll() is None, self.outputs()
            time.sleep(0.02)

    def outputs(self):
        return [path.read_text() for path in self._paths]

    def end(self):
        """Its exit status, standard output and standard error."""
        status = self.process.wait(120)
        return status, *self.outputs()


def weights(folder):
    reader = tf.train.load_checkpoint(str(folder / "checkpoints"))
    names = sorted(n for n in reader.get_variable_to_shape_map() if n.startswith("weights/"))
    assert names
    return {name: reader.get_tensor(name) for name in names}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, arguments, script_server):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with script_server.running("run_pretraining", arguments(folder), folder.parent / "log"):
        assert script_server.status(120) == 0
    return weights(folder)


# By default, a run is sent a signal in test_stopped_evaluations.py.
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_with_a_checkpoint_it_goes_on_from(
    tmp_path, arguments, script_server, run_script, uninterrupted, number
):
    folder, files = tmp_path / "run", [tmp_path / "stdout", tmp_path / "stderr"]
    flags = arguments(folder, steps_per_loop=1)
    with script_server.running("run_pretraining", flags, *files) as process:
        while not (files[1].exists() and "train 1/" in files[1].read_text()):
            assert script_server.status(0.02) is None, files[1].read_text()
        os.kill(process, number)
        assert script_server.status(120) == 128 + number
    out, err = (path.read_text() for path in files)
    assert "Traceback" not in err
    assert f"{number.name}: finishing the step, then saving" in err
    step = int(re.search(r"^Stopped at step (\d+) and saved", out, re.M)[1])
    assert 0 < step < STEPS
    assert [p.name for p in folder.glob("checkpoints/*.index")] == [f"ckpt-{step}.index"]
    resumed = run_script(run_pretraining, *arguments(folder))
    assert resumed.returncode == 0
    assert f"at step {step}." in resumed.stdout
    assert_same(weights(folder), uninterrupted)


@pytest.mark.slow
def test_a_second_signal_ends_the_run_in_the_middle_of_a_step(tmp_path, arguments):
    folder = tmp_path / "run"
    # A step of so many examples takes seconds.
    large = {"train_batch_size": 2**18, "gradient_accumulation_steps": 2**6}
    run = Run(folder, arguments(folder, **large))
    run.wait_for(lambda: "train 1/" in run.outputs()[1])
    time.sleep(0.5)  # Now it is in its second step.
    run.process.send_signal(signal.SIGTERM)
    run.wait_for(lambda: "a second one ends at once" in run.outputs()[1])
    time.sleep(1.2)
    run.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    status, out, err = run.end()
    assert status == 143, out
    assert time.monotonic() - began < 1
    assert err.endswith("\nStopped by SIGTERM.\n") and "Traceback" not in err
    assert "Stopped at step" not in out
    assert not list(folder.glob("checkpoints/*.index"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_at_any_moment_leave_a_run_that_ends_the_same(
    tmp_path, arguments, uninterrupted, held_out, number
):
    """Also while TensorFlow is loaded, while checkpoints are written, and while evaluating."""
    folder = tmp_path / "run"
    often = {"save_checkpoints_steps": 7, "eval_every_steps": 60, "do_eval": True}
    flags = arguments(folder, **often, eval_input_file=held_out, eval_batch_size=1)
    rng = random.Random(int(number))
    statuses, steps = [], []
    while len(statuses) < 10:
        run = Run(folder, flags)
        time.sleep(rng.uniform(0.5, 15.0))
        run.process.send_signal(number)
        status, out, err = run.end()
        statuses.append(status)
        # Until the script's first lines are run, Python itself ends, by the signal.
        assert status in (0, 128 + number, -number), err
        assert status == -number or "Traceback" not in err
        assert status <= 0 or "Stopped" in out + err
        steps += map(int, re.findall(r"^Stopped at step (\d+)", out, re.M))
    run = Run(folder, flags)
    assert run.end()[0] == 0
    assert_same(weights(folder), uninterrupted)
    size = sum(value.nbytes for value in uninterrupted.values())
    print(
        f"{number.name} at {len(statuses)} random moments, exit statuses {sorted(statuses)}; "
        f"stopped in training at steps {steps}; {size:,} bytes of weights "
        "compared, all equal"
    )
