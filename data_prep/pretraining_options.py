# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything that decides what the pretraining records of a corpus are."""

from __future__ import annotations

import dataclasses
import math

from albert_tf.data.masking_options import MaskingOptions
from albert_tf.data.records import FeatureSpec, compact_features, pretraining_features
from albert_tf.errors import AlbertError
from data_prep.instances import OBJECTIVES, InstanceOptions

GOOGLE_RESEARCH = "google_research"
MASKED, COMPACT = RECORD_FORMATS = ("masked", "compact")
#: Passes over the corpus. Compact records get new masks in every epoch of training.
_DUPE_FACTORS = {MASKED: 40, COMPACT: 1}


@dataclasses.dataclass(frozen=True)
class PretrainingOptions:
    """The flags of create_pretraining_data.py that change the records; see their help there.

    Raises:
      AlbertError: a value is out of range.
    """

    max_seq_length: int = 512
    max_predictions_per_seq: int | None = None
    masked_lm_prob: float = 0.15
    ngram: int = 3
    favor_shorter_ngram: bool = True
    do_whole_word_mask: bool = True
    do_permutation: bool = False
    short_seq_prob: float = 0.1
    dupe_factor: int | None = None
    random_seed: int = 12345
    sentence_objective: str = "sop"
    compat: str | None = None
    record_format: str = MASKED

    def __post_init__(self) -> None:
        """Fills in max_predictions_per_seq and dupe_factor, and checks all values."""
        if self.record_format not in RECORD_FORMATS:
            raise AlbertError(f"--record_format {self.record_format!r} is unknown.")
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", _DUPE_FACTORS[self.record_format])
        for name, least in (("max_seq_length", 8), ("ngram", 1), ("dupe_factor", 1)):
            if getattr(self, name) < least:
                raise AlbertError(f"--{name} is {getattr(self, name)}; the least is {least}.")
        if self.random_seed < 0:
            raise AlbertError(f"--random_seed is {self.random_seed}; it cannot be negative.")
        if not 0 < self.masked_lm_prob < 1:
            raise AlbertError(f"--masked_lm_prob is {self.masked_lm_prob}, not between 0 and 1.")
        if not 0 <= self.short_seq_prob <= 1:
            raise AlbertError(f"--short_seq_prob is {self.short_seq_prob}, not between 0 and 1.")
        if self.sentence_objective not in OBJECTIVES:
            raise AlbertError(f"--sentence_objective {self.sentence_objective!r} is unknown.")
        if self.compat not in (None, GOOGLE_RESEARCH):
            raise AlbertError(f"--compat {self.compat!r} is unknown; {GOOGLE_RESEARCH} is known.")
        if self.max_predictions_per_seq is None:
            most = math.ceil(self.masked_lm_prob * self.max_seq_length)
            object.__setattr__(self, "max_predictions_per_seq", most)
        if not 1 <= self.max_predictions_per_seq < self.max_seq_length:
            raise AlbertError(
                f"--max_predictions_per_seq is {self.max_predictions_per_seq}; it must be between "
                f"1 and the sequence length, {self.max_seq_length}."
            )
        self._check_compact()

    def _check_compact(self) -> None:
        """Raises AlbertError for what cannot be drawn while training."""
        if not self.compact:
            return
        refused = {
            "--sentence_objective=nsp": self.sentence_objective == "nsp",
            "--do_permutation": self.do_permutation,
            f"--compat={GOOGLE_RESEARCH}": self.official,
        }
        for flag, given in refused.items():
            if given:
                raise AlbertError(
                    f"{flag} does not go with --record_format=compact, whose masks and sentence "
                    "order are drawn while training; use --record_format=masked."
                )

    @property
    def compact(self) -> bool:
        """Whether masks and sentence order are left to training."""
        return self.record_format == COMPACT

    @property
    def official(self) -> bool:
        """Whether the official builder's defects are wanted."""
        return self.compat == GOOGLE_RESEARCH

    @property
    def needs_other_documents(self) -> bool:
        """Whether segments are drawn from unrelated documents."""
        return self.sentence_objective == "nsp" or self.official

    def warning(self) -> str | None:
        """What to tell before a build in which long instances cannot have all their predictions."""
        most, length = self.max_predictions_per_seq, self.max_seq_length
        wanted = int(self.masking().wanted(length))
        if most >= wanted:
            return None
        return (
            f"Warning: --max_predictions_per_seq={most} leaves {most / length:.1%} of an instance "
            f"of {length} tokens to be predicted, not the {self.masked_lm_prob:.0%} of "
            f"--masked_lm_prob, which take {wanted}; leave the flag out to have them all."
        )

    def instances(self) -> InstanceOptions:
        """The part that concerns the cutting of documents."""
        return InstanceOptions(
            self.max_seq_length, self.short_seq_prob, self.sentence_objective, self.official
        )

    def features(self, vocab_size: int) -> dict[str, FeatureSpec]:
        """The records' layout."""
        if self.compact:
            return compact_features(self.max_seq_length, vocab_size)
        return pretraining_features(self.max_seq_length, self.masking().predictions)

    def masking(self) -> MaskingOptions:
        """The part that concerns masking."""
        return MaskingOptions(
            self.max_predictions_per_seq,
            self.masked_lm_prob,
            self.ngram,
            self.favor_shorter_ngram,
            self.do_whole_word_mask,
            within_segments=not self.official,
            permute=self.do_permutation,
        )
