# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts that are tokenized independently, then dealt and sorted into buckets."""

from collections import Counter

import numpy as np
import pytest

from data_prep.documents import read_blocks, split_documents, tokenize_block
from data_prep.encoding import Context
from data_prep.pretraining_options import PretrainingOptions
from data_prep.spill import RUN_PER_BUCKET, SpillWriter, read_bucket
from data_prep.tokenized_texts import (
    deal_texts,
    dealt,
    gather_bucket,
    scatter_text,
    tokenize_text,
)
from tests.support.builders import write_tokenizer

WORDS = [f"w{i}" for i in range(50)]
NUM_BUCKETS = 7


@pytest.fixture
def context(tmp_path):
    return Context(write_tokenizer(tmp_path, WORDS), PretrainingOptions())


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for number, documents in enumerate((30, 0, 12)):
        text = ""
        for _ in range(documents):
            lines = [" ".join(rng.choice(WORDS, rng.integers(1, 8))) for _ in range(5)]
            text += "\n".join(lines) + "\n\n"
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(text)
    return [str(path) for path in paths]


def as_lists(bucket):
    return [x.tolist() for x in (bucket.tokens, bucket.sentence_bounds, bucket.document_ids)]


def test_buckets_equal_those_of_a_corpus_tokenized_as_a_whole(tmp_path, context, texts):
    folder = str(tmp_path)
    for number in (2, 0, 1):  # Workers finish in any order.
        tokenize_text(context, folder, number, texts[number])
    scattered = {}
    for text in deal_texts(folder, len(texts), NUM_BUCKETS):
        for bucket, document in scatter_text(folder, text):
            scattered.setdefault(bucket, []).insert(0, document)
    for bucket, documents in scattered.items():
        gather_bucket(folder, bucket, documents)

    writer, counts = SpillWriter(folder + "/whole", NUM_BUCKETS), Counter()
    (tmp_path / "whole").mkdir()
    blocks = (tokenize_block(block, context.tokenizer) for block in read_blocks(texts))
    for document in split_documents(blocks, counts):
        writer.add(document)
    runs, bucket_tokens = writer.finish()

    spill = dealt(folder)
    assert spill.bucket_tokens == bucket_tokens
    assert spill.counts == counts
    assert counts["documents"] == 42
    for bucket in range(NUM_BUCKETS):
        expected = read_bucket(folder + "/whole", runs, [bucket])
        assert as_lists(read_bucket(folder, RUN_PER_BUCKET, [bucket])) == as_lists(expected)


def test_a_finished_text_is_not_tokenized_again_and_an_unfinished_one_is(tmp_path, context, texts):
    folder = tmp_path / "build"
    tokenize_text(context, str(folder), 0, texts[0])
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    tokenize_text(context, str(folder), 0, texts[0])
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times
    (folder / "text-00000.json").unlink()
    (folder / "text-00000.bin").write_bytes(b"cut off")
    tokenize_text(context, str(folder), 0, texts[0])
    assert (folder / "text-00000.bin").stat().st_size > 1000
