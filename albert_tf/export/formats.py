# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""What can be exported in which format; asked before anything is loaded. Free of TensorFlow."""

from __future__ import annotations

from albert_tf.errors import AlbertError

_STRINGS = (
    "TensorFlow Lite has no built-in operations for the strings that it takes; give ids to an "
    "exported encoder, or export a SavedModel."
)
_REFUSED = {
    "model_with_mlm": "the pretraining heads stay behind; take --export_type=model.",
    "preprocessing": _STRINGS,
    "squad": _STRINGS,
    "multiple_choice": _STRINGS,
}


def check_lite(export_type: str) -> None:
    """Refuses what does not become a TensorFlow Lite model.

    Raises:
      AlbertError: `export_type` is none of "model" and "classifier".
    """
    if export_type in _REFUSED:
        raise AlbertError(
            f"--export_type={export_type} cannot be exported to TensorFlow Lite: "
            f"{_REFUSED[export_type]}"
        )
