# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs one of the scripts up to its second step with a clock around its phases.

  python -m benchmarks.startup_phases BEGAN REPORT SCRIPT [FLAGS]

BEGAN is the time (seconds since 1970) at which the command was given, REPORT the JSON file to
write. Used by benchmarks.startup.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from albert_tf.io.tensorflow_import import prepare_tensorflow

#: Packages that only some runs need.
OPTIONAL = ("sklearn", "tensorflow_addons", "tensorflow_hub", "tensorflow_text")


class Phases:
    """Wall and processor seconds by phase; what a phase inside another takes counts there alone."""

    def __init__(self, began: float) -> None:
        self.spent: dict[str, list[float]] = {}
        self._open = ["python"]
        self._last = (began, 0.0)

    def mark(self) -> None:
        """Counts the time up to now for the innermost phase."""
        now = time.time(), time.process_time()
        spent = self.spent.setdefault(self._open[-1], [0.0, 0.0])
        for i in range(2):
            spent[i] += now[i] - self._last[i]
        self._last = now

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as a phase."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.mark()
            self._open.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.mark()
                self._open.pop()

        return wrapper

    def go_on_with(self, phase: str) -> None:
        """Ends the outermost phase and begins another."""
        self.mark()
        self._open[0] = phase

    def end(self, report: str) -> None:
        """Writes the report and ends the process."""
        self.mark()
        loaded = [name for name in OPTIONAL if name in sys.modules]
        with open(report, "w", encoding="utf-8") as f:
            json.dump({"phases": self.spent, "optional_packages": loaded}, f)
        sys.stdout.flush()
        os._exit(0)


def install_clocks(phases: Phases, report: str) -> None:
    """Puts clocks around what the Estimator does; the second step or batch ends the process."""
    import tensorflow as tf

    from albert_tf.training import estimator, loop
    from albert_tf.training import run as training_run

    for module in (estimator, training_run):
        module.distribute = phases.timed("input", module.distribute)
        module.load_weights = phases.timed("load weights", module.load_weights)
    run = training_run.TrainingRun
    run.__init__ = phases.timed("optimizer", run.__init__)
    calls = iter(range(10))

    def stepwise(run: Callable[..., Any], trace: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(self: Any, *args: Any) -> Any:
            if next(calls) == 0:
                phases.timed("trace", trace)(self, *args)
                return phases.timed("first step", run)(self, *args)
            phases.timed("second step", run)(self, *args)
            return phases.end(report)

        return wrapper

    loop.TrainLoop.run = stepwise(
        loop.TrainLoop.run,
        lambda self, batches, steps: self._loop.get_concrete_function(batches, tf.constant(steps)),
    )
    loop.Predictor.__call__ = stepwise(
        loop.Predictor.__call__, lambda self, batches: self._step.get_concrete_function(batches)
    )
    built = estimator.Estimator.__init__

    def build(self: Any, task: Any, run_config: Any) -> None:
        task.build_model = phases.timed("model", task.build_model)
        built(self, task, run_config)

    estimator.Estimator.__init__ = build


def main(began: str, report: str, script: str, *arguments: str) -> None:
    """Runs the script."""
    prepare_tensorflow()  # As script.run does before anything imports it.
    phases = Phases(float(began))
    sys.argv = [f"{script}.py", *arguments]
    module = importlib.import_module(script)
    phases.timed("import TensorFlow", importlib.import_module)("tensorflow")
    phases.timed("import albert_tf", importlib.import_module)("albert_tf.training.estimator")
    phases.go_on_with("data and the rest")
    install_clocks(phases, report)
    module.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
