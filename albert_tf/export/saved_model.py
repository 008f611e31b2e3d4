# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds SavedModels; writes, checks and describes exports."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.export.model_card import CARD_FILE, Kind, model_card, signature_table
from albert_tf.export.self_check import REPORT_FILE, TOLERANCE, Probe, self_check
from albert_tf.io import files
from albert_tf.modeling.encoder import AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.training.specs import BFLOAT16, FLOAT32

INT8 = "int8"
#: Precisions of exports, and the largest difference from float32, see `self_check`: at least ten
#: times what was measured. float16 would need a GPU and care with large values.
PRECISIONS = {FLOAT32: TOLERANCE, BFLOAT16: 0.25, INT8: 0.5}

#: Returns outputs by name, from the model's inputs by name and `training`.
Outputs = Callable[[Mapping[str, tf.Tensor], bool], dict[str, Any]]


class ReusableSavedModel(tf.__internal__.tracking.AutoTrackable):
    """An object with TF-Hub's Reusable SavedModel interface, for hub.KerasLayer.

    It holds variables and `call`, a tf.function that is traced for all the arguments it will be
    called with, but no Keras objects, so the SavedModel loads without Keras and contains no path of
    a Python file.
    """

    def __init__(
        self, call: Callable[..., Any], weights: Sequence[tf.Variable] = (), trainable: bool = True
    ) -> None:
        super().__init__()
        self.variables = list(weights)
        self.trainable_variables = list(weights) if trainable else []
        self.regularization_losses = []
        self.__call__ = call


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns specs of the encoder's inputs and further ones, int32 [None, None]."""
    names = ("input_word_ids", "input_mask", "input_type_ids", *names)
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}


def strings(name: str, rank: int = 1) -> tf.TensorSpec:
    """Returns the spec of a string input of any size."""
    return tf.TensorSpec([None] * rank, tf.string, name)


def serving_signature(
    function: Outputs, specs: Mapping[str, tf.TensorSpec], mode: GraphMode = GraphMode.SERVED
) -> Any:
    """Returns the serving function of a model: inputs by name, and outputs without lists.

    The `mode` is PLAIN for converters, which have fusions of their own.
    """

    @tf.function(autograph=False)
    def serve(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        with graph_mode(mode):
            outputs = function(inputs, False)
        return {name: value for name, value in outputs.items() if not isinstance(value, list)}

    return serve.get_concrete_function(**specs)


@dataclasses.dataclass(frozen=True)
class Export:
    """An export to write, see `publish`.

    Attributes:
      kind: its title and example.
      root: the object of a SavedModel; None for other formats.
      signatures: concrete functions, or functions with one signature, by name.
      probes: calls that check it.
      assets: of a SavedModel, (file name, content) by the root's attribute.
      files: further files: content by name.
      precision: one of PRECISIONS.
    """

    kind: Kind
    root: ReusableSavedModel | None
    signatures: Mapping[str, Any]
    probes: Sequence[Probe]
    assets: Mapping[str, tuple[str, bytes]] = dataclasses.field(default_factory=dict)
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    precision: str = FLOAT32


def export_in(
    precision: str,
    model: AlbertModel,
    build: Callable[[str], AlbertModel],
    export: Callable[[AlbertModel], Export],
) -> Export:
    """Returns the SavedModel of a float32 model in a precision, to be compared with float32.

    `build` makes another such model in a precision, and `export` the export of a model.
    """
    exact = export(model)
    if precision == FLOAT32:
        return exact
    rounded = build(precision)
    weights = model.named_weights()
    for name, variable in rounded.named_weights().items():
        variable.assign(tf.cast(weights[name], variable.dtype))
    return dataclasses.replace(export(rounded), probes=exact.probes, precision=precision)


def write_saved_model(
    root: ReusableSavedModel,
    signatures: Mapping[str, Any],
    folder: str,
    assets: Mapping[str, tuple[str, bytes]] | None = None,
) -> None:
    """Saves an object with its signatures, and assets (file name, content) by its attribute."""
    # The graph contains the paths of assets, which must not reveal folders of this machine.
    with tempfile.TemporaryDirectory() as temporary:
        for name, (file_name, content) in (assets or {}).items():
            source = os.path.join(temporary, file_name)
            files.write_bytes(source, content)
            setattr(root, name, tf.saved_model.Asset(source))
        tf.saved_model.save(root, folder, dict(signatures))


def publish(export: Export, folder: str, name: str, sections: Mapping[str, Any]) -> float:
    """Writes an export, checks it in a fresh process, and adds the report and the model card.

    Returns the largest difference between the outputs of export and model. The caller renames the
    temporary folder when it is complete. On `name` and `sections` see `model_card`.

    Raises:
      AlbertError: their outputs differ too much.
    """
    concrete = {
        name: f if hasattr(f, "structured_outputs") else f.get_concrete_function()
        for name, f in export.signatures.items()
    }
    if export.root is not None:
        write_saved_model(export.root, concrete, folder, export.assets)
    for file, content in export.files.items():
        files.write_bytes(os.path.join(folder, file), content)
    report = self_check(folder, export.probes, PRECISIONS[export.precision])
    files.write_json(os.path.join(folder, REPORT_FILE), report)
    largest = report["largest_difference"]
    check = (
        f"Loaded in a fresh process (TensorFlow {tf.__version__}) and called {len(export.probes)} "
        "times, with two batch sizes and two lengths: outputs differ from the model's by at most "
        f"{largest:.1e} of their largest value (`{REPORT_FILE}`)."
    )
    if export.precision != FLOAT32:
        check += (
            f" The export computes in {export.precision} and the model in float32, so this is the "
            "error of that precision. Inputs and outputs keep their types."
        )
    sections = {"Signatures": signature_table(concrete), "Check": check, **sections}
    files.write_text(os.path.join(folder, CARD_FILE), model_card(export.kind, name, sections))
    return largest
