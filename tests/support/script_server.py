# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs our scripts in separate processes without importing TensorFlow each time.

A server imports TensorFlow and our packages, without starting the TensorFlow runtime, and forks a
process for each run. It makes sure that it has one thread only, as a process with threads must not
be forked. The child behaves like ``python -m <script>``: its module is `__main__`, its flags are in
sys.argv; it leads a process group and writes its outputs to files.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from albert_tf.io.tensorflow_import import prepare_tensorflow

ROOT = Path(__file__).parents[2]
#: The scripts, and the modules that they import when they run.
_IMPORTED = (
    "run_pretraining",
    "run_classifier",
    "run_squad",
    "run_race",
    "run_tagger",
    "run_embedder",
    "data_prep.create_pretraining_data",
    "albert_tf.optimization.optimizer",
    "albert_tf.tasks.glue.run",
    "albert_tf.tasks.multiple_choice.task",
    "albert_tf.tasks.pretraining.task",
    "albert_tf.tasks.squad.answerer",
    "albert_tf.tasks.classification.task",
    "albert_tf.training.estimator",
)


class ScriptServer:
    """A server process; a context manager. One script runs at a time.

    Args:
      **environment: more environment variables of the scripts.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = environment

    def __enter__(self) -> ScriptServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.script_server"],
            cwd=ROOT,
            env={**environment(), **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # Buffered data would be invisible to select.
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    @contextlib.contextmanager
    def running(
        self,
        script: str,
        arguments: Sequence[object],
        stdout: Path,
        stderr: Path | None = None,
        cpus: int = 1,
    ) -> Iterator[int]:
        """Starts a script and yields its process id; the process ends with the block.

        Args:
          script: name of the module.
          arguments: its command-line arguments.
          stdout: file to which its output is appended.
          stderr: file for its error output; None: `stdout`.
          cpus: number of logical CPU devices.
        """
        request = {
            "script": script,
            "arguments": list(map(str, arguments)),
            "files": [str(stdout), str(stderr or stdout)],
            "cpus": cpus,
        }
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._busy = True
        process = int(self._process.stdout.readline())
        try:
            yield process
        finally:
            if self._busy:
                os.killpg(process, signal.SIGKILL)
                self.status(60)

    def status(self, seconds: float) -> int | None:
        """Waits for the script's end; returns its exit status (-9 if killed), None on timeout."""
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not ready:
            return None
        self._busy = False
        return int(self._process.stdout.readline())


def environment() -> dict[str, str]:
    """Returns variables for processes that import our code and must keep to one thread."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


def _serve() -> None:
    # As in script.run. Keras 3 would import scikit-learn, which imports pyarrow and its thread.
    prepare_tensorflow()
    for module in _IMPORTED:
        importlib.import_module(module)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"{len(threads)} threads: the imports have started some."
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(**json.loads(line))
        with contextlib.suppress(PermissionError):
            os.setpgid(child, child)  # Whoever is first: both see the group at once.
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(script: str, arguments: list[str], files: list[str], cpus: int) -> None:
    """Runs a script in this process and exits."""
    status = 1
    try:
        # A shell's background jobs ignore Ctrl-C, and so would the script.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        out, err = (os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in files)
        for number, stream in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(number, stream)
        if cpus > 1:
            import tensorflow as tf

            (cpu,) = tf.config.list_physical_devices("CPU")
            devices = [tf.config.LogicalDeviceConfiguration()] * cpus
            tf.config.set_logical_device_configuration(cpu, devices)
        # run_module replaces the first by the path of the module.
        sys.argv = [script, *arguments]
        sys.modules.pop(script, None)
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
