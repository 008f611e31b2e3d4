# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Locks output directories for a run and all its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io.locks import lock_folder
from albert_tf.io.streams import outliving_readers
from albert_tf.training.preemption import lost_workers
from albert_tf.training.strategy import highest, is_chief, join_cluster


@contextlib.contextmanager
def output_lock(strategy: str, *folders: str) -> Iterator[None]:
    """Locks output directories while a run trains there; joins its cluster first, if any.

    A run outlives the reader of its output, such as `tee`.

    In a cluster only the chief takes the locks, as only the chief writes, but all processes have to
    call this. If the chief fails, all of them raise, so that none waits for the others.

    Args:
      strategy: the name of the strategy, as in RunConfig.
      *folders: the output directories; none for evaluation, which locks nothing.

    Raises:
      AlbertError: another run trains in one of them.
    """
    cluster = join_cluster(strategy)
    error: AlbertError | None = None
    with contextlib.ExitStack() as locks:
        if folders:
            locks.enter_context(outliving_readers())
        if cluster is None or is_chief(cluster):
            try:
                for folder in folders:
                    locks.enter_context(lock_folder(folder, "training"))
            except AlbertError as chief_error:
                error = chief_error
        if cluster is not None and folders:
            with lost_workers():
                failed = highest(cluster, int(error is not None))
            if failed and error is None:
                error = AlbertError(
                    f"The chief of this cluster could not lock {folders[0]}; its error says why."
                )
        if error is not None:
            raise error
        yield
