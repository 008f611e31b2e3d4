# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout whose masks are a pure function of a seed, so that a resumed run repeats them exactly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import tensorflow as tf


class _Stream(threading.local):
    """The seed in force in this thread and how many calls have drawn from it."""

    seed: tf.Tensor | None = None
    calls: int = 0


_stream = _Stream()


@contextlib.contextmanager
def dropout_seed(seed: tf.Tensor) -> Iterator[None]:
    """Makes every dropout mask drawn inside a function of `seed` and of the call's position.

    The position is counted while the graph is traced, from 0 at the entry. A function that is to
    be traced again (tf.recompute_grad) gets the same masks if it enters the context itself. The
    context belongs to the thread: under MirroredStrategy enter it inside the replica function.

    Args:
      seed: int32 [2]; derive it from the step and the replica.
    """
    previous = _stream.seed, _stream.calls
    _stream.seed, _stream.calls = tf.convert_to_tensor(seed, tf.int32), 0
    try:
        yield
    finally:
        _stream.seed, _stream.calls = previous


def next_seed() -> tf.Tensor:
    """Returns the next int32 [2] seed of the stream; outside `dropout_seed` a random one."""
    if _stream.seed is None:
        return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)
    seed = tf.random.experimental.stateless_fold_in(_stream.seed, _stream.calls)
    _stream.calls += 1
    return seed


def dropout(x: tf.Tensor, rate: float, training: bool) -> tf.Tensor:
    """Zeroes elements of `x` with probability `rate` and scales the others by 1 / (1 - rate).

    Adds no operation when not training or when the rate is 0.
    """
    if not training or not rate:
        return x
    return tf.nn.experimental.stateless_dropout(x, rate, seed=next_seed())
