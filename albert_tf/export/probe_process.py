# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The process in which albert_tf.export.self_check calls an export, without albert_tf.

  python probe_process.py EXPORT INPUTS.npz OUTPUTS.npz

The arrays of INPUTS are named call/attribute/input, where the attribute of the SavedModel's root
may be empty; those of OUTPUTS call/output, and version/library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

#: Makes a call of an attribute with arguments by name; returns outputs by name.
Run = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


def main(export: str, inputs_file: str, outputs_file: str) -> None:
    """Makes the calls."""
    import numpy as np

    calls, outputs = {}, {}
    with np.load(inputs_file) as arrays:
        for name, array in arrays.items():
            number, attribute, argument = name.split("/")
            calls.setdefault((number, attribute), {})[argument] = array
    is_text = any(array.dtype.kind == "S" for call in calls.values() for array in call.values())
    run, versions = _load(export, is_text)
    for (number, attribute), arguments in calls.items():
        for name, value in run(attribute, arguments).items():
            is_list = isinstance(value, (list, tuple))
            parts = {f"{name}/{i}": x for i, x in enumerate(value)} if is_list else {name: value}
            for part, tensor in parts.items():
                # Strings as fixed-width bytes, which need no pickle.
                array = np.asarray(tensor)
                array = array.astype("S") if array.dtype == object else array
                outputs[f"{number}/{part}"] = array
    outputs.update({f"version/{name}": np.array(version) for name, version in versions.items()})
    np.savez(outputs_file, **outputs)


def _load(export: str, is_text: bool) -> tuple[Run, dict[str, str]]:
    """Returns a function that calls the export, and versions by library."""
    onnx, lite = (os.path.join(export, f"model.{kind}") for kind in ("onnx", "tflite"))
    if os.path.exists(onnx):
        import onnxruntime

        session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        versions = {"onnxruntime": onnxruntime.__version__}
        return lambda _, arguments: dict(zip(names, session.run(None, arguments))), versions
    import tensorflow as tf

    versions = {"tensorflow": tf.__version__}
    if os.path.exists(lite):
        interpreter = tf.lite.Interpreter(lite).get_signature_runner()
        return lambda _, arguments: interpreter(**arguments), versions
    import tensorflow_hub as hub

    versions["tensorflow_hub"] = hub.__version__
    if is_text:
        # Models that read text need its operations; others must load without it.
        import tensorflow_text

        versions["tensorflow_text"] = tensorflow_text.__version__
    loaded = hub.load(export)

    def run(attribute: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        called = getattr(loaded, attribute) if attribute else loaded
        tensors = {name: tf.constant(array) for name, array in arguments.items()}
        return called(**tensors) if is_text else hub.KerasLayer(called)(tensors)

    return run, versions


if __name__ == "__main__":
    # Modules beside this file must not be importable by short names such as `encoder`.
    del sys.path[0]
    main(*sys.argv[1:])
