# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a build: defaults and conflicts."""

import pytest

from albert_tf.errors import AlbertError
from data_prep.pretraining_options import PretrainingOptions


def test_max_predictions_follow_the_length():
    assert PretrainingOptions(max_seq_length=512).max_predictions_per_seq == 77
    assert PretrainingOptions(max_seq_length=128).max_predictions_per_seq == 20
    assert PretrainingOptions(max_predictions_per_seq=20).max_predictions_per_seq == 20


def test_whole_sentences_are_of_one_document():
    message = "^`whole_sentences` does not go with `sentence_objective`=nsp, which"
    with pytest.raises(AlbertError, match=message):
        PretrainingOptions(whole_sentences=True, sentence_objective="nsp")


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_repeated_segments_are_for_sentence_order_only(objective):
    message = f"^`repeat_prob` does not go with `sentence_objective`={objective}"
    with pytest.raises(AlbertError, match=message):
        PretrainingOptions(repeat_prob=0.1, sentence_objective=objective)
