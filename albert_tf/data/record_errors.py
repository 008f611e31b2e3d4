# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds faulty records: damaged bytes, another layout, contents that no model can train on.

A run that reads a faulty record stops with TensorFlow's error. `data_errors` then searches the
shards for the record, and names it.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.data import records
from albert_tf.data.context import InputFn
from albert_tf.data.framing import Frame, map_intact, read_frames
from albert_tf.errors import AlbertError, StoppedError, first_line
from albert_tf.io import files, storage

if TYPE_CHECKING:
    from albert_tf.tokenization.tokenizer import Tokenizer

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
_OTHER_LAYOUT = "it does not have the layout of the others"

#: A description of a fault, and bool [n]: which records have it.
Finding = tuple[str, np.ndarray]


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Calls `input_fn.check`, if there is one, after an error of the data, to name the fault.

    Raises:
      StoppedError: the data cannot be read for now.
      AlbertError: as raised by `check`; or the data have none and are damaged. Other errors pass.
    """
    import tensorflow as tf

    faults = tf.errors.DataLossError, tf.errors.InvalidArgumentError
    try:
        yield
    # If TensorFlow quotes a record that is no example, the message is not UTF-8.
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        message = str(error)
        if isinstance(error, tf.errors.OpError):
            if not _INPUT_ERROR.search(message):
                raise
            if reason := storage.system_message(message):
                line = next(line for line in message.splitlines() if reason in line)
                raise StoppedError(
                    f"The input records cannot be read ({line.strip()[:300]}); mend that, or wait, "
                    "and run the same command again."
                ) from error
            if not isinstance(error, faults):  # Such as a worker that is lost.
                raise
        getattr(input_fn, "check", lambda: None)()
        if isinstance(error, tf.errors.DataLossError):
            raise AlbertError(
                f"The input records are damaged ({first_line(message)}); "
                "run data_prep/verify_records.py to find the shard."
            ) from error
        raise


def check_shard(
    path: str,
    features: records.Features,
    listed: records.ShardInfo | None,
    on_read: Callable[[int], object],
    tokenizer: Tokenizer | None = None,
    vocab_size: int | None = None,
) -> int:
    """Reads and checks all records of a shard, and returns their number.

    Args:
      path: the TFRecord file.
      features: the layout; records may have further features.
      listed: what the shard should be; None if nothing is known.
      on_read: called from time to time with the number of bytes read since the last call.
      tokenizer: see `check_columns`.
      vocab_size: see `check_columns`.

    Raises:
      AlbertError: the shard is missing or faulty; names the first faulty record and its byte.
    """
    bounds = array("q")
    faults: list[Frame] = []
    frames = read_frames(path)
    while batch := list(islice(frames, _BATCH)):
        on_read(batch[-1].offset - (bounds[-1] if bounds else 0))
        examples = [frame.example for frame in batch if not frame.fault]
        reasons = iter(_check_examples(examples, features, tokenizer, vocab_size))
        for frame in batch:
            bounds.append(frame.offset)
            if reason := frame.fault or next(reasons):
                faults.append(Frame(frame.number, frame.offset, None, reason))
    advice = "build it again, which gives the same bytes, or copy it again"
    if faults:
        others = f" (and {len(faults) - 1:,} more faulty records)" if faults[1:] else ""
        raise AlbertError(f"{faults[0].place(path)}{others}; {advice}.")
    count = len(bounds)
    bounds.append(storage.size(path))
    if listed:
        found = f"{count} records in {bounds[-1]} bytes, not {listed.examples} in {listed.bytes}"
        if (count, bounds[-1]) == (listed.examples, listed.bytes):
            found = "" if files.sha256(path) == listed.sha256 else "another checksum"
        ends = np.cumsum([(block.examples, block.bytes) for block in listed.blocks], axis=0)
        if not found and any(bounds[number] != at for number, at in ends.tolist()):
            found = "blocks at other bytes"
        if found:
            raise AlbertError(
                f"{path} differs from its manifest, or from the file that this run opened: it has "
                f"{found}; {advice}."
            )
    return count


def _check_examples(
    examples: list[bytes],
    features: records.Features,
    tokenizer: Tokenizer | None,
    vocab_size: int | None,
) -> list[str]:
    """Returns the first fault of each serialized record, "" if it has none."""
    import tensorflow as tf

    def check(examples: list[bytes]) -> list[str]:
        columns = records.parse_columns(tf.constant(examples), features)
        reasons = [""] * len(examples)
        columns = {name: value.numpy() for name, value in columns.items()}
        for reason, faulty in check_columns(columns, tokenizer, vocab_size):
            for row in np.flatnonzero(faulty).tolist():
                reasons[row] = reasons[row] or reason
        return reasons

    # TensorFlow quotes a name that is not UTF-8, and Python then cannot decode the message.
    errors = tf.errors.InvalidArgumentError, UnicodeDecodeError
    reasons = map_intact(check, examples, errors)
    return [_OTHER_LAYOUT if reason is None else reason for reason in reasons]


def check_columns(
    columns: Mapping[str, Any],
    tokenizer: Tokenizer | None = None,
    vocab_size: int | None = None,
) -> Iterator[Finding]:
    """Checks n pretraining records and yields a finding for each kind of fault.

    Args:
      columns: the parsed records, [n, ...]; those of other layouts have no faults.
      tokenizer: the tokenizer that should have produced the ids.
      vocab_size: limit of the ids if there is no tokenizer; None: no limit.
    """
    vocab_size = tokenizer.vocab_size if tokenizer else vocab_size or np.iinfo(np.int64).max
    if "text_ids" in columns:
        yield from _check_compact(columns, tokenizer, vocab_size)
    elif is_pretraining(columns):
        yield from _check_sequences(columns, tokenizer, vocab_size)
        yield from _check_predictions(columns, tokenizer, vocab_size)


def is_pretraining(names: Container[str]) -> bool:
    """Returns whether these are the features of pretraining records, masked or compact."""
    masked = records.pretraining_features(1, 1).keys() - {"token_boundary"}
    return "text_ids" in names or all(name in names for name in masked)


def _check_compact(
    columns: Mapping[str, Any], tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks records of records.compact_features."""
    ids, (a, b) = columns["text_ids"], columns["segment_lengths"].T
    in_text = np.arange(ids.shape[1]) < (a + b)[:, None]
    bits = np.unpackbits(columns["word_starts"], axis=1)[:, : ids.shape[1]] > 0
    wrong_length = (a < 1) | (b < 0) | (a + b + np.where(b > 0, 3, 2) > ids.shape[1])
    yield "segment_lengths has an impossible length", wrong_length
    yield "text_ids goes on after the text", ((ids != 0) & ~in_text).any(axis=1)
    yield "word_starts goes on after the text", (bits & ~in_text).any(axis=1)
    outside = (ids < 0) | (ids >= vocab_size)
    yield "text_ids has an id outside the vocabulary", outside.any(axis=1)
    if tokenizer:
        special = np.isin(ids, _special_ids(tokenizer)) & in_text
        yield "text_ids has a special piece", special.any(axis=1)
        wrong = (bits != tokenizer.word_starts[np.where(outside, 0, ids)]) & in_text
        yield "word_starts is not that of the vocabulary", wrong.any(axis=1)


def _check_sequences(
    columns: Mapping[str, Any], tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks the padded sequences of records.pretraining_features."""
    ids, in_use, segments = (columns[n] for n in ("input_ids", "input_mask", "segment_ids"))
    lengths = in_use.sum(axis=1)
    padding = np.arange(ids.shape[1]) >= lengths[:, None]
    faulty = (in_use != ~padding).any(axis=1) | (lengths < 3)
    yield "input_mask is not three or more ones followed by zeros", faulty
    outside = (ids < 0) | (ids >= vocab_size)
    yield "input_ids has an id outside the vocabulary", outside.any(axis=1)
    yield "input_ids is not 0 in padding", ((ids != 0) & padding).any(axis=1)
    second = np.arange(ids.shape[1]) >= (lengths - segments.sum(axis=1))[:, None]
    faulty = (segments != (second & ~padding)).any(axis=1)
    yield "segment_ids is not zeros, ones, and zeros in padding", faulty
    labels = columns["next_sentence_labels"]
    yield "next_sentence_labels is neither 0 nor 1", (labels != 0) & (labels != 1)
    if tokenizer:
        yield "the sequence does not begin with [CLS]", ids[:, 0] != tokenizer.cls_id
        last = ids[np.arange(len(ids)), np.maximum(lengths, 1) - 1]
        yield "the sequence does not end with [SEP]", last != tokenizer.sep_id


def _check_predictions(
    columns: Mapping[str, Any], tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks the masks and labels of records.pretraining_features."""
    positions, ids, weights = (
        columns[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")
    )
    used = np.arange(weights.shape[1]) < (weights != 0).sum(axis=1)[:, None]
    yield "masked_lm_weights is not ones followed by zeros", (weights != used).any(axis=1)
    rises = np.diff(positions, axis=1) > 0
    yield "masked_lm_positions does not ascend", (~rises & used[:, 1:]).any(axis=1)
    lengths = columns["input_mask"].sum(axis=1)[:, None]
    # The [SEP] that closes A is the last position of segment 0.
    separator = lengths - columns["segment_ids"].sum(axis=1)[:, None] - 1
    special = (positions <= 0) | (positions == separator) | (positions >= lengths - 1)
    yield "masked_lm_positions has [CLS], [SEP] or padding", (special & used).any(axis=1)
    leftover = ((positions != 0) | (ids != 0)) & ~used
    yield "masked_lm_positions or masked_lm_ids is not 0 in padding", leftover.any(axis=1)
    outside = (ids < 0) | (ids >= vocab_size)
    yield "masked_lm_ids has an id outside the vocabulary", outside.any(axis=1)
    if tokenizer:
        special = np.isin(ids, _special_ids(tokenizer)) & used
        yield "masked_lm_ids has a special piece", special.any(axis=1)


def _special_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Returns the ids that stand for no text, like [CLS]; [UNK] stands for some."""
    return np.setdiff1d(tokenizer.special_ids, [tokenizer.unk_id])
