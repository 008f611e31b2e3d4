# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""transformers as a contestant in fine-tuning."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import flags

from albert_tf.errors import AlbertError
from albert_tf.io.text_tables import TextExample
from albert_tf.tasks.classification.task import TextClassificationTask
from benchmarks import machine
from benchmarks.peers.protocol import Peer

FLAGS = flags.FLAGS


class PeerContestant:
    """transformers, on the same examples.

    Args:
      task: of one text; gives the model's configuration, the tokenizer and the labels.
      policy: the precision.
      examples: for "training" and "evaluating".
      folder: for files that last as long as the contestant.

    Raises:
      AlbertError: the task has pairs of texts or numbers in place of labels.
      PeerError: the other library does not start.
    """

    def __init__(
        self,
        task: TextClassificationTask,
        policy: str,
        examples: Mapping[str, Sequence[TextExample]],
        folder: str,
    ) -> None:
        setup = {
            "config": task.config.to_dict(), "policy": policy, "mode": FLAGS.peer_mode,
            "threads": machine.describe()["cores"], "batch_size": FLAGS.batch_size,
            "num_labels": len(task.spec.labels),
        }  # fmt: skip
        steps = {"training": FLAGS.batches, "evaluating": 1}
        self.work: dict[str, Callable[[], object]] = {}
        with contextlib.ExitStack() as peers:
            for what, rows in examples.items():
                path = os.path.join(folder, f"{what}.npz")
                write_ids(path, task, rows)
                of_peer = {**setup, "examples": path, "train": what == "training"}
                peer = Peer("fine_tuning_transformers", FLAGS.peer_python, of_peer)
                peers.enter_context(contextlib.closing(peer))
                self.work[what] = functools.partial(peer, steps[what])
            self._peers = peers.pop_all()

    def close(self) -> None:
        """Ends the processes."""
        self._peers.close()


def write_ids(path: str, task: TextClassificationTask, examples: Sequence[TextExample]) -> None:
    """Writes what the driver reads: [CLS] text [SEP] of all examples, their lengths and labels.

    Raises:
      AlbertError: the task has pairs of texts or numbers in place of labels.
    """
    labels, tokenizer = task.spec.labels, task.tokenizer
    if not labels or any(example.text_pair is not None for example in examples):
        raise AlbertError(
            "--peer_python takes part only in tasks of one text with labels; give "
            "--glue_tasks=SST-2,CoLA."
        )
    longest = task.spec.max_seq_length - 2
    pieces = tokenizer.encode_batch([example.text for example in examples])
    ids = [[tokenizer.cls_id, *text[:longest], tokenizer.sep_id] for text in pieces]
    np.savez(
        path,
        ids=np.concatenate(ids).astype(np.int32),
        lengths=[len(text) for text in ids],
        labels=[labels.index(example.label) for example in examples],
    )
