# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The process in which albert_tf.export.self_check calls an export, without albert_tf.

  python probe_process.py EXPORT CALLS

CALLS is a folder of .npz files, each with the inputs of a call; its name is NUMBER-ATTRIBUTE.npz,
where the attribute of the SavedModel's root may be empty. Outputs replace the inputs, see `arrays`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def main(export: str, calls: str) -> None:
    """Makes the calls."""
    import numpy as np

    run = None
    for name in os.listdir(calls):
        file = os.path.join(calls, name)
        with np.load(file) as saved:
            inputs = {**saved}
        if run is None:
            run = _load(export, any(array.dtype.kind == "S" for array in inputs.values()))
        attribute = name.removesuffix(".npz").partition("-")[2]
        np.savez(file, **arrays(run(attribute, inputs)))


def arrays(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns outputs as arrays: strings as bytes, the entries of a list as one array."""
    import numpy as np

    found = {}
    for name, value in outputs.items():
        array = np.stack(value) if isinstance(value, (list, tuple)) else np.asarray(value)
        found[name] = array.astype("S") if array.dtype == object else array
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

    def run(attribute, inputs) -> dict[str, Any]:
        called = getattr(loaded, attribute) if attribute else loaded
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        return called(**tensors) if is_text else hub.KerasLayer(called)(tensors)

    return run


if __name__ == "__main__":
    # Modules beside this file must not be importable by short names such as `encoder`.
    del sys.path[0]
    main(*sys.argv[1:])
