# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes, checks and describes a SavedModel."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.export.model_card import CARD_FILE, Kind, ModelFacts, model_card
from albert_tf.export.saved_model import ReusableSavedModel, write_saved_model
from albert_tf.export.self_check import TOLERANCE, Probe, largest_difference, self_check
from albert_tf.io import files
from albert_tf.training.specs import FLOAT32

REPORT_FILE = "self_check.json"


@dataclasses.dataclass(frozen=True)
class Export:
    """A SavedModel under construction.

    Attributes:
      kind: for the model card.
      root: the object to save.
      signatures: concrete functions, or functions with one signature, by name.
      probes: calls for the self-check.
      assets: see write_saved_model.
      tolerance: see self_check.
      precision: the policy that the SavedModel computes in.
    """

    kind: Kind
    root: ReusableSavedModel
    signatures: Mapping[str, Any]
    probes: Sequence[Probe]
    assets: Mapping[str, tuple[str, bytes]] = dataclasses.field(default_factory=dict)
    tolerance: float = TOLERANCE
    precision: str = FLOAT32


def publish(export: Export, folder: str, facts: ModelFacts) -> float:
    """Saves an export, checks it in a fresh process, and adds the report and the model card.

    Args:
      export: the SavedModel.
      folder: a temporary folder; the caller renames it when it is complete.
      facts: about the model, for the card.

    Returns:
      The largest difference between the outputs of SavedModel and model.

    Raises:
      AlbertError: their outputs differ too much.
    """
    concrete = {
        name: f if hasattr(f, "structured_outputs") else f.get_concrete_function()
        for name, f in export.signatures.items()
    }
    write_saved_model(export.root, concrete, folder, export.assets)
    report = self_check(folder, export.probes, export.tolerance)
    files.write_json(os.path.join(folder, REPORT_FILE), report)
    largest = largest_difference(report)
    ran = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    check = (
        f"Loaded in a fresh process ({ran}) and called {len(report['probes'])} times, with two "
        f"batch sizes and two lengths: outputs differ from the model's by at most {largest:.1e} of "
        f"their largest value (`{REPORT_FILE}`)."
    )
    if export.precision != FLOAT32:
        check += (
            f" The SavedModel computes in {export.precision} and the model in float32, so this is "
            "the error of that precision. Inputs and outputs keep their types."
        )
    card = model_card(export.kind, concrete, facts, check)
    files.write_text(os.path.join(folder, CARD_FILE), card)
    return largest
