# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""transformers as a contestant in fine-tuning."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable

import numpy as np
from absl import flags

from albert_tf.data.context import InputContext
from albert_tf.data.pipeline import RecordSource
from albert_tf.tasks.base import FineTuningTask
from albert_tf.tasks.squad.task import SquadTask
from benchmarks import machine
from benchmarks.peers.protocol import Peer

FLAGS = flags.FLAGS
#: Records read together.
_CHUNK = 64


class PeerContestant:
    """transformers, on the same records.

    Args:
      task: a classification task or SQuAD; its model's configuration and head.
      policy: the precision.
      training: what to train on.
      held_out: what to evaluate.
      folder: for files that last as long as the contestant.

    Attributes:
      work: what it does in a turn, by a key of `turns.UNITS`.

    Raises:
      PeerError: the other library does not start.
    """

    def __init__(
        self,
        task: FineTuningTask,
        policy: str,
        training: RecordSource,
        held_out: RecordSource,
        folder: str,
    ) -> None:
        spans = isinstance(task, SquadTask)
        targets = ("start_positions", "end_positions") if spans else ("label_ids",)
        setup = {
            "config": task.config.to_dict(), "policy": policy, "mode": FLAGS.peer_mode,
            "threads": machine.describe()["cores"], "batch_size": FLAGS.batch_size,
            "num_labels": None if spans else len(task.spec.labels),
        }  # fmt: skip
        self.work: dict[str, Callable[[], object]] = {}
        with contextlib.ExitStack() as peers:
            for what, steps in {"training": FLAGS.batches, "evaluating": 1}.items():
                train = what == "training"
                path = os.path.join(folder, f"{what}.npz")
                write_rows(path, training if train else held_out, targets if train else ())
                of_peer = {**setup, "examples": path, "train": train}
                peer = Peer("fine_tuning_transformers", FLAGS.peer_python, of_peer)
                peers.enter_context(contextlib.closing(peer))
                self.work[what] = functools.partial(peer, steps)
                if train:
                    self._trainer = peer
            self._peers = peers.pop_all()

    @property
    def tokens(self) -> float:
        """Number of tokens trained on so far, without padding."""
        return self._trainer.facts()["tokens"]

    @property
    def positions(self) -> float:
        """Number of tokens trained on so far, with padding."""
        return self._trainer.facts()["positions"]

    def close(self) -> None:
        """Ends the processes."""
        self._peers.close()


def write_rows(path: str, source: RecordSource, targets: tuple[str, ...]) -> None:
    """Writes what the driver reads: the sequences of all records, unpadded, and their targets.

    Args:
      path: of the .npz file, with int arrays: "ids" and "segments" [tokens] (all sequences one
        after the other), "lengths" [records], and "targets" [records, targets].
      source: the records.
      targets: names of the columns with labels or positions to predict; if there are none, the file
        has the lengths in their place.
    """
    ids, segments, lengths, numbers = [], [], [], []
    for batch in source.eval_input_fn(InputContext(_CHUNK)):
        batch = {name: values.numpy() for name, values in batch.items()}
        batch = {name: values[batch["example_index"] >= 0] for name, values in batch.items()}
        used = batch["input_mask"].astype(bool)
        ids.append(batch["input_word_ids"][used])
        segments.append(batch["input_type_ids"][used])
        lengths.append(used.sum(axis=1))
        numbers.append(np.stack([batch[name] for name in targets], 1) if targets else lengths[-1])
    columns = {"ids": ids, "segments": segments, "lengths": lengths, "targets": numbers}
    np.savez(path, **{name: np.concatenate(parts) for name, parts in columns.items()})
