# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Corrupt records are passed over, and no other record moves."""

from __future__ import annotations

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.manifest import Manifest
from albert_tf.data.pipeline import RecordSource
from albert_tf.errors import AlbertError
from tests.support.numbered_records import NUMBER, encode_pairs, numbers_of

SIZES = {"a": 10, "b": 3, "c": 17}
TOTAL = 30
FEATURES = records.sequence_features(label_ids=NUMBER)


def write_shards(folder):
    """Writes three shards; the labels number their records."""
    ends = np.cumsum([*SIZES.values()])
    return [
        records.write_shard(str(folder / name), encode_pairs(label_ids=range(end - size, end)))
        for (name, size), end in zip(SIZES.items(), ends)
    ]


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Labels of 20 batches of 7 of training on undamaged shards."""
    folder = tmp_path_factory.mktemp("intact")
    write_shards(folder)
    return training_labels(source(folder), 20)


@pytest.fixture(params=[True, False], ids=["manifest", "no manifest"])
def shards(request, tmp_path):
    infos = write_shards(tmp_path)
    if request.param:
        Manifest("classification", FEATURES, infos, {}, {}, {}).save(str(tmp_path))
    return tmp_path


#: For tests whose subject does not depend on the manifest.
mostly_with_manifest = pytest.mark.parametrize(
    "shards",
    [
        pytest.param(True, id="manifest"),
        pytest.param(False, id="no manifest", marks=pytest.mark.slow),
    ],
    indirect=True,
)


def damage(path, number, what="payload"):
    if what == "layout":  # An example without features, with valid checksums.
        examples = list(records.read_examples(str(path)))
        examples[number] = bytes(len(examples[number]))
        records.write_shard(str(path), examples)
        return
    data = bytearray(path.read_bytes())
    frame = len(data) // SIZES[path.name]
    data[frame * number + {"payload": 20, "length": 2}[what]] ^= 1
    path.write_bytes(data)


def source(folder, limit=0, **options):
    paths = [str(folder / name) for name in "abc"]
    options = {"seed": 1, "shuffle_window": 8, "lengths": (4,), **options}
    return RecordSource(paths, FEATURES, max_corrupt_records=limit, **options)


def training_labels(source, batches, batch_size=7, start_step=0):
    return numbers_of(source.train_input_fn(InputContext(batch_size, start_step)), batches)


@pytest.mark.parametrize(
    ("shards", "what"),
    [
        pytest.param(True, "payload", id="manifest-payload"),
        pytest.param(False, "layout", id="no manifest-layout"),
        pytest.param(True, "layout", id="manifest-layout", marks=pytest.mark.slow),
        pytest.param(False, "payload", id="no manifest-payload", marks=pytest.mark.slow),
    ],
    indirect=["shards"],
)
def test_corrupt_records_are_replaced_and_no_other_record_moves(shards, intact, what):
    fingerprint = source(shards).fingerprint
    damage(shards / "a", 1, what)
    damage(shards / "c", 4, what)
    damage(shards / "c", 5, what)
    repaired = source(shards, limit=3)
    assert repaired.num_corrupt == 3 and repaired.num_examples == TOTAL
    assert repaired.fingerprint == fingerprint
    # Record 2 of the first shard, and the good ones number 4 and 5 of the third, 6 and 7.
    expected = intact.copy()
    for corrupt, other in ((1, 2), (17, 13 + 6), (18, 13 + 7)):
        expected[intact == corrupt] = other
    np.testing.assert_array_equal(training_labels(repaired, 20), expected)
    later = training_labels(source(shards, limit=5), 11, start_step=9)
    np.testing.assert_array_equal(later, expected[9:])


def test_evaluation_leaves_corrupt_records_out(shards):
    damage(shards / "b", 2)
    damage(shards / "c", 0)
    repaired = source(shards, limit=2)
    batches = repaired.eval_input_fn(InputContext(8))
    labels, index = (numbers_of(batches, name=name) for name in ("label_ids", "example_index"))
    assert len(labels) == repaired.num_batches(8)
    assert index[index >= 0].tolist() == [i for i in range(TOTAL) if i not in (12, 13)]
    assert (labels == index)[index >= 0].all()


def test_records_that_are_passed_over_are_named(shards):
    damage(shards / "b", 2, "layout")
    damage(shards / "b", 1)
    frame = (shards / "b").stat().st_size // 3
    sentence = source(shards, limit=2).corruption
    assert sentence.startswith("2 of 30 records are corrupt and passed over: ")
    assert f"b: record 1 (byte {frame}): its checksum is wrong" in sentence
    assert f"b: record 2 (byte {2 * frame}): it does not have the layout" in sentence


def test_too_many_corrupt_records_are_counted_in_an_error(shards):
    for number in (1, 5, 9):
        damage(shards / "a", number)
    with pytest.raises(AlbertError, match=r"3 of 30 records are corrupt.*=2: .*a: record 1 \(byte"):
        source(shards, limit=2)


def test_a_damaged_length_loses_the_rest_of_its_shard(shards):
    damage(shards / "c", 14, "length")
    if not (shards / "manifest.json").exists():
        with pytest.raises(AlbertError, match="it is unknown how many records are lost"):
            source(shards, limit=9)
        return
    with pytest.raises(AlbertError, match=r"3 of 30 records are corrupt.*c: record 14"):
        source(shards, limit=2)
    repaired = source(shards, limit=3)
    stream = training_labels(repaired, 3, batch_size=TOTAL)
    assert not np.isin(stream, [27, 28, 29]).any()
    assert (np.sort(stream)[:, :27] <= 26).all()


@pytest.mark.parametrize("shards", [pytest.param(True, id="manifest")], indirect=True)
@pytest.mark.parametrize("kept", [5, 5.5])
def test_a_cut_off_shard_loses_records_of_its_manifest(shards, kept):
    path = shards / "a"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept / 10)])
    with pytest.raises(AlbertError, match="its manifest says"):
        source(shards)
    repaired = source(shards, limit=5)
    assert repaired.num_corrupt == 5 and repaired.num_examples == TOTAL
    assert "a: record 5 (byte" in repaired.corruption


def test_a_shard_without_good_records_cannot_be_repaired(shards):
    for number in range(3):
        damage(shards / "b", number)
    with pytest.raises(AlbertError, match=r"No record of .*b can be read"):
        source(shards, limit=30)


@mostly_with_manifest
def test_the_check_names_the_first_corrupt_record_that_is_not_passed_over(shards):
    source(shards).check()
    damage(shards / "a", 3)
    repaired = source(shards, limit=1)
    repaired.check()
    if (shards / "manifest.json").exists():
        with pytest.raises(AlbertError, match=r"a: record 3 \(byte \d+\): its checksum is wrong"):
            source(shards).check()
    damage(shards / "c", 16)
    with pytest.raises(AlbertError, match=r"c: record 16 .*--max_corrupt_records"):
        repaired.check()


@mostly_with_manifest
def test_ids_outside_the_vocabulary_are_a_fault(shards):
    source(shards, vocab_size=4).check()
    with pytest.raises(AlbertError, match="an id outside the vocabulary"):
        source(shards, vocab_size=3).check()
