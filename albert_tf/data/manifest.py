# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Manifests of folders of record shards, and the shards that flags name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.data.masking_options import MASKING_OPTIONS
from albert_tf.data.records import FeatureSpec, ShardInfo
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.io.json_values import digest, from_json, short_repr

FILE_NAME = "manifest.json"
KINDS = PRETRAINING, COMPACT_PRETRAINING = "pretraining", "compact_pretraining"
#: Options of the pretraining data builder that define labels and masks. Records that differ in one
#: of them cannot be mixed; texts, seeds and segment lengths may differ.
_SAME_OPTIONS = ("sentence_objective", *MASKING_OPTIONS)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describes the record shards of one folder.

    Attributes:
      kind: one of KINDS.
      features: the layout of the records.
      shards: the files, in the order in which the examples are numbered.
      tokenizer: fields of the TokenizerSpec that produced the ids.
      options: all options of the builder.
      statistics: the builder's counts; of several folders, options and counts by folder.
    """

    kind: str
    features: Mapping[str, FeatureSpec]
    shards: Sequence[ShardInfo]
    tokenizer: Mapping[str, Any]
    options: Mapping[str, Any]
    statistics: Mapping[str, Any]

    @property
    def num_examples(self) -> int:
        """Number of examples in all shards."""
        return sum(shard.examples for shard in self.shards)

    def fingerprint(self) -> str:
        """Returns the hex SHA-256 of layout, tokenizer, and the shards' checksums and blocks."""
        content = {
            "features": {name: dataclasses.asdict(spec) for name, spec in self.features.items()},
            "tokenizer": dict(self.tokenizer),
            "shards": [[shard.sha256, shard.blocks] for shard in self.shards],
        }
        return digest(content)

    def save(self, folder: str) -> str:
        """Writes ``manifest.json`` to `folder` and returns its path."""
        path = os.path.join(folder, FILE_NAME)
        files.write_json(path, dataclasses.asdict(self))
        return path

    @classmethod
    def load(cls, folder: str) -> Manifest:
        """Reads the manifest of a folder.

        Raises:
          AlbertError: the file is missing or not JSON, has missing, unknown or malformed fields, or
            names a shard outside its folder.
        """
        path = os.path.join(folder, FILE_NAME)
        value = files.read_object(path, "manifest")
        where = f"The manifest {path}"
        manifest = from_json(cls, value, where)
        if manifest.kind not in KINDS:
            raise AlbertError(f"{where} has an invalid kind: {short_repr(manifest.kind)}.")
        for name in ("features", "tokenizer", "options", "statistics"):
            if not isinstance(value[name], dict):
                raise AlbertError(f"{where} is malformed: {name} must be an object.")
        if not isinstance(manifest.shards, list) or not manifest.shards:
            raise AlbertError(f"{where} lists no shards.")
        features = {
            name: from_json(FeatureSpec, spec, f"{where} is malformed: a feature")
            for name, spec in manifest.features.items()
        }
        shards = [
            ShardInfo.from_values(shard, f"{where} is malformed: a shard")
            for shard in manifest.shards
        ]
        for shard in shards:
            files.join_named("", shard.name, where)
        if len({shard.name for shard in shards}) < len(shards):
            raise AlbertError(f"{where} lists a shard twice.")
        return dataclasses.replace(manifest, features=features, shards=shards)

    def tokenizer_value(self, key: str, kind: type) -> Any:
        """Returns an entry of `tokenizer`.

        Raises:
          AlbertError: the entry is missing or of another type.
        """
        value = self.tokenizer.get(key)
        if type(value) is not kind:
            raise AlbertError(
                f"The {FILE_NAME} of the records has no valid {key} of the tokenizer; build them "
                "again."
            )
        return value


def find_shards(patterns: str) -> list[str]:
    """Returns the shards named by a comma-separated list of paths, globs and folders, each once.

    A folder, including one that a glob matches, stands for the shards of its manifest.

    Raises:
      AlbertError: a pattern matches nothing, or a folder has no manifest.
    """
    paths = []
    for path in files.expand_globs(patterns, "record file"):
        if files.isdir(path):
            shards = Manifest.load(path).shards
            paths += [files.join_named(path, shard.name, path) for shard in shards]
        else:
            paths.append(path)
    return list(dict.fromkeys(map(files.plain_path, paths)))


def find_manifest(paths: Sequence[str]) -> Manifest | None:
    """Returns one manifest with exactly the shards `paths`, in this order.

    Shards of several folders may be mixed if their manifests agree on kind, layout, tokenizer and
    the options that define labels and masks. `options` are then those of the first folder.

    Returns:
      None if no folder has a manifest (records of another program).

    Raises:
      AlbertError: only some folders have a manifest, two manifests disagree, or a manifest does not
        list a shard.
    """
    folders = dict.fromkeys(os.path.dirname(path) for path in paths)
    missing = [f for f in folders if not files.exists(os.path.join(f, FILE_NAME))]
    if len(missing) == len(folders):
        return None
    if missing:
        raise AlbertError(f"{missing[0] or '.'} has no {FILE_NAME}, the other record folders have.")
    manifests = {folder: Manifest.load(folder) for folder in folders}
    (first_folder, first), *others = manifests.items()
    for folder, manifest in others:
        for name, value in _common_values(manifest).items():
            expected = _common_values(first)[name]
            if value != expected:
                raise AlbertError(
                    f"The records in {folder or '.'} and {first_folder or '.'} differ in their "
                    f"{name} ({short_repr(value)} and {short_repr(expected)}) and cannot be mixed."
                )
    listed = {(f, shard.name): shard for f, m in manifests.items() for shard in m.shards}
    shards = [listed.get(os.path.split(path)) for path in paths]
    if None in shards:
        unlisted = paths[shards.index(None)]
        raise AlbertError(f"{unlisted} is not listed in the {FILE_NAME} beside it.")
    statistics = first.statistics
    if others:
        statistics = {
            f"folder {i}": {"options": manifest.options, "statistics": manifest.statistics}
            for i, manifest in enumerate(manifests.values(), 1)
        }
    return dataclasses.replace(first, shards=shards, statistics=statistics)


def _common_values(manifest: Manifest) -> dict[str, Any]:
    """Returns what must be equal in manifests whose records are mixed.

    The name of the vocabulary file may differ, since the specification has a digest of its content.
    """
    return {
        "kind": manifest.kind,
        "features": manifest.features,
        "tokenizer": {**manifest.tokenizer, "model_file": None},
        **{name: manifest.options.get(name) for name in _SAME_OPTIONS},
    }
