# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Compact records: the text of the masked ones, in a tenth of the space; tools that read them."""

import gzip
import itertools
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data import records
from albert_tf.data.context import InputContext
from albert_tf.data.framing import FRAME_BYTES
from albert_tf.data.manifest import Manifest
from albert_tf.errors import AlbertError
from albert_tf.tasks.pretraining.data import open_records
from albert_tf.tokenization.tokenizer import Tokenizer
from data_prep.inspect_records import inspect
from data_prep.pretraining_build import Output, TokenizerSource, build_pretraining_data
from data_prep.pretraining_options import PretrainingOptions
from data_prep.record_files import find_records
from data_prep.verify_records import verify

ROOT = pathlib.Path(__file__).parent.parent.parent
DATA = pathlib.Path(os.environ.get("ALBERT_DATA_DIR", ROOT.parent / "shared" / "data"))
WORDS = [f"w{i}" for i in range(200)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LENGTH = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A text, and a vocabulary in which words have one to three pieces."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "vocab.txt").write_text("\n".join([*SPECIALS, *WORDS, "##x", "##y"]))
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(60):
        for _ in range(rng.integers(2, 20)):
            words = rng.choice(WORDS, rng.integers(3, 15))
            suffixes = rng.choice(["", "", "x", "xy"], len(words))
            lines.append(" ".join(w + s for w, s in zip(words, suffixes)))
        lines.append("")
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    return folder


def build(folder, output, **options):
    return build_pretraining_data(
        [str(folder / "text.txt")],
        TokenizerSource(str(folder / "vocab.txt")),
        Output(str(output)),
        PretrainingOptions(max_seq_length=LENGTH, **options),
    )


@pytest.fixture(scope="module")
def compact(folder):
    build(folder, folder / "compact", record_format="compact")
    return folder / "compact"


def read_all(output):
    found = find_records(str(output), None)
    examples = [e for path in found.paths for e in records.read_examples(path)]
    parsed = records.parse_columns(tf.constant(examples), found.features)
    return {name: value.numpy() for name, value in parsed.items()}


def test_compact_records_hold_the_text_of_masked_ones_in_the_order_of_the_text(folder, compact):
    build(folder, folder / "masked", dupe_factor=1)
    masked, columns = read_all(folder / "masked"), read_all(compact)
    assert len(columns["text_ids"]) == len(masked["input_ids"]) > 100
    swapped = 0
    for row, (a, b) in enumerate(columns["segment_lengths"]):
        ids = masked["input_ids"][row].copy()
        used = masked["masked_lm_weights"][row] > 0
        ids[masked["masked_lm_positions"][row][used]] = masked["masked_lm_ids"][row][used]
        text = columns["text_ids"][row][: a + b].tolist()
        segments = [text[:a], text[a:]]
        if masked["next_sentence_labels"][row]:
            segments.reverse()
            swapped += 1
        whole = [2, *segments[0], 3, *segments[1], 3]
        assert ids.tolist() == whole + [0] * (LENGTH - len(whole))
        starts = np.unpackbits(columns["word_starts"][row])[: a + b]
        assert starts.tolist() == [i < 205 for i in text]
    assert 0.3 < swapped / len(columns["text_ids"]) < 0.7


def test_the_manifest_describes_compact_records(compact):
    manifest = Manifest.load(str(compact))
    assert manifest.kind == "compact_pretraining"
    assert manifest.options["record_format"] == "compact"
    assert manifest.options["dupe_factor"] == 1
    assert manifest.options["max_predictions_per_seq"] == 10
    assert manifest.features == records.compact_features(LENGTH, 207)
    statistics = manifest.statistics
    columns = read_all(compact)
    assert statistics["instances"] == len(columns["text_ids"])
    tokens = columns["segment_lengths"].sum() + 3 * len(columns["text_ids"])
    assert statistics["fill_ratio"] == pytest.approx(tokens / columns["text_ids"].size, abs=1e-5)
    assert "masked_share" not in statistics and "label_1_share" not in statistics


def test_compact_records_take_less_than_a_tenth_of_ten_passes(folder, compact):
    masked = build(folder, folder / "ten", dupe_factor=10)
    sizes = [sum(s.bytes for s in m.shards) for m in (masked, Manifest.load(str(compact)))]
    assert sizes[0] > 10 * sizes[1]


def test_one_segment_is_compact_too_and_more_passes_cut_otherwise(folder, tmp_path):
    build(folder, tmp_path, record_format="compact", sentence_objective="none", dupe_factor=2)
    assert verify(find_records(str(tmp_path), None)) == 0
    columns = read_all(tmp_path)
    assert not columns["segment_lengths"][:, 1].any()
    assert columns["segment_lengths"][:, 0].max() == LENGTH - 2
    assert len(np.unique(columns["text_ids"], axis=0)) > 0.5 * len(columns["text_ids"])


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"sentence_objective": "nsp"}, "--sentence_objective=nsp"),
        ({"do_permutation": True}, "--do_permutation"),
        ({"compat": "google_research"}, "--compat=google_research"),
    ],
)
def test_what_training_cannot_draw_is_refused(options, flag):
    with pytest.raises(AlbertError, match=f"{flag} does not go with --record_format=compact"):
        PretrainingOptions(record_format="compact", **options)


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


def test_inspection_shows_compact_records_as_text(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, "sing", "##ing", "bird", "the"]))
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    features = records.compact_features(12, 9)
    columns = {
        "text_ids": [np.array([8, 7, 5, 6, 7]), np.array([8, 7])],
        "word_starts": [np.array([0b11101000]), np.array([0b11000000])],
        "segment_lengths": np.array([[2, 3], [2, 0]]),
    }
    tokenizer.save(str(tmp_path))
    info = records.write_shard(str(tmp_path / "shard"), records.encode_examples(columns, features))
    manifest = Manifest("compact_pretraining", features, [info], tokenizer.spec.to_dict(), {}, {})
    manifest.save(str(tmp_path))
    assert list(inspect(find_records(str(tmp_path), None), 2)) == [
        "record 0: 8 of 12 tokens, not masked or swapped yet\n"
        "A  [CLS] the bird [SEP]\n"
        "B  singing bird [SEP]",
        "record 1: 4 of 12 tokens, not masked or swapped yet\nA  [CLS] the bird [SEP]",
    ]


def good_columns():
    return {
        "text_ids": [np.array([5, 6, 7, 5])] * 10,
        "word_starts": [np.array([0b10110000])] * 10,
        "segment_lengths": np.array([[3, 1]] * 10),
    }


FAULTS = [
    ("text_ids", [5, 6, 7, 5, 5], "text_ids goes on after the text"),
    ("text_ids", [5, 6, 7, 9], "text_ids has an id outside the vocabulary"),
    ("text_ids", [5, 6, 7, 3], "text_ids has a special piece"),
    ("text_ids", [5, 6, 7], "text_ids has a special piece"),
    ("word_starts", [0b10111000], "word_starts goes on after the text"),
    ("word_starts", [0b10010000], "word_starts is not that of the vocabulary"),
    ("segment_lengths", [-1, 5], "a segment has a negative length"),
    ("segment_lengths", [0, 4], "the first segment is empty"),
    ("segment_lengths", [3, 3], "the text is too long for the sequence"),
]


@pytest.mark.parametrize(("feature", "value", "message"), [(None, None, None), *FAULTS])
def test_verification_finds_faults_of_compact_records(tmp_path, capsys, feature, value, message):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, "a", "##b", "c", "d"]))
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    tokenizer.save(str(tmp_path))
    columns = good_columns()
    if feature:
        columns[feature][6] = np.array(value)
    features = records.compact_features(8, 9)
    examples = records.encode_examples(columns, features)
    info = records.write_shard(str(tmp_path / "shard"), examples)
    spec = tokenizer.spec.to_dict()
    Manifest("compact_pretraining", features, [info], spec, {}, {}).save(str(tmp_path))
    faulty = verify(find_records(str(tmp_path), None))
    assert faulty == (feature is not None)
    if feature:
        offset = sum(map(len, itertools.islice(examples, 6))) + 6 * FRAME_BYTES
        assert f"record 6 (byte {offset}): {message}" in capsys.readouterr().err


@pytest.mark.realdata
def test_real_text_is_masked_while_training_as_by_the_builder(tmp_path):
    source, model = DATA / "text" / "books_62mb.txt.gz", DATA / "spm" / "30k-clean.model"
    if not source.exists():
        pytest.skip(f"needs {source}")
    with gzip.open(source, "rb") as f:
        (tmp_path / "text.txt").write_bytes(f.read(1_000_000).rpartition(b"\n")[0] + b"\n")
    for record_format in ("masked", "compact"):
        options = PretrainingOptions(max_seq_length=128, dupe_factor=1, record_format=record_format)
        manifest = build_pretraining_data(
            [str(tmp_path / "text.txt")],
            TokenizerSource(str(model)),
            Output(str(tmp_path / record_format)),
            options,
        )
        if record_format == "masked":
            expected = manifest.statistics
    config = AlbertConfig.load("albert_base_v2")
    opened = open_records(str(tmp_path / "compact"), config)
    batches = opened.train_input_fn(InputContext(100)).take(200)
    used = masked = kept = tokens = labels = 0
    for batch in batches.as_numpy_iterator():
        ids, in_use = batch["input_word_ids"], batch["masked_lm_weights"] > 0
        put = np.take_along_axis(ids, batch["masked_lm_positions"], axis=1)
        used += in_use.sum()
        masked += (put == 4)[in_use].sum()
        kept += (put == batch["masked_lm_ids"])[in_use].sum()
        tokens += batch["input_mask"].sum()
        labels += batch["next_sentence_labels"].sum()
    assert used / tokens == pytest.approx(expected["masked_share"], abs=2e-4)
    assert masked / used == pytest.approx(0.8, abs=0.003)
    assert kept / used == pytest.approx(0.1, abs=0.003)
    assert labels / 20_000 == pytest.approx(0.5, abs=0.015)
