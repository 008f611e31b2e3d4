# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Notices from the metrics of its steps that a training has gone wrong.

There are two signs: many steps in a row that are not finite, and a mean loss that has gone back
towards where it began. It does not matter how many steps run at a time or where a run was resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from albert_tf.errors import DivergedError
from albert_tf.training.specs import FLOAT16, STOP, RunConfig

#: Steps in a row that are not finite and end a run.
NONFINITE_STEPS = 10
#: The loss is judged by its mean over a window of at least so many steps and this share of the run.
_STEPS, _SHARE_OF_RUN = 50, 0.01
#: A mean loss has risen if it is more than halfway back from the lowest mean to the first one, and
#: by this share of the first one: that of a pretrained model may rise a little before it falls.
_SHARE_OF_FIRST = 0.25
#: It must also rise by so many standard errors, as means of small batches differ by chance.
_ERRORS = 5.0
_AFRESH = {"window": (0, 0.0, 0.0), "best": None}
_ADVICE = "Lower the learning rate or lengthen the warm-up"


class DivergenceCheck:
    """Checks every step of a run; needs no TensorFlow. Its state belongs into the checkpoints.

    Attributes:
      state: JSON values: the number of all skipped steps, and of the last ones; count, sum and sum
        of squares of the losses in the current window; the mean of the first window; mean, its
        variance and last step of the best window; whether the user was warned.
    """

    def __init__(
        self, config: RunConfig, max_steps: int, checkpoints: Callable[[], Mapping[int, str]]
    ) -> None:
        self._config, self._max_steps, self._checkpoints = config, max_steps, checkpoints
        self._window = max(_STEPS, int(_SHARE_OF_RUN * max_steps))
        self.state = {
            "skipped": 0, "nonfinite": 0, "first": None, "warned": False, **_AFRESH
        }  # fmt: skip

    def check(self, step: int, metrics: Mapping[str, np.ndarray]) -> str | None:
        """Takes the metrics of the steps up to `step`, see `TrainLoop.run`, [steps] each.

        Returns a warning, at most one in a run; raises DivergedError if the run has to end.
        """
        warning, loss, finite = None, metrics["loss"], metrics["finite"]
        # An overflow shrinks the loss scale; at its minimum, no step counts as an overflow.
        good = np.logical_or(finite, metrics.get("overflowed", 0))
        for i, number in enumerate(range(step - len(finite) + 1, step + 1)):
            if number == self._config.num_shallow_steps + 1 > 1:
                self.state |= _AFRESH  # With all layers, the loss is higher at first.
            self._count(number, bool(good[i]))
            if finite[i]:
                warning = self._add(number, float(loss[i])) or warning
        return warning

    def _count(self, step: int, good: bool) -> None:
        count = self.state["nonfinite"] = 0 if good else self.state["nonfinite"] + 1
        # If a run ends on such steps, nothing shows that its weights are good.
        enough = 1 if step == self._max_steps else NONFINITE_STEPS
        if count >= enough:
            steps = "1 step" if count == 1 else f"{count} steps in a row"
            text = f"{steps} before step {step} gave a loss or gradient that is not finite"
            is_float16 = self._config.precision == FLOAT16
            hint = ", or try another precision: float16 ends at 65504" if is_float16 else ""
            raise self._diverged(text, step - count, f"{_ADVICE}{hint}")

    def _add(self, step: int, loss: float) -> str | None:
        state, (count, total, squares) = self.state, self.state["window"]
        state["window"] = count, total, squares = count + 1, total + loss, squares + loss**2
        if count < self._window:
            return None
        mean, state["window"] = total / count, _AFRESH["window"]
        variance = max(0.0, squares / count - mean**2) / count
        first = state["first"] = mean if state["first"] is None else state["first"]
        best, best_variance, best_step = state["best"] or (math.inf, 0.0, step)
        if mean < best:
            state["best"] = mean, variance, step
            return None
        error = math.sqrt(variance + best_variance)
        limit = max((first - best) / 2, _SHARE_OF_FIRST * abs(first), _ERRORS * error)
        stops = self._config.on_divergence == STOP
        if mean - best <= limit or (state["warned"] and not stops):
            return None
        text = f"the mean loss of the {count} steps up to step {step} is {mean:.4g}, after "
        text += f"{best:.4g} up to step {best_step} and {first:.4g} at first"
        if stops:
            raise self._diverged(text, best_step, _ADVICE)
        state["warned"] = True
        return f"Warning: {text}. {_ADVICE}."

    def _diverged(self, text: str, onset: int, advice: str) -> DivergedError:
        paths = [path for step, path in sorted(self._checkpoints().items()) if step <= onset]
        kept = "there is no checkpoint from before"
        if paths:
            kept = f"the last good checkpoint is {paths[-1]}"
        return DivergedError(f"Training has diverged: {text}; {kept}. {advice}.")
