# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a build: defaults and conflicts."""

import pytest

from albert_tf.data_prep.pretraining_options import PretrainingOptions
from albert_tf.errors import AlbertError


def test_max_predictions_follow_the_length():
    assert PretrainingOptions(max_seq_length=512).max_predictions_per_seq == 77
    assert PretrainingOptions(max_seq_length=128).max_predictions_per_seq == 20
    assert PretrainingOptions(max_predictions_per_seq=20).max_predictions_per_seq == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"whole_sentences": True, "sentence_objective": "nsp"},
            "`whole_sentences` does not go with `sentence_objective`=nsp",
        ),
        *(
            (
                {"repeat_prob": 0.1, "sentence_objective": objective},
                f"`repeat_prob` does not go with `sentence_objective`={objective}",
            )
            for objective in ("nsp", "none")
        ),
        (
            {"record_format": "compact", "sentence_objective": "nsp"},
            "`record_format`=compact does not go with `sentence_objective`=nsp",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(AlbertError, match=f"^{message}"):
        PretrainingOptions(**options)
