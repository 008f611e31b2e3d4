# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Manifests: their files, damaged ones, fingerprints; the shards that paths and folders name."""

import dataclasses
import json
import pathlib

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_manifest, find_shards
from albert_tf.errors import AlbertError
from tests.support.numbered_records import LABELS, write_labels

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
    assert path == f"{tmp_path}/manifest.json"
    assert Manifest.load(str(tmp_path)) == MANIFEST and MANIFEST.num_examples == 7


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
        ({"shards": with_blocks([0, 4, 120])["shards"] * 2}, "lists a shard twice"),
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
        Manifest.load(str(path.parent))


def write(folder, *names):
    """Writes shards, the first two of which are in the manifest; returns their paths."""
    folder.mkdir(parents=True)
    infos = [write_labels(folder / name, range(3)) for name in names]
    Manifest("pretraining", LABELS, infos[:2], {}, {}, {}).save(str(folder))
    return [str(folder / name) for name in names]


def test_folders_globs_and_paths_name_each_shard_once(tmp_path):
    x, y, _ = write(tmp_path / "a", "x", "y", "stray")
    other = write(tmp_path / "b", "x")
    assert find_shards(str(tmp_path / "a")) == find_shards(f"{tmp_path / 'a'}/") == [x, y]
    assert find_shards(str(tmp_path / "*")) == [x, y, *other]
    assert find_shards(f"{y}, {tmp_path / 'a'},{tmp_path}/./a//x,") == [y, x]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("none*", "No record file matches"), ("empty", "manifest"), (" ", "No record file was given")],
)
def test_missing_records_are_refused(tmp_path, pattern, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(AlbertError, match=message):
        find_shards(f"{tmp_path}/{pattern}" if pattern.strip() else pattern)


def test_folders_are_found_where_globs_do_not_match_them():
    folder = "ram://record_files/a"
    info = write_labels(f"{folder}/x", range(3))
    Manifest("pretraining", LABELS, [info], {}, {}, {}).save(folder)
    assert find_shards(folder) == [f"{folder}/x"]


#: Options of the pretraining data builder.
OPTIONS = {
    "sentence_objective": "sop",
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 20,
    "ngram": 3,
    "favor_shorter_ngram": True,
    "do_whole_word_mask": True,
    "dupe_factor": 10,
    "random_seed": 1,
    "short_seq_prob": 0.1,
    "input_files": [{"path": "/a.txt", "bytes": 1}],
    "num_shards": 2,
}


@pytest.fixture
def save(tmp_path):
    """Writes manifests of two shards each, by folder; returns the path of each first shard."""

    def save(**changes_by_folder):
        for folder, changes in changes_by_folder.items():
            names = f"{folder}.tfrecord", f"{folder}-2.tfrecord"
            shards = [
                records.ShardInfo(name, "00", [records.Block(0, 3 + i, 100)])
                for i, name in enumerate(names)
            ]
            values = {
                "kind": "pretraining",
                "features": LABELS,
                "tokenizer": {"kind": "sentencepiece"},
                "options": OPTIONS,
                "statistics": {},
            }
            Manifest(shards=shards, **{**values, **changes}).save(str(tmp_path / folder))
        return [str(tmp_path / folder / f"{folder}.tfrecord") for folder in changes_by_folder]

    return save


def test_the_manifest_of_some_shards_is_reduced_to_them(save):
    (path,) = save(one={})
    second = path.replace("one.tfrecord", "one-2.tfrecord")
    for paths, examples in (([second, path], [4, 3]), ([path, second], [3, 4])):
        assert [shard.examples for shard in find_manifest(paths).shards] == examples
    assert find_manifest([second]).num_examples == 4
    assert find_manifest([path.replace("one/", "one//")]).num_examples == 3
    with pytest.raises(AlbertError, match="not listed"):
        find_manifest([f"{path}.other"])


def test_shards_may_have_no_manifest_but_not_only_some_of_them(save, tmp_path):
    strays = [f"{tmp_path}/a.tfrecord", f"{tmp_path}/three/b.tfrecord"]
    assert find_manifest(strays) is None
    with pytest.raises(AlbertError, match=r"three has no manifest\.json"):
        find_manifest([*save(one={}), strays[1]])


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("kind", "compact_pretraining"),
        ("features", {"label_ids": records.FeatureSpec("float32")}),
        ("tokenizer", {"kind": "wordpiece"}),
    ],
)
def test_records_of_another_kind_layout_or_tokenizer_cannot_be_mixed(save, field, other):
    with pytest.raises(AlbertError, match=f"differ in their {field} .* cannot be mixed"):
        find_manifest(save(one={}, two={field: other}))


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("sentence_objective", "nsp"),
        ("sentence_objective", "none"),
        ("masked_lm_prob", 0.2),
        ("max_predictions_per_seq", 21),
        ("ngram", 1),
        ("favor_shorter_ngram", False),
        ("do_whole_word_mask", False),
    ],
)
def test_records_whose_labels_mean_something_else_cannot_be_mixed(save, tmp_path, option, other):
    paths = save(one={}, two={"options": {**OPTIONS, option: other}})
    with pytest.raises(AlbertError) as error:
        find_manifest(paths)
    assert str(error.value) == (
        f"The records in {tmp_path}/two and {tmp_path}/one differ in their {option} "
        f"({other!r} and {OPTIONS[option]!r}) and cannot be mixed."
    )


def test_records_of_other_texts_passes_seeds_and_names_of_the_vocabulary_can_be_mixed(save):
    others = {
        "dupe_factor": 1,
        "random_seed": 2,
        "short_seq_prob": 0.2,
        "input_files": [{"path": "/b.txt", "bytes": 2}],
        "num_shards": 9,
    }
    specs = [{"model_file": name, "sha256": "0" * 64} for name in ("spiece.model", "en.model")]
    paths = save(
        one={"tokenizer": specs[0]}, two={"tokenizer": specs[1], "options": {**OPTIONS, **others}}
    )
    manifest = find_manifest(paths)
    assert manifest.num_examples == 6 and manifest.tokenizer == specs[0]
