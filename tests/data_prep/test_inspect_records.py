# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Records as text: words joined, replacements marked, the label explained."""

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from data_prep.inspect_records import COLUMNS, format_record, inspect
from data_prep.verify_records import find_records
from tests.support.builders import write_tokenizer, write_vocabulary

WORDS = ["sing", "##ing", "bird", "the", "red"]
FEATURES = records.pretraining_features(12, 4)


@pytest.fixture
def tokenizer(tmp_path):
    return write_tokenizer(tmp_path, WORDS)


def row():
    """Returns a record with "bird" → [MASK], "##ing" → "red", "red" kept."""
    return {
        "input_ids": np.array([2, 8, 4, 5, 9, 3, 9, 7, 3, 0, 0, 0]),
        "input_mask": np.array([1] * 9 + [0] * 3),
        "segment_ids": np.array([0] * 6 + [1] * 3 + [0] * 3),
        "token_boundary": np.array([1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0]),
        "masked_lm_positions": np.array([2, 4, 6, 0]),
        "masked_lm_ids": np.array([7, 6, 9, 0]),
        "masked_lm_weights": np.array([1, 1, 1, 0]),
        "next_sentence_labels": np.array(1),
    }


def write_shard(path, n):
    """Writes `n` records like `row`."""
    columns = {name: np.array([value] * n) for name, value in row().items()}
    return records.write_shard(str(path), records.encode_examples(columns, FEATURES))


def write_folder(folder, tokenizer, *sizes, **options):
    """Writes shards of the given sizes, their manifest and their tokenizer."""
    tokenizer.save(str(folder))
    shards = [write_shard(folder / f"{i}.tfrecord", size) for i, size in enumerate(sizes)]
    spec = tokenizer.spec.to_dict()
    Manifest("pretraining", FEATURES, shards, spec, options, {}).save(str(folder))


def test_predicted_pieces_show_the_original_and_its_replacement(tokenizer):
    assert format_record(row(), tokenizer, "sop") == (
        "9 of 12 tokens, 3 predicted, label 1 (swapped)\n"
        "A  [CLS] the [bird|MASK] sing[ing|red] [SEP]\n"
        "B  [red|kept] bird [SEP]"
    )
    assert "label 1 (B is from another document)" in format_record(row(), tokenizer, "nsp")


def test_long_records_are_wrapped_at_80_columns(tokenizer):
    long = {
        **row(),
        "input_ids": np.array([2] + [8] * 300 + [3]),
        "input_mask": np.ones(302, int),
        "segment_ids": np.zeros(302, int),
    }
    lines = format_record(long, tokenizer, "sop").split("\n")
    assert len(lines) > 10
    assert max(map(len, lines)) <= COLUMNS
    assert not any(line.startswith("B") for line in lines)


def test_records_are_counted_over_the_shards_of_a_folder(tmp_path, tokenizer):
    write_folder(tmp_path / "records", tokenizer, 3, 3, sentence_objective="nsp")
    found = find_records(str(tmp_path / "records"), None)
    texts = list(inspect(found, 5))
    assert [text.split(":")[0] for text in texts] == [f"record {i}" for i in range(5)]
    assert "another document" in texts[2]


def test_records_for_fine_tuning_are_refused(tmp_path, tokenizer):
    features = {"input_ids": records.FeatureSpec("int64", (4,))}
    columns = {"input_ids": np.array([[2, 8, 4, 3]])}
    path = str(tmp_path / "0.tfrecord")
    shards = [records.write_shard(path, records.encode_examples(columns, features))]
    tokenizer.save(str(tmp_path))
    Manifest("rte", features, shards, tokenizer.spec.to_dict(), {}, {}).save(str(tmp_path))
    with pytest.raises(AlbertError, match=r"0\.tfrecord does not hold pretraining records\.$"):
        list(inspect(find_records(str(tmp_path), None), 1))


def test_records_without_a_tokenizer_are_refused(tmp_path):
    write_shard(tmp_path / "a.tfrecord", 1)
    with pytest.raises(AlbertError, match="give `vocab_file`"):
        list(inspect(find_records(f"{tmp_path}/a.tfrecord", None), 1))


def test_another_vocabulary_than_that_of_the_records_is_refused(tmp_path, tokenizer):
    write_folder(tmp_path / "records", tokenizer, 1)
    (tmp_path / "other").mkdir()
    other = write_vocabulary(tmp_path / "other", [*WORDS, "blue"])
    with pytest.raises(AlbertError, match="not the vocabulary"):
        find_records(str(tmp_path / "records"), other)
