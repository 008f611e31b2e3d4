# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints metrics and writes them to eval_results.json."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from albert_tf.errors import DivergedError
from albert_tf.io import files
from albert_tf.io.json_values import joined
from albert_tf.io.log import log
from albert_tf.weights.run_folder import RESULTS_FILE


def constant_answer_note(
    metrics: Mapping[str, float], constant_answers: Mapping[str, str]
) -> str | None:
    """Returns a sentence if metrics are no better than those of a constant answer, else None.

    Args:
      metrics: of an evaluation.
      constant_answers: see Task.
    """
    bad = [
        f"{name} {metrics[name]:.4f}"
        for name, constant in constant_answers.items()
        if metrics.get(name, math.inf) <= metrics.get(constant, 0.0)
    ]
    return f"No better than the same answer every time: {', '.join(bad)}." if bad else None


def print_metrics(results: Mapping[str, float]) -> None:
    """Prints metrics, one per line."""
    log.info("\n".join(f"  {name:24} {value:.4f}" for name, value in results.items()))


def write_results(output_dir: str, results: Mapping[str, float], writes: bool = True) -> None:
    """Writes eval_results.json to `output_dir`, with null for metrics that are not finite.

    Args:
      output_dir: the run's folder.
      results: metrics by name.
      writes: False on workers other than the chief.

    Raises:
      DivergedError: a metric is not finite; the file is written.
    """
    path = os.path.join(output_dir, RESULTS_FILE)
    if writes:
        files.write_json(path, results)
        log.info(f"Written to {path}.")
    bad = [name for name, value in results.items() if not math.isfinite(value)]
    if bad:
        raise DivergedError(
            f"The evaluation is not finite ({joined(bad, 80)}; null in {path}): the training "
            "has diverged. Use another checkpoint, or train again with a lower learning rate."
        )
