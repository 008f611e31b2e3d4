# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds SavedModels; writes and checks exports, and describes them in a model card, README.md."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf import __version__
from albert_tf.export.self_check import REPORT_FILE, TOLERANCE, Probe, self_check
from albert_tf.io import files, folders
from albert_tf.io.log import log
from albert_tf.modeling.encoder import INPUTS, AlbertModel
from albert_tf.modeling.kernels.graph_mode import GraphMode, graph_mode
from albert_tf.training.specs import BFLOAT16, FLOAT32

CARD_FILE = "README.md"
_TO_BE_FILLED_IN = {
    "To be filled in": "What the model is meant for, what its training text may be used for, and "
    "whom its errors and biases may harm, is recorded nowhere beside the weights; write it here."
}
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


def text_model(
    call: Callable[..., Any], graph: tf.Module, model: AlbertModel
) -> ReusableSavedModel:
    """Returns the root of a SavedModel that takes texts and has the weights of the model.

    `call`, from texts to outputs, calls `graph`, the tokenizer, and `model`.
    """
    root = ReusableSavedModel(call, list(model.named_weights().values()), trainable=False)
    root.tokenizer = graph
    return root


def input_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns specs of the encoder's inputs and further ones, int32 [None, None]."""
    return {name: tf.TensorSpec([None, None], tf.int32, name) for name in (*INPUTS, *names)}


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


_TEXTS = """import tensorflow as tf
import tensorflow_text  # registers the operations that read text

"""


class Kind(NamedTuple):
    """A kind of export: a title, and Python code that uses it, with {name} for its name."""

    title: str
    example: str

    @classmethod
    def of_texts(cls, title: str, name: str, call: str) -> Kind:
        """Returns the kind of a SavedModel that takes texts; `call` is code that calls `name`."""
        return cls(title, f'{_TEXTS}{name} = tf.saved_model.load("{{name}}")\n{call}')


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
    concrete = {
        name: f if hasattr(f, "structured_outputs") else f.get_concrete_function()
        for name, f in export.signatures.items()
    }
    export = dataclasses.replace(export, signatures=concrete)
    with folders.new_folder(path, overwrite, source) as folder:
        if export.root is not None:
            write_saved_model(export, folder)
        for file, content in export.files.items():
            files.write_bytes(os.path.join(folder, file), content)
        report = self_check(folder, export.probes, PRECISIONS[export.precision])
        files.write_json(os.path.join(folder, REPORT_FILE), report)
        largest, is_exact = report["largest_difference"], export.precision == FLOAT32
        check = (
            f"Loaded in a fresh process (TensorFlow {tf.__version__}) and called "
            f"{len(export.probes)} times, with two batch sizes and two lengths: outputs differ "
            f"from the model's by at most {largest:.1e} of their largest value (`{REPORT_FILE}`)."
        )
        if not is_exact:
            check += (
                f" The export computes in {export.precision} and the model in float32, so this is "
                "the error of that precision. Inputs and outputs keep their types."
            )
        sections = {"Signatures": signature_list(concrete), "Check": check, **sections}
        files.write_text(os.path.join(folder, CARD_FILE), model_card(export.kind, name, sections))
    log.info(f"The {export.kind.title} is in {path}; {CARD_FILE} there describes it.")
    other = "" if is_exact else " from those in float32"
    log.info(f"Checked in a fresh process: outputs differ{other} by at most {largest:.1e}.")
    return largest


def model_card(kind: Kind, name: str, sections: Mapping[str, Any]) -> str:
    """Returns the card of an export as Markdown.

    The sections are, by title, Markdown or a dict of facts, possibly nested; empty ones are left
    out. Without the section "Use" the card asks for it.
    """
    parts = [
        f"# {kind.title}: {name}",
        f"ALBERT (Lan et al., ICLR 2020) for TensorFlow 2, written by albert_tf {__version__}.",
        f"```python\n{kind.example.format(name=name)}\n```",
    ]
    for title, content in {**sections, **({} if "Use" in sections else _TO_BE_FILLED_IN)}.items():
        if isinstance(content, Mapping):
            content = "\n".join(_facts(content))
        if content:
            parts += [f"## {title}", content]
    return "\n\n".join(parts) + "\n"


def signature_list(signatures: Mapping[str, Any]) -> str:
    """Returns the inputs and outputs of concrete functions by name as a list in Markdown."""
    lines = []
    for name, function in signatures.items():
        positional, inputs = function.structured_input_signature
        inputs = {**{x.name: x for x in positional if hasattr(x, "dtype")}, **inputs}
        lines.append(f"- `{name}`: {_specs(inputs)} → {_specs(function.structured_outputs)}")
    return "\n".join(lines)


def _specs(specs: Mapping[str, Any]) -> str:
    texts = []
    for name, spec in specs.items():
        sizes = ", ".join("?" if n is None else str(n) for n in spec.shape)
        texts.append(f"`{name}` {spec.dtype.name} [{sizes}]")
    return ", ".join(texts)


def _facts(values: Mapping[str, Any], prefix: str = "- ") -> Iterator[str]:
    """Yields nested values as lines, without empty ones."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{key}: ")
        elif text := _text(value):
            yield f"{prefix}{key}: {text}"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return " ".join(map(_text, value.values()))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    text = str(value)
    # Folders of the machine that trained the model are private.
    return os.path.basename(text.rstrip("/")) if os.path.isabs(text) or "://" in text else text
