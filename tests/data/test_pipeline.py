# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource, length_buckets
from albert_tf.data.record_files import record_files
from albert_tf.errors import AlbertError
from tests.support.cases import slow

TOKEN = records.FeatureSpec("int64", (4,))
FEATURES = {
    **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), TOKEN),
    "label_ids": records.FeatureSpec("int64"),
}


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


@pytest.fixture(scope="module")
def tens(shards):
    """Labels of three epochs in batches of 10."""
    return labels(source(shards).train_input_fn(InputContext(10)), 9)


@pytest.fixture(scope="module")
def sevens(shards):
    """Labels of 40 batches of 7."""
    return labels(source(shards).train_input_fn(InputContext(7)), 40)


def test_an_epoch_holds_every_record_once_and_epochs_differ_in_order(tens):
    stream = tens.reshape(3, 30)
    for epoch in stream:
        assert sorted(epoch) == list(range(30))
    assert len({tuple(epoch) for epoch in stream}) == 3


def test_batches_cross_epochs_without_losing_records(sevens):
    stream = sevens.ravel()
    assert sorted(stream[:30]) == sorted(stream[30:60]) == list(range(30))


# By default, in the last window of the first epoch and in a later epoch.
@pytest.mark.parametrize("start", [4, 13, *slow(0, 1, 2, 5, 29)])
def test_starting_at_a_step_gives_what_that_step_would_have_had(shards, sevens, start):
    tail = labels(source(shards).train_input_fn(InputContext(7, start)), 40 - start)
    np.testing.assert_array_equal(tail, sevens[start:])


def test_the_order_depends_on_the_seed_alone(shards, tens):
    def first(seed):
        return labels(source(shards, seed).train_input_fn(InputContext(10)), 3)

    np.testing.assert_array_equal(first(1), tens[:3])
    assert (first(2) != tens[:3]).any()


def test_pipelines_share_a_global_batch_by_rows(shards):
    whole = labels(source(shards).train_input_fn(InputContext(6)), 8)
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
    "batching", [(7, 1), (30, 1), (8, 2), *slow((8, 1), (32, 1), (30, 2), (32, 2))]
)
def test_evaluation_sees_every_record_once_and_tells_which_it_is(shards, batching):
    batch_size, pipelines = batching
    rows = [[] for _ in range(pipelines)]
    for index in range(pipelines):
        for batch in source(shards).eval_input_fn(InputContext(batch_size, 0, pipelines, index)):
            assert len(batch["label_ids"]) == batch_size // pipelines
            rows[index].append((batch["label_ids"].numpy(), batch["example_index"].numpy()))
    seen = [
        (label, number)
        for step in zip(*rows)
        for numbers, indices in step
        for label, number in zip(numbers, indices)
        if number >= 0
    ]
    assert seen == [(i, i) for i in range(30)]


def test_shards_are_read_in_turn(tmp_path):
    paths = [str(tmp_path / str(i)) for i in range(3)]
    for i, path in enumerate(paths):
        write(path, range(100 * i, 100 * i + 100))
    stream = labels(source(paths, window=30).train_input_fn(InputContext(30)), 10)
    for window in stream:
        assert np.bincount(window // 100).tolist() == [10, 10, 10]


@pytest.mark.parametrize("start", [11, *slow(0, 3)])
def test_more_shards_than_are_read_in_turn_lose_nothing_and_start_anywhere(tmp_path, start):
    paths = [str(tmp_path / str(i)) for i in range(19)]
    ends = np.cumsum([0, *(1 + i % 4 for i in range(19))])
    for i, path in enumerate(paths):
        write(path, range(ends[i], ends[i + 1]))
    total = int(ends[-1])
    stream = labels(source(paths).train_input_fn(InputContext(5)), 60)
    assert sorted(stream.ravel()[:total]) == list(range(total))
    tail = labels(source(paths).train_input_fn(InputContext(5, start)), 60 - start)
    np.testing.assert_array_equal(tail, stream[start:])


SEQUENCES = records.sequence_features(label_ids=records.FeatureSpec("int64"))
LENGTHS = (4, 8, 16)


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    """300 records of 1 to 16 tokens; record i consists of the token i + 1."""
    sizes = np.random.default_rng(0).integers(1, 17, 300)
    columns = {
        "input_ids": [np.full(size, i + 1) for i, size in enumerate(sizes)],
        "row_lengths": sizes[:, None],
        "first_lengths": (sizes[:, None] + 1) // 2,
        "label_ids": np.arange(300),
    }
    path = str(tmp_path_factory.mktemp("sequences") / "examples")
    records.write_shard(path, records.encode_examples(columns, SEQUENCES))
    return path, sizes


def sequence_labels(sequences, start, count):
    bucketed = RecordSource([sequences[0]], SEQUENCES, lengths=LENGTHS)
    return labels(bucketed.train_input_fn(InputContext(8, start)), count)


@pytest.fixture(scope="module")
def first_sequences(sequences):
    """Labels of 120 batches of 8."""
    return sequence_labels(sequences, 0, 120)


def check_sequences(batch, sizes):
    """Whether a batch holds its records, padded to the shortest length that takes them all."""
    numbers = batch["label_ids"].numpy()
    length = batch["input_word_ids"].shape[1]
    assert length == next(n for n in LENGTHS if n >= sizes[numbers].max())
    mask = np.arange(length) < sizes[numbers][:, None]
    np.testing.assert_array_equal(batch["input_mask"], mask)
    np.testing.assert_array_equal(batch["input_word_ids"], (numbers[:, None] + 1) * mask)
    second = mask & (np.arange(length) >= (sizes[numbers][:, None] + 1) // 2)
    np.testing.assert_array_equal(batch["input_type_ids"], second)


@pytest.mark.parametrize("pipelines", [1, 2])
def test_sequences_are_evaluated_once_each_beside_others_of_their_length(sequences, pipelines):
    path, sizes = sequences
    seen = []
    for index in range(pipelines):
        bucketed = RecordSource([path], SEQUENCES, lengths=LENGTHS)
        for batch in bucketed.eval_input_fn(InputContext(32, 0, pipelines, index)):
            if pipelines == 1:
                check_sequences(batch, sizes)
            number = batch["example_index"].numpy()
            np.testing.assert_array_equal(
                batch["label_ids"].numpy()[number >= 0], number[number >= 0]
            )
            seen += number[number >= 0].tolist()
    assert sorted(seen) == list(range(300))


def test_sequences_are_trained_on_equally_often_in_batches_of_similar_length(sequences):
    path, sizes = sequences
    dataset = RecordSource([path], SEQUENCES, lengths=LENGTHS).train_input_fn(InputContext(4))
    batches = list(dataset.take(300))
    for batch in batches:
        check_sequences(batch, sizes)
    numbers = np.concatenate([batch["label_ids"] for batch in batches])
    np.testing.assert_allclose(np.bincount(numbers, minlength=300), 4, atol=1)
    padded = sum(int(np.prod(b["input_mask"].shape)) for b in batches)
    assert padded < 0.75 * len(batches) * 4 * 16
    # Batches of one length do not follow each other.
    lengths = [batch["input_mask"].shape[1] for batch in batches[:64]]
    assert sum(a != b for a, b in zip(lengths, lengths[1:])) > 20


# By default, at the end of the first chunk of batches and in the second one.
@pytest.mark.parametrize("start", [63, 100, *slow(1, 64)])
def test_sequence_batches_start_at_any_step(sequences, first_sequences, start):
    tail = sequence_labels(sequences, start, 20)
    np.testing.assert_array_equal(tail, first_sequences[start : start + 20])


def test_padding_to_the_maximum_gives_static_shapes(sequences):
    fixed = RecordSource([sequences[0]], SEQUENCES, lengths=length_buckets(16, pad_to_max=True))
    for dataset in (fixed.train_input_fn(InputContext(6)), fixed.eval_input_fn(InputContext(6))):
        assert dataset.element_spec["input_mask"].shape.as_list() == [6, 16]


def test_rows_of_multiple_choice_stay_apart(tmp_path):
    features = records.sequence_features(rows=2)
    columns = {
        "input_ids": [np.array([1, 2, 3, 4, 5]), np.array([6, 7])],
        "row_lengths": np.array([[2, 3], [1, 1]]),
        "first_lengths": np.array([[1, 1], [1, 1]]),
    }
    parsed = records.parse_sequences(records.encode_examples(columns, features), features, 4)
    expected = [[[1, 2, 0, 0], [3, 4, 5, 0]], [[6, 0, 0, 0], [7, 0, 0, 0]]]
    np.testing.assert_array_equal(parsed["input_word_ids"], expected)
    np.testing.assert_array_equal(parsed["input_type_ids"].numpy().sum(-1), [[1, 2], [0, 0]])


def test_length_buckets_end_with_the_maximum():
    assert length_buckets(100) == (16, 32, 64, 96, 100)
    assert length_buckets(16) == (16,)
    assert length_buckets(512, pad_to_max=True) == (512,)


def test_shapes_are_static(shards):
    for dataset in (
        source(shards).train_input_fn(InputContext(6)),
        source(shards).eval_input_fn(InputContext(6)),
    ):
        assert all(spec.shape.is_fully_defined() for spec in dataset.element_spec.values())


def test_a_cut_off_shard_without_manifest_is_refused_by_name(tmp_path, shards):
    path = tmp_path / "cut"
    path.write_bytes(Path(shards[0]).read_bytes()[:-5])
    with pytest.raises(AlbertError, match=r"cut: record 9 "):
        source([str(path)])


def test_without_a_manifest_the_fingerprint_follows_the_records(tmp_path):
    def fingerprint(numbers, name="x"):
        write(tmp_path / name, numbers)
        return source([str(tmp_path / name)]).fingerprint

    original = fingerprint([1, 2, 3])
    assert fingerprint([1, 2, 3]) == original
    # Other names, counts, first and last records, and sizes.
    others = [("y", [1, 2, 3]), ("x", [1, 3]), ("x", [0, 2, 3]), ("x", [1, 2, 4])]
    others.append(("x", [1, 1 << 21, 3]))
    assert len({fingerprint(numbers, name) for name, numbers in others} | {original}) == 6


def test_damage_within_a_record_leaves_the_fingerprint_as_it_is(tmp_path):
    """A run on these records may go on with --max_corrupt_records."""
    write(tmp_path / "x", range(3))
    paths = [str(tmp_path / "x")]
    original = source(paths).fingerprint
    data = bytearray((tmp_path / "x").read_bytes())
    data[20] ^= 1
    (tmp_path / "x").write_bytes(data)
    repaired = RecordSource(paths, FEATURES, max_corrupt_records=3)
    assert repaired.num_corrupt > 0 and repaired.fingerprint == original


def test_a_shard_that_shrank_is_refused_by_its_manifest(tmp_path):
    info = write(tmp_path / "x", range(5))
    Manifest("classification", FEATURES, [info], {}, {}, {}).save(str(tmp_path))
    data = (tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(data[: len(data) // 2])
    with pytest.raises(AlbertError, match=r"x has \d+ bytes where its manifest says \d+"):
        source(record_files(str(tmp_path)))


def test_empty_record_files_are_refused(tmp_path):
    records.write_shard(str(tmp_path / "none"), [])
    with pytest.raises(AlbertError, match="hold no examples"):
        source([str(tmp_path / "none")])
