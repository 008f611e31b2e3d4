# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Record layouts: encoding, parsing, files, and the records of the TF1 release."""

import dataclasses
import hashlib
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data import record_files, records
from albert_tf.data.context import InputContext
from albert_tf.data.pipeline import RecordSource
from albert_tf.data.records import FRAME_BYTES
from albert_tf.errors import AlbertError
from tests.support.numbered_records import small_blocks

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "tf1_records"
LAYOUTS = {"pretrain_128.tfrecord": (128, 20), "pretrain_512.tfrecord": (512, 77)}


FEATURES = {
    "ids": records.FeatureSpec("int64", (7,)),
    "mask": records.FeatureSpec("int64", (7,)),
    "weights": records.FeatureSpec("float32", (3,)),
    "label": records.FeatureSpec("int64"),
    "wide": records.FeatureSpec("int64", (2,)),
}
RNG = np.random.default_rng(0)
COLUMNS = {
    "ids": RNG.integers(0, 30000, (5, 7)),
    "mask": RNG.integers(0, 2, (5, 7)),
    "weights": RNG.random((5, 3)).astype(np.float32),
    "label": RNG.integers(0, 2, 5),
    "wide": np.array([0, -1, 2**62, -(2**63), 2**63 - 1] * 2).reshape(5, 2),
}


@pytest.fixture(scope="module")
def examples():
    return records.encode_examples(COLUMNS, FEATURES)


def with_protobuf(columns):
    """Encodes examples as `encode_examples` does."""
    lists = {
        "float32": lambda values: {"float_list": tf.train.FloatList(value=values)},
        "int64": lambda values: {"int64_list": tf.train.Int64List(value=values)},
    }
    encoded = []
    for rows in zip(*columns.values()):
        feature = {
            name: tf.train.Feature(**lists[FEATURES[name].dtype](np.ravel(row).tolist()))
            for name, row in zip(columns, rows)
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        encoded.append(example.SerializeToString(deterministic=True))
    return encoded


def test_encoding_yields_the_bytes_of_protobuf(examples):
    assert examples == with_protobuf(COLUMNS)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint16, np.int16, np.int32, np.uint32])
def test_the_encoding_does_not_depend_on_the_integer_type(dtype):
    limits = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    ids = np.random.default_rng(1).integers(*limits, (5, 7), dtype=np.int64, endpoint=True)
    features = {"ids": FEATURES["ids"]}
    encoded = records.encode_examples({"ids": ids.astype(dtype)}, features)
    assert encoded == with_protobuf({"ids": ids})


@pytest.mark.golden
@pytest.mark.parametrize("name", LAYOUTS)
def test_records_of_the_tf1_release_parse(name):
    features = records.pretraining_features(*LAYOUTS[name])
    serialized = list(record_files.read_examples(str(GOLDEN / name)))
    assert len(serialized) == 40
    assert record_files.infer_features(str(GOLDEN / name)) == features
    (batch,) = RecordSource([str(GOLDEN / name)], features).eval_input_fn(InputContext(40))
    assert set(batch) == {"input_word_ids", "input_type_ids", "example_index", *features} - {
        "input_ids", "segment_ids",
    }  # fmt: skip
    ids = batch["input_word_ids"].numpy()
    assert ids.dtype == np.int32
    assert ids.shape == (40, LAYOUTS[name][0])
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
    serialized = list(record_files.read_examples(str(GOLDEN / name)))
    columns = records.parse_columns(tf.constant(serialized), features)
    encoded = records.encode_examples({k: v.numpy() for k, v in columns.items()}, features)
    messages, originals = (map(tf.train.Example.FromString, x) for x in (encoded, serialized))
    assert list(messages) == list(originals)


def test_a_shard_is_described_as_it_lies_on_disk(tmp_path, examples):
    path = tmp_path / "a.tfrecord"
    info = records.write_shard(str(path), iter(examples))
    data = path.read_bytes()
    digest, blocks = hashlib.sha256(data).hexdigest(), (records.Block(0, 5, len(data)),)
    assert info == records.ShardInfo("a.tfrecord", digest, blocks)
    assert (info.examples, info.bytes) == (5, len(data))
    assert list(record_files.read_examples(str(path))) == examples


def test_blocks_are_consecutive_records_of_a_pass(tmp_path, examples):
    path = str(tmp_path / "a.tfrecord")
    with small_blocks(2, 1):
        info = records.write_shard(path, iter(examples[:3]), [], examples[3:])
        whole = record_files.describe_shard(path)
    offsets = np.cumsum([0, *(len(example) + FRAME_BYTES for example in examples)]).tolist()

    def blocks(shard):
        """Returns the pass and the number of examples of each block, and where it ends."""
        passes, numbers, sizes = zip(*shard.blocks)
        return passes, numbers, [offsets.index(end) for end in np.cumsum(sizes)]

    assert blocks(info) == ((0, 0, 1), (2, 1, 2), [2, 3, 5])
    assert blocks(whole) == ((0, 0, 0), (2, 2, 1), [2, 4, 5])
    assert dataclasses.replace(whole, blocks=info.blocks) == info


def test_a_failing_writer_leaves_no_file(tmp_path):
    def examples():
        yield b"one"
        raise AlbertError("stop")

    with pytest.raises(AlbertError, match="stop"):
        records.write_shard(str(tmp_path / "a.tfrecord"), examples())
    assert list(tmp_path.iterdir()) == []
