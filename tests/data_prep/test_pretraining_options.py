# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a build: what follows from others, and what is warned of."""

import re

import pytest

from data_prep.pretraining_options import PretrainingOptions


def test_max_predictions_follow_the_length():
    assert PretrainingOptions(max_seq_length=512).max_predictions_per_seq == 77
    assert PretrainingOptions(max_seq_length=128).max_predictions_per_seq == 20
    assert PretrainingOptions(max_predictions_per_seq=20).max_predictions_per_seq == 20


@pytest.mark.parametrize(
    ("length", "most", "share", "told"),
    [
        (512, None, 0.15, None),
        (512, 77, 0.15, None),
        (512, 76, 0.15, "=76 leaves 14.8% of an instance of 512 tokens to be predicted, not the"),
        (512, 20, 0.15, "=20 leaves 3.9% of an instance of 512 .* 15% of .* which take 77"),
        (128, 20, 0.15, None),
        (128, 19, 0.15, None),  # 19.2 tokens are rounded.
        (128, 20, 0.3, "=20 leaves 15.6% of an instance of 128 .* 30% of .* which take 38"),
    ],
)
def test_too_few_predictions_for_the_share_draw_a_warning(length, most, share, told):
    options = PretrainingOptions(length, most, share)
    warning = options.warning()
    assert (warning is None) if told is None else re.search(told, warning)
