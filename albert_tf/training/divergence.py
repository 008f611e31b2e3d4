# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Detects a training that has gone wrong, from the metrics of its steps.

It looks for four things that users report: a loss that jumps up, a gradient norm that explodes, an
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

if TYPE_CHECKING:
    from albert_tf.training.specs import RunConfig

LOSS_SPIKE, GRADIENT_EXPLOSION = "loss_spike", "gradient_explosion"
NOT_FINITE = "not_finite"

#: Loss and gradient norm are judged by medians over this many steps: a single bad batch is no
#: divergence.
_BLOCK = 10
#: Each median is compared with up to _HISTORY earlier ones, once there are _ENOUGH.
_HISTORY, _ENOUGH = 50, 10
#: A loss has jumped if it rises above the running median by this many standard deviations
#: (estimated from the median absolute deviation) and by this share of the run's first loss.
_DEVIATIONS, _MAD_TO_DEVIATION, _SHARE_OF_FIRST = 8.0, 1.4826, 0.05
#: A gradient norm has exploded at this multiple of its running median and of the clipping norm.
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
        `max_nonfinite_steps` in a row raise an alarm, and any number at the end of the run.
      max_steps: of the run.
    """

    def __init__(self, plateaus: Sequence[Plateau], config: RunConfig, max_steps: int) -> None:
        self._config, self._max_steps = config, max_steps
        self._nonfinite = 0
        self._loss, self._norm = _RunningMedian(), _RunningMedian()
        shortest = max(config.num_warmup_steps, int(_WINDOW_SHARE * max_steps))
        warm = config.start_warmup_step + config.num_warmup_steps
        self._windows = [
            _Window(plateau, warm, shortest, config.train_batch_size) for plateau in plateaus
        ]
        self._parts: dict[str, _RunningMedian | _Window] = {"loss": self._loss, "norm": self._norm}
        for window in self._windows:
            metric = window.plateau.metric
            self._parts[metric if metric not in self._parts else f"{metric} plateau"] = window

    def update(self, step: int, metrics: Mapping[str, np.ndarray]) -> list[Alarm]:
        """Takes the metrics of the steps up to `step`, [steps] each, and returns their alarms."""
        finite, first = metrics["finite"], step - len(metrics["finite"])
        alarms: list[Alarm] = []
        for i, ok in enumerate(finite):
            now = first + i + 1
            self._nonfinite = 0 if ok else self._nonfinite + 1
            if ok:
                self._loss.add(float(metrics["loss"][i]))
                self._norm.add(float(metrics["gradient_norm"][i]))
            checks = [self._not_finite(now)]
            if now % _BLOCK == 0:
                checks += [self._loss_spike(now), self._gradient_explosion(now)]
            for window in self._windows:
                value = float(metrics[window.plateau.metric][i])
                checks.append(window.update(now, value, bool(ok)))
            alarms += [alarm for alarm in checks if alarm]
        return alarms

    def state(self) -> dict[str, Any]:
        """Returns the state as JSON values."""
        parts = {name: vars(part.memory).copy() for name, part in self._parts.items()}
        return {"nonfinite": self._nonfinite, **parts}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores a `state`; returns the names of the parts it lacks, which start afresh."""
        self._nonfinite = state.get("nonfinite", 0)
        lacking = []
        for name, part in self._parts.items():
            memory, values = type(part.memory), state.get(name, {})
            if values.keys() != vars(memory()).keys():
                lacking.append(name)
                values = {}
            part.memory = memory(**values)
        return lacking

    def _not_finite(self, step: int) -> Alarm | None:
        # If a run ends on such steps, nothing shows that its weights are good.
        few = self._nonfinite < self._config.max_nonfinite_steps
        if few and not (self._nonfinite and step == self._max_steps):
            return None
        count = "1 step" if self._nonfinite == 1 else f"{self._nonfinite} steps in a row"
        return Alarm(
            NOT_FINITE,
            step,
            step - self._nonfinite,
            f"{count} before step {step} gave a loss or gradient that is not finite",
            "Try a lower learning rate or a longer warm-up.",
            repeated=self._nonfinite > self._config.max_nonfinite_steps,
        )

    def _loss_spike(self, step: int) -> Alarm | None:
        first = self._loss.memory.first

        def limit(medians: np.ndarray) -> float:
            middle = float(np.median(medians))
            spread = _MAD_TO_DEVIATION * float(np.median(np.abs(medians - middle)))
            return middle + max(_DEVIATIONS * spread, _SHARE_OF_FIRST * abs(first))

        advice = "Lower the learning rate or lengthen the warm-up."
        return self._loss.judge(step, limit, LOSS_SPIKE, "the loss jumped", advice)

    def _gradient_explosion(self, step: int) -> Alarm | None:
        def limit(medians: np.ndarray) -> float:
            return _EXPLOSION * max(float(np.median(medians)), self._config.clip_norm)

        advice = "Lower the learning rate or lengthen the warm-up, and try float32."
        what = "the gradient norm exploded"
        return self._norm.judge(step, limit, GRADIENT_EXPLOSION, what, advice)


@dataclasses.dataclass
class _Medians:
    """State of a running median.

    Attributes:
      first: the run's first median.
      medians: the latest ones within the limit.
      values: of the current block.
      since: the step after which the metric exceeded its limit; None while it does not.
    """

    first: float | None = None
    medians: list[float] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)
    since: int | None = None


class _RunningMedian:
    """Judges a metric by its medians over blocks of steps."""

    def __init__(self) -> None:
        self.memory = _Medians()

    def add(self, value: float) -> None:
        self.memory.values.append(value)

    def judge(
        self,
        step: int,
        limit: Callable[[np.ndarray], float],
        cause: str,
        what: str,
        advice: str,
    ) -> Alarm | None:
        """Ends a block; returns an alarm if its median exceeds the limit set by earlier ones."""
        memory = self.memory
        if not memory.values:
            return None
        newest = float(np.median(memory.values))
        memory.values = []
        memory.first = newest if memory.first is None else memory.first
        past = np.array(memory.medians)
        if len(past) < _ENOUGH or newest <= limit(past):
            memory.medians = [*memory.medians, newest][-_HISTORY:]
            memory.since = None
            return None
        # Such a median does not shift the limit: the alarm lasts until the metric is back.
        repeated = memory.since is not None
        if not repeated:
            memory.since = step - _BLOCK
        text = (
            f"{what} from {np.median(past):.4g} to {newest:.4g} between steps {memory.since} and "
            f"{step} (medians of {_BLOCK * len(past)} and {_BLOCK} steps)"
        )
        return Alarm(cause, step, memory.since, text, advice, repeated)


@dataclasses.dataclass
class _Halves:
    """State of a window: sums and step counts of its halves, and `since` as in _Medians."""

    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    counts: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    since: int | None = None


class _Window:
    """Judges the mean of a plateau's metric over successive windows."""

    def __init__(self, plateau: Plateau, warm: int, shortest: int, batch_size: int) -> None:
        self.plateau, self._warm, self._batch_size = plateau, warm, batch_size
        self._steps = max(plateau.steps, shortest, math.ceil(plateau.examples / batch_size))
        self._chance: float | None = None
        self.memory = _Halves()

    def update(self, step: int, value: float, finite: bool) -> Alarm | None:
        place = step - self._warm - 1
        if place < 0:
            return None
        memory, place = self.memory, place % self._steps
        if finite:
            half = 2 * place // self._steps
            memory.sums[half] += value
            memory.counts[half] += 1
        if place < self._steps - 1:
            return None
        self.memory = _Halves(since=memory.since)
        if not all(memory.counts):
            return None
        if self._chance is None:
            self._chance = self.plateau.chance()
        mean = sum(memory.sums) / sum(memory.counts)
        early, late = (total / count for total, count in zip(memory.sums, memory.counts))
        if self._learned(mean, late - early, sum(memory.counts)):
            self.memory.since = None
            return None
        since = step - self._steps if memory.since is None else memory.since
        self.memory.since = since
        share = f"{mean:.1%}" if self.plateau.accuracy else f"{mean:.3f}"
        chance = f"{self._chance:.0%}" if self.plateau.accuracy else f"{self._chance:.3f}"
        return Alarm(
            self.plateau.metric,
            step,
            since,
            f"{self.plateau.name} is {share} in the {self._steps} steps before step {step}, where "
            f"{chance} needs no learning",
            self.plateau.advice,
            repeated=memory.since is not None,
        )

    def _learned(self, mean: float, change: float, steps: int) -> bool:
        """Returns whether the metric is better than chance, or still improving."""
        chance = self._chance
        if self.plateau.accuracy:
            deviation = math.sqrt(chance * (1 - chance) / (steps * self._batch_size))
            return mean > chance + _LEARNED_DEVIATIONS * deviation
        return mean < _LEARNED_SHARE * chance or change < (_LEARNED_SHARE - 1) * chance
