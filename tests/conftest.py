# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: two logical CPUs, so that MirroredStrategy has two replicas."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from absl import flags

#: Memory of a process that runs half of the tests; compiled functions are kept until it ends.
_PROCESS_BYTES = 8 * 2**30

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Our scripts set this too, and tests compare results of scripts with results computed here.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Several test processes share the cores. What they start inherits this.
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_cores = len(os.sched_getaffinity(0))
if _processes > 1:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, _cores // _processes)))
# A shell that starts the tests in the background has them ignore SIGINT, and so would the programs
# that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Returns how many processes `pytest -n auto` starts: one a core, if the memory suffices."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(_cores, memory // _PROCESS_BYTES))


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus():
    # Only possible before TensorFlow's first operation. Tests that do not import TensorFlow when
    # collected need no replicas, and should not wait for the import.
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )


class Finished(NamedTuple):
    """What a script left: exit status, standard output, standard error."""

    returncode: int
    stdout: str
    stderr: str


_HOLD = """
import sys
from albert_tf.locks import lock_folder, lock_output
lock = lock_folder if len(sys.argv) == 2 else lock_output
with lock(sys.argv[1], "training"):
    print("held", flush=True)
    {more}
    sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Another process that holds a folder, or with `file=True` a file to be written."""

    @contextlib.contextmanager
    def held(path, more="pass", file=False):
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD.format(more=more), str(path), *(["file"] * file)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
            process.communicate()

    return held


@pytest.fixture
def run_script(capfd, monkeypatch):
    """Runs a script's main() in this process, as `run_script(module, *flags)`.

    Everything but the start of a Python process is real: flags, messages, exit status.
    """

    def run(module, *arguments):
        known = set(flags.FLAGS)
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        capfd.readouterr()
        try:
            module.main()
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        finally:
            flags.FLAGS.unparse_flags()
            for name in set(flags.FLAGS) - known:
                delattr(flags.FLAGS, name)
        return Finished(status, *capfd.readouterr())

    return run


@pytest.fixture
def self_check_here(monkeypatch):
    """Checks exports in this process; for kinds that another test has checked in a fresh one."""
    from albert_tf.export import probe_process, self_check

    def call(command, **_):
        _, script, saved_model, folder = command
        assert script == probe_process.__file__
        probe_process.main(saved_model, folder)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(self_check.subprocess, "run", call)
