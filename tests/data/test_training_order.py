# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The order of training: what an epoch begins with, and which records a pipeline reads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import PRETRAINING, Manifest, find_shards
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.training_order import Blocks, TrainingOrder, divide
from tests.support.cases import slow
from tests.support.numbered_records import NUMBER, encode_numbers, numbers_of, small_blocks

FEATURES = {"document": NUMBER, "number": NUMBER}
PASSES = 10


def write(folder, shards: Sequence[Sequence[Sequence[int]]], one_pass=False) -> RecordSource:
    """Writes records with a running number and a document; documents are by shard and pass."""
    infos, numbers = [], itertools.count()
    for i, passes in enumerate(shards):
        encoded = [
            encode_numbers(document=documents, number=[next(numbers) for _ in documents])
            for documents in passes
        ]
        path = str(folder / f"shard-{i:03d}")
        if one_pass:
            encoded = [itertools.chain(*encoded)]
        infos.append(records.write_shard(path, *encoded))
    Manifest(PRETRAINING, FEATURES, infos, {}, {}, {}).save(str(folder))
    return open_source(folder)


def open_source(folder, **options) -> RecordSource:
    return RecordSource(find_shards(str(folder)), FEATURES, **{"seed": 3, **options})


def repeated(shards: int, documents: int = 8, passes: int = PASSES) -> list[list[list[int]]]:
    """Returns shards of some documents each, which every pass repeats."""
    return [[[*range(documents * i, documents * (i + 1))]] * passes for i in range(shards)]


def stream(source: RecordSource, batch_size, batches, name="document", **context) -> np.ndarray:
    """Returns the numbers of training batches, int [batches, rows]."""
    return numbers_of(source.train_input_fn(InputContext(batch_size, **context)), batches, name)


# By default, one reader, and readers of several shards.
@pytest.mark.parametrize(
    "layout", [(17, 16), (32, 10), *slow((1, 160), (10, 32), (16, 20), (256, 2))]
)
def test_the_first_tenth_of_the_passes_sees_the_documents(tmp_path, layout):
    shards, documents = layout
    source = write(tmp_path, repeated(shards, documents))
    tenth = shards * documents // 16
    seen = stream(source, 16, 21 * tenth).reshape(21, -1)
    for epoch in seen[::10]:
        assert len(set(epoch.tolist())) >= 0.95 * shards * documents


def test_each_pass_and_seed_has_another_order(tmp_path):
    source = write(tmp_path, repeated(16))
    seen, other = (stream(s, 16, 80).reshape(10, 8, 16) for s in (source, source.reseeded(4)))
    assert (seen != other).any()
    assert (np.sort(seen, axis=1) == np.sort(seen[0], axis=0)).all()
    assert len({order.tobytes() for order in seen}) == 10


@pytest.fixture
def blocks_of_two():
    with small_blocks(2, 4):
        yield


def test_records_that_follow_each_other_in_a_shard_do_not_in_training(tmp_path):
    with small_blocks(2, 20):
        order = stream(write(tmp_path, [[[*range(1000)]]]), 25, 40).ravel()
    assert sorted(order) == list(range(1000))
    # The records of a buffer come from all of the shard.
    spread = [np.ptp(buffer) for buffer in order.reshape(40, 25)]
    assert np.median(spread) > 600
    # The records of a block follow each other in one of 16 cases.
    assert (np.diff(order) == 1).sum() < 80
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15


#: Documents of the passes of six shards, 30 records each, and one with a single pass.
UNEVEN = [[[7] * 3, [8] * 17, [9] * 10]] * 4 + [[[1] * 30]] + [[[2] * 2] * 15]


@pytest.mark.usefixtures("blocks_of_two")
@pytest.mark.parametrize(("batch_size", "readers"), [(6, 6), (4, 2), (7, 7), (17, 1)])
def test_an_epoch_of_a_reader_holds_each_of_its_records_once(tmp_path, batch_size, readers):
    source = write(tmp_path, [[[*range(48)]], [[*range(48, 84)]]])
    assert len(TrainingOrder(source.blocks, batch_size, 1).readers) == readers
    seen = stream(source, batch_size, 3 * 84 // batch_size, "number")
    rows = batch_size // readers
    everything = []
    for reader in range(readers):
        own = seen[:, reader * rows : (reader + 1) * rows].ravel()
        size = len(np.unique(own))
        assert abs(size - 84 / readers) <= 2
        epochs = own[: 2 * size].reshape(2, size)
        assert (np.sort(epochs, axis=1) == np.unique(own)).all()
        assert (epochs[0] != epochs[1]).any()
        everything += epochs[0].tolist()
    assert sorted(everything) == list(range(84))


def test_a_shard_with_fewer_passes_begins_again(tmp_path):
    """An epoch holds one pass over the text of each shard."""
    source = write(tmp_path, UNEVEN)
    cycle = 4 * 150 + 15 * 30 + 30
    seen = np.bincount(stream(source, 30, cycle // 30).ravel())
    assert seen.tolist() == [0, 15 * 30, 30, *[0] * 4, 60, 340, 200]


@pytest.mark.parametrize("case", [(2, False), *slow((4, True), (8, False))])
def test_pipelines_share_the_batches_whatever_their_number(tmp_path, case):
    pipelines, one_pass = case
    source = write(tmp_path, repeated(4), one_pass)
    whole = stream(source, 16, 30, "number")
    parts = [
        stream(source, 16, 30, "number", num_pipelines=pipelines, pipeline_index=i)
        for i in range(pipelines)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.usefixtures("blocks_of_two")
@pytest.mark.parametrize("start", [7, 33, *slow(1, 14, 100)])
def test_a_stream_starts_at_any_step(tmp_path, start):
    source = write(tmp_path, UNEVEN)
    whole = stream(source, 12, start + 20, "number")
    tail = stream(source, 12, 20, "number", start_step=start)
    np.testing.assert_array_equal(tail, whole[start:])
    last = {"start_step": start, "num_pipelines": 4, "pipeline_index": 3}
    np.testing.assert_array_equal(stream(source, 12, 7, "number", **last), whole[start:, 9:][:7])


def test_a_start_far_into_training_is_found_at_once():
    info = records.ShardInfo("a", "", [(0, 1024, 9), (0, 1024, 9), (0, 952, 9)])
    blocks = Blocks.from_infos(["a"], [info])
    whole = TrainingOrder(blocks, 1, seed=1)
    for position in (0, 2999, 3000, 10**15 + 17):
        chosen, order = next(whole.buffers(0, position))
        assert sorted(chosen) == [0, 1, 2] and len({*order.tolist()}) == 3000 - position % 3000


@pytest.mark.parametrize("pipeline", [(4, 2), *slow((2, 0), (2, 1))])
def test_a_pipeline_reads_only_the_blocks_of_its_rows(tmp_path, pipeline):
    pipelines, index = pipeline
    source = write(tmp_path, repeated(8))
    context = {"num_pipelines": pipelines, "pipeline_index": index}
    whole = stream(source, 8, 170, "number")  # Two cycles.
    rows = slice(index * 8 // pipelines, (index + 1) * 8 // pipelines)
    own = {int(n) // (8 * PASSES) for n in whole[:, rows].ravel()}
    assert len(own) == 8 // pipelines
    for i, path in enumerate(source.files):
        if i not in own:
            os.remove(path)
    np.testing.assert_array_equal(stream(source, 8, 170, "number", **context), whole[:, rows])


def test_readers_divide_the_batch_and_have_about_equally_many_records():
    def sizes(passes, batch_size):
        """Returns the readers' numbers of records, for shards with passes of these sizes."""
        infos = [
            records.ShardInfo(
                "",
                "",
                [
                    (number, min(1024, n - begin), 9)
                    for number, n in enumerate(p)
                    for begin in range(0, n, 1024)
                ],
            )
            for p in passes
        ]
        blocks = Blocks.from_infos([""] * len(infos), infos)
        parts = divide(blocks, batch_size)
        return [sum(blocks.examples[epoch].sum() for epoch in epochs) for epochs in parts]

    assert sizes([[100]] * 256, 4096) == [1600] * 16
    assert sizes([[100]] * 10, 4096) == [500, 500]
    assert sizes([[100] * 3] * 10, 20) == [300] * 10
    assert sizes([[100]] * 10, 7) == [1000]
    assert sizes([[1000], [1]], 2) == [1001]
    assert sizes([[98], [103], [98], [103]], 2) == [201, 201]
    assert sizes([[1 << 20]], 4096) == [1 << 16] * 16
    assert sizes([[5]], 1) == [5]


def test_the_passes_are_part_of_the_fingerprint(tmp_path):
    folders = tmp_path / "passes", tmp_path / "whole"
    for folder in folders:
        folder.mkdir()
    passes = write(folders[0], repeated(2))
    whole = write(folders[1], repeated(2), one_pass=True)
    digests = [[shard.sha256 for shard in source.manifest.shards] for source in (passes, whole)]
    assert digests[0] == digests[1] and passes.fingerprint != whole.fingerprint
