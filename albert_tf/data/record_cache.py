# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Caches records in folders named by a hash of all that determines them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_manifest
from albert_tf.errors import AlbertError
from albert_tf.io import files
from albert_tf.tokenization.tokenizer import Tokenizer

_NAME = "examples.tfrecord"


def cached_records(
    folder: str,
    kind: str,
    key: Mapping[str, Any],
    features: records.Features,
    tokenizer: Tokenizer,
    encode: Callable[[dict[str, Any]], Iterator[bytes]],
) -> str:
    """Writes records below `folder`, unless the cache holds them already.

    Args:
      folder: the cache.
      kind: of the records, an identifier for their manifest.
      key: JSON values that determine the records together with the other arguments. Include a hash
        of the texts.
      features: the records' layout.
      tokenizer: produces the records' ids.
      encode: yields the serialized records. It gets an empty dict and adds its statistics, as JSON
        values.

    Returns:
      Path of the record file; its manifest lies beside it.
    """
    layout = {name: [spec.dtype, spec.shape] for name, spec in features.items()}
    identity = json.dumps([kind, key, layout, tokenizer.spec.to_dict()], sort_keys=True)
    folder = os.path.join(folder, hashlib.sha256(identity.encode()).hexdigest()[:16])
    path = os.path.join(folder, _NAME)
    if _is_complete(path):
        return path
    statistics: dict[str, Any] = {}
    shard = records.write_shard(path, encode(statistics))
    # The manifest comes last: it marks the records as complete.
    Manifest(kind, features, [shard], tokenizer.spec.to_dict(), dict(key), statistics).save(folder)
    return path


def _is_complete(path: str) -> bool:
    """Returns whether the records exist and are intact; prints a note if they are damaged."""
    try:
        manifest = find_manifest([path])
        if manifest is None:
            return False
        (shard,) = manifest.shards
        if files.exists(path) and files.sha256(path) == shard.sha256:
            return True
        reason = "the records differ from their manifest"
    except AlbertError as error:
        reason = str(error)
    print(f"The cached records {path} are damaged ({reason}); they are rebuilt.")
    return False
