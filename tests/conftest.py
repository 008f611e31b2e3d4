# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings of the test processes, and fixtures that run scripts."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.script_flags import temporary_flags
from tests.support.script_server import ScriptServer

#: Memory of a process that runs half of the tests; it keeps compiled functions until it ends.
_PROCESS_BYTES = 8 * 2**30

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Our scripts set this too, and tests compare results of scripts with results computed here.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Several test processes share the cores. Their children inherit this.
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_cores = len(os.sched_getaffinity(0))
if _processes > 1:
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(max(1, _cores // _processes)))
# A shell that starts the tests in the background makes them, and their children, ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers() -> int:
    """Returns the number of processes for `pytest -n auto`: one a core, if memory suffices."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(_cores, memory // _PROCESS_BYTES))


def pytest_collection_finish():
    """Keeps the garbage collector from visiting all imported objects again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Gives each test, with its fixtures, the same random weights in every run."""
    # See two_logical_cpus about tests that do not import TensorFlow.
    if "tensorflow" in sys.modules:
        from albert_tf.keras2 import keras

        keras.utils.set_random_seed(1)


def pytest_sessionfinish():
    """Disables the finalizer of TensorFlow's functions.

    When Python ends, they would remove themselves from a deleted context and print errors.
    """
    name = "tensorflow.python.eager.polymorphic_function.atomic_function"
    if name in sys.modules:
        sys.modules[name].AtomicFunction.__del__ = lambda self: None


@pytest.fixture(scope="session", autouse=True)
def two_logical_cpus():
    """Gives MirroredStrategy two replicas."""
    # Only possible before TensorFlow's first operation. Tests that do not import TensorFlow need no
    # replicas and should not wait for the import.
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )


@pytest.fixture
def unprivileged():
    """Gives up the rights of root, which may read everything, in a with block."""

    @contextlib.contextmanager
    def without_rights():
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    return without_rights


class Finished(NamedTuple):
    """A finished script: exit status, standard output, standard error."""

    returncode: int
    stdout: str
    stderr: str

    def ok(self):
        """Asserts success; returns this result."""
        assert self.returncode == 0, self.stderr
        return self


_HOLD = """
import sys
from albert_tf.io.locks import lock_folder
with lock_folder(sys.argv[1]):
    print("held", flush=True)
    {more}
    sys.stdin.read()
"""


@pytest.fixture
def hold():
    """Starts another process that locks a folder."""

    @contextlib.contextmanager
    def held(path, more="pass"):
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD.format(more=more), str(path)],
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

    Flags, messages and the exit status are those of a new Python process.
    """

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        capfd.readouterr()
        on_interrupt = signal.getsignal(signal.SIGINT)
        with temporary_flags():
            try:
                module.main()
                status = 0
            except SystemExit as stop:
                status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            finally:
                signal.signal(signal.SIGINT, on_interrupt)
        return Finished(status, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def script_server():
    """Starts scripts in separate processes that need not import TensorFlow again."""
    with ScriptServer() as server:
        yield server


@pytest.fixture
def run_process(script_server, tmp_path_factory):
    """Runs a script in a separate process and waits, as `run_process("run_squad", *flags)`."""

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
    """Checks exports in this process; for kinds that another test checks in a fresh process."""
    from tests.support.self_checks import checked_in_this_process

    with checked_in_this_process():
        yield


@pytest.fixture
def hub(tmp_path_factory, monkeypatch):
    """Environment variables for a server that offers the bundled model as albert/albert-base-v2."""
    from tests.support.web_server import serving

    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING_FACE"))]:
        monkeypatch.delenv(name)
    with serving() as server:
        bundled = Path(__file__).parents[1] / "albert_tf/pretrained/albert_tiny_books"
        files = {path.name: path.read_bytes() for path in bundled.iterdir()}
        server.models["albert/albert-base-v2"] = files
        yield {
            "HF_ENDPOINT": server.url,
            "HF_HOME": str(tmp_path_factory.mktemp("hf")),
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        assert any("model.safetensors" in path for path in server.paths())
