# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Shards found by paths, globs and folders; alike for training and for the tools."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_files import record_files
from albert_tf.errors import AlbertError
from data_prep.record_files import find_records

FEATURES = {"label_ids": records.FeatureSpec("int64")}


def write(folder, *names):
    """A folder of shards, two of them in its manifest."""
    folder.mkdir(parents=True)
    examples = records.encode_examples({"label_ids": np.arange(3)}, FEATURES)
    infos = [records.write_shard(str(folder / name), examples) for name in names]
    Manifest("classification", FEATURES, infos[:2], {}, {}, {}).save(str(folder))
    return [str(folder / name) for name in names]


@pytest.fixture(params=["training", "tools"])
def find(request):
    if request.param == "training":
        return record_files
    return lambda patterns: find_records(patterns, None).paths


def test_a_folder_stands_for_the_shards_of_its_manifest(tmp_path, find):
    x, y, _ = write(tmp_path / "a", "x", "y", "stray")
    assert find(str(tmp_path / "a")) == [x, y]
    assert find(f"{tmp_path / 'a'}/") == [x, y]


def test_a_glob_matches_folders_too(tmp_path, find):
    expected = write(tmp_path / "a", "x", "y") + write(tmp_path / "b", "x")
    assert find(str(tmp_path / "*")) == expected


def test_a_shard_named_twice_is_read_once(tmp_path, find):
    x, y = write(tmp_path / "a", "x", "y")
    assert find(f"{y}, {tmp_path / 'a'},{tmp_path}/a/x,") == [y, x]


def test_what_is_not_there_is_one_sentence(tmp_path, find):
    (tmp_path / "empty").mkdir()
    with pytest.raises(AlbertError, match="No record file matches"):
        find(str(tmp_path / "none*"))
    with pytest.raises(AlbertError, match="manifest"):
        find(str(tmp_path / "empty"))
    with pytest.raises(AlbertError, match="No record file was given"):
        find(" ")


def test_folders_are_found_where_globs_do_not_match_them(find):
    folder = "ram://record_files/a"
    examples = records.encode_examples({"label_ids": np.arange(3)}, FEATURES)
    info = records.write_shard(f"{folder}/x", examples)
    Manifest("classification", FEATURES, [info], {}, {}, {}).save(folder)
    assert find(folder) == [f"{folder}/x"]
