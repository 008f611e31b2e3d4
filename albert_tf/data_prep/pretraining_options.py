# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The options that decide the pretraining records of a corpus."""

from __future__ import annotations

import dataclasses
import math

from albert_tf.data.masking_options import MaskingOptions
from albert_tf.data.records import FeatureSpec, compact_features, pretraining_features
from albert_tf.errors import AlbertError
from albert_tf.settings import count_setting, setting

SOP, NSP, NO_OBJECTIVE = OBJECTIVES = ("sop", "nsp", "none")
MASKED, COMPACT = RECORD_FORMATS = ("masked", "compact")
#: Default passes over the corpus. Compact records get new masks in every epoch of training.
_DUPE_FACTORS = {MASKED: 40, COMPACT: 1}


@dataclasses.dataclass(frozen=True)
class PretrainingOptions(MaskingOptions):
    """The options of a build.

    Raises:
      AlbertError: a value is impossible, or does not fit another one.
    """

    max_seq_length: int = setting(512, "Tokens per instance, including [CLS] and [SEP].", minimum=8)
    short_seq_prob: float = setting(
        0.1,
        "Share of the documents that, in each pass, are cut into shorter instances of a random "
        "length.",
        maximum=1,
    )
    dupe_factor: int | None = count_setting(
        None,
        "Passes over the corpus, each with different cuts and masks. The records take about 1.7 "
        "times the size of the text for each pass, compact ones 0.6 times. Default: 40; 1 with "
        "record_format=compact, which has different masks in every epoch anyway.",
    )
    num_shards: int | None = count_setting(
        None,
        "Number of shards; each is written by one worker. Default: 10, or fewer for a very small "
        "corpus.",
    )
    random_seed: int = setting(12345, "Seed of all random choices; not negative.")
    sentence_objective: str = setting(
        SOP,
        "sop: two consecutive segments of a document, in half of the instances swapped (label 1). "
        "A single sentence that fills an instance is joined with the next one, the last sentence "
        "of a document with the one before; documents of one sentence are skipped. nsp: in half of "
        "the instances the second segment is from another document (label 1). none: one segment, "
        "label 0.",
        choices=OBJECTIVES,
    )
    whole_sentences: bool = setting(
        False,
        "Truncate nothing: an instance has as many sentences as fit, and the one that no longer "
        "fits is left out. Then only the text tells the order of the segments, not their lengths "
        "or where they are cut (docs/pretraining.md). Not for NSP.",
    )
    repeat_prob: float = setting(
        0.0,
        "Share of the documents that, in each pass, are cut into instances whose two segments are "
        "the same sentences. A word masked in one is usually visible in the other, so the model "
        "learns to compare two texts (docs/pretraining.md). Only for sentence_objective=sop.",
        maximum=1,
    )
    record_format: str = setting(
        MASKED,
        "masked: records with masks, as in the TF1 release. compact: text only; training draws "
        "masks and sentence order, anew in every epoch. The flags for masking and "
        "max_predictions_per_seq then apply to training. Not for NSP.",
        choices=RECORD_FORMATS,
    )

    def __post_init__(self) -> None:
        """Sets max_predictions_per_seq and dupe_factor if they are None; checks all values."""
        super().__post_init__()
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", _DUPE_FACTORS[self.record_format])
        if self.max_predictions_per_seq is None:
            most = math.ceil(self.masked_lm_prob * self.max_seq_length)
            object.__setattr__(self, "max_predictions_per_seq", most)
        if self.max_predictions_per_seq >= self.max_seq_length:
            raise AlbertError(
                f"`max_predictions_per_seq` is {self.max_predictions_per_seq}; it must be less "
                f"than `max_seq_length`, {self.max_seq_length}."
            )
        is_nsp = self.sentence_objective == NSP
        for name, does_not_fit in (
            ("`whole_sentences`", self.whole_sentences and is_nsp),
            ("`record_format`=compact", self.compact and is_nsp),
            ("`repeat_prob`", self.repeat_prob and self.sentence_objective != SOP),
        ):
            if does_not_fit:
                raise AlbertError(
                    f"{name} does not go with `sentence_objective`={self.sentence_objective}."
                )

    @property
    def compact(self) -> bool:
        """Whether training draws masks and sentence order."""
        return self.record_format == COMPACT

    @property
    def max_text_tokens(self) -> int:
        """The number of text tokens in a full instance."""
        return self.max_seq_length - (2 if self.sentence_objective == NO_OBJECTIVE else 3)

    def features(self, vocab_size: int) -> dict[str, FeatureSpec]:
        """Returns the layout of the records."""
        if self.compact:
            return compact_features(self.max_seq_length, vocab_size)
        return pretraining_features(self.max_seq_length, self.max_predictions_per_seq)
