# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Stops a run on a signal, all workers of a cluster together; reports lost workers."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.signals import StopSignals
from albert_tf.training.strategy import highest

#: Parts of TensorFlow's errors when another process of a collective step is gone.
_LOST = ("Collective ops is aborted", "remote target /job:")


class PreemptionHandler(StopSignals):
    """Handles the signals that stop programs while it is entered; a context manager.

    Between two calls of the training loop, `agree` returns whether a signal has come. In a cluster,
    a signal to one worker stops all of them at the same step: they save together, and they wait for
    each other in every step.

    Why this is not tf.distribute.experimental.PreemptionCheckpointHandler: docs/architecture.md.

    Args:
      strategy: of the run.
      note: prints a sentence for the user.
    """

    def __init__(self, strategy: tf.distribute.Strategy, note: Callable[[str], None]) -> None:
        super().__init__()
        self._strategy, self._note = strategy, note
        self._agreed = False

    def agree(self) -> int | None:
        """Returns the signal that stops the run, whichever worker received it; None: go on.

        All workers of a cluster call this after the same step, and get the same answer.
        """
        number = highest(self._strategy, self.received or 0) or None
        if number and not self._agreed:
            self._agreed = True
            self._note(f"{signal.Signals(number).name}: saving; a second one ends at once.")
        return number


@contextlib.contextmanager
def lost_workers() -> Iterator[None]:
    """Turns TensorFlow's errors about a lost worker into an AlbertError that says what to do."""
    try:
        yield
    except tf.errors.OpError as error:
        lines = str(error).splitlines()
        reason = next((line for line in lines if any(part in line for part in _LOST)), None)
        if reason is None:
            raise
        raise AlbertError(
            f"Another worker has ended or cannot be reached ({reason.strip().rstrip('.')}); start "
            "all workers again to resume from the newest checkpoint."
        ) from error
