# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""From an object in memory to a SavedModel that is checked, described and complete."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.export.model_card import CARD_FILE, Kind, ModelFacts, model_card
from albert_tf.export.saved_model import Reusable, write_saved_model
from albert_tf.export.self_check import Probe, largest_difference, self_check
from albert_tf.io import files

REPORT_FILE = "self_check.json"


@dataclasses.dataclass(frozen=True)
class Export:
    """A SavedModel under construction.

    Attributes:
      kind: what it is.
      root: its object.
      signatures: concrete functions, or functions of one signature, by name.
      probes: what it is checked with.
      assets: see write_saved_model.
    """

    kind: Kind
    root: Reusable
    signatures: Mapping[str, Any]
    probes: Sequence[Probe]
    assets: Mapping[str, tuple[str, bytes]] = dataclasses.field(default_factory=dict)


def publish(export: Export, folder: str, facts: ModelFacts) -> float:
    """Saves it, checks it in a fresh process, and adds the report and the model card.

    Args:
      export: what to save.
      folder: where to; callers take care that it appears under its final name when complete.
      facts: what is known of the model, for the card.

    Returns:
      The largest difference that the check found.

    Raises:
      AlbertError: the SavedModel does not answer as the model does.
    """
    concrete = {
        name: function if hasattr(function, "structured_outputs") else
        function.get_concrete_function()
        for name, function in export.signatures.items()
    }  # fmt: skip
    write_saved_model(export.root, concrete, folder, export.assets)
    report = self_check(folder, export.probes)
    files.write_json(os.path.join(folder, REPORT_FILE), report)
    largest = largest_difference(report)
    ran = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    check = (
        f"Loaded in a fresh process ({ran}) and called {len(report['probes'])} times, in two batch "
        f"sizes and two lengths: outputs differ from those of the model it was made of by at most "
        f"{largest:.1e} of their largest value (`{REPORT_FILE}`)."
    )
    card = model_card(export.kind, concrete, facts, check)
    files.write_text(os.path.join(folder, CARD_FILE), card)
    return largest
