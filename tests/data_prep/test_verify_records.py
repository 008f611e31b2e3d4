# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Verification finds every kind of fault and names its place."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.record_files import find_record_folders, find_records
from data_prep.verify_records import verify

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tf1_records"
LENGTH, PREDICTIONS = 12, 3
FEATURES = records.pretraining_features(LENGTH, PREDICTIONS)
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]


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


def write(folder, columns, with_manifest=True):
    examples = records.encode_examples(columns, FEATURES)
    info = records.write_shard(str(folder / "a.tfrecord"), examples)
    (folder / "vocab.txt").write_text("\n".join(PIECES))
    if with_manifest:
        Manifest("pretraining", FEATURES, [info], {}, {}, {}).save(str(folder))
    return info


def check(folder, capsys, source=None):
    vocabulary = None if (folder / "manifest.json").exists() else str(folder / "vocab.txt")
    faulty = verify(find_records(str(source or folder), vocabulary))
    return faulty, capsys.readouterr().err


def test_good_records_are_good(tmp_path, capsys):
    write(tmp_path, good_columns())
    faulty, printed = check(tmp_path, capsys)
    assert faulty == 0 and "error" not in printed


FAULTS = [
    ("input_mask", 3, 0, "input_mask is not ones followed by zeros"),
    ("input_ids", 5, -1, "input_ids has a negative id"),
    ("input_ids", 5, 9, "input_ids has an id outside the vocabulary"),
    ("input_ids", 9, 5, "input_ids is not 0 in padding"),
    ("input_ids", 0, 5, r"does not begin with \[CLS\]"),
    ("input_ids", 7, 5, r"does not end with \[SEP\]"),
    ("segment_ids", 3, 2, "segment_ids is neither 0 nor 1"),
    ("segment_ids", 1, 1, "segment_ids falls from 1 to 0"),
    ("segment_ids", 11, 1, "segment_ids is not 0 in padding"),
    ("masked_lm_positions", 1, 2, "masked_lm_positions does not ascend"),
    ("masked_lm_positions", 0, 0, r"masked_lm_positions has \[CLS\], \[SEP\] or padding"),
    ("masked_lm_positions", 1, 4, r"masked_lm_positions has \[CLS\], \[SEP\] or padding"),
    ("masked_lm_positions", 1, 7, r"masked_lm_positions has \[CLS\], \[SEP\] or padding"),
    ("masked_lm_positions", 2, 5, "is not 0 in padding"),
    ("masked_lm_ids", 0, 9, "masked_lm_ids has an id outside the vocabulary"),
    ("masked_lm_ids", 0, -5, "masked_lm_ids has a negative id"),
    ("masked_lm_ids", 0, 3, "masked_lm_ids has a special piece"),
    ("masked_lm_weights", 0, 0, "masked_lm_weights is not ones followed by zeros"),
    ("masked_lm_weights", 0, 0.5, "masked_lm_weights is not ones followed by zeros"),
    ("next_sentence_labels", None, 2, "next_sentence_labels is neither 0 nor 1"),
]


@pytest.mark.parametrize(("feature", "column", "value", "message"), FAULTS)
def test_a_fault_is_named_by_shard_record_and_byte(
    tmp_path, capsys, feature, column, value, message
):
    columns = good_columns()
    columns[feature] = columns[feature].astype(np.float32 if value == 0.5 else np.int64)
    columns[feature][13 if column is None else (13, column)] = value
    write(tmp_path, columns, with_manifest=False)
    faulty, error = check(tmp_path, capsys, tmp_path / "a.tfrecord")
    offset = 13 * (len(records.encode_examples(good_columns(1), FEATURES)[0]) + 16)
    assert faulty == 1
    assert re.search(message, error)
    assert f"a.tfrecord: record 13 (byte {offset}): " in error


def test_another_layout_is_named_by_record(tmp_path, capsys):
    examples = records.encode_examples(good_columns(), FEATURES)
    features = records.pretraining_features(LENGTH, PREDICTIONS + 1)
    columns = good_columns(1)
    for name in ("positions", "ids", "weights"):
        columns[f"masked_lm_{name}"] = np.zeros((1, PREDICTIONS + 1), int)
    examples[7] = records.encode_examples(columns, features)[0]
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    records.write_shard(str(tmp_path / "a.tfrecord"), examples)
    faulty, error = check(tmp_path, capsys, tmp_path / "a.tfrecord")
    assert faulty == 1
    assert f"record 7 (byte {7 * (len(examples[0]) + 16)}): it does not have the layout" in error


def test_a_shard_that_is_not_the_manifests_is_named(tmp_path, capsys):
    write(tmp_path, good_columns())
    records.write_shard(
        str(tmp_path / "a.tfrecord"), records.encode_examples(good_columns(19), FEATURES)
    )
    faulty, error = check(tmp_path, capsys)
    assert faulty == 1
    assert "has 19 records" in error
    columns = good_columns()
    columns["next_sentence_labels"][3] = 0
    records.write_shard(str(tmp_path / "a.tfrecord"), records.encode_examples(columns, FEATURES))
    faulty, error = check(tmp_path, capsys)
    assert faulty == 1
    assert "a.tfrecord does not have the checksum" in error


def test_sections_that_do_not_begin_with_a_record_are_named(tmp_path, capsys):
    examples = records.encode_examples(good_columns(), FEATURES)
    path = str(tmp_path / "a.tfrecord")
    good = records.write_sections(path, [examples[:12], examples[12:]])
    size = good.bytes // 20
    moved = (records.Section(11, 12 * size), records.Section(9, 8 * size))
    for sections, message in (
        (good.sections, ""),
        (moved, f"has record 11 at byte {11 * size}; its manifest says"),
    ):
        info = dataclasses.replace(good, sections=sections)
        Manifest("pretraining", FEATURES, [info], {}, {}, {}).save(str(tmp_path))
        faulty, error = check(tmp_path, capsys)
        assert faulty == bool(message)
        assert message in error


def test_a_flipped_bit_is_named_and_other_shards_are_still_checked(tmp_path, capsys):
    examples = records.encode_examples(good_columns(), FEATURES)
    infos = [records.write_shard(str(tmp_path / f"{name}.tfrecord"), examples) for name in "abc"]
    Manifest("pretraining", FEATURES, infos, {}, {}, {}).save(str(tmp_path))
    data = bytearray((tmp_path / "b.tfrecord").read_bytes())
    frame = len(examples[0]) + 16
    data[11 * frame + 50] ^= 4
    (tmp_path / "b.tfrecord").write_bytes(data)
    faulty = verify(find_records(str(tmp_path), None))
    output = capsys.readouterr()
    assert faulty == 1
    assert f"b.tfrecord: record 11 (byte {11 * frame}): its checksum is wrong" in output.err
    assert "2 of 3 shards are good" in output.out


def test_records_of_the_tf1_release_are_good(capsys):
    for path in sorted(GOLDEN.glob("*.tfrecord")):
        assert verify(find_records(str(path), None)) == 0
    assert "has no manifest.json: numbers" in capsys.readouterr().out


def test_shards_of_one_name_are_compared_with_the_manifest_beside_them(tmp_path, capsys):
    for name, number in (("one", 20), ("two", 7)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, good_columns(number))
    assert verify(*find_record_folders(f"{tmp_path}/one,{tmp_path}/two", None)) == 0
    assert "2 of 2 shards are good, 27 records" in capsys.readouterr().out
    data = bytearray((tmp_path / "two/a.tfrecord").read_bytes())
    data[50] ^= 4
    (tmp_path / "two/a.tfrecord").write_bytes(data)
    assert verify(*find_record_folders(f"{tmp_path}/*", None)) == 1
    assert "two/a.tfrecord: record 0 (byte 0): its checksum" in capsys.readouterr().err


def test_each_folder_is_verified_by_its_own_tokenizer(tmp_path, capsys):
    columns = good_columns()
    columns["input_ids"][4, 5] = len(PIECES)
    for name, more in (("one", []), ("two", ["e"])):
        (tmp_path / name).mkdir()
        write(tmp_path / name, columns, with_manifest=False)
        (tmp_path / name / "vocab.txt").write_text("\n".join(PIECES + more))
        Tokenizer.from_file(str(tmp_path / name / "vocab.txt")).save(str(tmp_path / name))
    assert verify(*find_record_folders(f"{tmp_path}/*/*.tfrecord", None)) == 1
    assert "one/a.tfrecord: record 4 (byte" in capsys.readouterr().err
