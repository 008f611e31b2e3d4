# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Refuses to use models in forked processes, where TensorFlow would wait for threads for ever."""

from __future__ import annotations

import os

from albert_tf.errors import AlbertError

#: The process that has first used a model, or None.
_user: int | None = None


def check_not_forked() -> None:
    """Notes that this process uses a model.

    Raises:
      AlbertError: a process of which this one is a fork has done so before.
    """
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise AlbertError(
            "This process is a fork of one that has used a model, and there TensorFlow would wait "
            'for ever. Use spawn, as in multiprocessing.get_context("spawn"), or load the first '
            "model after the fork."
        )
