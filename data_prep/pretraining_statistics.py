# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Computes the statistics of pretraining records from the counts of their shards."""

from __future__ import annotations

from collections import Counter
from typing import Any

from data_prep.pretraining_options import PretrainingOptions

_CUTTING = (
    "instances_truncated",
    "tokens_truncated",
    "chunks_merged_with_next_sentence",
    "chunks_merged_with_previous_sentence",
    "chunks_dropped_no_other_document",
    "documents_skipped_single_sentence",
    "sentences_left_out",
    "instances_repeated",
)


def summarize(
    corpus: dict[str, int], counts: Counter[str], options: PretrainingOptions
) -> dict[str, Any]:
    """Returns the manifest's statistics; compact records have none of what training draws.

    Args:
      corpus: counts of split_documents.
      counts: counts of all shards, over all passes.
      options: the build's options.
    """
    return {
        "corpus": dict(corpus),
        "instances": counts["instances"],
        "fill_ratio": _share(
            counts["sequence_tokens"], counts["instances"] * options.max_seq_length
        ),
        **({} if options.compact else _masking_statistics(counts, options)),
        "cutting": {name: counts[name] for name in _CUTTING},
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _masking_statistics(counts: Counter[str], options: PretrainingOptions) -> dict[str, Any]:
    masked = counts["masked_tokens"]
    others = masked - counts["replaced_by_mask"] - counts["kept"]
    spans = {str(n): counts[f"spans_{n}"] for n in range(1, options.ngram + 1)}
    return {
        "label_1_share": _share(counts["label_1"], counts["instances"]),
        "instances_without_predictions": counts["instances_without_predictions"],
        "masked_tokens": masked,
        "masked_share": _share(masked, counts["sequence_tokens"]),
        "masked_as": {
            "mask": _share(counts["replaced_by_mask"], masked),
            "original": _share(counts["kept"], masked),
            "random": _share(others, masked),
        },
        "span_words": {n: _share(count, sum(spans.values())) for n, count in spans.items()},
    }
