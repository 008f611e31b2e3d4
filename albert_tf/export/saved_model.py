# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds SavedModels; writes and checks exports, and describes them in a model card, README.md."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf import __version__
from albert_tf.export.self_check import REPORT_FILE, TOLERANCE, Probe, self_check
from albert_tf.io import files, folders
from albert_tf.io.log import log
from albert_tf.training.specs import BFLOAT16, FLOAT32

CARD_FILE = "README.md"
_TO_BE_FILLED_IN = (
    "What the model is meant for, what its training text may be used for, and "
    "whom its errors and biases may harm, is recorded nowhere beside the weights; write it here."
)
#: Paths and addresses in JSON: folders of the machine that trained the model are private.
_PATH, _LAST_PART = re.compile(r'"(\w+:/)?/([^"]*/)?([^"/]*)/?"'), r'"\3"'
INT8 = "int8"
#: Precisions of exports, and the largest difference from float32, see `self_check`: at least ten
#: times what was measured. float16 would need a GPU and care with large values.
PRECISIONS = {FLOAT32: TOLERANCE, BFLOAT16: 0.25, INT8: 0.5}


class ReusableSavedModel(tf.__internal__.tracking.AutoTrackable):
    """An object with TF-Hub's Reusable SavedModel interface, for hub.KerasLayer.

    It holds variables and `call`, a tf.function that is traced for all the arguments it will be
    called with, but no Keras objects, so the SavedModel loads without Keras and contains no path of
    a Python file.
    """

    def __init__(
        self, call: Callable[..., Any], weights: Iterable[tf.Variable] = (), trainable: bool = True
    ) -> None:
        super().__init__()
        self.variables = list(weights)
        self.trainable_variables = list(self.variables) if trainable else []
        self.regularization_losses = []
        self.__call__ = call


class Export(NamedTuple):
    """An export to write, see `publish`.

    Attributes:
      title: what it is, such as "ALBERT encoder".
      example: Python code that uses it, with {name} for its name.
      root: the object of a SavedModel; None for other formats.
      signatures: of a SavedModel, concrete functions by name.
      probes: calls that check it.
      assets: of a SavedModel, (file name, content) by the root's attribute.
      files: further files: content by name.
      precision: one of PRECISIONS.
    """

    title: str
    example: str
    root: ReusableSavedModel | None
    signatures: Mapping[str, Any]
    probes: Sequence[Probe]
    assets: Mapping[str, tuple[str, bytes]] = {}
    files: Mapping[str, bytes] = {}
    precision: str = FLOAT32


def write_saved_model(export: Export, folder: str) -> None:
    """Saves the SavedModel of an export, without checking it."""
    # The graph contains the paths of assets, which must not reveal folders of this machine.
    with tempfile.TemporaryDirectory() as temporary:
        for name, (file_name, content) in export.assets.items():
            source = os.path.join(temporary, file_name)
            files.write_bytes(source, content)
            setattr(export.root, name, tf.saved_model.Asset(source))
        tf.saved_model.save(export.root, folder, dict(export.signatures))


def publish(
    export: Export,
    path: str,
    sections: Mapping[str, Any],
    overwrite: bool = False,
    source: str = "",
) -> float:
    """Writes an export to a new folder, checked in a fresh process, with report and model card.

    Args:
      export: what to write.
      path: the folder; its name is that of the export.
      sections: of the card, see `model_card`.
      overwrite: see folders.new_folder.
      source: an input, which the folder must not contain.

    Returns:
      The largest difference between the outputs of export and model.

    Raises:
      AlbertError: `path` exists and `overwrite` is not given, or the outputs differ too much.
    """
    # TensorFlow Serving's versions are numbers: models/rte/1.
    parts = path.rstrip("/").rsplit("/", 2)
    name = "/".join(parts[-2:] if parts[-1].isdecimal() else parts[-1:])
    with folders.new_folder(path, overwrite, source) as folder:
        if export.root is not None:
            write_saved_model(export, folder)
        for file, content in export.files.items():
            files.write_bytes(os.path.join(folder, file), content)
        report = self_check(folder, export.probes, PRECISIONS[export.precision])
        files.write_json(os.path.join(folder, REPORT_FILE), report)
        largest = report["largest_difference"]
        check = (
            f"Loaded in a fresh process (TensorFlow {tf.__version__}) and called "
            f"{len(export.probes)} times, with two batch sizes and two lengths: outputs differ "
            f"from those of the model in float32 by at most {largest:.1e} of their largest value "
            f"(`{REPORT_FILE}`). The export computes in {export.precision}."
        )
        card_sections = {"Check": check, **sections, "To be filled in": _TO_BE_FILLED_IN}
        card = model_card(export.title, name, export.example, card_sections)
        files.write_text(os.path.join(folder, CARD_FILE), card)
    log.info(f"The {export.title} is in {path}; {CARD_FILE} there describes it.")
    log.info(f"Checked in a fresh process: outputs differ by at most {largest:.1e}.")
    return largest


def model_card(title: str, name: str, example: str, sections: Mapping[str, Any]) -> str:
    """Returns the card of an export as Markdown.

    The sections are, by title, Markdown or facts, which become JSON; empty ones are left out.
    """
    parts = [
        f"# {title}: {name}",
        f"ALBERT (Lan et al., ICLR 2020) for TensorFlow 2, written by albert_tf {__version__}.",
        f"```python\n{example.format(name=name)}\n```",
    ]
    for title, content in sections.items():
        if content and not isinstance(content, str):
            facts = files.json_bytes(content).decode()
            content = f"```json\n{_PATH.sub(_LAST_PART, facts)}```"
        if content:
            parts += [f"## {title}", content]
    return "\n\n".join(parts) + "\n"
