# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""`Manifest`: describes a folder of record shards and how they were built."""

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
from albert_tf.io.json_values import from_json, shown

FILE_NAME = "manifest.json"
PRETRAINING = "pretraining"
COMPACT_PRETRAINING = "compact_pretraining"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Describes the record shards of one folder.

    Attributes:
      kind: PRETRAINING, COMPACT_PRETRAINING, or the name of a fine-tuning task.
      features: the layout of the records.
      shards: the files, in the order in which the examples are numbered.
      tokenizer: fields of the TokenizerSpec that produced the ids.
      options: all options of the builder.
      statistics: the builder's counts.
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
        """Returns the hex SHA-256 of layout, tokenizer, and the shards' checksums and passes."""
        content = {
            "features": {name: dataclasses.asdict(spec) for name, spec in self.features.items()},
            "tokenizer": dict(self.tokenizer),
            "shards": [[s.sha256, list(map(dataclasses.astuple, s.passes))] for s in self.shards],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def save(self, folder: str) -> str:
        """Writes ``manifest.json`` to `folder` and returns its path."""
        path = os.path.join(folder, FILE_NAME)
        files.write_json(path, dataclasses.asdict(self))
        return path

    @classmethod
    def load(cls, path: str) -> Manifest:
        """Reads a manifest from its file, or from the folder that holds it.

        Raises:
          AlbertError: the file is missing or not JSON, has missing, unknown or malformed fields, or
            names a shard outside its folder.
        """
        if not path.endswith(".json"):
            path = os.path.join(path, FILE_NAME)
        value = files.read_object(path, "manifest")
        where = f"The manifest {path}"
        manifest = from_json(cls, value, where)
        if not manifest.kind.isidentifier():
            raise AlbertError(f"{where} has an invalid kind: {shown(manifest.kind)}.")
        for name in ("features", "tokenizer", "options", "statistics"):
            if not isinstance(value[name], dict):
                raise AlbertError(f"{where} is malformed: {name} must be an object.")
        try:
            features = {
                name: FeatureSpec(spec["dtype"], tuple(spec["shape"]))
                for name, spec in manifest.features.items()
            }
            # Training reads these when it is finished, which is too late for an error.
            for file in manifest.options.get("input_files", ()):
                os.path.basename(file["path"]), file["bytes"]
        except (KeyError, TypeError) as error:
            raise AlbertError(f"{where} is malformed: {shown(error)}.") from error
        if not isinstance(manifest.shards, list) or not manifest.shards:
            raise AlbertError(f"{where} lists no shards.")
        shards = [
            ShardInfo.from_values(shard, f"{where} is malformed: a shard")
            for shard in manifest.shards
        ]
        for shard in shards:
            files.join_named("", shard.name, where)
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
