# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Recognises, from the figures of its steps alone, a training that has gone wrong.

Four things that users report: a loss that jumps up, a gradient norm that explodes, an objective
that is not learned at all (a plateau), and steps that are not finite. What is found is a function
of the steps' figures and of nothing else: not of how many steps run at a time, nor of where a run
was resumed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

LOSS_SPIKE, GRADIENT_EXPLOSION = "loss_spike", "gradient_explosion"
NOT_FINITE = "not_finite"

#: Loss and gradient norm are judged by the medians of so many steps: a single bad batch is no
#: divergence.
_BLOCK = 10
#: Medians that the next one is compared with, and how many it takes to compare at all.
_HISTORY, _ENOUGH = 50, 10
#: A loss has jumped if it rises above the running median by so many standard deviations (from the
#: median absolute deviation, hence the factor) and by so large a share of the run's first loss.
_DEVIATIONS, _MAD_TO_DEVIATION, _SHARE_OF_FIRST = 8.0, 1.4826, 0.05
#: A gradient norm has exploded at so many times its running median and the norm it is clipped to.
_EXPLOSION = 10.0
#: An objective is learned once its loss is below this share of what chance costs, or once its
#: accuracy is so many standard deviations above chance.
_LEARNED_SHARE, _LEARNED_DEVIATIONS = 0.97, 3.0
#: A plateau is looked for in windows of at least this share of the run.
_WINDOW_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Plateau:
    """What an objective that is not learned looks like.

    Attributes:
      metric: of `Task.means`; an accuracy if `accuracy`, a loss otherwise.
      chance: gives the metric's value without learning; called once, when it is first needed.
      name: of the metric, in a sentence.
      advice: what to do about it, a sentence.
      accuracy: whether the metric is an accuracy, the share of `examples` that are right.
      steps: judge no fewer steps together.
      examples: judge no fewer examples together.
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
    """A finding.

    Attributes:
      cause: LOSS_SPIKE, GRADIENT_EXPLOSION, NOT_FINITE or the metric of a plateau.
      step: after which it was found.
      onset: after which it was not there yet.
      text: what and where, a sentence.
      advice: what to do, a sentence.
      repeated: it was there at the last look already.
    """

    cause: str
    step: int
    onset: int
    text: str
    advice: str
    repeated: bool = False


class DivergenceDetector:
    """Looks at every step's figures.

    Args:
      plateaus: of the task.
      batch_size: examples of a step.
      num_warmup_steps: of the run; an objective need not be learned before they are over.
      start_warmup_step: the step at which they begin.
      max_steps: of the run.
      clip_norm: the norm that gradients are clipped to.
      max_nonfinite_steps: so many steps in a row that are not finite are an alarm; at the end of
        the run, any number.
    """

    def __init__(
        self,
        plateaus: Sequence[Plateau] = (),
        *,
        batch_size: int,
        num_warmup_steps: int,
        max_steps: int,
        start_warmup_step: int = 0,
        clip_norm: float = 1.0,
        max_nonfinite_steps: int = 10,
    ) -> None:
        self._clip_norm, self._max_nonfinite = clip_norm, max_nonfinite_steps
        self._nonfinite, self._max_steps = 0, max_steps
        self._loss, self._norm = _Running(), _Running()
        shortest = max(num_warmup_steps, int(_WINDOW_SHARE * max_steps))
        warm = start_warmup_step + num_warmup_steps
        self._windows = [_Window(plateau, warm, shortest, batch_size) for plateau in plateaus]
        self._parts: dict[str, _Running | _Window] = {"loss": self._loss, "norm": self._norm}
        for window in self._windows:
            metric = window.plateau.metric
            self._parts[metric if metric not in self._parts else f"{metric} plateau"] = window

    def update(self, step: int, metrics: Mapping[str, np.ndarray]) -> list[Alarm]:
        """Takes the metrics of the steps up to `step`, [steps] each; gives what they show."""
        finite, first = metrics["finite"], step - len(metrics["finite"])
        alarms: list[Alarm] = []
        for i, ok in enumerate(finite):
            now = first + i + 1
            self._nonfinite = 0 if ok else self._nonfinite + 1
            if ok:
                self._loss.add(float(metrics["loss"][i]))
                self._norm.add(float(metrics["gradient_norm"][i]))
            found = [self._not_finite(now)]
            if now % _BLOCK == 0:
                found += [self._loss_spike(now), self._gradient_explosion(now)]
            for window in self._windows:
                found.append(window.update(now, float(metrics[window.plateau.metric][i]), bool(ok)))
            alarms += [alarm for alarm in found if alarm]
        return alarms

    def state(self) -> dict[str, Any]:
        """All that is remembered, as JSON values."""
        parts = {name: vars(part.memory).copy() for name, part in self._parts.items()}
        return {"nonfinite": self._nonfinite, **parts}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Goes on from a `state`; gives the names of the parts that it lacks, which begin anew."""
        self._nonfinite = state.get("nonfinite", 0)
        lacking = []
        for name, part in self._parts.items():
            memory, known = type(part.memory), state.get(name, {})
            if known.keys() == vars(memory()).keys():
                part.memory = memory(**known)
            else:
                part.memory = memory()
                lacking.append(name)
        return lacking

    def _not_finite(self, step: int) -> Alarm | None:
        # A run that ends on such steps has nothing that shows its weights to be good.
        few = self._nonfinite < self._max_nonfinite
        if few and not (self._nonfinite and step == self._max_steps):
            return None
        count = "1 step" if self._nonfinite == 1 else f"{self._nonfinite} steps in a row"
        return Alarm(
            NOT_FINITE,
            step,
            step - self._nonfinite,
            f"{count} before step {step} gave a loss or gradient that is not finite",
            "Try a lower learning rate or a longer warm-up.",
            repeated=self._nonfinite > self._max_nonfinite,
        )

    def _loss_spike(self, step: int) -> Alarm | None:
        first = self._loss.memory.first

        def limit(medians: np.ndarray) -> float:
            middle = float(np.median(medians))
            spread = _MAD_TO_DEVIATION * float(np.median(np.abs(medians - middle)))
            return middle + max(_DEVIATIONS * spread, _SHARE_OF_FIRST * abs(first))

        return self._loss.judge(
            step,
            limit,
            LOSS_SPIKE,
            "the loss jumped",
            "Lower --learning_rate or lengthen the warm-up.",
        )

    def _gradient_explosion(self, step: int) -> Alarm | None:
        def limit(medians: np.ndarray) -> float:
            return _EXPLOSION * max(float(np.median(medians)), self._clip_norm)

        return self._norm.judge(
            step,
            limit,
            GRADIENT_EXPLOSION,
            "the gradient norm exploded",
            "Lower --learning_rate or lengthen the warm-up, and try --precision=float32.",
        )


@dataclasses.dataclass
class _Medians:
    """Memory of a running median: the first median, those compared with, values since the last one.

    `since` is the step after which the figure left its limits, None while it keeps within them.
    """

    first: float | None = None
    medians: list[float] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)
    since: int | None = None


class _Running:
    """A figure by the medians of blocks of steps."""

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
        """Ends a block; an alarm if its median is above the limit that the ones before set."""
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
        # What is out of bounds is not learned from: the alarm lasts until the figure is back.
        repeated = memory.since is not None
        memory.since = memory.since if repeated else step - _BLOCK
        text = (
            f"{what} from {np.median(past):.4g} to {newest:.4g} between steps {memory.since} and "
            f"{step} (medians of {_BLOCK * len(past)} and {_BLOCK} steps)"
        )
        return Alarm(cause, step, memory.since, text, advice, repeated)


@dataclasses.dataclass
class _Halves:
    """Memory of a window: sums and numbers of steps of its halves, and as in _Medians `since`."""

    sums: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    counts: list[int] = dataclasses.field(default_factory=lambda: [0, 0])
    since: int | None = None


class _Window:
    """Judges the means of one plateau's metric over windows that follow each other."""

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
        """Whether the metric is better than chance, or is still on its way there."""
        chance = self._chance
        if self.plateau.accuracy:
            deviation = math.sqrt(chance * (1 - chance) / (steps * self._batch_size))
            return mean > chance + _LEARNED_DEVIATIONS * deviation
        return mean < _LEARNED_SHARE * chance or change < (_LEARNED_SHARE - 1) * chance
