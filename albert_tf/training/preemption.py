# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""When a run is asked to stop: one interface, and one answer for all workers of a cluster."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.io.signals import StopSignals
from albert_tf.training.strategy import highest

#: What TensorFlow says of a step that another process was needed for.
_LOST = ("Collective ops is aborted", "remote target /job:")


class PreemptionHandler:
    """Takes SIGTERM and SIGINT while it is entered; a context manager.

    Between two calls of the training loop `agree` tells whether one of them has come. In a cluster
    a signal to one worker stops all of them at the same step: they save together, and they wait for
    each other in every step.

    Why this is not tf.distribute.experimental.PreemptionCheckpointHandler: docs/architecture.md.

    Args:
      strategy: of the run.
      note: prints a sentence for the user.
    """

    def __init__(self, strategy: tf.distribute.Strategy, note: Callable[[str], None]) -> None:
        self._strategy, self._note = strategy, note
        self._signals = StopSignals(self._tell)

    def __enter__(self) -> PreemptionHandler:
        """Installs the handlers."""
        self._signals.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        self._signals.__exit__(*exception)

    def agree(self) -> int | None:
        """The signal that stops the run now, whichever worker has received it; None: go on.

        All workers of a cluster call this after the same step, and get the same answer.
        """
        return highest(self._strategy, self._signals.received or 0) or None

    def _tell(self, number: int) -> None:
        name = signal.Signals(number).name
        self._note(f"{name}: finishing the step, then saving; a second one ends at once.")


@contextlib.contextmanager
def lost_workers() -> Iterator[None]:
    """Turns TensorFlow's errors about a lost worker into an AlbertError that says what to do."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = next((x for x in str(error).splitlines() if any(y in x for y in _LOST)), None)
        if reason is None:
            raise
        raise AlbertError(
            f"Another worker has ended or cannot be reached ({reason.strip().rstrip('.')}); start "
            "all of them again, and they go on from the newest checkpoint."
        ) from error
