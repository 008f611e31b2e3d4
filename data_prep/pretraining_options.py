# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The options that decide the pretraining records of a corpus."""

from __future__ import annotations

import dataclasses
import math

from albert_tf.data.masking import MaskingOptions
from albert_tf.data.records import FeatureSpec, compact_features, pretraining_features
from albert_tf.errors import AlbertError

SOP, NSP, NO_OBJECTIVE = OBJECTIVES = ("sop", "nsp", "none")
MASKED, COMPACT = RECORD_FORMATS = ("masked", "compact")
#: Default passes over the corpus. Compact records get new masks in every epoch of training.
_DUPE_FACTORS = {MASKED: 40, COMPACT: 1}


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """The options of a build; create_pretraining_data.py describes them in its flags' help.

    Raises:
      AlbertError: a value is out of range.
    """

    max_seq_length: int = 512
    max_predictions_per_seq: int | None = None
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    short_seq_prob: float = 0.1
    dupe_factor: int | None = None
    random_seed: int = 12345
    sentence_objective: str = SOP
    whole_sentences: bool = False
    repeat_prob: float = 0.0
    record_format: str = MASKED

    def __post_init__(self) -> None:
        """Sets max_predictions_per_seq and dupe_factor if they are None; checks all values."""
        for name, choices in (
            ("record_format", RECORD_FORMATS),
            ("sentence_objective", OBJECTIVES),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise AlbertError(
                    f"`{name}` {value!r} is unknown; choose from {', '.join(choices)}."
                )
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", _DUPE_FACTORS[self.record_format])
        for name, least in (
            ("max_seq_length", 8), ("dupe_factor", 1), ("random_seed", 0)
        ):  # fmt: skip
            if getattr(self, name) < least:
                value = getattr(self, name)
                raise AlbertError(f"`{name}` is {value}; it must be at least {least}.")
        if not 0 < self.masked_lm_prob < 1:
            raise AlbertError(f"`masked_lm_prob` is {self.masked_lm_prob}, not between 0 and 1.")
        for name in ("short_seq_prob", "repeat_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise AlbertError(f"`{name}` is {getattr(self, name)}, not between 0 and 1.")
        if self.max_predictions_per_seq is None:
            most = math.ceil(self.masked_lm_prob * self.max_seq_length)
            object.__setattr__(self, "max_predictions_per_seq", most)
        if not 1 <= self.max_predictions_per_seq < self.max_seq_length:
            raise AlbertError(
                f"`max_predictions_per_seq` is {self.max_predictions_per_seq}; it must be at least "
                f"1 and less than `max_seq_length`, {self.max_seq_length}."
            )
        self.masking()  # Checks its options.
        objective = f"`sentence_objective`={self.sentence_objective}"
        is_nsp = self.sentence_objective == NSP
        if self.whole_sentences and is_nsp:
            raise AlbertError(
                f"`whole_sentences` does not go with {objective}, which takes segments from other "
                "documents."
            )
        if self.repeat_prob and self.sentence_objective != SOP:
            raise AlbertError(f"`repeat_prob` does not go with {objective}; it needs sop.")
        if self.compact and is_nsp:
            raise AlbertError(
                f"{objective} does not go with `record_format`=compact, where training draws the "
                "masks and the sentence order; use `record_format`=masked."
            )

    @property
    def compact(self) -> bool:
        """Whether training draws masks and sentence order."""
        return self.record_format == COMPACT

    @property
    def max_text_tokens(self) -> int:
        """The number of text tokens in a full instance."""
        return self.max_seq_length - (2 if self.sentence_objective == NO_OBJECTIVE else 3)

    def warning(self) -> str | None:
        """Returns a warning if long instances cannot have all their predictions, or None."""
        most, length = self.max_predictions_per_seq, self.max_seq_length
        wanted = int(self.masking().wanted(length))
        if most >= wanted:
            return None
        return (
            f"Warning: `max_predictions_per_seq`={most} lets {most / length:.1%} of an instance of "
            f"{length} tokens be predicted. `masked_lm_prob`={self.masked_lm_prob} asks for "
            f"{wanted} tokens ({self.masked_lm_prob:.0%}); leave `max_predictions_per_seq` out to "
            "predict them all."
        )

    def masking(self) -> MaskingOptions:
        """Returns the options for masking."""
        return MaskingOptions(
            self.max_predictions_per_seq,
            self.masked_lm_prob,
            self.ngram,
            self.favor_shorter_ngram,
            self.do_whole_word_mask,
        )

    def features(self, vocab_size: int) -> dict[str, FeatureSpec]:
        """Returns the layout of the records."""
        if self.compact:
            return compact_features(self.max_seq_length, vocab_size)
        return pretraining_features(self.max_seq_length, self.max_predictions_per_seq)
