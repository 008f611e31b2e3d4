# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Real signals stop processes of run_pretraining.py."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.script_server import ROOT, environment
from tests.training.conftest import pretraining_columns, write_records
from tests.training.damage import stored
from tests.training.runs import saved_steps

STEPS = 600


@pytest.fixture(scope="module")
def arguments(tmp_path_factory, tiny_config, record_paths):
    """Returns the flags of a run in a given folder."""
    config = tmp_path_factory.mktemp("config") / "config.json"
    tiny_config.to_json(str(config))

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
    return write_records(tmp_path / "held_out.tfrecord", pretraining_columns(64, seed=7))


class Run:
    """A process of the script; writes its outputs to files."""

    def __init__(self, folder, arguments):
        self._paths = [Path(f"{folder}.{name}") for name in ("stdout", "stderr")]
        with open(self._paths[0], "w") as out, open(self._paths[1], "w") as err:
            self.process = subprocess.Popen(
                [sys.executable, ROOT / "run_pretraining.py", *arguments],
                env={**environment(), "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=err,
            )

    def end(self):
        """Waits; returns the exit status, standard output and standard error."""
        return self.process.wait(120), *(path.read_text() for path in self._paths)


def weights(folder):
    """The final weights, bit for bit."""
    values = stored(folder / "checkpoints")
    return {name: value for name, value in values.items() if name.startswith("weights/")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, arguments, script_server):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    with script_server.running("run_pretraining", arguments(folder), folder.parent / "log"):
        assert script_server.status(120) == 0
    return weights(folder)


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
        # While the script itself is imported, Python's own handlers are in place.
        assert status in (0, 128 + number, -number), err
        assert status <= 0 or "Stopped" in out + err
        steps += map(int, re.findall(r"^Stopped at step (\d+)", out, re.M))
    assert Run(folder, flags).end()[0] == 0
    assert uninterrupted and weights(folder) == uninterrupted
    size = sum(map(len, uninterrupted.values()))
    print(
        f"{number.name} at {len(statuses)} random moments, exit statuses {sorted(statuses)}; "
        f"stopped in training at steps {steps}; {size:,} bytes of weights "
        "compared, all equal"
    )


@pytest.mark.slow
def test_a_run_outlives_the_reader_of_its_output(tmp_path, arguments):
    folder = tmp_path / "run"
    command = [sys.executable, ROOT / "run_pretraining.py", *arguments(folder)]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment(), **output) as process:
        while b" 1/" not in process.stdout.readline():
            assert process.poll() is None
        process.stdout.close()
        assert process.wait(240) == 0
    assert saved_steps(folder) == [STEPS]
