# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents from sentence files, and their buckets on disk."""

from collections import Counter

import numpy as np
import pytest

from data_prep import documents as documents_module
from data_prep import spill
from data_prep.documents import TokenBlock, read_blocks, split_documents, tokenize_block
from data_prep.spill import Document, SpillWriter, read_bucket


class Letters:
    """A tokenizer with one token for each letter; none for a question mark."""

    def encode_batch(self, texts):
        return [[ord(letter) for letter in text if letter != "?"] for text in texts]


def documents_of(paths):
    """Returns (number, sentences) of the documents, and the counts."""
    counts = Counter()
    blocks = read_blocks([str(path) for path in paths])
    tokenized = (tokenize_block(block, Letters()) for block in blocks)
    documents = []
    for document in split_documents(tokenized, counts):
        sentences = np.split(document.tokens, np.cumsum(document.sentence_lengths)[:-1])
        documents.append((document.number, ["".join(map(chr, tokens)) for tokens in sentences]))
    return documents, counts


def test_blank_lines_and_file_ends_separate_documents(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("\n\nab\ncd\n \n\nef\n")
    two.write_text("gh\n?\nij")
    documents, counts = documents_of([one, two])
    assert documents == [(0, ["ab", "cd"]), (1, ["ef"]), (2, ["gh", "ij"])]
    assert counts == {
        "documents": 3,
        "sentences": 5,
        "tokens": 10,
        "sentences_without_tokens": 1,
        "long_document_cuts": 0,
    }


@pytest.mark.parametrize("characters", [1, 7, 50])
def test_documents_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, characters):
    path = tmp_path / "text"
    path.write_text("ab\ncd\n\nef\ngh\nij\n\n?\n\nkl\n")
    expected = documents_of([path])
    monkeypatch.setattr(documents_module, "_BLOCK_CHARACTERS", characters)
    assert documents_of([path]) == expected


@pytest.mark.parametrize("characters", [10, 1 << 20])
def test_long_documents_are_cut_into_parts_of_the_same_number(tmp_path, monkeypatch, characters):
    monkeypatch.setattr(documents_module, "MAX_PART_TOKENS", 6)
    monkeypatch.setattr(documents_module, "_BLOCK_CHARACTERS", characters)
    path = tmp_path / "text"
    path.write_text("abc\ndef\nghij\nkl\nm\n\nno\n")
    parts, counts = documents_of([path])
    assert [number for number, _ in parts] == [0] * (len(parts) - 1) + [1]
    assert counts["long_document_cuts"] == len(parts) - 2 >= 1
    assert counts["documents"] == 2
    sentences = [sentence for _, part in parts for sentence in part]
    assert sentences == ["abc", "def", "ghij", "kl", "m", "no"]
    for _, part in parts:
        assert sum(map(len, part[:-1])) < 2 * 6


def random_documents(seed, n):
    rng = np.random.default_rng(seed)
    documents = []
    for number in range(n):
        lengths = rng.integers(1, 9, rng.integers(1, 12)).astype(np.int32)
        tokens = rng.integers(0, 30000, lengths.sum()).astype(np.int32)
        documents.append(Document(number, lengths, tokens))
    return documents


def write_buckets(folder, documents, num_buckets):
    writer = SpillWriter(str(folder), num_buckets)
    for document in documents:
        writer.add(document)
    return writer.finish()


@pytest.mark.parametrize("run_numbers", [1 << 23, 500])
def test_buckets_are_read_as_written_in_equal_sizes_and_in_order(
    tmp_path, monkeypatch, run_numbers
):
    monkeypatch.setattr(spill, "_RUN_NUMBERS", run_numbers)
    documents = random_documents(0, 200)
    runs, tokens = write_buckets(tmp_path, documents, 7)
    assert (runs.num_files == 1) == (run_numbers > 500)
    assert sum(tokens) == sum(len(d.tokens) for d in documents)
    assert max(tokens) - min(tokens) < 100
    seen = []
    for bucket in range(7):
        read = read_bucket(str(tmp_path), runs, [bucket])
        assert read.own_tokens == len(read.tokens) == tokens[bucket]
        assert (np.diff(read.document_ids) > 0).all()
        for i, number in enumerate(read.document_ids):
            first, last = read.document_bounds[i : i + 2]
            bounds = read.sentence_bounds[first : last + 1]
            np.testing.assert_array_equal(np.diff(bounds), documents[number].sentence_lengths)
            np.testing.assert_array_equal(
                read.tokens[bounds[0] : bounds[-1]], documents[number].tokens
            )
        seen += read.document_ids.tolist()
    assert sorted(seen) == list(range(200))


def test_documents_of_another_bucket_can_be_appended(tmp_path):
    runs, tokens = write_buckets(tmp_path, random_documents(1, 20), 2)
    alone = read_bucket(str(tmp_path), runs, [1])
    both = read_bucket(str(tmp_path), runs, [1, 0])
    assert both.own_documents == len(alone.document_ids)
    assert both.own_tokens == tokens[1]
    assert len(both.tokens) == sum(tokens)
    np.testing.assert_array_equal(both.tokens[: tokens[1]], alone.tokens)


def test_blocks_without_text_give_no_document():
    counts = Counter()
    block = TokenBlock(np.array([-1, 0, -1, 0], np.int32), np.zeros(0, np.int32))
    assert list(split_documents([block], counts)) == []
    assert counts["documents"] == 0
    assert counts["sentences_without_tokens"] == 2
