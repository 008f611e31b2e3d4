# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks every record of TFRecord shards, and the shards against their manifest.

  python -m data_prep.verify_records --input_file=records

For each faulty shard, prints the path, the record and the byte offset of the first fault and the
number of further faults. Exits with status 1 if there is any.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.data.record_errors import scan_shard
from albert_tf.data.records import ShardInfo
from albert_tf.data.training_order import Blocks
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.progress import Progress, total_bytes
from data_prep.record_files import RecordFiles, define_record_flags, find_record_folders

#: Features that each layout of records has.
_LAYOUTS = ({"text_ids"}, {"row_lengths"}, {"input_ids", "input_mask", "segment_ids"})


def define_flags() -> None:
    """Defines the flags."""
    define_record_flags("; if there is none, ids are not checked against a vocabulary")


def verify_shard(
    records: RecordFiles, path: str, listed: ShardInfo | None, on_read: Callable[[int], None]
) -> int:
    """Checks one shard and returns the number of its records.

    Args:
      records: the shard's layout and tokenizer.
      path: path of the shard.
      listed: the shard's entry in the manifest; None if there is no manifest.
      on_read: called from time to time with the number of further bytes read.

    Raises:
      AlbertError: the shard is faulty; names the shard and the place of the first fault.
    """
    if not any(names <= records.features.keys() for names in _LAYOUTS):
        raise AlbertError(f"{path} holds records of another program, which are not checked.")
    scan = scan_shard(path, records.features, records.tokenizer, on_read=on_read)
    if scan.faults:
        others = len(scan.faults) - 1
        more = f" (and {others:,} more faulty records)" if others else ""
        raise AlbertError(scan.faults[0].place(path) + more)
    count, size = len(scan.offsets), total_bytes([path])
    if listed:
        if (count, size) != (listed.examples, listed.bytes):
            raise AlbertError(
                f"{path} has {count} records and {size} bytes; its manifest says "
                f"{listed.examples} and {listed.bytes}."
            )
        if files.sha256(path) != listed.sha256:
            raise AlbertError(f"{path} does not have the checksum in its manifest.")
        _check_blocks(path, listed, scan.offsets)
    return count


def _check_blocks(path: str, listed: ShardInfo, offsets: np.ndarray) -> None:
    """Raises AlbertError if a block of the manifest does not start where a record does.

    Args:
      path: path of the shard.
      listed: the shard's entry in the manifest, whose sums are known to be right.
      offsets: int64 [records]: the byte where each record starts.
    """
    blocks = Blocks.of([path], [listed])
    numbers = np.cumsum(blocks.examples) - blocks.examples
    for number, wanted in zip(numbers.tolist(), blocks.offsets.tolist()):
        if offsets[number] != wanted:
            raise AlbertError(
                f"{path} has record {number} at byte {offsets[number]}; its manifest says {wanted}."
            )


def verify(*folders: RecordFiles) -> int:
    """Checks all shards, prints a line for each and returns the number of faulty ones."""
    paths = [path for records in folders for path in records.paths]
    faulty = total = 0
    with Progress("verifying", total_bytes(paths)) as progress:
        for records in folders:
            # By position, because shards of two folders may have the same name.
            manifest = records.manifest
            listed = manifest.shards if manifest else [None] * len(records.paths)
            for path, shard in zip(records.paths, listed):
                try:
                    count = verify_shard(records, path, shard, progress.update)
                except AlbertError as error:
                    faulty += 1
                    progress.note(f"error: {error}")
                    continue
                total += count
                print(f"{path}: {count} records, good")
    print(f"{len(paths) - faulty} of {len(paths)} shards are good, {total} records.")
    for records in folders:
        folder = os.path.dirname(records.paths[0]) or "."
        if not records.manifest:
            print(f"{folder} has no manifest.json: numbers and checksums were not compared.")
        if not records.tokenizer:
            print(f"{folder} has no tokenizer.json: ids were not compared with a vocabulary.")
    return faulty


def _main() -> int:
    folders = find_record_folders(flags.FLAGS.input_file, flags.FLAGS.vocab_file)
    return 1 if verify(*folders) else 0


main = functools.partial(script.run, _main, define_flags)

if __name__ == "__main__":
    main()
