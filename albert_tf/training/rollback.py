# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run does about a divergence: it warns, stops, or rolls back to an earlier checkpoint."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.errors import AlbertError, DamagedError, DivergedError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.training.checkpoints import CheckpointStore
from albert_tf.training.divergence import NOT_FINITE, Alarm, DivergenceDetector
from albert_tf.training.specs import ROLLBACK, WARN, RunConfig
from albert_tf.training.strategy import highest, is_chief

ROLLBACKS = "rollbacks.json"
#: Each rollback multiplies the learning rate by this. PaLM's authors skipped data and kept the rate
#: (Chowdhery et al., 2022, section 5.1), which does not help if the rate is to blame.
_RATE_FACTOR = 0.5
#: Rollbacks of one run.
MAX_ROLLBACKS = 3


@dataclasses.dataclass(frozen=True)
class _Rollback:
    """An entry of rollbacks.json; the last two fields accumulate over all rollbacks so far."""

    cause: str
    text: str
    step: int
    to_step: int
    learning_rate_factor: float
    skipped_batches: int


_NONE = _Rollback("", "", 0, 0, learning_rate_factor=1.0, skipped_batches=0)


class DivergenceGuard(tf.train.experimental.PythonState):
    """Watches a run, and rolls it back if `on_divergence` says so.

    A rollback restores an earlier checkpoint, lowers the learning rate and skips the data up to the
    alarm. `rollbacks.json` in the output directory records this, so that a resumed run ends with
    the weights of an uninterrupted one. Checkpoints hold the state of the detector and the number
    of rollbacks before them.

    Args:
      detector: finds divergences.
      config: of the run.
      strategy: of the run; create the guard in its scope.
      note: prints a sentence for the user.

    Attributes:
      learning_rate_factor: float32 variable; multiplies the rate of the schedule.
    """

    def __init__(
        self,
        detector: DivergenceDetector,
        config: RunConfig,
        strategy: tf.distribute.Strategy,
        note: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._detector, self._action, self._note = detector, config.on_divergence, note
        self._strategy, self._writes = strategy, is_chief(strategy)
        self._path = os.path.join(config.output_dir, ROLLBACKS)
        self._rollbacks: list[_Rollback] = []
        self.learning_rate_factor = tf.Variable(1.0, trainable=False, name="learning_rate_factor")
        # What the restored checkpoint says.
        self._restored_count = 0
        self._without_history: list[str] = []

    @property
    def _last(self) -> _Rollback:
        return self._rollbacks[-1] if self._rollbacks else _NONE

    @property
    def skipped_batches(self) -> int:
        """Global batches by which the data is ahead of the step."""
        return self._last.skipped_batches

    def serialize(self) -> str:
        """Returns the guard's part of a checkpoint, as JSON."""
        state = {"detector": self._detector.state(), "rollbacks": len(self._rollbacks)}
        return json.dumps(state)

    def deserialize(self, serialized: str) -> None:
        """Restores the detector from a checkpoint; "{}" if the checkpoint has no such part."""
        state = json.loads(serialized)
        self._without_history = self._detector.restore(state.get("detector", {}))
        self._restored_count = state.get("rollbacks", 0)

    def begin(self) -> None:
        """Deletes the record of an earlier run that saved no checkpoint."""
        if self._writes and tf.io.gfile.exists(self._path):
            tf.io.gfile.remove(self._path)

    def resume(self, step: int) -> str | None:
        """Applies the rollbacks that precede the restored checkpoint, or led back to it.

        Any others will happen again, as their steps do.

        Args:
          step: of the restored checkpoint.

        Returns:
          A note for the user if the checkpoint lacks part of the detector's state, else None.

        Raises:
          AlbertError: the record of rollbacks is damaged, or lacks some.
        """
        recorded, count = self._read(), self._restored_count
        if len(recorded) < count:
            raise AlbertError(
                f"The checkpoint of step {step} comes after {count} rollbacks, but {self._path} "
                f"has {len(recorded)}; put the file back, or give another `output_dir`."
            )
        led_back = [i for i, entry in enumerate(recorded, 1) if i > count and entry.to_step == step]
        self._rollbacks = recorded[: max([count, *led_back])]
        self.learning_rate_factor.assign(self._last.learning_rate_factor)
        if not self._without_history:
            return None
        return (
            f"The checkpoint has no history of {', '.join(self._without_history)}, as another "
            "version wrote it; the detection of divergences starts afresh for these."
        )

    def check(
        self, step: int, metrics: Mapping[str, np.ndarray], store: CheckpointStore
    ) -> Alarm | None:
        """Warns of divergences; returns the alarm that calls for a rollback, if any.

        Args:
          step: the last of these steps.
          metrics: of the steps, [steps] each.
          store: the run's checkpoints.

        Raises:
          DivergedError: the run has to end.
        """
        for alarm in self._detector.update(step, metrics):
            if self._action == WARN and alarm.cause != NOT_FINITE:
                if not alarm.repeated:
                    self._note(f"Warning: {alarm.text}. {alarm.advice}")
                continue
            if self._action == ROLLBACK and len(self._rollbacks) < MAX_ROLLBACKS:
                return alarm
            kept = store.kept()
            good = [saved for saved in kept if saved <= alarm.onset]
            state = "there is no checkpoint from before"
            if good:
                state = f"the last good checkpoint is {kept[max(good)]}"
            hint = "`on_divergence`=rollback goes back to a good checkpoint by itself."
            if self._action == ROLLBACK:
                hint = f"{len(self._rollbacks)} rollbacks did not help."
            raise _diverged(alarm, state, hint)
        return None

    def roll_back(self, alarm: Alarm, store: CheckpointStore) -> int:
        """Restores a checkpoint from before the alarm and returns its step.

        Raises:
          DivergedError: there is no good checkpoint.
        """
        target = self._restore_before(alarm, store)
        highest(self._strategy)  # All workers have chosen before the chief deletes any checkpoint.
        # A run that is killed between these two raises the same alarm again, and comes back here.
        store.forget_after(target)
        self.record(alarm, target)
        self.learning_rate_factor.assign(self._last.learning_rate_factor)
        self._note(
            f"Diverged: {alarm.text}. Going back to step {target}, skipping "
            f"{self.skipped_batches} batches in all, with the learning rate times "
            f"{self._last.learning_rate_factor:g} (rollback {len(self._rollbacks)} of at most "
            f"{MAX_ROLLBACKS})."
        )
        return target

    def _restore_before(self, alarm: Alarm, store: CheckpointStore) -> int:
        kept = store.kept()
        while (target := self.target(alarm, list(kept))) is not None:
            try:
                with self._strategy.scope():
                    store.restore(kept[target])
                return target
            except DamagedError as error:
                self._note(str(error))
                del kept[target]
        raise _diverged(alarm, "there is no checkpoint to go back to")

    def target(self, alarm: Alarm, steps: Sequence[int]) -> int | None:
        """Chooses the checkpoint to go back to, given the steps of all; None if there is none.

        Takes the newest one from before the divergence, or else the oldest. If the last rollback
        went there too, the checkpoint itself may be bad: then it takes the next older one.
        """
        good = sorted(step for step in steps if step <= alarm.onset) or sorted(steps)[:1]
        if len(good) > 1 and self._rollbacks and self._last.to_step == good[-1]:
            return good[-2]
        return good[-1] if good else None

    def record(self, alarm: Alarm, to_step: int) -> None:
        """Records that the run goes back to `to_step`, and on with the data after the alarm."""
        values = (alarm.cause, alarm.text, alarm.step, to_step)
        self._rollbacks.append(_following(self._last, *values))
        if self._writes:
            files.write_json(self._path, [dataclasses.asdict(entry) for entry in self._rollbacks])

    def _read(self) -> list[_Rollback]:
        if not tf.io.gfile.exists(self._path):
            return []
        values = files.read_json(self._path, "record of rollbacks")
        damaged = f"The record of rollbacks {self._path} is damaged"
        if not isinstance(values, list):
            raise AlbertError(f"{damaged}: it is not a list.")
        entries: list[_Rollback] = []
        for value in values:
            entry = from_json(_Rollback, value, damaged)
            last = entries[-1] if entries else _NONE
            if entry != _following(last, entry.cause, entry.text, entry.step, entry.to_step):
                raise AlbertError(f"{damaged}: the numbers of entry {len(entries) + 1} are wrong.")
            entries.append(entry)
        return entries


def _following(last: _Rollback, cause: str, text: str, step: int, to_step: int) -> _Rollback:
    """Returns the entry that follows `last` when the run goes from `step` back to `to_step`."""
    factor = last.learning_rate_factor * _RATE_FACTOR
    return _Rollback(cause, text, step, to_step, factor, last.skipped_batches + step - to_step)


def _diverged(alarm: Alarm, state: str, hint: str = "") -> DivergedError:
    text = f"Training has diverged: {alarm.text}; {state}. {alarm.advice} {hint}"
    return DivergedError(text.strip())
