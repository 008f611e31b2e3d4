# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record shards with their layout and tokenizer, for the scripts that inspect and verify them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from albert_tf.cli.path_flags import check_records, define_path, define_paths
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_files import find_features, find_manifest, record_files
from albert_tf.data.records import FeatureSpec
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.pretrained.locate import VOCABULARY, check_vocabulary
from albert_tf.tokenization.tokenizer import SPEC_FILE, Tokenizer


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
    define_paths(
        "input_file",
        None,
        "Comma list of TFRecord files, globs, and folders with a manifest.json.",
        check_records,
        required=True,
    )
    define_path(
        "vocab_file",
        None,
        f"The records' vocabulary: {VOCABULARY}. Default: the tokenizer.json in their folder"
        f"{without_vocabulary}.",
        check_vocabulary,
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
    return _describe(record_files(patterns), vocab_file)


def find_record_folders(patterns: str, vocab_file: str | None) -> list[RecordFiles]:
    """Finds the shards of each folder separately, as folders may differ; see `find_records`."""
    folders: dict[str, list[str]] = {}
    for path in record_files(patterns):
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
