# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compact records: their text and size, and the tools that read them."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.manifest import Manifest
from albert_tf.data.records import FRAME_BYTES
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.verify_records import as_text, find_records, verify
from albert_tf.errors import AlbertError
from tests.support.builders import write_tokenizer
from tests.support.corpora import (
    VOCAB_SIZE,
    WORD_IDS,
    build,
    corpus,
    read_columns,
    unmasked_ids,
    write_corpus_vocabulary,
)

LENGTH = 64


@pytest.fixture(scope="module")
def build_here(tmp_path_factory):
    """Builds records of one corpus."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(corpus(60, 20))
    vocabulary = write_corpus_vocabulary(folder)

    def build_into(output, **options):
        options = PretrainingOptions(max_seq_length=LENGTH, **options)
        return build(str(folder / "text.txt"), vocabulary, output, options)

    return build_into


@pytest.fixture(scope="module")
def compact(tmp_path_factory, build_here):
    folder = tmp_path_factory.mktemp("compact")
    build_here(folder, record_format="compact")
    return folder


def test_compact_records_hold_the_text_of_masked_ones_in_text_order(tmp_path, build_here, compact):
    build_here(tmp_path, dupe_factor=1)
    masked, columns = read_columns(tmp_path), read_columns(compact)
    assert len(columns["text_ids"]) == len(masked["input_ids"]) > 100
    swapped = masked["next_sentence_labels"]
    originals = unmasked_ids(masked)
    for row, (a, b) in enumerate(columns["segment_lengths"]):
        text = columns["text_ids"][row][: a + b].tolist()
        segments = [text[:a], text[a:]]
        if swapped[row]:
            segments.reverse()
        whole = [2, *segments[0], 3, *segments[1], 3]
        assert originals[row].tolist() == whole + [0] * (LENGTH - len(whole))
        starts = np.unpackbits(columns["word_starts"][row])[: a + b]
        assert starts.tolist() == [i in WORD_IDS for i in text]
    assert 0.3 < swapped.mean() < 0.7


def test_the_manifest_describes_compact_records(compact):
    manifest = Manifest.load(str(compact))
    assert manifest.kind == "compact_pretraining"
    assert manifest.options["record_format"] == "compact"
    assert manifest.options["dupe_factor"] == 1
    assert manifest.options["max_predictions_per_seq"] == 10
    assert manifest.features == records.compact_features(LENGTH, VOCAB_SIZE)
    statistics = manifest.statistics
    columns = read_columns(compact)
    assert statistics["instances"] == len(columns["text_ids"])
    tokens = columns["segment_lengths"].sum() + 3 * len(columns["text_ids"])
    assert statistics["fill_ratio"] == pytest.approx(tokens / columns["text_ids"].size, abs=1e-5)
    assert "masked_share" not in statistics and "label_1_share" not in statistics


def test_one_segment_may_be_compact_and_further_passes_cut_differently(tmp_path, build_here):
    build_here(tmp_path, record_format="compact", sentence_objective="none", dupe_factor=2)
    assert verify(find_records(str(tmp_path))) == 0
    columns = read_columns(tmp_path)
    assert not columns["segment_lengths"][:, 1].any()
    assert columns["segment_lengths"][:, 0].max() == LENGTH - 2
    assert len(np.unique(columns["text_ids"], axis=0)) > 0.5 * len(columns["text_ids"])


def test_large_vocabularies_get_larger_ids():
    for size, dtype in ((30_000, "uint16"), (1 << 16, "uint16"), ((1 << 16) + 1, "int32")):
        features = records.compact_features(8, size)
        assert features["text_ids"].dtype == dtype
        ids = [np.array([size - 1, 5]), np.array([7])]
        columns = {
            "text_ids": ids,
            "word_starts": [np.array([192]), np.array([128])],
            "segment_lengths": np.array([[1, 1], [1, 0]]),
        }
        examples = records.encode_examples(columns, features)
        example = tf.train.Example.FromString(examples[0])
        assert example.SerializeToString(deterministic=True) == examples[0]
        parsed = records.parse_columns(tf.constant(examples), features)
        assert parsed["text_ids"].numpy().tolist() == [
            [size - 1, 5, 0, 0, 0, 0, 0, 0],
            [7, 0, 0, 0, 0, 0, 0, 0],
        ]
        assert parsed["word_starts"].numpy().tolist() == [[192], [128]]


@pytest.mark.parametrize("shape", [(), (None,), (2, 2)])
def test_packed_features_are_lists_of_known_length(shape):
    with pytest.raises(AlbertError, match="cannot have the shape"):
        records.FeatureSpec("uint16", shape)


def write_compact(folder, words, length, columns):
    """Writes one shard with its manifest and tokenizer; returns the serialized examples."""
    tokenizer = write_tokenizer(folder, words)
    tokenizer.save(str(folder))
    features = records.compact_features(length, tokenizer.vocab_size)
    examples = records.encode_examples(columns, features)
    info = records.write_shard(str(folder / "shard"), examples)
    spec = tokenizer.spec.to_dict()
    Manifest("compact_pretraining", features, [info], spec, {}, {}).save(str(folder))
    return examples


def test_compact_records_are_shown_as_text(tmp_path):
    columns = {
        "text_ids": [np.array([8, 7, 5, 6, 7]), np.array([8, 7])],
        "word_starts": [np.array([0b11101000]), np.array([0b11000000])],
        "segment_lengths": np.array([[2, 3], [2, 0]]),
    }
    write_compact(tmp_path, ["sing", "##ing", "bird", "the"], 12, columns)
    assert list(as_text(find_records(str(tmp_path)))) == [
        "8 tokens, not masked yet\nA  [CLS] the bird [SEP]\nB  sing ##ing bird [SEP]",
        "4 tokens, not masked yet\nA  [CLS] the bird [SEP]",
    ]


FAULTS = [
    ("text_ids", [5, 6, 7, 9], "text_ids has a number outside 0 … 8"),
    ("segment_lengths", [4, -1], "segment_lengths has a number outside 0 … 8"),
    ("segment_lengths", [3, 3], "the length has a number outside 0 … 8"),
]


@pytest.mark.parametrize(("feature", "value", "message"), [(None, None, None), *FAULTS])
def test_verification_finds_faults_of_compact_records(tmp_path, capsys, feature, value, message):
    columns = {
        "text_ids": [np.array([5, 6, 7, 5])] * 10,
        "word_starts": [np.array([0b10110000])] * 10,
        "segment_lengths": np.array([[3, 1]] * 10),
    }
    if feature:
        columns[feature][6] = np.array(value)
    examples = write_compact(tmp_path, ["a", "##b", "c", "d"], 8, columns)
    faulty = verify(find_records(str(tmp_path)))
    assert faulty == (feature is not None)
    if feature:
        offset = sum(map(len, itertools.islice(examples, 6))) + 6 * FRAME_BYTES
        assert f"record 6 (byte {offset}): {message}" in capsys.readouterr().err
