# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Manifests: round trip, strictness, and finding them beside shards."""

import dataclasses
import json
import pathlib

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.record_files import find_manifest
from albert_tf.errors import AlbertError

SECTIONS = (records.Section(3, 90), records.Section(1, 30))


def a_manifest(**changes):
    manifest = Manifest(
        kind="pretraining",
        features=records.pretraining_features(32, 5),
        shards=[
            records.ShardInfo("a.tfrecord", 3, 100, "00"),
            records.ShardInfo("b.tfrecord", 4, 120, "11", SECTIONS),
        ],
        tokenizer={"kind": "sentencepiece", "lower_case": True},
        options={"random_seed": 1},
        statistics={"masked_share": 0.15},
        builder_version=2,
    )
    return dataclasses.replace(manifest, **changes)


def test_a_manifest_survives_its_file(tmp_path):
    path = a_manifest().save(str(tmp_path))
    assert Manifest.load(str(tmp_path)) == Manifest.load(path) == a_manifest()
    assert Manifest.load(path).num_examples == 7


def test_a_manifest_of_the_first_builder_loads(tmp_path):
    path = a_manifest().save(str(tmp_path))
    value = json.loads(pathlib.Path(path).read_text())
    del value["builder_version"]
    for shard in value["shards"]:
        del shard["sections"]
    pathlib.Path(path).write_text(json.dumps(value))
    manifest = Manifest.load(path)
    assert manifest.builder_version == 1
    assert [shard.sections for shard in manifest.shards] == [(), ()]
    # A run on these records goes on: the data are the same.
    assert manifest.fingerprint() == a_manifest().fingerprint()


def an_old_manifest(**changes):
    """Two shards of version 1, of 30 million tokens in 10 passes."""
    values = {
        "shards": [records.ShardInfo("a.tfrecord", 3, 100, "00")],
        "options": {"dupe_factor": 10},
        "statistics": {"corpus": {"tokens": 30_000_000}, "instances": 6},
        "builder_version": 1,
    }
    return a_manifest(**{**values, **changes})


@pytest.mark.parametrize("kind", ["pretraining", "compact_pretraining"])
def test_records_of_the_first_builder_come_with_advice(kind):
    warning = an_old_manifest(kind=kind).order_warning()
    assert "all 10 passes over 8 MB" in warning
    assert "build them again" in warning and "create_pretraining_data.py" in warning


@pytest.mark.parametrize(
    "change",
    [
        {"builder_version": 2},
        {"kind": "classification"},
        {"options": {"dupe_factor": 1}},
        {"options": {"dupe_factor": "10"}},
        {"options": {}},
        {"statistics": {"corpus": {"tokens": 3_000_000}, "instances": 6}},
        {"statistics": {"corpus": [30_000_000], "instances": 6}},
        {"statistics": {}},
        {"shards": [records.ShardInfo("b.tfrecord", 4, 120, "11", SECTIONS)]},
    ],
)
def test_records_whose_order_does_no_harm_come_without(change):
    assert an_old_manifest(**change).order_warning() is None


def a_shard(**changes):
    shard = {"name": "b", "examples": 4, "bytes": 120, "sha256": "11"}
    return {"shards": [{**shard, **changes}]}


def test_the_fingerprint_follows_the_data_alone():
    original = a_manifest().fingerprint()
    assert a_manifest(statistics={}, options={}).fingerprint() == original
    assert a_manifest(tokenizer={}).fingerprint() != original
    assert a_manifest(shards=a_manifest().shards[:1]).fingerprint() != original
    assert a_manifest(features=records.pretraining_features(32, 6)).fingerprint() != original


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"kind": "a poem"}, "an invalid kind: 'a poem'"),
        ({"extra": 1}, "extra"),
        ({"tokenizer": None}, "tokenizer"),
        ({"builder_version": 3}, "builder version 3"),
        ({"builder_version": "2"}, "'builder_version' must be of type int, not '2'"),
        ({"builder_version": True}, "'builder_version' must be of type int, not True"),
        ({"shards": [{"name": "a"}]}, "malformed"),
        (a_shard(examples=-4), "b has a number that is too small"),
        (a_shard(sections=3), "sections is not a list"),
        (a_shard(sections=[{"examples": 4}]), "'bytes' is missing"),
        (a_shard(sections=[{"examples": 4.0, "bytes": 120}]), "'examples' must be of type int"),
        (a_shard(sections=[{"examples": 4, "bytes": 120}, {"examples": 0, "bytes": 0}]), "small"),
        (a_shard(sections=[{"examples": 3, "bytes": 120}]), "have 3 examples and 120 bytes"),
        ({"features": {"a": {"dtype": "int9", "shape": []}}}, "int64 or float32"),
        ({"features": {"a": {"dtype": "int64"}}}, "is malformed: .*shape"),
        ({"options": []}, "options must be an object"),
        ({"options": {"input_files": [{"path": "a"}]}}, "is malformed: .*bytes"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, change, message):
    path = a_manifest().save(str(tmp_path))
    value = json.loads(pathlib.Path(path).read_text())
    value.update(change)
    if change == {"tokenizer": None}:
        del value["tokenizer"]
    (tmp_path / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(AlbertError, match=message):
        Manifest.load(path)


def test_the_manifest_of_some_shards_is_reduced_to_them(tmp_path):
    a_manifest().save(str(tmp_path))
    found = find_manifest([str(tmp_path / "b.tfrecord")])
    assert found.num_examples == 4
    with pytest.raises(AlbertError, match="not listed"):
        find_manifest([str(tmp_path / "c.tfrecord")])


def test_shards_without_a_manifest_have_none(tmp_path):
    assert find_manifest([str(tmp_path / "a.tfrecord")]) is None


def test_shards_of_folders_that_disagree_are_refused(tmp_path):
    one, two, three = (str(tmp_path / name) for name in ("one", "two", "three"))
    a_manifest().save(one)
    a_manifest(tokenizer={"kind": "wordpiece"}).save(two)
    with pytest.raises(AlbertError, match="tokenizer"):
        find_manifest([f"{one}/a.tfrecord", f"{two}/a.tfrecord"])
    with pytest.raises(AlbertError, match=r"has no manifest\.json"):
        find_manifest([f"{one}/a.tfrecord", f"{three}/a.tfrecord"])
    a_manifest().save(two)
    assert find_manifest([f"{one}/a.tfrecord", f"{two}/b.tfrecord"]).num_examples == 7


def test_shards_of_old_and_new_builders_may_be_mixed_and_count_as_old(tmp_path):
    old = an_old_manifest(shards=[records.ShardInfo("c.tfrecord", 3, 100, "22")])
    new = an_old_manifest(shards=a_manifest().shards[1:], builder_version=2)
    old.save(str(tmp_path / "old"))
    new.save(str(tmp_path / "new"))
    paths = [str(tmp_path / "new/b.tfrecord"), str(tmp_path / "old/c.tfrecord")]
    found = find_manifest(paths)
    assert found.builder_version == 1
    assert found.order_warning() and not find_manifest(paths[:1]).order_warning()


BUILDER = {
    "sentence_objective": "sop",
    "do_permutation": False,
    "compat": None,
    "masked_lm_prob": 0.15,
    "dupe_factor": 10,
    "random_seed": 1,
    "short_seq_prob": 0.1,
    "input_files": [{"path": "/a.txt", "bytes": 1}],
    "num_shards": 2,
}


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("sentence_objective", "nsp"),
        ("sentence_objective", "none"),
        ("do_permutation", True),
        ("compat", "google-research"),
        ("masked_lm_prob", 0.2),
    ],
)
def test_records_whose_labels_mean_something_else_are_not_mixed(tmp_path, option, other):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    a_manifest(options=BUILDER).save(one)
    a_manifest(options={**BUILDER, option: other}).save(two)
    with pytest.raises(AlbertError) as error:
        find_manifest([f"{one}/a.tfrecord", f"{two}/a.tfrecord"])
    assert str(error.value) == (
        f"The records in {two} were built with {option}={json.dumps(other)}, those in {one} with "
        f"{json.dumps(BUILDER[option])}; they cannot be mixed."
    )


def test_records_of_other_text_passes_and_seeds_are_mixed(tmp_path):
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    a_manifest(options=BUILDER).save(one)
    others = {
        "dupe_factor": 1,
        "random_seed": 2,
        "short_seq_prob": 0.2,
        "input_files": [{"path": "/b.txt", "bytes": 2}],
        "num_shards": 9,
    }
    a_manifest(options={**BUILDER, **others}).save(two)
    assert find_manifest([f"{one}/a.tfrecord", f"{two}/a.tfrecord"]).num_examples == 6
