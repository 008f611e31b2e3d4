# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What all tests share: settings of the processes that run them, and ways to run scripts."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from absl import flags

from tests.support.script_server import ScriptServer

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


def pytest_collection_finish():
    """Keeps the garbage collector from visiting what the imports have made, again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def pytest_sessionfinish():
    """Leaves TensorFlow's functions alone when Python ends.

    They would remove themselves from a context that is gone by then; Python would print errors.
    """
    name = "tensorflow.python.eager.polymorphic_function.atomic_function"
    if name in sys.modules:
        sys.modules[name].AtomicFunction.__del__ = lambda self: None


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus():
    """Gives MirroredStrategy two replicas."""
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
from albert_tf.io.locks import lock_folder, lock_output
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


@pytest.fixture(scope="session")
def script_server():
    """Starts scripts as processes of their own that need not import TensorFlow again."""
    with ScriptServer() as server:
        yield server


@pytest.fixture
def run_process(script_server, tmp_path_factory):
    """Runs a script as a process of its own and waits, as `run_process("run_squad", *flags)`."""

    def run(script, *arguments):
        folder = tmp_path_factory.mktemp("outputs")
        files = folder / "stdout", folder / "stderr"
        with script_server.running(script, arguments, *files):
            status = script_server.status(seconds=240)
        assert status is not None, f"{script} is still running"
        return Finished(status, *(path.read_text() for path in files))

    return run


@pytest.fixture
def self_check_here():
    """Checks exports in this process; for kinds that another test has checked in a fresh one."""
    from tests.support.self_checks import checked_in_this_process

    with checked_in_this_process():
        yield
