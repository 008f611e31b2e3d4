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

BLOCKS = (records.Block(0, 3, 90), records.Block(1, 1, 30))
MANIFEST = Manifest(
    kind="pretraining",
    features=records.pretraining_features(32, 5),
    shards=[
        records.ShardInfo("a.tfrecord", "00", BLOCKS[:1]),
        records.ShardInfo("b.tfrecord", "11", BLOCKS),
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


def with_blocks(*blocks):
    return {"shards": [{"name": "b", "sha256": "11", "blocks": list(blocks)}]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "a poem"}, "an invalid kind: 'a poem'"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"tokenizer": ...}, "the key 'tokenizer' is missing"),
        ({"shards": []}, "lists no shards"),
        ({"shards": [{"name": "a"}]}, "malformed"),
        ({"shards": [{"name": "a", "sha256": "11", "blocks": 3}]}, "no valid list of blocks"),
        (with_blocks(3), "no valid list of blocks, but 3"),
        (with_blocks([0, 4]), "no valid list of blocks"),
        (with_blocks([0, 4.0, 120]), "no valid list of blocks"),
        (with_blocks([0, 4, 1]), "no valid list of blocks"),
        (with_blocks([0, 0, 120]), "no valid list of blocks"),
        (with_blocks([0, 1025, 1 << 20]), "no valid list of blocks"),
        (with_blocks([1, 4, 120]), "no valid list of blocks"),
        (with_blocks([0, 4, 120], [2, 4, 120]), r"no valid list of blocks, but \[2, 4, 120\]"),
        ({"features": {"a": 3}}, "is malformed: a feature"),
        ({"features": {"a": {"dtype": "int9", "shape": []}}}, "int64 or float32"),
        ({"features": {"a": {"dtype": "int64", "shape": 3}}}, "cannot have the shape 3"),
        ({"options": []}, "options must be an object"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path, change, message):
    path, values = saved_values(tmp_path)
    values = {k: v for k, v in {**values, **change}.items() if v is not ...}
    path.write_text(json.dumps(values))
    with pytest.raises(AlbertError, match=message):
        Manifest.load(str(path))
