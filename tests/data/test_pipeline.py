# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource, record_files
from albert_tf.errors import AlbertError
from albert_tf.training.specs import InputContext

FEATURES = records.classification_features(4, "int64")


def write(path, numbers):
    """Records whose label is their number."""
    numbers = np.asarray(numbers)
    tokens = np.repeat(numbers[:, None], 4, axis=1)
    columns = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), tokens)
    examples = records.encode_examples({**columns, "label_ids": numbers}, FEATURES)
    return records.write_shard(str(path), examples)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for name, numbers in (("a", range(10)), ("b", range(10, 13)), ("c", range(13, 30))):
        write(folder / name, numbers)
    return [str(folder / name) for name in "abc"]


def source(shards, seed=1, window=8):
    return RecordSource(shards, FEATURES, seed=seed, shuffle_window=window)


def labels(dataset, batches):
    return np.array([b["label_ids"].numpy() for b in itertools.islice(dataset, batches)])


def test_an_epoch_holds_every_record_once_and_epochs_differ_in_order(shards):
    stream = labels(source(shards).train_input_fn(InputContext(batch_size=10)), 9).reshape(3, 30)
    for epoch in stream:
        assert sorted(epoch) == list(range(30))
    assert len({tuple(epoch) for epoch in stream}) == 3


def test_batches_cross_epochs_without_losing_records(shards):
    stream = labels(source(shards).train_input_fn(InputContext(batch_size=7)), 30).ravel()
    assert sorted(stream[:30]) == sorted(stream[30:60]) == list(range(30))


@pytest.mark.parametrize("start", [0, 1, 2, 4, 5, 13, 29])
def test_starting_at_a_step_gives_what_that_step_would_have_had(shards, start):
    whole = labels(source(shards).train_input_fn(InputContext(batch_size=7)), 40)
    tail = labels(source(shards).train_input_fn(InputContext(7, start_step=start)), 40 - start)
    np.testing.assert_array_equal(tail, whole[start:])


def test_the_order_depends_on_the_seed_alone(shards):
    def first(seed):
        return labels(source(shards, seed).train_input_fn(InputContext(batch_size=10)), 3).ravel()

    np.testing.assert_array_equal(first(1), first(1))
    assert (first(1) != first(2)).any()


def test_pipelines_share_a_global_batch_by_rows(shards):
    whole = labels(source(shards).train_input_fn(InputContext(batch_size=6)), 8)
    parts = [
        labels(source(shards).train_input_fn(InputContext(6, 0, 2, index)), 8) for index in (0, 1)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_window_mixes_records_far_apart(shards):
    stream = labels(source(shards, window=30).train_input_fn(InputContext(30)), 20)
    # Over 20 epochs the mean position of each record approaches the middle.
    positions = np.argsort(stream, axis=1).mean(axis=0)
    assert np.abs(positions - 14.5).max() < 7.5


@pytest.mark.parametrize(
    ("batch_size", "pipelines"), [(7, 1), (8, 1), (30, 1), (32, 1), (8, 2), (30, 2), (32, 2)]
)
def test_evaluation_sees_every_record_once_in_order(shards, batch_size, pipelines):
    rows = [[] for _ in range(pipelines)]
    for index in range(pipelines):
        for batch in source(shards).eval_input_fn(InputContext(batch_size, 0, pipelines, index)):
            assert len(batch["label_ids"]) == batch_size // pipelines
            rows[index].append((batch["label_ids"].numpy(), batch["is_real_example"].numpy()))
    seen = [label for step in zip(*rows) for numbers, real in step for label in numbers[real]]
    assert seen == list(range(30))


def test_shapes_are_static(shards):
    for dataset in (
        source(shards).train_input_fn(InputContext(6)),
        source(shards).eval_input_fn(InputContext(6)),
    ):
        assert all(spec.shape.is_fully_defined() for spec in dataset.element_spec.values())


def test_a_cut_off_shard_without_manifest_is_refused_by_name(tmp_path, shards):
    path = tmp_path / "cut"
    path.write_bytes(Path(shards[0]).read_bytes()[:-5])
    with pytest.raises(AlbertError, match=r"cut is damaged or cut off at record 9"):
        source([str(path)])


def test_a_shard_that_shrank_is_refused_by_its_manifest(tmp_path):
    info = write(tmp_path / "x", range(5))
    Manifest("classification", FEATURES, [info], {}, {}, {}).save(str(tmp_path))
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[: len(data) // 2])
    with pytest.raises(AlbertError, match=r"x has \d+ bytes where its manifest says \d+"):
        source(record_files(str(tmp_path)))


def test_a_folder_stands_for_the_shards_of_its_manifest(tmp_path):
    infos = [write(tmp_path / name, range(3)) for name in ("x", "y")]
    write(tmp_path / "stray", range(3))
    Manifest("classification", FEATURES, infos, {}, {}, {}).save(str(tmp_path))
    assert record_files(str(tmp_path)) == [str(tmp_path / "x"), str(tmp_path / "y")]


def test_empty_record_files_are_refused(tmp_path):
    records.write_shard(str(tmp_path / "none"), [])
    with pytest.raises(AlbertError, match="hold no examples"):
        source([str(tmp_path / "none")])
