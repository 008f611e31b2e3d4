# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Manifests: their files, damaged ones, fingerprints."""

import dataclasses
import json
import pathlib

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError

PASSES = (records.Pass(3, (90,)), records.Pass(1, (30,)))
MANIFEST = Manifest(
    kind="pretraining",
    features=records.pretraining_features(32, 5),
    shards=[
        records.ShardInfo("a.tfrecord", 3, 100, "00", (records.Pass(3, (100,)),)),
        records.ShardInfo("b.tfrecord", 4, 120, "11", PASSES),
    ],
    tokenizer={"kind": "sentencepiece", "lower_case": True},
    options={"random_seed": 1},
    statistics={"masked_share": 0.15},
)


def saved_values(folder):
    """Saves MANIFEST; returns its path and JSON values."""
    path = pathlib.Path(MANIFEST.save(str(folder)))
    return path, json.loads(path.read_text())


def test_a_manifest_survives_its_file(tmp_path):
    path = MANIFEST.save(str(tmp_path))
    assert Manifest.load(str(tmp_path)) == Manifest.load(path) == MANIFEST
    assert Manifest.load(path).num_examples == 7


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({"statistics": {}, "options": {}}, True),
        ({"tokenizer": {}}, False),
        ({"shards": MANIFEST.shards[:1]}, False),
        ({"features": records.pretraining_features(32, 6)}, False),
    ],
)
def test_the_fingerprint_depends_on_the_data_alone(change, is_same):
    changed = dataclasses.replace(MANIFEST, **change)
    assert (changed.fingerprint() == MANIFEST.fingerprint()) == is_same


def a_shard(**changes):
    shard = {"name": "b", "examples": 4, "bytes": 120, "sha256": "11", "passes": [], **changes}
    return {"shards": [shard]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "a poem"}, "an invalid kind: 'a poem'"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"tokenizer": ...}, "the key 'tokenizer' is missing"),
        ({"shards": []}, "lists no shards"),
        ({"shards": [{"name": "a"}]}, "malformed"),
        (a_shard(examples=-4), "have 0 examples and 0 bytes, the shard has -4 and 120"),
        (a_shard(passes=3), "passes is not a list"),
        (a_shard(passes=[{"examples": 4}]), "'block_bytes' is missing"),
        (a_shard(passes=[{"examples": 4.0, "block_bytes": [120]}]), "must be of type int"),
        (a_shard(passes=[{"examples": 4, "block_bytes": [120.0]}]), "no list of block sizes"),
        (a_shard(passes=[{"examples": 4, "block_bytes": [1]}]), "no list of block sizes"),
        (a_shard(passes=[{"examples": 4, "block_bytes": 120}]), "no list of block sizes"),
        (a_shard(passes=[{"examples": 0, "block_bytes": []}]), "a pass of 0 examples"),
        (a_shard(passes=[{"examples": 4, "block_bytes": [60, 60]}]), "4 examples in 2 blocks"),
        (a_shard(passes=[{"examples": 3, "block_bytes": [120]}]), "have 3 examples and 120 bytes"),
        ({"features": {"a": {"dtype": "int9", "shape": []}}}, "int64 or float32"),
        ({"features": {"a": {"dtype": "int64"}}}, "is malformed: .*shape"),
        ({"options": []}, "options must be an object"),
        ({"options": {"input_files": [{"path": "a"}]}}, "is malformed: .*bytes"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path, change, message):
    path, values = saved_values(tmp_path)
    values = {k: v for k, v in {**values, **change}.items() if v is not ...}
    path.write_text(json.dumps(values))
    with pytest.raises(AlbertError, match=message):
        Manifest.load(str(path))
