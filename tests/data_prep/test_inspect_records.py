# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Records as text: words put together, replacements marked, the label explained."""

import numpy as np
import pytest

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.inspect_records import COLUMNS, format_record, inspect
from data_prep.record_files import find_records

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sing", "##ing", "bird", "the", "red"]
LENGTH = 12
FEATURES = records.pretraining_features(LENGTH, 4)


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES))
    return Tokenizer.from_file(str(path))


def columns(n=1):
    row = {
        # the bird sing|##ing; red bird, of which "bird" → MASK, "##ing" → red, "red" kept
        "input_ids": [2, 8, 4, 5, 9, 3, 9, 7, 3, 0, 0, 0],
        "input_mask": [1] * 9 + [0] * 3,
        "segment_ids": [0] * 6 + [1] * 3 + [0] * 3,
        "token_boundary": [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0],
        "masked_lm_positions": [2, 4, 6, 0],
        "masked_lm_ids": [7, 6, 9, 0],
        "masked_lm_weights": [1, 1, 1, 0],
        "next_sentence_labels": 1,
    }
    return {name: np.array([value] * n) for name, value in row.items()}


def test_predicted_pieces_show_the_original_and_what_stands_there(tokenizer):
    row = {name: value[0] for name, value in columns().items()}
    assert format_record(row, tokenizer, "sop") == (
        "9 of 12 tokens, 3 predicted, label 1 (swapped)\n"
        "A  [CLS] the [bird|MASK] sing[ing|red] [SEP]\n"
        "B  [red|kept] bird [SEP]"
    )
    assert "label 1 (B is from another document)" in format_record(row, tokenizer, "nsp")


def test_records_of_a_folder_are_printed_within_80_columns(tmp_path, tokenizer):
    tokenizer.save(str(tmp_path / "records"))
    shards = []
    for name in "ab":
        path = str(tmp_path / "records" / f"{name}.tfrecord")
        shards.append(records.write_shard(path, records.encode_examples(columns(3), FEATURES)))
    spec = tokenizer.spec.to_dict()
    Manifest("pretraining", FEATURES, shards, spec, {"sentence_objective": "nsp"}, {}).save(
        str(tmp_path / "records")
    )
    found = find_records(str(tmp_path / "records"), None)
    texts = list(inspect(found, 3, skip=2))
    assert [text.split(":")[0] for text in texts] == ["record 2", "record 3", "record 4"]
    assert "another document" in texts[0]
    assert list(inspect(found, 3, skip=6)) == []
    long = {name: value[0] for name, value in columns().items()}
    long["input_ids"] = np.array([2] + [8] * 300 + [3])
    long["input_mask"] = np.ones(302, int)
    long["segment_ids"] = np.zeros(302, int)
    lines = format_record(long, tokenizer, "sop").split("\n")
    assert len(lines) > 10
    assert max(map(len, lines)) <= COLUMNS
    assert not any(line.startswith("B") for line in lines)


def test_classification_records_show_their_label(tmp_path, tokenizer):
    row = {name: value[0] for name, value in columns().items() if "masked" not in name}
    del row["next_sentence_labels"]
    row["label_ids"] = np.float32(2.5)
    assert format_record(row, tokenizer, "sop").startswith("9 of 12 tokens, label 2.5\nA  [CLS]")


def test_records_without_a_tokenizer_are_refused(tmp_path):
    path = str(tmp_path / "a.tfrecord")
    records.write_shard(path, records.encode_examples(columns(), FEATURES))
    with pytest.raises(AlbertError, match="give --vocab_file"):
        list(inspect(find_records(path, None), 1))


def test_another_vocabulary_than_the_records_is_refused(tmp_path, tokenizer):
    folder = tmp_path / "records"
    tokenizer.save(str(folder))
    path = str(folder / "a.tfrecord")
    info = records.write_shard(path, records.encode_examples(columns(), FEATURES))
    Manifest("pretraining", FEATURES, [info], tokenizer.spec.to_dict(), {}, {}).save(str(folder))
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*PIECES, "blue"]))
    with pytest.raises(AlbertError, match="not the vocabulary"):
        find_records(str(folder), str(other))
