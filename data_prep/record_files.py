# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record files as the tools for looking at them find them: shards, layout, tokenizer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from albert_tf.data.manifest import Manifest
from albert_tf.data.record_files import find_features, find_manifest, record_files
from albert_tf.data.records import FeatureSpec
from albert_tf.errors import AlbertError
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer


@dataclasses.dataclass(frozen=True)
class RecordFiles:
    """Record shards of one layout.

    Attributes:
      paths: the TFRecord files.
      features: the records' layout.
      manifest: None if the records were written by another program.
      tokenizer: None if it is not known.
    """

    paths: Sequence[str]
    features: Mapping[str, FeatureSpec]
    manifest: Manifest | None
    tokenizer: Tokenizer | None


def find_records(patterns: str, vocab_file: str | None) -> RecordFiles:
    """Finds shards, their manifest and their tokenizer.

    Args:
      patterns: comma list of TFRecord files, globs, and folders with a manifest.
      vocab_file: .model, vocab.txt or tokenizer.json; by default the tokenizer beside the records.

    Raises:
      AlbertError: a file is missing, the manifest does not fit the files, the records of several
        folders cannot be mixed, or the tokenizer is not the one of the manifest.
    """
    return _describe(record_files(patterns), vocab_file)


def find_record_folders(patterns: str, vocab_file: str | None) -> list[RecordFiles]:
    """As `find_records`, but each folder by itself: it need not be like the others."""
    folders: dict[str, list[str]] = {}
    for path in record_files(patterns):
        folders.setdefault(os.path.dirname(path), []).append(path)
    return [_describe(paths, vocab_file) for paths in folders.values()]


def _describe(paths: list[str], vocab_file: str | None) -> RecordFiles:
    import tensorflow as tf

    manifest = find_manifest(paths)
    features = find_features(paths, manifest)
    beside = os.path.join(os.path.dirname(paths[0]), SPEC_FILE)
    if not vocab_file and tf.io.gfile.exists(beside):
        vocab_file = beside
    tokenizer = Tokenizer.from_file(vocab_file) if vocab_file else None
    if manifest and tokenizer and tokenizer.spec.sha256 != manifest.tokenizer.get("sha256"):
        raise AlbertError(f"{vocab_file} is not the vocabulary these records were made with.")
    return RecordFiles(paths, features, manifest, tokenizer)
