# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Looking up shards by paths, globs and folders, for training and for the tools; their manifest."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest, find_features, find_manifest, find_shards
from albert_tf.errors import AlbertError
from tests.support.numbered_records import LABELS, write_labels


def write(folder, *names):
    """Writes shards, the first two of which are in the manifest; returns their paths."""
    folder.mkdir(parents=True)
    infos = [write_labels(folder / name, range(3)) for name in names]
    Manifest("pretraining", LABELS, infos[:2], {}, {}, {}).save(str(folder))
    return [str(folder / name) for name in names]


def test_a_folder_stands_for_the_shards_of_its_manifest(tmp_path):
    x, y, _ = write(tmp_path / "a", "x", "y", "stray")
    assert find_shards(str(tmp_path / "a")) == [x, y]
    assert find_shards(f"{tmp_path / 'a'}/") == [x, y]


def test_a_glob_matches_folders_too(tmp_path):
    expected = write(tmp_path / "a", "x", "y") + write(tmp_path / "b", "x")
    assert find_shards(str(tmp_path / "*")) == expected


def test_a_shard_named_twice_is_read_once(tmp_path):
    x, y = write(tmp_path / "a", "x", "y")
    assert find_shards(f"{y}, {tmp_path / 'a'},{tmp_path}/a/x,") == [y, x]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("none*", "No record file matches"),
        ("empty", "manifest"),
        (" ", "No record file was given"),
    ],
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


def test_the_layout_is_that_of_the_manifest_or_of_the_first_record(tmp_path):
    paths = write(tmp_path / "a", "x")
    manifest = find_manifest(paths)
    assert find_features(paths, manifest) == find_features(paths, None) == LABELS
    wide = dataclasses.replace(manifest, features={"label_ids": records.FeatureSpec("float32")})
    assert find_features(paths, wide) == wide.features
    records.write_shard(f"{tmp_path}/a/none", [])
    with pytest.raises(AlbertError, match="none holds no examples"):
        find_features([f"{tmp_path}/a/none"], None)


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


def test_records_of_the_same_vocabulary_under_another_name_can_be_mixed(save):
    specs = [{"model_file": name, "sha256": "0" * 64} for name in ("spiece.model", "en.model")]
    paths = save(one={"tokenizer": specs[0]}, two={"tokenizer": specs[1]})
    assert find_manifest(paths).tokenizer == specs[0]


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


def test_records_of_other_texts_passes_and_seeds_can_be_mixed(save):
    others = {
        "dupe_factor": 1,
        "random_seed": 2,
        "short_seq_prob": 0.2,
        "input_files": [{"path": "/b.txt", "bytes": 2}],
        "num_shards": 9,
    }
    paths = save(one={}, two={"options": {**OPTIONS, **others}})
    assert find_manifest(paths).num_examples == 6
