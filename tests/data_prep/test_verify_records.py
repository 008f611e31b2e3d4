# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification finds all kinds of faults and locates them."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.records import FRAME_BYTES
from albert_tf.data_prep.verify_records import as_text, find_records, format_record, verify
from albert_tf.errors import AlbertError
from tests.support.builders import vocabulary, write_tokenizer, write_vocabulary

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tf1_records"
LENGTH, PREDICTIONS = 12, 3
FEATURES = records.pretraining_features(LENGTH, PREDICTIONS)
WORDS = ["a", "b", "c", "d"]


def good_columns(n=20):
    row = {
        "input_ids": [2, 5, 4, 7, 3, 8, 4, 3, 0, 0, 0, 0],
        "input_mask": [1] * 8 + [0] * 4,
        "segment_ids": [0] * 5 + [1] * 3 + [0] * 4,
        "token_boundary": [1] * 8 + [0] * 4,
        "masked_lm_positions": [2, 6, 0],
        "masked_lm_ids": [6, 5, 0],
        "masked_lm_weights": [1, 1, 0],
        "next_sentence_labels": 1,
    }
    return {name: np.array([value] * n) for name, value in row.items()}


def write(folder, examples, manifest=True):
    """Writes a shard a.tfrecord, a vocabulary and a manifest."""
    info = records.write_shard(str(folder / "a.tfrecord"), examples)
    write_vocabulary(folder, WORDS)
    if manifest:
        Manifest("pretraining", FEATURES, [info], {}, {}, {}).save(str(folder))


def encoded(columns):
    return records.encode_examples(columns, FEATURES)


def flip_a_bit(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)


@pytest.fixture
def check(tmp_path, capsys):
    """Verifies the shard; returns the number of faulty shards and standard error."""

    def verified():
        if (tmp_path / "manifest.json").exists():
            found = find_records(str(tmp_path))
        else:
            found = find_records(f"{tmp_path}/a.tfrecord", f"{tmp_path}/vocab.txt")
        return verify(found), capsys.readouterr().err

    return verified


FAULTS = [
    ("input_mask", 3, 2, "input_mask has a number outside 0 … 1"),
    ("input_ids", 5, -1, "input_ids has a number outside 0 … 8"),
    ("input_ids", 5, 9, "input_ids has a number outside 0 … 8"),
    ("masked_lm_positions", 1, 12, "masked_lm_positions has a number outside 0 … 11"),
    ("masked_lm_weights", 0, 2, "masked_lm_weights has a number outside 0 … 1"),
    ("next_sentence_labels", None, 2, "next_sentence_labels has a number outside 0 … 1"),
]


@pytest.mark.parametrize(("feature", "column", "value", "message"), FAULTS)
def test_a_fault_is_located_by_shard_record_and_byte(
    tmp_path, check, feature, column, value, message
):
    columns = good_columns()
    columns[feature][13 if column is None else (13, column)] = value
    write(tmp_path, encoded(columns), manifest=False)
    faulty, error = check()
    offset = 13 * (len(encoded(good_columns(1))[0]) + FRAME_BYTES)
    assert faulty == 1
    assert re.search(message, error)
    assert f"a.tfrecord: record 13 (byte {offset}): " in error


def test_a_record_of_another_layout_is_located(tmp_path, check):
    examples = encoded(good_columns())
    columns = good_columns(1)
    for name in ("positions", "ids", "weights"):
        columns[f"masked_lm_{name}"] = np.zeros((1, PREDICTIONS + 1), int)
    features = records.pretraining_features(LENGTH, PREDICTIONS + 1)
    examples[7] = records.encode_examples(columns, features)[0]
    write(tmp_path, examples, manifest=False)
    faulty, error = check()
    assert faulty == 1
    offset = 7 * (len(examples[0]) + FRAME_BYTES)
    assert f"record 7 (byte {offset}): it does not have the layout" in error


def test_a_shard_that_differs_from_its_manifest_is_faulty(tmp_path, check):
    columns = good_columns()
    write(tmp_path, encoded(columns))
    columns["next_sentence_labels"][3] = 0
    records.write_shard(str(tmp_path / "a.tfrecord"), encoded(columns))
    faulty, error = check()
    assert faulty == 1
    assert "it has another checksum" in error


def test_all_damaged_records_are_located_and_other_shards_are_still_checked(tmp_path, capsys):
    examples = encoded(good_columns())
    infos = [records.write_shard(str(tmp_path / f"{name}.tfrecord"), examples) for name in "abc"]
    Manifest("pretraining", FEATURES, infos, {}, {}, {}).save(str(tmp_path))
    offsets = [number * (len(examples[0]) + FRAME_BYTES) for number in (11, 14)]
    for offset in offsets:
        flip_a_bit(tmp_path / "b.tfrecord", offset + 50)
    faulty = verify(find_records(str(tmp_path)))
    output = capsys.readouterr()
    assert faulty == 1
    for number, offset in zip((11, 14), offsets):
        fault = f"b.tfrecord: record {number} (byte {offset}): its checksum is wrong; build"
        assert fault in output.err
    assert "2 of 3 shards are good, with 40 records" in output.out


def test_records_of_the_tf1_release_pass(capsys):
    for path in sorted(GOLDEN.glob("*.tfrecord")):
        assert verify(find_records(str(path))) == 0
    assert "has no manifest.json: numbers" in capsys.readouterr().out


def test_each_folder_is_verified_with_its_own_tokenizer(tmp_path, capsys):
    columns = good_columns()
    columns["input_ids"][4, 5] = len(vocabulary(WORDS))
    for name, more in (("one", []), ("two", ["e"])):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, encoded(columns), manifest=False)
        write_tokenizer(folder, [*WORDS, *more]).save(str(folder))
    assert verify(find_records(f"{tmp_path}/*/*.tfrecord")) == 1
    assert "one/a.tfrecord: record 4 (byte" in capsys.readouterr().err


def test_predicted_pieces_are_shown_with_what_is_in_their_place(tmp_path, capsys):
    row = {name: column[0] for name, column in good_columns(1).items()}
    assert format_record(row, write_tokenizer(tmp_path, WORDS)) == (
        "8 tokens, 2 predicted, label 1\nA  [CLS] a [b|[MASK]] c [SEP]\nB  d [a|[MASK]] [SEP]"
    )
    one = {**row, "segment_ids": np.zeros(LENGTH, int)}
    assert "\nB" not in format_record(one, write_tokenizer(tmp_path, WORDS))


def test_records_that_cannot_be_shown_are_refused(tmp_path):
    write(tmp_path, encoded(good_columns(1)), manifest=False)
    with pytest.raises(AlbertError, match="give `vocab_file`"):
        next(as_text(find_records(f"{tmp_path}/a.tfrecord")))
    for example in (tf.train.Example().SerializeToString(), b"\xff\xff"):
        write(tmp_path, [example], manifest=False)
        with pytest.raises(AlbertError, match=r"a\.tfrecord does not contain masked pretraining"):
            find_records(f"{tmp_path}/a.tfrecord")


def test_another_vocabulary_than_that_of_the_records_is_refused(tmp_path):
    write(tmp_path, encoded(good_columns(1)))
    with pytest.raises(AlbertError, match="not the vocabulary of these records"):
        find_records(str(tmp_path), f"{tmp_path}/vocab.txt")
