# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks every record of TFRecord shards, and the shards against their
manifest; or prints some records.

  albert verify-records --input_file=records

For each faulty record, prints the shard, its number, its byte offset and the
fault. Exits with status 1 if there is any. --num_examples prints records as
text instead, with [original|present] for each predicted piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from absl import flags

from albert_tf.cli import script
from albert_tf.cli.flags import FLAGS, define_path
from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_manifest, find_shards
from albert_tf.errors import AlbertError, printable
from albert_tf.io import files
from albert_tf.io.progress import Progress, total_bytes
from albert_tf.pretrained.locate import VOCABULARY
from albert_tf.tokenization.sequences import join_segments
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer


class RecordFiles(NamedTuple):
    """Record shards of one folder.

    `manifest` is None if another program wrote the records, `tokenizer` if it is unknown.
    """

    paths: Sequence[str]
    features: records.Features
    manifest: Manifest | None
    tokenizer: Tokenizer | None


def find_records(patterns: str, vocab_file: str | None = None) -> list[RecordFiles]:
    """Finds shards, with the manifest and the tokenizer of each folder.

    `vocab_file` is by default the tokenizer in the records' folder.

    Raises:
      AlbertError: a file is missing, a manifest does not match the files, the tokenizer is not that
        of the manifest, or files without a manifest hold other records than masked ones.
    """
    from albert_tf.data.record_files import infer_features  # Imports TensorFlow.

    folders = {}
    for path in find_shards(patterns):
        folders.setdefault(os.path.dirname(path), []).append(path)
    found = []
    for folder, paths in folders.items():
        manifest = find_manifest(paths)
        beside = os.path.join(folder, SPEC_FILE)
        path = vocab_file or (beside if files.exists(beside) else None)
        tokenizer = Tokenizer.from_file(path) if path else None
        if manifest and tokenizer and tokenizer.spec.sha256 != manifest.tokenizer.get("sha256"):
            raise AlbertError(
                f"{path} is not the vocabulary of these records; give the one they were built with."
            )
        features = manifest.features if manifest else infer_features(paths[0])
        found.append(RecordFiles(paths, features, manifest, tokenizer))
    return found


def define_flags() -> None:
    """Defines the flags."""
    define_path(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        required=True,
    )
    define_path(
        "vocab_file",
        None,
        f"The records' vocabulary: {VOCABULARY}. Default: the tokenizer.json in their folder; if "
        "there is none, ids are not checked against a vocabulary.",
    )
    flags.DEFINE_integer(
        "num_examples",
        None,
        "Print this number of pretraining records as text instead of checking all.",
        lower_bound=1,
    )


def verify(folders: Sequence[RecordFiles]) -> int:
    """Checks all shards, prints a line for each and returns the number of faulty ones."""
    from albert_tf.data.record_files import check_shard

    paths = [path for folder in folders for path in folder.paths]
    faulty = total = 0
    with Progress("verifying", total_bytes(paths)) as progress:
        for folder in folders:
            shards = folder.manifest.shards if folder.manifest else [None] * len(folder.paths)
            vocab_size = folder.tokenizer.vocab_size if folder.tokenizer else None
            for path, shard in zip(folder.paths, shards):
                try:
                    count, errors = check_shard(
                        path, folder.features, shard, progress.update, vocab_size
                    )
                except AlbertError as error:
                    count, errors = 0, [error]
                for error in errors:
                    progress.note(f"error: {error}")
                if errors:
                    faulty += 1
                else:
                    total += count
                    print(f"{path}: {count} records, good")
    print(f"{len(paths) - faulty} of {len(paths)} shards are good, with {total} records.")
    for folder in folders:
        name = os.path.dirname(folder.paths[0]) or "."
        if not folder.manifest:
            print(f"{name} has no manifest.json: numbers and checksums were not compared.")
        if not folder.tokenizer:
            print(f"{name} has no tokenizer.json: ids were not compared with a vocabulary.")
    return faulty


def as_text(folders: Sequence[RecordFiles]) -> Iterator[str]:
    """Yields pretraining records as text, see `format_record`.

    Raises:
      AlbertError: the tokenizer is unknown, or a record is damaged.
    """
    import tensorflow as tf

    from albert_tf.data.record_files import read_examples

    for folder in folders:
        if not folder.tokenizer:
            raise AlbertError("There is no tokenizer.json beside the records; give `vocab_file`.")
        for example in chain.from_iterable(map(read_examples, folder.paths)):
            parsed = records.parse_columns(tf.constant([example]), folder.features)
            columns = {name: value.numpy()[0] for name, value in parsed.items()}
            yield format_record(columns, folder.tokenizer)


def format_record(columns: Mapping[str, np.ndarray], tokenizer: Tokenizer) -> str:
    """Returns the pieces of a record, with [original|present] for predicted ones.

    Compact records have no masks, because training draws them.
    """
    predicted = {}
    if "text_ids" in columns:
        a, b = columns["segment_lengths"].tolist()
        text = columns["text_ids"][: a + b]
        ids = join_segments(tokenizer, text[:a], text[a:] if b else None).tolist()
        first, note = a + 2, "not masked yet"
    else:
        ids = columns["input_ids"][: columns["input_mask"].sum()].tolist()
        first = len(ids) - int(columns["segment_ids"].sum())
        used = columns["masked_lm_weights"] > 0
        positions = columns["masked_lm_positions"][used].tolist()
        predicted = dict(zip(positions, columns["masked_lm_ids"][used].tolist()))
        note = f"{len(predicted)} predicted, label {columns['next_sentence_labels']}"
    pieces = [tokenizer.id_to_piece(piece) for piece in ids]
    for position, original in predicted.items():
        pieces[position] = f"[{tokenizer.id_to_piece(original)}|{pieces[position]}]"
    lines = [f"{len(ids)} tokens, {note}"]
    for name, segment in (("A", pieces[:first]), ("B", pieces[first:])):
        if segment:
            lines.append(printable(f"{name}  {' '.join(segment)}"))
    return "\n".join(lines)


@script.command(define_flags)
def main() -> int:
    """Runs the command."""
    folders = find_records(FLAGS.input_file, FLAGS.vocab_file)
    if not FLAGS.num_examples:
        return 1 if verify(folders) else 0
    for number, text in enumerate(islice(as_text(folders), FLAGS.num_examples)):
        print(f"record {number}: {text}", end="\n\n")
    return 0
