# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.tokenization.sequences import join_segments, pad_sequences
from tests.support.builders import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "abc")


def test_segments_are_joined_by_special_pieces(tokenizer):
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    assert join_segments(tokenizer, [5, 6]).tolist() == [cls, 5, 6, sep]
    assert join_segments(tokenizer, [5], [6, 7]).tolist() == [cls, 5, sep, 6, 7, sep]
    assert join_segments(tokenizer, np.array([5, 6]), []).tolist() == [cls, 5, 6, sep, sep]
    assert join_segments(tokenizer, []).dtype == np.int32


def test_sequences_are_padded_to_the_longest_or_to_a_length(tokenizer):
    pair, single = join_segments(tokenizer, [5], [6, 7]), join_segments(tokenizer, [5])
    inputs = pad_sequences(tokenizer, [pair, single])
    assert inputs["input_word_ids"].tolist() == [pair.tolist(), [*single, *[tokenizer.pad_id] * 3]]
    assert inputs["input_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    inputs = pad_sequences(tokenizer, [single], length=5)
    assert inputs["input_word_ids"].shape == (1, 5)
    assert not inputs["input_type_ids"].any()
    assert all(values.dtype == np.int32 for values in inputs.values())


def test_padding_has_the_id_of_the_vocabulary():
    inputs = pad_sequences(SimpleNamespace(pad_id=7), [np.array([2, 5, 3])], length=5)
    assert inputs["input_word_ids"].tolist() == [[2, 5, 3, 7, 7]]
