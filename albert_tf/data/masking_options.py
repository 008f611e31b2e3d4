# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of masked word prediction, shared by the record builder and dynamic masking.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from albert_tf.errors import AlbertError

#: Longest spans, in words; much longer ones take minutes to compile.
MAX_NGRAM = 16
#: Shares of the predicted tokens that become [MASK] and that stay; the rest become random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class MaskingOptions:
    """How to choose the tokens to predict.

    Attributes:
      max_predictions_per_seq: maximum number of predicted tokens in an instance.
      masked_lm_prob: share of an instance's tokens, including [CLS] and [SEP], to predict.
      ngram: maximum length of a span, in words.
      favor_shorter_ngram: draw spans of n words with probabilities proportional to 1/n; otherwise
        with the same probabilities in reverse order.
      whole_words: mask all pieces of a word or none.
      within_segments: neither spans nor words cross a [SEP]. In the official builder both may.
      permute: choose the same number of tokens again, shuffle them and predict them too.

    Raises:
      AlbertError: a number is out of range.
    """

    max_predictions_per_seq: int
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    whole_words: bool = True
    within_segments: bool = True
    permute: bool = False

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if not 1 <= self.ngram <= MAX_NGRAM:
            raise AlbertError(f"`ngram` is {self.ngram}; it must be from 1 to {MAX_NGRAM}.")
        if not 0 < self.masked_lm_prob <= 1:
            raise AlbertError(f"`masked_lm_prob` is {self.masked_lm_prob}, not between 0 and 1.")
        if self.max_predictions_per_seq < 1:
            raise AlbertError(
                f"`max_predictions_per_seq` is {self.max_predictions_per_seq}; it must be at least "
                "1."
            )

    @property
    def predictions(self) -> int:
        """Maximum number of predicted tokens in an instance, including shuffled ones."""
        return self.max_predictions_per_seq * (2 if self.permute else 1)

    def budgets(self, lengths: np.ndarray) -> np.ndarray:
        """Returns how many tokens to predict at each length; halves round to even."""
        return np.minimum(self.max_predictions_per_seq, self.wanted(lengths))

    def wanted(self, lengths: np.ndarray) -> np.ndarray:
        """Returns `budgets` without the limit of max_predictions_per_seq."""
        return np.maximum(1, np.rint(lengths * self.masked_lm_prob)).astype(np.int32)

    def span_thresholds(self) -> np.ndarray:
        """Returns the cumulative probabilities of spans of 1 … ngram words."""
        weights = 1 / np.arange(1, self.ngram + 1)
        if not self.favor_shorter_ngram:
            weights = weights[::-1]
        return np.cumsum(weights / weights.sum())
