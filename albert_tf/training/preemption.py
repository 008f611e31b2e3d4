# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""When a run is asked to stop: one interface, and one answer for all workers of a cluster."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

import tensorflow as tf

from albert_tf.errors import AlbertError
from albert_tf.signals import StopSignals

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
        self._alone = not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        self._exchange = tf.function(self._gather, autograph=False)

    def __enter__(self) -> PreemptionHandler:
        """Installs the handlers."""
        self._signals.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        """Restores the former handlers."""
        self._signals.__exit__(*exception)

    @property
    def received(self) -> int | None:
        """The signal that this process has received."""
        return self._signals.received

    def agree(self, steps: int) -> tuple[int | None, int]:
        """Settles how the run goes on; all workers of a cluster call it after the same step.

        Args:
          steps: how many steps the next call of the loop should take, in this worker's opinion.

        Returns:
          The signal that stops the run now, received by any worker, or None; and the steps that the
          next call takes. Both are the same on all workers.
        """
        if self._alone:
            return self.received, steps
        said = self._exchange(tf.constant([self.received or 0, steps], tf.float32)).numpy()
        return int(said[:, 0].max()) or None, int(said[:, 1].min())

    def _gather(self, said: tf.Tensor) -> tf.Tensor:
        """What all replicas have said, float32 [replicas, 2], of what each worker has, [2]."""
        replicas = self._strategy.run(lambda x: x[None], args=(said,))
        return self._strategy.gather(replicas, axis=0)

    def _tell(self, number: int) -> None:
        name = signal.Signals(number).name
        self._note(f"{name}: finishing the step, then saving; a second one ends at once.")


@contextlib.contextmanager
def lost_workers() -> Iterator[None]:
    """Turns TensorFlow's words on a worker that has gone into a sentence that says what to do."""
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
