# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks every record of TFRecord shards, and the shards against their manifest.

  python -m data_prep.verify_records --input_file=records

For each faulty shard, prints the path, the record and the byte offset of the first fault and the
number of further faults. Exits with status 1 if there is any.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import define_path
from albert_tf.data.manifest import Manifest, find_features, find_manifest, find_shards
from albert_tf.data.record_errors import scan_shard
from albert_tf.data.records import FeatureSpec, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer

#: Features that each layout of records has.
_LAYOUTS = ({"text_ids"}, {"input_ids", "input_mask", "segment_ids"})


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """Record shards of one layout.

    Attributes:
      paths: the TFRecord files.
      features: the records' layout.
      manifest: None if another program wrote the records.
      tokenizer: None if it is unknown.
    """

    paths: Sequence[str]
    features: Mapping[str, FeatureSpec]
    manifest: Manifest | None
    tokenizer: Tokenizer | None


def define_record_flags(without_vocabulary: str = "") -> None:
    """Defines --input_file and --vocab_file.

    Args:
      without_vocabulary: what happens if there is no vocabulary, for the help text.
    """
    define_path(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        required=True,
    )
    define_path(
        "vocab_file",
        None,
        f"The records' vocabulary: {VOCABULARY}. Default: the tokenizer.json in their folder"
        f"{without_vocabulary}.",
    )


def find_records(patterns: str, vocab_file: str | None) -> RecordFiles:
    """Finds shards, their manifest and their tokenizer.

    Args:
      patterns: comma list of TFRecord files, globs, and folders with a manifest.
      vocab_file: .model, vocab.txt or tokenizer.json; by default the tokenizer in the records'
        folder.

    Raises:
      AlbertError: a file is missing, the manifest does not match the files, the records of several
        folders cannot be mixed, or the tokenizer is not that of the manifest.
    """
    return _describe(find_shards(patterns), vocab_file)


def find_record_folders(patterns: str, vocab_file: str | None) -> list[RecordFiles]:
    """Finds the shards of each folder separately, as folders may differ; see `find_records`."""
    folders: dict[str, list[str]] = {}
    for path in find_shards(patterns):
        folders.setdefault(os.path.dirname(path), []).append(path)
    return [_describe(paths, vocab_file) for paths in folders.values()]


def _describe(paths: list[str], vocab_file: str | None) -> RecordFiles:
    manifest = find_manifest(paths)
    features = find_features(paths, manifest)
    spec_path = os.path.join(os.path.dirname(paths[0]), SPEC_FILE)
    if not vocab_file and files.exists(spec_path):
        vocab_file = spec_path
    tokenizer = Tokenizer.from_file(vocab_file) if vocab_file else None
    if manifest and tokenizer and tokenizer.spec.sha256 != manifest.tokenizer.get("sha256"):
        raise AlbertError(
            f"{vocab_file} is not the vocabulary of these records; give the one they were built "
            "with."
        )
    return RecordFiles(paths, features, manifest, tokenizer)


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
    from albert_tf.data.training_order import Blocks  # Imports TensorFlow.

    blocks = Blocks.from_infos([path], [listed])
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
