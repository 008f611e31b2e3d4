# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The lock on a run's output directory, shared by all processes of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from albert_tf.errors import AlbertError
from albert_tf.io.locks import lock_folder
from albert_tf.training.preemption import lost_workers
from albert_tf.training.strategy import highest, is_chief, join_cluster


@contextlib.contextmanager
def output_lock(strategy: str, *folders: str) -> Iterator[None]:
    """Holds output directories while a run trains there; joins its cluster first, if it has one.

    In a cluster the chief takes the locks, as it alone writes, and all processes have to call this.
    If the chief is refused, all of them raise, so that none waits for the others.

    Args:
      strategy: the name of the strategy, as in RunConfig.
      *folders: the output directories; without any, as for evaluation, nothing is locked.

    Raises:
      AlbertError: another run trains in one of them.
    """
    cluster = join_cluster(strategy)
    if not folders:
        yield
        return
    refusal: AlbertError | None = None
    with contextlib.ExitStack() as locks:
        if cluster is None or is_chief(cluster):
            try:
                for folder in folders:
                    locks.enter_context(lock_folder(folder, "training"))
            except AlbertError as error:
                refusal = error
        if cluster is not None:
            with lost_workers():
                refused = highest(cluster, int(refusal is not None))
            if refused and refusal is None:
                refusal = AlbertError(
                    f"The chief of this cluster could not lock {folders[0]}; its error says why."
                )
        if refusal is not None:
            raise refusal
        yield
