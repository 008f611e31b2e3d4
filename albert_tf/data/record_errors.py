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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from albert_tf.data import records
from albert_tf.data.context import InputFn
from albert_tf.data.framing import CUT_OFF, Frame, map_intact, read_frames
from albert_tf.errors import AlbertError, StoppedError
from albert_tf.io import storage
from albert_tf.io.progress import Progress

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.tokenization.tokenizer import Tokenizer

#: An error of the input pipeline reaches a step through the iterator, and TensorFlow lists it among
#: the nodes ("[[{{node ParseExample}}]] [[IteratorGetNext]]"). A suffix as in
#: "[[IteratorGetNext/_4]]" marks a transfer between devices, which fails with any error. The list
#: of nodes is lost if the message quotes a record that contains a zero byte.
_INPUT_ERROR = re.compile(r"IteratorGetNext\w*(\}\})?\]|Could not parse example input")
#: A missing embedding or class, as operations on a CPU report it.
_OUT_OF_RANGE = re.compile(r"indices\[[\d,]*\] = \S+ is not in \[|Received a label value of \S+")
#: See framing.check_lengths.
_WRONG_LENGTHS = re.compile(r"(?<=ValueError: ).* is damaged at or after byte \d+")
#: Records checked together.
_BATCH = 1000
OTHER_LAYOUT = "it does not have the layout of the others"

#: Arrays [n, ...] by feature.
Columns = Mapping[str, Any]
#: A description of a fault, and bool [n]: which records have it.
Finding = tuple[str, np.ndarray]


@contextlib.contextmanager
def data_errors(input_fn: InputFn) -> Iterator[None]:
    """Turns errors caused by damaged records into AlbertErrors that name the record.

    An error of the input pipeline calls `input_fn.check`, if there is one, to find the damage. An
    error of the model passes at once.

    Args:
      input_fn: yields the batches of the steps within this context.

    Raises:
      StoppedError: the input cannot be read for now.
      AlbertError: it is damaged or gone, or may not be read. Other errors pass.
    """
    import tensorflow as tf

    check = getattr(input_fn, "check", lambda: None)
    try:
        yield
    # If TensorFlow quotes a record that is no example, the message is not UTF-8.
    except UnicodeDecodeError:
        check()
        raise
    except (
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.InvalidArgumentError,
    ) as error:
        if not _INPUT_ERROR.search(str(error)):
            if _OUT_OF_RANGE.search(str(error)):
                raise AlbertError(
                    f"The records hold an id or a label that the model does not have "
                    f"({_cause(error)}); run data_prep/verify_records.py with --vocab_file to find "
                    "it."
                ) from error
            raise
        # The others name the file themselves.
        if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
            check()
        if replaced := _WRONG_LENGTHS.search(str(error)):
            raise AlbertError(
                f"{replaced[0]}: it is not the file that this run has opened; put that one back, "
                "or build or copy it again."
            ) from error
        if isinstance(error, tf.errors.InvalidArgumentError):
            raise  # The records are good.
        raise AlbertError(
            f"The input records are damaged, missing or not readable ({_cause(error)}); "
            "run data_prep/verify_records.py to find the shard."
        ) from error
    except tf.errors.OpError as error:
        reason = storage.system_message(str(error))
        if reason is None or not _INPUT_ERROR.search(str(error)):
            raise
        line = next(line for line in str(error).splitlines() if reason in line)
        raise StoppedError(
            f"The input records cannot be read ({line.strip()[:300]}); mend that, or wait, and run "
            "the same command again."
        ) from error


def _cause(error: tf.errors.OpError) -> str:
    """Extracts the part of a message between the stack trace and the names of nodes."""
    text = re.split(r"\n?\t? ?\[\[| \[Op:", error.message)[0].strip()
    return text.splitlines()[-1] if text else type(error).__name__


def raise_first_fault(
    paths: Sequence[str], features: records.Features, vocab_size: int | None
) -> None:
    """Reads all records of some shards, and raises an AlbertError for the first faulty one.

    Args:
      paths: of the shards.
      features: see `scan_shard`.
      vocab_size: see `check_columns`.
    """
    with Progress("looking for damage", len(paths), "shards") as progress:
        for path in paths:
            for fault in scan_shard(path, features, vocab_size=vocab_size).faults:
                raise AlbertError(
                    f"{fault.place(path)}; build or copy the shard again (the same build gives the "
                    "same bytes; data_prep/verify_records.py lists all faulty records)."
                )
            progress.update(1)


class ShardScan(NamedTuple):
    """Results of reading a whole shard.

    Attributes:
      offsets: int64 [records]: byte at which each record begins.
      cut_off: whether the file cannot be followed any further, so that later records are lost.
      faults: the faulty records, without their payload; if the file is cut off, the last one is the
        first lost record.
    """

    offsets: np.ndarray
    cut_off: bool
    faults: list[Frame]


def scan_shard(
    path: str,
    features: records.Features,
    tokenizer: Tokenizer | None = None,
    vocab_size: int | None = None,
    on_read: Callable[[int], None] = lambda size: None,
) -> ShardScan:
    """Reads and checks all records of a shard.

    Args:
      path: the TFRecord file.
      features: the layout; records may have further features.
      tokenizer: see `check_columns`.
      vocab_size: see `check_columns`.
      on_read: called from time to time with the number of bytes read since the last call.

    Raises:
      AlbertError: the file is missing or cannot be read.
    """
    offsets = array("q")
    faults: list[Frame] = []
    cut_off, reported = False, 0
    frames = read_frames(path)
    while batch := list(islice(frames, _BATCH)):
        on_read(batch[-1].offset - reported)
        reported = batch[-1].offset
        examples = [frame.example for frame in batch if not frame.fault]
        reasons = iter(_check_examples(examples, features, tokenizer, vocab_size))
        for frame in batch:
            if reason := frame.fault or next(reasons):
                faults.append(frame._replace(example=None, fault=reason))
        cut_off = batch[-1].fault == CUT_OFF
        offsets.extend(frame.offset for frame in batch[: len(batch) - cut_off])
    return ShardScan(np.array(offsets, np.int64), cut_off, faults)


def _check_examples(
    examples: list[bytes],
    features: records.Features,
    tokenizer: Tokenizer | None,
    vocab_size: int | None,
) -> list[str]:
    """Returns the first fault of each serialized record, "" if it has none."""
    import tensorflow as tf

    def check(examples: list[bytes]) -> list[str]:
        columns = {
            name: value.numpy()
            for name, value in records.parse_columns(tf.constant(examples), features).items()
        }
        reasons = [""] * len(examples)
        for reason, faulty in check_columns(columns, tokenizer, vocab_size):
            for row in np.flatnonzero(faulty).tolist():
                reasons[row] = reasons[row] or reason
        return reasons

    # TensorFlow quotes a name that is not UTF-8, and Python then cannot decode the message.
    errors = tf.errors.InvalidArgumentError, UnicodeDecodeError
    reasons = map_intact(check, examples, errors)
    return [OTHER_LAYOUT if reason is None else reason for reason in reasons]


def check_columns(
    columns: Columns, tokenizer: Tokenizer | None = None, vocab_size: int | None = None
) -> Iterator[Finding]:
    """Checks n parsed records and yields a finding for each kind of fault.

    Args:
      columns: the parsed records.
      tokenizer: the tokenizer that should have produced the ids.
      vocab_size: limit of the ids if there is no tokenizer; None: no limit.
    """
    vocab_size = tokenizer.vocab_size if tokenizer else vocab_size or np.iinfo(np.int64).max
    if "text_ids" in columns:
        yield from _check_compact(columns, tokenizer, vocab_size)
        return
    yield from _check_sequences(columns, tokenizer, vocab_size)
    if "masked_lm_positions" in columns:
        yield from _check_predictions(columns, tokenizer, vocab_size)
        labels = columns["next_sentence_labels"]
        yield "next_sentence_labels is neither 0 nor 1", (labels != 0) & (labels != 1)


def _check_compact(
    columns: Columns, tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks records of records.compact_features."""
    ids, segments = columns["text_ids"], columns["segment_lengths"]
    lengths = segments.sum(axis=1)
    specials = np.where(segments[:, 1] > 0, 3, 2)
    yield "a segment has a negative length", (segments < 0).any(axis=1)
    yield "the first segment is empty", segments[:, 0] == 0
    yield "text_ids has a negative id", (ids < 0).any(axis=1)
    yield "the text is too long for the sequence", lengths + specials > ids.shape[1]
    in_text = np.arange(ids.shape[1]) < lengths[:, None]
    yield "text_ids goes on after the text", ((ids != 0) & ~in_text).any(axis=1)
    bits = np.unpackbits(columns["word_starts"], axis=1)[:, : ids.shape[1]] > 0
    yield "word_starts goes on after the text", (bits & ~in_text).any(axis=1)
    outside = ids >= vocab_size
    yield "text_ids has an id outside the vocabulary", outside.any(axis=1)
    if tokenizer:
        not_text = _is_special(ids, tokenizer) & in_text
        yield "text_ids has a special piece", not_text.any(axis=1)
        starts = tokenizer.word_starts[np.where(outside, 0, ids)]
        wrong = (bits != starts) & in_text & ~outside
        yield "word_starts is not that of the vocabulary", wrong.any(axis=1)


def _check_sequences(
    columns: Columns, tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks the padded sequences of masked pretraining records."""
    ids, in_use, segments = (columns[n] for n in ("input_ids", "input_mask", "segment_ids"))
    rows = np.arange(len(ids))
    lengths = in_use.sum(axis=1)
    padding = np.arange(ids.shape[1]) >= lengths[:, None]
    yield "input_mask is not ones followed by zeros", (in_use != ~padding).any(axis=1)
    yield "the sequence is empty", lengths < 3
    yield "input_ids has a negative id", (ids < 0).any(axis=1)
    yield "input_ids is not 0 in padding", ((ids != 0) & padding).any(axis=1)
    yield "segment_ids is neither 0 nor 1", ((segments != 0) & (segments != 1)).any(axis=1)
    falls = (np.diff(segments, axis=1) < 0) & ~padding[:, 1:]
    yield "segment_ids falls from 1 to 0", falls.any(axis=1)
    yield "segment_ids is not 0 in padding", ((segments != 0) & padding).any(axis=1)
    yield "input_ids has an id outside the vocabulary", (ids >= vocab_size).any(axis=1)
    if tokenizer:
        yield "the sequence does not begin with [CLS]", ids[:, 0] != tokenizer.cls_id
        last = ids[rows, np.maximum(lengths, 1) - 1]
        yield "the sequence does not end with [SEP]", last != tokenizer.sep_id


def _check_predictions(
    columns: Columns, tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[Finding]:
    """Checks the masks and labels of masked pretraining records."""
    positions, labels, weights = (
        columns[f"masked_lm_{name}"] for name in ("positions", "ids", "weights")
    )
    counts = (weights != 0).sum(axis=1)
    used = np.arange(weights.shape[1]) < counts[:, None]
    yield "masked_lm_weights is not ones followed by zeros", (weights != used).any(axis=1)
    rises = np.diff(positions, axis=1) > 0
    yield "masked_lm_positions does not ascend", (~rises & used[:, 1:]).any(axis=1)
    lengths = columns["input_mask"].sum(axis=1)[:, None]
    # The [SEP] that closes A is the last position of segment 0.
    separator = lengths - columns["segment_ids"].sum(axis=1)[:, None] - 1
    special = (positions <= 0) | (positions == separator) | (positions >= lengths - 1)
    yield "masked_lm_positions has [CLS], [SEP] or padding", (special & used).any(axis=1)
    leftover = ((positions != 0) | (labels != 0)) & ~used
    yield "masked_lm_positions or masked_lm_ids is not 0 in padding", leftover.any(axis=1)
    yield "masked_lm_ids has a negative id", (labels < 0).any(axis=1)
    yield "masked_lm_ids has an id outside the vocabulary", (labels >= vocab_size).any(axis=1)
    if tokenizer:
        not_text = _is_special(labels, tokenizer) & used
        yield "masked_lm_ids has a special piece", not_text.any(axis=1)


def _is_special(ids: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Returns which ids stand for no text, like [CLS]; [UNK] stands for some."""
    return np.isin(ids, np.setdiff1d(tokenizer.special_ids, [tokenizer.unk_id]))
