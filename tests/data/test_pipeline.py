# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.errors import AlbertError
from tests.support.cases import slow
from tests.support.numbered_records import LABELS, numbers_of, small_blocks, write_labels


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for name, numbers in (("a", range(10)), ("b", range(10, 13)), ("c", range(13, 30))):
        write_labels(folder / name, numbers)
    return [str(folder / name) for name in "abc"]


@pytest.fixture(scope="module", autouse=True)
def buffers_of_eight_records():
    with small_blocks(4, 2):
        yield


def source(shards):
    return RecordSource(shards, LABELS, seed=1)


def training_labels(source, batches, *context):
    return numbers_of(source.train_input_fn(InputContext(*context)), batches)


@pytest.mark.parametrize(
    "batching", [(7, 1), (30, 1), (8, 2), *slow((8, 1), (32, 1), (30, 2), (32, 2))]
)
def test_evaluation_numbers_every_record_once(shards, batching):
    batch_size, pipelines = batching
    parts = []
    for index in range(pipelines):
        dataset = source(shards).eval_input_fn(InputContext(batch_size, 0, pipelines, index))
        names = "label_ids", "example_index"
        parts.append([numbers_of(dataset, name=name) for name in names])
        assert parts[-1][0].shape[1] == batch_size // pipelines
    labels, index = (np.concatenate(part, axis=1).ravel() for part in zip(*parts))
    assert index[index >= 0].tolist() == labels[index >= 0].tolist() == list(range(30))


def test_a_cut_off_shard_without_manifest_is_named(tmp_path, shards):
    path = tmp_path / "cut"
    path.write_bytes(Path(shards[0]).read_bytes()[:-5])
    with pytest.raises(AlbertError, match=r"cut: record 9 "):
        source([str(path)])


def test_without_a_manifest_the_fingerprint_follows_the_records(tmp_path):
    def fingerprint(*numbers):
        write_labels(tmp_path / "x", numbers)
        return source([str(tmp_path / "x")]).fingerprint

    original = fingerprint(1, 2, 3)
    assert fingerprint(1, 2, 3) == original
    # Other counts, first and last records, and sizes.
    others = {fingerprint(*numbers) for numbers in ((1, 3), (0, 2, 3), (1, 2, 4), (1, 1 << 21, 3))}
    assert len(others | {original}) == 5


def test_a_shard_that_shrank_is_refused_by_its_manifest(tmp_path):
    info = write_labels(tmp_path / "x", range(5))
    Manifest("pretraining", LABELS, [info], {}, {}, {}).save(str(tmp_path))
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[: len(data) // 2])
    with pytest.raises(AlbertError, match=r"x has \d+ bytes, but its manifest says \d+"):
        source([str(tmp_path / "x")])


def test_empty_record_files_are_refused(tmp_path):
    records.write_shard(str(tmp_path / "none"), [])
    with pytest.raises(AlbertError, match="hold no examples"):
        source([str(tmp_path / "none")])


def test_the_description_has_the_options_and_statistics_of_every_folder(tmp_path):
    paths = []
    for number, folder in enumerate(["x", "y"], 1):
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / "shard"))
        infos = [write_labels(paths[-1], range(number))]
        options, counts = {"short_seq_prob": number / 10}, {"instances": number}
        manifest = Manifest("pretraining", LABELS, infos, {}, options, counts)
        manifest.save(str(tmp_path / folder))

    def built(number):
        return {"options": {"short_seq_prob": number / 10}, "statistics": {"instances": number}}

    one, both = (RecordSource(chosen, LABELS).description for chosen in (paths[:1], paths))
    options = {"short_seq_prob": 0.1, "input_files": []}
    assert one == {
        "kind": "pretraining",
        "examples": 1,
        "shards": ["shard"],
        "options": options,
        "statistics": {"instances": 1},
    }
    statistics = {"folder 1": built(1), "folder 2": built(2)}
    shards = ["shard", "shard"]
    assert both == {**one, "examples": 3, "shards": shards, "statistics": statistics}
