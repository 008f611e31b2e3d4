# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts a cluster of real processes on this machine for MultiWorkerMirroredStrategy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Exit(NamedTuple):
    """The exit status of a worker (minus the signal that ended it), and its outputs."""

    returncode: int
    stdout: str
    stderr: str


def free_ports(number: int) -> list[int]:
    """Returns unused ports of the loopback device."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:  # All are bound before any is closed, so no two are the same.
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Starts a Python command as every worker of a cluster; on leaving, kills those that run.

    Args:
      command: a script, relative to the repository's root, and its arguments.
      folder: for the workers' outputs, stdout-<index> and stderr-<index>.
      workers: their number; a single one gets no TF_CONFIG.
    """

    def __init__(self, command: Sequence[object], folder: Path, workers: int = 2) -> None:
        hosts = [f"localhost:{port}" for port in free_ports(workers)]
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen] = []
        for index in range(workers):
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "CUDA_VISIBLE_DEVICES": "-1",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                # The workers share the machine's cores.
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTRAOP_THREADS": "1",
            }
            environment.pop("TF_CONFIG", None)
            if workers > 1:
                task = {"type": "worker", "index": index}
                environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": task})
            stdout, stderr = self._path("stdout", index), self._path("stderr", index)
            with open(stdout, "w") as out, open(stderr, "w") as err:
                process = subprocess.Popen(
                    [sys.executable, *map(str, command)],
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,  # To kill it with its own child processes.
                )
            self.processes.append(process)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _path(self, stream: str, index: int) -> Path:
        return self._folder / f"{stream}-{index}"

    def output(self, index: int, stream: str = "stderr") -> str:
        """Returns what a worker has written to a stream so far."""
        return self._path(stream, index).read_text(errors="replace")

    def wait_for(self, pattern: str, index: int = 0, stream: str = "stderr") -> None:
        """Waits until an output of a worker, which must be running, has a match of a pattern."""
        while not re.search(pattern, self.output(index, stream), re.M):
            assert self.processes[index].poll() is None, self._ends()
            time.sleep(0.05)

    def wait(self, timeout: float = 240.0, grace: float = 30.0) -> list[Exit]:
        """Waits until all have ended; once one has failed the others get `grace` seconds."""
        end = time.monotonic() + timeout
        failed = False
        while any(process.poll() is None for process in self.processes):
            if not failed and any(process.returncode for process in self.processes):
                failed, end = True, min(end, time.monotonic() + grace)
            if time.monotonic() > end:
                self.kill()
                if failed:
                    break
                raise TimeoutError(f"still running after {timeout:g} s\n{self._ends()}")
            time.sleep(0.05)
        return [
            Exit(process.returncode, self.output(i, "stdout"), self.output(i))
            for i, process in enumerate(self.processes)
        ]

    def run(self, timeout: float = 240.0) -> list[Exit]:
        """Waits until all have ended, and none has failed."""
        with self:
            exits = self.wait(timeout)
            if any(done.returncode for done in exits):
                raise AssertionError(f"a worker has failed\n{self._ends()}")
            return exits

    def kill(self) -> None:
        """Kills the workers that still run, and their child processes."""
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _ends(self) -> str:
        """The last lines of all outputs."""
        return "\n".join(
            f"--- worker {i}, {stream}, exit status {process.poll()}:\n"
            f"{self.output(i, stream)[-2000:]}"
            for i, process in enumerate(self.processes)
            for stream in ("stdout", "stderr")
        )
