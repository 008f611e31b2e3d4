# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Detects a training that has gone wrong, from the metrics of its steps.

It looks for four things that users report: a loss that rises, a gradient norm that explodes, an
objective that is not learned at all (a plateau), and steps that are not finite. The alarms are a
function of the steps' metrics alone: they depend neither on how many steps run at a time nor on
where a run was resumed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.training.specs import FLOAT16

if TYPE_CHECKING:
    from albert_tf.training.specs import RunConfig

LOSS_SPIKE, GRADIENT_EXPLOSION = "loss_spike", "gradient_explosion"
NOT_FINITE = "not_finite"

#: Loss and gradient norm are judged by medians over this many steps: a single bad batch is no
#: divergence.
_BLOCK = 10
#: The running median is that of up to _HISTORY earlier blocks, once there are _ENOUGH. Blocks are
#: compared with its lowest value so far, as some runs diverge over thousands of steps.
_HISTORY, _ENOUGH = 50, 10
#: A loss has risen if it exceeds the lowest running median by this many standard deviations
#: (estimated from the median absolute deviation) and by this share of the run's first loss.
_DEVIATIONS, _MAD_TO_DEVIATION, _SHARE_OF_FIRST = 8.0, 1.4826, 0.05
#: A gradient norm has exploded at this multiple of its lowest running median and of the clipping
#: norm.
_EXPLOSION = 10.0
#: An objective is learned once its loss is below this share of the loss at chance, or its accuracy
#: is this many standard deviations above chance.
_LEARNED_SHARE, _LEARNED_DEVIATIONS = 0.97, 3.0
#: Windows for plateaus span at least this share of the run.
_WINDOW_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Plateau:
    """How the metric of an objective looks if nothing is learned.

    Attributes:
      metric: an entry of `Task.means`.
      chance: returns the metric's value without learning; called once, when it is first needed.
      name: the metric's name in a sentence.
      advice: what to do about it, a sentence.
      accuracy: whether the metric is an accuracy; otherwise it is a loss.
      steps: the fewest steps to judge together.
      examples: the fewest examples to judge together.
    """

    metric: str
    chance: Callable[[], float]
    name: str
    advice: str
    accuracy: bool = False
    steps: int = 200
    examples: int = 0


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A divergence that was detected.

    Attributes:
      cause: LOSS_SPIKE, GRADIENT_EXPLOSION, NOT_FINITE or the metric of a plateau.
      step: the step after which it was detected.
      onset: the last step before it began.
      text: what was detected, and where, a sentence.
      advice: what to do, a sentence.
      repeated: whether the previous check detected it too.
    """

    cause: str
    step: int
    onset: int
    text: str
    advice: str
    repeated: bool = False


class DivergenceDetector:
    """Checks the metrics of every step.

    Args:
      plateaus: of the task.
      config: of the run. Objectives need not be learned before its warm-up is over; its
        `max_nonfinite_steps` in a row raise an alarm, and any number at the end of the run. Steps
        whose gradient overflowed do not count, as the next ones have a smaller loss scale; once it
        is at its minimum, none overflows any more.
      max_steps: of the run.
    """

    def __init__(self, plateaus: Sequence[Plateau], config: RunConfig, max_steps: int) -> None:
        self._num_shallow_steps = config.num_shallow_steps
        self._max_nonfinite, self._max_steps = config.max_nonfinite_steps, max_steps
        self._nonfinite = 0
        self._nonfinite_advice = "Try a lower learning rate or a longer warm-up."
        if config.precision == FLOAT16:
            self._nonfinite_advice = (
                "float16 ends at 65504, which no loss scale can change. Try a lower learning rate, "
                "a longer warm-up, or another precision."
            )
        advice = "Lower the learning rate or lengthen the warm-up"
        loss = _RunningMedian("loss", LOSS_SPIKE, "the loss rose", f"{advice}.", _loss_limit)
        norm = _RunningMedian(
            "gradient_norm",
            GRADIENT_EXPLOSION,
            "the gradient norm exploded",
            f"{advice}, and try float32.",
            lambda lowest, medians, first: _EXPLOSION * max(lowest, config.clip_norm),
        )
        self._parts: dict[str, _RunningMedian | _Window] = {"loss": loss, "norm": norm}
        shortest = max(config.num_warmup_steps, int(_WINDOW_SHARE * max_steps))
        warm = config.start_warmup_step + config.num_warmup_steps
        for plateau in plateaus:
            name = plateau.metric
            name = f"{name} plateau" if name in self._parts else name
            self._parts[name] = _Window(plateau, warm, shortest, config.train_batch_size)

    def update(self, step: int, metrics: Mapping[str, np.ndarray]) -> list[Alarm]:
        """Takes the metrics of the steps up to `step`, [steps] each, and returns their alarms."""
        alarms = []
        first = step - len(metrics["finite"]) + 1
        overflowed = metrics.get("overflowed", np.zeros(len(metrics["finite"])))
        for i, finite in enumerate(metrics["finite"]):
            if first + i == self._num_shallow_steps + 1 > 1:
                self._forget_medians()  # With all layers, the loss is higher at first.
            alarms.append(self._check_finite(first + i, bool(finite or overflowed[i])))
            for part in self._parts.values():
                value = float(metrics[part.metric][i])
                alarms.append(part.check(first + i, value, bool(finite)))
        return [alarm for alarm in alarms if alarm]

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON values."""
        parts = {name: dict(part.state) for name, part in self._parts.items()}
        return {"nonfinite": self._nonfinite, **parts}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores a `state`; returns the names of the parts it lacks, which start afresh."""
        self._nonfinite = state.get("nonfinite", 0)
        lacking = []
        for name, part in self._parts.items():
            fresh, saved = part.new_state(), state.get(name, {})
            if saved.keys() != fresh.keys():
                lacking.append(name)
            part.state = dict(saved) if saved.keys() == fresh.keys() else fresh
        return lacking

    def _forget_medians(self) -> None:
        for part in self._parts.values():
            if isinstance(part, _RunningMedian):
                part.state = {**part.new_state(), "first": part.state["first"]}

    def _check_finite(self, step: int, finite: bool) -> Alarm | None:
        self._nonfinite = 0 if finite else self._nonfinite + 1
        # If a run ends on such steps, nothing shows that its weights are good.
        last = self._nonfinite > 0 and step == self._max_steps
        if self._nonfinite < self._max_nonfinite and not last:
            return None
        count = "1 step" if self._nonfinite == 1 else f"{self._nonfinite} steps in a row"
        return Alarm(
            NOT_FINITE,
            step,
            step - self._nonfinite,
            f"{count} before step {step} gave a loss or gradient that is not finite",
            self._nonfinite_advice,
            repeated=self._nonfinite > self._max_nonfinite,
        )


def _loss_limit(lowest: float, medians: np.ndarray, first: float) -> float:
    deviation = _MAD_TO_DEVIATION * float(np.median(np.abs(medians - np.median(medians))))
    return lowest + max(_DEVIATIONS * deviation, _SHARE_OF_FIRST * abs(first))


class _RunningMedian:
    """Compares a metric's median over a block of steps with its lowest running median so far.

    Args:
      metric: its name.
      cause: of the alarms.
      what: begins their text.
      advice: of the alarms.
      limit: of a block's median, given the lowest running median, the medians of the latest blocks
        and that of the run's first block.

    Attributes:
      state: the median of the run's first block; the lowest running median; the latest medians
        within the limit; the values of the current block; the step since which the limit is
        exceeded, or None.
    """

    def __init__(
        self,
        metric: str,
        cause: str,
        what: str,
        advice: str,
        limit: Callable[[float, np.ndarray, float], float],
    ) -> None:
        self.metric, self._cause, self._what = metric, cause, what
        self._advice, self._limit = advice, limit
        self.state = self.new_state()

    @staticmethod
    def new_state() -> dict[str, Any]:
        return {"first": None, "lowest": None, "medians": [], "values": [], "since": None}

    def check(self, step: int, value: float, finite: bool) -> Alarm | None:
        state = self.state
        if finite:
            state["values"].append(value)
        if step % _BLOCK or not state["values"]:
            return None
        newest = float(np.median(state["values"]))
        state["values"] = []
        if state["first"] is None:
            state["first"] = newest
        past = np.array(state["medians"])
        if len(past) >= _ENOUGH:
            running, lowest = float(np.median(past)), state["lowest"]
            state["lowest"] = running if lowest is None else min(running, lowest)
        lowest = state["lowest"]
        limit = math.inf if lowest is None else self._limit(lowest, past, state["first"])
        if state["since"] is not None:
            # Around the limit, a slow divergence would begin again and again.
            limit = (lowest + limit) / 2
        if newest <= limit:
            state["medians"] = [*state["medians"], newest][-_HISTORY:]
            state["since"] = None
            return None
        # Such a median does not shift the limit: the alarm lasts until the metric is halfway back.
        repeated = state["since"] is not None
        if not repeated:
            state["since"] = step - _BLOCK
        text = (
            f"{self._what} from {lowest:.4g}, its lowest running median, to {newest:.4g} between "
            f"steps {state['since']} and {step}"
        )
        return Alarm(self._cause, step, state["since"], text, self._advice, repeated)


class _Window:
    """Compares the mean of a plateau's metric over successive windows with chance.

    Attributes:
      state: sums and step counts of the two halves of a window; the step since which nothing is
        learned, or None.
    """

    def __init__(self, plateau: Plateau, warm: int, shortest: int, batch_size: int) -> None:
        self.metric = plateau.metric
        self._plateau, self._warm, self._batch_size = plateau, warm, batch_size
        self._steps = max(plateau.steps, shortest, math.ceil(plateau.examples / batch_size))
        self._chance: float | None = None
        self.state = self.new_state()

    @staticmethod
    def new_state() -> dict[str, Any]:
        return {"sums": [0.0, 0.0], "counts": [0, 0], "since": None}

    def check(self, step: int, value: float, finite: bool) -> Alarm | None:
        place = step - self._warm - 1
        if place < 0:
            return None
        place %= self._steps
        sums, counts, since = (self.state[name] for name in ("sums", "counts", "since"))
        if finite:
            half = 2 * place // self._steps
            sums[half] += value
            counts[half] += 1
        if place < self._steps - 1:
            return None
        self.state = {**self.new_state(), "since": since}
        if not all(counts):
            return None
        if self._chance is None:
            self._chance = self._plateau.chance()
        mean = sum(sums) / sum(counts)
        change = sums[1] / counts[1] - sums[0] / counts[0]
        if self._learned(mean, change, sum(counts)):
            self.state["since"] = None
            return None
        onset = step - self._steps if since is None else since
        self.state["since"] = onset
        accuracy = self._plateau.accuracy
        reached = f"{mean:.1%}" if accuracy else f"{mean:.3f}"
        chance = f"{self._chance:.0%}" if accuracy else f"{self._chance:.3f}"
        text = (
            f"{self._plateau.name} is {reached} in the {self._steps} steps before step {step}, "
            f"where {chance} needs no learning"
        )
        return Alarm(self.metric, step, onset, text, self._plateau.advice, since is not None)

    def _learned(self, mean: float, change: float, steps: int) -> bool:
        """Returns whether the metric is better than chance, or still improving."""
        chance = self._chance
        if self._plateau.accuracy:
            deviation = math.sqrt(chance * (1 - chance) / (steps * self._batch_size))
            return mean > chance + _LEARNED_DEVIATIONS * deviation
        return mean < _LEARNED_SHARE * chance or change < (_LEARNED_SHARE - 1) * chance
