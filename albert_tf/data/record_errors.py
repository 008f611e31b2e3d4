# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds faulty records: damaged bytes, another layout, numbers that no model can train on.

A run that reads a faulty record stops with TensorFlow's error. `data_errors` then searches the
shards for the record, and names it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from albert_tf.data import records
from albert_tf.data.context import InputFn
from albert_tf.data.framing import FRAME_BYTES, read_frames, record_error
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import files, storage

#: Errors of the input pipeline, which reach a step through the iterator: TensorFlow lists it among
#: the nodes ("[[{{node ParseExample}}]] [[IteratorGetNext]]"), unless it quotes a record with a
#: zero byte. A suffix as in "[[IteratorGetNext/_4]]" marks a transfer between devices, which fails
#: with any error. And ids and labels that the model does not have, as a CPU reports them.
_INPUT_ERROR = re.compile(
    r"IteratorGetNext\w*(\}\})?\]|Could not parse example input"
    r"|indices\[[\d,]*\] = \S+ is not in \[|Received a label value of \S+"
)
#: Records checked together.
_BATCH = 1000


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Calls `input_fn.check`, if there is one, after an error of the data, to name the fault.

    Raises:
      StoppedError: the data cannot be read for now.
      AlbertError: as raised by `check`. Other errors pass.
    """
    import tensorflow as tf

    try:
        yield
    # If TensorFlow quotes a record that is no example, the message is not UTF-8.
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        if isinstance(error, tf.errors.OpError):
            message = str(error)
            if not _INPUT_ERROR.search(message):
                raise
            if reason := storage.system_message(message):
                line = next(line for line in message.splitlines() if reason in line)
                raise StoppedError(
                    f"The input records cannot be read ({line.strip()[:300]}); mend that, or wait, "
                    "and run the same command again."
                ) from error
            # Another one is, for example, of a worker that is lost.
            if not isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
                raise
        getattr(input_fn, "check", lambda: None)()
        raise


def check_shard(
    path: str,
    features: records.Features,
    listed: records.ShardInfo | None,
    on_read: Callable[[int], object],
    vocab_size: int | None,
) -> tuple[int, list[AlbertError]]:
    """Reads and checks all records of a shard.

    Args:
      path: the TFRecord file.
      features: the layout; records may have further features.
      listed: what the shard should be; None if nothing is known.
      on_read: called from time to time with the number of bytes read since the last call.
      vocab_size: limit of the ids; None: no limit.

    Returns:
      The number of records, and an error for each faulty one, which names it and its byte; or else
      one if the shard differs from what it should be.

    Raises:
      AlbertError: the shard is missing or cannot be read.
    """
    frames, number, errors = read_frames(path), 0, []
    while batch := list(islice(frames, _BATCH)):
        faults = _faults([frame.example for frame in batch], features, vocab_size)
        for row, frame in enumerate(batch):
            if fault := frame.fault or faults.get(row):
                errors.append(record_error(path, number + row, frame.byte, fault))
        number += len(batch)
        on_read(sum(FRAME_BYTES + len(frame.example) for frame in batch))
    if listed and not errors and files.sha256(path) != listed.sha256:
        errors.append(
            AlbertError(
                f"{path} differs from its manifest, or from the file that this run opened: it has "
                "another checksum; build it again, which gives the same bytes, or copy it again."
            )
        )
    return number, errors


def _faults(
    examples: list[bytes], features: records.Features, vocab_size: int | None
) -> dict[int, str]:
    """Returns the fault of each faulty record, by its place in the list."""
    import tensorflow as tf

    try:
        parsed = records.parse_columns(tf.constant(examples, tf.string), features)
    # TensorFlow quotes a name that is not UTF-8, and Python then cannot decode the message.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        if len(examples) == 1:
            return {0: "it does not have the layout of the others"}
        single = [_faults([example], features, vocab_size) for example in examples]
        return {row: found[0] for row, found in enumerate(single) if found}
    columns = {name: value.numpy() for name, value in parsed.items()}
    if (segments := columns.get("segment_lengths")) is not None:
        # With [CLS], and [SEP] after each segment.
        columns["the length"] = 1 + (segments + (segments > 0)).sum(axis=1)
    faults: dict[int, str] = {}
    for name, (least, most) in _limits(features, vocab_size).items():
        if name in columns:
            outside = np.argwhere(~((columns[name] >= least) & (columns[name] <= most)))
            for row in outside[:, 0].tolist():
                faults.setdefault(row, f"{name} has a number outside {least} … {most}")
    return faults


def _limits(features: records.Features, vocab_size: int | None) -> dict[str, tuple[int, int]]:
    """Returns the smallest and largest possible number of the features of pretraining records."""
    sequence = features.get("input_ids") or features.get("text_ids")
    length = sequence.shape[0] if sequence else 0
    ids = "input_ids", "text_ids", "masked_lm_ids"
    flags = "input_mask", "segment_ids", "masked_lm_weights", "next_sentence_labels"
    return {
        **dict.fromkeys(ids, (0, (vocab_size or 1 << 31) - 1)),
        **dict.fromkeys(flags, (0, 1)),
        "masked_lm_positions": (0, length - 1),
        "segment_lengths": (0, length),
        "the length": (0, length),
    }
