# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The process in which albert_tf.export.self_check calls an export, without albert_tf.

  python probe_process.py EXPORT CALLS OUTPUTS

Both are .npz files. The arrays of CALLS are named call/attribute/input, where the attribute of the
SavedModel's root may be empty; those of OUTPUTS call/output, see `arrays`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def main(export: str, calls_file: str, outputs_file: str) -> None:
    """Makes the calls."""
    import numpy as np

    calls: dict[str, dict[str, Any]] = {}
    with np.load(calls_file) as saved:
        for name, array in saved.items():
            call, _, argument = name.rpartition("/")
            calls.setdefault(call, {})[argument] = array
    is_text = any(array.dtype.kind == "S" for call in calls.values() for array in call.values())
    run = _load(export, is_text)
    outputs = {}
    for call, inputs in calls.items():
        number, _, attribute = call.partition("/")
        found = arrays(run(attribute, inputs))
        outputs.update((f"{number}/{name}", array) for name, array in found.items())
    np.savez(outputs_file, **outputs)


def arrays(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns outputs as arrays, strings as bytes; the entries of lists become name/0, name/1, …"""
    import numpy as np

    found = {}
    for name, value in outputs.items():
        is_list = isinstance(value, (list, tuple))
        parts = {f"{name}/{i}": x for i, x in enumerate(value)} if is_list else {name: value}
        for part, tensor in parts.items():
            array = np.asarray(tensor)
            found[part] = array.astype("S") if array.dtype == object else array
    return found


def _load(export: str, is_text: bool) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
    """Returns a function from an attribute and inputs by name to outputs by name."""
    onnx, lite = (os.path.join(export, f"model.{kind}") for kind in ("onnx", "tflite"))
    if os.path.exists(onnx):
        import onnxruntime

        session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return lambda _, inputs: dict(zip(names, session.run(None, inputs)))
    import tensorflow as tf

    if os.path.exists(lite):
        run_lite = tf.lite.Interpreter(lite).get_signature_runner()
        return lambda _, inputs: run_lite(**inputs)
    import tensorflow_hub as hub

    if is_text:
        # Models that read text need its operations; others must load without it.
        import tensorflow_text  # noqa: F401
    loaded = hub.load(export)

    def run(attribute: str, inputs: dict[str, Any]) -> dict[str, Any]:
        called = getattr(loaded, attribute) if attribute else loaded
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        return called(**tensors) if is_text else hub.KerasLayer(called)(tensors)

    return run


if __name__ == "__main__":
    # Modules beside this file must not be importable by short names such as `encoder`.
    del sys.path[0]
    main(*sys.argv[1:])
