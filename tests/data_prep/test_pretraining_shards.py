# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""One shard: passes over all of its text, and the random choices of each pass."""

import itertools

import numpy as np
import pytest

from albert_tf.data.record_files import read_examples
from albert_tf.data.records import FRAME_BYTES
from albert_tf.data_prep import pretraining_build
from albert_tf.data_prep.local_runner import LocalRunner
from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.data_prep.pretraining_shards import Context, write_pretraining_shard
from albert_tf.tokenization.tokenizer import Tokenizer
from tests.support.builders import write_vocabulary
from tests.support.corpora import build, read_columns, unmasked_ids

WORDS = [f"w{i}" for i in range(100)]
#: Each document has a word of its own in all of its sentences.
NAMES = [f"d{i}" for i in range(150)]
PASSES = 10


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("vocabulary"), [*NAMES, *WORDS])


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "text.txt"
    with path.open("w") as f:
        for name in NAMES:
            for _ in range(rng.integers(3, 12)):
                f.write(" ".join([*rng.choice(WORDS, rng.integers(3, 9)), name]) + "\n")
            f.write("\n")
    return str(path)


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    """About thirty buckets, each of five or six documents."""
    monkeypatch.setattr(pretraining_build, "_BUCKET_BYTES", 1000)


def tokens_by_shard(folder, manifest):
    """Returns the tokens of each shard's records before masking, int [records, length]."""
    columns = read_columns(folder)
    ids = columns["text_ids"] if "text_ids" in columns else unmasked_ids(columns)
    return np.split(ids, np.cumsum([shard.examples for shard in manifest.shards])[:-1])


def documents(vocabulary, ids):
    """Returns the documents that some records are from."""
    tokenizer = Tokenizer.from_file(vocabulary)
    pieces = map(tokenizer.id_to_piece, np.unique(ids).tolist())
    return {piece for piece in pieces if piece.startswith("d")}


def passes(shard):
    """Returns the numbers of examples and bytes of each pass."""
    groups = itertools.groupby(shard.blocks, lambda block: block.text_pass)
    return [np.sum([block[1:] for block in group], axis=0).tolist() for _, group in groups]


@pytest.mark.parametrize(
    "kind", [{}, {"sentence_objective": "nsp"}, {"record_format": "compact"}], ids=str
)
def test_the_manifest_lists_the_passes_of_a_shard(tmp_path, text, vocabulary, kind):
    options = PretrainingOptions(max_seq_length=32, dupe_factor=3, **kind)
    manifest = build(text, vocabulary, tmp_path, options, num_shards=2)
    for shard, ids in zip(manifest.shards, tokens_by_shard(tmp_path, manifest)):
        assert len(passes(shard)) == 3
        examples = read_examples(str(tmp_path / shard.name))
        offsets = np.cumsum([0, *(len(example) + FRAME_BYTES for example in examples)]).tolist()
        begin, first_byte = 0, 0
        everything = documents(vocabulary, ids)
        for examples, size in passes(shard):
            end = begin + examples
            assert (offsets[begin], offsets[end]) == (first_byte, first_byte + size)
            assert len(documents(vocabulary, ids[begin:end])) >= 0.95 * len(everything)
            begin, first_byte = end, first_byte + size
        assert (begin, first_byte) == (shard.examples, shard.bytes)


def test_each_pass_reads_the_buckets_in_another_order(tmp_path, text, vocabulary):
    options = PretrainingOptions(max_seq_length=32, dupe_factor=3)
    manifest = build(text, vocabulary, tmp_path, options, num_shards=1)
    (ids,) = tokens_by_shard(tmp_path, manifest)
    bounds = np.cumsum([0, *(examples for examples, _ in passes(manifest.shards[0]))])
    orders = []
    for begin, end in zip(bounds, bounds[1:]):
        names = [min(documents(vocabulary, row)) for row in ids[begin:end]]
        orders.append(list(dict.fromkeys(names)))
    # Documents of a bucket stay together; in the same order, the correlation would be near 1.
    for one, other in ((0, 1), (1, 2), (0, 2)):
        places = {name: place for place, name in enumerate(orders[one])}
        common = [(places[name], n) for n, name in enumerate(orders[other]) if name in places]
        assert len(common) > 100
        assert abs(np.corrcoef(np.array(common).T)[0, 1]) < 0.5


def test_random_choices_depend_on_seed_bucket_and_pass_only(tmp_path, text, vocabulary):
    """So the first two of three passes equal those of a build with two."""
    two, three = (PretrainingOptions(max_seq_length=32, dupe_factor=n) for n in (2, 3))
    short = build(text, vocabulary, tmp_path / "two", two, num_shards=2)
    long = build(text, vocabulary, tmp_path / "three", three, num_shards=2)
    for one, other in zip(short.shards, long.shards):
        assert passes(one) == passes(other)[:2]
        data = (tmp_path / "three" / other.name).read_bytes()
        assert (tmp_path / "two" / one.name).read_bytes() == data[: one.bytes]
        third = data[one.bytes :]
        assert third not in (data[: len(third)], data[passes(one)[0][1] : one.bytes])


def test_progress_adds_up_to_all_passes_over_all_buckets(tmp_path, text, vocabulary):
    class Counting(LocalRunner):
        def write_shards(self, tasks):
            for task in tasks:
                write_pretraining_shard(context, task, done.append)
                expected.extend([1] * 3 * len(task.buckets))

    done, expected = [], []
    options = PretrainingOptions(max_seq_length=32, dupe_factor=3)
    context = Context(Tokenizer.from_file(vocabulary), options)
    build(text, vocabulary, tmp_path, options, num_shards=2, runner=Counting)
    assert done == expected
