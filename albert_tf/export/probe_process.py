# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""The process in which albert_tf.export.self_check calls an export, without albert_tf.

  python probe_process.py SAVED_MODEL FOLDER

Makes the calls of FOLDER/calls.json with the arrays of FOLDER/inputs.npz, and writes
FOLDER/outputs.npz and, with the libraries' versions, FOLDER/versions.json.
"""

import json
import os
import sys


def main(saved_model: str, folder: str) -> None:
    """Runs the calls."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_hub as hub

    with open(os.path.join(folder, "calls.json"), encoding="utf-8") as f:
        calls = json.load(f)
    with np.load(os.path.join(folder, "inputs.npz")) as arrays:
        inputs = {name: tf.constant(array) for name, array in arrays.items()}
    versions = {"tensorflow": tf.__version__, "tensorflow_hub": hub.__version__}
    if any(tensor.dtype == tf.string for tensor in inputs.values()):
        # Models that read text need its operations; others must load without it.
        import tensorflow_text

        versions["tensorflow_text"] = tensorflow_text.__version__
    loaded, outputs = hub.load(saved_model), {}
    for number, call in enumerate(calls):
        given = {name: inputs[f"{number}/{name}"] for name in call["inputs"]}
        called = getattr(loaded, call["attribute"]) if call["attribute"] else loaded
        is_text = any(tensor.dtype == tf.string for tensor in given.values())
        found = called(**given) if is_text else hub.KerasLayer(called)(given)
        for name, value in found.items():
            parts = {name: value}
            if isinstance(value, (list, tuple)):
                parts = {f"{name}/{i}": part for i, part in enumerate(value)}
            for part, tensor in parts.items():
                # Strings as fixed-width bytes, which need no pickle.
                array = tensor.numpy()
                array = array.astype("S") if array.dtype == object else array
                outputs[f"{number}/{part}"] = array
    np.savez(os.path.join(folder, "outputs.npz"), **outputs)
    with open(os.path.join(folder, "versions.json"), "w", encoding="utf-8") as f:
        json.dump(versions, f)


if __name__ == "__main__":
    # Modules beside this file must not be importable by short names such as `encoder`.
    del sys.path[0]
    main(*sys.argv[1:])
