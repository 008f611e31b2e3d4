# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record layouts: encoding, files, and the TF1 release's own records."""

import dataclasses
import hashlib
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import records
from albert_tf.data.framing import FRAME_BYTES, read_frames
from albert_tf.errors import AlbertError

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tf1_records"
LAYOUTS = {"pretrain_128.tfrecord": (128, 20), "pretrain_512.tfrecord": (512, 77)}


def some_columns(n=5):
    rng = np.random.default_rng(0)
    return {
        "ids": rng.integers(0, 30000, (n, 7)),
        "mask": rng.integers(0, 2, (n, 7)),
        "weights": rng.random((n, 3)).astype(np.float32),
        "label": rng.integers(0, 2, n),
        "wide": np.array([0, -1, 2**62, -(2**63), 2**63 - 1] * n)[: n * 2].reshape(n, 2),
    }


FEATURES = {
    "ids": records.FeatureSpec("int64", (7,)),
    "mask": records.FeatureSpec("int64", (7,)),
    "weights": records.FeatureSpec("float32", (3,)),
    "label": records.FeatureSpec("int64"),
    "wide": records.FeatureSpec("int64", (2,)),
}


def with_protobuf(columns, row):
    feature = {}
    for name, column in columns.items():
        values = np.ravel(column[row]).tolist()
        if FEATURES[name].dtype == "float32":
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=feature))


def test_encoding_gives_the_bytes_of_protobuf():
    columns = some_columns()
    encoded = records.encode_examples(columns, FEATURES)
    assert encoded == [
        with_protobuf(columns, row).SerializeToString(deterministic=True) for row in range(5)
    ]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint16, np.int16, np.int32, np.uint32])
def test_numbers_are_encoded_alike_whatever_type_holds_them(dtype):
    limits = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    ids = np.random.default_rng(1).integers(*limits, (5, 7), dtype=np.int64, endpoint=True)
    features = {"ids": FEATURES["ids"]}
    assert records.encode_examples({"ids": ids.astype(dtype)}, features) == [
        with_protobuf({"ids": ids}, row).SerializeToString(deterministic=True) for row in range(5)
    ]


def test_encoding_refuses_columns_that_differ_from_the_layout():
    columns = some_columns()
    with pytest.raises(AlbertError, match="disagree on the features"):
        records.encode_examples({**columns, "more": columns["label"]}, FEATURES)
    with pytest.raises(AlbertError, match="'ids' has shape"):
        records.encode_examples({**columns, "ids": columns["ids"][:, :5]}, FEATURES)


@pytest.mark.golden
@pytest.mark.parametrize("name", LAYOUTS)
def test_records_of_the_tf1_release_parse(name):
    length, predictions = LAYOUTS[name]
    serialized = list(records.read_examples(str(GOLDEN / name)))
    assert len(serialized) == 40
    assert records.infer_features(serialized[0]) == records.pretraining_features(
        length, predictions
    )
    batch = records.parse_batch(
        tf.constant(serialized), records.pretraining_features(length, predictions)
    )
    assert set(batch) == {
        "input_word_ids",
        "input_mask",
        "input_type_ids",
        "token_boundary",
        "masked_lm_positions",
        "masked_lm_ids",
        "masked_lm_weights",
        "next_sentence_labels",
    }
    ids = batch["input_word_ids"].numpy()
    assert ids.dtype == np.int32
    assert ids.shape == (40, length)
    assert batch["next_sentence_labels"].shape == (40,)
    assert (ids[:, 0] == 2).all()
    np.testing.assert_array_equal(batch["input_mask"], ids != 0)
    assert batch["masked_lm_weights"].dtype == tf.float32
    masked = np.take_along_axis(ids, batch["masked_lm_positions"].numpy(), axis=1)
    weights = batch["masked_lm_weights"].numpy() > 0
    assert 0.7 < (masked[weights] == 4).mean() < 0.9


@pytest.mark.golden
@pytest.mark.parametrize("name", LAYOUTS)
def test_our_encoding_of_the_releases_records_is_the_same_message(name):
    features = records.pretraining_features(*LAYOUTS[name])
    originals = [tf.train.Example.FromString(x) for x in records.read_examples(str(GOLDEN / name))]
    columns = {
        key: np.array(
            [
                getattr(e.features.feature[key], e.features.feature[key].WhichOneof("kind")).value
                for e in originals
            ]
        ).reshape(len(originals), *spec.shape)
        for key, spec in features.items()
    }
    encoded = records.encode_examples(columns, features)
    assert [tf.train.Example.FromString(x) for x in encoded] == originals


def test_a_shard_is_described_as_it_lies_on_disk(tmp_path):
    path = tmp_path / "a.tfrecord"
    examples = records.encode_examples(some_columns(), FEATURES)
    info = records.write_shard(str(path), iter(examples))
    data = path.read_bytes()
    assert info == records.ShardInfo("a.tfrecord", 5, len(data), hashlib.sha256(data).hexdigest())
    assert list(records.read_examples(str(path))) == examples


def test_sections_are_consecutive_records_of_a_shard(tmp_path):
    examples = records.encode_examples(some_columns(), FEATURES)
    info = records.write_sections(
        str(tmp_path / "a.tfrecord"), iter([iter(examples[:3]), [], examples[3:]])
    )
    assert [section.examples for section in info.sections] == [3, 2]
    second = list(read_frames(str(tmp_path / "a.tfrecord")))[3]
    assert info.sections[0].bytes == second.offset
    assert sum(section.bytes for section in info.sections) == info.bytes
    plain = records.write_shard(str(tmp_path / "a.tfrecord"), examples)
    assert plain == dataclasses.replace(info, sections=())


def test_a_failing_writer_leaves_nothing(tmp_path):
    def examples():
        yield b"one"
        raise AlbertError("stop")

    with pytest.raises(AlbertError, match="stop"):
        records.write_shard(str(tmp_path / "a.tfrecord"), examples())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "cut_in_header", "flip"])
def test_damage_is_named_by_file_record_and_byte(tmp_path, damage):
    path = tmp_path / "a.tfrecord"
    examples = records.encode_examples(some_columns(), FEATURES)
    records.write_shard(str(path), examples)
    start = sum(len(e) + FRAME_BYTES for e in examples[:3])
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: start + 40]
    elif damage == "cut_in_header":
        data = data[: start + 5]
    else:
        data[start + 40] ^= 1
    path.write_bytes(data)
    reader = records.read_examples(str(path))
    assert [next(reader) for _ in range(3)] == examples[:3]
    with pytest.raises(AlbertError, match=rf"a\.tfrecord: record 3 \(byte {start}\)"):
        next(reader)


def test_a_missing_shard_is_told(tmp_path):
    with pytest.raises(AlbertError, match="does not exist"):
        next(records.read_examples(str(tmp_path / "none.tfrecord")))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"\xff\xff", "not a tf.train.Example"),
        (
            tf.train.Example(
                features=tf.train.Features(
                    feature={"a": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"x"]))}
                )
            ).SerializeToString(),
            "'a' is not a list of numbers",
        ),
    ],
)
def test_the_layout_of_foreign_records_is_refused(record, message):
    with pytest.raises(AlbertError, match=message):
        records.infer_features(record)
