# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`Manifest`: what a folder of record shards holds and how it was made."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.data.records import FeatureSpec, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import shown, shown_json, shown_names

SCHEMA_VERSION = 1
#: Of the builder of pretraining records. 1: each shard holds all passes over a part of its text
#: before the next part; such manifests do not name the version. 2: pass after pass over all of it.
BUILDER_VERSION = 2
#: Tokens in a bucket of the builder, roughly: those of 8 MB of text.
_BUCKET_TOKENS = 1 << 21
FILE_NAME = "manifest.json"
PRETRAINING = "pretraining"
COMPACT_PRETRAINING = "compact_pretraining"
#: Options of the builder of pretraining records that say what labels and masks are. Records that
#: differ in one are not mixed; those of other text, with other seeds or lengths of segments, are.
_SAME_OPTIONS = (
    "sentence_objective",
    "compat",
    "do_permutation",
    "masked_lm_prob",
    "max_predictions_per_seq",
    "ngram",
    "favor_shorter_ngram",
    "do_whole_word_mask",
)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describes the record shards of one folder.

    Attributes:
      kind: PRETRAINING, COMPACT_PRETRAINING, or the name that a fine-tuning task gives.
      features: the records' layout.
      shards: the files, in the order that defines the numbering of the examples.
      tokenizer: the fields of the TokenizerSpec the ids come from.
      options: every option of the builder.
      statistics: what the builder counted.
      schema_version: version of the manifest's own format.
      builder_version: see BUILDER_VERSION; 1 for records that are not for pretraining.
    """

    kind: str
    features: Mapping[str, FeatureSpec]
    shards: Sequence[ShardInfo]
    tokenizer: Mapping[str, Any]
    options: Mapping[str, Any]
    statistics: Mapping[str, Any]
    schema_version: int = SCHEMA_VERSION
    builder_version: int = 1

    @property
    def num_examples(self) -> int:
        """Examples in all shards."""
        return sum(shard.examples for shard in self.shards)

    def order_warning(self) -> str | None:
        """What to tell before training on records of version 1 of the builder.

        Their order does no harm where there is one pass, or where no shard has more than one
        bucket of text, within which the passes are shuffled.

        Returns:
          The warning; None if there is nothing to tell.
        """
        corpus = self.statistics.get("corpus")
        passes = self.options.get("dupe_factor")
        instances = self.statistics.get("instances")
        tokens = corpus.get("tokens") if isinstance(corpus, dict) else None
        if self.builder_version > 1 or self.kind not in (PRETRAINING, COMPACT_PRETRAINING):
            return None
        if not all(type(number) is int and number > 0 for number in (passes, instances, tokens)):
            return None
        largest = max((shard.examples for shard in self.shards if not shard.sections), default=0)
        if passes == 1 or largest * tokens <= _BUCKET_TOKENS * instances:
            return None
        return (
            f"Warning: the records are of an older builder, which wrote all {passes} passes over "
            "8 MB of text before it went on to the next 8 MB. Training on them sees the same small "
            "part of the text for a long time. For a new run, build them again in another folder "
            "with data_prep/create_pretraining_data.py; with --record_format=compact, one pass is "
            "enough."
        )

    def fingerprint(self) -> str:
        """Hex SHA-256 of the data itself: layout, tokenizer and the shards' checksums."""
        content = {
            "features": {name: dataclasses.asdict(spec) for name, spec in self.features.items()},
            "tokenizer": dict(self.tokenizer),
            "shards": [shard.sha256 for shard in self.shards],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def save(self, folder: str) -> str:
        """Writes ``manifest.json`` into `folder`; returns its path."""
        path = os.path.join(folder, FILE_NAME)
        files.write_json(path, dataclasses.asdict(self))
        return path

    @classmethod
    def load(cls, path: str) -> Manifest:
        """Reads a manifest from its file or from the folder that holds it.

        Raises:
          AlbertError: it is missing, not JSON, of another schema version, or has missing,
            unknown or malformed fields, or names a shard that does not lie beside it.
        """
        if not path.endswith(".json"):
            path = os.path.join(path, FILE_NAME)
        value = files.read_object(path, "manifest")
        version = value.get("schema_version")
        if version != SCHEMA_VERSION:
            raise AlbertError(
                f"The manifest {path} has schema version {shown(version)}, this program reads "
                f"{SCHEMA_VERSION}; build the records again."
            )
        value.setdefault("builder_version", 1)
        odd = set(value) ^ {field.name for field in dataclasses.fields(cls)}
        if odd:
            names = shown_names(sorted(odd))
            raise AlbertError(f"The manifest {path} lacks, or should not have: {names}.")
        if not (isinstance(value["kind"], str) and value["kind"].isidentifier()):
            raise AlbertError(f"The manifest {path} is of no kind: {shown(value['kind'])}.")
        version = value["builder_version"]
        if type(version) is not int or not 1 <= version <= BUILDER_VERSION:
            raise AlbertError(
                f"The manifest {path} has the builder version {shown(version)}, this program knows "
                f"those up to {BUILDER_VERSION}."
            )
        for name in ("features", "tokenizer", "options", "statistics"):
            if not isinstance(value[name], dict):
                raise AlbertError(f"The manifest {path} is malformed: {name} must be an object.")
        try:
            value["features"] = {
                name: FeatureSpec(spec["dtype"], tuple(spec["shape"]))
                for name, spec in value["features"].items()
            }
            # What the builder was given; an error here would come up after the training.
            for file in value["options"].get("input_files", ()):
                os.path.basename(file["path"]), file["bytes"]
        except (KeyError, TypeError) as error:
            raise AlbertError(f"The manifest {path} is malformed: {shown(error)}.") from error
        if not isinstance(value["shards"], list) or not value["shards"]:
            raise AlbertError(f"The manifest {path} lists no shards.")
        where = f"The manifest {path} is malformed: a shard"
        value["shards"] = [ShardInfo.from_values(shard, where) for shard in value["shards"]]
        for shard in value["shards"]:
            files.join_named("", shard.name, f"The manifest {path}")
        return cls(**value)

    def tokenizer_value(self, key: str, kind: type) -> Any:
        """An entry of `tokenizer`.

        Raises:
          AlbertError: it is missing, or of another type.
        """
        value = self.tokenizer.get(key)
        if type(value) is not kind:
            raise AlbertError(
                f"The {FILE_NAME} of the records does not tell the tokenizer's {key}; build them "
                "again."
            )
        return value


def find_manifest(paths: Sequence[str]) -> Manifest | None:
    """The manifest of some shards, its `shards` reduced to them, in the order given.

    Shards of several folders may be mixed if their manifests agree on kind, layout, tokenizer and
    the options that say what labels and masks are; the other options, and the statistics, are then
    those of the first, and the builder's version is the oldest.

    Returns:
      None if no folder of the shards has a manifest (records written by another program).

    Raises:
      AlbertError: only some folders have a manifest, a manifest does not list a shard, or two
        manifests disagree.
    """
    folders = list(dict.fromkeys(os.path.dirname(path) for path in paths))
    manifests = {folder: _load_if_present(folder) for folder in folders}
    missing = [folder for folder, manifest in manifests.items() if manifest is None]
    if len(missing) == len(folders):
        return None
    if missing:
        raise AlbertError(f"{missing[0] or '.'} has no {FILE_NAME}, the other record folders have.")
    first = manifests[folders[0]]
    shards = []
    for path in paths:
        folder, name = os.path.split(path)
        manifest = manifests[folder]
        for field in ("kind", "features", "tokenizer"):
            if getattr(manifest, field) != getattr(first, field):
                raise AlbertError(
                    f"The records in {folder or '.'} and {folders[0] or '.'} differ in their "
                    f"{field} and cannot be mixed."
                )
        _check_options(manifest, folder, first, folders[0])
        listed = {shard.name: shard for shard in manifest.shards}
        if name not in listed:
            raise AlbertError(f"{path} is not listed in the {FILE_NAME} beside it.")
        shards.append(listed[name])
    oldest = min(manifest.builder_version for manifest in manifests.values())
    return dataclasses.replace(first, shards=shards, builder_version=oldest)


def _check_options(manifest: Manifest, folder: str, first: Manifest, first_folder: str) -> None:
    """Raises AlbertError if labels or masks of two folders' records mean something else."""
    for name in _SAME_OPTIONS:
        if not (name in manifest.options and name in first.options):
            continue
        value, expected = manifest.options[name], first.options[name]
        if value != expected:
            raise AlbertError(
                f"The records in {folder or '.'} were built with {name}={shown_json(value)}, "
                f"those in {first_folder or '.'} with {shown_json(expected)}; they cannot be mixed."
            )


def _load_if_present(folder: str) -> Manifest | None:
    import tensorflow as tf

    path = os.path.join(folder, FILE_NAME)
    return Manifest.load(path) if tf.io.gfile.exists(path) else None
