# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Which shards a flag such as --input_file names."""

from __future__ import annotations

from albert_tf.data.manifest import Manifest
from albert_tf.io import files


def record_files(patterns: str) -> list[str]:
    """Shards named by a comma list of paths, globs and folders; each of them once.

    A folder, also one that a glob matches, stands for the shards of its manifest.

    Raises:
      AlbertError: a pattern matches nothing, or a folder has no manifest.
    """
    import tensorflow as tf

    isdir = tf.io.gfile.isdir
    names = [name.strip() for name in patterns.split(",") if name.strip()]
    paths: list[str] = []
    for name in names or [""]:
        # Not every file system finds a folder by a glob.
        for path in [name] if isdir(name) else files.expand_globs(name, "record file"):
            if isdir(path):
                shards = Manifest.load(path).shards
                paths += [files.join_named(path, shard.name, path) for shard in shards]
            else:
                paths.append(path)
    return list(dict.fromkeys(paths))
