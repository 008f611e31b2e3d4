# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks every record of TFRecord shards, and the shards against their manifest.

  python -m data_prep.verify_records --input_file=records

Names the shard, the record and its byte offset of the first fault in each shard, and exits with
status 1 if there is any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from absl import flags

from albert_tf import cli, files
from albert_tf.data import records
from albert_tf.errors import AlbertError
from albert_tf.progress import Progress, total_bytes
from albert_tf.tokenization import Tokenizer
from data_prep.record_files import RecordFiles, find_records

_BATCH = 1000

Columns = Mapping[str, np.ndarray]
#: A fault's sentence, and bool [n]: which records have it.
Fault = tuple[str, np.ndarray]


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        required=True,
    )
    flags.DEFINE_string(
        "vocab_file",
        None,
        "SentencePiece model, WordPiece vocabulary or tokenizer.json of the records. Default: the "
        "tokenizer.json beside them; without any, ids are not checked against a vocabulary.",
    )


def verify_shard(found: RecordFiles, path: str, progress: Progress) -> int:
    """Checks one shard; returns the number of its records.

    Raises:
      AlbertError: a fault: names the shard, and where it is in it.
    """
    examples = records.read_examples(path)
    count = offset = 0
    while batch := list(islice(examples, _BATCH)):
        _verify_batch(found, path, batch, count, offset)
        size = sum(len(example) + records.FRAME_BYTES for example in batch)
        progress.update(size)
        count += len(batch)
        offset += size
    if found.manifest:
        listed = {shard.name: shard for shard in found.manifest.shards}[os.path.basename(path)]
        if (count, offset) != (listed.examples, listed.bytes):
            raise AlbertError(
                f"{path} has {count} records and {offset} bytes; its manifest says "
                f"{listed.examples} and {listed.bytes}."
            )
        if files.sha256(path) != listed.sha256:
            raise AlbertError(f"{path} does not have the checksum that its manifest says.")
    return count


def _verify_batch(
    found: RecordFiles, path: str, batch: list[bytes], first: int, offset: int
) -> None:
    """Raises the fault of the first bad record of a batch, if there is any."""
    import tensorflow as tf

    faults: list[tuple[int, str]] = []
    try:
        columns = records.parse_columns(tf.constant(batch), found.features)
    except tf.errors.InvalidArgumentError:
        if len(batch) > 1:
            for i, example in enumerate(batch):
                _verify_batch(found, path, [example], first + i, offset)
                offset += len(example) + records.FRAME_BYTES
            return
        faults.append((0, "it does not have the layout of the others"))
    else:
        arrays = {name: value.numpy() for name, value in columns.items()}
        for sentence, bad in check_columns(arrays, found.tokenizer):
            if bad.any():
                faults.append((int(bad.argmax()), sentence))
    if faults:
        row, sentence = min(faults, key=lambda fault: fault[0])
        offset += sum(len(example) + records.FRAME_BYTES for example in batch[:row])
        raise AlbertError(f"{path}: record {first + row} (byte {offset}): {sentence}.")


def check_columns(columns: Columns, tokenizer: Tokenizer | None) -> Iterator[Fault]:
    """Checks n parsed records; yields every fault looked for.

    Args:
      columns: arrays [n, ...] under the records' names.
      tokenizer: None: ids are only checked not to be negative.
    """
    if "text_ids" in columns:
        yield from _check_compact(columns, tokenizer)
        return
    yield from _check_sequences(columns, tokenizer)
    if "masked_lm_positions" in columns:
        yield from _check_predictions(columns, tokenizer)
        labels = columns["next_sentence_labels"]
        yield "next_sentence_labels is neither 0 nor 1", (labels != 0) & (labels != 1)


def _check_compact(columns: Columns, tokenizer: Tokenizer | None) -> Iterator[Fault]:
    ids, segments = columns["text_ids"], columns["segment_lengths"]
    lengths = segments.sum(axis=1)
    specials = np.where(segments[:, 1] > 0, 3, 2)
    yield "a segment has a negative length", (segments < 0).any(axis=1)
    yield "the first segment is empty", segments[:, 0] == 0
    yield "the text is too long for the sequence", lengths + specials > ids.shape[1]
    in_text = np.arange(ids.shape[1]) < lengths[:, None]
    yield "text_ids goes on after the text", ((ids != 0) & ~in_text).any(axis=1)
    bits = np.unpackbits(columns["word_starts"], axis=1)[:, : ids.shape[1]] > 0
    yield "word_starts goes on after the text", (bits & ~in_text).any(axis=1)
    if tokenizer:
        outside = ids >= tokenizer.vocab_size
        yield "text_ids has an id outside the vocabulary", outside.any(axis=1)
        not_text = np.setdiff1d(tokenizer.special_ids, [tokenizer.unk_id])
        yield "text_ids has a special piece", (np.isin(ids, not_text) & in_text).any(axis=1)
        starts = tokenizer.word_starts[np.where(outside, 0, ids)]
        wrong = (bits != starts) & in_text & ~outside
        yield "word_starts is not that of the vocabulary", wrong.any(axis=1)


def _check_sequences(columns: Columns, tokenizer: Tokenizer | None) -> Iterator[Fault]:
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
    if tokenizer:
        yield "input_ids has an id outside the vocabulary", (ids >= tokenizer.vocab_size).any(1)
        yield "the sequence does not begin with [CLS]", ids[:, 0] != tokenizer.cls_id
        last = ids[rows, np.maximum(lengths, 1) - 1]
        yield "the sequence does not end with [SEP]", last != tokenizer.sep_id


def _check_predictions(columns: Columns, tokenizer: Tokenizer | None) -> Iterator[Fault]:
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
    if tokenizer:
        outside = labels >= tokenizer.vocab_size
        yield "masked_lm_ids has an id outside the vocabulary", outside.any(axis=1)
        not_text = np.setdiff1d(tokenizer.special_ids, [tokenizer.unk_id])
        never = np.isin(labels, not_text) & used
        yield "masked_lm_ids has a special piece", never.any(axis=1)


def verify(found: RecordFiles) -> int:
    """Checks all shards and prints a line for each; returns how many are faulty."""
    faulty = total = 0
    with Progress("verifying", total_bytes(list(found.paths))) as progress:
        for path in found.paths:
            try:
                count = verify_shard(found, path, progress)
            except AlbertError as error:
                faulty += 1
                progress.note(f"error: {error}")
                continue
            total += count
            print(f"{path}: {count} records, good")
    print(f"{len(found.paths) - faulty} of {len(found.paths)} shards are good, {total} records.")
    if not found.manifest:
        print("There is no manifest.json: numbers and checksums were not compared.")
    if not found.tokenizer:
        print("There is no tokenizer: ids were not compared with a vocabulary.")
    return faulty


def _main() -> int:
    found = find_records(flags.FLAGS.input_file, flags.FLAGS.vocab_file)
    return 1 if verify(found) else 0


def main() -> None:
    """Entry point."""
    cli.run(_main, define_flags)


if __name__ == "__main__":
    main()
