# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""How words are chosen for prediction: what the record builder and training have in common.

Source: google-research/albert create_pretraining_data.create_masked_lm_predictions; paper, section
4.1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

#: Of the predicted tokens so many become [MASK], so many stay, the others become random pieces.
MASK_SHARE = 0.8
KEEP_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class MaskingOptions:
    """How tokens are chosen for prediction.

    Attributes:
      max_predictions_per_seq: most tokens predicted in an instance.
      masked_lm_prob: share of an instance's tokens, [CLS] and [SEP] counted, to be predicted.
      ngram: longest span, in words.
      favor_shorter_ngram: draw a span of n words with probability proportional to 1/n; else the
        same probabilities in reverse.
      whole_words: mask all pieces of a word or none.
      within_segments: no span and no word crosses a [SEP]. The official builder lets both.
      permute: choose as many tokens again, shuffle them among themselves and predict them too.
    """

    max_predictions_per_seq: int
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    whole_words: bool = True
    within_segments: bool = True
    permute: bool = False

    @property
    def predictions(self) -> int:
        """Most tokens predicted in an instance, shuffled ones included."""
        return self.max_predictions_per_seq * (2 if self.permute else 1)

    def budgets(self, lengths: np.ndarray) -> np.ndarray:
        """Tokens to predict in instances of the given lengths; halves round to even."""
        return np.minimum(self.max_predictions_per_seq, self.wanted(lengths))

    def wanted(self, lengths: np.ndarray) -> np.ndarray:
        """The same as `budgets` without a limit."""
        return np.maximum(1, np.rint(lengths * self.masked_lm_prob)).astype(np.int32)

    def span_thresholds(self) -> np.ndarray:
        """Cumulative probabilities of spans of 1 … ngram words."""
        weights = 1 / np.arange(1, self.ngram + 1)
        if not self.favor_shorter_ngram:
            weights = weights[::-1]
        return np.cumsum(weights / weights.sum())
