# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The order of training: what an epoch begins with, and which files a pipeline opens."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import PRETRAINING, Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.record_files import record_files
from albert_tf.data.training_order import deal
from tests.support.cases import slow
from tests.support.numbered_records import NUMBER, encode_pairs, numbers_of

FEATURES = records.sequence_features(document=NUMBER, number=NUMBER)
PASSES = 10


def write(folder, shards: Sequence[Sequence[Sequence[int]]], with_sections=True) -> RecordSource:
    """Writes records with a document and a running number; documents are by shard and section."""
    infos, numbers = [], itertools.count()
    for i, sections in enumerate(shards):
        encoded = [
            encode_pairs(document=documents, number=[next(numbers) for _ in documents])
            for documents in sections
        ]
        path = str(folder / f"shard-{i:03d}")
        if with_sections:
            infos.append(records.write_sections(path, encoded))
        else:
            infos.append(records.write_shard(path, itertools.chain(*encoded)))
    Manifest(PRETRAINING, FEATURES, infos, {}, {}, {}).save(str(folder))
    return open_source(folder)


def open_source(folder, **options) -> RecordSource:
    return RecordSource(
        record_files(str(folder)), FEATURES, **{"seed": 3, "lengths": (2,), **options}
    )


def repeated(shards: int, documents: int = 8, passes: int = PASSES) -> list[list[list[int]]]:
    """Returns shards of some documents each, which every pass repeats."""
    return [[[*range(documents * i, documents * (i + 1))]] * passes for i in range(shards)]


def stream(source: RecordSource, batch_size, batches, name="document", **context) -> np.ndarray:
    """Returns the numbers of training batches, int [batches, rows]."""
    return numbers_of(source.train_input_fn(InputContext(batch_size, **context)), batches, name)


# By default, one lane with two groups of shards, and lanes of two shards.
@pytest.mark.parametrize(
    "layout", [(17, 16), (32, 10), *slow((1, 160), (10, 32), (16, 20), (256, 2))]
)
def test_the_first_tenth_of_an_epoch_sees_the_documents(tmp_path, layout):
    shards, documents = layout
    source = write(tmp_path, repeated(shards, documents))
    tenth = shards * documents // 16
    seen = stream(source, 16, 21 * tenth).reshape(21, -1)
    for epoch in seen[::10]:
        assert len(set(epoch.tolist())) >= 0.95 * shards * documents


def test_each_pass_is_seen_in_another_order(tmp_path):
    seen = stream(write(tmp_path, repeated(16)), 16, 80).reshape(10, 8, 16)
    assert (np.sort(seen, axis=1) == np.sort(seen[0], axis=0)).all()
    assert len({order.tobytes() for order in seen}) == 10


#: Documents of the sections of six shards, 30 records each, and one without sections.
UNEVEN = [[[7] * 3, [8] * 17, [9] * 10]] * 4 + [[[1] * 30]] + [[[2] * 2] * 15]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A folder of UNEVEN's records, and the numbers of 40 batches of 12 in windows of 12."""
    folder = tmp_path_factory.mktemp("uneven")
    write(folder, UNEVEN)
    return folder, stream(open_source(folder, shuffle_window=12), 12, 40, "number")


@pytest.mark.parametrize(("batch_size", "lanes"), [(6, 6), (4, 2), (7, 1)])
def test_an_epoch_of_a_lane_holds_each_of_its_records_once(tmp_path, batch_size, lanes):
    source = write(tmp_path, UNEVEN)
    size, rows = 180 // lanes, batch_size // lanes
    seen = stream(source, batch_size, 3 * size // rows + 1, "number")
    for lane in range(lanes):
        records_of_lane = seen[:, lane * rows : (lane + 1) * rows].ravel()[: 3 * size]
        epochs = records_of_lane.reshape(3, size)
        assert (np.sort(epochs, axis=1) == np.unique(epochs)).all()
        assert len(np.unique(epochs)) == size


def test_shards_with_fewer_sections_are_spread_over_the_epoch(tmp_path):
    """Records of an older build beside those of a new one."""
    source = write(tmp_path, [[[0] * 10] * 10, *[[[i] * 100] for i in range(1, 33)]])
    seen = stream(source, 5, 660).reshape(10, -1)
    assert [np.sum(tenth == 0) for tenth in seen] != [0] * 9 + [100]
    others = [len(set(tenth.tolist())) for tenth in seen]
    assert max(others) < 20


@pytest.mark.parametrize("case", [(2, True), *slow((4, False), (8, True))])
def test_pipelines_share_the_batches_whatever_their_number(tmp_path, case):
    pipelines, with_sections = case
    source = write(tmp_path, repeated(4), with_sections)
    whole = stream(source, 16, 30, "number")
    parts = [
        stream(source, 16, 30, "number", num_pipelines=pipelines, pipeline_index=i)
        for i in range(pipelines)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize("start", [7, 33, *slow(1, 14)])
def test_a_stream_of_sections_starts_at_any_step(uneven, start):
    folder, whole = uneven
    source = open_source(folder, shuffle_window=12)
    tail = stream(source, 12, 40 - start, "number", start_step=start)
    np.testing.assert_array_equal(tail, whole[start:])
    last = {"start_step": start, "num_pipelines": 4, "pipeline_index": 3}
    np.testing.assert_array_equal(stream(source, 12, 7, "number", **last), whole[start:, 9:][:7])


@pytest.mark.parametrize("pipeline", [(4, 2), *slow((2, 0), (2, 1))])
def test_a_pipeline_opens_only_the_shards_of_its_rows(tmp_path, pipeline):
    pipelines, index = pipeline
    source = write(tmp_path, repeated(8))
    context = {"num_pipelines": pipelines, "pipeline_index": index}
    whole = stream(source, 8, 170, "number")  # Two epochs.
    rows = slice(index * 8 // pipelines, (index + 1) * 8 // pipelines)
    own = {int(n) // (8 * PASSES) for n in whole[:, rows].ravel()}
    assert len(own) == 8 // pipelines
    for i, path in enumerate(source.files):
        if i not in own:
            os.remove(path)
    np.testing.assert_array_equal(stream(source, 8, 170, "number", **context), whole[:, rows])


def test_lanes_divide_the_batch_and_are_about_equally_large():
    def lanes(examples, batch_size, **limit):
        lane_of = deal(examples, batch_size, **limit)
        return np.bincount(lane_of, examples).tolist()

    assert lanes([100] * 256, 4096) == [1600] * 16
    assert lanes([100] * 256, 24) == [2200] * 4 + [2100] * 8
    assert lanes([100] * 10, 4096) == [500, 500]
    assert lanes([100] * 10, 20) == [100] * 10
    assert lanes([100] * 10, 4096, max_lanes=1) == [1000]
    assert lanes([100] * 10, 7) == [1000]
    assert lanes([1000, 1], 2) == [1001]
    assert lanes([97, 103, 98, 102], 2) == [200, 200]
    assert lanes([1000, 0, 0, 1000], 4) == [1000, 1000]
    assert lanes([5], 1) == [5]


def test_the_layout_of_the_sections_is_part_of_the_fingerprint(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "old").mkdir()
    new = write(tmp_path / "new", repeated(2))
    old = write(tmp_path / "old", repeated(2), with_sections=False)
    assert new.manifest.fingerprint() == old.manifest.fingerprint()
    assert new.fingerprint != old.fingerprint
