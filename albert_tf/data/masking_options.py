# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How to choose the tokens to predict. Free of NumPy, so that `--help` is fast."""

from __future__ import annotations

import dataclasses

from albert_tf.settings import ABOVE_0, Settings, count_setting, field_names, setting

#: Longest spans, in words.
MAX_NGRAM = 16


@dataclasses.dataclass(frozen=True)
class MaskingOptions(Settings):
    """How to choose the tokens to predict. Words and spans end with their segment.

    Raises:
      AlbertError: a number is out of range.
    """

    max_predictions_per_seq: int | None = count_setting(
        None,
        "Maximum number of predicted tokens per instance. Default: masked_lm_prob × "
        "max_seq_length, rounded up. (The TF1 release's default was 20 at any length.)",
    )
    masked_lm_prob: float = setting(
        0.15, "Share of an instance's tokens to predict.", minimum=ABOVE_0, maximum=1
    )
    ngram: int = count_setting(3, "Longest masked span, in words.", maximum=MAX_NGRAM)
    favor_shorter_ngram: bool = setting(
        True,
        "Draw spans of n words with probability proportional to 1/n; if false, with the same "
        "probabilities in reverse order.",
        flag=None,
    )
    do_whole_word_mask: bool = setting(True, "Mask all pieces of a word or none.")


#: The names of these options.
MASKING_OPTIONS = field_names(MaskingOptions)
