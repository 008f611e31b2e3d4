# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks every record of TFRecord shards, and the shards against their manifest.

  python -m data_prep.verify_records --input_file=records

Names the shard, the record and its byte offset of the first fault in each shard, counts the others,
and exits with status 1 if there is any.
"""

from __future__ import annotations

if __name__ == "__main__":  # Before the other imports, which take a while.
    from albert_tf.io.interrupts import end_on_interrupt

    end_on_interrupt()

import os
from collections.abc import Callable, Sequence

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.path_flags import check_records, check_vocabulary, define_path, define_paths
from albert_tf.data.record_faults import scan_shard
from albert_tf.data.records import Section, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.progress import Progress, total_bytes
from data_prep.record_files import RecordFiles, find_record_folders


def define_flags() -> None:
    """Defines the flags."""
    define_paths(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        required=True,
        check=check_records,
    )
    define_path(
        "vocab_file",
        None,
        "SentencePiece model, WordPiece vocabulary or tokenizer.json of the records. Default: the "
        "tokenizer.json beside them; without any, ids are not checked against a vocabulary.",
        check=check_vocabulary,
    )


def verify_shard(
    found: RecordFiles, path: str, listed: ShardInfo | None, on_read: Callable[[int], None]
) -> int:
    """Checks one shard; returns the number of its records.

    Args:
      found: the shards that this is one of.
      path: of the shard.
      listed: what the manifest says of it; None without one.
      on_read: told, now and then, how many more bytes have been read.

    Raises:
      AlbertError: a fault: names the shard, and where it is in it.
    """
    scan = scan_shard(path, found.features, found.tokenizer, on_read=on_read)
    if scan.faults:
        others = len(scan.faults) - 1
        raise AlbertError(
            scan.faults[0].place(path)
            + (f" (and {others:,} more faulty records)" if others else "")
        )
    count, size = len(scan.offsets), total_bytes([path])
    if listed:
        if (count, size) != (listed.examples, listed.bytes):
            raise AlbertError(
                f"{path} has {count} records and {size} bytes; its manifest says "
                f"{listed.examples} and {listed.bytes}."
            )
        if files.sha256(path) != listed.sha256:
            raise AlbertError(f"{path} does not have the checksum that its manifest says.")
        _check_sections(path, listed.sections, scan.offsets)
    return count


def _check_sections(path: str, sections: Sequence[Section], offsets: np.ndarray) -> None:
    """Raises AlbertError if a section does not begin where a record does.

    Args:
      path: the shard.
      sections: those that the manifest lists for it; their sums are right.
      offsets: int64 [records]: the byte where each record begins.
    """
    first, offset = 0, 0
    for section in sections:
        if offsets[first] != offset:
            raise AlbertError(
                f"{path} has record {first} at byte {offsets[first]}; its manifest says that a "
                f"section begins with it at byte {offset}."
            )
        first, offset = first + section.examples, offset + section.bytes


def verify(*folders: RecordFiles) -> int:
    """Checks all shards and prints a line for each; returns how many are faulty."""
    paths = [path for found in folders for path in found.paths]
    faulty = total = 0
    with Progress("verifying", total_bytes(paths)) as progress:
        for found in folders:
            # In the order of the paths; shards of two folders may have the same name.
            listed = found.manifest.shards if found.manifest else [None] * len(found.paths)
            for path, shard in zip(found.paths, listed):
                try:
                    count = verify_shard(found, path, shard, progress.update)
                except AlbertError as error:
                    faulty += 1
                    progress.note(f"error: {error}")
                    continue
                total += count
                print(f"{path}: {count} records, good")
    print(f"{len(paths) - faulty} of {len(paths)} shards are good, {total} records.")
    for found in folders:
        where = os.path.dirname(found.paths[0]) or "."
        if not found.manifest:
            print(f"{where} has no manifest.json: numbers and checksums were not compared.")
        if not found.tokenizer:
            print(f"{where} has no tokenizer.json: ids were not compared with a vocabulary.")
    return faulty


def _main() -> int:
    folders = find_record_folders(flags.FLAGS.input_file, flags.FLAGS.vocab_file)
    return 1 if verify(*folders) else 0


def main() -> None:
    """Entry point."""
    script.run(_main, define_flags)


if __name__ == "__main__":
    main()
