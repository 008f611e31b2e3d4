# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of sequences in memory, each of similar lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.data.pipeline import length_buckets
from albert_tf.io.progress import Progress

#: Most pieces and most sequences of a batch.
_MAX_PIECES = 16384
_MAX_ROWS = 256
#: The number of batches from which on progress is shown.
_SHOWN_BATCHES = 8


def length_batches(lengths: Sequence[int], label: str) -> Iterator[tuple[np.ndarray, int]]:
    """Yields batches of sequences, the longest first, and shows progress if there are many.

    Args:
      lengths: of n sequences, in pieces.
      label: names the work in the progress.

    Yields:
      The numbers of a batch's sequences, int64 [rows], and the length to pad them to, one of
      `length_buckets`. Each sequence is in one batch.
    """
    if not len(lengths):
        return
    buckets = np.array(length_buckets(max(lengths)))
    padded = buckets[np.searchsorted(buckets, lengths)]
    order = np.argsort(-padded, kind="stable")
    batches = []
    while len(order):
        length = int(padded[order[0]])
        size = min(_MAX_ROWS, max(1, _MAX_PIECES // length))
        batches.append((order[:size], length))
        order = order[size:]
    if len(batches) < _SHOWN_BATCHES:
        yield from batches
        return
    with Progress(label, len(lengths), "sequences") as progress:
        for rows, length in batches:
            yield rows, length
            progress.update(len(rows))
