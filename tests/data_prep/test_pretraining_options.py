# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a build: defaults that depend on others, and the warning."""

import re

import pytest

from albert_tf.errors import AlbertError
from data_prep.pretraining_options import PretrainingOptions


def test_max_predictions_follow_the_length():
    assert PretrainingOptions(max_seq_length=512).max_predictions_per_seq == 77
    assert PretrainingOptions(max_seq_length=128).max_predictions_per_seq == 20
    assert PretrainingOptions(max_predictions_per_seq=20).max_predictions_per_seq == 20


@pytest.mark.parametrize(
    ("length", "most", "share", "message"),
    [
        (512, None, 0.15, None),
        (512, 77, 0.15, None),
        (512, 76, 0.15, "`=76 lets 14.8% of an instance of 512 tokens be predicted"),
        (512, 20, 0.15, "=20 lets 3.9% of an instance of 512 .*`=0.15 asks for 77 tokens .15%"),
        (128, 20, 0.15, None),
        (128, 19, 0.15, None),  # 19.2 tokens are rounded.
        (128, 20, 0.3, "=20 lets 15.6% of an instance of 128 .*`=0.3 asks for 38 tokens .30%"),
    ],
)
def test_too_few_predictions_for_the_share_cause_a_warning(length, most, share, message):
    warning = PretrainingOptions(length, most, share).warning()
    assert (warning is None) if message is None else re.search(message, warning)


def test_whole_sentences_are_of_one_document():
    message = "^`whole_sentences` does not go with `sentence_objective`=nsp, which"
    with pytest.raises(AlbertError, match=message):
        PretrainingOptions(whole_sentences=True, sentence_objective="nsp")


@pytest.mark.parametrize("objective", ["nsp", "none"])
def test_repeated_segments_are_for_sentence_order_only(objective):
    message = f"^`repeat_prob` does not go with `sentence_objective`={objective}"
    with pytest.raises(AlbertError, match=message):
        PretrainingOptions(repeat_prob=0.1, sentence_objective=objective)
