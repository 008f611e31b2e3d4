# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How a benchmark talks to another library, which runs in a Python of its own.

The driver is started as `python -m benchmarks.peers.NAME` with its setup, a JSON object, as the
argument. It prints one line of JSON when its step is compiled. Then it reads lines: for a number of
steps it runs them and prints their seconds, for "facts" what else it knows. It ends when its input
ends. A step is a training step, or a call of a model. This module uses the standard library only,
because two environments import it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

#: Characters of a driver's output that an error keeps.
_KEPT_OUTPUT = 3000
_ROOT = pathlib.Path(__file__).parents[2]


class PeerError(Exception):
    """The other library cannot be run; the message says why.

    Attributes:
      output: the end of what it printed.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class Peer:
    """A library's training step in a process of its own, which waits while it is not asked.

    Args:
      name: of the driver, a module of this folder.
      python: of the environment with the library.
      setup: what the driver takes, see `serve`.
      time_limit: seconds after which the process is ended, whatever it does; None: never.

    Attributes:
      versions: of the driver's packages, by name.

    Raises:
      PeerError: the driver does not start, or ends.
    """

    def __init__(
        self, name: str, python: str, setup: dict[str, Any], time_limit: float | None = None
    ) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        command = [os.path.abspath(python), "-m", f"benchmarks.peers.{name}", json.dumps(setup)]
        try:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, text=True,
            )  # fmt: skip
        except OSError as error:
            raise PeerError(f"{python} cannot be run: {error.strerror}.") from error
        self._timer: threading.Timer | None = None
        if time_limit is not None:
            self.end_after(time_limit)
        try:
            self.versions: dict[str, str] = self._answer()["versions"]
        except PeerError:
            self.close()
            raise

    def __call__(self, steps: int) -> tuple[float, float]:
        """Makes steps; gives their seconds, all together, and the last one's loss."""
        answer = self._ask(str(steps))
        return answer["seconds"], answer["loss"]

    def facts(self) -> dict[str, Any]:
        """Returns what the driver knows beside its steps' seconds, such as memory."""
        return self._ask("facts")

    def end_after(self, seconds: float) -> None:
        """Gives the process another time limit, counted from now."""
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(max(0.0, seconds), self._process.kill)
        self._timer.daemon = True
        self._timer.start()

    def _ask(self, line: str) -> dict[str, Any]:
        # If it has ended, reading its answer tells why.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        if self._timer:
            self._timer.cancel()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        output = self._errors.read().strip()
        said = output.splitlines() or ["nothing"]
        message = f"The peer {self._name} ended with status {status}; it said: {said[-1]}"
        raise PeerError(message, output[-_KEPT_OUTPUT:])


def repeated(call: Callable[[], object]) -> Callable[[int], float]:
    """Returns what `serve` takes, for a call that is no training step and has no loss."""

    def run(calls: int) -> float:
        for _ in range(calls):
            call()
        return 0.0

    return run


def serve(
    build: Callable[[dict[str, Any]], Callable[[int], float]],
    packages: Sequence[str],
    facts: Callable[[], dict[str, Any]] = dict,
) -> None:
    """The driver's side.

    Args:
      build: takes the setup and returns a function that makes a number of steps and, when they are
        done, returns the last one's loss. The setup: "config", the keys of `albert_config.json`;
        "batch", the path of an .npz file with one batch of pretraining records and "labels" [B, S],
        which are -100 where nothing is masked; "policy", "float32" or "mixed_bfloat16"; "mode",
        "eager", "compile" or "max_autotune"; "masked_only", whether the library's head is to be
        given the masked positions alone; "threads"; of transformers also "device", "cpu" if left
        out.
      packages: whose versions are told.
      facts: returns what `Peer.facts` does.
    """
    # What the libraries print goes elsewhere than the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**values: Any) -> None:
        print(json.dumps(values), file=answers, flush=True)

    run = build(json.loads(sys.argv[1]))
    run(1)
    answer(versions={name: metadata.version(name) for name in packages})
    for line in sys.stdin:
        if line.strip() == "facts":
            answer(**facts())
            continue
        began = time.perf_counter()
        loss = run(int(line))
        answer(seconds=time.perf_counter() - began, loss=loss)
