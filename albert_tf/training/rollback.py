# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What a run changed when it went back to an earlier checkpoint after a divergence.

`rollbacks.json` in the output directory tells it, so that a run that is resumed later goes on with
the same data and learning rate, and ends with the same weights as if it had not been interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import from_json
from albert_tf.training.divergence import Alarm, DivergenceDetector

ROLLBACKS = "rollbacks.json"
#: Each rollback multiplies the learning rate by this. PaLM's authors passed over data and left the
#: rate (Chowdhery et al., 2022, section 5.1), which is no help where the rate is to blame.
_RATE_FACTOR = 0.5
#: Rollbacks of one run.
MAX_ROLLBACKS = 3


@dataclasses.dataclass(frozen=True)
class _Entry:
    cause: str
    text: str
    step: int
    to_step: int
    learning_rate_factor: float
    skipped_batches: int


class Rollbacks:
    """The rollbacks of one output directory.

    Args:
      output_dir: the run's folder.
      writes: False on workers other than the chief.
    """

    def __init__(self, output_dir: str, writes: bool) -> None:
        self._path, self._writes = os.path.join(output_dir, ROLLBACKS), writes
        self._entries: list[_Entry] = []

    @property
    def count(self) -> int:
        """How many there were; to be kept in checkpoints."""
        return len(self._entries)

    @property
    def learning_rate_factor(self) -> float:
        """What the schedule's learning rate is multiplied by."""
        return self._entries[-1].learning_rate_factor if self._entries else 1.0

    @property
    def skipped_batches(self) -> int:
        """Global batches by which the data is ahead of the step."""
        return self._entries[-1].skipped_batches if self._entries else 0

    def forget(self) -> None:
        """Deletes the record of an earlier run that saved no checkpoint."""
        if self._writes and tf.io.gfile.exists(self._path):
            tf.io.gfile.remove(self._path)

    def resume(self, step: int, count: int) -> None:
        """Takes up those that a checkpoint is subject to.

        Args:
          step: of the checkpoint.
          count: rollbacks before it was saved. Those that led back to it came after that, and any
            others will come again, as its steps do.

        Raises:
          AlbertError: the record of them is damaged, or there are fewer.
        """
        entries = self._read()
        if len(entries) < count:
            raise AlbertError(
                f"The checkpoint of step {step} comes after {count} rollbacks, but {self._path} "
                f"has {len(entries)}; put the file back, or give another --output_dir."
            )
        back = [i + 1 for i, entry in enumerate(entries) if i >= count and entry.to_step == step]
        self._entries = entries[: max([count, *back])]

    def _read(self) -> list[_Entry]:
        if not tf.io.gfile.exists(self._path):
            return []
        values = files.read_json(self._path, "record of rollbacks")
        damaged = f"The record of rollbacks {self._path} is damaged"
        if not isinstance(values, list):
            raise AlbertError(f"{damaged}: it is not a list.")
        entries: list[_Entry] = []
        for value in values:
            entry = from_json(_Entry, value, damaged)
            # The entries follow from each other, so that a wrong number shows.
            if entry != _next(entries, entry.cause, entry.text, entry.step, entry.to_step):
                raise AlbertError(f"{damaged}: the numbers of entry {len(entries) + 1} are wrong.")
            entries.append(entry)
        return entries

    def target(self, alarm: Alarm, steps: Sequence[int]) -> int | None:
        """The checkpoint to go back to, of those of these steps; None if there is none.

        The newest one from before the divergence, or else the oldest. But one that has been gone
        back to before and led here again may be ill already: then the next older one.
        """
        good = sorted(step for step in steps if step <= alarm.onset) or sorted(steps)[:1]
        if len(good) > 1 and self._entries and self._entries[-1].to_step == good[-1]:
            return good[-2]
        return good[-1] if good else None

    def add(self, alarm: Alarm, to_step: int) -> None:
        """Records that the run goes back to `to_step`, and on with the data after the alarm."""
        self._entries.append(_next(self._entries, alarm.cause, alarm.text, alarm.step, to_step))
        if self._writes:
            files.write_json(self._path, [dataclasses.asdict(entry) for entry in self._entries])


def _next(entries: Sequence[_Entry], cause: str, text: str, step: int, to_step: int) -> _Entry:
    """What follows the entries when at `step` the run goes back to `to_step`."""
    factor = entries[-1].learning_rate_factor if entries else 1.0
    skipped = entries[-1].skipped_batches if entries else 0
    return _Entry(cause, text, step, to_step, factor * _RATE_FACTOR, skipped + step - to_step)


class DivergenceMemory(tf.train.experimental.PythonState):
    """What is known of divergences, as a part of checkpoints.

    Attributes:
      rollbacks: how many there were before the checkpoint that was restored.
      begun_anew: what the detector looks at and that checkpoint, of another version, lacks.
    """

    def __init__(self, detector: DivergenceDetector, rollbacks: Rollbacks) -> None:
        super().__init__()
        self._detector, self._rollbacks = detector, rollbacks
        self.rollbacks = 0
        self.begun_anew: list[str] = []

    def serialize(self) -> str:
        """JSON of the detector's state and the number of rollbacks."""
        state = {"detector": self._detector.state(), "rollbacks": self._rollbacks.count}
        return json.dumps(state)

    def deserialize(self, serialized: str) -> None:
        """Restores the detector's state."""
        state = json.loads(serialized)
        self.begun_anew = self._detector.restore(state.get("detector", {}))
        self.rollbacks = state.get("rollbacks", 0)
