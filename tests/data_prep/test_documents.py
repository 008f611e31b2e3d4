# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents from sentence files, and buckets of them."""

import numpy as np
import pytest

from albert_tf.data_prep import documents as documents_module
from albert_tf.data_prep.documents import Bucket, bucket_path, read_blocks, tokenize


class Letters:
    """A tokenizer with one token for each letter; none for a question mark."""

    def encode_batch(self, texts):
        return [[ord(letter) for letter in text if letter != "?"] for text in texts]


def documents_of(*paths):
    """Returns (text, sentences) of the documents."""
    found = []
    for text, lines in read_blocks([str(path) for path in paths]):
        for numbers in tokenize(lines, Letters()):
            assert numbers[-1] == documents_module.DOCUMENT_END
            sentences = np.split(numbers[:-1], np.flatnonzero(numbers == -1) + 1)[:-1]
            found.append((text, ["".join(map(chr, sentence[:-1])) for sentence in sentences]))
    return found


def test_blank_lines_and_file_ends_separate_documents(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("\n\nab\ncd\n \n\nef\n\n?\n")
    two.write_text("gh\n?\nij")
    assert documents_of(one, two) == [(0, ["ab", "cd"]), (0, ["ef"]), (1, ["gh", "ij"])]


@pytest.mark.parametrize("characters", [1, 7, 50])
def test_documents_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, characters):
    path = tmp_path / "text"
    path.write_text("ab\ncd\n\nef\ngh\nij\n\n?\n\nkl\n")
    expected = documents_of(path)
    monkeypatch.setattr(documents_module, "_BLOCK_CHARACTERS", characters)
    assert documents_of(path) == expected


@pytest.mark.parametrize("characters", [10, 1 << 20])
def test_long_documents_are_cut_in_bounded_memory(tmp_path, monkeypatch, characters):
    monkeypatch.setattr(documents_module, "MAX_DOCUMENT_CHARACTERS", 8)
    monkeypatch.setattr(documents_module, "_BLOCK_CHARACTERS", characters)
    path = tmp_path / "text"
    path.write_text("abc\ndef\nghij\nkl\nm\n\nno\n")
    expected = [["abc", "def"], ["ghij", "kl"], ["m"], ["no"]]
    assert [sentences for _, sentences in documents_of(path)] == expected


def test_a_bucket_is_read_as_written_with_the_documents_of_others_after_its_own(tmp_path):
    rng = np.random.default_rng(0)
    lengths = [rng.integers(1, 9, rng.integers(1, 12)) for _ in range(30)]
    tokens = [[rng.integers(0, 30000, n) for n in document] for document in lengths]
    for bucket in (0, 1):
        ends = np.array([-1]), np.array([-2])
        numbers = [
            part
            for document in tokens[bucket::2]
            for part in (*(x for s in document for x in (s, ends[0])), ends[1])
        ]
        with open(bucket_path(str(tmp_path), bucket), "wb") as f:
            f.write(np.concatenate(numbers).astype("<i4"))
    both = Bucket.read(str(tmp_path), [1, 0])
    expected = [*tokens[1::2], *tokens[0::2]]
    assert both.own_documents == 15
    for i, document in enumerate(expected):
        first, last = both.document_bounds[i : i + 2]
        assert last - first == len(document)
        for sentence, start, end in zip(
            document, both.sentence_bounds[first:], both.sentence_bounds[first + 1 :]
        ):
            np.testing.assert_array_equal(both.tokens[start:end], sentence)
    assert len(both.tokens) == sum(lengths_.sum() for lengths_ in lengths)
