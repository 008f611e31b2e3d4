# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""A cache of records, each set in a folder named by a hash of everything that made it."""

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
    """Writes records below `folder`, unless the same ones are there already.

    Args:
      folder: the cache.
      kind: of the records, an identifier for their manifest.
      key: JSON values: all that decides the records besides the tokenizer. Texts go in as a hash.
      features: the records' layout.
      tokenizer: whose ids the records hold.
      encode: is handed an empty dict, yields the serialized records and puts what it counted,
        JSON values, into the dict.

    Returns:
      Path of the record file; a manifest lies beside it.
    """
    layout = {name: [spec.dtype, spec.shape] for name, spec in features.items()}
    made_of = json.dumps([kind, key, layout, tokenizer.spec.to_dict()], sort_keys=True)
    folder = os.path.join(folder, hashlib.sha256(made_of.encode()).hexdigest()[:16])
    path = os.path.join(folder, _NAME)
    if _is_complete(path):
        return path
    statistics: dict[str, Any] = {}
    shard = records.write_shard(path, encode(statistics))
    # The manifest comes last: where it is, the records are complete.
    Manifest(kind, features, [shard], tokenizer.spec.to_dict(), dict(key), statistics).save(folder)
    return path


def _is_complete(path: str) -> bool:
    """Whether the records are there and whole; damaged ones are announced, and made again."""
    import tensorflow as tf

    try:
        manifest = find_manifest([path])
        if manifest is None:
            return False
        (shard,) = manifest.shards
        if tf.io.gfile.exists(path) and files.sha256(path) == shard.sha256:
            return True
        reason = "the records differ from their manifest"
    except AlbertError as error:
        reason = str(error)
    print(f"The cached records {path} are damaged ({reason}); making them again.")
    return False
