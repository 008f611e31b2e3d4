# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0
"""This project's ways to answer, for benchmarks.inference. See protocol.py.

The setup: "way"; "model", the path of the way's model; "inputs", an .npz file with `texts` and
`ids`; "outputs", where to write the outputs, .npy; "threads"; "frozen", whether to tell oneDNN that
weights are constant.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.peers import protocol


def build(setup: dict[str, Any]) -> Callable[[int], float]:
    """Returns a function that answers as often as it is asked to."""
    if setup["frozen"]:  # Read when the first product is made.
        os.environ["TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"] = "1"
    tf.config.threading.set_intra_op_parallelism_threads(setup["threads"])
    inputs = np.load(setup["inputs"])
    answer = WAYS[setup["way"]](setup["model"], inputs, setup["threads"])
    np.save(setup["outputs"], answer())
    return protocol.repeated(answer)


def _ids(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ids = inputs["ids"]
    return {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
    }


def saved_model(path: str, inputs: dict[str, np.ndarray], threads: int) -> Callable:
    """The SavedModel of the encoder, which takes ids."""
    loaded = tf.saved_model.load(path)
    function, arguments = loaded.signatures["serving_default"], _ids(inputs)

    def answer() -> np.ndarray:
        tensors = {name: tf.constant(value) for name, value in arguments.items()}
        return function(**tensors)["pooled_output"].numpy()

    # The function does not keep the variables alive.
    answer.loaded = loaded
    return answer


def saved_model_text(path: str, inputs: dict[str, np.ndarray], threads: int) -> Callable:
    """The SavedModel of the classifier, which takes text."""
    import tensorflow_text  # noqa: F401 (registers its operations)

    classify, texts = tf.saved_model.load(path), inputs["texts"]
    return lambda: classify(tf.constant(texts))["probabilities"].numpy()


def python(path: str, inputs: dict[str, np.ndarray], threads: int) -> Callable:
    """The model in Python, in a tf.function, as a program of one's own would call it."""
    from albert_tf.weights.pretrained_model import load_pretrained

    model, arguments = load_pretrained(path).encoder, _ids(inputs)
    function = tf.function(lambda values: model(values)["pooled_output"], autograph=False)

    def answer() -> np.ndarray:
        return function({name: tf.constant(v) for name, v in arguments.items()}).numpy()

    return answer


def tflite(path: str, inputs: dict[str, np.ndarray], threads: int) -> Callable:
    """The TensorFlow Lite model."""
    interpreter = tf.lite.Interpreter(f"{path}/model.tflite", num_threads=threads)
    run, arguments = interpreter.get_signature_runner(), _ids(inputs)
    return lambda: run(**arguments)["pooled_output"]


WAYS = {
    "saved_model": saved_model,
    "saved_model_text": saved_model_text,
    "python": python,
    "tflite": tflite,
}

if __name__ == "__main__":
    protocol.serve(build, ("tensorflow",))
